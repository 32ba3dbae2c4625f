//! What is wrong with a configuration, said so that it can be mended.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::place::Place;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// What is said does not take effect.
    Error,
    /// It takes effect, but will not for ever, or hardly as meant.
    Warning,
    /// Worth knowing: an older spelling and its modern form.
    Notice,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Notice => "notice",
        })
    }
}

/// Zuul's label for everything that has no label of its own.
pub const UNKNOWN: &str = "Unknown";

/// The code of what is said of a branch with more than one place of configuration.
pub const MULTIPLE_CONFIGURATIONS: &str = "multiple-project-configurations";

const OF_SCHEMA: &[&str] = &[
    "exclusive-attributes",
    "missing-attribute",
    "misplaced-tag",
    "not-a-dictionary",
    "out-of-range",
    "unknown-attribute",
    "unknown-value",
    "variable-name",
    "wrong-type",
];

/// One problem of a configuration, with its place and its cure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// Stable kebab-case identifier, for filters and tests.
    pub code: String,
    /// Zuul: the short class label (`Nodeset Not Found`); `Unknown` where Zuul has none.
    pub name: String,
    /// What is wrong, one sentence.
    pub message: String,
    /// Where; line 0 means the file as a whole.
    pub place: Place,
    /// Line at which the stanza starts that it is in, as Zuul tells places; 0 when it is in none.
    pub stanza_line: u32,
    /// The attribute it is about, if it is about one.
    pub attribute: Option<String>,
    /// The lines around the place, as text with line numbers.
    pub snippet: String,
    /// How to mend it; empty when the message says it all.
    pub cure: String,
}

impl Problem {
    /// A problem without a snippet, attribute or cure.
    pub fn new(severity: Severity, code: &str, name: &str, place: Place, message: impl Into<String>) -> Self {
        Problem {
            severity,
            code: code.to_owned(),
            name: name.to_owned(),
            message: message.into(),
            stanza_line: place.line,
            place,
            attribute: None,
            snippet: String::new(),
            cure: String::new(),
        }
    }

    /// An error.
    pub fn error(code: &str, name: &str, place: Place, message: impl Into<String>) -> Self {
        Problem::new(Severity::Error, code, name, place, message)
    }

    /// The same with its cure.
    #[must_use]
    pub fn cure(mut self, cure: impl Into<String>) -> Self {
        self.cure = cure.into();
        self
    }

    /// The same about one attribute.
    #[must_use]
    pub fn about(mut self, attribute: &str) -> Self {
        self.attribute = Some(attribute.to_owned());
        self
    }

    /// The same in the stanza that starts at a line.
    #[must_use]
    pub fn in_stanza(mut self, line: u32) -> Self {
        self.stanza_line = line;
        self
    }

    /// Whether it is about the shape of a stanza. Zuul looks at the shape first, and at nothing else
    /// where that is wrong.
    pub fn is_of_schema(&self) -> bool {
        self.is_error() && OF_SCHEMA.contains(&self.code.as_str())
    }

    /// Whether what was said does not take effect.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The path Zuul tells: that there is more than one place of configuration is said of a branch, and of no file.
    pub fn zuul_path(&self) -> &str {
        if self.code == MULTIPLE_CONFIGURATIONS { "" } else { &self.place.context.path }
    }

    /// The problem as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "severity": self.severity.to_string(),
            "code": self.code,
            "name": self.name,
            "message": self.message,
            "project": self.place.context.project,
            "branch": self.place.context.branch,
            "path": self.place.context.path,
            "line": self.place.line,
            "column": self.place.column,
            "stanza_line": self.stanza_line,
            "attribute": self.attribute,
            "snippet": self.snippet,
            "cure": self.cure,
        })
    }
}

impl fmt::Display for Problem {
    /// The way a good compiler says it: verdict, place, lines, cure.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}[{}]: {}", self.severity, self.code, self.message)?;
        write!(f, "  --> {}", self.place)?;
        if let Some(attribute) = &self.attribute {
            write!(f, " (attribute `{attribute}`)")?;
        }
        for line in self.snippet.lines() {
            write!(f, "\n   {line}")?;
        }
        if !self.cure.is_empty() {
            write!(f, "\n  = help: {}", self.cure)?;
        }
        Ok(())
    }
}

/// The lines of `text` around `line` (from 1), numbered, with a caret under `column`.
pub fn snippet(text: &str, line: u32, column: u32) -> String {
    const BEFORE: u32 = 1;
    const AFTER: u32 = 2;
    const WIDTH: usize = 120;
    if line == 0 {
        return String::new();
    }
    let first = line.saturating_sub(BEFORE).max(1);
    let mut out = String::new();
    for (number, content) in (first..=line + AFTER).zip(text.lines().skip((first - 1) as usize)) {
        let shown: String = content.chars().take(WIDTH).collect();
        out.push_str(format!("{number:>4} | {shown}").trim_end());
        out.push('\n');
        if number == line && column > 0 && (column as usize) <= WIDTH + 1 {
            out.push_str(&format!("     | {}^\n", " ".repeat(column as usize - 1)));
        }
    }
    out
}

/// The candidate nearest to `word`, when it is near enough to be what was meant.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate, limit), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Edit distance; anything above `limit` is told as `limit + 1`.
fn distance(left: &str, right: &str, limit: usize) -> usize {
    // `_` for `-` is the most common slip and counts as nothing.
    let fold = |text: &str| text.chars().map(|c| if c == '_' { '-' } else { c.to_ascii_lowercase() }).collect();
    let (left, right): (Vec<char>, Vec<char>) = (fold(left), fold(right));
    if left.len().abs_diff(right.len()) > limit || left.len() > 200 {
        return limit + 1;
    }
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.iter().enumerate() {
        let mut next = vec![i + 1];
        let mut diagonal = i;
        for (r, above) in right.iter().zip(row.iter().skip(1)) {
            let before = next.last().copied().unwrap_or(0);
            next.push((diagonal + usize::from(l != r)).min(above + 1).min(before + 1));
            diagonal = *above;
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_offered_and_far_ones_are_not() {
        assert_eq!(did_you_mean("post_run", ["pre-run", "post-run", "run"]), Some("post-run"));
        assert_eq!(did_you_mean("tiemout", ["timeout", "attempts"]), Some("timeout"));
        assert_eq!(did_you_mean("colour", ["timeout", "attempts"]), None);
    }

    #[test]
    fn a_second_place_of_configuration_is_of_no_file_to_zuul() {
        let context = crate::place::SourceContext { path: "zuul.d/".to_owned(), ..Default::default() };
        let place = Place { context: crate::shared::Shared::new(context), ..Place::default() };
        let of = |code: &str| Problem::error(code, UNKNOWN, place.clone(), "").zuul_path().to_owned();
        assert_eq!((of(MULTIPLE_CONFIGURATIONS).as_str(), of("yaml-syntax").as_str()), ("", "zuul.d/"));
    }

    #[test]
    fn a_snippet_points_at_the_column() {
        assert_eq!(snippet("a\nbc\nd\n", 2, 2), "   1 | a\n   2 | bc\n     |  ^\n   3 | d\n");
    }
}
