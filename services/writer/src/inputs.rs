//! Appending inputs from a thread that may be asked to stop meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gatelog_event_log::Log;
use gatelog_record::{InputRecord, Stream};

/// How often a wait looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) enum Sent {
    /// Acknowledged.
    Kept,
    /// Not, or not known to be.
    Failed(String),
    /// Whoever waited is to stop.
    Stopping,
}

/// Appends inputs and waits for the acknowledgement.
pub(crate) fn send(
    log: &dyn Log,
    stream: Stream,
    inputs: impl Iterator<Item = InputRecord>,
    stop: &AtomicBool,
) -> Sent {
    let frames: Result<Vec<Vec<u8>>, _> = inputs.map(|input| input.close().map(|frame| frame.encode())).collect();
    let frames = match frames {
        Ok(frames) => frames,
        Err(error) => return Sent::Failed(error.to_string()),
    };
    let mut answer = log.append_inputs(stream, frames);
    loop {
        answer = match answer.wait_for(LOOK) {
            Ok(Some(Ok(_))) => return Sent::Kept,
            Ok(Some(Err(error))) => return Sent::Failed(error.to_string()),
            Ok(None) => return Sent::Failed("the log gave no answer".to_owned()),
            Err(answer) if stop.load(Ordering::Acquire) => {
                drop(answer);
                return Sent::Stopping;
            }
            Err(answer) => answer,
        };
    }
}
