//! The values of a job's attributes, and their readers.

use std::collections::BTreeMap;

use gatelog_record::Value;
use serde::{Deserialize, Serialize};

use super::job::{self, JobAttribute};
use super::nodeset::{self, Nodeset};
use crate::problem::did_you_mean;
use crate::regexes::{Anchor, Pattern};
use crate::schema::{Kind, Stanza, texts_of};
use crate::yaml::tree::mapping_value;
use crate::yaml::{Entry, Node};

/// A job another one waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Dependency {
    /// Its name.
    pub name: String,
    /// Whether it may be absent.
    pub soft: bool,
}

/// A playbook a definition names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PlaybookUse {
    /// Path in the repository of the definition.
    pub path: String,
    /// Semaphores held while it runs.
    pub semaphores: Vec<String>,
    /// Whether it runs whatever happens, its result ignored.
    pub cleanup: bool,
}

/// A repository with roles, as a definition names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RoleUse {
    /// The project, as written.
    pub project: String,
    /// The name of the role, when the repository is a bare role.
    pub name: Option<String>,
}

/// A secret a definition gives its playbooks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SecretUse {
    /// The variable the playbooks see.
    pub name: String,
    /// The secret.
    pub secret: String,
    /// Whether the playbooks collected so far see it, too.
    pub pass_to_parent: bool,
}

/// A semaphore a job holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SemaphoreUse {
    /// Its name.
    pub name: String,
    /// Whether nodes are asked for first.
    pub resources_first: bool,
}

/// A further repository in the workspace, as a definition names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProjectUse {
    /// The project, as written.
    pub name: String,
    /// What to check out there.
    pub override_checkout: Option<String>,
    /// An older way to name a branch; looked at when override-checkout names nothing that exists.
    pub override_branch: Option<String>,
}

/// One entry of `include-projects` and `exclude-projects`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProjectFilter {
    /// A project by name.
    Project(String),
    /// The project of the change or ref that the job is run for.
    Change,
    /// The projects of all changes of the item.
    Item,
}

/// A file with variables.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct IncludeVars {
    /// Its path.
    pub name: String,
    /// The project it lies in; none means that of the definition.
    pub project: Option<String>,
    /// Whether it lies in the project under test.
    pub zuul_project: bool,
    /// Whether the ref under test is used there.
    pub use_ref: bool,
    /// Whether its absence is an error.
    pub required: bool,
}

/// A typed attribute value, as one definition gives it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AttributeValue {
    /// A truth value.
    Bool(bool),
    /// A truth value, or `auto` (none).
    BoolOrAuto(Option<bool>),
    /// A whole number.
    Int(i64),
    /// Text.
    Text(String),
    /// Texts.
    Names(Vec<String>),
    /// Regular expressions.
    Patterns(Vec<Pattern>),
    /// Free-form data.
    Map(BTreeMap<String, Value>),
    /// Jobs waited for.
    Dependencies(Vec<Dependency>),
    /// Machines, by name.
    NodesetName(String),
    /// Machines, spelt out.
    Nodeset(Nodeset),
    /// Playbooks.
    Playbooks(Vec<PlaybookUse>),
    /// Roles.
    Roles(Vec<RoleUse>),
    /// Secrets.
    Secrets(Vec<SecretUse>),
    /// Semaphores.
    Semaphores(Vec<SemaphoreUse>),
    /// Repositories.
    Projects(Vec<ProjectUse>),
    /// Filters of repositories.
    Filters(Vec<ProjectFilter>),
    /// Files with variables.
    IncludeVars(Vec<IncludeVars>),
}

