//! What every log checks before it writes anything.

use gatelog_record::Partition;

use crate::contract::LogError;
use crate::history::{Broken, Followed, Tail};

/// The bytes of an append, if each record and all together are within their limits.
///
/// # Errors
/// [`LogError::TooLarge`].
pub fn check_sizes(records: &[Vec<u8>], max_record: u64, max_append: u64) -> Result<u64, LogError> {
    let mut bytes = 0_u64;
    for record in records {
        let size = record.len() as u64;
        if size > max_record {
            return Err(LogError::TooLarge { size, limit: max_record });
        }
        bytes += size;
    }
    if bytes > max_append { Err(LogError::TooLarge { size: bytes, limit: max_append }) } else { Ok(bytes) }
}

/// Checks an append of events: each must follow on from the one before it and be of this term. Gives
/// the tail after them.
///
/// # Errors
/// [`LogError::NotNext`]; [`LogError::System`] when bytes are no event or a link does not follow.
pub fn check_events(partition: Partition, tail: &Tail, term: u64, records: &[Vec<u8>]) -> Result<Tail, LogError> {
    let mut tail = *tail;
    for record in records {
        let not_next = |found, found_term| LogError::NotNext {
            partition,
            last: tail.sequence,
            last_term: term,
            found,
            term: found_term,
        };
        tail = match tail.follow(record) {
            Ok(Followed::Event { envelope, .. }) if envelope.term != term => {
                return Err(not_next(envelope.sequence, envelope.term));
            }
            Ok(Followed::Event { tail, .. }) => tail,
            Ok(Followed::Stale { sequence, term }) => return Err(not_next(sequence, term)),
            Err(Broken::Gap { found, .. } | Broken::Repeat { found, .. }) => {
                let found_term = gatelog_record::Envelope::decode(record).map_or(term, |(envelope, _)| envelope.term);
                return Err(not_next(found, found_term));
            }
            Err(other) => {
                return Err(LogError::System {
                    what: format!("{partition}: an event that cannot follow sequence {}", tail.sequence),
                    message: other.to_string(),
                });
            }
        };
    }
    Ok(tail)
}
