//! Regular expressions as Zuul reads them: RE2, with Python's `re` as a deprecated fallback.
//!
//! RE2 is served by `regex` (linear time) after a small translation of what the two spell
//! differently; what RE2 refuses (look-around, backreferences) is served by `fancy-regex` with
//! bounded backtracking, and the file gets a warning.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// Longest pattern accepted, in bytes.
pub const MAX_PATTERN: usize = 8 << 10;
const MAX_PROGRAM: usize = 8 << 20;
const MAX_BACKTRACKS: usize = 100_000;

/// Where a pattern has to match. Zuul: this differs from field to field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Anchor {
    /// At the start (`branches`, `files`, trigger `branch` and `ref`); the end is free.
    #[default]
    Start,
    /// From start to end (project names, tenant branch lists).
    Whole,
    /// Anywhere (comments, mail addresses).
    Anywhere,
}

/// A pattern as it stands in a file, compiled when it is first used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "PatternText", into = "PatternText")]
pub struct Pattern {
    text: PatternText,
    compiled: OnceLock<Option<Engine>>,
}

/// What a pattern is, without its compiled form.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PatternText {
    /// The regular expression.
    pub regex: String,
    /// Whether it matches where the expression does not.
    pub negate: bool,
    /// Where it has to match.
    pub anchor: Anchor,
}

impl From<PatternText> for Pattern {
    fn from(text: PatternText) -> Self {
        Pattern { text, compiled: OnceLock::new() }
    }
}

