//! The role `launcher`: owns capacity, and says which workers have fallen silent.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gatelog_record::Stream;
use gatelog_tables::TableExt;

use super::{CAPACITY, Process};
use crate::presence::{KnownWorker, SIGN_EVERY, Verdicts};
use crate::server::StartError;

/// How long telling may take before it is left for the next round.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tells capacity of workers that give no sign.
pub fn watch(process: &Process) -> Result<JoinHandle<()>, StartError> {
    let (signer, log, stop) = (Arc::clone(&process.signer), Arc::clone(&process.log), Arc::clone(&process.stop));
    let capacity = process.capacity.projection.clone();
    process.thread("silence", move || {
        let mut verdicts = Verdicts::new(Instant::now());
        while !stop.load(Ordering::Relaxed) {
            match signer.look() {
                Ok(seen) => {
                    let known: Vec<KnownWorker> = capacity
                        .view()
                        .live()
                        .own
                        .workers
                        .all()
                        .map(|rows| {
                            rows.filter_map(Result::ok)
                                .map(|(name, row)| KnownWorker {
                                    name,
                                    incarnation: row.offer.incarnation.clone(),
                                    joined_at: row.joined_at,
                                })
                                .collect()
                        })
                        .unwrap_or_default();
                    for record in verdicts.silent(&known, &seen, Instant::now()) {
                        if let Ok(frame) = record.close() {
                            // What could not be told now is told at the next round.
                            let told = log.append_inputs(Stream::Inputs(CAPACITY), vec![frame.encode()]);
                            drop(told.wait_for(PATIENCE));
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "it is not known who is there");
                    verdicts.blind();
                }
            }
            let began = Instant::now();
            while began.elapsed() < SIGN_EVERY && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    })
}
