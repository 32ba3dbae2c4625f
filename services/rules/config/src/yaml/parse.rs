//! From text to a tree, with limits.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use gatelog_record::Value;
use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use thiserror::Error;

use crate::dialect::Spelling;

use super::scalar::{float, integer, resolve_plain};
use super::tree::{Entry, Mark, Node, NodeKind, Tag};

/// Largest file read, in bytes.
pub const MAX_BYTES: usize = 4 << 20;
/// Most nodes in a file, aliases expanded.
pub const MAX_NODES: usize = 500_000;
/// Deepest nesting.
pub const MAX_DEPTH: usize = 60;

/// Why a file is not YAML as the language knows it.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum YamlError {
    /// Not YAML.
    #[error("this is not valid YAML: {message}")]
    Syntax {
        /// What the parser says.
        message: String,
        /// Where.
        mark: Mark,
    },
    /// A key appears twice in one mapping. Zuul: `YAMLDuplicateKeyError`, the file is refused.
    #[error("the key `{key}` appears twice in one dictionary (first on line {first})")]
    DuplicateKey {
        /// The key.
        key: String,
        /// Line of its first appearance.
        first: u32,
        /// Where it appears again.
        mark: Mark,
        /// Where the dictionary starts.
        start: Mark,
    },
    /// A tag without a meaning.
    #[error("the tag `{tag}` is unknown")]
    UnknownTag {
        /// The tag.
        tag: String,
        /// Where.
        mark: Mark,
    },
    /// A tag on a value it does not go with.
    #[error("the tag `{tag}` does not go with {kind}")]
    MisplacedTag {
        /// The tag.
        tag: String,
        /// What the value is.
        kind: String,
        /// Where.
        mark: Mark,
    },
    /// Encrypted text that is no base64. Zuul: the file is refused.
    #[error("this encrypted text is cut off: it is not whole base64")]
    Base64 {
        /// Where.
        mark: Mark,
    },
    /// A key that is a list or a dictionary.
    #[error("a dictionary key must be a simple value")]
    KeyNotScalar {
        /// Where.
        mark: Mark,
    },
    /// An alias for an anchor that does not exist or is still open.
    #[error("the alias refers to itself or to an unknown anchor")]
    BadAlias {
        /// Where.
        mark: Mark,
    },
    /// `<<` with something that is not a mapping.
    #[error("the merge key `<<` needs a dictionary or a list of dictionaries")]
    BadMerge {
        /// Where.
        mark: Mark,
    },
    /// A second document.
    #[error("a configuration file holds one YAML document, and here a second one starts")]
    SecondDocument {
        /// Where.
        mark: Mark,
    },
    /// Larger than any sensible configuration.
    #[error("the file is too large: more than {limit} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: usize,
        /// Where the limit was reached.
        mark: Mark,
    },
}

impl YamlError {
    /// Where it is.
    pub fn mark(&self) -> Mark {
        match self {
            YamlError::Syntax { mark, .. }
            | YamlError::DuplicateKey { mark, .. }
            | YamlError::UnknownTag { mark, .. }
            | YamlError::MisplacedTag { mark, .. }
            | YamlError::Base64 { mark }
            | YamlError::KeyNotScalar { mark }
            | YamlError::BadAlias { mark }
            | YamlError::BadMerge { mark }
            | YamlError::SecondDocument { mark }
            | YamlError::TooLarge { mark, .. } => *mark,
        }
    }

    /// The line Zuul tells: that of the dictionary with a repeated key; of anything else it tells none.
    pub fn stanza_line(&self) -> u32 {
        match self {
            YamlError::DuplicateKey { start, .. } => start.line,
            _ => 0,
        }
    }