impl AttributeValue {
    /// The value for people and JSON.
    pub fn to_value(&self) -> Value {
        let text = |text: &str| Value::Str(text.to_owned());
        let names = |names: Vec<&str>| Value::List(names.into_iter().map(text).collect());
        match self {
            AttributeValue::Bool(truth) | AttributeValue::BoolOrAuto(Some(truth)) => Value::Bool(*truth),
            AttributeValue::BoolOrAuto(None) => text("auto"),
            AttributeValue::Int(number) => Value::Int(*number),
            AttributeValue::Text(value) | AttributeValue::NodesetName(value) => text(value),
            AttributeValue::Names(all) => names(all.iter().map(String::as_str).collect()),
            AttributeValue::Patterns(all) => Value::List(all.iter().map(|p| Value::Str(p.describe())).collect()),
            AttributeValue::Map(map) => Value::Map(map.clone()),
            AttributeValue::Dependencies(all) => Value::List(
                all.iter()
                    .map(|d| if d.soft { Value::Str(format!("{} (soft)", d.name)) } else { text(&d.name) })
                    .collect(),
            ),
            AttributeValue::Nodeset(nodeset) => match &nodeset.content {
                nodeset::NodesetContent::Shape(shape) => Value::List(
                    shape
                        .nodes
                        .iter()
                        .map(|node| Value::Str(format!("{}: {}", node.names.join(","), node.label)))
                        .collect(),
                ),
                nodeset::NodesetContent::Alternatives(all) => Value::Str(format!("{} alternatives", all.len())),
            },
            AttributeValue::Playbooks(all) => names(all.iter().map(|p| p.path.as_str()).collect()),
            AttributeValue::Roles(all) => names(all.iter().map(|r| r.project.as_str()).collect()),
            AttributeValue::Secrets(all) => names(all.iter().map(|s| s.secret.as_str()).collect()),
            AttributeValue::Semaphores(all) => names(all.iter().map(|s| s.name.as_str()).collect()),
            AttributeValue::Projects(all) => Value::List(
                all.iter()
                    .map(|p| match &p.override_checkout {
                        Some(checkout) => Value::Str(format!("{} ({checkout})", p.name)),
                        None => text(&p.name),
                    })
                    .collect(),
            ),
            AttributeValue::Filters(all) => names(
                all.iter()
                    .map(|filter| match filter {
                        ProjectFilter::Project(name) => name.as_str(),
                        ProjectFilter::Change => "(change)",
                        ProjectFilter::Item => "(item)",
                    })
                    .collect(),
            ),
            AttributeValue::IncludeVars(all) => names(all.iter().map(|i| i.name.as_str()).collect()),
        }
    }
}

