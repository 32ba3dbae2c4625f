//! `job-output.json`: the results of all tasks, playbook by playbook, in Zuul's shape.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::jobdir::{clear, read_limited};
use crate::outcome::FailingTask;
use crate::playbooks::PlaybookInPlace;

/// Deeper than this no result of a task is nested.
pub(crate) const DEEPEST: usize = 100;
/// What stands behind the last entry.
const TAIL: &str = "\n]\n";

/// What the callback plugin wrote about one playbook.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PlaybookJson {
    /// As it was written: millions of small values take far more memory than text.
    plays: Option<Box<RawValue>>,
    stats: Option<Box<RawValue>>,
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
            Ok(text) => match Shape::of(&text).depth > DEEPEST {
                true => Err(format!("they are nested more than {DEEPEST} deep")),
                false => serde_json::from_slice(&text).map(Some).map_err(|error| error.to_string()),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The entry in `job-output.json`.
    fn entry(&self, playbook: &PlaybookInPlace) -> serde_json::Result<String> {
        #[derive(Serialize)]
        struct Entry<'a> {
            phase: &'a str,
            index: String,
            playbook: String,
            branch: &'a str,
            trusted: bool,
            plays: &'a Option<Box<RawValue>>,
            stats: &'a Option<Box<RawValue>>,
        }
        serde_json::to_string(&Entry {
            phase: playbook.spec.phase.as_str(),
            index: playbook.index.to_string(),
            playbook: format!("{}/{}", playbook.spec.checkout.project.canonical_name(), playbook.spec.path),
            branch: &playbook.spec.checkout.name,
            trusted: playbook.spec.trusted,
            plays: &self.plays,
            stats: &self.stats,
        })
    }
}

/// What a JSON text will become, known before it is parsed. Of no use for a text that is no JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Lists and maps within each other.
    pub(crate) depth: usize,
    /// Values, at most.
    pub(crate) values: usize,
}

impl Shape {
    pub(crate) fn of(text: &[u8]) -> Shape {
        let (mut shape, mut open, mut quoted, mut escaped) = (Shape { depth: 0, values: 1 }, 0_usize, false, false);
        for byte in text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                _ if quoted => {}
                b'[' | b'{' => {
                    open += 1;
                    shape.values += 1;
                    shape.depth = shape.depth.max(open);
                }
                b']' | b'}' => open = open.saturating_sub(1),
                b',' => shape.values += 1,
                _ => {}
            }
        }
        shape
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
        for part in [before, &json.entry(playbook)?, TAIL] {
            file.write_all(part.as_bytes())?;
        }
        self.entries += 1;
        Ok(())
    }

    /// Puts a copy where later playbooks of the job can read it.
    pub(crate) fn copy_to(&self, place: &Path) -> std::io::Result<()> {
        // First away with whatever the job put there: it might be a link.
        clear(place)?;
        let mut copy = OpenOptions::new().write(true).create_new(true).mode(0o600).open(place)?;
        std::io::copy(&mut fs::File::open(&self.path)?, &mut copy).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_of_a_text_is_known_before_it_is_parsed() {
        let shape = |text: &str| {
            let Shape { depth, values } = Shape::of(text.as_bytes());
            (depth, values)
        };
        assert_eq!(shape("1"), (0, 1));
        assert_eq!(shape(r#"{"a": [1, 2, {"b": "[[[,,,\"[,"}]}"#), (3, 6));
        assert_eq!(shape(&"[".repeat(100_000)), (100_000, 100_001));
    }

    #[test]
    fn results_that_only_cost_memory_are_refused_or_kept_as_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("playbook.json");
        fs::write(&path, format!("{{\"plays\": {}1{}}}", "[".repeat(5000), "]".repeat(5000))).unwrap();
        assert!(PlaybookJson::read(&path, 1 << 20).unwrap_err().contains("nested more than"));
        fs::write(&path, r#"{"plays": [0,0,0], "unreachable": ["n1"]}"#).unwrap();
        let read = PlaybookJson::read(&path, 1 << 20).unwrap().unwrap();
        assert_eq!(read.plays.unwrap().get(), "[0,0,0]");
        assert_eq!(read.unreachable, ["n1"]);
        assert!(PlaybookJson::read(&path, 10).unwrap_err().contains("larger than 10 bytes"));
    }
}
