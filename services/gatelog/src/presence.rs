//! Signs of life, and the verdict on who gives none.
//!
//! Signs themselves are no history; only the verdict is an input. In one process the signs are kept
//! in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gatelog_record::draft::capacity::WorkerSilent;
use gatelog_record::input::CapacityInput;
use gatelog_record::{InputId, InputRecord};

/// How often a worker gives a sign.
pub const SIGN_EVERY: Duration = Duration::from_secs(3);
/// After this long without one, a worker is taken for dead.
pub const SILENT_AFTER: Duration = Duration::from_secs(30);

/// When each worker gave its last sign.
#[derive(Clone)]
pub struct Presence {
    signs: Arc<Mutex<BTreeMap<(String, String), Instant>>>,
    began: Instant,
}

impl Default for Presence {
    fn default() -> Self {
        Presence { signs: Arc::default(), began: Instant::now() }
    }
}

impl Presence {
    /// A worker gives a sign.
    pub fn sign(&self, worker: &str, incarnation: &str) {
        let mut signs = self.signs.lock().unwrap_or_else(PoisonError::into_inner);
        signs.retain(|(name, start), _| name != worker || start == incarnation);
        signs.insert((worker.to_owned(), incarnation.to_owned()), Instant::now());
    }

    /// Of the workers capacity knows (name and incarnation), those that are silent for too long. A
    /// worker never heard of since this process began is counted from then.
    pub fn silent(&self, known: &[(String, String)], now: Instant) -> Vec<InputRecord> {
        let signs = self.signs.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .iter()
            .filter_map(|(worker, incarnation)| {
                let last = signs.get(&(worker.clone(), incarnation.clone())).copied().unwrap_or(self.began);
                let silent = now.saturating_duration_since(last);
                if silent < SILENT_AFTER {
                    return None;
                }
                let input = CapacityInput::WorkerSilent(WorkerSilent {
                    worker: worker.clone(),
                    incarnation: incarnation.clone(),
                    silent_ms: i64::try_from(silent.as_millis()).unwrap_or(i64::MAX),
                });
                let id = InputId::new(format!("worker/{worker}/{incarnation}/silent"));
                Some(InputRecord::new(id, "main", crate::clock::now(), input))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_silent_thirty_seconds_after_its_last_sign() {
        let presence = Presence::default();
        presence.sign("w1", "a");
        let known = [("w1".to_owned(), "a".to_owned()), ("w2".to_owned(), "b".to_owned())];
        let now = Instant::now();
        assert_eq!(presence.silent(&known, now + Duration::from_secs(29)), []);
        let silent = presence.silent(&known, now + Duration::from_secs(31));
        assert_eq!(silent.len(), 2, "w2 was never heard of");
        assert_eq!(silent[0].input_id.as_str(), "worker/w1/a/silent");
    }
}
