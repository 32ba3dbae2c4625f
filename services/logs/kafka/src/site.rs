//! The records that say which log this is: its site, its generation, and the generation of its topics.

use gatelog_event_log::{LogError, Place};

use crate::cursor::{Cursor, Reach};
use crate::layout::SiteRecord;

/// The site record that counts: the site of the first, the newest generation, and the newest generation of topics with
/// its partitions.
pub(crate) fn site_record(reach: &Reach) -> Result<Option<SiteRecord>, LogError> {
    let topic = reach.names.site();
    let stable = reach.stable(&topic, 0)?;
    if stable == 0 {
        return Ok(None);
    }
    let mut found: Option<SiteRecord> = None;
    let mut cursor = Cursor::at(reach, topic.clone(), 0, None, 0)?;
    cursor.read_to(stable, reach.config.timeout, |raw| {
        let Some(record) = SiteRecord::decode(&raw.bytes) else {
            let physical = format!("topic {topic} partition 0 offset {}", raw.offset);
            let place = Place { stream: None, offset: None, physical };
            return Err(LogError::Damaged { place, what: "this is no site record".to_owned() });
        };
        match &mut found {
            None => found = Some(record),
            Some(first) if first.site == record.site => {
                first.generation = first.generation.max(record.generation);
                if record.topics > first.topics {
                    (first.topics, first.partitions) = (record.topics, record.partitions);
                }
            }
            // Two were created at once: the first one stands.
            Some(_) => {}
        }
        Ok(true)
    })?;
    Ok(found)
}

/// An error where the log is in another generation of its topics by now than this process knows.
pub(crate) fn still_counts(reach: &Reach) -> Result<(), LogError> {
    let known = reach.names.generation();
    match site_record(reach)? {
        Some(site) if site.topics != known => Err(LogError::Stopped {
            message: format!(
                "the log is in generation {} of its topics since `gatelog log repartition`, and this process knows \
                 generation {known}",
                site.topics
            ),
        }),
        _ => Ok(()),
    }
}
