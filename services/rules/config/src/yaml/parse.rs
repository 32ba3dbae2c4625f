//! From text to a tree, with limits.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use gatelog_record::Value;
use libyaml_safer::{Event, EventData, Parser, ScalarStyle};

use crate::dialect::Spelling;

use super::error::YamlError;
use super::scalar::{float, integer, resolve_plain};
use super::tree::{Entry, Mark, Node, NodeKind, Tag};

/// Largest file read, in bytes.
pub const MAX_BYTES: usize = 4 << 20;
/// Most nodes in a file, aliases expanded.
pub const MAX_NODES: usize = 500_000;
/// Deepest nesting.
pub const MAX_DEPTH: usize = 60;

/// Ours are counted from 1, for people.
fn mark(at: libyaml_safer::Mark) -> Mark {
    let one = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).saturating_add(1);
    Mark { line: one(at.line), column: one(at.column) }
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
    /// Whether it has anchors: then one part of it may stand for what is in another.
    pub anchors: bool,
    /// How many nodes it has, aliases expanded.
    pub nodes: usize,
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
        let anchors = !builder.anchors.is_empty();
        Ok(Parsed { root, older_tags: builder.older_tags, outdented: Vec::new(), anchors, nodes: builder.nodes })
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

/// The text with a line break at its end, and whether that is added: libyaml-safer 0.3 cannot read a block scalar
/// whose last line has none. A last line of spaces alone says nothing and is cut off.
fn ended(text: &str) -> (Cow<'_, str>, bool) {
    let text = match text.rfind('\n') {
        Some(last) if text.get(last + 1..).is_some_and(|rest| rest.bytes().all(|byte| byte == b' ')) => {
            text.get(..=last).unwrap_or(text)
        }
        _ => text,
    };
    if text.is_empty() || text.ends_with(['\n', '\r']) {
        return (Cow::Borrowed(text), false);
    }
    (Cow::Owned(format!("{text}\n")), true)
}

/// What the parser says, and where.
fn syntax(error: &libyaml_safer::Error, text: &str) -> YamlError {
    use libyaml_safer::ErrorKind;
    let said = error.to_string();
    // `Scanner error: line 3 column 5: found … while … (line 2 column 3)`: the places are told by ours.
    let message = match error.kind() {
        ErrorKind::Scanner | ErrorKind::Parser => {
            let after = said.split_once(": ").and_then(|(_, rest)| rest.split_once(": ")).map(|(_, rest)| rest);
            after
                .unwrap_or(&said)
                .rsplit_once(" (line ")
                .map_or(after.unwrap_or(&said), |(before, _)| before)
                .to_owned()
        }
        _ => said,
    };
    let at = error.problem_mark().map_or_else(|| unreadable(text), mark);
    YamlError::Syntax { message, mark: at }
}

/// The first character that no YAML may hold. Zuul: `ReaderError`.
fn unreadable(text: &str) -> Mark {
    let (mut line, mut column) = (1_u32, 1_u32);
    for character in text.chars() {
        match character {
            '\n' => (line, column) = (line.saturating_add(1), 1),
            '\t' | '\r' | '\u{85}' => column = column.saturating_add(1),
            control if control.is_control() || matches!(control, '\u{fffe}' | '\u{ffff}') => break,
            _ => column = column.saturating_add(1),
        }
    }
    Mark { line, column }
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
    anchor: Option<String>,
    start: Mark,
}

#[derive(Default)]
struct Builder {
    stack: Vec<Frame>,
    /// `None` while the value is still open.
    anchors: BTreeMap<String, Option<Built>>,
    root: Option<Built>,
    nodes: usize,
    documents: usize,
    /// With the depth of the dictionary: Zuul tells the one nearest to the root.
    duplicates: Vec<(usize, YamlError)>,
    /// Whether older tags are known.
    older: bool,
    older_tags: Vec<Mark>,
    /// The length of the text in bytes.
    length: u64,
    /// The end of the newest event.
    reached: Mark,
}

impl Builder {
    /// Reads a text; gives the keys that appear twice.
    fn read(&mut self, text: &str) -> Result<Vec<YamlError>, Vec<YamlError>> {
        if text.len() > MAX_BYTES {
            let mark = Mark { line: 1, column: 1 };
            return Err(vec![YamlError::TooLarge { what: "bytes", limit: MAX_BYTES, mark }]);
        }
        let (text, unended) = ended(text);
        self.length = text.len() as u64;
        let mut bytes = text.as_bytes();
        let mut parser = Parser::new();
        parser.set_input_string(&mut bytes);
        loop {
            // The parser gives up on some texts that no one writes (`[!tag, x]`) by a panic.
            let step = catch_unwind(AssertUnwindSafe(|| parser.parse()));
            let event = match step {
                Ok(Ok(event)) => event,
                Ok(Err(error)) => return Err(self.with(syntax(&error, &text))),
                Err(_) => {
                    let message = "the parser gave up after this place".to_owned();
                    return Err(self.with(YamlError::Syntax { message, mark: self.reached }));
                }
            };
            if matches!(event.data, EventData::StreamEnd) {
                return Ok(self.take_duplicates());
            }
            self.reached = mark(event.end_mark);
            if let Err(error) = self.event(event, unended) {
                return Err(self.with(error));
            }
        }
    }

