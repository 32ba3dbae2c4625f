//! Bodies of requests, of which nothing is passed over in silence.

use std::collections::BTreeMap;

use gatelog_record::Value;
use gatelog_record::draft::gate::ChangeKey;
use serde_json::{Map, Value as Json};

use crate::error::ApiError;

/// The longest name in a body, in bytes.
const LONGEST_NAME: usize = 1_000;
/// The longest reason, in bytes.
const LONGEST_REASON: usize = 4_000;
/// The most changes of one request.
pub(super) const MANY: usize = 500;

/// The fields of a body. A field that is `null` is as if it were not there, as clients of Zuul send it.
pub(super) struct Fields {
    map: Map<String, Json>,
}

fn bad(message: impl Into<String>) -> ApiError {
    ApiError::BadRequest(message.into())
}

impl Fields {
    /// Reads a body.
    pub(super) fn read(bytes: &[u8]) -> Result<Fields, ApiError> {
        let json: Json =
            serde_json::from_slice(bytes).map_err(|error| bad(format!("the body is not JSON: {error}")))?;
        let Json::Object(mut map) = json else { return Err(bad("the body must be a JSON object")) };
        map.retain(|_, value| !value.is_null());
        Ok(Fields { map })
    }

    /// One text, from elsewhere than a body.
    pub(super) fn of(name: &str, text: String) -> Fields {
        Fields { map: Map::from_iter([(name.to_owned(), Json::String(text))]) }
    }

    /// A whole number, 0 or more; clients of Zuul send some as text.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.map.get(name) else { return Ok(None) };
        let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
        number.map(Some).ok_or_else(|| bad(format!("`{name}` must be a whole number, 0 or more")))
    }

    /// The ref that permissions may depend on, whatever else is wrong with the body.
    pub(super) fn reference(&self) -> Option<&str> {
        self.map.get("ref").and_then(Json::as_str)
    }

    /// Whether every field is one of these.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), ApiError> {
        match self.map.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(bad(format!("there is no field {name:?} here; there are: {}", known.join(", ")))),
        }
    }

    /// A field as it stands.
    pub(super) fn get(&self, name: &str) -> Option<&Json> {
        self.map.get(name)
    }

    /// A name.
    pub(super) fn name(&self, name: &str) -> Result<Option<String>, ApiError> {
        let Some(value) = self.map.get(name) else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| bad(format!("`{name}` must be a text")))?;
        if text.is_empty() || text.len() > LONGEST_NAME || text.contains(char::is_control) {
            return Err(bad(format!("`{name}` must be 1 to {LONGEST_NAME} bytes of text in one line")));
        }
        Ok(Some(text.to_owned()))
    }

    /// A name that must be there.
    pub(super) fn needed(&self, name: &str) -> Result<String, ApiError> {
        self.name(name)?.ok_or_else(|| bad(format!("the body needs `{name}`")))
    }

    /// A text for people; empty where there is none.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, ApiError> {
        let Some(value) = self.map.get(name) else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| bad(format!("`{name}` must be a text")))?;
        let odd = |c: char| c.is_control() && c != '\n' && c != '\t';
        if text.len() > LONGEST_REASON || text.contains(odd) {
            return Err(bad(format!("`{name}` must be at most {LONGEST_REASON} bytes, without control characters")));
        }
        Ok(Some(text.trim().to_owned()))
    }

    /// Why, in their words.
    pub(super) fn reason(&self) -> Result<String, ApiError> {
        Ok(self.text("reason")?.unwrap_or_default())
    }

    /// A truth value.
    pub(super) fn truth(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.map.get(name) {
            None => Ok(None),
            Some(Json::Bool(value)) => Ok(Some(*value)),
            Some(_) => Err(bad(format!("`{name}` must be true or false"))),
        }
    }

    /// Values for the parameters of a pipeline, by name; which there are, and what may be given for each, the gate knows.
    pub(super) fn parameters(&self) -> Result<BTreeMap<String, Value>, ApiError> {
        // Zuul's page sends an empty list where it knows of none.
        let Some(given) = self.map.get("parameters").filter(|given| **given != Json::Array(Vec::new())) else {
            return Ok(BTreeMap::new());
        };
        let map = given.as_object().ok_or_else(|| bad("`parameters` must be an object of names and values"))?;
        if map.len() > MANY {
            return Err(bad(format!("`parameters` has {} names, more than {MANY}", map.len())));
        }
        // A parameter nobody filled in is none.
        let filled = map.iter().filter(|(_, value)| !value.is_null());
        Ok(filled.map(|(name, value)| (name.clone(), Value::from_json(value))).collect())
    }

    /// A ref, by its full name.
    pub(super) fn full_ref(&self) -> Result<Option<String>, ApiError> {
        let Some(text) = self.name("ref")? else { return Ok(None) };
        if text.starts_with("refs/") && !text.ends_with('/') && !text.contains([' ', '~', '^', ':', '\\']) {
            return Ok(Some(text));
        }
        Err(bad(format!("ref {text:?} must be written in full, such as refs/heads/master or refs/tags/1.0")))
    }

    /// A commit. Zuul: forty zeros are none.
    pub(super) fn commit(&self, name: &str) -> Result<Option<String>, ApiError> {
        let Some(text) = self.name(name)? else { return Ok(None) };
        if !matches!(text.len(), 40 | 64) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(bad(format!("`{name}` must be a whole commit id, 40 hex digits")));
        }
        Ok(Some(text.to_ascii_lowercase()).filter(|text| text.bytes().any(|byte| byte != b'0')))
    }
}

