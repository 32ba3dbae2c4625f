//! The console: a file that grows while a build runs, and any number of readers that follow it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gatelog_record::Timestamp;
use rustix::fs::OFlags;
use tokio::sync::watch;

use crate::mask::Mask;
use crate::spec::OutputPattern;

/// The most bytes one read returns.
pub const MAX_READ: usize = 1 << 20;

/// A line that begins so is not shown: the callback plugin says by it that the playbook can only fail.
const EARLY_FAILURE: &str = "gatelog: early failure: ";
/// A line of a command's output. Then how many bytes stand before its text, `+` and how many are missing at its end if
/// any are, `: `, and the line.
const OUTPUT: &str = "gatelog: output ";
/// A line that is not shown: the result of a failed task begins with the next, and which failure of the playbook it is.
const FAILURE: &str = "gatelog: failure ";
/// The most failures whose lines are remembered.
const MOST_FAILURES: usize = 10_000;
/// A line that is not shown: a host cannot be reached, so what fails from here on says nothing.
const UNREACHABLE: &str = "gatelog: unreachable";

/// How far a console has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    bytes: u64,
    ended: bool,
}

/// What was read from a console.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsoleChunk {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The offset to go on from.
    pub next: u64,
    /// Whether nothing will ever come after these bytes.
    pub ended: bool,
}

/// Follows one console. Clones are cheap and independent: the offset is the caller's.
#[derive(Clone, Debug)]
pub struct ConsoleReader {
    file: Arc<File>,
    progress: watch::Receiver<Progress>,
}

impl ConsoleReader {
    /// A console that is complete, from where it is kept.
    pub fn open(path: &Path) -> io::Result<ConsoleReader> {
        // No job can write there; should one ever, then it finds no way to other files.
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a plain file"));
        }
        let bytes = metadata.len();
        Ok(ConsoleReader { file: Arc::new(file), progress: watch::channel(Progress { bytes, ended: true }).1 })
    }

    /// What there is from this offset on, at most `max` (and [`MAX_READ`]) bytes; empty if nothing
    /// has come yet.
    pub fn read_from(&self, offset: u64, max: usize) -> io::Result<ConsoleChunk> {
        let progress = *self.progress.borrow();
        let there = usize::try_from(progress.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; there.min(max).min(MAX_READ)];
        // An offset far beyond the end is no error, but the system would say so.
        let read = if bytes.is_empty() { 0 } else { self.file.read_at(&mut bytes, offset)? };
        bytes.truncate(read);
        let next = offset.saturating_add(read as u64);
        Ok(ConsoleChunk { bytes, next, ended: progress.ended && next >= progress.bytes })
    }

    /// Like [`read_from`](Self::read_from), but waits up to `patience` for bytes or the end.
    pub async fn wait_from(&self, offset: u64, max: usize, patience: Duration) -> io::Result<ConsoleChunk> {
        let mut progress = self.progress.clone();
        let more = progress.wait_for(|progress| progress.bytes > offset || progress.ended);
        // Neither a timeout nor a writer that is gone is an error: the read says what there is.
        let _ = tokio::time::timeout(patience, more).await;
        let mut chunk = self.read_from(offset, max)?;
        // A writer that is gone without a word has ended too.
        chunk.ended |= chunk.bytes.is_empty() && self.progress.has_changed().is_err();
        Ok(chunk)
    }
}

/// The console grew over its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverLimit;

/// Writes one console.
#[derive(Debug)]
pub(crate) struct Console {
    state: Mutex<Writer>,
    progress: watch::Sender<Progress>,
    file: Arc<File>,
    mask: Arc<Mask>,
}

#[derive(Debug)]
struct Writer {
    /// Bytes that playbooks may still write.
    allowance: u64,
    /// Set when a write failed: a full disk must not stop the build, but it must be known.
    failed: Option<String>,
    /// How many lines there are.
    lines: u64,
    /// The job's own copy, as long as it can be written.
    copy: Option<File>,
}

