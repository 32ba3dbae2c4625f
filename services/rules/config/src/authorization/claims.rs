//! Conditions on claims.

use std::collections::BTreeMap;

use gatelog_record::Value;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The name under which a rule asks for the claim by which an authenticator knows people (`uid_claim`).
const UID: &str = "zuul_uid";
/// The name under which an authenticator gives it.
pub const UID_CLAIM: &str = "__zuul_uid_claim";

/// Values below one another that are looked at.
const MAX_DEPTH: usize = 32;
/// Values one path may lead to.
const MAX_FOUND: usize = 1_000;

/// An `authorization-rule`: one of these sets of conditions must hold, and of that set every condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The sets: claim (or path to one) and what it must be.
    pub any: Vec<BTreeMap<String, Value>>,
}

impl Rule {
    /// Whether claims fit the rule; in its texts `{tenant.name}` stands for the tenant.
    pub fn fits(&self, claims: &Json, tenant: Option<&str>) -> bool {
        let fits = |(claim, value): (&String, &Value)| fits(claim, value, claims, tenant);
        self.any.iter().any(|all| all.iter().all(fits))
    }
}

fn fits(claim: &str, value: &Value, claims: &Json, tenant: Option<&str>) -> bool {
    let claim = if claim == UID { UID_CLAIM } else { claim };
    if let Value::Map(_) = value {
        return within(value, claims.get(claim).unwrap_or(&Json::Object(serde_json::Map::new())), tenant, 0);
    }
    let found = match path(claim) {
        Some(steps) => find(claims, &steps),
        // What is no path is the name of a claim, as in `https://example.com/groups`.
        None => claims.get(claim).into_iter().collect(),
    };
    // Zuul: where a path leads to more than one value, nothing fits.
    let [found] = found.as_slice() else { return false };
    match found {
        Json::Array(items) => items.iter().any(|item| equals(value, item, tenant)),
        // Zuul: a number never fits.
        Json::String(_) | Json::Bool(_) => equals(value, found, tenant),
        _ => false,
    }
}

/// Zuul: a dictionary holds where each of its keys does; a list of texts where it has everything the claim has.
fn within(value: &Value, claim: &Json, tenant: Option<&str>, depth: usize) -> bool {
    if depth > MAX_DEPTH {
        return false;
    }
    match (value, claim) {
        (Value::Map(wanted), Json::Object(given)) => {
            let nothing = Json::Object(serde_json::Map::new());
            let holds =
                |(key, value): (&String, &Value)| within(value, given.get(key).unwrap_or(&nothing), tenant, depth + 1);
            if wanted.is_empty() { given.is_empty() } else { wanted.iter().all(holds) }
        }
        (Value::Map(_), _) => false,
        (Value::List(wanted), Json::Array(given)) => {
            let known = |item: &Json| wanted.iter().any(|value| equals(value, item, tenant));
            !given.is_empty() && given.iter().all(known)
        }
        (Value::List(wanted), one) => wanted.iter().any(|value| value.to_json() == *one),
        (value, one) => equals(value, one, tenant),
    }
}

fn equals(value: &Value, claim: &Json, tenant: Option<&str>) -> bool {
    match (value, claim) {
        (Value::Str(text), Json::String(given)) => filled_in(text, tenant).as_ref() == Some(given),
        (Value::Str(_), _) => false,
        (value, claim) => value.to_json() == *claim,
    }
}

/// A text with the tenant's name in it; none where it asks for a tenant and there is none.
fn filled_in(text: &str, tenant: Option<&str>) -> Option<String> {
    const NAME: &str = "{tenant.name}";
    match (text.contains(NAME), tenant) {
        (true, None) => None,
        (true, Some(tenant)) => Some(text.replace(NAME, tenant)),
        (false, _) => Some(text.to_owned()),
    }
}

/// A step of a path into claims.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// The value of a key.
    Key(String),
    /// An item of a list, from 0.
    Item(usize),
    /// Every value of a dictionary, or every item of a list.
    All,
}

/// The steps of a JSONPath as far as rules need it: `a.b`, `$.a`, `a[0]`, `a[*]`, `a.*`, `a['b c']`.
fn path(text: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = text.strip_prefix('$').map_or(text, |rest| rest.strip_prefix('.').unwrap_or(rest));
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '@');
    while !rest.is_empty() {
        if steps.len() >= MAX_DEPTH {
            return None;
        }
        if let Some(inside) = rest.strip_prefix('[') {
            let (index, after) = inside.split_once(']')?;
            let quoted = |quote: char| index.strip_prefix(quote).and_then(|name| name.strip_suffix(quote));
            steps.push(match quoted('\'').or_else(|| quoted('"')) {
                Some(name) => Step::Key(name.to_owned()),
                None if index == "*" => Step::All,
                None => Step::Item(index.parse().ok()?),
            });
            rest = after;
        } else if let Some(after) = rest.strip_prefix('*') {
            steps.push(Step::All);
            rest = after;
        } else {
            let end = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
            let (name, after) = rest.split_at_checked(end).filter(|(name, _)| !name.is_empty())?;
            steps.push(Step::Key(name.to_owned()));
            rest = after;
        }
        match rest.strip_prefix('.') {
            Some(after) if !after.is_empty() => rest = after,
            Some(_) => return None,
            None if rest.is_empty() || rest.starts_with('[') => {}
            None => return None,
        }
    }
    (!steps.is_empty()).then_some(steps)
}

