//! Hides secrets in what a build writes, before it is kept: on the console, in results, in what goes onto the log.
//!
//! A secret is looked for as it is, line by line where it has several, and in the forms in which programs write it:
//! base64 at each of its three alignments, hexadecimal, percent-encoded, as a JSON string (also in one more). Of long
//! forms fragments count too: base64 is wrapped at 76 characters. What somebody writes in another form, compressed or a
//! letter at a time, is not found.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use gatelog_record::Value;

/// What stands in a secret's place.
pub(crate) const MASKED: &str = "[masked]";
/// Shorter values, in bytes, are no secrets: half of every text would be hidden.
const SHORTEST: usize = 4;
/// Shorter lines of a secret with several, in bytes, are not looked for by themselves.
const SHORTEST_LINE: usize = 8;
/// So many bytes of a long form find it; what lies beside them is compared then.
const ANCHOR: usize = 8;
/// The most anchors of one form: those of a very long one stand further apart.
const ANCHORS: usize = 1024;
/// The most anchors of one form that are alike: a form that repeats itself is not compared at each of its places.
const ALIKE: usize = 4;
/// The least fragment, in bytes, of a form without blanks, and of one that is text: parts of that occur elsewhere.
const FRAGMENT: usize = 12;
const FRAGMENT_OF_TEXT: usize = 24;

/// The secrets of one build. More may become known while it runs.
pub(crate) struct Mask {
    known: RwLock<Known>,
    found: AtomicBool,
    /// Whether that was since somebody looked last.
    fresh: AtomicBool,
}

#[derive(Default)]
struct Known {
    values: BTreeSet<String>,
    patterns: Option<Arc<Patterns>>,
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mask")
    }
}

impl Mask {
    /// Looks for these values.
    pub(crate) fn new(values: impl IntoIterator<Item = String>) -> Mask {
        let mask = Mask { known: RwLock::default(), found: AtomicBool::new(false), fresh: AtomicBool::new(false) };
        mask.add(values);
        mask
    }

    /// Looks for these values too.
    pub(crate) fn add(&self, values: impl IntoIterator<Item = String>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let before = known.values.len();
        known.values.extend(values.into_iter().filter(|value| value.trim().len() >= SHORTEST));
        if known.values.len() > before {
            known.patterns = Patterns::of(&known.values).map(Arc::new);
        }
    }

    /// Whether a secret was found anywhere so far.
    pub(crate) fn has_found(&self) -> bool {
        self.found.load(Ordering::Relaxed)
    }

    /// Whether one was found since this was asked last.
    pub(crate) fn take_found(&self) -> bool {
        self.fresh.swap(false, Ordering::Relaxed)
    }

    /// Whether there is anything to look for.
    pub(crate) fn is_needed(&self) -> bool {
        self.patterns().is_some()
    }

