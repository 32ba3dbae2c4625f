//! Older spellings, as the documents that gatelog is built from have them, and what they are today.
//!
//! A stanza is rewritten before it is read, so that everything after this page knows one language.
//! Each rewriting leaves a notice that names the modern spelling.

pub(crate) mod nodes;

use gatelog_record::Value;

use crate::objects::CLASSES;
use crate::problem::{Severity, UNKNOWN};
use crate::schema::Sink;
use crate::yaml::{Entry, Mark, Node, NodeKind, Parsed};

/// Whether older spellings are understood. Zuul 14 refuses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spelling {
    /// Those of Zuul 14 alone.
    Zuul,
    /// Older ones, too.
    Older,
}

/// Rewrites the value of an object of a class; none when it is written as today.
pub(crate) fn modernise(sink: &mut Sink<'_>, class: &str, node: &Node) -> Option<Node> {
    let old = match class {
        "job" => is_old_job(node),
        "nodeset" => has_images(node),
        "pipeline" => node.get("trigger").is_some_and(|entry| has_events(&entry.value)),
        "provider" => node.get("image").is_some() && node.get("images").is_none(),
        "project" | "project-template" => {
            node.as_mapping().unwrap_or(&[]).iter().any(|entry| is_old_list(&entry.value))
        }
        _ => false,
    };
    if !old {
        return None;
    }
    let mut modern = node.clone();
    match class {
        "job" => {
            job(sink, &mut modern);
            playbooks(sink, &mut modern);
        }
        "nodeset" => nodes_in(sink, &mut modern),
        "pipeline" => pipeline(sink, &mut modern),
        "project" | "project-template" => project(sink, &mut modern),
        "provider" => {
            if let Some(mark) = rename(&mut modern, "image", "images") {
                notice(sink, mark, "image", "images");
            }
        }
        _ => {}
    }
    Some(modern)
}

/// Whether a job uses a spelling that is older than Zuul 14.
pub(crate) fn is_old_job(node: &Node) -> bool {
    node.as_mapping().unwrap_or(&[]).iter().any(|entry| match entry.key.as_str() {
        "nodes" | "auth" | "workspace" | "host" | "fingerprint" => true,
        "timeout" | "pre-timeout" | "post-timeout" => entry.value.as_str().is_some(),
        "nodeset" => has_images(&entry.value),
        _ => false,
    })
}

fn has_images(node: &Node) -> bool {
    node.get("nodes").is_some_and(|entry| entry.value.items().iter().any(|one| one.get("image").is_some()))
}

fn has_events(triggers: &Node) -> bool {
    let filters = triggers.as_mapping().unwrap_or(&[]).iter().flat_map(|connection| connection.value.items());
    filters.into_iter().any(|filter| filter.get("events").is_some())
}

/// Whether the entry for a pipeline names a queue, or holds a tree or an old job.
fn is_old_list(entry: &Node) -> bool {
    let Some(jobs) = entry.get("jobs") else { return false };
    let inner = jobs.value.items().iter().flat_map(|item| item.as_mapping().unwrap_or(&[]));
    entry.get("queue").is_some()
        || inner.into_iter().any(|job| job.value.get("jobs").is_some() || is_old_job(&job.value))
}

/// Tells what of a whole file is older.
pub(crate) fn of_text(sink: &mut Sink<'_>, parsed: &Parsed) {
    for mark in &parsed.older_tags {
        notice(sink, *mark, "!encrypted/pkcs1", "!encrypted/pkcs1-oaep");
    }
    for line in &parsed.outdented {
        let mark = Mark { line: *line, column: 1 };
        let message = "this line is indented less than the attribute above it".to_owned();
        let problem = sink.add(Severity::Warning, "older-indentation", UNKNOWN, mark, message);
        problem.cure = "indent it as far as the attribute above it".to_owned();
    }
}

/// Rewrites an item of a file; none when it is written as today.
pub(crate) fn item(sink: &mut Sink<'_>, item: &Node) -> Option<Node> {
    meta(sink, item).or_else(|| outdented(sink, item))
}

/// An object whose attributes stand below its kind without being indented.
fn outdented(sink: &mut Sink<'_>, item: &Node) -> Option<Node> {
    let [first, rest @ ..] = item.as_mapping()? else { return None };
    let known = |key: &str| CLASSES.contains(&key);
    if !known(&first.key) || !first.value.is_null() || rest.is_empty() || rest.iter().any(|entry| known(&entry.key)) {
        return None;
    }
    let message = format!("the attributes of this {} are not indented", first.key);
    let problem = sink.add(Severity::Warning, "older-indentation", UNKNOWN, first.mark, message);
    problem.cure = "indent them one step further than the kind of object".to_owned();
    let value = mapping(rest.to_vec(), item);
    Some(mapping(vec![Entry { value, ..first.clone() }], item))
}

