//! What an upload has to look like, told in the words of Fuel.

use serde_json::{Map, Value};

use crate::task::Task;
use crate::values::python;
use crate::version::Version;

/// One thing wrong with what was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Where: `tasks[3].requires`; empty for the whole.
    pub path: String,
    /// What, in Fuel's words.
    pub message: String,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.path.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.path, self.message) }
    }
}

/// Reads the body of an upload.
///
/// # Errors
/// All that is wrong with it, in order.
pub fn read(body: &str, version: Version) -> Result<Vec<Task>, Vec<Wrong>> {
    let wrong = |message: &str| vec![Wrong { path: String::new(), message: message.to_owned() }];
    if body.is_empty() {
        return Err(wrong("Empty request received"));
    }
    let value: Value = serde_json::from_str(body).map_err(|_| wrong("Invalid json received"))?;
    tasks(value, version)
}

/// The same of a body that was parsed.
///
/// # Errors
/// All that is wrong with it, in order.
pub fn tasks(value: Value, version: Version) -> Result<Vec<Task>, Vec<Wrong>> {
    let mut checks = Checks { version, found: Vec::new() };
    let Value::Array(items) = value else {
        checks.kind("", &value, "array");
        return Err(checks.found);
    };
    for (index, item) in items.iter().enumerate() {
        checks.task(&format!("tasks[{index}]"), item);
    }
    if !checks.found.is_empty() {
        return Err(checks.found);
    }
    Ok(items
        .into_iter()
        .filter_map(|item| if let Value::Object(fields) = item { Some(fields.into()) } else { None })
        .collect())
}

/// Whether a list holds nothing but texts.
///
/// # Errors
/// What does not.
pub fn texts(value: &Value) -> Result<Vec<String>, Vec<Wrong>> {
    let mut checks = Checks { version: Version::Seven, found: Vec::new() };
    let Some(items) = value.as_array() else {
        checks.kind("", value, "array");
        return Err(checks.found);
    };
    for (index, item) in items.iter().enumerate() {
        checks.is_text(&format!("[{index}]"), item);
    }
    if checks.found.is_empty() {
        Ok(items.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    } else {
        Err(checks.found)
    }
}

struct Checks {
    version: Version,
    found: Vec<Wrong>,
}

const ROLES: &[&str] = &["*", "master", "self"];
const POLICIES: &[&str] = &["all", "any"];
const STRATEGIES: &[&str] = &["parallel", "one_by_one"];

impl Checks {
    fn say(&mut self, path: &str, message: String) {
        self.found.push(Wrong { path: path.to_owned(), message });
    }

    fn kind(&mut self, path: &str, value: &Value, wanted: &str) {
        self.say(path, format!("{} is not of type '{wanted}'", python(value)));
    }

    fn is_text(&mut self, path: &str, value: &Value) -> bool {
        if !value.is_string() {
            self.kind(path, value, "string");
        }
        value.is_string()
    }

    fn one_of(&mut self, path: &str, value: &Value, allowed: &[&str]) {
        if !value.as_str().is_some_and(|text| allowed.contains(&text)) {
            let listed: Vec<String> = allowed.iter().map(|one| format!("'{one}'")).collect();
            self.say(path, format!("{} is not one of [{}]", python(value), listed.join(", ")));
        }
        if !value.is_string() {
            self.kind(path, value, "string");
        }
    }

    fn required(&mut self, path: &str, fields: &Map<String, Value>, names: &[&str]) {
        for name in names {
            if !fields.contains_key(*name) {
                self.say(path, format!("'{name}' is a required property"));
            }
        }
    }

    fn task(&mut self, path: &str, value: &Value) {
        let Some(fields) = value.as_object() else {
            self.kind(path, value, "object");
            return;
        };
        self.required(path, fields, &["type", "id"]);
        for (name, value) in fields {
            let path = format!("{path}.{name}");
            match name.as_str() {
                "id" => {
                    self.is_text(&path, value);
                }
                "type" => self.one_of(&path, value, self.version.task_types()),
                "parameters" if !value.is_object() => self.kind(&path, value, "object"),
                "requires" | "required_for" if !value.is_array() => self.kind(&path, value, "array"),
                _ if self.version >= Version::Eight => self.newer(&path, name, value),
                _ => {}
            }
        }
    }

    /// What 8.0 looks at in addition.
    fn newer(&mut self, path: &str, name: &str, value: &Value) {
        match name {
            "version" => {
                if let Some(text) = value.as_str() {
                    if !is_version(text) {
                        self.say(path, format!("{} does not match '^\\\\d+.\\\\d+.\\\\d+$'", python(value)));
                    }
                } else {
                    self.kind(path, value, "string");
                }
            }
            "parameters" => {
                if let Some(strategy) = value.get("strategy") {
                    self.strategy(&format!("{path}.strategy"), strategy);
                }
            }
            "cross-depends" | "cross-depended-by" => self.relations(path, value),
            _ => {}
        }
    }

    fn strategy(&mut self, path: &str, value: &Value) {
        let Some(fields) = value.as_object() else {
            self.kind(path, value, "object");
            return;
        };
        self.required(path, fields, &["type"]);
        if let Some(kind) = fields.get("type") {
            self.one_of(&format!("{path}.type"), kind, STRATEGIES);
        }
        if let Some(amount) = fields.get("amount")
            && !is_whole(amount)
        {
            let path = format!("{path}.amount");
            if self.version < Version::Nine {
                self.kind(&path, amount, "integer");
            } else if !is_expression(amount) {
                self.none_fits(&path, amount);
            }
        }
    }

    fn none_fits(&mut self, path: &str, value: &Value) {
        self.say(path, format!("{} is not valid under any of the given schemas", python(value)));
    }

    fn relations(&mut self, path: &str, value: &Value) {
        if self.version >= Version::Nine && is_expression(value) {
            return;
        }
        let before = self.found.len();
        match value.as_array() {
            Some(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.relation(&format!("{path}[{index}]"), item);
                }
            }
            None => self.kind(path, value, "array"),
        }
        // 9.2 has two shapes for the whole, so it can only say that none fits.
        if self.version >= Version::Nine && self.found.len() > before {
            self.found.truncate(before);
            self.none_fits(path, value);
        }
    }

    fn relation(&mut self, path: &str, value: &Value) {
        let Some(fields) = value.as_object() else {
            self.kind(path, value, "object");
            return;
        };
        let nine = self.version >= Version::Nine;
        self.required(path, fields, &["name"]);
        if let Some(name) = fields.get("name")
            && !(nine && is_expression(name))
        {
            self.is_text(&format!("{path}.name"), name);
        }
        if let Some(role) = fields.get("role") {
            let word = role.as_str().is_some_and(|word| nine || ROLES.contains(&word));
            if !(word || role.is_array() || (nine && is_expression(role))) {
                self.none_fits(&format!("{path}.role"), role);
            }
        }
        if let Some(policy) = fields.get("policy") {
            self.one_of(&format!("{path}.policy"), policy, POLICIES);
        }
    }
}