impl Console {
    /// An empty console at `path`, for `limit` bytes of playbooks' output, without what `mask` hides.
    pub(crate) fn create(path: &Path, limit: u64, mask: Arc<Mask>) -> io::Result<Console> {
        let file = OpenOptions::new().read(true).append(true).create_new(true).open(path)?;
        Ok(Console {
            state: Mutex::new(Writer { allowance: limit, failed: None, lines: 0, copy: None }),
            progress: watch::channel(Progress::default()).0,
            file: Arc::new(file),
            mask,
        })
    }

    /// Writes a copy, here too, from now on: the job may read, change and remove it. Zuul: the file in the log
    /// directory, which roles upload while the build runs, is the console itself.
    ///
    /// # Errors
    /// There is something at `path`, or the console cannot be read.
    pub(crate) fn copy_to(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut copy = OpenOptions::new().append(true).create_new(true).mode(0o644).open(path)?;
        let (mut offset, mut piece) = (0, vec![0; 64 << 10]);
        loop {
            let read = self.file.read_at(&mut piece, offset)?;
            if read == 0 {
                break;
            }
            copy.write_all(piece.get(..read).unwrap_or_default())?;
            offset += read as u64;
        }
        state.copy = Some(copy);
        Ok(())
    }

    /// A reader from the start.
    pub(crate) fn reader(&self) -> ConsoleReader {
        ConsoleReader { file: self.file.clone(), progress: self.progress.subscribe() }
    }

    /// A line of the executor's own. Not counted.
    pub(crate) fn say(&self, text: &str) {
        let mut block = String::new();
        for line in text.lines() {
            block.push_str(&format!("{} | {line}\n", stamp(now())));
        }
        self.append(block.as_bytes());
    }

    /// Whole lines of a playbook's. Once they do not fit any more nothing further is taken.
    pub(crate) fn push(&self, lines: &[u8]) -> Result<(), OverLimit> {
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            match state.allowance.checked_sub(lines.len() as u64) {
                Some(left) => state.allowance = left,
                None => {
                    state.allowance = 0;
                    return Err(OverLimit);
                }
            }
        }
        self.append(lines);
        Ok(())
    }

    /// Lets playbooks write so many bytes more than now, at least.
    pub(crate) fn allow_at_least(&self, bytes: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.allowance = state.allowance.max(bytes);
    }

    /// How many lines there are.
    pub(crate) fn lines(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).lines
    }

    /// No more lines will come.
    pub(crate) fn end(&self) {
        self.progress.send_modify(|progress| progress.ended = true);
    }

    /// Why the console is not complete, if it is not.
    pub(crate) fn failure(&self) -> Option<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failed.clone()
    }

    fn append(&self, bytes: &[u8]) {
        let bytes = &*self.mask.bytes(bytes);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The copy is the job's: one that cannot be written harms nobody else.
        if state.copy.as_mut().is_some_and(|copy| copy.write_all(bytes).is_err()) {
            state.copy = None;
        }
        state.lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        match (&*self.file).write_all(bytes) {
            Ok(()) => self.progress.send_modify(|progress| progress.bytes += bytes.len() as u64),
            Err(error) => {
                state.failed.get_or_insert_with(|| format!("the console is not complete: {error}"));
                // What got onto the disk before the error is there for readers.
                if let Ok(metadata) = self.file.metadata() {
                    self.progress.send_modify(|progress| progress.bytes = metadata.len());
                }
            }
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.end();
    }
}

/// The present moment.
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// `2026-11-21 10:20:06.123456`, in UTC.
pub(crate) fn stamp(moment: Timestamp) -> String {
    moment.to_string().replace('T', " ").trim_end_matches('Z').to_owned()
}

