//! What projections and rungs know of a log. An embedded log asks before it cuts off its last frame,
//! and a runner before it folds: a log that is shorter than what is known was replaced by an older.

use std::path::Path;

use gatelog_record::{ChainLink, Partition, SiteId};

use crate::engine::Engine;
use crate::error::{StoreError, StoreWarning};
use crate::layout::Layout;
use crate::rung::{self, RungDir};

/// The newest event anything stored has folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its sequence.
    pub sequence: u64,
    /// Its term.
    pub term: u64,
    /// The generation of the log it stood on.
    pub generation: u32,
    /// The site.
    pub site: SiteId,
    /// Its link.
    pub link: ChainLink,
    /// Who knows, for people.
    pub by: String,
}

/// The newest event any projection (of any state schema) or rung of a partition has folded; `None`
/// when nothing is known. Also while another process has the projection open. What is damaged knows
/// nothing and is told in `warnings`.
///
/// # Errors
/// `System`.
pub fn known(root: &Path, partition: Partition, warnings: &mut Vec<StoreWarning>) -> Result<Option<Known>, StoreError> {
    let layout = Layout::new(root, partition);
    let mut best: Option<Known> = None;
    let mut consider = |found: Known| {
        if best.as_ref().is_none_or(|best| found.sequence > best.sequence) {
            best = Some(found);
        }
    };
    for schema in layout.schemas()? {
        let path = layout.database(schema);
        match Engine::open_read_only(&path).and_then(|engine| engine.meta()) {
            Ok(Some(meta)) if meta.position.sequence > 0 => consider(Known {
                sequence: meta.position.sequence,
                term: meta.position.term,
                generation: meta.position.generation,
                site: meta.position.site,
                link: meta.position.link,
                by: format!("the projection in {}", path.display()),
            }),
            Ok(_) => {}
            Err(error) => warnings.push(StoreWarning::ProjectionPassedOver(error)),
        }
    }
    for entry in RungDir::new(layout.rungs()).list()?.into_iter().rev() {
        match rung::header(&entry.path) {
            Ok(header) => {
                consider(Known {
                    sequence: header.position.sequence,
                    term: header.position.term,
                    generation: header.position.generation,
                    site: header.position.site,
                    link: header.position.link,
                    by: format!("the rung {}", entry.path.display()),
                });
                break;
            }
            Err(error) => warnings.push(StoreWarning::RungPassedOver(error)),
        }
    }
    Ok(best)
}
