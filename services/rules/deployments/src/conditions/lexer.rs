//! From text to tokens.

use serde_json::{Number, Value};

use crate::fault::Fault;

/// How a condition is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// As Fuel does.
    #[default]
    Fuel,
    /// Nothing passed over; `api.…` and comparisons known.
    Strict,
}

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A number, a text, true, false, null.
    Scalar(Value),
    /// `model:a.b.c`.
    Path(String),
    /// `api.name`.
    Api(String),
    /// A word or sign of the language.
    Word(&'static str),
}

/// A token and where it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// Byte at which it starts.
    pub at: usize,
}

impl Token {
    /// The token as Fuel names it in errors.
    pub fn said(&self) -> String {
        match &self.kind {
            Kind::Scalar(Value::String(text)) => text.clone(),
            Kind::Scalar(value) => crate::values::python(value),
            Kind::Path(path) => path.clone(),
            Kind::Api(name) => format!("api.{name}"),
            Kind::Word(word) => (*word).to_owned(),
        }
    }
}

/// Signs and words after scalars and paths, longest first.
const WORDS: &[&str] = &["and", "not", "or", "in", "==", "!=", "(", ")"];
const STRICT_WORDS: &[&str] = &["<=", ">=", "<", ">", ","];

/// All tokens.
///
/// # Errors
/// [`Fault::Syntax`] for what is no token, if that is not passed over.
pub fn tokens(text: &str, reading: Reading) -> Result<Vec<Token>, Fault> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with([' ', '\t', '\r', '\n']) {
            at += 1;
            continue;
        }
        if let Some((kind, length)) = token(rest, reading) {
            tokens.push(Token { kind, at });
            at += length;
            continue;
        }
        let unknown = rest.chars().next().unwrap_or(' ');
        if reading == Reading::Strict {
            let column = text.get(..at).map_or(0, |before| before.chars().count()) + 1;
            return Err(Fault::Syntax { said: unknown.to_string(), column });
        }
        at += unknown.len_utf8();
    }
    Ok(tokens)
}

fn token(rest: &str, reading: Reading) -> Option<(Kind, usize)> {
    if let Some(found) = number(rest).or_else(|| quoted(rest)) {
        return Some(found);
    }
    if reading == Reading::Strict {
        if let Some(found) = api(rest) {
            return Some(found);
        }
        // A word has to end where it ends.
        let length = rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        let word = rest.get(..length).unwrap_or("");
        if !word.is_empty() && !rest.get(length..).unwrap_or("").starts_with(':') {
            return constant(word)
                .filter(|(_, found)| *found == length)
                .or_else(|| WORDS.iter().find(|known| **known == word).map(|known| (Kind::Word(known), length)));
        }
        return path(rest).or_else(|| sign(rest, STRICT_WORDS)).or_else(|| sign(rest, WORDS));
    }
    constant(rest).or_else(|| path(rest)).or_else(|| sign(rest, WORDS))
}

/// `-?\d+`
fn number(rest: &str) -> Option<(Kind, usize)> {
    let sign = usize::from(rest.starts_with('-'));
    let digits = rest.bytes().skip(sign).take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return None;
    }
    let text = rest.get(..sign + digits)?;
    let number = text.parse::<i64>().ok().map(Number::from).or_else(|| serde_json::from_str(text).ok());
    Some((Kind::Scalar(Value::Number(number.unwrap_or_else(|| 0.into()))), sign + digits))
}

/// Between quotes, up to the next of the same; no escapes, no line breaks.
fn quoted(rest: &str) -> Option<(Kind, usize)> {
    let quote = rest.chars().next().filter(|first| matches!(first, '"' | '\''))?;
    let inner = rest.get(1..)?;
    let end = inner.find([quote, '\n']).filter(|end| inner.get(*end..).is_some_and(|tail| tail.starts_with(quote)))?;
    Some((Kind::Scalar(Value::String(inner.get(..end)?.to_owned())), end + 2))
}

/// True, false and null. Fuel: whatever follows them, so `trueish` is true.
fn constant(rest: &str) -> Option<(Kind, usize)> {
    let known = [("true", Value::Bool(true)), ("false", Value::Bool(false)), ("null", Value::Null)];
    known.into_iter().find(|(word, _)| rest.starts_with(word)).map(|(word, value)| (Kind::Scalar(value), word.len()))
}

/// `\w*:[\w.-]+`
fn path(rest: &str) -> Option<(Kind, usize)> {
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let model = rest.bytes().take_while(word).count();
    if rest.as_bytes().get(model) != Some(&b':') {
        return None;
    }
    let tail = rest.bytes().skip(model + 1).take_while(|byte| word(byte) || matches!(byte, b'.' | b'-')).count();
    let length = model + 1 + tail;
    (tail > 0).then(|| rest.get(..length).map(|path| (Kind::Path(path.to_owned()), length))).flatten()
}

/// `api.name`
fn api(rest: &str) -> Option<(Kind, usize)> {
    let name = rest.strip_prefix("api.")?;
    let length = name.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    (length > 0).then(|| name.get(..length).map(|name| (Kind::Api(name.to_owned()), length + 4))).flatten()
}

fn sign(rest: &str, known: &[&'static str]) -> Option<(Kind, usize)> {
    known.iter().find(|word| rest.starts_with(**word)).map(|word| (Kind::Word(word), word.len()))
}