/// Cuts a stream of bytes into lines of limited length, each with a time before it.
pub(crate) struct Lines {
    limit: usize,
    line: Vec<u8>,
    cut: usize,
    /// The time of what is being fed, once it was needed.
    stamp: String,
    /// The first complaint, or else the last line, that the callback did not write: what went wrong
    /// where Ansible could not say so itself.
    pub(crate) complaint: Option<String>,
    /// Why the playbook will fail, once that is certain.
    pub(crate) failing: Option<String>,
    /// What is looked for in the output of commands, until something was found.
    patterns: Vec<OutputPattern>,
    /// Failures whose results begin in what was fed last, each with the lines before it there.
    begun: Vec<(u64, u64)>,
    /// The lines of the console at which results of failed tasks begin, by the number of the failure, from 1.
    pub(crate) failures: BTreeMap<u64, u64>,
}

impl Lines {
    /// Lines of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Lines {
        let (line, stamp) = (Vec::new(), String::new());
        Lines {
            limit: limit.max(64),
            line,
            cut: 0,
            stamp,
            complaint: None,
            failing: None,
            patterns: Vec::new(),
            begun: Vec::new(),
            failures: BTreeMap::new(),
        }
    }

    /// A line of a command's output that one of these patterns matches means that the playbook will fail.
    pub(crate) fn watching(self, patterns: Vec<OutputPattern>) -> Lines {
        Lines { patterns, ..self }
    }

    /// Takes bytes as they come; appends the lines that are complete to `out`.
    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        // What comes together has come at one moment; to ask for each line takes most of the time.
        self.stamp.clear();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, complete) = match piece.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (piece, false),
            };
            let room = self.limit.saturating_sub(self.line.len()).min(text.len());
            let (kept, cut) = text.split_at(room);
            self.line.extend_from_slice(kept);
            self.cut += cut.len();
            if complete {
                self.finish_line(out);
            }
        }
    }

    /// What was fed since the last time comes behind so many lines of the console.
    pub(crate) fn count(&mut self, before: u64) {
        self.failures.extend(self.begun.drain(..).map(|(number, lines)| (number, before + lines + 1)));
    }

    /// The stream is over: what stands without an end of line is a line.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        self.stamp.clear();
        if !self.line.is_empty() {
            self.finish_line(out);
        }
    }

    fn finish_line(&mut self, out: &mut Vec<u8>) {
        let line = std::mem::take(&mut self.line);
        let cut = std::mem::take(&mut self.cut);
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches('\r');
        if let Some(why) = text.strip_prefix(EARLY_FAILURE) {
            self.failing.get_or_insert_with(|| why.to_owned());
        } else if text == UNREACHABLE {
            self.patterns.clear();
        } else if let Some(number) = text.strip_prefix(FAILURE).and_then(|number| number.parse().ok()) {
            if self.failures.len() + self.begun.len() < MOST_FAILURES {
                self.begun.push((number, out.iter().filter(|byte| **byte == b'\n').count() as u64));
            }
        } else if let Some((before, missing, text)) = text.strip_prefix(OUTPUT).and_then(output) {
            show(text, cut.saturating_add(missing), out);
            self.look(text, before, out);
        } else {
            self.stamped(text, out);
            show(text, cut, out);
        }
        // The next line takes its place in the same memory.
        self.line = line;
        self.line.clear();
    }

    /// Puts a time before a line that has none: the callback did not write it.
    fn stamped(&mut self, text: &str, out: &mut Vec<u8>) {
        if has_stamp(text) {
            return;
        }
        if self.stamp.is_empty() {
            self.stamp = stamp(now());
        }
        out.extend_from_slice(self.stamp.as_bytes());
        out.extend_from_slice(b" | ");
        let is_complaint = |text: &str| ["ERROR", "[ERROR", "bwrap: "].iter().any(|word| text.starts_with(word));
        if !text.trim().is_empty() && !self.complaint.as_deref().is_some_and(is_complaint) {
            self.complaint = Some(text.to_owned());
        }
    }

    /// Holds a line of output against the patterns.
    fn look(&mut self, line: &str, before: usize, out: &mut Vec<u8>) {
        let (Some(before), Some(text)) = (line.get(..before), line.get(before..)) else { return };
        let Some(pattern) = self.patterns.iter().find(|pattern| pattern.matches(text)) else { return };
        let host = before.split_once(" | ").map_or(before, |(_, host)| host).trim_end_matches(" | ");
        let why = format!("a line of {host} matches failure-output \"{}\"", pattern.text());
        show(&format!("{before}Early failure: {why}"), 0, out);
        self.failing.get_or_insert(why);
        self.patterns.clear();
    }
}

