//! Hooks of plugins in their old form: tasks with a `stage` such as `post_deployment/100`.

use serde_json::{Map, Value, json};

use super::templates::{self, Uids};
use super::{Places, Sent, Workshop};
use crate::cluster::{MASTER, Plugin};
use crate::fault::Fault;
use crate::task::Task;
use crate::values;
use crate::version::Version;

const CENTOS_PRIORITY: u64 = 10;
const UBUNTU_PRIORITY: u64 = 1100;

/// Sorts by the number behind the slash of `stage`; none, or what is no number, is 0. Others keep their order.
///
/// # Errors
/// [`Fault::Missing`] for a task without stage.
pub fn by_stage_number(tasks: Vec<Task>) -> Result<Vec<Task>, Fault> {
    let mut numbered = Vec::with_capacity(tasks.len());
    for task in tasks {
        let stage = values::name(task.need("stage")?)?;
        let number = stage.rsplit_once('/').map_or_else(StageNumber::default, |(_, tail)| StageNumber::read(tail));
        numbered.push((number, task));
    }
    numbered.sort_by_key(|(number, _)| *number);
    Ok(numbered.into_iter().map(|(_, task)| task).collect())
}

/// The number behind the slash of a stage, in parts of a thousand million: `10.5`, `-1`, `1e3`; what is no number is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StageNumber(i128);

impl StageNumber {
    const DIGITS: i32 = 9;

    /// Reads it.
    pub fn read(text: &str) -> StageNumber {
        StageNumber::parse(text.trim()).unwrap_or_default()
    }

    fn parse(text: &str) -> Option<StageNumber> {
        let (negative, body) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = match body.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (body, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let mut number: i128 = digits.parse().ok()?;
        let shift = exponent.saturating_add(StageNumber::DIGITS).saturating_sub(i32::try_from(fraction.len()).ok()?);
        for _ in 0..shift.unsigned_abs().min(40) {
            number = if shift > 0 { number.saturating_mul(10) } else { number / 10 };
        }
        Some(StageNumber(if negative { -number } else { number }))
    }
}

impl Workshop<'_> {
    fn plugins(&self) -> impl Iterator<Item = &Plugin> {
        self.cluster.plugins.iter().filter(|plugin| !plugin.tasks.is_empty())
    }

    /// Packages and scripts of plugins, for the nodes where any of their tasks runs.
    pub(super) fn plugin_repositories(&self, places: &dyn Places) -> Result<Vec<Sent>, Fault> {
        let mut sent = Vec::new();
        for plugin in self.plugins().filter(|plugin| plugin.has_repo) {
            let uids = self.plugin_uids(plugin, places)?;
            if !uids.is_empty() {
                sent.extend(self.repository(plugin, &uids)?);
            }
        }
        for plugin in self.plugins() {
            let uids = self.plugin_uids(plugin, places)?;
            if !uids.is_empty() {
                let (full, here) = (plugin.full_name(), scripts(plugin));
                let tree = templates::sync(uids, &format!("rsync://master:/plugins/{full}"), &Value::from(here));
                sent.push(signed(tree, plugin, None));
            }
        }
        Ok(sent)
    }

    fn repository(&self, plugin: &Plugin, uids: &Uids) -> Result<Vec<Sent>, Fault> {
        let full = plugin.full_name();
        let uri = format!("http://master/plugins/{full}");
        let repo = |value: Value| if let Value::Object(map) = value { map } else { Map::new() };
        let made = match self.cluster.operating_system.as_str() {
            "CentOS" => {
                let repo = repo(json!({"name": full, "uri": uri, "priority": CENTOS_PRIORITY}));
                vec![templates::centos_source(uids.clone(), &repo)?]
            }
            "Ubuntu" => {
                let repo =
                    repo(json!({"name": full, "uri": uri, "suite": "/", "section": "", "priority": UBUNTU_PRIORITY}));
                let source = templates::ubuntu_source(uids.clone(), &repo)?;
                vec![source, self.command(uids.clone(), "apt-get update", 1800)?]
            }
            other => return Err(Fault::Invalid(format!("Operating system {other} is invalid"))),
        };
        Ok(made.into_iter().map(|one| signed(one, plugin, None)).collect())
    }

