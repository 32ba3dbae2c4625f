//! A partition with everything it needs: its writer, its timer service, its forwarder.

use std::sync::Arc;

use gatelog_deciding::Rules;

use crate::forwarder::Forwarder;
use crate::published::{Published, WriterHealth};
use crate::receivers::{Directory, Receiver};
use crate::timers::TimerService;
use crate::writer::{Setup, Writer};

/// A partition's writer, timer service and forwarder. Dropping it stops them.
pub struct Host {
    // In the order in which they are dropped: nobody appends for a writer that is gone.
    forwarder: Forwarder,
    timers: TimerService,
    writer: Writer,
}

impl Host {
    /// Starts a partition and makes it known in the directory.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn start<R: Rules + 'static>(setup: Setup<R>, directory: &Arc<Directory>) -> std::io::Result<Host> {
        let (log, clock, published) = (Arc::clone(&setup.log), Arc::clone(&setup.clock), Arc::clone(&setup.published));
        let receiver: Arc<dyn Receiver> = Arc::clone(&published) as _;
        directory.insert(receiver);
        let writer = Writer::start(setup)?;
        let timers = TimerService::start(Arc::clone(&log), Arc::clone(&clock), Arc::clone(&published))?;
        let forwarder = Forwarder::start(log, clock, published, Arc::clone(directory))?;
        Ok(Host { forwarder, timers, writer })
    }

    /// What the partition makes known.
    pub fn published(&self) -> &Arc<Published> {
        self.writer.published()
    }

    /// Stops the partition; what is in flight comes home first.
    pub fn stop(self) -> WriterHealth {
        let Host { forwarder, timers, writer } = self;
        forwarder.stop();
        timers.stop();
        writer.stop()
    }
}
