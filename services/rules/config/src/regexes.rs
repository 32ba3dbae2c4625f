//! Regular expressions as Zuul reads them: RE2, with Python's `re` as a deprecated fallback.
//!
//! RE2 is served by `regex` (linear time) after a small translation of what the two spell
//! differently; what RE2 refuses (look-around, backreferences) is served by `fancy-regex` with
//! bounded backtracking, and the file gets a warning.

mod plain;

use std::sync::{Arc, OnceLock};

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
pub struct Pattern(Arc<Compiled>);

/// Shared by all copies of a pattern: copying a compiled expression would give each copy caches of its own.
#[derive(Debug, Default)]
struct Compiled {
    text: PatternText,
    engine: OnceLock<Option<Engine>>,
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
        Pattern(Arc::new(Compiled { text, engine: OnceLock::new() }))
    }
}

impl From<Pattern> for PatternText {
    fn from(pattern: Pattern) -> Self {
        pattern.0.text.clone()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.text == other.0.text
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
        self.0.text.cmp(&other.0.text)
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
        &self.0.text.regex
    }

    /// Whether it matches where the expression does not.
    pub fn negate(&self) -> bool {
        self.0.text.negate
    }

    /// Whether the text matches. A pattern that does not compile, or whose backtracking reaches
    /// its limit, matches nothing, negated or not: loading has refused the first kind.
    pub fn matches(&self, text: &str) -> bool {
        let found = match self.0.engine.get_or_init(|| compile(&self.0.text).ok().map(|(engine, _)| engine)) {
            Some(Engine::Linear(regex)) => regex.is_match(text),
            Some(Engine::Backtracking(regex)) => match regex.is_match(text) {
                Ok(found) => found,
                Err(_) => return false,
            },
            None => return false,
        };
        found != self.0.text.negate
    }

    /// Looks whether the pattern compiles, and says what came of it.
    pub fn check(&self) -> Verdict {
        if plain::is_plain(self.regex()) {
            return Verdict::Good;
        }
        match compile(&self.0.text) {
            Ok((engine, complaint)) => {
                let _ = self.0.engine.set(Some(engine));
                complaint.map_or(Verdict::Good, Verdict::Deprecated)
            }
            Err(why) => Verdict::Invalid(why),
        }
    }

    /// Whether RE2 takes it; compiled at most once.
    pub fn is_re2(&self) -> bool {
        let compile = || compile(&self.0.text).ok().map(|(engine, _)| engine);
        matches!(self.0.engine.get_or_init(compile), Some(Engine::Linear(_)))
    }

    /// Why RE2 does not take it, if it does not.
    pub fn refused_by_re2(&self) -> Option<String> {
        match self.check() {
            Verdict::Good => None,
            Verdict::Deprecated(why) | Verdict::Invalid(why) => Some(why),
        }
    }

    /// The pattern for people: `regex`, or `not regex`.
    pub fn describe(&self) -> String {
        if self.0.text.negate { format!("not {}", self.0.text.regex) } else { self.0.text.regex.clone() }
    }
}