    /// The tag, or today's for an older one.
    fn modern(&mut self, tag: Option<String>, at: Mark) -> Option<String> {
        if self.older && tag.as_deref() == Some("!encrypted/pkcs1") {
            self.older_tags.push(at);
            return Some("!encrypted/pkcs1-oaep".to_owned());
        }
        tag
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

    fn event(&mut self, event: Event, unended: bool) -> Result<(), YamlError> {
        let (start, end) = (mark(event.start_mark), mark(event.end_mark));
        match event.data {
            EventData::DocumentStart { .. } => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(YamlError::SecondDocument { mark: start });
                }
                Ok(())
            }
            EventData::Alias { anchor } => {
                let built = self.anchors.get(&anchor).cloned().flatten().ok_or(YamlError::BadAlias { mark: start })?;
                self.count(built.weight, start)?;
                // Its marks stay those of the anchor: that is where the text to mend stands.
                self.finish(built, None)
            }
            EventData::Scalar { mut value, style, anchor, tag, .. } => {
                self.count(1, start)?;
                let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                if unended && block && event.end_mark.index >= self.length && value.ends_with('\n') {
                    value.pop();
                }
                let anchor = self.anchored(anchor, start)?;
                let tag = self.modern(tag, start);
                let node = scalar(&value, style, tag.as_deref(), start, end)?;
                self.finish(Built { node, weight: 1 }, anchor)
            }
            EventData::SequenceStart { anchor, tag, .. } => {
                let anchor = self.anchored(anchor, start)?;
                let tag = self.modern(tag, start);
                let tag = collection_tag(tag.as_deref(), "seq", start)?;
                self.open(start)?;
                self.stack.push(Frame::Sequence { items: Vec::new(), weight: 1, open: Open { tag, anchor, start } });
                Ok(())
            }
            EventData::MappingStart { anchor, tag, .. } => {
                let anchor = self.anchored(anchor, start)?;
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
            EventData::SequenceEnd | EventData::MappingEnd => self.close(end),
            // What the library may add has no meaning here.
            _ => Ok(()),
        }
    }

