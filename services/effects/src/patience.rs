//! Attempts on a host without room: they are made again until there is some, for as long as it takes, and count as one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gatelog_executing::{BuildControl, BuildOutcome, BuildResult as Verdict, RetryCause, Returned};
use gatelog_record::{BuildsetId, Sealed};
use gatelog_room::{Lack, Pause, Waiting};

use crate::handing_on::Place;
use crate::worker::{Failed, Held, LeaseSource, Worker};

/// How often an attempt begins again whose playbooks had begun: a job that itself uses up what the host has would do so for
/// ever. Then it ends as an attempt that failed before run does, and is counted.
const REPEATS: u32 = 3;

/// What became of an attempt: an outcome, or why there is none.
pub(crate) type Attempted = Result<(BuildOutcome, Arc<Place>), Failed>;

/// What an attempt was made in vain for want of.
struct Vain {
    lack: Lack,
    /// What the system said.
    said: String,
    /// Whether playbooks of the job had begun.
    begun: bool,
}

impl Vain {
    fn of(attempted: &Attempted, now: impl FnOnce() -> Option<Lack>) -> Option<Vain> {
        match attempted {
            // What failed on a host without room may have failed for that, whatever it says.
            Err(failed) => {
                let lack = Lack::of_text(&failed.message).or_else(now)?;
                Some(Vain { lack, said: failed.message.clone(), begun: false })
            }
            Ok((outcome, _)) => match outcome.result {
                Verdict::Retry(RetryCause::NoRoom { lack, begun }) => {
                    let task = outcome.failing_task.as_ref().map(|task| format!("task {:?} failed", task.task));
                    let said = outcome.detail.clone().or(task).unwrap_or_else(|| "a playbook failed".to_owned());
                    Some(Vain { lack, said, begun })
                }
                _ => None,
            },
        }
    }
}

impl Worker {
    /// An attempt, made again for as long as this host has no room for it. Its lease is kept meanwhile.
    pub(crate) async fn run_with_room(
        &self,
        lease: &Held,
        source: &Arc<dyn LeaseSource>,
        control: &BuildControl,
    ) -> Attempted {
        let (mut pause, mut waiting, mut repeats) = (Pause::default(), None::<Waiting>, 0);
        loop {
            let attempted = self.run(lease, source, control).await;
            let vain = Vain::of(&attempted, || self.executor.lack());
            let Some(Vain { lack, said, begun }) = vain.filter(|_| !control.is_aborted()) else { return attempted };
            repeats += u32::from(begun);
            if repeats > REPEATS {
                return attempted;
            }
            let lack = lack.told_apart(self.executor.places());
            let what = || format!("build {} attempt {}", lease.build, lease.attempt);
            match &waiting {
                Some(waiting) => waiting.again(lack, said),
                None => waiting = Some(self.room.wait(what(), lack, said)),
            }
            loop {
                tokio::select! {
                    _ = control.wait() => return Err(Failed::given_up()),
                    () = tokio::time::sleep(pause.take()) => {}
                }
                // What has begun before is done again, with all it does elsewhere, only where it may go on.
                if !begun || self.executor.lack().is_none() {
                    break;
                }
            }
        }
    }

    /// What a job returned in secret, sealed as soon as there is room for the seal's key: nobody else has this.
    pub(crate) fn sealed_with_room(
        &self,
        lease: &Held,
        buildset: BuildsetId,
        returned: &Returned,
    ) -> Result<Option<Sealed>, String> {
        let (mut pause, mut waiting) = (Pause::default(), None::<Waiting>);
        loop {
            let error = match self.sealed(buildset, returned) {
                Err(error) if !self.stop.load(Ordering::Relaxed) => error,
                done => return done,
            };
            let Some(lack) = Lack::of_text(&error) else { return Err(error) };
            match &waiting {
                Some(waiting) => waiting.again(lack, error),
                None => waiting = Some(self.room.wait(format!("what build {} returned", lease.build), lack, error)),
            }
            std::thread::sleep(pause.take());
        }
    }
}
