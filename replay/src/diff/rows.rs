//! Tables compared row by row, whatever they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use gatelog_record::{Timestamp, codec};
use gatelog_tables::{Maps, TableDef, TableError, TableKey, TableSet, TableVisitor};
use serde::Serialize;
use serde_json::Value as Json;

use crate::error::ReplayError;

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It was not there before.
    Entered,
    /// It is there no longer.
    Left,
    /// It says something else.
    Changed,
}

/// A value of a row that is another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldChange {
    /// Where in the row: `loaded.version`, `items[2]`.
    pub field: String,
    /// What it was; nothing where it was not there.
    pub before: Json,
    /// What it is; nothing where it is not there.
    pub after: Json,
}

/// A row that is not the same in two states.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowChange {
    /// The table.
    pub table: &'static str,
    /// The row's key, for people.
    pub key: String,
    /// What became of it.
    pub kind: ChangeKind,
    /// What of it is another; empty unless it changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldChange>,
    /// The row before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Json>,
    /// The row after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Json>,
}

impl RowChange {
    /// The row as it is, or as it was where it left.
    pub fn row(&self) -> Option<&Json> {
        self.after.as_ref().or(self.before.as_ref())
    }
}

/// What is named in one state alone, as rows of a table that came or went.
pub fn came_and_went<'s>(
    table: &'static str,
    before: &'s BTreeSet<String>,
    after: &'s BTreeSet<String>,
) -> impl Iterator<Item = RowChange> + 's {
    let row = move |key: &String, kind| RowChange {
        table,
        key: key.clone(),
        kind,
        fields: Vec::new(),
        before: None,
        after: None,
    };
    let gone = before.difference(after).map(move |key| row(key, ChangeKind::Left));
    let come = after.difference(before).map(move |key| row(key, ChangeKind::Entered));
    gone.chain(come)
}

/// The rows of a table, for people: key and row.
pub type TableRows = (&'static str, Vec<(String, Json)>);

/// The rows that are not the same in two states of one domain.
///
/// # Errors
/// A row cannot be written down.
pub fn rows_between<L: TableSet<Maps>>(before: &L, after: &L) -> Result<Vec<RowChange>, ReplayError> {
    RowsBefore::of(before)?.to(after)
}

/// Every table with its rows; only that table, where one is named.
///
/// # Errors
/// A row cannot be written down.
pub fn table_rows<L: TableSet<Maps>>(state: &L, only: Option<&str>) -> Result<Vec<TableRows>, ReplayError> {
    struct Rows<'o> {
        only: Option<&'o str>,
        found: Vec<TableRows>,
    }
    impl TableVisitor<Maps> for Rows<'_> {
        fn visit<T: TableDef>(&mut self, table: &gatelog_tables::MapTable<T>) -> Result<(), TableError> {
            if self.only.is_none_or(|only| only == T::NAME) {
                let rows = table.rows.iter().map(|(key, row)| (key_text(key), json_of(row)));
                self.found.push((T::NAME, rows.collect()));
            }
            Ok(())
        }
    }
    let mut rows = Rows { only, found: Vec::new() };
    state.visit(&mut rows)?;
    Ok(rows.found)
}

/// The rows of a state, kept to be compared with what becomes of it.
#[derive(Default)]
pub struct RowsBefore {
    /// As bytes, by table and key.
    tables: BTreeMap<u16, BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl RowsBefore {
    /// Those of this state.
    ///
    /// # Errors
    /// A row cannot be written down.
    pub fn of<L: TableSet<Maps>>(state: &L) -> Result<RowsBefore, ReplayError> {
        let mut rows = RowsBefore::default();
        state.visit(&mut rows)?;
        Ok(rows)
    }

    /// What is not the same in another state.
    ///
    /// # Errors
    /// A row cannot be written down.
    pub fn to<L: TableSet<Maps>>(self, after: &L) -> Result<Vec<RowChange>, ReplayError> {
        let mut compared = Compared { old: self, found: Vec::new() };
        after.visit(&mut compared)?;
        Ok(compared.found)
    }
}

fn encode<T: TableDef>(row: &T::Row) -> Result<Vec<u8>, TableError> {
    codec::encode(row).map_err(|error| TableError::Store { table: T::NAME, message: error.to_string() })
}

impl TableVisitor<Maps> for RowsBefore {
    fn visit<T: TableDef>(&mut self, table: &gatelog_tables::MapTable<T>) -> Result<(), TableError> {
        let mut rows = BTreeMap::new();
        for (key, row) in &table.rows {
            rows.insert(key.to_bytes(), encode::<T>(row)?);
        }
        self.tables.insert(T::ID, rows);
        Ok(())
    }
}

struct Compared {
    old: RowsBefore,
    found: Vec<RowChange>,
}

impl TableVisitor<Maps> for Compared {
    fn visit<T: TableDef>(&mut self, table: &gatelog_tables::MapTable<T>) -> Result<(), TableError> {
        let mut old = self.old.tables.remove(&T::ID).unwrap_or_default();
        let damaged = |key: &[u8], message: String| TableError::Row { table: T::NAME, key: hex::encode(key), message };
        let read =
            |key: &[u8], row: &[u8]| codec::decode::<T::Row>(row).map_err(|error| damaged(key, error.to_string()));
        for (key, row) in &table.rows {
            let bytes = key.to_bytes();
            let after = json_of(row);
            let change = match old.remove(&bytes) {
                None => RowChange {
                    table: T::NAME,
                    key: key_text(key),
                    kind: ChangeKind::Entered,
                    fields: Vec::new(),
                    before: None,
                    after: Some(after),
                },
                Some(before) if before == encode::<T>(row)? => continue,
                Some(before) => {
                    let before = json_of(&read(&bytes, &before)?);
                    let mut fields = Vec::new();
                    between(&before, &after, String::new(), &mut fields);
                    RowChange {
                        table: T::NAME,
                        key: key_text(key),
                        kind: ChangeKind::Changed,
                        fields,
                        before: Some(before),
                        after: Some(after),
                    }
                }
            };
            self.found.push(change);
        }
        for (bytes, row) in old {
            let key = T::Key::from_bytes(&bytes).map_err(|error| damaged(&bytes, error.to_string()))?;
            let before = Some(json_of(&read(&bytes, &row)?));
            let (key, kind) = (key_text(&key), ChangeKind::Left);
            self.found.push(RowChange { table: T::NAME, key, kind, fields: Vec::new(), before, after: None });
        }
        Ok(())
    }
}

/// Where two values differ, as deep down as it can be said.
fn between(before: &Json, after: &Json, at: String, found: &mut Vec<FieldChange>) {
    match (before, after) {
        (Json::Object(old), Json::Object(new)) => {
            let under = |key: &str| if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
            for (key, value) in old {
                between(value, new.get(key).unwrap_or(&Json::Null), under(key), found);
            }
            for (key, value) in new.iter().filter(|(key, _)| !old.contains_key(*key)) {
                between(&Json::Null, value, under(key), found);
            }
        }
        (Json::Array(old), Json::Array(new)) if old.len() == new.len() && old.iter().any(Json::is_object) => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                between(old, new, format!("{at}[{index}]"), found);
            }
        }
        (before, after) if before == after => {}
        (before, after) => {
            found.push(FieldChange { field: at, before: before.clone(), after: after.clone() });
        }
    }
}

