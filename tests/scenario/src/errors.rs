//! Errors of a configuration in the words of an observation: Zuul's short message for each that has one.

use std::collections::BTreeMap;

use gatelog_rules_config::Problem;
use serde_json::{Value as Json, json};

use crate::gerrit::{HOST, local};

/// A problem of a configuration in the words of an observation.
pub fn config_error(problem: &Problem) -> Json {
    let context = &problem.place.context;
    let severity = problem.severity.to_string();
    // Zuul does not say where a graph went wrong.
    if problem.code == "freeze-error" {
        return without_place("freeze-error", &severity);
    }
    let name = error_name(problem);
    // Nor of which file a nodeset is that it has already.
    if name.starts_with("Nodeset ") && name.contains(" already defined") {
        return without_place(&name, &severity);
    }
    json!({
        "name": name, "severity": severity, "project": local(&context.project),
        "branch": context.branch, "path": problem.zuul_path(),
    })
}

/// An error that stands in no file.
pub fn without_place(name: &str, severity: &str) -> Json {
    let none = Json::Null;
    json!({"name": name, "severity": severity, "project": none, "branch": none, "path": none})
}

fn error_name(problem: &Problem) -> String {
    let nth = |place: usize| problem.message.split('"').nth(place).unwrap_or_default();
    let code_of = |place: usize| problem.message.split('`').nth(place).unwrap_or_default();
    let quoted = || nth(1);
    // The class with which a message begins: `the nodeset "x" ...`.
    let class = || problem.message.split(' ').nth(1).unwrap_or_default();
    let theirs = || {
        let rest = problem.message.split(&format!("{HOST}/")).nth(1).unwrap_or_default();
        rest.split(' ').next().unwrap_or_default().to_owned()
    };
    match problem.code.as_str() {
        "job-not-found" => format!("Job {} not defined", quoted()),
        "dependency-not-found" | "parent-not-found" => format!("Job {} not defined", nth(3)),
        "parent-final" => {
            format!("The parent of job \"{}\", \"{}\" is final and can not act as a parent", quoted(), nth(3))
        }
        "parent-intermediate" => {
            let job = quoted();
            format!("The parent of job \"{job}\", \"{}\" is intermediate but \"{job}\" is not abstract", nth(3))
        }
        "parent-protected" => {
            format!("The parent of job \"{}\", \"{}\" is a protected job in a different project", quoted(), nth(3))
        }
        "job-shadowed" => {
            let (job, ours) = (quoted(), local(&problem.place.context.project));
            format!("Job {job} in {ours} is not permitted to shadow job {job} in {}", theirs())
        }
        "secret-not-found" => format!("The secret \"{}\" was not found.", nth(3)),
        "secret-not-own" => format!(
            "Unable to use secret {}.  Secrets must be defined in the same project in which they are used",
            quoted()
        ),
        "variable-reserved" => format!("Defining a variable named '{}' is not allowed", code_of(1)),
        "post-review-false" => "Once set, the post-review attribute may not be unset".into(),
        "ansible-version" => {
            let asked = problem.message.split(' ').nth(1).unwrap_or_default();
            let known = problem.cure.trim_start_matches("choose one of: ");
            format!("Requested ansible version '{asked}' is unknown. Supported versions are {known}")
        }
        "defined-twice" if class() == "pipeline" => format!("Pipeline {} is already defined", quoted()),
        "defined-in-other-project" if class() == "template" => {
            format!("Project template {} is already defined", quoted())
        }
        "defined-twice" => format!("{} {} already defined", capital(class()), quoted()),
        "defined-in-other-project" => {
            format!("{} {} already defined in project {}", capital(class()), quoted(), theirs())
        }
        "window-ceiling" => "Pipeline window-ceiling may not be less than window-floor".into(),
        "pipeline-not-found" => {
            format!("The pipeline \"{}\" supercedes an unknown pipeline {}.", quoted(), nth(3))
        }
        "missing-attribute" if problem.attribute.is_none() && problem.message.starts_with("secret ") => {
            "Either 'data' or 'oidc' must be present.".into()
        }
        // What a whole file is refused for.
        "not-a-list" => "Configuration file is not a list.  Each zuul.yaml configuration".into(),
        "not-a-dictionary" if problem.cure.contains("rest of the file") => {
            "Configuration item is not a dictionary.  Each zuul.yaml".into()
        }
        "multiple-keys" => "Configuration item has more than one key.  Each zuul.yaml".into(),
        "unknown-object" => "Configuration item not recognized.  Each zuul.yaml".into(),
        "unknown-attribute"
        | "wrong-type"
        | "missing-attribute"
        | "unknown-value"
        | "out-of-range"
        | "misplaced-tag"
        | "not-a-dictionary"
        | "exclusive-attributes"
        | "unknown-connection"
        | "driver-syntax" => "schema-error".into(),
        "yaml-unknown-tag" => format!("could not determine a constructor for the tag '{}'", code_of(1)),
        "yaml-base64" => "Incorrect padding".into(),
        "yaml-duplicate-key" => "Unknown Configuration Error".into(),
        // What the reader of YAML says without what it was about.
        "yaml-syntax" if problem.message.contains(NO_MAPPING_HERE) => NO_MAPPING_HERE.into(),
        code if code.starts_with("yaml-") => "yaml-error".into(),
        _ if problem.name != "Unknown" => problem.name.clone(),
        code => format!("{code}: {}", problem.message),
    }
}

const NO_MAPPING_HERE: &str = "mapping values are not allowed in this context";

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Errors in their order.
pub fn sorted_errors(errors: impl Iterator<Item = Json>) -> Json {
    let order = |error: &Json| {
        let sorted: BTreeMap<String, Json> =
            error.as_object().map(|map| map.clone().into_iter().collect()).unwrap_or_default();
        serde_json::to_string(&sorted).unwrap_or_default()
    };
    let mut errors: Vec<Json> = errors.collect();
    errors.sort_by_key(order);
    Json::Array(errors)
}