    /// The nodes where any task of a plugin runs; never the machine that deploys.
    fn plugin_uids(&self, plugin: &Plugin, places: &dyn Places) -> Result<Uids, Fault> {
        let mut roles = Vec::new();
        for task in plugin.tasks.iter().chain(&plugin.deployment_tasks) {
            match task.get("role").or_else(|| task.get("groups")) {
                Some(Value::String(word)) if word == "*" => return places.of(Some(&Value::from("*"))),
                // Fuel 7.0 looks no further then, and so finds nobody.
                Some(Value::String(word)) if word == MASTER && self.version < Version::Eight => return Ok(Vec::new()),
                Some(Value::Array(list)) => roles.extend(list.iter().cloned()),
                _ => {}
            }
        }
        places.of(Some(&Value::Array(roles)))
    }

    /// The tasks of plugins for a stage: plugins by name, tasks by the number of their stage.
    pub(super) fn plugin_tasks(&self, stage: &str, places: &dyn Places) -> Result<Vec<Sent>, Fault> {
        let mut plugins: Vec<&Plugin> = self.plugins().collect();
        plugins.sort_by(|a, b| a.name.cmp(&b.name));
        let mut tasks = Vec::new();
        for plugin in plugins {
            for fields in &plugin.tasks {
                let belongs = Task::from(fields.clone());
                if values::name(belongs.need("stage")?)?.starts_with(stage) {
                    tasks.push(with_defaults(plugin, fields)?);
                }
            }
        }
        let mut sent = Vec::new();
        for task in by_stage_number(tasks)? {
            let uids = places.of(Some(task.need("role")?))?;
            if uids.is_empty() {
                continue;
            }
            let made = match task.need("type")?.as_str() {
                Some("shell") => self.shell(uids, task.id(), task.parameters()?)?,
                Some("puppet") => self.puppet(uids, &task)?,
                Some("reboot") => self.reboot(uids, &task)?,
                _ if self.version >= Version::Eight => continue,
                other => return Err(Fault::Unsupported(format!("a plugin's task of type {}", other.unwrap_or("?")))),
            };
            sent.push(Sent {
                diagnostic_name: task.get("diagnostic_name").cloned(),
                fail_on_error: task.get("fail_on_error").cloned(),
                ..made
            });
        }
        Ok(sent)
    }
}

fn scripts(plugin: &Plugin) -> String {
    format!("/etc/fuel/plugins/{}", plugin.full_name())
}

fn with_defaults(plugin: &Plugin, fields: &Map<String, Value>) -> Result<Task, Fault> {
    let mut fields = fields.clone();
    let parameters = fields.get_mut("parameters").ok_or_else(|| Fault::Missing("parameters".to_owned()))?;
    let parameters = parameters.as_object_mut().ok_or_else(|| Fault::Kind("parameters must be a map".to_owned()))?;
    parameters.entry("cwd").or_insert_with(|| Value::from(scripts(plugin)));
    fields.entry("diagnostic_name").or_insert_with(|| Value::from(plugin.full_name()));
    fields.entry("fail_on_error").or_insert(Value::Bool(true));
    Ok(Task::from(fields))
}

/// Says whose it is and where its scripts lie.
fn signed(mut sent: Sent, plugin: &Plugin, fail_on_error: Option<Value>) -> Sent {
    if let Some(parameters) = &mut sent.parameters {
        parameters.entry("cwd").or_insert_with(|| Value::from(scripts(plugin)));
    }
    sent.diagnostic_name = Some(Value::from(plugin.full_name()));
    sent.fail_on_error = Some(fail_on_error.unwrap_or(Value::Bool(true)));
    sent
}

impl Workshop<'_> {
    /// All hooks of plugins before or after a deployment, for a graph of tasks on nodes.
    pub(crate) fn hooks_of_plugins(&self, before: bool, places: &dyn Places) -> Result<Vec<Sent>, Fault> {
        if !before {
            return self.plugin_tasks("post_deployment", places);
        }
        let mut hooks = self.plugin_repositories(places)?;
        hooks.extend(self.plugin_tasks("pre_deployment", places)?);
        Ok(hooks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_sorted_by_the_number_behind_the_slash() {
        let mut read: Vec<&str> = vec!["100", "1e3", "10.5", "first", "-2", " 10.4 ", "-2.5"];
        read.sort_by_key(|text| StageNumber::read(text));
        assert_eq!(read, ["-2.5", "-2", "first", " 10.4 ", "10.5", "100", "1e3"]);
        assert_eq!(StageNumber::read("1e999"), StageNumber::read("1e998"));
    }
}