    fn patterns(&self) -> Option<Arc<Patterns>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).patterns.clone()
    }

    /// The bytes without secrets.
    pub(crate) fn bytes<'t>(&self, bytes: &'t [u8]) -> Cow<'t, [u8]> {
        let Some(patterns) = self.patterns() else { return Cow::Borrowed(bytes) };
        let places = patterns.places(bytes);
        if places.is_empty() {
            return Cow::Borrowed(bytes);
        }
        self.found.store(true, Ordering::Relaxed);
        self.fresh.store(true, Ordering::Relaxed);
        let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
        for (from, to) in places {
            out.extend_from_slice(bytes.get(at..from).unwrap_or_default());
            out.extend_from_slice(MASKED.as_bytes());
            at = to;
        }
        out.extend_from_slice(bytes.get(at..).unwrap_or_default());
        Cow::Owned(out)
    }

    /// The text without secrets.
    pub(crate) fn text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.bytes(text.as_bytes())).into_owned()
    }

    /// A line of JSON without secrets, which is JSON still.
    pub(crate) fn json<'t>(&self, line: &'t [u8]) -> Cow<'t, [u8]> {
        let Cow::Owned(masked) = self.bytes(line) else { return Cow::Borrowed(line) };
        if serde_json::from_slice::<&serde_json::value::RawValue>(&masked).is_ok() {
            return Cow::Owned(masked);
        }
        // A number is a secret, or a fragment ended within `\n`.
        match serde_json::from_slice::<serde_json::Value>(line) {
            Ok(value) => Cow::Owned(self.json_value(value).to_string().into_bytes()),
            Err(_) => Cow::Owned(masked),
        }
    }

    fn json_value(&self, value: serde_json::Value) -> serde_json::Value {
        use serde_json::Value as Json;
        match value {
            Json::String(text) => Json::String(self.text(&text)),
            Json::Number(number) => {
                let (text, masked) = (number.to_string(), self.text(&number.to_string()));
                if text == masked { Json::Number(number) } else { Json::String(masked) }
            }
            Json::Array(items) => items.into_iter().map(|item| self.json_value(item)).collect(),
            Json::Object(map) => {
                map.into_iter().map(|(name, item)| (self.text(&name), self.json_value(item))).collect()
            }
            other => other,
        }
    }

    /// The value without secrets.
    pub(crate) fn value(&self, value: &Value) -> Value {
        match value {
            Value::Str(text) => Value::Str(self.text(text)),
            Value::Int(number) => {
                let (text, masked) = (number.to_string(), self.text(&number.to_string()));
                if text == masked { value.clone() } else { Value::Str(masked) }
            }
            Value::Number(text) => {
                let masked = self.text(text);
                if *text == masked { value.clone() } else { Value::Str(masked) }
            }
            Value::List(items) => Value::List(items.iter().map(|item| self.value(item)).collect()),
            Value::Map(map) => Value::Map(map.iter().map(|(name, item)| (self.text(name), self.value(item))).collect()),
            Value::Null | Value::Bool(_) => value.clone(),
        }
    }
}

/// The texts in a value that was not encrypted and is secret as a whole: those that are long enough not to be words that
/// stand everywhere.
pub(crate) fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Str(text) => Some(text).filter(|text| text.len() >= SHORTEST_LINE).into_iter().cloned().collect(),
        Value::List(items) => items.iter().flat_map(texts).collect(),
        Value::Map(map) => map.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Number(_) => Vec::new(),
    }
}

/// A way in which a secret is written.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Form {
    bytes: Vec<u8>,
    /// The least fragment that counts; of a shorter form, all of it.
    least: usize,
}

struct Patterns {
    automaton: AhoCorasick,
    forms: Vec<Form>,
    /// Of each pattern, its form and where in that it stands.
    anchors: Vec<(usize, usize)>,
}

impl Patterns {
    /// `None` where there is nothing to look for.
    fn of(values: &BTreeSet<String>) -> Option<Patterns> {
        let forms: BTreeSet<Form> = values.iter().flat_map(|value| forms(value)).collect();
        let forms: Vec<Form> = forms.into_iter().collect();
        let (mut anchors, mut patterns) = (Vec::new(), Vec::new());
        for (index, form) in forms.iter().enumerate() {
            if form.bytes.len() < form.least.max(2 * ANCHOR) {
                anchors.push((index, 0));
                patterns.push(form.bytes.as_slice());
                continue;
            }
            let apart = ANCHOR.max(form.bytes.len().div_ceil(ANCHORS));
            let mut alike: BTreeMap<&[u8], usize> = BTreeMap::new();
            for (at, piece) in form.bytes.chunks(apart).enumerate() {
                let Some(anchor) = piece.get(..ANCHOR) else { continue };
                let count = alike.entry(anchor).or_default();
                *count += 1;
                if *count <= ALIKE {
                    anchors.push((index, at * apart));
                    patterns.push(anchor);
                }
            }
        }
        if patterns.is_empty() {
            return None;
        }
        let mut builder = AhoCorasick::builder();
        // One that is too large cannot be: what a build's secrets may hold together is bounded.
        let automaton =
            builder.match_kind(MatchKind::Standard).kind(Some(AhoCorasickKind::ContiguousNFA)).build(&patterns).ok()?;
        Some(Patterns { automaton, forms, anchors })
    }