/// The parts of a line of output, without the word that marks it.
fn output(marked: &str) -> Option<(usize, usize, &str)> {
    let (numbers, text) = marked.split_once(": ")?;
    let (before, missing) = numbers.split_once('+').unwrap_or((numbers, "0"));
    Some((before.parse().ok()?, missing.parse().ok()?, text))
}

fn show(text: &str, cut: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(text.as_bytes());
    if cut > 0 {
        out.extend_from_slice(format!(" [{cut} bytes more of this line were cut]").as_bytes());
    }
    out.push(b'\n');
}

/// Whether a line begins as `2026-11-21 10:20:06.123456 |` does.
fn has_stamp(line: &str) -> bool {
    const SHAPE: &[u8] = b"0000-00-00 00:00:00.000000 |";
    line.len() >= SHAPE.len()
        && line
            .bytes()
            .zip(SHAPE)
            .all(|(byte, shape)| if *shape == b'0' { byte.is_ascii_digit() } else { byte == *shape })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_and_lines_without_a_time_get_one() {
        let mut lines = Lines::new(64);
        let mut out = Vec::new();
        lines.feed(b"2026-11-21 10:20:06.123456 | localhost | ok\npl", &mut out);
        lines.feed(b"ain\n", &mut out);
        lines.feed(&[b'x'; 100], &mut out);
        lines.finish(&mut out);
        let text = String::from_utf8(out).unwrap();
        let all: Vec<&str> = text.lines().collect();
        assert_eq!(all[0], "2026-11-21 10:20:06.123456 | localhost | ok");
        assert!(has_stamp(all[1]) && all[1].ends_with(" | plain"), "{}", all[1]);
        assert!(
            all[2].ends_with(&format!(" | {} [36 bytes more of this line were cut]", "x".repeat(64))),
            "{}",
            all[2]
        );
        assert_eq!(all.len(), 3);
        assert_eq!(lines.complaint.as_deref().map(str::len), Some(64));
    }

    #[test]
    fn an_early_failure_is_told_once_and_not_shown() {
        let mut lines = Lines::new(4096);
        let mut out = Vec::new();
        lines.feed(b"before\ngatelog: early failure: task \"compile\" failed\nafter\n", &mut out);
        assert_eq!(lines.failing.as_deref(), Some("task \"compile\" failed"));
        lines.feed(b"gatelog: early failure: another\n", &mut out);
        assert_eq!(lines.failing.as_deref(), Some("task \"compile\" failed"));
        let text = String::from_utf8(out).unwrap();
        let shown: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once(" | ")?.1)).collect();
        assert_eq!(shown, ["before", "after"]);
    }

    #[test]
    fn the_line_at_which_a_failed_task_says_why_is_known_and_its_mark_not_shown() {
        let (mut lines, mut out) = (Lines::new(4096), Vec::new());
        lines.feed(b"one\ngatelog: failure 1\nwhy\ngatelog: fai", &mut out);
        lines.count(10);
        out.clear();
        lines.feed(b"lure 2\nand why\ngatelog: failure x\n", &mut out);
        lines.count(12);
        assert_eq!(lines.failures, [(1, 12), (2, 13)].into());
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("| and why\n") && !text.contains("failure 2"), "{text}");
    }

    #[test]
    fn a_line_of_output_that_a_pattern_matches_is_told_at_once_and_only_the_first() {
        let patterns = || {
            let starts = |word: &'static str| OutputPattern::new(word, move |line: &str| line.starts_with(word));
            vec![starts("SEVERE"), starts("FATAL")]
        };
        let stamp = "2026-11-21 10:20:06.123456 | ";
        let line = |host: &str, text: &str| {
            format!("gatelog: output {}: {stamp}{host} | {text}\n", stamp.len() + host.len() + 3).into_bytes()
        };
        let mut lines = Lines::new(4096).watching(patterns());
        let mut out = Vec::new();
        // Only what commands write counts, and only from its beginning.
        lines.feed(format!("{stamp}n1 | SEVERE: a message\n").as_bytes(), &mut out);
        lines.feed(&line("n1", "no SEVERE loss"), &mut out);
        assert_eq!(lines.failing, None);
        lines.feed(&line("n1 -> n2", "FATAL: lost | all\r"), &mut out);
        lines.feed(&line("n1", "SEVERE too"), &mut out);
        assert_eq!(lines.failing.as_deref(), Some("a line of n1 -> n2 matches failure-output \"FATAL\""));
        let expected = [
            "n1 | SEVERE: a message",
            "n1 | no SEVERE loss",
            "n1 -> n2 | FATAL: lost | all",
            "n1 -> n2 | Early failure: a line of n1 -> n2 matches failure-output \"FATAL\"",
            "n1 | SEVERE too",
        ];
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, expected.map(|line| format!("{stamp}{line}\n")).concat());

        let mut lines = Lines::new(4096).watching(patterns());
        lines.feed(b"gatelog: unreachable\n", &mut Vec::new());
        lines.feed(&line("n1", "SEVERE"), &mut Vec::new());
        assert_eq!(lines.failing, None, "what fails with an unreachable host says nothing");
    }

    #[test]
    fn what_the_plugin_left_out_of_a_line_is_counted_with_what_is_cut_here() {
        let stamp = "2026-11-21 10:20:06.123456 | n1 | ";
        let mut out = Vec::new();
        let mut lines = Lines::new(100);
        let sent = format!("gatelog: output {}+1000: {stamp}{}\nnext\n", stamp.len(), "x".repeat(200));
        lines.feed(sent.as_bytes(), &mut out);
        let text = String::from_utf8(out).unwrap();
        let (first, rest) = text.split_once('\n').unwrap();
        let (shown, told) = first.split_once(" [").unwrap();
        let kept = shown.strip_prefix(stamp).unwrap();
        assert!(kept.bytes().all(|byte| byte == b'x') && !kept.is_empty(), "{first}");
        assert_eq!(told, format!("{} bytes more of this line were cut]", 1200 - kept.len()));
        assert!(rest.ends_with(" | next\n"), "{rest}");
    }

    #[test]
    fn a_line_without_end_takes_no_memory_and_what_is_left_out_is_counted() {
        let mut lines = Lines::new(4096);
        let mut out = Vec::new();
        let chunk = [b'z'; 64 << 10];
        for _ in 0..1600 {
            lines.feed(&chunk, &mut out);
            assert!(lines.line.capacity() <= 8192 && out.is_empty());
        }
        lines.feed(b"\nnext\n", &mut out);
        let text = String::from_utf8(out).unwrap();
        let left_out = 1600 * chunk.len() - 4096;
        assert!(text.contains(&format!("zz [{left_out} bytes more of this line were cut]\n")));
        assert!(text.ends_with(" | next\n") && text.len() < 4300);
    }

    #[test]
    fn what_is_no_utf8_becomes_it_and_control_characters_stay() {
        let mut out = Vec::new();
        Lines::new(4096).feed(b"a\xff\xfe\x00\x1b[31mred\x07\r\n", &mut out);
        assert!(String::from_utf8(out).unwrap().ends_with(" | a\u{fffd}\u{fffd}\0\u{1b}[31mred\u{7}\n"));
    }

    #[test]
    fn a_console_of_a_gigabyte_is_read_where_it_is_asked_and_a_link_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job-output.txt");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 30).unwrap();
        file.write_all_at(b"the end\n", (1 << 30) - 8).unwrap();
        let reader = ConsoleReader::open(&path).unwrap();
        let chunk = reader.read_from((1 << 30) - 8, usize::MAX).unwrap();
        assert_eq!((chunk.bytes.as_slice(), chunk.next, chunk.ended), (&b"the end\n"[..], 1 << 30, true));
        let chunk = reader.read_from(1 << 29, usize::MAX).unwrap();
        assert_eq!((chunk.bytes.len(), chunk.bytes.capacity(), chunk.ended), (MAX_READ, MAX_READ, false));
        let beyond = reader.read_from(u64::MAX, usize::MAX).unwrap();
        assert_eq!((beyond.bytes.len(), beyond.ended), (0, true));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(ConsoleReader::open(&link).is_err());
        assert!(ConsoleReader::open(folder.path()).is_err_and(|error| error.to_string().contains("plain file")));
    }

    fn hunter() -> Arc<Mask> {
        Arc::new(Mask::new(["hunter22".to_owned()]))
    }

    #[test]
    fn a_secret_is_on_no_line_whoever_writes_it() {
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("console"), folder.path().join("job-output.txt"));
        let console = Console::create(&path, 4096, hunter()).unwrap();
        console.say("cannot log in with hunter22");
        console.copy_to(&copy).unwrap();
        assert_eq!(console.push(b"n1 | hunter22\nn1 | hunter2\n"), Ok(()));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.ends_with(" | cannot log in with [masked]\nn1 | [masked]\nn1 | hunter2\n"), "{text}");
        assert_eq!(std::fs::read_to_string(&copy).unwrap(), text);
        assert_eq!(console.reader().read_from(0, 1 << 20).unwrap().bytes, text.as_bytes());
    }

    #[test]
    fn the_copy_of_the_job_has_every_line_and_what_becomes_of_it_harms_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("console"), folder.path().join("job-output.txt"));
        let console = Console::create(&path, 4096, hunter()).unwrap();
        assert_eq!(console.push(b"before\n"), Ok(()));
        console.copy_to(&copy).unwrap();
        assert_eq!(console.push(b"after\n"), Ok(()));
        assert_eq!(std::fs::read(&copy).unwrap(), b"before\nafter\n");
        // The job empties it, and puts a link in its place.
        std::fs::write(&copy, b"").unwrap();
        assert_eq!(console.push(b"later\n"), Ok(()));
        assert_eq!(std::fs::read(&copy).unwrap(), b"later\n");
        std::fs::remove_file(&copy).unwrap();
        std::os::unix::fs::symlink(folder.path().join("victim"), &copy).unwrap();
        assert_eq!(console.push(b"last\n"), Ok(()));
        assert!(!folder.path().join("victim").exists() && console.failure().is_none());
        assert_eq!(std::fs::read(&path).unwrap(), b"before\nafter\nlater\nlast\n");
        assert!(console.copy_to(&copy).is_err(), "never through a link");
    }

    #[tokio::test]
    async fn two_readers_follow_from_line_0_while_it_is_written_and_both_see_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job-output.txt");
        let console = Console::create(&path, 40, hunter()).unwrap();
        let follow = |reader: ConsoleReader, step: usize| async move {
            let (mut seen, mut offset) = (Vec::new(), 0);
            loop {
                let chunk = reader.wait_from(offset, step, Duration::from_secs(20)).await.unwrap();
                seen.extend_from_slice(&chunk.bytes);
                offset = chunk.next;
                if chunk.ended {
                    return seen;
                }
            }
        };
        let one = tokio::spawn(follow(console.reader(), 7));
        let two = tokio::spawn(follow(console.reader(), 4096));
        assert_eq!(console.push(b"first\n"), Ok(()));
        tokio::task::yield_now().await;
        console.say("own line");
        assert_eq!(console.push(&[b'y'; 41]), Err(OverLimit));
        assert_eq!(console.push(b"second\n"), Err(OverLimit), "once over, nothing more is taken");
        console.allow_at_least(10);
        assert_eq!(console.push(b"third\n"), Ok(()));
        console.end();
        let (one, two) = (one.await.unwrap(), two.await.unwrap());
        assert_eq!(one, std::fs::read(&path).unwrap());
        assert_eq!(one, two);
        let late = ConsoleReader::open(&path).unwrap().read_from(0, 4096).unwrap();
        assert_eq!((late.bytes, late.ended), (one, true));
    }
}
