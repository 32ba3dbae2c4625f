//! The shapes of what is sent.

use serde_json::{Map, Value, json};

use super::{Sent, Workshop};
use crate::fault::Fault;
use crate::task::Task;
use crate::values;
use crate::version::Version;

/// Where something runs.
pub type Uids = Vec<Option<String>>;

fn map(value: Value) -> Map<String, Value> {
    if let Value::Object(map) = value { map } else { Map::new() }
}

/// A file with given content.
pub fn upload(uids: Uids, path: &str, data: &str) -> Sent {
    let parameters = Some(map(json!({"path": path, "data": data})));
    Sent { kind: "upload_file".to_owned(), uids, parameters, ..Sent::default() }
}

/// A tree copied from the machine that deploys.
pub fn sync(uids: Uids, src: &str, dst: &Value) -> Sent {
    let parameters = Some(map(json!({"src": src, "dst": dst})));
    Sent { kind: "sync".to_owned(), uids, parameters, ..Sent::default() }
}

/// A source of packages on CentOS.
///
/// # Errors
/// [`Fault::Missing`] for its name or address.
pub fn centos_source(uids: Uids, repo: &Map<String, Value>) -> Result<Sent, Fault> {
    let (name, uri) = (text(repo, "name")?, text(repo, "uri")?);
    let mut content = format!("[{name}]\nname=Plugin {name} repository\nbaseurl={uri}\ngpgcheck=0");
    if let Some(priority) = repo.get("priority").filter(|priority| values::is_true(priority)) {
        content.push_str(&format!("\npriority={}", values::name(priority)?));
    }
    Ok(upload(uids, &format!("/etc/yum.repos.d/{name}.repo"), &content))
}

/// A source of packages on Ubuntu.
///
/// # Errors
/// [`Fault::Missing`] for one of its parts.
pub fn ubuntu_source(uids: Uids, repo: &Map<String, Value>) -> Result<Sent, Fault> {
    let content = format!("deb {} {} {}", text(repo, "uri")?, text(repo, "suite")?, text(repo, "section")?);
    Ok(upload(uids, &format!("/etc/apt/sources.list.d/{}.list", text(repo, "name")?), &content))
}

fn text(repo: &Map<String, Value>, field: &str) -> Result<String, Fault> {
    repo.get(field).ok_or_else(|| Fault::Missing(field.to_owned())).and_then(values::name)
}

impl Workshop<'_> {
    /// A shell command with all that it is told by default.
    ///
    /// # Errors
    /// [`Fault::Missing`] for `cmd` or `timeout`.
    pub fn shell(&self, uids: Uids, id: Option<&str>, parameters: &Map<String, Value>) -> Result<Sent, Fault> {
        let need = |name: &str| parameters.get(name).cloned().ok_or_else(|| Fault::Missing(name.to_owned()));
        let or = |name: &str, value: Value| parameters.get(name).cloned().unwrap_or(value);
        let parameters = map(json!({
            "cmd": need("cmd")?,
            "timeout": need("timeout")?,
            "retries": or("retries", json!(self.settings.shell_retries)),
            "interval": or("interval", json!(self.settings.shell_interval)),
            "cwd": or("cwd", json!("/")),
        }));
        let id = self.id(id);
        Ok(Sent { kind: "shell".to_owned(), uids, id, parameters: Some(parameters), ..Sent::default() })
    }

    /// A command of our own.
    pub(super) fn command(&self, uids: Uids, cmd: &str, timeout: u64) -> Result<Sent, Fault> {
        self.shell(uids, None, &map(json!({"cmd": cmd, "timeout": timeout})))
    }

    /// A manifest: what puppet needs of the parameters, and no more.
    ///
    /// # Errors
    /// [`Fault::Missing`] for manifest, modules or timeout.
    pub fn puppet(&self, uids: Uids, task: &Task) -> Result<Sent, Fault> {
        let given = task.parameters()?;
        let need = |name: &str| given.get(name).cloned().ok_or_else(|| Fault::Missing(name.to_owned()));
        let parameters = map(json!({
            "puppet_manifest": need("puppet_manifest")?,
            "puppet_modules": need("puppet_modules")?,
            "timeout": need("timeout")?,
            "cwd": given.get("cwd").cloned().unwrap_or_else(|| json!("/")),
        }));
        let id = self.id(task.id());
        Ok(Sent { kind: "puppet".to_owned(), uids, id, parameters: Some(parameters), ..Sent::default() })
    }

    /// Wait for a restart.
    ///
    /// # Errors
    /// [`Fault::Missing`] for `timeout`.
    pub fn reboot(&self, uids: Uids, task: &Task) -> Result<Sent, Fault> {
        let timeout = task.parameters()?.get("timeout").ok_or_else(|| Fault::Missing("timeout".to_owned()))?;
        let parameters = Some(map(json!({"timeout": timeout})));
        Ok(Sent { kind: "reboot".to_owned(), uids, id: self.id(task.id()), parameters, ..Sent::default() })
    }

    /// Any task, with its parameters as they are.
    ///
    /// # Errors
    /// [`Fault::Missing`] without type or parameters.
    pub fn generic(&self, uids: Uids, task: &Task, parameters: &Map<String, Value>) -> Result<Sent, Fault> {
        let mut parameters = parameters.clone();
        if self.version >= Version::Eight && !parameters.contains_key("cwd") {
            parameters.insert("cwd".to_owned(), json!("/"));
        }
        Ok(Sent {
            kind: values::name(task.need("type")?)?,
            uids,
            id: self.id(task.id()),
            fail_on_error: Some(task.get("fail_on_error").cloned().unwrap_or(Value::Bool(true))),
            parameters: Some(parameters),
            ..Sent::default()
        })
    }

    /// What only keeps its place.
    pub fn nothing(&self, uids: Uids, task: &Task) -> Sent {
        let fail_on_error = Some(Value::Bool(false));
        Sent { kind: "skipped".to_owned(), uids, id: self.id(task.id()), fail_on_error, ..Sent::default() }
    }

    /// Fuel 7.0 sends no ids.
    fn id(&self, id: Option<&str>) -> Option<Value> {
        (self.version >= Version::Eight).then(|| id.map_or(Value::Null, Value::from))
    }
}

/// Fills `{NAME}` in a text; `{{` and `}}` are braces.
///
/// # Errors
/// [`Fault::Missing`] for a name nobody knows, [`Fault::Kind`] for a brace without its other.
pub fn fill(text: &str, known: &[(&str, String)]) -> Result<String, Fault> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, brace) = rest.split_at(at);
        filled.push_str(before);
        if brace.starts_with("{{") || brace.starts_with("}}") {
            filled.push_str(brace.get(..1).unwrap_or(""));
            rest = brace.get(2..).unwrap_or("");
            continue;
        }
        let end = brace.find('}').filter(|_| brace.starts_with('{'));
        let end = end.ok_or_else(|| Fault::Kind(format!("a brace without its other in {text:?}")))?;
        let name = brace.get(1..end).unwrap_or("");
        let value = known.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
        filled.push_str(value.ok_or_else(|| Fault::Missing(name.to_owned()))?);
        rest = brace.get(end + 1..).unwrap_or("");
    }
    filled.push_str(rest);
    Ok(filled)
}
