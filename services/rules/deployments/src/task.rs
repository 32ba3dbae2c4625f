//! One task as it was written.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::fault::Fault;
use crate::values::is_true;

/// The fields of a task, in the order written. Fields nobody knows are kept: other versions read them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Task {
    fields: Map<String, Value>,
}

impl From<Map<String, Value>> for Task {
    fn from(fields: Map<String, Value>) -> Task {
        Task { fields }
    }
}

impl Task {
    /// Its fields.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// A field.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field)
    }

    /// A field that has to be there.
    ///
    /// # Errors
    /// [`Fault::Missing`].
    pub fn need(&self, field: &str) -> Result<&Value, Fault> {
        self.get(field).ok_or_else(|| Fault::Missing(field.to_owned()))
    }

    /// Its id, if that is a text.
    pub fn id(&self) -> Option<&str> {
        self.get("id")?.as_str()
    }

    /// Its type as written, if that is a text.
    pub fn kind(&self) -> Option<&str> {
        self.get("type")?.as_str()
    }

    /// Whether it is a group.
    pub fn is_group(&self) -> bool {
        self.kind() == Some("group")
    }

    /// Whether it only orders others: a group, a stage, or switched off (`type: skipped`).
    ///
    /// # Errors
    /// [`Fault::Missing`] if nothing says of what type it is: a name that was only mentioned.
    pub fn is_internal(&self) -> Result<bool, Fault> {
        let kind = self.need("type")?;
        Ok(matches!(kind.as_str(), Some("group" | "stage" | "skipped")))
    }

    /// Whether it is marked to be left out (`skipped: true`).
    pub fn is_marked_skipped(&self) -> bool {
        self.get("skipped").is_some_and(is_true)
    }

    /// Takes another's fields over its own. Fuel: that is what a second task of the same id does.
    pub fn merge(&mut self, other: &Task) {
        for (field, value) in &other.fields {
            self.fields.insert(field.clone(), value.clone());
        }
    }

    /// A field of `parameters`.
    pub fn parameter(&self, name: &str) -> Option<&Value> {
        self.get("parameters")?.get(name)
    }

    /// `parameters` as a map.
    ///
    /// # Errors
    /// [`Fault::Missing`] and [`Fault::Kind`].
    pub fn parameters(&self) -> Result<&Map<String, Value>, Fault> {
        self.need("parameters")?.as_object().ok_or_else(|| Fault::Kind("parameters must be a map".to_owned()))
    }
}