/// Whether RE2 takes a pattern, found out by compiling it.
#[cfg(test)]
fn compiles(pattern: &Pattern) -> bool {
    compile(&PatternText::from(pattern.clone())).is_ok_and(|(_, complaint)| complaint.is_none())
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
    let body = from_python(&text.regex)?;
    fancy_regex::RegexBuilder::new(&anchored(&body))
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
/// does not have, ASCII-only classes, octal and quoted text.
///
/// # Errors
/// What RE2 refuses though `regex` would take it.
fn translate(source: &str) -> Result<String, String> {
    let chars: Vec<char> = source.chars().collect();
    let at = |index: usize| chars.get(index).copied();
    let mut out = String::with_capacity(source.len() + 16);
    let mut index = 0;
    let mut class = false;
    // Whether what came before is a repetition, which cannot be repeated.
    let mut repeated = false;
    // Open groups: the anchors put around the expression must not be closed by it.
    let mut depth = 0_u32;
    while let Some(c) = at(index) {
        let next = at(index + 1);
        let was_repeated = std::mem::take(&mut repeated);
        match (c, class) {
            ('\\', _) => {
                let Some(escaped) = next else { return Err("trailing \\ at end of expression".to_owned()) };
                index += 2;
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
                    ('C', false) => out.push_str("(?s:.)"),
                    ('<' | '>' | '_', _) => out.push(escaped),
                    ('Q', false) => {
                        while let Some(quoted) = at(index) {
                            index += 1;
                            if quoted == '\\' && at(index) == Some('E') {
                                index += 1;
                                break;
                            }
                            out.push_str(&regex::escape(quoted.encode_utf8(&mut [0; 4])));
                        }
                    }
                    // One digit is a backreference, more of them are octal.
                    ('0', _) => index = octal(&chars, index - 1, &mut out),
                    ('1'..='7', _) if matches!(next_digit(&chars, index), Some('0'..='7')) => {
                        index = octal(&chars, index - 1, &mut out);
                    }
                    ('A' | 'a' | 'B' | 'f' | 'n' | 'p' | 'P' | 'r' | 't' | 'v' | 'x' | 'z', _) => {
                        out.push('\\');
                        out.push(escaped);
                    }
                    (letter, _) if letter.is_ascii_alphanumeric() || !letter.is_ascii() => {
                        return Err(format!("invalid escape sequence: \\{letter}"));
                    }
                    _ => {
                        out.push('\\');
                        out.push(escaped);
                    }
                }
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
            ('(', false) if next == Some('?') => {
                // RE2 knows four flags.
                let flags: String = chars.iter().skip(index + 2).take_while(|c| !matches!(c, ')' | ':')).collect();
                if flags.chars().all(|c| c.is_ascii_alphabetic() || c == '-')
                    && flags.chars().any(|c| !matches!(c, 'i' | 'm' | 's' | 'U' | '-'))
                {
                    return Err(format!("invalid perl operator: (?{flags}"));
                }
                depth = depth.saturating_add(1);
                out.push('(');
            }
            ('(', false) => {
                depth = depth.saturating_add(1);
                out.push('(');
            }
            (')', false) => {
                depth = depth
                    .checked_sub(1)
                    .ok_or_else(|| "unexpected ): a group is closed that is not open".to_owned())?;
                out.push(')');
            }
            ('*' | '+' | '?', false) => {
                if was_repeated {
                    return Err(format!("bad repetition operator: {c}{c}"));
                }
                repeated = true;
                out.push(c);
                if next == Some('?') {
                    out.push('?');
                    index += 1;
                }
            }
            ('{', false) if names(&chars, index) => out.push('{'),
            ('{', false) => match repetition(&chars, index) {
                None => out.push_str(r"\{"),
                Some((_, most)) if was_repeated || most > MAX_REPEAT => {
                    return Err("bad repetition operator: {".to_owned());
                }
                Some((length, _)) => {
                    repeated = true;
                    out.extend(chars.iter().skip(index).take(length));
                    index += length;
                    if at(index) == Some('?') {
                        out.push('?');
                        index += 1;
                    }
                    continue;
                }
            },
            ('}', false) if !closes_name(&chars, index) => out.push_str(r"\}"),
            _ => out.push(c),
        }
        index += 1;
    }
    Ok(out)
}

/// Zuul's RE2 takes no more.
const MAX_REPEAT: u32 = 1000;

fn next_digit(chars: &[char], index: usize) -> Option<char> {
    chars.get(index).copied().filter(char::is_ascii_digit)
}

/// Up to three octal digits from `index` on; gives the index after them.
fn octal(chars: &[char], index: usize, out: &mut String) -> usize {
    let digits: Vec<u32> = chars.iter().skip(index).take(3).map_while(|c| c.to_digit(8)).collect();
    let value = digits.iter().fold(0, |sum, digit| sum * 8 + digit);
    out.push_str(&format!("\\x{{{value:x}}}"));
    index + digits.len()
}

/// The length of `{n}`, `{n,}` or `{n,m}` at an index, and the larger number.
fn repetition(chars: &[char], open: usize) -> Option<(usize, u32)> {
    let body: String = chars.iter().skip(open + 1).take(12).take_while(|c| **c != '}').collect();
    let length = body.chars().count() + 2;
    let closed = chars.get(open + length - 1) == Some(&'}');
    let (low, high) = body.split_once(',').unwrap_or((&body, ""));
    let digits = !low.is_empty() && low.bytes().chain(high.bytes()).all(|b| b.is_ascii_digit());
    let number = |text: &str| text.parse().unwrap_or(if text.is_empty() { 0 } else { u32::MAX });
    (closed && digits).then(|| (length, number(low).max(number(high))))
}

/// Whether a brace closes the name in `\p{L}` or the number in `\x{41}`.
fn closes_name(chars: &[char], close: usize) -> bool {
    let open = (close.saturating_sub(40)..close).rev().find(|at| chars.get(*at) == Some(&'{'));
    open.is_some_and(|open| names(chars, open))
}

/// Whether a brace opens such a name.
fn names(chars: &[char], open: usize) -> bool {
    open > 1 && matches!(chars.get(open - 1), Some('p' | 'P' | 'x')) && chars.get(open - 2) == Some(&'\\')
}

/// Python's spelling to that of `fancy-regex`, for what RE2 refuses.
///
/// # Errors
/// What Python refuses though `fancy-regex` would take it.
fn from_python(source: &str) -> Result<String, String> {
    let chars: Vec<char> = source.chars().collect();
    let at = |index: usize| chars.get(index).copied();
    let mut out = String::with_capacity(source.len() + 16);
    let mut index = 0;
    let mut class = false;
    // Whether there is something to repeat.
    let mut repeatable = false;
    let mut depth = 0_u32;
    while let Some(c) = at(index) {
        let next = at(index + 1);
        if c == '\\' {
            let Some(escaped) = next else { return Err("bad escape (end of pattern)".to_owned()) };
            let known = if class { "abdDfnrsStuUvwWx" } else { "AabBdDfnrsStuUvwWxZ" };
            if escaped.is_ascii_alphabetic() && !known.contains(escaped) {
                return Err(format!("bad escape \\{escaped}"));
            }
            let hex = match escaped {
                'x' => 2,
                'u' => 4,
                'U' => 8,
                _ => 0,
            };
            if chars.iter().skip(index + 2).take(hex).filter(|c| c.is_ascii_hexdigit()).count() < hex {
                return Err(format!("incomplete escape \\{escaped}"));
            }
            match escaped {
                '0' => {
                    index = octal(&chars, index + 1, &mut out);
                    repeatable = true;
                    continue;
                }
                'Z' if !class => out.push_str(r"\z"),
                '<' | '>' => out.push(escaped),
                _ => {
                    out.push('\\');
                    out.push(escaped);
                }
            }
            repeatable = class || !matches!(escaped, 'A' | 'b' | 'B' | 'Z');
            index += 2;
            continue;
        }
        match (c, class) {
            ('[', false) => {
                class = true;
                out.push('[');
                if next == Some('^') {
                    out.push('^');
                    index += 1;
                }
                if at(index + 1) == Some(']') {
                    out.push_str(r"\]");
                    index += 1;
                }
            }
            (']', true) => {
                class = false;
                repeatable = true;
                out.push(']');
            }
            ('[', true) => out.push_str(r"\["),
            ('(', false) => {
                let flags: String = chars.iter().skip(index + 2).take_while(|c| c.is_ascii_alphabetic()).collect();
                let closed = at(index + 2 + flags.len()) == Some(')');
                if next == Some('?') && !flags.is_empty() && closed {
                    if index > 0 {
                        return Err("global flags not at the start of the expression".to_owned());
                    }
                    if flags.chars().any(|c| !"aimsux".contains(c)) {
                        return Err("unknown flag".to_owned());
                    }
                    let kept: String = flags.chars().filter(|c| "imsx".contains(*c)).collect();
                    if !kept.is_empty() {
                        out.push_str(&format!("(?{kept})"));
                    }
                    index += flags.len() + 3;
                    continue;
                }
                if next == Some('?') && at(index + 2) == Some('-') && at(index + 4) == Some(')') {
                    return Err("missing :".to_owned());
                }
                repeatable = false;
                depth = depth.saturating_add(1);
                out.push('(');
                if next == Some('?') {
                    out.push('?');
                    index += 1;
                }
            }
            (')', false) => {
                depth = depth.checked_sub(1).ok_or_else(|| "unbalanced parenthesis".to_owned())?;
                repeatable = true;
                out.push(')');
            }
            ('|' | '^' | '$', false) => {
                repeatable = false;
                out.push(c);
            }
            ('*' | '+' | '?' | '{', false) => {
                let length = match c {
                    '{' => repetition(&chars, index).map(|(length, _)| length),
                    _ => Some(1),
                };
                let Some(length) = length else {
                    repeatable = true;
                    out.push_str(r"\{");
                    index += 1;
                    continue;
                };
                if !repeatable {
                    return Err("nothing to repeat, or multiple repeat".to_owned());
                }
                out.extend(chars.iter().skip(index).take(length));
                index += length;
                if let Some(mark @ ('?' | '+')) = at(index) {
                    out.push(mark);
                    index += 1;
                }
                repeatable = false;
                continue;
            }
            _ => {
                repeatable = true;
                out.push(c);
            }
        }
        index += 1;
    }
    Ok(out)
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
    fn what_re2_and_python_refuse_is_refused() {
        let verdict = |regex: &str| match Pattern::new(regex, false, Anchor::Start).check() {
            Verdict::Good => "good",
            Verdict::Deprecated(_) => "deprecated",
            Verdict::Invalid(_) => "invalid",
        };
        for regex in [
            "docs/**",
            "**/x",
            "a**",
            "(?!a)**",
            "(?!a)\\h",
            "x(?x)",
            "a{1}{2}",
            r"(?!a)\x{41}",
            "(?!a)^*",
            "a)|(b",
            "(?!a))(b",
        ] {
            assert_eq!(verdict(regex), "invalid", "{regex}");
        }
        for regex in ["a++", "(?x)a", r"\u0041", r"a\Z", "a{1001}", r"(a)\1", "(?a)x", "(?>a)"] {
            assert_eq!(verdict(regex), "deprecated", "{regex}");
        }
        for regex in [r"\<", r"\Qa.b\E+", r"\_", r"\012", "a{2}?", "(?i)a", r"[\d-]", r"\p{Greek}+", r"\x{41}"] {
            assert_eq!(verdict(regex), "good", "{regex}");
        }
        assert!(matches(r"\Qa.b\E$", "a.b"));
        assert!(matches(r"\101\x{42}$", "AB"));
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