    /// Stable identifier.
    pub fn code(&self) -> &'static str {
        match self {
            YamlError::Syntax { .. } => "yaml-syntax",
            YamlError::DuplicateKey { .. } => "yaml-duplicate-key",
            YamlError::UnknownTag { .. } => "yaml-unknown-tag",
            YamlError::MisplacedTag { .. } => "yaml-misplaced-tag",
            YamlError::Base64 { .. } => "yaml-base64",
            YamlError::KeyNotScalar { .. } => "yaml-key-not-scalar",
            YamlError::BadAlias { .. } => "yaml-bad-alias",
            YamlError::BadMerge { .. } => "yaml-bad-merge",
            YamlError::SecondDocument { .. } => "yaml-second-document",
            YamlError::TooLarge { .. } => "yaml-too-large",
        }
    }

    /// How to mend it.
    pub fn cure(&self) -> &'static str {
        match self {
            YamlError::Syntax { .. } => "mend the indentation or quoting here; the rest of the file is not read",
            YamlError::DuplicateKey { .. } => "keep one of the two; the file is not read until then",
            YamlError::UnknownTag { .. } => "known tags are !override, !inherit and !encrypted/pkcs1-oaep",
            YamlError::MisplacedTag { .. } => {
                "!override and !inherit go with a dictionary, a list or a string, !encrypted/pkcs1-oaep with text"
            }
            YamlError::Base64 { .. } => "encrypt the secret again and take all of the output",
            YamlError::KeyNotScalar { .. } => {
                "put quotes around a value that starts with a brace, as in \"{{ name }}\""
            }
            YamlError::BadAlias { .. } => "anchors work within one file, and must stand before their aliases",
            YamlError::BadMerge { .. } => "merge an alias of a dictionary, as in `<<: *name`",
            YamlError::SecondDocument { .. } => "remove the `---`, or move what follows to a file of its own",
            YamlError::TooLarge { .. } => "split the file; aliases count as often as they are used",
        }
    }
}

fn mark(span: &Span) -> Mark {
    Mark {
        line: u32::try_from(span.start.line()).unwrap_or(u32::MAX),
        column: u32::try_from(span.start.col()).unwrap_or(u32::MAX).saturating_add(1),
    }
}

fn end_mark(span: &Span) -> Mark {
    Mark {
        line: u32::try_from(span.end.line()).unwrap_or(u32::MAX),
        column: u32::try_from(span.end.col()).unwrap_or(u32::MAX).saturating_add(1),
    }
}

/// Reads one file. Nothing in the file (or only comments) is `None`.
///
/// # Errors
/// Everything that is wrong and could be found: all duplicate keys, or the first other error.
pub fn parse(text: &str) -> Result<Option<Node>, Vec<YamlError>> {
    match parse_lenient(text) {
        Ok((node, duplicates)) if duplicates.is_empty() => Ok(node),
        Ok((_, duplicates)) => Err(duplicates),
        Err(errors) => Err(errors),
    }
}

/// A file, and what of it is older than Zuul 14.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// What it holds.
    pub root: Option<Node>,
    /// Where older tags stand.
    pub older_tags: Vec<Mark>,
    /// Lines that were read as if they were indented by one column more.
    pub outdented: Vec<u32>,
}

/// The same in a spelling.
///
/// # Errors
/// As [`parse`].
pub fn parse_as(text: &str, spelling: Spelling) -> Result<Parsed, Vec<YamlError>> {
    let strict = |text: &str| -> Result<Parsed, Vec<YamlError>> {
        let mut builder = Builder { older: spelling == Spelling::Older, ..Builder::default() };
        let duplicates = builder.read(text)?;
        if !duplicates.is_empty() {
            return Err(duplicates);
        }
        let root = builder.root.map(|built| built.node);
        Ok(Parsed { root, older_tags: builder.older_tags, outdented: Vec::new() })
    };
    let errors = match strict(text) {
        Err(errors) if spelling == Spelling::Older => errors,
        other => return other,
    };
    if !errors.iter().all(|error| matches!(error, YamlError::Syntax { .. })) {
        return Err(errors);
    }
    match outdented(text) {
        Some((mended, lines)) => {
            strict(&mended).map(|parsed| Parsed { outdented: lines, ..parsed }).map_err(|_| errors)
        }
        None => Err(errors),
    }
}

/// The text with further attributes of a list item moved below the first where they stand one column to
/// the left of it, as in a document that gatelog is built from; and which lines these are.
fn outdented(text: &str) -> Option<(String, Vec<u32>)> {
    let mut mended = String::with_capacity(text.len() + 64);
    let mut lines = Vec::new();
    let mut dash: Option<usize> = None;
    for (line, number) in text.split_inclusive('\n').zip(1_u32..) {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let rest = line.trim();
        if rest.starts_with("- ") && rest.contains(':') {
            dash = Some(indent);
        } else if !rest.is_empty() && dash.is_some_and(|dash| indent == dash + 1) {
            lines.push(number);
            mended.push(' ');
        } else if !rest.is_empty() && dash.is_some_and(|dash| indent <= dash) {
            dash = None;
        }
        mended.push_str(line);
    }
    (!lines.is_empty()).then_some((mended, lines))
}