/// A whole number; 2.0 is none, nor is a truth value.
fn is_whole(value: &Value) -> bool {
    value.as_i64().is_some() || value.as_u64().is_some()
}

fn is_expression(value: &Value) -> bool {
    value.get("yaql_exp").is_some_and(Value::is_string)
}

/// `^\d+.\d+.\d+$`: the dots are any character.
fn is_version(text: &str) -> bool {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let characters: Vec<char> = text.chars().collect();
    let digit = |at: usize| characters.get(at).is_some_and(char::is_ascii_digit);
    // Three runs of digits with one character between them; digits may stand for that character, too.
    let ends = |at: usize| at == characters.len();
    let run = |from: usize| (from..characters.len()).take_while(|at| digit(*at)).map(|at| at + 1).collect::<Vec<_>>();
    run(0).iter().any(|first| run(first + 1).iter().any(|second| run(second + 1).iter().any(|third| ends(*third))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(body: &str, version: Version) -> Vec<String> {
        read(body, version).map_or_else(|wrong| wrong.iter().map(|one| one.message.clone()).collect(), |_| Vec::new())
    }

    #[test]
    fn an_upload_is_refused_in_fuels_words_and_all_at_once() {
        let seven = Version::Seven;
        assert_eq!(said("", seven), ["Empty request received"]);
        assert_eq!(said("[", seven), ["Invalid json received"]);
        assert_eq!(said("null", seven), ["None is not of type 'array'"]);
        let body =
            r#"[{"type": "puppet"}, {"id": 1, "type": "puppet"}, {"id": "a", "type": "puppet", "requires": "b"}]"#;
        let wrong = read(body, seven).unwrap_err();
        let told: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "tasks[0]: 'id' is a required property",
                "tasks[1].id: 1 is not of type 'string'",
                "tasks[2].requires: 'b' is not of type 'array'",
            ]
        );
    }

    #[test]
    fn the_later_checks_wait_for_their_version() {
        let amount =
            r#"[{"id": "g", "type": "group", "parameters": {"strategy": {"type": "parallel", "amount": "2"}}}]"#;
        assert_eq!(said(amount, Version::Seven), [""; 0]);
        assert_eq!(said(amount, Version::Eight), ["'2' is not of type 'integer'"]);
        let version = |text: &str| format!(r#"[{{"id": "a", "type": "puppet", "version": "{text}"}}]"#);
        assert_eq!(said(&version("2.0"), Version::Eight), [r"'2.0' does not match '^\\d+.\\d+.\\d+$'"]);
        assert_eq!(said(&version("2x0y10"), Version::Eight), [""; 0]);
        assert_eq!(said(&version("12345"), Version::Eight), [""; 0]);
        let word = r#"[{"id": "a", "type": "puppet", "cross-depends": [{"name": "b", "role": "db"}]}]"#;
        assert_eq!(said(word, Version::Eight), ["'db' is not valid under any of the given schemas"]);
        assert_eq!(said(word, Version::Nine), [""; 0]);
    }
}
