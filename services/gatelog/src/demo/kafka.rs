//! The same site on Apache Kafka, in two processes: this one with gate, capacity, forge and API, and a second one that
//! merges and runs builds. Each has a directory of its own; both see blobs and keys.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::config::{FILE, SiteConfig};
use crate::logs;
use crate::roles::Role;
use crate::server::SERVER_FILE;

/// The roles of this process.
pub const HERE: &[Role] = &[Role::Connections, Role::Scheduler, Role::Launcher, Role::Web];
/// The roles of the second one.
pub const THERE: &[Role] = &[Role::Merger, Role::Executor];
/// How long the second process may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// The directories of the two processes, below that of the demo.
#[derive(Clone, Debug)]
pub struct Directories {
    /// Of the process with gate, capacity, forge and API.
    pub scheduler: PathBuf,
    /// Of the one that merges and runs builds.
    pub executor: PathBuf,
}

impl Directories {
    /// Makes them, with a configuration each.
    pub fn make(root: &Path, brokers: &str, port: u16) -> anyhow::Result<Directories> {
        let all = Directories { scheduler: root.join("scheduler"), executor: root.join("executor") };
        let name = root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let fine = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
        let prefix: String = name.chars().map(fine).take(60).chain(['.']).collect();
        for (dir, name) in [(&all.scheduler, "scheduler"), (&all.executor, "executor")] {
            std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
            let toml = include_str!("../../demo/gatelog-kafka.toml")
                .replace("@NAME@", name)
                .replace("@PORT@", &port.to_string())
                .replace("@BROKERS@", &toml_text(brokers))
                .replace("@PREFIX@", &prefix);
            std::fs::write(dir.join(FILE), toml)?;
        }
        std::fs::write(all.scheduler.join("tenants.yaml"), include_str!("../../demo/tenants.yaml"))?;
        Ok(all)
    }
}

/// A text as it stands between the quotes of a TOML string.
fn toml_text(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .flat_map(|c| matches!(c, '"' | '\\').then_some('\\').into_iter().chain([c]))
        .collect()
}

/// The log's topics, which go with the demo unless it is kept.
pub struct Topics {
    config: gatelog_log_kafka::KafkaConfig,
    names: Vec<String>,
    keep: bool,
}

impl Topics {
    /// Makes them as the configuration of a site says; gives how many there were to make.
    pub fn make(site: &Path, keep: bool) -> anyhow::Result<(Topics, usize)> {
        let section = SiteConfig::read(site)?.log.kafka.context("the demo's configuration names no brokers")?;
        let config = logs::kafka(&section, Vec::new());
        let made = gatelog_log_kafka::init(config.clone()).map_err(|error| logs::explained(&config, error))?;
        anyhow::ensure!(
            keep || made.found.is_empty(),
            "there are topics of an earlier demo: {}",
            made.found.join(", ")
        );
        let count = made.created.len();
        Ok((Topics { config, names: made.created, keep }, count))
    }
}

impl Drop for Topics {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if let Err(error) = gatelog_log_kafka::remove(self.config.clone(), &self.names) {
            tracing::warn!(%error, topics = self.names.join(", "), "the demo's topics are left behind");
        }
    }
}

/// The second process. It is asked to stop when this goes.
pub struct Second {
    child: Child,
    dir: PathBuf,
}

impl Second {
    /// Starts it and waits until it serves.
    pub fn start(dir: &Path) -> anyhow::Result<Second> {
        let roles: Vec<&str> = THERE.iter().map(|role| role.name()).collect();
        let said = File::create(dir.join("serve.log"))?;
        let program = std::env::current_exe().context("finding gatelog itself")?;
        let child = Command::new(program)
            .args(["serve", "--role", &roles.join(","), "--dir"])
            .arg(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .context("starting the second process")?;
        let mut second = Second { child, dir: dir.to_path_buf() };
        let began = Instant::now();
        while !dir.join(SERVER_FILE).exists() {
            if let Some(status) = second.child.try_wait()? {
                anyhow::bail!("the second process ended with {status}: {}", second.last_words());
            }
            anyhow::ensure!(began.elapsed() < PATIENCE, "the second process does not start: {}", second.last_words());
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(second)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Why it is not there any more, if so.
    pub fn gone(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(format!("the second process ended with {status}: {}", self.last_words()))
    }

    fn last_words(&self) -> String {
        let said = std::fs::read_to_string(self.dir.join("serve.log")).unwrap_or_default();
        let lines: Vec<String> = said.lines().rev().take(3).map(crate::show::clean).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        // Asked first: its builds end with it, and it says goodbye.
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let began = Instant::now();
        while asked.is_ok() && began.elapsed() < PATIENCE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_configurations_are_right_whatever_the_brokers_are_called() {
        let root = tempfile::tempdir().unwrap();
        let all = Directories::make(&root.path().join("a b\"c"), "one:1,\"two\\:2", 0).unwrap();
        for (dir, name) in [(&all.scheduler, "scheduler"), (&all.executor, "executor")] {
            let config = SiteConfig::read(dir).unwrap();
            assert_eq!(config.name.as_deref(), Some(name));
            let kafka = config.log.kafka.unwrap();
            assert_eq!((kafka.brokers.as_str(), kafka.prefix.as_str()), ("one:1,\"two\\:2", "a-b-c."));
            assert_eq!(dir.join(&config.shared.unwrap().dir), dir.join("../common"));
        }
    }
}
