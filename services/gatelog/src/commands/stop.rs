//! Ctrl-C and SIGTERM ask to stop; whoever runs looks at the flag.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

/// A flag that Ctrl-C or SIGTERM sets. The second one ends the process at once: whatever dies, the log tells how to
/// go on.
pub fn on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("signals")?;
    let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            runtime.block_on(async move {
                use tokio::signal::unix::{SignalKind, signal};
                let both =
                    signal(SignalKind::terminate()).and_then(|term| Ok((term, signal(SignalKind::interrupt())?)));
                let (mut terminate, mut interrupt) = match both {
                    Ok(both) => {
                        let _ = ready.send(Ok(()));
                        both
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        return;
                    }
                };
                loop {
                    tokio::select! {
                        _ = terminate.recv() => {}
                        _ = interrupt.recv() => {}
                    }
                    if set.swap(true, Ordering::SeqCst) {
                        std::process::exit(130);
                    }
                }
            });
        })
        .context("signals")?;
    is_ready.recv().context("signals")?.context("signals")?;
    Ok(flag)
}
