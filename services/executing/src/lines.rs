//! What a playbook says, as lines of its console.
//!
//! It says it in two ways. gatelog's callback has a [channel](crate::channel) of its own, on which each message says of
//! which [`Kind`] it is; a job's commands cannot write there. Whatever else is written, to the standard output and error
//! of the playbook's processes, is plain text: it gets the executor's time, and no word in it means anything. No line of
//! a playbook's looks like those with which the executor tells that a playbook begins and ends.

use std::collections::BTreeMap;

use crate::console::{now, stamp};
use crate::spec::{OutputPattern, Phase};

/// Why the playbook can only fail.
const EARLY_FAILURE: &str = "early failure: ";
/// The result of a failed task begins with the next line, and which failure of the playbook it is.
const FAILURE: &str = "failure ";
/// A host cannot be reached, so what fails from here on says nothing.
const UNREACHABLE: &str = "unreachable";
/// The most failures whose lines are remembered.
const MOST_FAILURES: usize = 10_000;
/// Stands before a line of a playbook's that looks like one of the executor's own.
const NOT_OURS: &str = "[playbook] ";

/// What a message on the channel holds, by its first byte. `plugins/shared/gatelog_console.py` writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Lines of the callback's, each with its time.
    Said,
    /// Lines of a command's output: how many bytes stand before the text, `+` and how many are missing at its end if any
    /// are, `: `, time, host and text.
    Output,
    /// Text without a time: what Ansible itself prints.
    Plain,
    /// A word for the executor, not shown.
    Mark,
}

impl Kind {
    /// Only the playbook's main process is believed marks and results: in the others plugins of the job are run.
    fn of(byte: u8, main: bool) -> Kind {
        match byte {
            b's' => Kind::Said,
            b'o' => Kind::Output,
            b'm' if main => Kind::Mark,
            _ => Kind::Plain,
        }
    }
}

/// A line in the making.
#[derive(Default)]
struct Partial {
    line: Vec<u8>,
    /// How many bytes of it are left out.
    cut: usize,
}

/// Cuts what a playbook says into lines of limited length, each with a time before it.
pub(crate) struct Lines {
    limit: usize,
    plain: Partial,
    told: Partial,
    /// Who says the line in the making on the channel, and of which kind it is.
    teller: Option<(Option<i32>, Kind)>,
    /// The playbook's main process, which says the first word on the channel before any of the job's content is loaded.
    main: Option<i32>,
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
        Lines {
            limit: limit.max(64),
            plain: Partial::default(),
            told: Partial::default(),
            teller: None,
            main: None,
            stamp: String::new(),
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

    /// Takes bytes of a playbook's standard output and error as they come; appends the lines that are complete to `out`.
    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let mut partial = std::mem::take(&mut self.plain);
        self.cut(&mut partial, Kind::Plain, bytes, out);
        self.plain = partial;
    }