fn json_of(row: &impl Serialize) -> Json {
    readable(serde_json::to_value(row).unwrap_or_else(|error| Json::String(format!("cannot be shown: {error}"))))
}

/// Fields that hold a time.
fn is_time(field: &str) -> bool {
    field.ends_with("_at") || matches!(field, "since" | "dated" | "until" | "not_before" | "at")
}

/// Values as people read them: ids and hashes in hex, times as times.
pub fn readable(json: Json) -> Json {
    /// No count of anything is this large; moments since 2001 are, in microseconds.
    const A_TIME: i64 = 1_000_000_000_000_000;
    match json {
        Json::Array(items) => {
            let bytes: Option<Vec<u8>> =
                items.iter().map(|item| item.as_u64().and_then(|number| u8::try_from(number).ok())).collect();
            match bytes {
                Some(bytes) if bytes.len() == 16 || bytes.len() == 32 => Json::String(hex::encode(bytes)),
                _ => Json::Array(items.into_iter().map(readable).collect()),
            }
        }
        Json::Object(map) => Json::Object(
            map.into_iter()
                .map(|(key, value)| {
                    let value = match value.as_i64() {
                        Some(micros) if micros >= A_TIME && is_time(&key) => Timestamp(micros).to_string().into(),
                        _ => readable(value),
                    };
                    (key, value)
                })
                .collect(),
        ),
        other => other,
    }
}

/// A key for people: ids in hex alone, texts without quotes, parts of several with a slash between them.
fn key_text(key: &impl Debug) -> String {
    let mut text = format!("{key:?}");
    for id in ["ItemId(", "BuildId(", "BuildsetId(", "LeaseId(", "WorkId(", "NodeId("] {
        while let Some(start) = text.find(id) {
            let inside = start + id.len();
            let Some(end) = text.get(inside..).and_then(|rest| rest.find(')')).map(|length| inside + length) else {
                break;
            };
            let hex = text.get(inside..end).unwrap_or_default().to_owned();
            text.replace_range(start..=end, &hex);
        }
    }
    let bare = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(&text);
    bare.split(", ").map(|part| part.trim_matches('"')).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use gatelog_record::{BuildId, ItemId};

    use super::*;

    #[test]
    fn keys_are_written_for_people() {
        assert_eq!(key_text(&("demo".to_owned(), "gate".to_owned(), "main".to_owned())), "demo/gate/main");
        assert_eq!(key_text(&ItemId([0xab; 16])), "ab".repeat(16));
        assert_eq!(key_text(&(BuildId([1; 16]), 2_u32)), format!("{}/2", "01".repeat(16)));
        assert_eq!(key_text(&7_u64), "7");
        assert_eq!(key_text(&()), "");
    }

    #[test]
    fn a_difference_is_said_as_deep_down_as_it_can_be() {
        let before = serde_json::json!({ "a": { "b": 1, "c": [1, 2] }, "d": "x", "e": [{ "f": 1 }, { "f": 2 }] });
        let after = serde_json::json!({ "a": { "b": 2, "c": [1, 2] }, "g": true, "e": [{ "f": 1 }, { "f": 3 }] });
        let mut found = Vec::new();
        between(&before, &after, String::new(), &mut found);
        let told: Vec<String> = found.iter().map(|one| format!("{} {} {}", one.field, one.before, one.after)).collect();
        assert_eq!(told, ["a.b 1 2", "d \"x\" null", "e[1].f 2 3", "g null true"]);
    }

    #[test]
    fn times_and_ids_are_readable_and_numbers_stay_numbers() {
        let json = serde_json::json!({ "opened_at": 1_709_164_800_000_000_i64, "since": 12, "item": vec![171; 16] });
        let json = readable(json);
        assert_eq!(json["opened_at"], Timestamp(1_709_164_800_000_000).to_string());
        assert_eq!((&json["since"], json["item"].as_str()), (&Json::from(12), Some("ab".repeat(16).as_str())));
    }
}