/// Reads the value of one attribute; simple types were checked when the stanza was opened.
pub fn read(stanza: &mut Stanza<'_, '_, '_>, attribute: JobAttribute, entry: &Entry) -> Option<AttributeValue> {
    let node = &entry.value;
    let key = entry.key.as_str();
    match attribute.row().kind {
        Kind::Bool => return node.as_scalar()?.as_bool().map(AttributeValue::Bool),
        Kind::BoolOr(_) => return Some(AttributeValue::BoolOrAuto(node.as_scalar()?.as_bool())),
        Kind::Int { .. } => {
            return match node.as_scalar()? {
                Value::Int(number) => Some(AttributeValue::Int(*number)),
                // Zuul: a truth value passes for a number.
                Value::Bool(truth) => Some(AttributeValue::Int(i64::from(*truth))),
                _ => None,
            };
        }
        Kind::TextOrNumber => {
            return Some(AttributeValue::Text(match node.as_scalar()? {
                Value::Str(text) | Value::Number(text) => text.clone(),
                other => other.to_string(),
            }));
        }
        Kind::Text | Kind::TextOrNull | Kind::Choice(_) => {
            return Some(AttributeValue::Text(node.as_str()?.to_owned()));
        }
        Kind::Texts if attribute == JobAttribute::FailureOutput => {
            return Some(AttributeValue::Patterns(failure_output(stanza, key, node)));
        }
        Kind::Texts | Kind::TextList => return Some(AttributeValue::Names(texts_of(node))),
        Kind::Patterns(anchor) => return stanza.patterns(key, anchor).map(AttributeValue::Patterns),
        Kind::Map => return Some(AttributeValue::Map(mapping_value(node.as_mapping()?))),
        Kind::IntOrNull { .. } | Kind::Special => {}
    }
    Some(match attribute {
        JobAttribute::Dependencies => AttributeValue::Dependencies(list(stanza, key, node, |stanza, item| {
            let soft = flag(stanza, key, item, "soft")?;
            Some(Dependency { name: named(stanza, key, item, "name", &["name", "soft"])?, soft })
        })),
        JobAttribute::Nodeset => match node.as_str() {
            Some(name) => AttributeValue::NodesetName(name.to_owned()),
            None => {
                // Zuul reads a nodeset inside a job after the shape of the job.
                let before = stanza.sink.problems.len();
                match nodeset::read(&mut *stanza.sink, node, entry.mark, true) {
                    Some(nodeset) => AttributeValue::Nodeset(nodeset),
                    None => {
                        for problem in stanza.sink.problems.iter_mut().skip(before) {
                            problem.attribute = Some(key.to_owned());
                        }
                        stanza.spoil();
                        return None;
                    }
                }
            }
        },
        JobAttribute::PreRun | JobAttribute::Run | JobAttribute::PostRun | JobAttribute::CleanupRun => {
            let mut known = vec!["name", "semaphores"];
            if attribute == JobAttribute::PostRun {
                known.push("cleanup");
            }
            // Zuul says so for each of them.
            for _ in node.items().iter().filter(|_| attribute == JobAttribute::CleanupRun) {
                let message = format!("{} uses cleanup-run, which is deprecated", stanza.title());
                let cure = "write a post-run playbook with `cleanup: true`";
                stanza.warn("cleanup-run-deprecation", "Cleanup Run Deprecation", entry.mark, key, message, cure);
            }
            AttributeValue::Playbooks(list(stanza, key, node, |stanza, item| {
                let cleanup = attribute == JobAttribute::CleanupRun || flag(stanza, key, item, "cleanup")?;
                let path = named(stanza, key, item, "name", &known)?;
                let semaphores = item.get("semaphores").map_or(Vec::new(), |entry| texts_of(&entry.value));
                if let Some(entry) = item.get("semaphores").filter(|entry| !is_texts(&entry.value)) {
                    let message = format!("`semaphores` in `{key}` of {} must be names", stanza.title());
                    stanza.fail("wrong-type", entry.value.start, Some(key), message, "");
                }
                Some(PlaybookUse { path, semaphores, cleanup })
            }))
        }
        JobAttribute::Roles if node.as_mapping().is_some() => {
            let message = format!("`roles` of {} must be a list, not a dictionary", stanza.title());
            stanza.fail("role-not-in-list", node.start, Some(key), message, "begin it with a dash");
            return None;
        }
        JobAttribute::Roles => AttributeValue::Roles(
            list(stanza, key, node, |stanza, item| {
                if item.get("galaxy").is_some() {
                    // Zuul: taken and without effect.
                    named(stanza, key, item, "galaxy", &["galaxy", "name"])?;
                    return Some(None);
                }
                let project = named(stanza, key, item, "zuul", &["zuul", "name"])?;
                let name = text(stanza, key, item, "name")?;
                Some(Some(RoleUse { project, name }))
            })
            .into_iter()
            .flatten()
            .collect(),
        ),
        JobAttribute::Secrets => AttributeValue::Secrets(list(stanza, key, node, |stanza, item| {
            let pass_to_parent = flag(stanza, key, item, "pass-to-parent")?;
            let name = named(stanza, key, item, "name", &["name", "secret", "pass-to-parent"])?;
            let secret = item.get("secret").and_then(|entry| entry.value.as_str()).unwrap_or(&name).to_owned();
            if item.as_mapping().is_some() && (!job::is_variable_shape(&name) || item.get("secret").is_none()) {
                let message = format!("a secret of {} needs a variable as `name`, and `secret`", stanza.title());
                let cure = "write `{name: VARIABLE, secret: SECRET}`; a variable has letters, digits and underscores";
                stanza.fail("wrong-type", item.start, Some(key), message, cure);
            }
            Some(SecretUse { name, secret, pass_to_parent })
        })),
        JobAttribute::Semaphores => AttributeValue::Semaphores(list(stanza, key, node, |stanza, item| {
            let resources_first = flag(stanza, key, item, "resources-first")?;
            let name = named(stanza, key, item, "name", &["name", "resources-first"])?;
            Some(SemaphoreUse { name, resources_first })
        })),
        JobAttribute::RequiredProjects => AttributeValue::Projects(list(stanza, key, node, |stanza, item| {
            let name = named(stanza, key, item, "name", &["name", "override-checkout", "override-branch"])?;
            let override_checkout = text(stanza, key, item, "override-checkout")?;
            let override_branch = text(stanza, key, item, "override-branch")?;
            Some(ProjectUse { name, override_checkout, override_branch })
        })),
        JobAttribute::IncludeProjects | JobAttribute::ExcludeProjects => {
            AttributeValue::Filters(list(stanza, key, node, |stanza, item| {
                match item.get("type").and_then(|entry| entry.value.as_str()) {
                    Some("change") => Some(ProjectFilter::Change),
                    Some("item") => Some(ProjectFilter::Item),
                    Some("name") | None => {
                        if item.as_mapping().is_some() && item.get("type").is_none() {
                            let message = format!("an item of `{key}` of {} has no `type`", stanza.title());
                            stanza.fail("filter-without-type", item.start, Some(key), message, "add `type: name`");
                        }
                        named(stanza, key, item, "name", &["name", "type"]).map(ProjectFilter::Project)
                    }
                    Some(other) => {
                        let message = format!("`type: {other}` in `{key}` of {} is unknown", stanza.title());
                        let cure = "choose one of: name, change, item";
                        stanza.fail("wrong-type", item.start, Some(key), message, cure);
                        None
                    }
                }
            }))
        }
        JobAttribute::IncludeVars => AttributeValue::IncludeVars(list(stanza, key, node, |stanza, item| {
            // Zuul: a file lies in a named project, or in the project under test.
            let known: &[&str] = match item.get("project") {
                Some(_) => &["name", "project", "required"],
                None => &["name", "zuul-project", "use-ref", "required"],
            };
            Some(IncludeVars {
                name: named(stanza, key, item, "name", known)?,
                project: text(stanza, key, item, "project")?,
                zuul_project: flag(stanza, key, item, "zuul-project")?,
                use_ref: flag_or(stanza, key, item, "use-ref", true)?,
                required: flag_or(stanza, key, item, "required", true)?,
            })
        })),
        JobAttribute::AttributeControl => AttributeValue::Names(control(stanza, key, node)),
        // Every other attribute has a simple type, read above.
        _ => return None,
    })
}

