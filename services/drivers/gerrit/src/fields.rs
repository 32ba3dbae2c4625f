//! Reading JSON of others field by field, so that an error names the field.

use serde_json::{Map, Value};

use crate::error::{GerritError, shorten};

/// The longest name or address that is taken, in bytes. Texts of people (messages) may be as long as their line.
pub(crate) const NAME_MAX: usize = 2_000;

/// An object, and the path to it.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'v> {
    map: &'v Map<String, Value>,
    what: &'v str,
    path: String,
}

impl<'v> Fields<'v> {
    /// The object that a whole answer or event is. `what` names it in errors.
    pub(crate) fn of(what: &'v str, value: &'v Value) -> Result<Fields<'v>, GerritError> {
        Fields::at(what, value, String::new())
    }

    fn at(what: &'v str, value: &'v Value, path: String) -> Result<Fields<'v>, GerritError> {
        match value.as_object() {
            Some(map) => Ok(Fields { map, what, path }),
            None => Err(bad(
                what,
                if path.is_empty() { "(all)" } else { &path },
                &format!("is {}, not an object", kind(value)),
            )),
        }
    }

    fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// An error about one of its fields.
    pub(crate) fn wrong(&self, name: &str, why: &str) -> GerritError {
        bad(self.what, &self.path(name), why)
    }

    fn missing(&self, name: &str) -> GerritError {
        self.wrong(name, "is missing")
    }

    /// A field, where it is there and not null.
    pub(crate) fn get(&self, name: &str) -> Option<&'v Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Its fields by name.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'v String, &'v Value)> + use<'v> {
        self.map.iter()
    }

    /// A text of any length.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&'v str>, GerritError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, &format!("is {}, not a text", kind(other)))),
        }
    }

    /// A name: a text that is not longer than names are and has no control characters.
    pub(crate) fn name(&self, name: &str) -> Result<Option<String>, GerritError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        if text.len() > NAME_MAX {
            return Err(self.wrong(name, &format!("has {} bytes; at most {NAME_MAX} are taken", text.len())));
        }
        if text.chars().any(char::is_control) {
            return Err(self.wrong(name, "has control characters"));
        }
        Ok(Some(text.to_owned()))
    }

    /// A name that must be there.
    pub(crate) fn the_name(&self, name: &str) -> Result<String, GerritError> {
        self.name(name)?.ok_or_else(|| self.missing(name))
    }

    /// An object id, which must be there: 40 hex digits (or 64).
    pub(crate) fn commit(&self, name: &str) -> Result<String, GerritError> {
        let text = self.text(name)?.ok_or_else(|| self.missing(name))?;
        if is_object_id(text) { Ok(text.to_owned()) } else { Err(self.wrong(name, "is not an object id of git")) }
    }

    /// A whole number from 0, as a number or (as events of older releases have it) a text.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, GerritError> {
        let number = match self.get(name) {
            None => return Ok(None),
            Some(Value::Number(number)) => number.as_u64(),
            Some(Value::String(text)) => text.parse().ok(),
            Some(_) => None,
        };
        number.map(Some).ok_or_else(|| self.wrong(name, "is not a whole number from 0"))
    }

    /// A number that must be there.
    pub(crate) fn the_number(&self, name: &str) -> Result<u64, GerritError> {
        self.number(name)?.ok_or_else(|| self.missing(name))
    }

    /// A patchset's number, which must be there.
    pub(crate) fn patchset(&self, name: &str) -> Result<u32, GerritError> {
        u32::try_from(self.the_number(name)?).map_err(|_| self.wrong(name, "is too large for the number of a patchset"))
    }

    /// Whether a flag is set; one that is not there is not.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, GerritError> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.wrong(name, &format!("is {}, not true or false", kind(other)))),
        }
    }

    /// An object.
    pub(crate) fn object(&self, name: &str) -> Result<Option<Fields<'v>>, GerritError> {
        self.get(name).map(|value| Fields::at(self.what, value, self.path(name))).transpose()
    }

    /// An object that must be there.
    pub(crate) fn the_object(&self, name: &str) -> Result<Fields<'v>, GerritError> {
        self.object(name)?.ok_or_else(|| self.missing(name))
    }

    /// Objects by name; none where the field is missing.
    pub(crate) fn objects_by_name(&self, name: &str) -> Result<Vec<(&'v String, Fields<'v>)>, GerritError> {
        let Some(all) = self.object(name)? else { return Ok(Vec::new()) };
        all.map.iter().map(|(key, value)| Ok((key, Fields::at(self.what, value, all.path(key))?))).collect()
    }

    /// A list; empty where the field is missing.
    pub(crate) fn list(&self, name: &str) -> Result<&'v [Value], GerritError> {
        match self.get(name) {
            None => Ok(&[]),
            Some(Value::Array(list)) => Ok(list),
            Some(other) => Err(self.wrong(name, &format!("is {}, not a list", kind(other)))),
        }
    }

    /// A list of objects.
    pub(crate) fn objects(&self, name: &str) -> Result<Vec<Fields<'v>>, GerritError> {
        let list = self.list(name)?.iter().enumerate();
        list.map(|(at, value)| Fields::at(self.what, value, self.path(&format!("{name}[{at}]")))).collect()
    }

    /// A list of texts.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<String>, GerritError> {
        let list = self.list(name)?.iter().enumerate();
        list.map(|(at, value)| match value {
            Value::String(text) if text.len() <= NAME_MAX => Ok(text.clone()),
            _ => Err(self.wrong(&format!("{name}[{at}]"), &format!("is not a text of at most {NAME_MAX} bytes"))),
        })
        .collect()
    }
}

/// Each object of a list that a whole answer is.
pub(crate) fn objects_of<'v>(what: &'v str, value: &'v Value) -> Result<Vec<Fields<'v>>, GerritError> {
    match value.as_array() {
        Some(list) => list.iter().enumerate().map(|(at, one)| Fields::at(what, one, format!("[{at}]"))).collect(),
        None => Err(bad(what, "(all)", &format!("is {}, not a list", kind(value)))),
    }
}

/// Whether a text is an object id of git, in lower case.
pub(crate) fn is_object_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether an object id stands for "no object": a branch that was made or deleted.
pub(crate) fn is_zero(id: &str) -> bool {
    id.bytes().all(|byte| byte == b'0')
}

fn bad(what: &str, field: &str, why: &str) -> GerritError {
    GerritError::BadField { what: what.to_owned(), field: shorten(field, 200), why: why.to_owned() }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
