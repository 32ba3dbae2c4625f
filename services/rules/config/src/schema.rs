//! The language of the attribute tables, and the one reader that checks a stanza against its table.
//!
//! Every object has one table: for each attribute its type, its default, how it merges when
//! definitions are applied on each other. Reading, checking, merging and explaining all look there.

use std::collections::BTreeMap;

use gatelog_record::Value;

use crate::cache::Patterns;
use crate::dialect::{self, Spelling};
use crate::place::{Place, SourceContext};
use crate::problem::{Problem, Severity, UNKNOWN, did_you_mean, snippet};
use crate::regexes::{Anchor, Pattern, Verdict};
use crate::shared::Shared;
use crate::yaml::tree::mapping_value;
use crate::yaml::{Entry, Mark, Node, NodeKind, Tag};

/// The type of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A truth value.
    Bool,
    /// A truth value or one word.
    BoolOr(&'static str),
    /// A whole number of at least `min`.
    Int {
        /// Smallest allowed.
        min: i64,
    },
    /// A whole number of at least `min`, or null.
    IntOrNull {
        /// Smallest allowed.
        min: i64,
    },
    /// Text.
    Text,
    /// Text or null.
    TextOrNull,
    /// Text or a number (a version).
    TextOrNumber,
    /// Text, or a list of texts.
    Texts,
    /// A list of texts; a text alone does not do.
    TextList,
    /// A regular expression, or a list of them.
    Patterns(Anchor),
    /// A dictionary.
    Map,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Anything; the object's module reads it.
    Special,
}

/// What happens to an attribute when a further definition that sets it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// It belongs to its own definition only.
    NotInherited,
    /// The later value replaces the earlier one.
    Replace,
    /// Both are kept; `!override` replaces.
    Union,
    /// Both are kept, always.
    UnionAlways,
    /// The later replaces; `!inherit` keeps both.
    ReplaceOrInherit,
    /// Dictionaries merge key by key at every depth; `!override` replaces.
    Deep,
    /// What the later adds comes after.
    Append,
    /// What the later adds comes before.
    Prepend,
    /// Only what both allow is left.
    Intersect,
    /// A rule of its own, told in the module.
    Special,
}

impl Merge {
    /// Whether `!override` and `!inherit` may stand there.
    pub fn takes_tags(self) -> bool {
        matches!(self, Merge::Union | Merge::ReplaceOrInherit | Merge::Deep)
    }
}

/// One row of an attribute table.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// The key.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// How it merges.
    pub merge: Merge,
    /// Whether an object without it is refused.
    pub required: bool,
    /// Zuul: an execution attribute, closed by `final` and `protected`.
    pub execution: bool,
    /// Whether `attribute-control` may make it final.
    pub controllable: bool,
    /// What holds when nobody sets it, in words of the language.
    pub default: &'static str,
    /// What is written today instead, where the name is known in older spellings alone.
    pub older: Option<&'static str>,
}

/// A row with the usual marks; refine with the builder functions.
pub const fn attribute(name: &'static str, kind: Kind) -> Attribute {
    Attribute {
        name,
        kind,
        merge: Merge::NotInherited,
        required: false,
        execution: false,
        controllable: false,
        default: "",
        older: None,
    }
}

impl Attribute {
    /// An object without it is refused.
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// How it merges.
    pub const fn merge(mut self, merge: Merge) -> Self {
        self.merge = merge;
        self
    }

    /// `final` and `protected` close it.
    pub const fn execution(mut self) -> Self {
        self.execution = true;
        self
    }

    /// `attribute-control` may make it final.
    pub const fn controllable(mut self) -> Self {
        self.controllable = true;
        self
    }

    /// Known in older spellings alone; today one writes `modern`.
    pub const fn older(mut self, modern: &'static str) -> Self {
        self.older = Some(modern);
        self
    }

    /// What holds when nobody sets it.
    pub const fn default(mut self, default: &'static str) -> Self {
        self.default = default;
        self
    }
}

/// How many problems of a file are shown with the lines around them.
pub(crate) const MOST_SNIPPETS: usize = 100;

/// Collects the problems of one file.
#[derive(Debug)]
pub struct Sink<'a> {
    /// The file.
    pub context: Shared<SourceContext>,
    /// Its text, for snippets.
    pub text: &'a str,
    /// How it may be written.
    pub spelling: Spelling,
    /// What was found.
    pub problems: Vec<Problem>,
    /// Patterns met so far: one that is written again is not looked at again.
    pub patterns: Patterns,
}

