//! A real process, really killed.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use super::*;
use gatelog_event_log::conformance::input;
use gatelog_event_log::history;

const CHILD: &str = "GATELOG_TEST_LOG_CHILD";

/// Not a test of its own: what the child processes below run. Appends for ever and says on its
/// output what was acknowledged.
#[test]
fn child() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let log = Arc::new(EmbeddedLog::open(&dir, tiny()).unwrap());
    let (mut scribe, mut writer) = claim(&*log);
    let start = log.end(INPUTS).unwrap().0;
    for producer in 0..3 {
        let log = Arc::clone(&log);
        std::thread::spawn(move || {
            for round in 0.. {
                let text = format!("{start}.{producer}.{round}");
                match arrived(log.append_inputs(INPUTS, vec![input(&text), input(&format!("{text}+"))])) {
                    Ok(offsets) => println!("input {} {text}", offsets[0].0),
                    Err(error) => println!("refused {error}"),
                }
            }
        });
    }
    loop {
        let records = scribe.several(2);
        match arrived(writer.append(records)) {
            Ok(_) => println!("event {}", scribe.tail.sequence),
            Err(error) => {
                println!("refused {error}");
                std::process::exit(3);
            }
        }
    }
}

/// Starts one of the tests of this file as a process of its own, after this piece of shell.
fn run_child(dir: &Path, before: &str, test: &str) -> std::process::Child {
    Command::new("sh")
        .args(["-c", &format!("{before} exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("tests::kill::{test}"), "--nocapture", "--test-threads=1"])
        .env(CHILD, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn what_a_killed_process_acknowledged_is_there() {
    let dir = TempDir::new().unwrap();
    let (mut inputs, mut newest) = (Vec::new(), 0);
    for life in 1..=5_usize {
        let mut child = run_child(dir.path(), "", "child");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut heard = 0;
        let mut hear = |line: String, inputs: &mut Vec<(usize, String)>| {
            // The test harness of the child prints its own words before the first of ours.
            let words: Vec<&str> = line.split(' ').skip_while(|word| !["input", "event"].contains(word)).collect();
            match words[..] {
                ["input", offset, text] if !text.is_empty() => {
                    heard += 1;
                    inputs.push((offset.parse().unwrap(), text.to_owned()));
                }
                ["event", sequence] => newest = newest.max(sequence.parse().unwrap()),
                _ => {}
            }
            heard
        };
        for line in &mut lines {
            if hear(line.unwrap(), &mut inputs) >= 20 * life {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had said before it died counts as well; the last line may be cut short.
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        let whole = rest.len().saturating_sub(1);
        rest.into_iter().take(whole).for_each(|line| {
            hear(line, &mut inputs);
        });

        let log = open(&dir, tiny());
        let found = contents(&log, INPUTS);
        for (offset, text) in &inputs {
            assert_eq!(found[*offset], input(text), "life {life}");
            assert_eq!(found[offset + 1], input(&format!("{text}+")));
        }
        let report = history::verify(&log, GATE);
        assert_eq!((report.error, report.terms), (None, life as u64));
        assert!(report.tail.sequence >= newest);
        log.verify().unwrap();
    }
    assert!(inputs.len() >= 20 * (1 + 2 + 3 + 4 + 5));
}

#[test]
fn a_second_process_is_told_who_holds_the_log() {
    let dir = TempDir::new().unwrap();
    let mut child = run_child(dir.path(), "", "child");
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("event ") {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0);
    }
    let error = EmbeddedLog::open(dir.path(), tiny()).err().unwrap();
    assert!(
        matches!(&error, LogError::InUse { holder, .. } if holder.starts_with(&format!("{},", child.id()))),
        "{error}"
    );
    // Reading beside it is allowed.
    let beside = EmbeddedLog::open_reader(dir.path(), Default::default()).unwrap();
    assert!(history::verify(&beside, GATE).tail.sequence > 0);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(EmbeddedLog::open(dir.path(), tiny()).is_ok(), "the lock dies with its holder");
}

/// The file system's own refusal, in a process that may write no file beyond 64 blocks (of 512 or
/// 1024 bytes): the log stops, and what was acknowledged is there.
#[test]
fn a_file_that_may_not_grow_stops_the_log() {
    let dir = TempDir::new().unwrap();
    // Segments do not roll before they hit the limit.
    drop(open(&dir, usual()));
    let mut child = run_child(dir.path(), "trap '' XFSZ; ulimit -f 64;", "limited_child");
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    let acknowledged = said.lines().filter(|line| line.ends_with("acknowledged")).count();
    assert!(acknowledged > 10, "{said}");
    assert!(said.contains("the log stopped after a failed write (File too large"), "{said}");
    let log = open(&dir, usual());
    assert_eq!(contents(&log, INPUTS).len(), acknowledged);
    assert_eq!(log.stats().cut_off, 0, "what was written in part had been taken back");
    put(&log, b"goes on");
}

/// What the child above runs.
#[test]
fn limited_child() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let log = EmbeddedLog::open(&dir, usual()).unwrap();
    loop {
        match arrived(log.append_inputs(INPUTS, vec![vec![1; 1_000]])) {
            Ok(_) => println!("\nacknowledged"),
            Err(error) => {
                println!("\n{error}");
                return;
            }
        }
    }
}
