//! Following a partition whose writer is in another process: its marks, from this process's own fold of its events.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use gatelog_partition_state::PartitionTables;
use gatelog_record::Partition;
use gatelog_runner::Health;
use gatelog_store::RocksBacking;
use gatelog_tables::{DomainState, TableExt};
use gatelog_writer::{Followed, Receiver};

use super::{Folded, Process};
use crate::server::StartError;

/// How long one wait for news lasts. Whether to stop is looked at in between.
const LOOK: Duration = Duration::from_millis(250);

/// Makes the marks of a partition known that is hosted elsewhere.
pub fn start<S: DomainState>(
    process: &Process,
    partition: Partition,
    folded: &Folded<S>,
    tables: fn(&S::Live<RocksBacking>) -> &PartitionTables<RocksBacking>,
) -> Result<JoinHandle<()>, StartError> {
    let followed = Followed::new(partition);
    let receiver: Arc<dyn Receiver> = Arc::clone(&followed) as _;
    process.directory.insert(receiver);
    let (projection, published, stop) =
        (folded.projection.clone(), folded.published.clone(), Arc::clone(&process.stop));
    process.thread(&format!("follow {partition}"), move || {
        while !stop.load(Ordering::Relaxed) {
            let position = published.position().sequence;
            // Before it has caught up it would only have what was taken sent again.
            if published.health() == Health::Following {
                let view = projection.view();
                match tables(view.live()).marks.all() {
                    Ok(rows) => followed.advance(rows.filter_map(Result::ok).map(|(sender, mark)| (sender, *mark))),
                    Err(error) => tracing::warn!(%partition, %error, "marks cannot be read"),
                }
            }
            published.wait_at_most(position + 1, LOOK);
        }
    })
}