/// Reads each item; what cannot be read has been reported.
fn list<T>(
    stanza: &mut Stanza<'_, '_, '_>,
    key: &str,
    node: &Node,
    mut read: impl FnMut(&mut Stanza<'_, '_, '_>, &Node) -> Option<T>,
) -> Vec<T> {
    if node.is_null() {
        let message = format!("`{key}` of {} is empty", stanza.title());
        stanza.fail("wrong-type", node.start, Some(key), message, "write `[]` for an empty list, or remove it");
    }
    node.items().iter().filter_map(|item| read(stanza, item)).collect()
}

/// Whether a node is a text or a list of texts.
fn is_texts(node: &Node) -> bool {
    !node.is_null() && node.items().iter().all(|item| item.as_str().is_some())
}

/// Zuul: these have to be RE2, without a fallback.
fn failure_output(stanza: &mut Stanza<'_, '_, '_>, key: &str, node: &Node) -> Vec<Pattern> {
    let patterns = node.items().iter().filter_map(|item| {
        let pattern = Pattern::new(item.as_str()?, false, Anchor::Anywhere);
        if let Some(why) = pattern.refused_by_re2() {
            let message = format!("`{}` is not a regular expression: {why}", pattern.regex());
            stanza.fail("regex-invalid", item.start, Some(key), message, "mend it; the syntax is that of RE2");
        }
        Some(pattern)
    });
    patterns.collect()
}

/// The name of an item: the text it is, or the text under `under`; other keys must be known.
fn named(stanza: &mut Stanza<'_, '_, '_>, key: &str, item: &Node, under: &str, known: &[&str]) -> Option<String> {
    if under == "name"
        && let Some(name) = item.as_str()
    {
        return Some(name.to_owned());
    }
    for entry in item.as_mapping().unwrap_or(&[]) {
        if !known.contains(&entry.key.as_str()) {
            let message = format!("`{}` is not known in an item of `{key}` of {}", entry.key, stanza.title());
            let cure = match did_you_mean(&entry.key, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are: {}", known.join(", ")),
            };
            stanza.fail("unknown-attribute", entry.mark, Some(key), message, cure);
        }
    }
    let name = item.get(under).and_then(|entry| entry.value.as_str());
    if name.is_none() {
        let message = format!("an item of `{key}` of {} is {} without `{under}`", stanza.title(), item.kind_name());
        let cure = if under == "name" {
            format!("write a name, or a dictionary with: {}", known.join(", "))
        } else {
            format!("write a dictionary with: {}", known.join(", "))
        };
        stanza.fail("wrong-type", item.start, Some(key), message, cure);
    }
    name.map(str::to_owned)
}

/// A text of an item that may be left out; none when it is no text.
#[expect(clippy::option_option, reason = "absent and wrong are not the same")]
fn text(stanza: &mut Stanza<'_, '_, '_>, key: &str, item: &Node, name: &str) -> Option<Option<String>> {
    let Some(entry) = item.get(name) else { return Some(None) };
    let text = entry.value.as_str();
    if text.is_none() {
        let message = format!("`{name}` in `{key}` of {} must be text", stanza.title());
        stanza.fail("wrong-type", entry.value.start, Some(key), message, "");
    }
    text.map(|text| Some(text.to_owned()))
}

fn flag(stanza: &mut Stanza<'_, '_, '_>, key: &str, item: &Node, name: &str) -> Option<bool> {
    flag_or(stanza, key, item, name, false)
}

fn flag_or(stanza: &mut Stanza<'_, '_, '_>, key: &str, item: &Node, name: &str, default: bool) -> Option<bool> {
    let Some(entry) = item.get(name) else { return Some(default) };
    let truth = entry.value.as_scalar().and_then(Value::as_bool);
    if truth.is_none() {
        let message = format!("`{name}` in `{key}` of {} must be true or false", stanza.title());
        stanza.fail("wrong-type", entry.value.start, Some(key), message, "");
    }
    truth
}

/// `attribute-control`: the names of attributes that are final from here on.
fn control(stanza: &mut Stanza<'_, '_, '_>, key: &str, node: &Node) -> Vec<String> {
    let mut closed = Vec::new();
    let Some(entries) = node.as_mapping() else {
        let message = format!("`{key}` of {} must be a dictionary, not {}", stanza.title(), node.kind_name());
        stanza.fail("wrong-type", node.start, Some(key), message, "write `ATTRIBUTE: {final: true}`");
        return closed;
    };
    for entry in entries {
        let known = job::TABLE.iter().filter(|row| row.controllable).map(|row| row.name);
        if !known.clone().any(|name| name == entry.key) {
            let message = format!("`{}` cannot be controlled in {}", entry.key, stanza.title());
            let cure = match did_you_mean(&entry.key, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "remove it".to_owned(),
            };
            stanza.fail("unknown-attribute", entry.mark, Some(key), message, cure);
            continue;
        }
        match entry.value.as_mapping() {
            Some([]) => {}
            Some([one]) if one.key == "final" && one.value.as_scalar().and_then(Value::as_bool) == Some(true) => {
                closed.push(entry.key.clone());
            }
            _ => {
                let message = format!("`{}` in `{key}` of {} must be `{{final: true}}`", entry.key, stanza.title());
                stanza.fail("wrong-type", entry.value.start, Some(key), message, "");
            }
        }
    }
    closed
}
