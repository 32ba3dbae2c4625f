//! What an expression comes to.

use std::cmp::Ordering;

use serde_json::Value;

use super::parser::Expression;
use super::{Api, Models};
use crate::fault::Fault;
use crate::values::{contains, equal, is_true, python};

pub(super) fn evaluate(expression: &Expression, models: &Models) -> Result<Value, Fault> {
    match expression {
        Expression::Scalar(value) => Ok(value.clone()),
        Expression::Path(path) => look_up(path, models),
        Expression::Api(name, arguments) => {
            let arguments = arguments.iter().map(|one| evaluate(one, models)).collect::<Result<Vec<_>, _>>()?;
            let api = models.api.as_ref().ok_or_else(|| Fault::Unknown("there is no api here".to_owned()))?;
            ask(api, name, &arguments)
        }
        Expression::Not(inner) => Ok(Value::Bool(!is_true(&evaluate(inner, models)?))),
        Expression::Two(left, word, right) => two(left, word, right, models),
    }
}

fn two(left: &Expression, word: &str, right: &Expression, models: &Models) -> Result<Value, Fault> {
    let left = evaluate(left, models)?;
    match word {
        "or" => return if is_true(&left) { Ok(left) } else { evaluate(right, models) },
        "and" => return if is_true(&left) { evaluate(right, models) } else { Ok(left) },
        _ => {}
    }
    let right = evaluate(right, models)?;
    let verdict = match word {
        "==" => equal(&left, &right),
        "!=" => !equal(&left, &right),
        "in" => contains(&right, &left)?,
        _ => {
            let order = compare(&left, &right)?;
            match word {
                "<" => order == Ordering::Less,
                ">" => order == Ordering::Greater,
                "<=" => order != Ordering::Greater,
                _ => order != Ordering::Less,
            }
        }
    };
    Ok(Value::Bool(verdict))
}

fn compare(left: &Value, right: &Value) -> Result<Ordering, Fault> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Ok(left.cmp(right)),
        _ => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => Ok(left.cmp(&right)),
            _ => Err(Fault::Kind(format!("{} and {} cannot be compared", python(left), python(right)))),
        },
    }
}

fn look_up(path: &str, models: &Models) -> Result<Value, Fault> {
    let mut parts = path.splitn(3, ':');
    let (name, attribute) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let mut value =
        models.models.get(name).ok_or_else(|| Fault::Unknown(format!("No model with name \"{name}\" defined")))?;
    for key in attribute.split('.') {
        let Value::Object(entries) = value else {
            return Err(Fault::Kind(format!("{path}: {} has no '{key}'", python(value))));
        };
        match entries.get(key) {
            Some(found) => value = found,
            None if models.strict => return Err(Fault::Undefined(path.to_owned())),
            None => return Ok(Value::Null),
        }
    }
    Ok(value.clone())
}

fn ask(api: &Api, name: &str, arguments: &[Value]) -> Result<Value, Fault> {
    let has = |roles: &[String], role: &str| Value::Bool(roles.iter().any(|one| one == role));
    match (name, arguments) {
        ("cluster_status", []) => Ok(Value::String(api.cluster_status.clone())),
        ("nodes_count", []) => Ok(Value::from(api.nodes_count)),
        ("role_in_deployment", [Value::String(role)]) => Ok(has(&api.roles_deployed, role)),
        ("role_in_cluster", [Value::String(role)]) => Ok(has(&api.roles, role)),
        _ => Err(Fault::Unknown(format!(
            "api.{name} with {} arguments is unknown; there are api.cluster_status, api.nodes_count(), \
             api.role_in_deployment(role), api.role_in_cluster(role)",
            arguments.len()
        ))),
    }
}