/// `meta: {implicit-branch-matcher: TRUTH}` is a pragma.
fn meta(sink: &mut Sink<'_>, item: &Node) -> Option<Node> {
    let [entry] = item.as_mapping()? else { return None };
    let inner = entry.value.as_mapping()?;
    if entry.key != "meta" || inner.iter().any(|one| one.key != "implicit-branch-matcher") {
        return None;
    }
    notice(sink, entry.mark, "meta", "pragma: {implied-branch-matchers: ...}");
    let mut modern = item.clone();
    for entry in entries(&mut modern) {
        entry.key = "pragma".to_owned();
        entry.resolved = Value::Str(entry.key.clone());
        rename(&mut entry.value, "implicit-branch-matcher", "implied-branch-matchers");
    }
    Some(modern)
}

pub(crate) fn notice(sink: &mut Sink<'_>, mark: Mark, old: &str, modern: &str) {
    let message = format!("`{old}` is an older spelling");
    let problem = sink.add(Severity::Notice, "older-spelling", UNKNOWN, mark, message);
    problem.attribute = Some(old.to_owned());
    problem.cure = format!("write `{modern}`");
}

pub(crate) fn entries(node: &mut Node) -> &mut [Entry] {
    match &mut node.kind {
        NodeKind::Mapping(entries) => entries,
        _ => &mut [],
    }
}

fn items(node: &mut Node) -> &mut [Node] {
    if node.as_mapping().is_some() {
        return std::slice::from_mut(node);
    }
    match &mut node.kind {
        NodeKind::Sequence(items) => items,
        NodeKind::Mapping(_) | NodeKind::Scalar { .. } => &mut [],
    }
}

fn items_or_self(node: &mut Node) -> &mut [Node] {
    if node.as_sequence().is_some() { items(node) } else { std::slice::from_mut(node) }
}

pub(crate) fn rename(node: &mut Node, old: &str, modern: &str) -> Option<Mark> {
    if node.get(modern).is_some() {
        return None;
    }
    let entry = entries(node).iter_mut().find(|entry| entry.key == old)?;
    entry.key = modern.to_owned();
    entry.resolved = Value::Str(modern.to_owned());
    Some(entry.mark)
}

fn take(node: &mut Node, key: &str) -> Option<Entry> {
    let NodeKind::Mapping(entries) = &mut node.kind else { return None };
    let at = entries.iter().position(|entry| entry.key == key)?;
    Some(entries.remove(at))
}

pub(crate) fn put(node: &mut Node, key: &str, mark: Mark, value: Node) {
    if let NodeKind::Mapping(entries) = &mut node.kind {
        entries.push(Entry { key: key.to_owned(), resolved: Value::Str(key.to_owned()), mark, value });
    }
}

pub(crate) fn scalar(value: Value, at: &Node) -> Node {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Node { kind: NodeKind::Scalar { value, text }, tag: None, start: at.start, end: at.end }
}

fn mapping(entries: Vec<Entry>, at: &Node) -> Node {
    Node { kind: NodeKind::Mapping(entries), tag: None, start: at.start, end: at.end }
}

fn job(sink: &mut Sink<'_>, node: &mut Node) {
    if node.get("nodeset").is_none()
        && let Some(entry) = take(node, "nodes")
    {
        notice(sink, entry.mark, "nodes", "nodeset");
        let value = match entry.value.as_str() {
            Some(_) => entry.value,
            None => {
                let at = entry.value.clone();
                let key = Value::Str("nodes".to_owned());
                mapping(
                    vec![Entry { key: "nodes".to_owned(), resolved: key, mark: entry.mark, value: entry.value }],
                    &at,
                )
            }
        };
        put(node, "nodeset", entry.mark, value);
    }
    if let Some(entry) = entries(node).iter_mut().find(|entry| entry.key == "nodeset") {
        nodes_in(sink, &mut entry.value);
    }
    for key in ["timeout", "pre-timeout", "post-timeout"] {
        let Some(entry) = entries(node).iter_mut().find(|entry| entry.key == key) else { continue };
        if let Some(seconds) = entry.value.as_str().and_then(seconds) {
            notice(sink, entry.mark, key, &format!("{key}: {seconds}"));
            entry.value = scalar(Value::Int(seconds), &entry.value);
        }
    }
    auth(node);
}

/// The secrets in `auth` are those of the job; what else it says stays there.
fn auth(node: &mut Node) {
    let Some(auth) = entries(node).iter_mut().find(|entry| entry.key == "auth") else { return };
    let Some(mut secrets) = take(&mut auth.value, "secrets") else { return };
    for item in items(&mut secrets.value) {
        // The name of a secret was free, that of a variable is not.
        let Some(secret) = item.as_str().map(str::to_owned).filter(|name| name.contains('-')) else { continue };
        let mut both = mapping(Vec::new(), item);
        put(&mut both, "name", item.start, scalar(Value::Str(secret.replace('-', "_")), item));
        put(&mut both, "secret", item.start, scalar(Value::Str(secret), item));
        *item = both;
    }
    match entries(node).iter_mut().find(|entry| entry.key == "secrets").map(|entry| &mut entry.value.kind) {
        Some(NodeKind::Sequence(known)) => known.extend(secrets.value.items().to_vec()),
        Some(_) => {}
        None => put(node, "secrets", secrets.mark, secrets.value),
    }
}