impl Sink<'_> {
    /// A place in the file.
    pub fn place(&self, mark: Mark) -> Place {
        Place { context: self.context.clone(), line: mark.line, column: mark.column }
    }

    /// Adds a problem at a place.
    pub fn add(&mut self, severity: Severity, code: &str, name: &str, mark: Mark, message: String) -> &mut Problem {
        let mut problem = Problem::new(severity, code, name, self.place(mark), message);
        // Finding a line means reading up to it: a file that is wrong all over is not read over and over.
        if self.problems.len() < MOST_SNIPPETS {
            problem.snippet = snippet(self.text, mark.line, mark.column);
        }
        self.problems.push(problem);
        let last = self.problems.len() - 1;
        // The vector has just grown, so that index exists.
        &mut self.problems[last]
    }

    /// Adds an error about the file as a whole; Zuul tells no line for it.
    pub fn error_of_file(&mut self, code: &str, mark: Mark, message: impl Into<String>, cure: impl Into<String>) {
        let problem = self.add(Severity::Error, code, UNKNOWN, mark, message.into());
        problem.stanza_line = 0;
        problem.cure = cure.into();
    }

    /// Adds an error with a cure.
    pub fn error(&mut self, code: &str, name: &str, mark: Mark, message: impl Into<String>, cure: impl Into<String>) {
        self.add(Severity::Error, code, name, mark, message.into()).cure = cure.into();
    }
}

/// One stanza being read.
#[derive(Debug)]
pub struct Stanza<'a, 's, 't> {
    /// What kind of object.
    pub kind: &'static str,
    /// Its name, as far as known.
    pub name: String,
    /// Where it starts.
    pub mark: Mark,
    entries: &'a [Entry],
    /// Where problems go.
    pub sink: &'s mut Sink<'t>,
    failed: bool,
}

impl<'a, 's, 't> Stanza<'a, 's, 't> {
    /// Checks a node against a table: its shape, unknown and missing keys, the type of each value.
    /// Every problem is reported; an object with an error is dropped by [`Stanza::finish`].
    pub fn open(
        sink: &'s mut Sink<'t>,
        kind: &'static str,
        node: &'a Node,
        mark: Mark,
        tables: &[&'static [Attribute]],
    ) -> Option<Self> {
        let mut stanza = Self::open_free(sink, kind, node, mark)?;
        stanza.check(tables, |_| false);
        Some(stanza)
    }

    /// The same for an object whose keys are partly free; call [`Stanza::check`] next.
    pub fn open_free(sink: &'s mut Sink<'t>, kind: &'static str, node: &'a Node, mark: Mark) -> Option<Self> {
        let Some(entries) = node.as_mapping() else {
            let message = format!("a {kind} must be a dictionary of attributes, not {}", node.kind_name());
            sink.error(
                "not-a-dictionary",
                UNKNOWN,
                node.start,
                message,
                format!("indent the attributes below `{kind}:`"),
            );
            return None;
        };
        let name = node.get("name").and_then(|entry| entry.value.as_str()).unwrap_or("").to_owned();
        Some(Stanza { kind, name, mark, entries, sink, failed: false })
    }

    /// Checks all entries against the tables; `free` says which unknown keys are not problems.
    pub fn check(&mut self, tables: &[&'static [Attribute]], free: impl Fn(&str) -> bool) {
        let older = self.sink.spelling == Spelling::Older;
        let rows = || tables.iter().flat_map(|table| table.iter()).filter(|row| older || row.older.is_none());
        for entry in self.entries {
            match rows().find(|row| row.name == entry.key) {
                Some(row) => {
                    self.check_value(row, entry);
                    if let Some(modern) = row.older {
                        dialect::notice(self.sink, entry.mark, &entry.key, modern);
                    }
                }
                None if free(&entry.key) => {}
                None => {
                    let cure = match did_you_mean(&entry.key, rows().map(|row| row.name)) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => "remove it, or look for its name in the reference of this object".to_owned(),
                    };
                    let message = format!("`{}` is not an attribute of {}", entry.key, self.title());
                    self.fail("unknown-attribute", entry.mark, Some(&entry.key), message, cure);
                }
            }
        }
        for row in tables.iter().flat_map(|table| table.iter()).filter(|row| row.required) {
            if !self.entries.iter().any(|entry| entry.key == row.name) {
                let message = format!("{} needs the attribute `{}`", self.title(), row.name);
                self.fail("missing-attribute", self.mark, Some(row.name), message, format!("add `{}:`", row.name));
            }
        }
    }

    /// `job "tox"`, or `a job`.
    pub fn title(&self) -> String {
        if self.name.is_empty() { format!("this {}", self.kind) } else { format!("{} \"{}\"", self.kind, self.name) }
    }

    /// Reports an error of this stanza, so that it is dropped in the end.
    pub fn fail(
        &mut self,
        code: &str,
        mark: Mark,
        attribute: Option<&str>,
        message: impl Into<String>,
        cure: impl Into<String>,
    ) {
        self.fail_as(code, UNKNOWN, mark, attribute, message, cure);
    }

    /// The same with Zuul's label.
    pub fn fail_as(
        &mut self,
        code: &str,
        name: &str,
        mark: Mark,
        attribute: Option<&str>,
        message: impl Into<String>,
        cure: impl Into<String>,
    ) {
        self.failed = true;
        let problem = self.sink.add(Severity::Error, code, name, mark, message.into());
        problem.attribute = attribute.map(str::to_owned);
        problem.cure = cure.into();
    }

    /// Reports something that does not stop the stanza.
    pub fn warn(&mut self, code: &str, name: &str, mark: Mark, attribute: &str, message: String, cure: &str) {
        let problem = self.sink.add(Severity::Warning, code, name, mark, message);
        problem.attribute = Some(attribute.to_owned());
        problem.cure = cure.to_owned();
    }

    /// Drops the stanza in the end, for an error that was reported elsewhere.
    pub fn spoil(&mut self) {
        self.failed = true;
    }

    /// Whether an error was reported so far.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// The object, unless an error was reported.
    pub fn finish<T>(self, object: T) -> Option<T> {
        if self.failed { None } else { Some(object) }
    }

    /// Where the stanza stands.
    pub fn place(&self) -> Place {
        self.sink.place(self.mark)
    }

    /// All entries.
    pub fn entries(&self) -> &'a [Entry] {
        self.entries
    }

