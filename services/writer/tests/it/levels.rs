//! A release beside the one before it: what only the newer one can read is written once all who are there can.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use gatelog_record::draft::partition::{LevelRaiseAsked, LevelRaised};
use gatelog_record::event::PartitionEvent;
use gatelog_record::input::PartitionInput;
use gatelog_record::level::{GATELOG, Knows, LEVEL};
use gatelog_record::{Event, InputId, InputRecord};

use crate::common::*;

fn raise(level: u32, present: &[(&str, u32)]) -> InputRecord {
    let knows = |(name, level): &(&str, u32)| Knows {
        component: (*name).to_owned(),
        gatelog: format!("0.{level}.0"),
        level: *level,
    };
    let present: Vec<Knows> = present.iter().map(knows).collect();
    let id = InputId::new(format!("raise {level} {}", present.len()));
    let reason = "all have the new release".to_owned();
    InputRecord::new(id, "main", START, PartitionInput::LevelRaiseAsked(LevelRaiseAsked { level, present, reason }))
}

#[test]
fn a_level_is_raised_once_and_only_while_all_who_are_there_know_it() {
    let site = Site::new();
    let _writer = site.writer();
    let refused = |input: &InputRecord, why: &str| {
        let offset = site.say(input);
        eventually("a decision", || !site.decision(offset).is_empty());
        match &site.decision(offset)[0].event {
            Event::Partition(PartitionEvent::InputRefused(refused)) => {
                assert_eq!(refused.code, "level-not-known");
                assert!(refused.message.contains(why), "{}", refused.message);
            }
            other => panic!("{other:?}"),
        }
    };
    refused(&raise(LEVEL, &[("w1", LEVEL), ("w2", LEVEL - 1)]), "while w2 (gatelog 0.0.0, level 0) runs");
    refused(&raise(LEVEL, &[]), "who is there is not known");
    refused(&raise(LEVEL + 1, &[("w1", LEVEL + 1)]), "upgrade it first");
    let all = [("w1", LEVEL), ("w2", LEVEL + 1)];
    let offset = site.say(&raise(LEVEL, &all));
    eventually("the level rose", || site.names(offset) == ["level-raised"]);
    let Event::Partition(PartitionEvent::LevelRaised(LevelRaised { level, gatelog, present })) =
        site.decision(offset).remove(0).event
    else {
        panic!()
    };
    assert_eq!((level, gatelog.as_str(), present.len()), (LEVEL, GATELOG, 2));
    assert_eq!(site.fold(CAPACITY).partition.place().unwrap().level, LEVEL);
    let again = site.say(&raise(LEVEL, &all));
    eventually("nothing to do", || site.names(again) == ["input-taken"]);
}

/// The release of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    Before,
    This,
}

/// The program `generations`: an example of this package, which cargo builds with its tests. Only a debug build can stand
/// for the release before.
fn program(release: Release) -> Command {
    let here = std::env::current_exe().unwrap();
    let path = here.ancestors().nth(2).unwrap().join("examples/generations");
    assert!(path.exists(), "{} is not there: cargo build -p gatelog-writer --examples", path.display());
    let mut command = Command::new(path);
    if release == Release::Before {
        command.env("GENERATION", "before");
    }
    command
}

