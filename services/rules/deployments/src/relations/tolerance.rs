//! How many nodes of a group may fail.

use serde_json::Value;

/// How many of so many may fail.
///
/// A number is a number of nodes; with `%` it is a share of them, rounded down. A negative number says how many have to
/// succeed. What is not said, or cannot be read, bears any number of failures: one more than there are nodes.
pub fn allowed(said: Option<&Value>, nodes: usize) -> i64 {
    let nodes = i64::try_from(nodes).unwrap_or(i64::MAX - 1);
    let value = match said {
        Some(Value::Number(number)) => number.as_i64().or_else(|| whole_part(&number.to_string())),
        Some(Value::Bool(it)) => Some(i64::from(*it)),
        Some(Value::String(text)) => share(text.trim(), nodes),
        _ => None,
    };
    match value {
        None => nodes + 1,
        Some(value) if value < 0 => nodes.saturating_add(value).max(0),
        Some(value) => value,
    }
}

fn share(text: &str, nodes: i64) -> Option<i64> {
    let number = |text: &str| text.trim().strip_prefix('+').unwrap_or(text.trim()).parse::<i64>().ok();
    match text.strip_suffix('%') {
        Some(percent) => Some(number(percent)?.saturating_mul(nodes).div_euclid(100)),
        None => number(text),
    }
}

/// What stands before the point.
fn whole_part(text: &str) -> Option<i64> {
    text.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn shares_are_rounded_down_and_negative_numbers_must_succeed() {
        let of = |said: Value, nodes| allowed(Some(&said), nodes);
        assert_eq!([of(json!("50%"), 5), of(json!("-10%"), 3), of(json!(-1), 3), of(json!(-5), 3)], [2, 2, 2, 0]);
        assert_eq!([of(json!(2), 9), of(json!(" 7 "), 3), of(json!("5.5%"), 3), of(json!("some"), 3)], [2, 7, 4, 4]);
        assert_eq!(allowed(None, 3), 4);
    }
}
