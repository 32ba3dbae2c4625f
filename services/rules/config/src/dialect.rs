//! Older spellings, as the documents that gatelog is built from have them, and what they are today.
//!
//! A stanza is rewritten before it is read, so that everything after this page knows one language.
//! Each rewriting leaves a notice that names the modern spelling.

use gatelog_record::Value;

use crate::problem::{Severity, UNKNOWN};
use crate::schema::Sink;
use crate::yaml::{Entry, Mark, Node, NodeKind};

/// Whether older spellings are understood. Zuul 14 refuses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        "pipeline" => {
            node.get("allow-secrets").is_some() || node.get("trigger").is_some_and(|entry| has_events(&entry.value))
        }
        "project" | "project-template" => {
            node.as_mapping().unwrap_or(&[]).iter().any(|entry| is_old_list(&entry.value))
        }
        _ => false,
    };
    if !old {
        return None;
    }
    let mut modern = node.clone();
    let before = sink.problems.len();
    match class {
        "job" => job(sink, &mut modern),
        "nodeset" => nodes_in(sink, &mut modern),
        "pipeline" => pipeline(sink, &mut modern),
        "project" | "project-template" => project(sink, &mut modern),
        _ => {}
    }
    (sink.problems.len() > before).then_some(modern)
}

fn is_old_job(node: &Node) -> bool {
    node.as_mapping().unwrap_or(&[]).iter().any(|entry| match entry.key.as_str() {
        "nodes" | "auth" => true,
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

/// `meta: {implicit-branch-matcher: TRUTH}` is a pragma.
pub(crate) fn meta(sink: &mut Sink<'_>, item: &Node) -> Option<Node> {
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

fn notice(sink: &mut Sink<'_>, mark: Mark, old: &str, modern: &str) {
    let message = format!("`{old}` is an older spelling");
    let problem = sink.add(Severity::Notice, "older-spelling", UNKNOWN, mark, message);
    problem.attribute = Some(old.to_owned());
    problem.cure = format!("write `{modern}`");
}

fn entries(node: &mut Node) -> &mut [Entry] {
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

fn rename(node: &mut Node, old: &str, modern: &str) -> Option<Mark> {
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

fn put(node: &mut Node, key: &str, mark: Mark, value: Node) {
    if let NodeKind::Mapping(entries) = &mut node.kind {
        entries.push(Entry { key: key.to_owned(), resolved: Value::Str(key.to_owned()), mark, value });
    }
}

fn scalar(value: Value, at: &Node) -> Node {
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
    auth(sink, node);
}

/// `auth: {secrets: [...]}` gives secrets, and closes the job unless it may be inherited.
fn auth(sink: &mut Sink<'_>, node: &mut Node) {
    let understood = node
        .get("auth")
        .and_then(|entry| entry.value.as_mapping())
        .is_some_and(|inner| inner.iter().all(|entry| entry.key == "secrets" || entry.key == "inherit"));
    if !understood || node.get("secrets").is_some() {
        return;
    }
    let Some(mut auth) = take(node, "auth") else { return };
    notice(sink, auth.mark, "auth", "secrets: [...], and `final: true` unless others may inherit from it");
    let inherit = take(&mut auth.value, "inherit").and_then(|entry| entry.value.as_scalar().and_then(Value::as_bool));
    if let Some(mut secrets) = take(&mut auth.value, "secrets") {
        for item in items(&mut secrets.value) {
            // The name of a secret was free, that of a variable is not.
            let Some(secret) = item.as_str().map(str::to_owned).filter(|name| name.contains('-')) else { continue };
            let mut both = mapping(Vec::new(), item);
            put(&mut both, "name", item.start, scalar(Value::Str(secret.replace('-', "_")), item));
            put(&mut both, "secret", item.start, scalar(Value::Str(secret), item));
            *item = both;
        }
        put(node, "secrets", secrets.mark, secrets.value);
    }
    if inherit != Some(true) && node.get("final").is_none() {
        let value = scalar(Value::Bool(true), &auth.value);
        put(node, "final", auth.mark, value);
    }
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
    if let Some(mark) = rename(node, "allow-secrets", "post-review") {
        notice(sink, mark, "allow-secrets", "post-review");
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