/// The same, but of a repeated key the last counts. Zuul: the tenant file is read like this.
///
/// # Errors
/// The first error that is not a duplicate key.
pub fn parse_lenient(text: &str) -> Result<(Option<Node>, Vec<YamlError>), Vec<YamlError>> {
    let mut builder = Builder::default();
    let duplicates = builder.read(text)?;
    Ok((builder.root.map(|built| built.node), duplicates))
}

/// A finished node and how many nodes it holds.
#[derive(Clone)]
struct Built {
    node: Node,
    weight: usize,
}

enum Frame {
    Sequence { items: Vec<Node>, weight: usize, open: Open },
    Mapping { entries: Vec<Entry>, merges: Vec<Node>, key: Option<Node>, weight: usize, open: Open },
}

struct Open {
    tag: Option<Tag>,
    anchor: usize,
    start: Mark,
}

#[derive(Default)]
struct Builder {
    stack: Vec<Frame>,
    anchors: BTreeMap<usize, Built>,
    root: Option<Built>,
    nodes: usize,
    documents: usize,
    /// With the depth of the dictionary: Zuul tells the one nearest to the root.
    duplicates: Vec<(usize, YamlError)>,
    /// Whether older tags are known.
    older: bool,
    older_tags: Vec<Mark>,
}

impl Builder {
    /// Reads a text; gives the keys that appear twice.
    fn read(&mut self, text: &str) -> Result<Vec<YamlError>, Vec<YamlError>> {
        if text.len() > MAX_BYTES {
            let mark = Mark { line: 1, column: 1 };
            return Err(vec![YamlError::TooLarge { what: "bytes", limit: MAX_BYTES, mark }]);
        }
        for step in Parser::new_from_str(text) {
            let (event, span) = match step {
                Ok(step) => step,
                Err(error) => {
                    let at = error.marker();
                    let mark = Mark {
                        line: u32::try_from(at.line()).unwrap_or(u32::MAX),
                        column: u32::try_from(at.col()).unwrap_or(u32::MAX).saturating_add(1),
                    };
                    return Err(self.with(YamlError::Syntax { message: error.info().to_owned(), mark }));
                }
            };
            if let Err(error) = self.event(event, &span) {
                return Err(self.with(error));
            }
        }
        Ok(self.take_duplicates())
    }