/// A process, and the lines it printed.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Process {
    fn start(release: Release, arguments: [&str; 2]) -> Process {
        let mut command = program(release);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (kept, output) = (Arc::clone(&lines), child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                kept.lock().unwrap().push(line);
            }
        });
        Process { input: child.stdin.take(), child, lines }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// What a writer answers: the events of the decision, without their numbers.
    fn ask(&mut self, line: &str) -> Vec<String> {
        let before = self.lines().len();
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        eventually(line, || self.lines()[before..].contains(&"done".to_owned()));
        let lines = self.lines();
        let events = lines[before..].iter().filter_map(|line| line.split_once(' ').map(|(_, event)| event.to_owned()));
        events.collect()
    }

    /// The last line, once the process has ended.
    fn end(&mut self) -> String {
        eventually("it ends", || self.child.try_wait().unwrap().is_some());
        eventually("its last word", || self.lines().iter().any(|line| line.starts_with("refused: ")));
        self.lines().pop().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_older_reader_runs_beside_a_newer_writer_until_the_level_is_raised_and_then_names_the_gatelog_that_can() {
    let dir = tempfile::tempdir().unwrap();
    let site = dir.path().join("log");
    let site = site.to_str().unwrap();
    let mut writer = Process::start(Release::This, ["write", site]);
    eventually("the writer started", || writer.lines().contains(&"done".to_owned()));
    let mut before = Process::start(Release::Before, ["read", site]);
    let now = Process::start(Release::This, ["read", site]);
    // How many events there are once both readers have read what the writer wrote: the same, and the same state.
    let both_read = |writer: &Process| {
        let count = writer.lines().iter().filter(|line| *line != "done").count();
        eventually("both read on", || before.lines().len() >= count && now.lines().len() >= count);
        assert_eq!(before.lines()[..count], now.lines()[..count]);
        count
    };

    assert_eq!(writer.ask("lease one"), ["capacity.lease-queued", "capacity.wait-changed"]);
    both_read(&writer);
    // What the older one cannot read is not written while the log's level is not there.
    let refused = "input-refused above-level: the decision's event sample-begun belongs to level 1, the log is at level 0: \
                   raise it first";
    assert_eq!(writer.ask("sample early"), [refused]);
    // Nor is the level raised while the older one is there.
    let refused = "input-refused level-not-known: the log's level cannot be raised to 1 while reader (gatelog 0.0.0, \
                   level 0) runs: upgrade or stop it, then ask again";
    assert_eq!(writer.ask("raise 1 writer=1 reader=0"), [refused]);
    assert_eq!(writer.ask("lease two")[0], "capacity.lease-queued");
    let read = both_read(&writer);

    assert_eq!(writer.ask("raise 1 writer=1"), ["level-raised"]);
    assert_eq!(writer.ask("sample one"), ["sample-begun", "sample-noted", "sample-ended"]);
    let told = format!(
        "history of capacity/0 cannot be read from offset {read}: event {} raises the log's level to 1, and this gatelog \
         ({GATELOG}) knows records up to level 0: read on with gatelog {GATELOG} or a later one",
        read + 1
    );
    assert_eq!(before.end(), format!("refused: {told}"));
    assert_eq!(before.lines().len(), read + 1, "it read what it could");
    eventually("the newer one reads on", || now.lines().len() == read + 4);
    assert!(now.lines()[read + 3].starts_with(&format!("{} sample-ended ", read + 4)));

    // Nor does the older one write where it cannot read; and nothing of the log is lost by its trying.
    drop(writer);
    let mut older_writer = Process::start(Release::Before, ["write", site]);
    assert_eq!(older_writer.end(), format!("refused: {told}"));
    let mut writer = Process::start(Release::This, ["write", site]);
    eventually("the newer one writes again", || writer.lines().contains(&"done".to_owned()));
    assert_eq!(writer.ask("sample two"), ["sample-begun", "sample-noted", "sample-ended"]);
}

/// A log of an older gatelog, with the digest of its state, folds to that with this one and with the one before it.
#[test]
fn an_old_log_folds_to_the_same_digest_with_this_release_and_with_the_one_before() {
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../projectors/store/tests/logs");
    let log = logs.join("capacity-0.log");
    let digests = std::fs::read_to_string(logs.join("capacity-0.digests")).unwrap();
    let last = digests.lines().last().unwrap();
    for release in [Release::Before, Release::This] {
        let mut process = Process::start(release, ["fold", log.to_str().unwrap()]);
        eventually("it folds", || process.child.try_wait().unwrap().is_some());
        eventually("it says so", || !process.lines().is_empty());
        assert_eq!(process.lines(), [last], "{release:?}");
    }
}