/// A playbook was named by its job, without a directory and an ending.
fn playbooks(sink: &mut Sink<'_>, node: &mut Node) {
    let beside = sink.context.project.is_empty();
    for key in ["pre-run", "run", "post-run"] {
        let Some(entry) = entries(node).iter_mut().find(|entry| entry.key == key) else { continue };
        let mark = entry.mark;
        for item in items_or_self(&mut entry.value) {
            let Some(name) = item.as_str().filter(|name| !name.contains(['/', '.'])) else { continue };
            let path = playbook_of(name, beside);
            notice(sink, mark, key, &format!("{key}: {path}"));
            *item = scalar(Value::Str(path), item);
        }
    }
    let named = node.get("name").and_then(|entry| entry.value.as_str()).unwrap_or("").to_owned();
    let abstracted = node.get("abstract").and_then(|entry| entry.value.as_scalar()?.as_bool()).unwrap_or(false);
    if node.get("run").is_none() && !named.is_empty() && !abstracted {
        notice(sink, node.start, "a job without `run`", &format!("run: {}", playbook_of(&named, beside)));
    }
}

/// Where the playbook of a name lies: in the directory of playbooks of the job's repository; for a file
/// beside the tenant file, in a repository of nothing but playbooks.
pub(crate) fn playbook_of(name: &str, beside_tenant_file: bool) -> String {
    if beside_tenant_file { format!("{name}.yaml") } else { format!("playbooks/{name}.yaml") }
}

/// `30m` and the like.
fn seconds(text: &str) -> Option<i64> {
    let unit = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return None,
    };
    let number: i64 = text.get(..text.len() - 1)?.parse().ok()?;
    number.checked_mul(unit)
}

/// A node's `image` is its `label`.
fn nodes_in(sink: &mut Sink<'_>, node: &mut Node) {
    let Some(nodes) = entries(node).iter_mut().find(|entry| entry.key == "nodes") else { return };
    for one in items(&mut nodes.value) {
        if let Some(mark) = rename(one, "image", "label") {
            notice(sink, mark, "image", "label");
        }
    }
}

fn pipeline(sink: &mut Sink<'_>, node: &mut Node) {
    if node.get("manager").is_none() {
        notice(sink, node.start, "a pipeline without `manager`", "manager: independent");
        let value = scalar(Value::Str("independent".to_owned()), node);
        put(node, "manager", node.start, value);
    }
    for triggers in entries(node).iter_mut().filter(|entry| entry.key == "trigger") {
        for connection in entries(&mut triggers.value) {
            for filter in items(&mut connection.value) {
                if let Some(mark) = rename(filter, "events", "event") {
                    notice(sink, mark, "events", "event");
                }
            }
        }
    }
}

fn project(sink: &mut Sink<'_>, node: &mut Node) {
    let mut queue = None;
    for entry in entries(node).iter_mut().filter(|entry| entry.value.get("jobs").is_some() && entry.key != "vars") {
        if let Some(named) = take(&mut entry.value, "queue") {
            notice(sink, named.mark, "queue", "queue, beside the pipelines of the project");
            queue = queue.or(Some(named));
        }
        if let Some(jobs) = entries(&mut entry.value).iter_mut().find(|entry| entry.key == "jobs") {
            let mut flat = Vec::new();
            tree(sink, &jobs.value, None, &mut flat, 0);
            if let NodeKind::Sequence(items) = &mut jobs.value.kind {
                *items = flat;
            }
        }
    }
    if let Some(named) = queue.filter(|_| node.get("queue").is_none()) {
        put(node, "queue", named.mark, named.value);
    }
}

/// Trees of jobs are no deeper.
const MAX_TREE: usize = 20;

/// Jobs below a job wait for it.
fn tree(sink: &mut Sink<'_>, jobs: &Node, above: Option<&str>, flat: &mut Vec<Node>, depth: usize) {
    for item in jobs.as_sequence().unwrap_or(&[]) {
        let mut item = item.clone();
        let mut below = None;
        if let [entry] = entries(&mut item) {
            job(sink, &mut entry.value);
            below = take(&mut entry.value, "jobs").map(|jobs| (entry.key.clone(), jobs));
        }
        let name = item.as_str().map(str::to_owned);
        if let Some(above) = above {
            let wait = scalar(Value::Str(above.to_owned()), &item);
            if let Some(name) = name {
                let own = mapping(Vec::new(), &item);
                let entry = Entry { key: name.clone(), resolved: Value::Str(name), mark: item.start, value: own };
                item = mapping(vec![entry], &item);
            }
            if let [entry] = entries(&mut item)
                && entry.value.get("dependencies").is_none()
            {
                put(&mut entry.value, "dependencies", wait.start, wait);
            }
        }
        flat.push(item);
        if let Some((name, jobs)) = below.filter(|_| depth < MAX_TREE) {
            notice(sink, jobs.mark, "jobs", &format!("dependencies: {name}, with each of them"));
            tree(sink, &jobs.value, Some(&name), flat, depth + 1);
        }
    }
}
