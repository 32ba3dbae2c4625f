//! `job-output.json`: the results of all tasks, playbook by playbook, in Zuul's shape.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::jobdir::read_limited;
use crate::outcome::FailingTask;
use crate::playbooks::PlaybookInPlace;

/// What stands behind the last entry.
const TAIL: &str = "\n]\n";

/// What the callback plugin wrote about one playbook.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PlaybookJson {
    plays: serde_json::Value,
    stats: serde_json::Value,
    /// Where it failed.
    pub(crate) failing_task: Option<FailingTaskJson>,
    /// Hosts that could not be reached.
    pub(crate) unreachable: Vec<String>,
}

/// [`FailingTask`] as the plugin writes it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FailingTaskJson {
    play: String,
    task: String,
    host: String,
    message: String,
}

impl From<FailingTaskJson> for FailingTask {
    fn from(json: FailingTaskJson) -> FailingTask {
        let cut = |text: String| text.chars().take(500).collect();
        FailingTask { play: cut(json.play), task: cut(json.task), host: cut(json.host), message: cut(json.message) }
    }
}

impl PlaybookJson {
    /// Reads what the plugin wrote. `Ok(None)`: Ansible ended before it could.
    pub(crate) fn read(path: &Path, limit: u64) -> Result<Option<PlaybookJson>, String> {
        match read_limited(path, limit) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| error.to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The entry in `job-output.json`.
    fn entry(&self, playbook: &PlaybookInPlace) -> serde_json::Value {
        serde_json::json!({
            "phase": playbook.spec.phase.as_str(),
            "index": playbook.index.to_string(),
            "playbook": format!("{}/{}", playbook.spec.checkout.project.canonical_name(), playbook.spec.path),
            "branch": playbook.spec.checkout.name,
            "trusted": playbook.spec.trusted,
            "plays": self.plays,
            "stats": self.stats,
        })
    }
}

/// The file. It is a complete document after every playbook.
#[derive(Debug)]
pub(crate) struct JsonOutput {
    path: PathBuf,
    entries: u32,
}

impl JsonOutput {
    /// An empty list.
    pub(crate) fn create(path: PathBuf) -> std::io::Result<JsonOutput> {
        fs::write(&path, format!("[{TAIL}"))?;
        Ok(JsonOutput { path, entries: 0 })
    }

    /// Adds one playbook.
    pub(crate) fn add(&mut self, playbook: &PlaybookInPlace, json: &PlaybookJson) -> std::io::Result<()> {
        let mut file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        let end = file.seek(SeekFrom::End(0))?.saturating_sub(TAIL.len() as u64);
        file.seek(SeekFrom::Start(end))?;
        let before = if self.entries == 0 { "\n" } else { ",\n" };
        file.write_all(format!("{before}{}{TAIL}", json.entry(playbook)).as_bytes())?;
        self.entries += 1;
        Ok(())
    }

    /// Puts a copy where later playbooks of the job can read it.
    pub(crate) fn copy_to(&self, place: &Path) -> std::io::Result<()> {
        // First away with whatever the job put there: it might be a link.
        match fs::remove_file(place) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::copy(&self.path, place).map(drop)
    }
}
