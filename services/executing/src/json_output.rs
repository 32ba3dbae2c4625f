//! `job-output.json`: the results of all tasks, playbook by playbook, in Zuul's shape.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::jobdir::{clear, read_limited};
use crate::mask::Mask;
use crate::outcome::FailingTask;
use crate::playbooks::PlaybookInPlace;

/// Deeper than this no result of a task is nested.
pub(crate) const DEEPEST: usize = 100;
/// What stands behind the last entry.
pub(crate) const TAIL: &str = "\n]\n";

/// Plays, tasks and results of one playbook together; what comes after is left out.
const MOST_EVENTS: usize = 200_000;

/// What the callback plugin wrote about one playbook, as far as it came.
#[derive(Debug, Default)]
pub(crate) struct PlaybookJson {
    plays: Vec<PlayEntry>,
    /// Only where the playbook came to its end.
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
    /// Which failure of the playbook it is, from 1.
    number: u64,
}

impl FailingTaskJson {
    /// With the line of each failure on the console.
    pub(crate) fn at(self, lines: &BTreeMap<u64, u64>) -> FailingTask {
        let cut = |text: String| text.chars().take(500).collect();
        FailingTask {
            play: cut(self.play),
            task: cut(self.task),
            host: cut(self.host),
            message: cut(self.message),
            line: lines.get(&self.number).copied(),
        }
    }
}

/// One line of what the plugin writes.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Event {
    play: Option<Started>,
    task: Option<Started>,
    result: Option<TaskResult>,
    failing_task: Option<FailingTaskJson>,
    unreachable: Option<Vec<String>>,
    stats: Option<Box<RawValue>>,
    end: Option<String>,
}

/// A play or a task that began.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Started {
    name: String,
    id: String,
    start: String,
    role: Option<Box<RawValue>>,
}

/// The result of a task on one host. The value as it was written: millions of small values take far more memory than
/// text.
#[derive(Deserialize)]
struct TaskResult {
    task: String,
    host: String,
    end: String,
    value: Box<RawValue>,
}

#[derive(Debug, Serialize)]
struct PlayEntry {
    play: Head,
    tasks: Vec<TaskEntry>,
}

#[derive(Debug, Serialize)]
struct TaskEntry {
    task: Head,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<Box<RawValue>>,
    hosts: BTreeMap<String, Box<RawValue>>,
}

#[derive(Debug, Serialize)]
struct Head {
    name: String,
    id: String,
    duration: Duration,
}

#[derive(Debug, Serialize)]
struct Duration {
    start: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<String>,
}

impl From<Started> for Head {
    fn from(started: Started) -> Head {
        Head { name: started.name, id: started.id, duration: Duration { start: started.start, end: None } }
    }
}

/// How a playbook ended that did not come to its end.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Cut<'a> {
    /// Zuul's word for it.
    pub(crate) result: &'a str,
    /// One sentence about it.
    pub(crate) detail: Option<&'a str>,
}

