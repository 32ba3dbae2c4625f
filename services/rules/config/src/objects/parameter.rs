//! Parameters that a project declares for a pipeline, and what whoever enqueues a branch or tag gives for them. Zuul:
//! `allow-parameters` of a pipeline, `parameters` of a project's entry for it.

use gatelog_record::Value;

/// The longest text that is taken for a parameter, in bytes.
const LONGEST: usize = 10_000;

/// What may be given for a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterType {
    /// A text or a number.
    String,
    /// One of the values listed.
    Selection,
    /// Any of the values listed.
    MultipleSelection,
    /// True or false.
    Bool,
}

/// A parameter as it is declared. Zuul: `default` and `required` are for whoever asks people, and bind nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name: that of a variable.
    pub name: String,
    /// What may be given for it.
    pub kind: ParameterType,
    /// The values to choose from.
    pub values: Vec<Value>,
}

fn quoted(values: &[Value]) -> String {
    values.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
}

/// What a person would write for a value.
fn written(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Parameter {
    /// A parameter as the layout has it; none where that is no parameter, which its reader refuses.
    pub fn read(written: &Value) -> Option<Parameter> {
        let map = written.as_map()?;
        let kind = match map.get("type")?.as_str()? {
            "string" => ParameterType::String,
            "selection" => ParameterType::Selection,
            "multiple-selection" => ParameterType::MultipleSelection,
            "bool" => ParameterType::Bool,
            _ => return None,
        };
        let values = map.get("values").and_then(Value::as_list).unwrap_or_default().to_vec();
        Some(Parameter { name: map.get("name")?.as_str()?.to_owned(), kind, values })
    }

    /// What is given for it, as a value of its type. What a command line sends is text: it counts as the value that is
    /// written so.
    ///
    /// # Errors
    /// Why it cannot be taken, for people.
    pub fn take(&self, given: &Value) -> Result<Value, String> {
        let name = &self.name;
        match (self.kind, given) {
            (ParameterType::Bool, Value::Bool(_)) => Ok(given.clone()),
            (ParameterType::Bool, Value::Str(text)) if text == "true" || text == "false" => {
                Ok(Value::Bool(text == "true"))
            }
            (ParameterType::Bool, _) => Err(format!("parameter {name} must be true or false, not {given}")),
            (ParameterType::String, Value::Str(text)) if text.len() > LONGEST => {
                Err(format!("parameter {name} has {} bytes, more than {LONGEST}", text.len()))
            }
            (ParameterType::String, Value::Str(_) | Value::Int(_) | Value::Number(_) | Value::Bool(_)) => {
                Ok(given.clone())
            }
            (ParameterType::String, _) => Err(format!("parameter {name} must be a text, not {given}")),
            (ParameterType::Selection, _) => self.one_of(given),
            (ParameterType::MultipleSelection, Value::List(all)) if all.len() <= self.values.len() => {
                Ok(Value::List(all.iter().map(|one| self.one_of(one)).collect::<Result<_, _>>()?))
            }
            (ParameterType::MultipleSelection, Value::List(all)) => {
                Err(format!("parameter {name} has {} values to choose from, not {}", self.values.len(), all.len()))
            }
            (ParameterType::MultipleSelection, one) => Ok(Value::List(vec![self.one_of(one)?])),
        }
    }

    fn one_of(&self, given: &Value) -> Result<Value, String> {
        let same = |value: &&Value| *value == given || given.as_str().is_some_and(|text| written(value) == text);
        self.values.iter().find(|value| *value == given).or_else(|| self.values.iter().find(same)).cloned().ok_or_else(
            || match self.values.as_slice() {
                [] => format!("parameter {} has no `values` to choose from: list them", self.name),
                values => format!("parameter {} must be one of {}, not {given}", self.name, quoted(values)),
            },
        )
    }
}

/// What is given under a name, by one of these declarations: for several branches there may be several.
///
/// # Errors
/// Why none takes it, for people.
pub fn take(declared: &[Parameter], name: &str, given: &Value) -> Result<Value, String> {
    let mut why = None;
    for one in declared.iter().filter(|one| one.name == name) {
        match one.take(given) {
            Ok(value) => return Ok(value),
            Err(refused) => why = why.or(Some(refused)),
        }
    }
    Err(why.unwrap_or_else(|| {
        let mut known: Vec<&str> = declared.iter().map(|one| one.name.as_str()).collect();
        known.sort_unstable();
        known.dedup();
        format!("there is no parameter {name:?}; there are: {}", known.join(", "))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn declared() -> Vec<Parameter> {
        let all = json!([
            {"name": "release", "type": "string"},
            {"name": "level", "type": "selection", "values": ["low", 3, 2.5]},
            {"name": "targets", "type": "multiple-selection", "values": ["pypi", "docs", true]},
            {"name": "dry", "type": "bool"},
            {"name": "nothing", "type": "selection"},
            {"name": "release", "type": "bool"},
            {"name": "odd", "type": "number"},
        ]);
        all.as_array().unwrap().iter().filter_map(|one| Parameter::read(&Value::from_json(one))).collect()
    }

    #[test]
    fn what_is_given_becomes_a_value_of_the_type_declared() {
        let declared = declared();
        assert_eq!(declared.len(), 6, "what has no type that there is, is none");
        let long = "x".repeat(LONGEST + 1);
        for (name, given, expected) in [
            ("release", json!("1.0"), Ok(json!("1.0"))),
            ("release", json!(4), Ok(json!(4))),
            ("release", json!(["1.0"]), Err("parameter release must be a text, not [\"1.0\"]")),
            ("release", json!(long), Err("parameter release has 10001 bytes, more than 10000")),
            ("level", json!("low"), Ok(json!("low"))),
            ("level", json!("3"), Ok(json!(3))),
            ("level", json!(2.5), Ok(json!(2.5))),
            ("level", json!("high"), Err("parameter level must be one of \"low\", 3, 2.5, not \"high\"")),
            ("targets", json!(["docs", "true"]), Ok(json!(["docs", true]))),
            ("targets", json!("pypi"), Ok(json!(["pypi"]))),
            ("targets", json!([]), Ok(json!([]))),
            ("targets", json!(["docs", "mail"]), Err("must be one of \"pypi\", \"docs\", true, not \"mail\"")),
            ("targets", json!(["docs", "docs", "docs", "docs"]), Err("has 3 values to choose from, not 4")),
            ("dry", json!(true), Ok(json!(true))),
            ("dry", json!("false"), Ok(json!(false))),
            ("dry", json!("maybe"), Err("parameter dry must be true or false, not \"maybe\"")),
            ("nothing", json!("a"), Err("has no `values` to choose from")),
            ("odd", json!(1), Err("there is no parameter \"odd\"; there are: dry, level, nothing, release, targets")),
        ] {
            let taken = take(&declared, name, &Value::from_json(&given)).map(|value| value.to_json());
            match expected {
                Ok(value) => assert_eq!(taken, Ok(value), "{name}"),
                Err(words) => assert!(taken.clone().is_err_and(|why| why.contains(words)), "{name}: {taken:?}"),
            }
        }
    }
}