    /// Where secrets stand: from, to; in order, none touching another.
    fn places(&self, bytes: &[u8]) -> Vec<(usize, usize)> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        // Of each form, where it would begin and how far it was found there.
        let mut last: BTreeMap<usize, (isize, usize)> = BTreeMap::new();
        for hit in self.automaton.find_overlapping_iter(bytes) {
            let Some((index, offset)) = self.anchors.get(hit.pattern().as_usize()) else { continue };
            let Some(form) = self.forms.get(*index) else { continue };
            let begin = hit.start().cast_signed() - offset.cast_signed();
            if last.get(index).is_some_and(|(there, to)| *there == begin && hit.end() <= *to) {
                continue;
            }
            let before = |count: usize| bytes.get(..hit.start()).unwrap_or_default().iter().rev().take(count);
            let of_form = form.bytes.get(..*offset).unwrap_or_default().iter().rev();
            let left = before(*offset).zip(of_form).take_while(|(one, other)| one == other).count();
            let after = bytes.get(hit.end()..).unwrap_or_default().iter();
            let of_form = form.bytes.get(offset + hit.len()..).unwrap_or_default().iter();
            let right = after.zip(of_form).take_while(|(one, other)| one == other).count();
            last.insert(*index, (begin, hit.end() + right));
            if left + hit.len() + right >= form.least.min(form.bytes.len()) {
                found.push((hit.start() - left, hit.end() + right));
            }
        }
        found.sort_unstable();
        let mut merged: Vec<(usize, usize)> = Vec::with_capacity(found.len());
        for (from, to) in found {
            match merged.last_mut() {
                Some((_, end)) if from <= *end => *end = to.max(*end),
                _ => merged.push((from, to)),
            }
        }
        merged
    }
}

/// The ways in which a value is written.
fn forms(value: &str) -> Vec<Form> {
    let value = value.trim();
    let least = least_of(value);
    let as_text = |text: String| Form { bytes: text.into_bytes(), least };
    let quoted = escaped(value);
    let mut forms = vec![
        as_text(escaped(&quoted)),
        as_text(percent(value, false)),
        as_text(percent(value, true)),
        as_text(url::form_urlencoded::byte_serialize(value.as_bytes()).collect()),
        as_text(value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")),
        as_text(quoted),
        as_text(ascii(value)),
    ];
    if value.contains('\n') {
        // On a console something stands between its lines.
        forms.retain(|form| !form.bytes.contains(&b'\n'));
        let lines = value.lines().map(str::trim);
        let lines = lines.filter(|line| line.len() >= SHORTEST_LINE && !line.starts_with("-----"));
        forms.extend(lines.map(|line| Form { bytes: line.into(), least: least_of(line) }));
    } else {
        forms.push(as_text(value.to_owned()));
    }
    let encoded = |text: String| Form { bytes: text.into_bytes(), least: FRAGMENT };
    let hexadecimal: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    forms.extend([encoded(hexadecimal.to_uppercase()), encoded(hexadecimal)]);
    for shift in 0..3 {
        forms.extend(base64_at(value.as_bytes(), shift).map(encoded));
    }
    forms
}

fn least_of(text: &str) -> usize {
    if text.contains(char::is_whitespace) { FRAGMENT_OF_TEXT } else { FRAGMENT }
}

/// Base64 of a value that begins so many bytes after one whose number is a multiple of three: the characters that are
/// the value's alone. In both alphabets.
fn base64_at(value: &[u8], shift: usize) -> impl Iterator<Item = String> {
    let shifted: Vec<u8> = std::iter::repeat_n(0, shift).chain(value.iter().copied()).collect();
    let (first, last) = ((shift * 8).div_ceil(6), shifted.len() * 8 / 6);
    let own = move |text: String| text.get(first..last).filter(|own| own.len() > SHORTEST).map(str::to_owned);
    [STANDARD.encode(&shifted), URL_SAFE.encode(&shifted)].into_iter().filter_map(own)
}

/// As it stands in a JSON string.
fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_owned()
}