    /// One entry.
    pub fn entry(&self, name: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| entry.key == name)
    }

    /// The text of an attribute.
    pub fn text(&self, name: &str) -> Option<String> {
        self.entry(name).and_then(|entry| entry.value.as_str()).map(str::to_owned)
    }

    /// The text, or a default.
    pub fn text_or(&self, name: &str, default: &str) -> String {
        self.text(name).unwrap_or_else(|| default.to_owned())
    }

    /// The truth value of an attribute.
    pub fn bool(&self, name: &str) -> Option<bool> {
        self.entry(name).and_then(|entry| entry.value.as_scalar()).and_then(Value::as_bool)
    }

    /// The whole number of an attribute.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.entry(name)?.value.as_scalar() {
            Some(Value::Int(number)) => Some(*number),
            // Zuul: a truth value passes for a number.
            Some(Value::Bool(truth)) => Some(i64::from(*truth)),
            _ => None,
        }
    }

    /// Text or list of texts.
    pub fn texts(&self, name: &str) -> Option<Vec<String>> {
        Some(texts_of(&self.entry(name)?.value))
    }

    /// Regular expressions, each compiled to see whether it is one.
    pub fn patterns(&mut self, name: &str, anchor: Anchor) -> Option<Vec<Pattern>> {
        let entry = self.entry(name)?;
        let mut patterns = Vec::new();
        for item in entry.value.items() {
            if let Some(pattern) = pattern_of(item, anchor) {
                patterns.push(self.check_pattern(name, item.start, pattern));
            }
        }
        Some(patterns)
    }

    /// A dictionary as free-form data.
    pub fn map(&self, name: &str) -> Option<BTreeMap<String, Value>> {
        self.entry(name)?.value.as_mapping().map(mapping_value)
    }

    fn wrong_type(&mut self, entry: &Entry, node: &Node, wanted: &str) {
        let message = format!("`{}` of {} must be {wanted}, not {}", entry.key, self.title(), node.kind_name());
        let cure = match (&node.kind, wanted.contains("text")) {
            (NodeKind::Scalar { text, .. }, true) if !text.is_empty() => format!("put it in quotes: \"{text}\""),
            _ => String::new(),
        };
        self.fail("wrong-type", node.start, Some(&entry.key), message, cure);
    }

    fn check_value(&mut self, row: &Attribute, entry: &Entry) {
        let node = &entry.value;
        if let Some(tag) = node.tag
            && (tag == Tag::Encrypted || !row.merge.takes_tags())
            && row.kind != Kind::Special
        {
            let message = format!("the tag {} does not go with `{}` of {}", tag.as_str(), entry.key, self.title());
            self.fail("misplaced-tag", node.start, Some(&entry.key), message, "remove the tag");
        }
        let scalar = node.as_scalar();
        match row.kind {
            Kind::Special => {}
            Kind::Bool => {
                if scalar.and_then(Value::as_bool).is_none() {
                    self.wrong_type(entry, node, "true or false");
                }
            }
            Kind::BoolOr(word) => {
                if scalar.and_then(Value::as_bool).is_none() && node.as_str() != Some(word) {
                    self.wrong_type(entry, node, &format!("true, false or `{word}`"));
                }
            }
            Kind::Int { min } | Kind::IntOrNull { min } => match scalar {
                Some(Value::Int(number)) if *number >= min => {}
                Some(Value::Bool(truth)) if i64::from(*truth) >= min => {}
                Some(Value::Int(number)) => {
                    let message =
                        format!("`{}` of {} is {number}, and must be at least {min}", entry.key, self.title());
                    self.fail("out-of-range", node.start, Some(&entry.key), message, "");
                }
                Some(Value::Null) if matches!(row.kind, Kind::IntOrNull { .. }) => {}
                _ => self.wrong_type(entry, node, "a whole number"),
            },
            Kind::Text => {
                if node.as_str().is_none() {
                    self.wrong_type(entry, node, "text");
                }
            }
            Kind::TextOrNull => {
                if node.as_str().is_none() && !node.is_null() {
                    self.wrong_type(entry, node, "text or null");
                }
            }
            Kind::TextOrNumber => {
                if !matches!(scalar, Some(Value::Str(_) | Value::Int(_) | Value::Number(_))) {
                    self.wrong_type(entry, node, "a text or a number");
                }
            }
            Kind::TextList => {
                let texts = node.as_sequence().is_some_and(|items| items.iter().all(|item| item.as_str().is_some()));
                if !texts {
                    self.wrong_type(entry, node, "a list of texts");
                }
            }
            Kind::Texts => {
                if node.is_null() {
                    self.wrong_type(entry, node, "a text or a list of texts");
                }
                for item in node.items() {
                    if item.as_str().is_none() || (item.tag.is_some() && node.as_sequence().is_some()) {
                        self.wrong_type(entry, item, "a text or a list of texts");
                    }
                }
            }
            Kind::Map => {
                if node.as_mapping().is_none() {
                    self.wrong_type(entry, node, "a dictionary");
                } else if let Some(below) = node.tag_below().filter(|_| self.kind != "secret") {
                    let tag = below.tag.map_or("", Tag::as_str);
                    let message = format!("the tag {tag} stands inside `{}` of {}", entry.key, self.title());
                    let cure = "!override and !inherit go with the whole attribute, encrypted text with secrets";
                    self.fail("misplaced-tag", below.start, Some(&entry.key), message, cure);
                }
            }
            Kind::Choice(words) => {
                if !node.as_str().is_some_and(|text| words.contains(&text)) {
                    let given = node.to_value();
                    let message = format!("`{}` of {} cannot be {given}", entry.key, self.title());
                    let mut cure = format!("choose one of: {}", words.join(", "));
                    if let Some(near) = node.as_str().and_then(|text| did_you_mean(text, words.iter().copied())) {
                        cure = format!("did you mean `{near}`? {cure}");
                    }
                    self.fail("unknown-value", node.start, Some(&entry.key), message, cure);
                }
            }
            Kind::Patterns(anchor) => {
                if node.is_null() {
                    self.wrong_type(entry, node, "a regular expression or a list of them");
                }
                for item in node.items().iter().filter(|item| pattern_of(item, anchor).is_none()) {
                    let key = &entry.key;
                    let message = format!(
                        "`{key}` of {} must hold regular expressions: a text, or a dictionary with `regex` and \
                         `negate`",
                        self.title()
                    );
                    self.fail("wrong-type", item.start, Some(key), message, "");
                }
            }
        }
    }

    /// Reports what is wrong with one regular expression of an attribute.
    pub fn check_pattern(&mut self, attribute: &str, mark: Mark, pattern: Pattern) -> Pattern {
        let (pattern, verdict) = self.sink.patterns.look(pattern);
        match verdict {
            Verdict::Good => {}
            Verdict::Deprecated(why) => self.warn(
                "regex-deprecation",
                "Regex Deprecation",
                mark,
                attribute,
                format!("the regular expression `{}` is not valid RE2: {why}", pattern.regex()),
                "write it without look-around; `{regex: ..., negate: true}` matches what an expression does not",
            ),
            Verdict::Invalid(why) => {
                let message = format!("`{}` is not a regular expression: {why}", pattern.regex());
                self.fail("regex-invalid", mark, Some(attribute), message, "mend it; the syntax is that of RE2");
            }
        }
        pattern
    }
}

/// The texts of a text or list of texts; other items are left out.
pub fn texts_of(node: &Node) -> Vec<String> {
    node.items().iter().filter_map(Node::as_str).map(str::to_owned).collect()
}

/// A pattern: text, or `{regex, negate}`.
pub fn pattern_of(node: &Node, anchor: Anchor) -> Option<Pattern> {
    if let Some(text) = node.as_str() {
        return Some(Pattern::new(text, false, anchor));
    }
    let entries = node.as_mapping()?;
    if entries.iter().any(|entry| entry.key != "regex" && entry.key != "negate") {
        return None;
    }
    let regex = node.get("regex")?.value.as_str()?;
    let negate = match node.get("negate") {
        Some(entry) => entry.value.as_scalar()?.as_bool()?,
        None => false,
    };
    Some(Pattern::new(regex, negate, anchor))
}
