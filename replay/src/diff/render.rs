//! Differences in words.

use serde_json::Value as Json;

use super::rows::{ChangeKind, FieldChange};
use super::{About, Comparison, Entry, Side};
use crate::explain::{Names, Tone};

/// How many fields of one row are told.
const MAX_FIELDS: usize = 8;
/// How much of a value is shown.
const MAX_VALUE: usize = 72;
/// How many differences of one heading are told; all of them are in the JSON.
const MAX_ENTRIES: usize = 500;

/// A text field of a row; empty where it has none.
pub(crate) fn text<'r>(row: &'r Json, field: &str) -> &'r str {
    row.get(field).and_then(Json::as_str).unwrap_or_default()
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