    /// An anchor stands for one value. Zuul: a second one of its name refuses the file.
    fn anchored(&mut self, anchor: Option<String>, mark: Mark) -> Result<Option<String>, YamlError> {
        if let Some(name) = &anchor
            && self.anchors.insert(name.clone(), None).is_some()
        {
            return Err(YamlError::DuplicateAnchor { anchor: name.clone(), mark });
        }
        Ok(anchor)
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

    fn finish(&mut self, built: Built, anchor: Option<String>) -> Result<(), YamlError> {
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, Some(built.clone()));
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

/// A tag as people write it.
fn written(tag: &str) -> String {
    tag.strip_prefix(CORE).map_or_else(|| tag.to_owned(), |core| format!("!!{core}"))
}

fn own_tag(tag: &str) -> Option<Tag> {
    match tag {
        "!override" => Some(Tag::Override),
        "!inherit" => Some(Tag::Inherit),
        "!encrypted/pkcs1-oaep" => Some(Tag::Encrypted),
        _ => None,
    }
}

fn collection_tag(tag: Option<&str>, core: &str, mark: Mark) -> Result<Option<Tag>, YamlError> {
    let Some(tag) = tag else { return Ok(None) };
    if tag == "!" || tag.strip_prefix(CORE) == Some(core) {
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

fn scalar(text: &str, style: ScalarStyle, tag: Option<&str>, start: Mark, end: Mark) -> Result<Node, YamlError> {
    let plain = style == ScalarStyle::Plain;
    let natural = || if plain { resolve_plain(text) } else { Value::Str(text.to_owned()) };
    let wrong =
        |kind: &str, tag: &str| YamlError::MisplacedTag { tag: written(tag), kind: kind.to_owned(), mark: start };
    let mut own = None;
    let value = match tag {
        // YAML 1.1 gives it a meaning that nobody implements.
        None if plain && text == "=" => return Err(YamlError::UnknownTag { tag: text.to_owned(), mark: start }),
        None => natural(),
        Some("!") => Value::Str(text.to_owned()),
        Some(tag) if let Some(core) = tag.strip_prefix(CORE) => match core {
            "str" | "binary" | "timestamp" => Value::Str(text.to_owned()),
            "int" => integer(text).ok_or_else(|| wrong("this text", tag))?,
            "float" => float(text).or_else(|| integer(text)).ok_or_else(|| wrong("this text", tag))?,
            "bool" | "null" => match (resolve_plain(text), core) {
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
                // Zuul: quotes do not make it a string here.
                Some(Tag::Override | Tag::Inherit) => match resolve_plain(text) {
                    value @ Value::Str(_) if text != "=" && text != "<<" => value,
                    _ => return Err(wrong("a value that is no dictionary, list or string", tag)),
                },
            }
        }
    };
    Ok(Node { kind: NodeKind::Scalar { value, text: text.to_owned() }, tag: own, start, end })
}

/// Whether Python's decoder takes it: other characters are passed over, the padding has to be there, and whatever stands
/// behind a complete one is not read.
fn is_base64(text: &str) -> bool {
    if !text.is_ascii() {
        return false;
    }
    // Digits of the group that is open, and the padding since the last of them.
    let (mut digits, mut padding) = (0_u8, 0_u8);
    for byte in text.bytes() {
        match byte {
            b'=' if digits >= 2 => {
                padding += 1;
                if digits + padding >= 4 {
                    return true;
                }
            }
            _ if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/') => {
                (digits, padding) = ((digits + 1) % 4, 0);
            }
            _ => {}
        }
    }
    digits == 0
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
    fn an_anchor_has_one_place() {
        assert_eq!(first_error("a: &x 1\nb: &x 2\n").code(), "yaml-duplicate-anchor");
        assert_eq!(one("a: &x 1\nb: &y 2\nc: [*x, *y]\n").get("c").unwrap().value.to_value().to_string(), "[1,2]");
    }

    #[test]
    fn a_quoted_text_may_go_on_further_to_the_left() {
        let node = one("a:\n  b:\n    c: \"{{\n  x |\n    y }}\"\n");
        let inner = node.get("a").unwrap().value.get("b").unwrap().value.get("c").unwrap();
        assert_eq!(inner.value.as_str(), Some("{{ x | y }}"));
    }

    #[test]
    fn a_last_line_needs_no_end() {
        let text = |yaml: &str| one(yaml).get("a").unwrap().value.as_str().map(str::to_owned);
        for header in ["|", "|-", "|+", ">"] {
            assert_eq!(text(&format!("a: {header}\n  text")).as_deref(), Some("text"), "{header}");
        }
        assert_eq!(text("a: |\n  text\n").as_deref(), Some("text\n"));
        assert_eq!(text("a: |+\n  text\n  ").as_deref(), Some("text\n"));
        assert_eq!(text("a: text").as_deref(), Some("text"));
        assert_eq!(text("a: 'text'").as_deref(), Some("text"));
    }

    #[test]
    fn what_the_parser_cannot_read_is_named_with_its_place() {
        let place = |yaml: &str| {
            let error = first_error(yaml);
            (error.to_string(), error.mark().line, error.mark().column)
        };
        let (said, line, column) = place("a: 1\n b: 2\n");
        assert_eq!(said, "this is not valid YAML: mapping values are not allowed in this context");
        assert_eq!((line, column), (2, 3));
        let (said, line, column) = place("a: 1\nb: x\u{1}y\n");
        assert!(said.contains("control characters are not allowed"), "{said}");
        assert_eq!((line, column), (2, 5));
        let (said, line, _) = place("a: 1\nb: [!x, y]\n");
        assert_eq!((said.as_str(), line), ("this is not valid YAML: the parser gave up after this place", 2));
    }

    #[test]
    fn tags_are_known_or_refused() {
        assert_eq!(one("!override {a: 1}").tag, Some(Tag::Override));
        assert_eq!(one("!encrypted/pkcs1-oaep YWJj").tag, Some(Tag::Encrypted));
        assert_eq!(one("!!str 12").as_str(), Some("12"));
        assert!(matches!(first_error("a: !vault x"), YamlError::UnknownTag { .. }));
        for text in ["5", "no", "'no'", "\"~\"", "''", "=", "'<<'"] {
            let error = first_error(&format!("a: !override {text}"));
            assert!(matches!(error, YamlError::MisplacedTag { .. }), "{text}: {error}");
        }
        assert_eq!(one("!override 'x'").as_str(), Some("x"));
    }

    #[test]
    fn encrypted_text_is_whole_base64() {
        assert!(parse("!encrypted/pkcs1-oaep |\n  YW\n  Jj\n").is_ok());
        assert!(parse("!encrypted/pkcs1-oaep [YQ==, YWI=]").is_ok());
        // Zuul: what follows the padding is nothing, and padding in the midst of text neither.
        for text in ["YQ==abc", "YWI=Y", "Y=WJj"] {
            assert!(parse(&format!("!encrypted/pkcs1-oaep {text}")).is_ok(), "{text}");
        }
        for text in ["abc", "YQ=", "Y", "Y=Q=", "YQ=Y", "\u{e9}"] {
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
