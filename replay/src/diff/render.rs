//! Differences in words.

use gatelog_record::{BuildId, ItemId};
use serde_json::Value as Json;

use super::rows::{ChangeKind, FieldChange, RowChange};
use super::{About, Comparison, Entry, Side};
use crate::explain::{Names, Tone, short};

/// How many fields of one row are told.
const MAX_FIELDS: usize = 8;
/// How much of a value is shown.
const MAX_VALUE: usize = 72;
/// How many differences of one heading are told; all of them are in the JSON.
const MAX_ENTRIES: usize = 500;

fn item_of(row: &Json) -> Option<ItemId> {
    row.get("item")?.as_str()?.parse().ok()
}

fn text<'r>(row: &'r Json, field: &str) -> &'r str {
    row.get(field).and_then(Json::as_str).unwrap_or_default()
}

/// A row by what it stands for.
pub(super) fn subject(change: &RowChange, names: &Names) -> String {
    let row = change.after.as_ref().or(change.before.as_ref());
    let named = || {
        let row = row?;
        Some(match change.table {
            "items" => {
                format!(
                    "{} in {} of {}",
                    names.item(change.key.parse().ok()?),
                    text(row, "pipeline"),
                    text(row, "tenant")
                )
            }
            "buildsets" => format!("buildset {} of {}", short(&change.key), names.item(item_of(row)?)),
            "builds" => {
                let job = row.get("job").map(|job| text(job, "name")).unwrap_or_default();
                format!("{job} of {} ({})", names.item(item_of(row)?), short(&change.key))
            }
            "leases" => {
                let ask = row.get("ask")?;
                let build: BuildId = text(ask, "build").parse().ok()?;
                format!("{} attempt {} ({})", names.build(build), ask.get("attempt")?, short(&change.key))
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
    };
    named().unwrap_or_else(|| change.key.clone())
}

/// An item's job, by a build of it.
pub(super) fn job_of(build: &Json, names: &Names) -> String {
    let job = build.get("job").map(|job| text(job, "name")).unwrap_or_default();
    match item_of(build) {
        Some(item) => format!("{job} of {}", names.item(item)),
        None => job.to_owned(),
    }
}

/// The nodes a lease was given, each with its label.
pub(super) fn nodes_of(lease: &Json) -> Vec<String> {
    let grant = lease.get("grant").filter(|grant| !grant.is_null());
    let nodes = grant.and_then(|grant| grant.get("nodes")).and_then(Json::as_array);
    let worker = grant.map(|grant| text(grant, "worker")).unwrap_or_default();
    let one = |node: &Json| {
        let label = node.get("wanted").map(|wanted| text(wanted, "label")).unwrap_or_default();
        format!("{} {label} at {worker}", text(node, "node"))
    };
    nodes.map(|nodes| nodes.iter().map(one).collect()).unwrap_or_default()
}

fn value(json: &Json) -> String {
    let whole = match json {
        Json::Null => "nothing".to_owned(),
        Json::String(text) if text.is_empty() => "\"\"".to_owned(),
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    // Ids are told by their beginning.
    let id = matches!(whole.len(), 32 | 64) && whole.bytes().all(|byte| byte.is_ascii_hexdigit());
    let most = if id { 8 } else { MAX_VALUE };
    let mut cut: String = whole.chars().take(most).collect();
    if !id && cut.len() < whole.len() {
        cut.push('…');
    }
    cut
}

fn items(json: &Json, names: &Names) -> String {
    let items = json.as_array().map(Vec::as_slice).unwrap_or_default();
    if items.is_empty() {
        return "nobody".to_owned();
    }
    let one =
        |item: &Json| item.as_str().and_then(|id| id.parse().ok()).map_or_else(|| value(item), |id| names.item(id));
    items.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn field(change: &FieldChange, table: &str, names: &Names) -> String {
    let FieldChange { field, before, after } = change;
    match (table, field.as_str()) {
        ("queues", "items") => format!("items: {} → {}", items(before, names), items(after, names)),
        _ => format!("{field}: {} → {}", value(before), value(after)),
    }
}

/// One difference: a line, and one for each field that is another.
pub fn entry_words(entry: &Entry, names: &Names) -> Vec<(Tone, String)> {
    let change = &entry.change;
    let (sign, tone) = match change.kind {
        ChangeKind::Entered => ('+', Tone::Good),
        ChangeKind::Left => ('-', Tone::Bad),
        ChangeKind::Changed => ('~', Tone::Plain),
    };
    let mut lines = vec![(tone, format!("  {sign} {}", entry.subject))];
    for one in change.fields.iter().take(MAX_FIELDS) {
        lines.push((Tone::Faint, format!("      {}", field(one, change.table, names))));
    }
    if let Some(more) = change.fields.len().checked_sub(MAX_FIELDS).filter(|more| *more > 0) {
        lines.push((Tone::Faint, format!("      and {more} more")));
    }
    lines
}

fn side(side: &Side) -> String {
    let events: Vec<String> =
        side.events.iter().map(|(partition, event)| format!("{partition} event {event}")).collect();
    format!("{}; {}", side.time, events.join(", "))
}

/// A comparison for people; `all` tells bookkeeping too.
pub fn words(comparison: &Comparison, names: &Names, all: bool) -> Vec<(Tone, String)> {
    let mut lines = vec![
        (Tone::Faint, format!("from {}", side(&comparison.from))),
        (Tone::Faint, format!("to   {}", side(&comparison.to))),
    ];
    for (about, entries) in &comparison.differences {
        if *about == About::Bookkeeping && !all {
            let count = entries.len();
            lines.push((Tone::Faint, format!("bookkeeping: {count} rows differ (--all tells them)")));
            continue;
        }
        lines.push((Tone::Head, about.word().to_owned()));
        for entry in entries.iter().take(MAX_ENTRIES) {
            lines.extend(entry_words(entry, names));
        }
        if let Some(more) = entries.len().checked_sub(MAX_ENTRIES).filter(|more| *more > 0) {
            lines.push((Tone::Faint, format!("  and {more} more (--json has all)")));
        }
    }
    if comparison.is_same() {
        lines.push((Tone::Good, "nothing differs".to_owned()));
    }
    lines
}