impl From<Pattern> for PatternText {
    fn from(pattern: Pattern) -> Self {
        pattern.text
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl PartialOrd for Pattern {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pattern {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

#[derive(Clone, Debug)]
enum Engine {
    Linear(regex::Regex),
    Backtracking(Box<fancy_regex::Regex>),
}

/// What compiling a pattern showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// RE2 takes it.
    Good,
    /// Only a Perl-style engine takes it; RE2's complaint is given.
    Deprecated(String),
    /// Nothing takes it; why.
    Invalid(String),
}

impl Pattern {
    /// A pattern; not yet compiled.
    pub fn new(regex: impl Into<String>, negate: bool, anchor: Anchor) -> Self {
        PatternText { regex: regex.into(), negate, anchor }.into()
    }

    /// The expression as it was written.
    pub fn regex(&self) -> &str {
        &self.text.regex
    }

    /// Whether it matches where the expression does not.
    pub fn negate(&self) -> bool {
        self.text.negate
    }

    /// Whether the text matches. A pattern that does not compile, or whose backtracking reaches
    /// its limit, matches nothing, negated or not: loading has refused the first kind.
    pub fn matches(&self, text: &str) -> bool {
        let found = match self.compiled.get_or_init(|| compile(&self.text).ok().map(|(engine, _)| engine)) {
            Some(Engine::Linear(regex)) => regex.is_match(text),
            Some(Engine::Backtracking(regex)) => match regex.is_match(text) {
                Ok(found) => found,
                Err(_) => return false,
            },
            None => return false,
        };
        found != self.text.negate
    }

    /// Compiles the pattern and says what came of it.
    pub fn check(&self) -> Verdict {
        match compile(&self.text) {
            Ok((engine, complaint)) => {
                let _ = self.compiled.set(Some(engine));
                complaint.map_or(Verdict::Good, Verdict::Deprecated)
            }
            Err(why) => Verdict::Invalid(why),
        }
    }

    /// The pattern for people: `regex`, or `not regex`.
    pub fn describe(&self) -> String {
        if self.text.negate { format!("not {}", self.text.regex) } else { self.text.regex.clone() }
    }
}

fn compile(text: &PatternText) -> Result<(Engine, Option<String>), String> {
    if text.regex.len() > MAX_PATTERN {
        return Err(format!("it is longer than {MAX_PATTERN} bytes"));
    }
    let anchored = |body: &str| match text.anchor {
        Anchor::Start => format!(r"\A(?:{body})"),
        Anchor::Whole => format!(r"\A(?:{body})\z"),
        Anchor::Anywhere => body.to_owned(),
    };
    let complaint = match translate(&text.regex) {
        Ok(body) => match regex::RegexBuilder::new(&anchored(&body)).size_limit(MAX_PROGRAM).build() {
            Ok(regex) => return Ok((Engine::Linear(regex), None)),
            Err(regex::Error::CompiledTooBig(limit)) => return Err(format!("it compiles to more than {limit} bytes")),
            Err(error) => last_line(&error.to_string()),
        },
        Err(why) => why,
    };
    fancy_regex::RegexBuilder::new(&anchored(&text.regex))
        .backtrack_limit(MAX_BACKTRACKS)
        .delegate_size_limit(MAX_PROGRAM)
        .build()
        .map(|regex| (Engine::Backtracking(Box::new(regex)), Some(complaint.clone())))
        .map_err(|_| complaint)
}

/// `regex` explains over several lines; the last one holds the reason.
fn last_line(text: &str) -> String {
    let line = text.lines().last().unwrap_or(text).trim();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// RE2's spelling to that of `regex`: literal braces and nested brackets, set operators that RE2
/// does not have, and ASCII-only classes.
///
/// # Errors
/// What RE2 refuses though `regex` would take it.
fn translate(source: &str) -> Result<String, String> {
    let chars: Vec<char> = source.chars().collect();
    let at = |index: usize| chars.get(index).copied();
    let mut out = String::with_capacity(source.len() + 16);
    let mut index = 0;
    let mut class = false;
    while let Some(c) = at(index) {
        let next = at(index + 1);
        match (c, class) {
            ('\\', _) => {
                let Some(escaped) = next else { return Err("trailing \\ at end of expression".to_owned()) };
                match (escaped, class) {
                    ('d', false) => out.push_str("[0-9]"),
                    ('d', true) => out.push_str("0-9"),
                    ('w', false) => out.push_str("[0-9A-Za-z_]"),
                    ('w', true) => out.push_str("0-9A-Za-z_"),
                    ('s', false) => out.push_str(r"[\t\n\x0C\r ]"),
                    ('s', true) => out.push_str(r"\t\n\x0C\r "),
                    ('D', _) => out.push_str("[^0-9]"),
                    ('W', _) => out.push_str("[^0-9A-Za-z_]"),
                    ('S', _) => out.push_str(r"[^\t\n\x0C\r ]"),
                    ('b', false) => out.push_str(r"(?-u:\b)"),
                    ('Z' | '<' | '>' | 'G' | 'K' | 'h', _) => {
                        return Err(format!("invalid escape sequence: \\{escaped}"));
                    }
                    _ => {
                        out.push('\\');
                        out.push(escaped);
                    }
                }
                index += 2;
                continue;
            }
            ('[', false) => {
                class = true;
                out.push('[');
                index += 1;
                if at(index) == Some('^') {
                    out.push('^');
                    index += 1;
                }
                // A bracket right after the opening one is literal.
                if at(index) == Some(']') {
                    out.push_str(r"\]");
                    index += 1;
                }
                continue;
            }
            ('[', true) if next == Some(':') => {
                // A POSIX class such as [:alpha:]; copied up to its end.
                let rest: String = chars.iter().skip(index).collect();
                if let Some(end) = rest.find(":]") {
                    let named = rest.get(..end + 2).unwrap_or("");
                    out.push_str(named);
                    index += named.chars().count();
                    continue;
                }
                out.push_str(r"\[");
            }
            ('[', true) => out.push_str(r"\["),
            (']', true) => {
                class = false;
                out.push(']');
            }
            ('&' | '~', true) if next == Some(c) => {
                out.push('\\');
                out.push(c);
                out.push('\\');
                out.push(c);
                index += 2;
                continue;
            }
            ('-', true) if next == Some('-') => {
                // `a--` is a range in neither; RE2 reads `--` within a class as a literal dash.
                out.push_str(r"\-");
            }
            ('{', false) if !is_repetition(&chars, index) => out.push_str(r"\{"),
            ('}', false) if !closes_repetition(&chars, index) => out.push_str(r"\}"),
            _ => out.push(c),
        }
        index += 1;
    }
    Ok(out)
}

/// Whether `{` starts `{n}`, `{n,}` or `{n,m}`.
fn is_repetition(chars: &[char], open: usize) -> bool {
    let body: String = chars.iter().skip(open + 1).take(10).take_while(|c| **c != '}').collect();
    let closed = chars.get(open + 1 + body.chars().count()) == Some(&'}');
    let (low, high) = body.split_once(',').unwrap_or((&body, ""));
    closed && !low.is_empty() && low.bytes().chain(high.bytes()).all(|b| b.is_ascii_digit())
}

fn closes_repetition(chars: &[char], close: usize) -> bool {
    (close.saturating_sub(10)..close).rev().find(|at| chars.get(*at) == Some(&'{')).is_some_and(|open| {
        // `\{` is literal, and so is what closes it; `\p{L}` closes a class name.
        let escaped = open > 0 && chars.get(open - 1) == Some(&'\\');
        let named =
            open > 1 && matches!(chars.get(open - 1), Some('p' | 'P' | 'x')) && chars.get(open - 2) == Some(&'\\');
        named || (!escaped && is_repetition(chars, open))
    }) || (close.saturating_sub(40)..close).rev().find(|at| chars.get(*at) == Some(&'{')).is_some_and(|open| {
        open > 1 && matches!(chars.get(open - 1), Some('p' | 'P' | 'x')) && chars.get(open - 2) == Some(&'\\')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(regex: &str, text: &str) -> bool {
        Pattern::new(regex, false, Anchor::Start).matches(text)
    }

    #[test]
    fn anchoring_differs_by_field() {
        assert!(matches("main", "maintenance"));
        assert!(!matches("main", "xmain"));
        assert!(!Pattern::new("main", false, Anchor::Whole).matches("maintenance"));
        assert!(Pattern::new("main", false, Anchor::Anywhere).matches("xmainx"));
        assert!(matches("a|b", "b/c"));
    }

    #[test]
    fn negation_turns_the_answer_round() {
        assert!(!Pattern::new("stable/.*", true, Anchor::Start).matches("stable/x"));
        assert!(Pattern::new("stable/.*", true, Anchor::Start).matches("master"));
    }

    #[test]
    fn perl_only_patterns_work_and_are_told_apart() {
        let pattern = Pattern::new("^(?!stable/).*$", false, Anchor::Start);
        assert!(matches!(pattern.check(), Verdict::Deprecated(_)));
        assert!(pattern.matches("master"));
        assert!(!pattern.matches("stable/1"));
        assert!(matches!(Pattern::new("(", false, Anchor::Start).check(), Verdict::Invalid(_)));
    }

    #[test]
    fn re2_spellings_keep_their_meaning() {
        assert!(matches("[a&&b]+$", "a&b"));
        assert!(matches("[[x]+$", "[x"));
        assert!(matches("a{b}", "a{b}"));
        assert!(matches("a{2}$", "aa"));
        assert!(matches(r"\d+$", "12"));
        assert!(!matches(r"\d+$", "\u{0663}"));
        assert!(matches(r"[\w.-]+$", "a.b-c_d"));
        assert!(matches("[]a]+$", "]a"));
        assert!(matches(r"\p{Greek}$", "\u{03b1}"));
        assert!(matches("[[:alpha:]]+$", "ab"));
    }

    #[test]
    fn backtracking_is_bounded() {
        let pattern = Pattern::new(r"(?=a)(a+)+\1$", false, Anchor::Start);
        assert!(!pattern.matches(&("a".repeat(60) + "b")));
    }

    #[test]
    fn oversized_patterns_are_refused() {
        assert!(matches!(Pattern::new("a".repeat(9000), false, Anchor::Start).check(), Verdict::Invalid(_)));
        assert!(matches!(Pattern::new("(a{1000}){1000}", false, Anchor::Start).check(), Verdict::Invalid(_)));
    }
}
