//! Following a partition whose writer is in another process: its marks, from this process's own fold of its events.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use gatelog_runner::{Fold, Health};
use gatelog_writer::{Followed, Receiver};

use super::Process;
use crate::server::StartError;

/// How long one wait for news lasts. Whether to stop is looked at in between.
const LOOK: Duration = Duration::from_millis(250);

/// Makes the marks of a partition known that is hosted elsewhere.
pub fn start(process: &Process, fold: Arc<dyn Fold>) -> Result<JoinHandle<()>, StartError> {
    let partition = fold.partition();
    let followed = Followed::new(partition);
    let receiver: Arc<dyn Receiver> = Arc::clone(&followed) as _;
    process.directory.insert(receiver);
    let stop = Arc::clone(&process.stop);
    process.thread(&format!("follow {partition}"), move || {
        let published = fold.published();
        while !stop.load(Ordering::Relaxed) {
            let position = published.position().sequence;
            // Before it has caught up it would only have what was taken sent again.
            if published.health() == Health::Following {
                match fold.marks() {
                    Ok(marks) => followed.advance(marks),
                    Err(error) => tracing::warn!(%partition, %error, "marks cannot be read"),
                }
            }
            published.wait_at_most(position + 1, LOOK);
        }
    })
}
