//! The gate: its records and rows in words.

use std::collections::BTreeSet;

use gatelog_record::{Event, Input, ItemId};
use gatelog_rules_gate::GateRules;
use serde_json::Value as Json;

use super::{Of, Words};
use crate::diff::{About, RowChange, came_and_went, text};
use crate::explain::{Names, short};

/// The gate.
pub static GATE: Of<GateRules, GateWords> = Of::new(GateWords);

/// The gate's words.
#[derive(Clone, Copy, Debug)]
pub struct GateWords;

impl Words for GateWords {
    fn event(&self, event: &Event, names: &Names) -> Option<String> {
        match event {
            Event::Gate(event) => Some(names.gate_event(event)),
            _ => None,
        }
    }

    fn input(&self, input: &Input, names: &Names) -> Option<String> {
        match input {
            Input::Gate(input) => Some(names.gate_input(input)),
            _ => None,
        }
    }

    fn about(&self, table: &str) -> About {
        match table {
            "tenants" | "config-files" | "unread" | "branches" | "project-reads" => About::Configuration,
            "layouts" => About::Layouts,
            "queues" => About::Queues,
            "items" => About::Items,
            "buildsets" => About::Buildsets,
            "builds" => About::Builds,
            "waits" => About::Waits,
            "pending-work" | "triggers" => About::Work,
            "changes" | "artifacts" | "autoholds" | "failures" | "semaphore-holders" => About::Facts,
            _ => About::Bookkeeping,
        }
    }

    fn subject(&self, change: &RowChange, names: &Names) -> Option<String> {
        let row = change.row()?;
        Some(match change.table {
            "items" => {
                let item = names.item(change.key.parse().ok()?);
                format!("{item} in {} of {}", text(row, "pipeline"), text(row, "tenant"))
            }
            "buildsets" => format!("buildset {} of {}", short(&change.key), names.item(item_of(row)?)),
            "builds" => {
                let job = row.get("job").map(|job| text(job, "name")).unwrap_or_default();
                format!("{job} of {} ({})", names.item(item_of(row)?), short(&change.key))
            }
            "waits" => {
                let id = change.key.rsplit('(').next()?.trim_end_matches(')');
                match change.key.contains("Build") {
                    true => names.build(id.parse().ok()?),
                    false => names.item(id.parse().ok()?),
                }
            }
            "pending-work" => {
                let work = row.get("work")?.as_object()?;
                let (kind, wanted) = work.iter().next()?;
                match item_of(wanted) {
                    Some(item) => format!("{} for {}", kind.to_lowercase(), names.item(item)),
                    None => format!("{} of {}", kind.to_lowercase(), text(row, "tenant")),
                }
            }
            _ => return None,
        })
    }

    /// Which jobs items have: what builds say together.
    fn together(&self, changes: &[RowChange], names: &Names) -> Vec<(About, RowChange)> {
        let (mut before, mut after) = (BTreeSet::new(), BTreeSet::new());
        for change in changes.iter().filter(|change| change.table == "builds") {
            before.extend(change.before.as_ref().map(|row| job_of(row, names)));
            after.extend(change.after.as_ref().map(|row| job_of(row, names)));
        }
        came_and_went("jobs", &before, &after).map(|change| (About::Jobs, change)).collect()
    }
}

fn item_of(row: &Json) -> Option<ItemId> {
    row.get("item")?.as_str()?.parse().ok()
}

/// An item's job, by a build of it.
fn job_of(build: &Json, names: &Names) -> String {
    let job = build.get("job").map(|job| text(job, "name")).unwrap_or_default();
    match item_of(build) {
        Some(item) => format!("{job} of {}", names.item(item)),
        None => job.to_owned(),
    }
}
