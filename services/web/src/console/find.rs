//! Looking for text in a console.

use std::io;
use std::time::Duration;

use regex::bytes::{Regex, RegexBuilder};
use tokio::time::Instant;

use super::index::BLOCK;
use super::lines::Opened;
use crate::error::ApiError;

/// The longest text or pattern that is looked for, in bytes.
const LONGEST: usize = 500;
/// The most memory a pattern may need, in bytes.
const PATTERN: usize = 1 << 20;
/// The most hits of one answer.
pub(crate) const MOST: usize = 500;
/// The most that is looked through for one answer, in bytes and in time: who wants more asks again.
const BUDGET: u64 = 1 << 30;
const TIME: Duration = Duration::from_secs(2);
/// How much of one line is looked through at once; a hit across such a seam is not found.
const SEAM: usize = 4 << 20;
/// How much is shown before and after a hit, in bytes.
const AROUND: usize = 120;

/// What is looked for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted(Regex);

impl Wanted {
    /// A text, or a regular expression; both without regard to case.
    pub(crate) fn read(text: &str, regex: bool) -> Result<Wanted, ApiError> {
        if text.is_empty() || text.len() > LONGEST {
            return Err(ApiError::BadRequest(format!("what is looked for has 1 to {LONGEST} bytes")));
        }
        let pattern = if regex { text.to_owned() } else { regex::escape(text) };
        RegexBuilder::new(&pattern)
            .case_insensitive(true)
            .multi_line(true)
            .size_limit(PATTERN)
            .dfa_size_limit(PATTERN)
            .build()
            .map(Wanted)
            .map_err(|error| {
                let why = error.to_string();
                let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                ApiError::BadRequest(format!(
                    "{text:?} is no regular expression: {why}; leave regex out to look for it as text"
                ))
            })
    }
}

/// A line where it was found.
#[derive(Debug)]
pub(crate) struct Hit {
    pub(crate) line: u64,
    /// What stands before it, itself, what stands after it; cut.
    pub(crate) before: String,
    pub(crate) itself: String,
    pub(crate) after: String,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) hits: Vec<Hit>,
    /// The line to go on from; `None` when everything there is was looked through.
    pub(crate) next: Option<u64>,
}

/// Looks for something from a line on.
pub(crate) async fn find(console: &Opened, wanted: &Wanted, from: u64, most: usize) -> io::Result<Found> {
    let (mut at, mut number) = match console.offset(from).await? {
        Some(at) => (at, from.max(1)),
        // It is not there, or so far away that its lines are not counted yet.
        None => {
            let known = console.count(super::lines::BUDGET).await?;
            return Ok(Found { hits: Vec::new(), next: (!known.complete).then_some(from) });
        }
    };
    let began = Instant::now();
    let last = at.saturating_add(BUDGET);
    let mut found = Found::default();
    let mut rest: Vec<u8> = Vec::new();
    // Whether the line that `rest` begins with was told of already.
    let mut told = false;
    loop {
        if at >= last || began.elapsed() >= TIME {
            // A line looked through in part is looked through again, unless it was all of this answer.
            found.next = Some(number + u64::from(told || number == from));
            return Ok(found);
        }
        let chunk = console.source.read_from(at, BLOCK, Duration::ZERO).await?;
        at += chunk.bytes.len() as u64;
        let over = chunk.bytes.is_empty() || chunk.ended;
        rest.extend_from_slice(&chunk.bytes);
        let whole = match rest.iter().rposition(|byte| *byte == b'\n') {
            _ if over => rest.len(),
            Some(last) => last + 1,
            None if rest.len() >= SEAM => rest.len(),
            None => 0,
        };
        let text = rest.get(..whole).unwrap_or_default();
        let (mut place, mut line_at) = (0, 0);
        while place < text.len() {
            let Some(hit) = wanted.0.find_at(text, place) else { break };
            let passed = text.get(line_at..hit.start()).unwrap_or_default();
            let ends = passed.iter().filter(|byte| **byte == b'\n').count() as u64;
            if ends > 0 {
                told = false;
            }
            number += ends;
            line_at = hit.start();
            let line_end = text.get(hit.start()..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n'));
            if !told && !hit.is_empty() {
                if found.hits.len() >= most {
                    found.next = Some(number);
                    return Ok(found);
                }
                found.hits.push(around(text, number, hit.start(), hit.end()));
                told = true;
            }
            // One hit of a line is enough.
            place = match line_end {
                Some(end) => hit.start() + end + 1,
                None => text.len(),
            };
        }
        let passed = text.get(line_at..).unwrap_or_default();
        let ends = passed.iter().filter(|byte| **byte == b'\n').count() as u64;
        number += ends;
        told &= ends == 0;
        rest.drain(..whole);
        if over {
            return Ok(found);
        }
        tokio::task::yield_now().await;
    }
}

/// A hit with some of its line around it.
fn around(text: &[u8], line: u64, start: usize, end: usize) -> Hit {
    let of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let before = text.get(..start).unwrap_or_default();
    let begins = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let begins = begins.max(start.saturating_sub(AROUND));
    let itself = text.get(start..end.min(start + AROUND)).unwrap_or_default();
    let itself = itself.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let after = text.get(start + itself.len()..).unwrap_or_default();
    let after = after.get(..after.len().min(AROUND)).unwrap_or_default();
    let after = after.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Hit { line, before: of(text.get(begins..start).unwrap_or_default()), itself: of(itself), after: of(after) }
}
