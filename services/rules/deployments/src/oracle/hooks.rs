//! Hooks as Fuel's executor runs them, with nodes that are made up: what a command does is read from its text.
//! `exit N` fails unless N is 0; `on 1,2` only on those nodes; `times K` only so often.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::World;

/// How a hook ended: well, or with what is said of it.
pub type Said = Option<String>;

/// An error past all policy.
pub struct Raised {
    pub class: &'static str,
    pub message: String,
}

/// The made-up world of hooks.
pub struct Hooks<'w> {
    pub world: &'w dyn World,
    pub slice: usize,
    pub retries: u64,
    pub events: Vec<Value>,
    tried: BTreeMap<String, u64>,
    boots: BTreeMap<String, u64>,
    boot: u64,
}

impl<'w> Hooks<'w> {
    pub fn new(world: &'w dyn World, slice: usize, retries: u64) -> Hooks<'w> {
        let (events, tried, boots) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Hooks { world, slice, retries, events, tried, boots, boot: 0 }
    }

    /// Runs a hook on all its nodes.
    pub fn run(&mut self, hook: &Value) -> Result<Said, Raised> {
        match hook.get("type").and_then(Value::as_str).unwrap_or("") {
            "copy_files" => self.copy(hook),
            "upload_files" => self.upload_many(hook),
            "sync" => self.sync(hook),
            "shell" => self.shell(hook),
            "upload_file" => self.upload(hook),
            "puppet" => self.puppet(hook),
            "reboot" => self.reboot(hook),
            other => Err(Raised { class: "RuntimeError", message: format!("Unknown hook type {other}") }),
        }
    }

    fn slices(&self, hook: &Value) -> Vec<Vec<Value>> {
        let uids = hook.get("uids").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        uids.chunks(self.slice.max(1)).map(<[Value]>::to_vec).collect()
    }

    /// A command on some nodes, tried so often; whether it ended well on all of them.
    fn command(&mut self, uids: &[Value], cmd: &str, tries: u64) -> bool {
        (0..tries).any(|_| self.once(uids, cmd))
    }

    fn once(&mut self, uids: &[Value], cmd: &str) -> bool {
        self.events.push(json!(["shell", cmd, uids]));
        let mut code = number_after(cmd, "exit ").unwrap_or(0);
        if let Some(times) = number_after(cmd, "times ") {
            let tried = self.tried.entry(cmd.to_owned()).or_default();
            *tried += 1;
            if *tried > times {
                code = 0;
            }
        }
        let only = nodes_after(cmd, "on ");
        let fails =
            |uid: &&Value| only.as_ref().is_none_or(|only| only.iter().any(|one| Some(one.as_str()) == uid.as_str()));
        code == 0 || uids.iter().filter(fails).count() == 0
    }

    fn shell(&mut self, hook: &Value) -> Result<Said, Raised> {
        present(hook, "uids")?;
        let parameters = parameters(hook)?;
        present(parameters, "cmd")?;
        let cwd = text(parameters, "cwd").unwrap_or_else(|| "/".to_owned());
        let cmd = format!("cd {cwd} && {}", text(parameters, "cmd").unwrap_or_default());
        let tries = said(parameters, "retries").and_then(Value::as_u64).unwrap_or(self.retries);
        let mut error = None;
        for uids in self.slices(hook) {
            if !self.command(&uids, &cmd, tries) {
                error = Some(format!("Failed to run command {cmd}"));
            }
        }
        Ok(error)
    }

    fn sync(&mut self, hook: &Value) -> Result<Said, Raised> {
        present(hook, "uids")?;
        let parameters = parameters(hook)?;
        present(parameters, "dst")?;
        present(parameters, "src")?;
        let (src, dst) = (text(parameters, "src").unwrap_or_default(), text(parameters, "dst").unwrap_or_default());
        let cmd = format!("mkdir -p {dst} && rsync -c -r --delete {src} {dst}");
        let mut error = None;
        for uids in self.slices(hook) {
            if !self.command(&uids, &cmd, 10) {
                error = Some(format!("Failed to perform sync from {src} to {dst}"));
            }
        }
        Ok(error)
    }

    fn send(&mut self, path: &str, uids: &Value) -> bool {
        self.events.push(json!(["upload", path, uids]));
        !path.contains("refuse")
    }

    fn upload(&mut self, hook: &Value) -> Result<Said, Raised> {
        present(hook, "uids")?;
        let parameters = parameters(hook)?;
        present(parameters, "path")?;
        present(parameters, "data")?;
        let path = text(parameters, "path").unwrap_or_default();
        let mut error = None;
        for uids in self.slices(hook) {
            if !self.send(&path, &json!(uids)) {
                error = Some("File upload failed".to_owned());
            }
        }
        Ok(error)
    }

    fn upload_many(&mut self, hook: &Value) -> Result<Said, Raised> {
        let parameters = parameters(hook)?;
        present(parameters, "nodes")?;
        let mut error = None;
        for node in parameters.get("nodes").and_then(Value::as_array).into_iter().flatten() {
            let uid = node.get("uid").cloned().unwrap_or_default();
            for file in node.get("files").and_then(Value::as_array).into_iter().flatten() {
                if !self.send(&text(file, "dst").unwrap_or_default(), &json!([uid])) {
                    error = Some("File upload failed".to_owned());
                }
            }
        }
        Ok(error)
    }

    fn copy(&mut self, hook: &Value) -> Result<Said, Raised> {
        present(hook, "uids")?;
        let parameters = parameters(hook)?;
        present(parameters, "files")?;
        let mut error = None;
        for file in parameters.get("files").and_then(Value::as_array).into_iter().flatten() {
            let src = text(file, "src").unwrap_or_default();
            if !self.world.is_file(&src) {
                error = Some(format!("File does not exist or is not readable {src}"));
                continue;
            }
            for uids in self.slices(hook) {
                if !self.send(&text(file, "dst").unwrap_or_default(), &json!(uids)) {
                    error = Some("Upload not successful".to_owned());
                }
            }
        }
        Ok(error)
    }

    fn puppet(&mut self, hook: &Value) -> Result<Said, Raised> {
        present(hook, "uids")?;
        let parameters = parameters(hook)?;
        for needed in ["puppet_manifest", "puppet_modules", "cwd"] {
            present(parameters, needed)?;
        }
        let manifest = text(parameters, "puppet_manifest").unwrap_or_default();
        let mut error = None;
        for uids in self.slices(hook) {
            self.events.push(json!(["puppet", manifest, uids]));
            if manifest.contains("fail") {
                error = Some("Puppet run failed. Check puppet logs for details".to_owned());
            }
        }
        Ok(error)
    }

    /// When each node came up, asked of some of them: the number grows with every asking.
    fn boot_times(&mut self, uids: &[Value]) -> u64 {
        self.boot += 1;
        self.events.push(json!(["shell", "stat --printf='%Y' /proc/1", uids]));
        self.boot
    }

    fn reboot(&mut self, hook: &Value) -> Result<Said, Raised> {
        present(hook, "uids")?;
        if hook.get("parameters").is_none() {
            return Err(Raised { class: "NoMethodError", message: "there are no parameters".to_owned() });
        }
        for uids in self.slices(hook) {
            let boot = self.boot_times(&uids);
            self.boots.extend(uids.iter().map(|uid| (uid.to_string(), boot)));
        }
        for uids in self.slices(hook) {
            self.events.push(json!(["shell", "reboot", uids]));
        }
        let all: Vec<Value> = self.slices(hook).concat();
        self.boot_times(&all);
        Ok(None)
    }
}

fn parameters(hook: &Value) -> Result<&Value, Raised> {
    let none = || Raised { class: "NoMethodError", message: "undefined method `[]' for nil:NilClass".to_owned() };
    hook.get("parameters").filter(|parameters| !parameters.is_null()).ok_or_else(none)
}

/// What is said and not nothing.
fn said<'v>(value: &'v Value, field: &str) -> Option<&'v Value> {
    value.get(field).filter(|found| !matches!(found, Value::Null | Value::Bool(false)))
}

fn text(value: &Value, field: &str) -> Option<String> {
    said(value, field).map(|found| found.as_str().map_or_else(|| found.to_string(), str::to_owned))
}

fn present(value: &Value, field: &str) -> Result<(), Raised> {
    let there = match said(value, field) {
        None => false,
        Some(Value::String(text)) => !text.trim().is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(entries)) => !entries.is_empty(),
        Some(_) => true,
    };
    let missing = || Raised { class: "RuntimeError", message: format!("Missing a required parameter {field}") };
    if there { Ok(()) } else { Err(missing()) }
}

/// The number behind the first `word` that has one.
fn number_after(text: &str, word: &str) -> Option<u64> {
    text.match_indices(word).find_map(|(at, _)| {
        let rest = text.get(at + word.len()..)?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest.get(..digits)?.parse().ok()
    })
}

/// The names behind the first `word` that has some.
fn nodes_after(text: &str, word: &str) -> Option<Vec<String>> {
    text.match_indices(word).find_map(|(at, _)| {
        let rest = text.get(at + word.len()..)?;
        let length = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b',').count();
        let names = rest.get(..length).filter(|names| !names.is_empty())?;
        Some(names.split(',').map(str::to_owned).collect())
    })
}
