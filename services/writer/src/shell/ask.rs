//! Asking the rules: the closed context, the blobs, and what becomes of a panic.

use gatelog_deciding::{Context, Refusal, Rules};
use gatelog_event_log::{BlobError, Blobs};
use gatelog_record::id::IdSource;
use gatelog_record::{BlobHash, Event, InputRecord};
use gatelog_tables::{DomainState, Maps};

use crate::panics::{Panicked, catch};
use crate::shell::{Meta, Outside, Refused, Shell, ShellError};

/// How often blobs are fetched for one input: what was admitted may name others.
const MAX_BLOB_ROUNDS: usize = 16;

impl<R: Rules> Shell<R> {
    pub(super) fn ask_rules(
        &mut self,
        meta: &Meta,
        input: &InputRecord,
        blobs: &dyn Blobs,
    ) -> Result<Result<Vec<Event>, Refused>, ShellError> {
        let context = Context {
            now: meta.header.now,
            ids: IdSource::new(
                self.site,
                self.generation,
                self.partition,
                meta.header.input_sequence,
                &meta.header.input_digest,
            ),
            input_sequence: meta.header.input_sequence,
            first_sequence: self.tail.sequence + 1,
            term: self.term,
            input_offset: meta.header.input_offset,
        };
        let offset = meta.header.input_offset;
        let (rules, state) = (&mut self.rules, &self.state);
        let asked = catch(|| {
            if let Err(refused) = fetch_blobs(rules, state, input, offset, blobs)? {
                return Ok(Err(refused));
            }
            Ok(rules.decide(state, input, context).map_err(|refusal| match &refusal {
                Refusal::Fold { .. } => Refused::new("fold-refused", refusal),
                Refusal::OverBudget { .. } => Refused::new("over-budget", refusal),
                Refusal::Blob { .. } => Refused::new(Outside::BlobMissing.code(), refusal),
                Refusal::NotOurs(_) => Refused::new("not-ours", refusal),
            }))
        });
        match asked {
            Ok(answered) => answered,
            Err(panicked) => {
                self.rules = (self.factory)();
                Ok(Err(self.panicked("the rules", meta, panicked)))
            }
        }
    }

    pub(super) fn panicked(&self, who: &str, meta: &Meta, panicked: Panicked) -> Refused {
        let Panicked { place, message } = panicked;
        let offset = meta.header.input_offset;
        tracing::error!(
            partition = %self.partition, offset, place, message,
            "{who} panicked: the input is refused, everything else goes on"
        );
        let digest = BlobHash(meta.header.input_digest);
        Refused::new("internal-error", format!("{who} panicked at {place} on the input with digest {digest}"))
    }
}

/// Brings the rules what they read from blobs.
fn fetch_blobs<R: Rules>(
    rules: &mut R,
    state: &<R::State as DomainState>::Live<Maps>,
    input: &InputRecord,
    offset: u64,
    blobs: &dyn Blobs,
) -> Result<Result<(), Refused>, ShellError> {
    for _ in 0..MAX_BLOB_ROUNDS {
        let wanting = rules.needs(state, input);
        if wanting.is_empty() {
            break;
        }
        for hash in wanting {
            let bytes = match blobs.get(&hash) {
                Ok(bytes) => bytes,
                Err(error @ BlobError::Missing(_)) => return Ok(Err(Refused::new(Outside::BlobMissing.code(), error))),
                Err(error @ BlobError::Damaged { .. }) => {
                    return Ok(Err(Refused::new(Outside::BlobDamaged.code(), error)));
                }
                Err(source @ (BlobError::TooLarge { .. } | BlobError::Store { .. })) => {
                    return Err(ShellError::BlobStore { offset, why: source });
                }
            };
            if let Err(message) = rules.admit(hash, &bytes) {
                let message = format!("blob {hash} is not what this decision needs: {message}");
                return Ok(Err(Refused { code: Outside::BlobDamaged.code(), message }));
            }
        }
    }
    Ok(Ok(()))
}