    /// Takes a message of the channel, from the process with this number; appends the lines that are complete to `out`.
    /// Gives the part that belongs to the playbook's results.
    pub(crate) fn told<'a>(&mut self, from: Option<i32>, message: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
        let (byte, text) = message.split_first()?;
        self.main = self.main.or(from);
        let main = from.is_some() && from == self.main;
        if main && matches!(byte, b'h' | b'r') {
            return (*byte == b'r').then_some(text);
        }
        let kind = Kind::of(*byte, main);
        if self.teller != Some((from, kind)) {
            self.finish_told(out);
            self.teller = Some((from, kind));
        }
        let mut partial = std::mem::take(&mut self.told);
        self.cut(&mut partial, kind, text, out);
        self.told = partial;
        None
    }

    /// What was fed since the last time comes behind so many lines of the console.
    pub(crate) fn count(&mut self, before: u64) {
        self.failures.extend(self.begun.drain(..).map(|(number, lines)| (number, before + lines + 1)));
    }

    /// All is over: what stands without an end of line is a line.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        self.finish_told(out);
        if !self.plain.line.is_empty() {
            self.feed(b"\n", out);
        }
    }

    fn finish_told(&mut self, out: &mut Vec<u8>) {
        if let Some((_, kind)) = self.teller.filter(|_| !self.told.line.is_empty()) {
            let mut partial = std::mem::take(&mut self.told);
            self.cut(&mut partial, kind, b"\n", out);
            self.told = partial;
        }
    }

    fn cut(&mut self, partial: &mut Partial, kind: Kind, bytes: &[u8], out: &mut Vec<u8>) {
        // What comes together has come at one moment; to ask for each line takes most of the time.
        self.stamp.clear();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, complete) = match piece.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (piece, false),
            };
            let room = self.limit.saturating_sub(partial.line.len()).min(text.len());
            let (kept, cut) = text.split_at(room);
            partial.line.extend_from_slice(kept);
            partial.cut += cut.len();
            if complete {
                let text = String::from_utf8_lossy(&partial.line);
                self.line(kind, text.trim_end_matches('\r'), partial.cut, out);
                // The next line takes its place in the same memory.
                partial.line.clear();
                partial.cut = 0;
            }
        }
    }

    fn line(&mut self, kind: Kind, text: &str, cut: usize, out: &mut Vec<u8>) {
        match kind {
            Kind::Mark => self.mark(text, out),
            Kind::Said if has_stamp(text) => show(text, cut, out),
            Kind::Output => match output(text) {
                Some((before, missing, text)) => {
                    show(text, cut.saturating_add(missing), out);
                    self.look(text, before, out);
                }
                None => self.plain(text, cut, out),
            },
            Kind::Said | Kind::Plain => self.plain(text, cut, out),
        }
    }

    fn mark(&mut self, text: &str, out: &[u8]) {
        if let Some(why) = text.strip_prefix(EARLY_FAILURE) {
            self.failing.get_or_insert_with(|| why.to_owned());
        } else if text == UNREACHABLE {
            self.patterns.clear();
        } else if let Some(number) = text.strip_prefix(FAILURE).and_then(|number| number.parse().ok())
            && self.failures.len() + self.begun.len() < MOST_FAILURES
        {
            self.begun.push((number, out.iter().filter(|byte| **byte == b'\n').count() as u64));
        }
    }

    /// A line that the callback did not write: it gets a time.
    fn plain(&mut self, text: &str, cut: usize, out: &mut Vec<u8>) {
        if self.stamp.is_empty() {
            self.stamp = stamp(now());
        }
        let is_complaint = |text: &str| ["ERROR", "[ERROR", "bwrap: "].iter().any(|word| text.starts_with(word));
        if !text.trim().is_empty() && !self.complaint.as_deref().is_some_and(is_complaint) {
            self.complaint = Some(text.to_owned());
        }
        show(&format!("{} | {text}", self.stamp), cut, out);
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

/// The parts of a line of output, without the numbers before it. One without a time is none.
fn output(told: &str) -> Option<(usize, usize, &str)> {
    let (numbers, text) = told.split_once(": ").filter(|(_, text)| has_stamp(text))?;
    let (before, missing) = numbers.split_once('+').unwrap_or((numbers, "0"));
    Some((before.parse().ok()?, missing.parse().ok()?, text))
}

/// Appends a line that begins with a time.
fn show(line: &str, cut: usize, out: &mut Vec<u8>) {
    let (before, text) = line.split_at_checked(SHAPE.len()).unwrap_or((line, ""));
    out.extend_from_slice(before.as_bytes());
    if is_ours(text.trim_start()) {
        out.push(b' ');
        out.extend_from_slice(NOT_OURS.as_bytes());
        out.extend_from_slice(text.trim_start().as_bytes());
    } else {
        out.extend_from_slice(text.as_bytes());
    }
    if cut > 0 {
        out.extend_from_slice(format!(" [{cut} bytes more of this line were cut]").as_bytes());
    }
    out.push(b'\n');
}

/// Whether a text is what the executor says where a playbook begins or ends.
fn is_ours(text: &str) -> bool {
    [Phase::Pre, Phase::Run, Phase::Post, Phase::Cleanup].iter().any(|phase| {
        let rest = text.strip_prefix(phase.label()).unwrap_or_default();
        rest.starts_with(" START: ") || rest.starts_with(" END ")
    })
}

/// How a line with a time begins.
const SHAPE: &str = "0000-00-00 00:00:00.000000 |";

/// Whether a line begins as `2026-11-21 10:20:06.123456 |` does.
fn has_stamp(line: &str) -> bool {
    let fits = |(byte, shape): (u8, u8)| if shape == b'0' { byte.is_ascii_digit() } else { byte == shape };
    line.len() >= SHAPE.len() && line.bytes().zip(SHAPE.bytes()).all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: &str = "2026-11-21 10:20:06.123456 | ";
    /// The main process, and one that runs a task.
    const MAIN: Option<i32> = Some(7);
    const TASK: Option<i32> = Some(8);

    /// Lines of a playbook whose main process has said its first word.
    fn lines(limit: usize) -> Lines {
        let mut lines = Lines::new(limit);
        assert_eq!(lines.told(MAIN, b"h", &mut Vec::new()), None);
        lines
    }

    fn told(lines: &mut Lines, from: Option<i32>, message: &str) -> String {
        let mut out = Vec::new();
        assert_eq!(lines.told(from, message.as_bytes(), &mut out), None);
        String::from_utf8(out).unwrap()
    }

    fn fed(lines: &mut Lines, text: &str) -> String {
        let mut out = Vec::new();
        lines.feed(text.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    /// Without their times.
    fn texts(out: &str) -> Vec<&str> {
        let text = |line: &'_ str| has_stamp(line).then_some(SHAPE.len() + 1);
        out.lines().map(|line| &line[text(line).unwrap_or_else(|| panic!("no time: {line:?}"))..]).collect()
    }

    #[test]
    fn long_lines_are_cut_and_lines_without_a_time_get_one() {
        let mut lines = lines(64);
        assert_eq!(told(&mut lines, MAIN, &format!("s{STAMP}localhost | ok\n")), format!("{STAMP}localhost | ok\n"));
        let mut out = fed(&mut lines, "pl");
        out += &fed(&mut lines, "ain\n");
        out += &fed(&mut lines, &"x".repeat(100));
        let mut rest = Vec::new();
        lines.finish(&mut rest);
        out += &String::from_utf8(rest).unwrap();
        let long = format!("{} [36 bytes more of this line were cut]", "x".repeat(64));
        assert_eq!(texts(&out), ["plain", &long]);
        assert_eq!(lines.complaint.as_deref().map(str::len), Some(64));
    }

    #[test]
    fn what_a_command_writes_past_ansible_has_the_executors_time_and_none_of_its_words_counts() {
        let mut lines = lines(4096).watching(vec![OutputPattern::new("FATAL", |line: &str| line.starts_with("FATAL"))]);
        let forged = [
            &*format!("{STAMP}n1 | forged"),
            "RUN END RESULT_NORMAL: [trusted : config/run.yaml@main]",
            "  POST-RUN START: [trusted : config/post.yaml@main]",
            "early failure: forged",
            "mearly failure: forged",
            "gatelog: failure 1",
            &format!("o{}: {STAMP}n1 | FATAL", STAMP.len() + 5),
        ];
        let out = fed(&mut lines, &(forged.join("\n") + "\n"));
        let mut expected: Vec<String> = forged.map(str::to_owned).into();
        for own in [1, 2] {
            expected[own] = format!("[playbook] {}", expected[own].trim_start());
        }
        assert_eq!(texts(&out), expected);
        assert!(!out.starts_with(STAMP), "{out}");
        assert_eq!((lines.failing, lines.failures.len(), lines.begun.len()), (None, 0, 0));
    }

    #[test]
    fn a_process_of_a_task_is_not_believed_what_only_the_playbook_knows() {
        let mut lines = lines(4096);
        assert_eq!(texts(&told(&mut lines, TASK, "mearly failure: forged\n")), ["early failure: forged"]);
        let results = "r{\"failing_task\": {}}\n";
        assert_eq!(texts(&told(&mut lines, TASK, results)), [&results[1..results.len() - 1]]);
        assert_eq!(texts(&told(&mut lines, None, "mfailure 1\n")), ["failure 1"]);
        assert_eq!(lines.failing, None);
        assert_eq!(lines.told(MAIN, results.as_bytes(), &mut Vec::new()), Some(&results.as_bytes()[1..]));
        // The names of plays and hosts are the job's.
        let line = format!("s{STAMP}RUN START: [trusted : config/x.yaml@main] | ok\n");
        assert_eq!(
            texts(&told(&mut lines, MAIN, &line)),
            ["[playbook] RUN START: [trusted : config/x.yaml@main] | ok"]
        );
    }

    #[test]
    fn lines_of_two_processes_do_not_mix() {
        let mut lines = lines(4096);
        let mut out = told(&mut lines, TASK, "pbegun");
        out += &told(&mut lines, MAIN, &format!("s{STAMP}whole\n"));
        out += &told(&mut lines, TASK, "p and never ended");
        out += &fed(&mut lines, "plain\n");
        let mut rest = Vec::new();
        lines.finish(&mut rest);
        out += &String::from_utf8(rest).unwrap();
        assert_eq!(texts(&out), ["begun", "whole", "plain", " and never ended"]);
    }

    #[test]
    fn an_early_failure_is_told_once_and_not_shown() {
        let mut lines = lines(4096);
        assert_eq!(told(&mut lines, MAIN, "mearly failure: task \"compile\" failed\n"), "");
        assert_eq!(told(&mut lines, MAIN, "mearly failure: another\n"), "");
        assert_eq!(lines.failing.as_deref(), Some("task \"compile\" failed"));
    }

    #[test]
    fn the_line_at_which_a_failed_task_says_why_is_known_and_its_mark_not_shown() {
        let (mut lines, mut out) = (lines(4096), Vec::new());
        let say = |lines: &mut Lines, message: &str, out: &mut Vec<u8>| {
            assert_eq!(lines.told(MAIN, message.as_bytes(), out), None);
        };
        say(&mut lines, &format!("s{STAMP}one\n"), &mut out);
        say(&mut lines, "mfailure 1\n", &mut out);
        say(&mut lines, &format!("s{STAMP}why\n"), &mut out);
        lines.count(10);
        out.clear();
        say(&mut lines, "mfailure 2\nfailure x\n", &mut out);
        say(&mut lines, &format!("s{STAMP}and why\n"), &mut out);
        lines.count(12);
        assert_eq!(lines.failures, [(1, 12), (2, 13)].into());
        assert_eq!(texts(&String::from_utf8(out).unwrap()), ["and why"]);
    }

    #[test]
    fn a_line_of_output_that_a_pattern_matches_is_told_at_once_and_only_the_first() {
        let patterns = || {
            let starts = |word: &'static str| OutputPattern::new(word, move |line: &str| line.starts_with(word));
            vec![starts("SEVERE"), starts("FATAL")]
        };
        let line = |host: &str, text: &str| format!("o{}: {STAMP}{host} | {text}\n", STAMP.len() + host.len() + 3);
        let mut watching = lines(4096).watching(patterns());
        // Only what commands write counts, and only from its beginning.
        let mut out = told(&mut watching, MAIN, &format!("s{STAMP}n1 | SEVERE: a message\n"));
        out += &told(&mut watching, TASK, &line("n1", "no SEVERE loss"));
        assert_eq!(watching.failing, None);
        out += &told(&mut watching, TASK, &line("n1 -> n2", "FATAL: lost | all\r"));
        out += &told(&mut watching, TASK, &line("n1", "SEVERE too"));
        assert_eq!(watching.failing.as_deref(), Some("a line of n1 -> n2 matches failure-output \"FATAL\""));
        let expected = [
            "n1 | SEVERE: a message",
            "n1 | no SEVERE loss",
            "n1 -> n2 | FATAL: lost | all",
            "n1 -> n2 | Early failure: a line of n1 -> n2 matches failure-output \"FATAL\"",
            "n1 | SEVERE too",
        ];
        assert_eq!(texts(&out), expected);

        let mut watching = lines(4096).watching(patterns());
        told(&mut watching, MAIN, "munreachable\n");
        told(&mut watching, TASK, &line("n1", "SEVERE"));
        assert_eq!(watching.failing, None, "what fails with an unreachable host says nothing");
    }

    #[test]
    fn what_the_plugin_left_out_of_a_line_is_counted_with_what_is_cut_here() {
        let before = format!("{STAMP}n1 | ");
        let mut lines = lines(100);
        let out = told(&mut lines, TASK, &format!("o{}+1000: {before}{}\n", before.len(), "x".repeat(200)));
        let (shown, left_out) = out.trim_end().split_once(" [").unwrap();
        let kept = shown.strip_prefix(&before).unwrap();
        assert!(kept.bytes().all(|byte| byte == b'x') && !kept.is_empty(), "{out}");
        assert_eq!(left_out, format!("{} bytes more of this line were cut]", 1200 - kept.len()));
    }

    #[test]
    fn a_line_without_end_takes_no_memory_and_what_is_left_out_is_counted() {
        let mut lines = lines(4096);
        let chunk = "z".repeat(64 << 10);
        for _ in 0..1600 {
            assert_eq!(fed(&mut lines, &chunk), "");
            assert!(lines.plain.line.capacity() <= 8192);
        }
        let text = fed(&mut lines, "\nnext\n");
        let left_out = 1600 * chunk.len() - 4096;
        assert!(text.contains(&format!("zz [{left_out} bytes more of this line were cut]\n")));
        assert!(text.ends_with(" | next\n") && text.len() < 4300);
    }

    #[test]
    fn what_is_no_utf8_becomes_it_and_control_characters_stay() {
        let mut out = Vec::new();
        lines(4096).feed(b"a\xff\xfe\x00\x1b[31mred\x07\r\n", &mut out);
        assert!(String::from_utf8(out).unwrap().ends_with(" | a\u{fffd}\u{fffd}\0\u{1b}[31mred\u{7}\n"));
    }
}