fn find<'c>(claims: &'c Json, steps: &[Step]) -> Vec<&'c Json> {
    let mut found = vec![claims];
    for step in steps {
        let mut next = Vec::new();
        for value in found {
            match (step, value) {
                (Step::Key(key), Json::Object(map)) => next.extend(map.get(key)),
                (Step::Item(index), Json::Array(items)) => next.extend(items.get(*index)),
                (Step::All, Json::Object(map)) => next.extend(map.values()),
                (Step::All, Json::Array(items)) => next.extend(items),
                _ => {}
            }
        }
        next.truncate(MAX_FOUND);
        found = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        let conditions: Vec<Json> = serde_json::from_str(text).unwrap();
        let all = |one: &Json| Value::from_json(one).as_map().cloned().unwrap();
        Rule { any: conditions.iter().map(all).collect() }
    }

    fn fits(conditions: &str, claims: &str) -> bool {
        rule(conditions).fits(&serde_json::from_str(claims).unwrap(), Some("acme"))
    }

    #[test]
    fn one_set_of_conditions_is_enough_and_of_it_all_must_hold() {
        let conditions = r#"[{"sub": "ann", "iss": "here"}, {"groups": "ops"}]"#;
        assert!(fits(conditions, r#"{"sub": "ann", "iss": "here"}"#));
        assert!(!fits(conditions, r#"{"sub": "ann", "iss": "there"}"#));
        assert!(fits(conditions, r#"{"groups": ["dev", "ops"]}"#));
        assert!(fits(conditions, r#"{"groups": "ops"}"#));
        assert!(!fits(conditions, r#"{"groups": [["ops"]]}"#));
        assert!(!fits("[]", r#"{"sub": "ann"}"#));
        assert!(fits("[{}]", "{}"), "a set without conditions holds for everybody");
    }

    #[test]
    fn the_type_of_the_claim_says_how_it_is_compared() {
        assert!(fits(r#"[{"staff": true}]"#, r#"{"staff": true}"#));
        assert!(!fits(r#"[{"staff": "true"}]"#, r#"{"staff": true}"#));
        assert!(!fits(r#"[{"level": 3}]"#, r#"{"level": 3}"#), "Zuul: numbers never fit");
        assert!(fits(r#"[{"level": 3}]"#, r#"{"level": [1, 3]}"#));
        assert!(!fits(r#"[{"sub": "ann"}]"#, "{}"));
        assert!(fits(r#"[{"zuul_uid": "ann"}]"#, r#"{"sub": "x", "__zuul_uid_claim": "ann"}"#));
        assert!(fits(r#"[{"groups": "{tenant.name}-ops"}]"#, r#"{"groups": ["acme-ops"]}"#));
        assert!(!rule(r#"[{"groups": "{tenant.name}"}]"#).fits(&serde_json::json!({"groups": "{tenant.name}"}), None));
    }

    #[test]
    fn a_path_leads_to_one_value_or_to_nothing() {
        let claims = r#"{"access": {"account": {"roles": ["ops", "dev"]}, "other": {"roles": ["x"]}}, "l": [{"n": "a"}],
            "https://example.com/groups": ["ops"]}"#;
        for path in ["access.account.roles", "$.access.account.roles", "access['account'].roles"] {
            assert!(fits(&format!(r#"[{{"{path}": "ops"}}]"#), claims), "{path}");
        }
        assert!(fits(r#"[{"l[0].n": "a"}]"#, claims));
        assert!(fits(r#"[{"l[*].n": "a"}]"#, claims));
        assert!(!fits(r#"[{"access.*.roles": "ops"}]"#, claims), "Zuul: two matches are none");
        assert!(!fits(r#"[{"access.account": "ops"}]"#, claims));
        assert!(fits(r#"[{"https://example.com/groups": "ops"}]"#, claims));
        for path in ["", ".", "a..", "a[", "a[x]", "a b", "a[0]b"] {
            assert_eq!(super::path(path), None, "{path}");
        }
    }

    #[test]
    fn a_dictionary_is_compared_key_by_key() {
        let wanted = r#"[{"access": {"account": {"roles": ["ops", "dev"]}}}]"#;
        assert!(fits(wanted, r#"{"access": {"account": {"roles": ["ops"]}, "more": 1}}"#));
        assert!(!fits(wanted, r#"{"access": {"account": {"roles": ["ops", "boss"]}}}"#));
        assert!(!fits(wanted, r#"{"access": {"account": {"roles": []}}}"#));
        assert!(fits(wanted, r#"{"access": {"account": {"roles": "dev"}}}"#));
        assert!(!fits(wanted, r#"{"access": "account"}"#));
        assert!(fits(r#"[{"access": {}}]"#, "{}"));
        assert!(!fits(r#"[{"access": {}}]"#, r#"{"access": {"a": 1}}"#));
        assert!(!fits(r#"[{"access": {"a": 1}}]"#, "{}"));
    }
}