impl PlaybookJson {
    /// Reads what the plugin wrote, without what `mask` hides. A last line that is not complete, as a killed playbook
    /// leaves it, is left out.
    pub(crate) fn read(path: &Path, limit: u64, mask: &Mask) -> Result<PlaybookJson, String> {
        let text = match read_limited(path, limit) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(PlaybookJson::default()),
            Err(error) => return Err(error.to_string()),
        };
        let mut document = PlaybookJson::default();
        for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let Some(line) = line.strip_suffix(b"\n") else { break };
            if number >= MOST_EVENTS {
                return Err(format!("they are more than {MOST_EVENTS}"));
            }
            if Shape::of(line).depth > DEEPEST {
                return Err(format!("they are nested more than {DEEPEST} deep"));
            }
            document.take(serde_json::from_slice(&mask.json(line)).map_err(|error| error.to_string())?);
        }
        Ok(document)
    }

    /// Whether the playbook came to its end, well or not.
    pub(crate) fn is_complete(&self) -> bool {
        self.stats.is_some()
    }

    /// Whether the playbook came to its end and no host had a task of it.
    pub(crate) fn ran_nowhere(&self) -> bool {
        self.stats.as_ref().is_some_and(|stats| stats.get().trim() == "{}")
    }

    fn take(&mut self, event: Event) {
        if let Some(started) = event.play {
            self.plays.push(PlayEntry { play: started.into(), tasks: Vec::new() });
        }
        if let (Some(mut started), Some(play)) = (event.task, self.plays.last_mut()) {
            let role = started.role.take();
            play.tasks.push(TaskEntry { task: started.into(), role, hosts: BTreeMap::new() });
        }
        if let (Some(result), Some(play)) = (event.result, self.plays.last_mut()) {
            play.play.duration.end = Some(result.end.clone());
            // With the strategy `free` another task may have begun since; it is never far.
            if let Some(task) = play.tasks.iter_mut().rev().take(100).find(|entry| entry.task.id == result.task) {
                task.task.duration.end = Some(result.end);
                task.hosts.insert(result.host, result.value);
            }
        }
        if let (Some(end), Some(play)) = (event.end, self.plays.last_mut()) {
            play.play.duration.end = Some(end);
        }
        self.failing_task = event.failing_task.or(self.failing_task.take());
        self.unreachable = event.unreachable.unwrap_or_else(|| std::mem::take(&mut self.unreachable));
        self.stats = event.stats.or(self.stats.take());
    }

    /// The entry in `job-output.json`. Zuul: its form, but for `ending`, which is there where there are no `stats`; Zuul
    /// has no entry then.
    fn entry(&self, playbook: &PlaybookInPlace, cut: Cut<'_>) -> serde_json::Result<String> {
        #[derive(Serialize)]
        struct Entry<'a> {
            phase: &'a str,
            index: String,
            playbook: String,
            branch: &'a str,
            trusted: bool,
            plays: &'a [PlayEntry],
            stats: Stats<'a>,
            #[serde(skip_serializing_if = "Option::is_none")]
            ending: Option<Cut<'a>>,
        }
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Stats<'a> {
            Known(&'a RawValue),
            Empty {},
        }
        serde_json::to_string(&Entry {
            phase: playbook.spec.phase.as_str(),
            index: playbook.index.to_string(),
            playbook: format!("{}/{}", playbook.spec.checkout.project.canonical_name(), playbook.spec.path),
            branch: &playbook.spec.checkout.name,
            trusted: playbook.spec.trusted,
            plays: &self.plays,
            stats: self.stats.as_deref().map_or(Stats::Empty {}, Stats::Known),
            ending: (!self.is_complete()).then_some(cut),
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
    pub(crate) fn add(&mut self, playbook: &PlaybookInPlace, json: &PlaybookJson, cut: Cut<'_>) -> std::io::Result<()> {
        let mut file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        let end = file.seek(SeekFrom::End(0))?.saturating_sub(TAIL.len() as u64);
        file.seek(SeekFrom::Start(end))?;
        let before = if self.entries == 0 { "\n" } else { ",\n" };
        for part in [before, &json.entry(playbook, cut)?, TAIL] {
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

    fn read(text: &str, limit: u64) -> Result<PlaybookJson, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("playbook.json");
        fs::write(&path, text).unwrap();
        PlaybookJson::read(&path, limit, &Mask::new(["hunter22".to_owned()]))
    }

    #[test]
    fn results_that_only_cost_memory_are_refused() {
        let deep = format!("{{\"play\": {{}}, \"x\": {}1{}}}\n", "[".repeat(5000), "]".repeat(5000));
        assert!(read(&deep, 1 << 20).unwrap_err().contains("nested more than"));
        assert!(read(&"{\"play\":{}}\n".repeat(MOST_EVENTS + 1), 1 << 30).unwrap_err().contains("more than 200000"));
        assert!(read("{\"play\": {}}\n", 10).unwrap_err().contains("larger than 10 bytes"));
    }

    /// What a playbook of two tasks wrote, of which the second one failed.
    const EVENTS: [&str; 6] = [
        r#"{"play": {"name": "all", "id": "p1", "start": "1Z"}}"#,
        r#"{"task": {"name": "one", "id": "t1", "start": "2Z", "role": {"name": "r"}}}"#,
        r#"{"result": {"task": "t1", "host": "n1", "end": "3Z", "value": {"rc":0}}}"#,
        r#"{"task": {"name": "two", "id": "t2", "start": "4Z"}}"#,
        r#"{"failing_task": {"play": "all", "task": "two", "host": "n1", "message": "no"}}"#,
        r#"{"stats": {"n1":{"failures":1}}, "end": "5Z", "unreachable": ["n2"]}"#,
    ];

    #[test]
    fn a_playbook_that_was_killed_has_an_entry_with_what_was_known_and_how_it_ended() {
        let spec = crate::test_data::spec();
        let playbook = crate::test_data::playbook(&spec);
        let cut = Cut { result: "RESULT_TIMED_OUT", detail: Some("it took too long") };
        let entry = |text: &str| {
            let known = read(text, 1 << 20).unwrap();
            let entry = known.entry(&playbook, cut).unwrap();
            (known, serde_json::from_str::<serde_json::Value>(&entry).unwrap())
        };
        let around = |plays: serde_json::Value, stats: serde_json::Value| {
            serde_json::json!({
                "phase": "run", "index": "0", "playbook": "git.example.org/org/app/run.yaml", "branch": "main",
                "trusted": false, "plays": plays, "stats": stats,
            })
        };
        let ending = serde_json::json!({"result": "RESULT_TIMED_OUT", "detail": "it took too long"});
        let tasks = serde_json::json!([
            {"task": {"name": "one", "id": "t1", "duration": {"start": "2Z", "end": "3Z"}}, "role": {"name": "r"},
             "hosts": {"n1": {"rc": 0}}},
            {"task": {"name": "two", "id": "t2", "duration": {"start": "4Z"}}, "hosts": {}},
        ]);
        let plays = |end: &str| {
            let head = serde_json::json!({"name": "all", "id": "p1", "duration": {"start": "1Z", "end": end}});
            serde_json::json!([{"play": head, "tasks": tasks}])
        };

        let (known, whole) = entry(&format!("{}\n", EVENTS.join("\n")));
        assert_eq!(whole, around(plays("5Z"), serde_json::json!({"n1": {"failures": 1}})));
        assert_eq!((known.is_complete(), known.unreachable.as_slice()), (true, &["n2".to_owned()][..]));
        assert_eq!(known.failing_task.map(|task| task.at(&BTreeMap::new())).unwrap().task, "two");

        // Killed while it wrote its last line.
        let text = EVENTS.join("\n");
        let (known, killed) = entry(&text[..text.len() - 30]);
        let mut expected = around(plays("3Z"), serde_json::json!({}));
        expected["ending"] = ending.clone();
        assert_eq!(killed, expected);
        assert!(!known.is_complete() && known.failing_task.is_some());

        // Ansible did not come so far as to write anything.
        let mut expected = around(serde_json::json!([]), serde_json::json!({}));
        expected["ending"] = ending;
        assert_eq!(entry("").1, expected);
    }
}