    /// The tag, or today's for an older one.
    fn modern<'t>(&mut self, tag: &'t saphyr_parser::Tag, at: Mark) -> Cow<'t, saphyr_parser::Tag> {
        if !self.older || written(tag) != "!encrypted/pkcs1" {
            return Cow::Borrowed(tag);
        }
        self.older_tags.push(at);
        Cow::Owned(saphyr_parser::Tag {
            suffix: "encrypted/pkcs1-oaep".to_owned(),
            handle: "!".to_owned(),
            ..tag.clone()
        })
    }

    fn with(&mut self, error: YamlError) -> Vec<YamlError> {
        let mut all = self.take_duplicates();
        all.push(error);
        all
    }

    fn take_duplicates(&mut self) -> Vec<YamlError> {
        let mut all = std::mem::take(&mut self.duplicates);
        all.sort_by_key(|(depth, error)| (*depth, error.mark()));
        all.into_iter().map(|(_, error)| error).collect()
    }

    fn count(&mut self, weight: usize, mark: Mark) -> Result<(), YamlError> {
        self.nodes = self.nodes.saturating_add(weight);
        if self.nodes > MAX_NODES {
            return Err(YamlError::TooLarge { what: "values (aliases expanded)", limit: MAX_NODES, mark });
        }
        Ok(())
    }

    fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), YamlError> {
        let start = mark(span);
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(YamlError::SecondDocument { mark: start });
                }
                Ok(())
            }
            Event::Alias(id) => {
                let built = self.anchors.get(&id).cloned().ok_or(YamlError::BadAlias { mark: start })?;
                self.count(built.weight, start)?;
                // Its marks stay those of the anchor: that is where the text to mend stands.
                self.finish(built, 0)
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.count(1, start)?;
                let tag = tag.as_deref().map(|tag| self.modern(tag, start));
                let node = scalar(&text, style, tag.as_deref(), start, end_mark(span))?;
                self.finish(Built { node, weight: 1 }, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                let tag = tag.as_deref().map(|tag| self.modern(tag, start));
                let tag = collection_tag(tag.as_deref(), "seq", start)?;
                self.open(start)?;
                self.stack.push(Frame::Sequence { items: Vec::new(), weight: 1, open: Open { tag, anchor, start } });
                Ok(())
            }
            Event::MappingStart(anchor, tag) => {
                let tag = collection_tag(tag.as_deref(), "map", start)?;
                self.open(start)?;
                self.stack.push(Frame::Mapping {
                    entries: Vec::new(),
                    merges: Vec::new(),
                    key: None,
                    weight: 1,
                    open: Open { tag, anchor, start },
                });
                Ok(())
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(end_mark(span)),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
        }
    }

    fn open(&mut self, start: Mark) -> Result<(), YamlError> {
        self.count(1, start)?;
        if self.stack.len() >= MAX_DEPTH {
            return Err(YamlError::TooLarge { what: "levels of nesting", limit: MAX_DEPTH, mark: start });
        }
        Ok(())
    }

    fn close(&mut self, end: Mark) -> Result<(), YamlError> {
        let (kind, weight, open) = match self.stack.pop() {
            Some(Frame::Sequence { items, weight, open }) => (NodeKind::Sequence(items), weight, open),
            Some(Frame::Mapping { entries, merges, weight, open, .. }) => {
                (NodeKind::Mapping(self.merge(entries, merges, open.start)), weight, open)
            }
            None => return Ok(()),
        };
        let node = Node { kind, tag: open.tag, start: open.start, end };
        if node.tag == Some(Tag::Encrypted)
            && let Some(item) = node.items().iter().find(|item| item.as_str().is_some_and(|text| !is_base64(text)))
        {
            return Err(YamlError::Base64 { mark: item.start });
        }
        self.finish(Built { node, weight }, open.anchor)
    }

    /// Own entries over merged ones, after the check for duplicates among the own.
    fn merge(&mut self, mut own: Vec<Entry>, merges: Vec<Node>, start: Mark) -> Vec<Entry> {
        let before = self.duplicates.len();
        let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
        for entry in &own {
            if let Some(first) = seen.get(entry.key.as_str()) {
                let error = YamlError::DuplicateKey { key: entry.key.clone(), first: *first, mark: entry.mark, start };
                self.duplicates.push((self.stack.len(), error));
            } else {
                seen.insert(&entry.key, entry.mark.line);
            }
        }
        if self.duplicates.len() > before {
            let mut later = BTreeSet::new();
            own.reverse();
            own.retain(|entry| later.insert(entry.key.clone()));
            own.reverse();
        }
        if merges.is_empty() {
            return own;
        }
        let mut taken: BTreeSet<String> = own.iter().map(|entry| entry.key.clone()).collect();
        let mut merged = Vec::new();
        // Of several merged dictionaries the first that has a key wins.
        for node in merges {
            if let NodeKind::Mapping(entries) = node.kind {
                merged.extend(entries.into_iter().filter(|entry| taken.insert(entry.key.clone())));
            }
        }
        merged.extend(own);
        merged
    }

    fn finish(&mut self, built: Built, anchor: usize) -> Result<(), YamlError> {
        if anchor != 0 {
            self.anchors.insert(anchor, built.clone());
        }
        let Built { node, weight } = built;
        match self.stack.last_mut() {
            None => self.root = Some(Built { node, weight }),
            Some(Frame::Sequence { items, weight: sum, .. }) => {
                items.push(node);
                *sum = sum.saturating_add(weight);
            }
            Some(Frame::Mapping { entries, merges, key, weight: sum, .. }) => {
                *sum = sum.saturating_add(weight);
                match key.take() {
                    None => {
                        // libyaml, and so Zuul, takes no empty key.
                        if matches!(&node.kind, NodeKind::Scalar { value: Value::Null, text } if text.is_empty()) {
                            let message = "a key is missing before the colon".to_owned();
                            return Err(YamlError::Syntax { message, mark: node.start });
                        }
                        if !matches!(node.kind, NodeKind::Scalar { .. }) {
                            return Err(YamlError::KeyNotScalar { mark: node.start });
                        }
                        *key = Some(node);
                    }
                    Some(name) => {
                        let NodeKind::Scalar { value: resolved, text } = name.kind else {
                            return Err(YamlError::KeyNotScalar { mark: name.start });
                        };
                        if text == "<<" {
                            match node.kind {
                                NodeKind::Mapping(_) => merges.push(node),
                                NodeKind::Sequence(items) if items.iter().all(|item| item.as_mapping().is_some()) => {
                                    merges.extend(items);
                                }
                                _ => return Err(YamlError::BadMerge { mark: name.start }),
                            }
                        } else {
                            let key = match &resolved {
                                Value::Str(text) => text.clone(),
                                other => other.to_json().to_string().trim_matches('"').to_owned(),
                            };
                            entries.push(Entry { key, resolved, mark: name.start, value: node });
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

const CORE: &str = "tag:yaml.org,2002:";

fn written(tag: &saphyr_parser::Tag) -> String {
    if tag.handle == CORE { format!("!!{}", tag.suffix) } else { format!("{}{}", tag.handle, tag.suffix) }
}

fn own_tag(tag: &saphyr_parser::Tag) -> Option<Tag> {
    match written(tag).as_str() {
        "!override" => Some(Tag::Override),
        "!inherit" => Some(Tag::Inherit),
        "!encrypted/pkcs1-oaep" => Some(Tag::Encrypted),
        _ => None,
    }
}

fn collection_tag(tag: Option<&saphyr_parser::Tag>, core: &str, mark: Mark) -> Result<Option<Tag>, YamlError> {
    let Some(tag) = tag else { return Ok(None) };
    if written(tag) == "!" || (tag.handle == CORE && tag.suffix == core) {
        return Ok(None);
    }
    match own_tag(tag) {
        Some(Tag::Encrypted) if core == "map" => {
            Err(YamlError::MisplacedTag { tag: written(tag), kind: "a dictionary".to_owned(), mark })
        }
        Some(own) => Ok(Some(own)),
        None => Err(YamlError::UnknownTag { tag: written(tag), mark }),
    }
}

fn scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<&saphyr_parser::Tag>,
    start: Mark,
    end: Mark,
) -> Result<Node, YamlError> {
    let plain = style == ScalarStyle::Plain;
    let natural = || if plain { resolve_plain(text) } else { Value::Str(text.to_owned()) };
    let wrong = |kind: &str, tag: &saphyr_parser::Tag| YamlError::MisplacedTag {
        tag: written(tag),
        kind: kind.to_owned(),
        mark: start,
    };
    let mut own = None;
    let value = match tag {
        // YAML 1.1 gives it a meaning that nobody implements.
        None if plain && text == "=" => return Err(YamlError::UnknownTag { tag: text.to_owned(), mark: start }),
        None => natural(),
        Some(tag) if written(tag) == "!" => Value::Str(text.to_owned()),
        Some(tag) if tag.handle == CORE => match tag.suffix.as_str() {
            "str" | "binary" | "timestamp" => Value::Str(text.to_owned()),
            "int" => integer(text).ok_or_else(|| wrong("this text", tag))?,
            "float" => float(text).or_else(|| integer(text)).ok_or_else(|| wrong("this text", tag))?,
            "bool" | "null" => match (resolve_plain(text), tag.suffix.as_str()) {
                (value @ Value::Bool(_), "bool") | (value @ Value::Null, "null") => value,
                _ => return Err(wrong("this text", tag)),
            },
            _ => return Err(YamlError::UnknownTag { tag: written(tag), mark: start }),
        },
        Some(tag) => {
            own = own_tag(tag);
            match own {
                None => return Err(YamlError::UnknownTag { tag: written(tag), mark: start }),
                Some(Tag::Encrypted) if !is_base64(text) => return Err(YamlError::Base64 { mark: start }),
                Some(Tag::Encrypted) => Value::Str(text.to_owned()),
                Some(Tag::Override | Tag::Inherit) => match natural() {
                    value @ Value::Str(_) => value,
                    _ => return Err(wrong("a value that is no dictionary, list or string", tag)),
                },
            }
        }
    };
    Ok(Node { kind: NodeKind::Scalar { value, text: text.to_owned() }, tag: own, start, end })
}

/// Whether Python's decoder takes it: other characters are passed over, the padding has to be there.
fn is_base64(text: &str) -> bool {
    let digits = text.bytes().filter(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/')).count();
    let padding = text.bytes().filter(|b| *b == b'=').count();
    text.is_ascii()
        && match digits % 4 {
            0 => true,
            2 => padding >= 2,
            3 => padding >= 1,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Node {
        parse(text).unwrap().unwrap()
    }

    fn first_error(text: &str) -> YamlError {
        parse(text).unwrap_err().remove(0)
    }

    #[test]
    fn marks_are_counted_from_one() {
        let node = one("- job:\n    name: x\n");
        let entry = &node.as_sequence().unwrap()[0].as_mapping().unwrap()[0];
        assert_eq!(entry.mark, Mark { line: 1, column: 3 });
        assert_eq!(entry.value.get("name").unwrap().value.start, Mark { line: 2, column: 11 });
    }

    #[test]
    fn merge_keys_give_way_to_own_keys() {
        let node = one("a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc:\n  <<: [*a, *b]\n  x: 5\n");
        let merged = node.get("c").unwrap().value.to_value();
        assert_eq!(merged.to_string(), r#"{"x":5,"y":2,"z":4}"#);
    }

    #[test]
    fn duplicate_keys_are_all_named_at_any_depth() {
        let errors = parse("a: {x: 1, x: 2}\na: 3\n").unwrap_err();
        let places: Vec<(u32, u32)> = errors.iter().map(|e| (e.mark().line, e.mark().column)).collect();
        assert_eq!(places, [(2, 1), (1, 11)]);
    }

    #[test]
    fn an_alias_bomb_is_refused_before_it_grows() {
        let mut text = String::from("a: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for level in 1..12 {
            let before = level - 1;
            let aliases = vec![format!("*a{before}"); 10].join(",");
            text.push_str(&format!("b{level}: &a{level} [{aliases}]\n"));
        }
        assert!(matches!(first_error(&text), YamlError::TooLarge { .. }));
    }

    #[test]
    fn deep_nesting_is_refused() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(parse(&nested(MAX_DEPTH)).is_ok());
        assert!(matches!(first_error(&nested(MAX_DEPTH + 1)), YamlError::TooLarge { .. }));
        // Far beyond it the parser gives up by itself.
        assert!(parse(&"[".repeat(100_000)).is_err());
        assert!(parse(&"- ".repeat(10_000)).is_err());
    }

    #[test]
    fn an_anchor_cannot_hold_itself() {
        assert!(matches!(first_error("a: &a [*a]\n"), YamlError::BadAlias { .. }));
    }

    #[test]
    fn tags_are_known_or_refused() {
        assert_eq!(one("!override {a: 1}").tag, Some(Tag::Override));
        assert_eq!(one("!encrypted/pkcs1-oaep YWJj").tag, Some(Tag::Encrypted));
        assert_eq!(one("!!str 12").as_str(), Some("12"));
        assert!(matches!(first_error("a: !vault x"), YamlError::UnknownTag { .. }));
        assert!(matches!(first_error("a: !override 5"), YamlError::MisplacedTag { .. }));
    }

    #[test]
    fn encrypted_text_is_whole_base64() {
        assert!(parse("!encrypted/pkcs1-oaep |\n  YW\n  Jj\n").is_ok());
        assert!(parse("!encrypted/pkcs1-oaep [YQ==, YWI=]").is_ok());
        for text in ["abc", "YQ=", "Y", "\u{e9}"] {
            assert_eq!(first_error(&format!("!encrypted/pkcs1-oaep {text}")).code(), "yaml-base64", "{text}");
        }
        assert_eq!(first_error("!encrypted/pkcs1-oaep [YQ==, abc]").code(), "yaml-base64");
    }

    #[test]
    fn a_key_has_a_name_and_an_equals_sign_no_meaning() {
        assert_eq!(first_error("- : x\n").code(), "yaml-syntax");
        assert_eq!(first_error("a: =\n").code(), "yaml-unknown-tag");
        assert_eq!(one("a: '='\n\"\": x\n").get("").unwrap().value.as_str(), Some("x"));
    }

    #[test]
    fn an_unquoted_jinja_expression_is_explained() {
        assert_eq!(first_error("a: {{ b }}").code(), "yaml-key-not-scalar");
    }
}