/// As Python's `json.dumps` writes it: in ASCII.
fn ascii(text: &str) -> String {
    let mut out = String::new();
    for letter in escaped(text).chars() {
        if letter.is_ascii() {
            out.push(letter);
        } else {
            let mut units = [0; 2];
            out.extend(letter.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    out
}

/// Percent-encoded but for what RFC 3986 reserves for nothing, and `/` where it is wanted.
fn percent(text: &str, slash: bool) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            b'/' if slash => out.push('/'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "s3cr3t/Token+with&marks \"and\" umlauts \u{e4}";

    fn mask(value: &str) -> Mask {
        Mask::new([value.to_owned()])
    }

    /// Every run of so many bytes of the one does not stand in the other.
    fn holds_no(text: &str, secret: &str, run: usize) -> bool {
        !secret.as_bytes().windows(run).any(|part| text.as_bytes().windows(run).any(|other| other == part))
    }

    #[test]
    fn a_secret_is_hidden_in_every_form_in_which_programs_write_it() {
        let forms = [
            TOKEN.to_owned(),
            escaped(TOKEN),
            escaped(&escaped(TOKEN)),
            STANDARD.encode(TOKEN),
            STANDARD.encode(format!("x{TOKEN}y")),
            STANDARD.encode(format!("user:{TOKEN}\n")),
            URL_SAFE.encode(TOKEN),
            percent(TOKEN, false),
            percent(TOKEN, true),
            url::form_urlencoded::byte_serialize(TOKEN.as_bytes()).collect(),
            ascii(TOKEN),
            TOKEN.bytes().map(|byte| format!("{byte:02x}")).collect(),
            TOKEN.bytes().map(|byte| format!("{byte:02X}")).collect(),
        ];
        for form in forms {
            let masked = mask(TOKEN).text(&format!("before {form} after"));
            assert!(masked.starts_with("before ") && masked.ends_with(" after"), "{masked}");
            assert!(masked.contains(MASKED) && holds_no(&masked, &form, 12), "{form} became {masked}");
        }
        assert_eq!(mask("hunter22").text("password=hunter22;hunter2"), "password=[masked];hunter2");
        assert_eq!(mask("abc").text("abc"), "abc", "too short to be a secret");
        assert_eq!(Mask::new([]).text("anything"), "anything");
    }

    #[test]
    fn what_is_wrapped_or_has_several_lines_is_hidden_line_by_line() {
        let key: String = (0..12).map(|line| format!("{}{line:02}\n", "aB3/xY9+".repeat(7 + line % 2))).collect();
        let key = format!("-----BEGIN PRIVATE KEY-----\n{key}-----END PRIVATE KEY-----\n");
        let console: String = key.lines().map(|line| format!("2026-11-26 10:20:06.123456 | n1 | {line}\n")).collect();
        let masked = mask(&key).text(&console);
        assert!(masked.lines().all(|line| line.ends_with(" | n1 | [masked]")), "{masked}");
        assert!(holds_no(&masked, "aB3/xY9+aB3/", 12), "{masked}");
        for wrapped in [STANDARD.encode(&key), STANDARD.encode(format!("machine x password {key}"))] {
            let lines: Vec<&str> =
                wrapped.as_bytes().chunks(76).map(|part| std::str::from_utf8(part).unwrap()).collect();
            let masked = mask(&key).text(&lines.join("\n"));
            let inner = masked.lines().skip(1).take(lines.len() - 3).all(|line| line == MASKED);
            assert!(inner, "{masked}");
        }
        let token = "tok_0123456789abcdefghijklmnopqrstuvwxyz";
        let folded: Vec<&str> = token.as_bytes().chunks(20).map(|part| std::str::from_utf8(part).unwrap()).collect();
        assert_eq!(mask(token).text(&folded.join("\n")), "[masked]\n[masked]");
    }

    #[test]
    fn json_stays_json_and_numbers_that_are_secrets_become_text() {
        let mask = Mask::new(["12345678".to_owned(), "hunter22".to_owned()]);
        let masked = mask.json(br#"{"pin": 12345678, "more": ["x hunter22", 1, null], "hunter22": true}"#);
        let masked: serde_json::Value = serde_json::from_slice(&masked).unwrap();
        let expected = serde_json::json!({"pin": MASKED, "more": ["x [masked]", 1, null], "[masked]": true});
        assert_eq!(masked, expected);
        assert!(mask.has_found());
        let value = Value::from_json(&serde_json::json!({"a": 12345678, "b": ["hunter22"]}));
        assert_eq!(mask.value(&value), Value::from_json(&serde_json::json!({"a": MASKED, "b": [MASKED]})));
    }

    #[test]
    fn what_becomes_known_later_is_hidden_from_then_on() {
        let mask = mask("hunter22");
        assert_eq!(mask.text("correct horse"), "correct horse");
        assert!(!mask.has_found());
        mask.add(["correct horse".to_owned()]);
        assert_eq!(mask.text("correct horse, hunter22"), "[masked], [masked]");
    }
}