/// A change by what Zuul calls its id: the change, and its patchset after a comma. The patchset is left out: what is
/// asked for is the change as it is.
pub(super) fn change_name(id: &str) -> &str {
    match id.rsplit_once(',') {
        Some((change, patchset))
            if !change.is_empty() && !patchset.is_empty() && patchset.bytes().all(|b| b.is_ascii_alphanumeric()) =>
        {
            change
        }
        _ => id,
    }
}

/// The change or the ref that a body names, exactly one of them.
pub(super) fn change_or_ref(fields: &Fields, project: &str) -> Result<ChangeKey, ApiError> {
    let key = |change: &str| ChangeKey { project: project.to_owned(), change: change.to_owned() };
    match (fields.name("change")?, fields.full_ref()?) {
        (Some(change), None) if !change.starts_with("refs/") => Ok(key(change_name(&change))),
        (Some(change), None) => Err(bad(format!("{change:?} is a ref, not a change: say `ref`"))),
        (None, Some(reference)) => Ok(key(&reference)),
        (Some(_), Some(_)) => Err(bad("the body names a change and a ref; name one of them")),
        (None, None) => Err(bad("the body needs `change` or `ref`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        Fields::read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_change_is_named_with_or_without_its_patchset() {
        for (id, name) in [
            ("1234,5", "1234"),
            ("1234", "1234"),
            ("master/add-miles,1", "master/add-miles"),
            ("12,3f9ac0", "12"),
            ("a,b c", "a,b c"),
            (",1", ",1"),
            ("a,", "a,"),
        ] {
            assert_eq!(change_name(id), name, "{id}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_body_is_named() {
        let said = |text: &str| match change_or_ref(&fields(text), "p") {
            Ok(key) => key.change,
            Err(error) => error.to_string(),
        };
        assert_eq!(said(r#"{"change": "1,2", "ref": null}"#), "1");
        assert_eq!(said(r#"{"ref": "refs/tags/1.0"}"#), "refs/tags/1.0");
        for (body, words) in [
            (r#"{"change": "1", "ref": "refs/heads/m"}"#, "name one of them"),
            ("{}", "needs `change` or `ref`"),
            (r#"{"ref": "master"}"#, "must be written in full"),
            (r#"{"change": "refs/heads/m"}"#, "say `ref`"),
            (r#"{"change": 3}"#, "`change` must be a text"),
            (r#"{"change": "a\nb"}"#, "in one line"),
        ] {
            assert!(said(body).contains(words), "{body}: {}", said(body));
        }
        assert!(Fields::read(b"[]").is_err_and(|error| error.to_string().contains("JSON object")));
        assert!(Fields::read(b"{").is_err_and(|error| error.to_string().contains("not JSON")));
        let strange = fields(r#"{"pipelin": "x"}"#).only(&["pipeline", "change"]).unwrap_err().to_string();
        assert_eq!(strange, "there is no field \"pipelin\" here; there are: pipeline, change");
        let commits = fields(&format!(r#"{{"a": "{}", "b": "12", "c": "{}"}}"#, "0".repeat(40), "AB".repeat(20)));
        assert_eq!(commits.commit("a").unwrap(), None);
        assert!(commits.commit("b").is_err());
        assert_eq!(commits.commit("c").unwrap(), Some("ab".repeat(20)));
    }
}
