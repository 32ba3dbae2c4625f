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
/// How much of one line is looked through at once.
const SEAM: usize = 4 << 20;
/// How much of a line before such a seam is looked through again after it: what lies across a seam is found unless it is
/// longer than this, in bytes.
const OVERLAP: usize = 2 * LONGEST;
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

/// Where looking goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The line.
    pub(crate) line: u64,
    /// A byte of the console that lies in this line; `None` for the line's first.
    pub(crate) offset: Option<u64>,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) hits: Vec<Hit>,
    /// Where to go on; `None` when everything there is was looked through.
    pub(crate) next: Option<Place>,
}

/// Looks for something from a place on, for as long as one answer may take.
pub(crate) async fn find(console: &Opened, wanted: &Wanted, from: Place, most: usize) -> io::Result<Found> {
    let Some(begin) = console.offset(from.line).await? else {
        // It is not there, or so far away that its lines are not counted yet.
        let known = console.count(super::lines::BUDGET).await?;
        return Ok(Found { hits: Vec::new(), next: (!known.complete).then_some(from) });
    };
    let mut search = Search { wanted, most, number: from.line.max(1), told: false, hits: Vec::new() };
    // What stands before a place within a line is read too: it says that no line begins there.
    let at = from.offset.map_or(begin, |offset| offset.max(begin));
    let mut text = Text { at, bytes: Vec::new(), known: usize::from(at > begin) };
    text.at -= text.known as u64;
    let began = Instant::now();
    let last = at.saturating_add(BUDGET);
    let mut next = text.at;
    loop {
        tokio::task::yield_now().await;
        let chunk = console.source.read_from(next, BLOCK, Duration::ZERO).await?;
        next += chunk.bytes.len() as u64;
        let over = chunk.bytes.is_empty() || chunk.ended;
        let spent = next >= last || began.elapsed() >= TIME;
        // No line ends in what there was before.
        let seen = text.bytes.len();
        text.bytes.extend_from_slice(&chunk.bytes);
        let end = text.bytes.get(seen..).and_then(|new| new.iter().rposition(|byte| *byte == b'\n'));
        let whole = match end {
            _ if over || spent => text.bytes.len(),
            Some(end) => seen + end + 1,
            None if text.bytes.len() >= SEAM => text.bytes.len(),
            None => continue,
        };
        if let Some(place) = search.look(&text, whole, over) {
            return Ok(Found { hits: search.hits, next: Some(place) });
        }
        if over {
            return Ok(Found { hits: search.hits, next: None });
        }
        // The end of a line that is not over stays, to be looked through with what follows.
        let tail = text.bytes.get(..whole).unwrap_or_default();
        let tail = tail.iter().rev().take(OVERLAP + 1).take_while(|byte| **byte != b'\n').count();
        text.known = if tail < whole { usize::from(tail > OVERLAP) } else { text.known };
        text.bytes.drain(..whole - tail);
        text.at += (whole - tail) as u64;
        if spent {
            let place = match search.told {
                // One hit of a line is enough.
                true => Place { line: search.number + 1, offset: None },
                false => Place { line: search.number, offset: Some(text.at + text.known as u64) },
            };
            return Ok(Found { hits: search.hits, next: Some(place) });
        }
    }
}

/// A part of a console in memory.
struct Text {
    /// Where it begins.
    at: u64,
    bytes: Vec<u8>,
    /// How much at its beginning is there only to say what stands before the rest.
    known: usize,
}

struct Search<'w> {
    wanted: &'w Wanted,
    most: usize,
    /// The line that is looked at.
    number: u64,
    /// Whether it was told of already.
    told: bool,
    hits: Vec<Hit>,
}

impl Search<'_> {
    /// Looks through the first `whole` bytes, of which those of the last line may be looked through again. Gives the
    /// place of the first hit that is too much. `over`: nothing follows.
    fn look(&mut self, text: &Text, whole: usize, over: bool) -> Option<Place> {
        let bytes = text.bytes.get(..whole).unwrap_or_default();
        let ends_line = over || bytes.last() == Some(&b'\n');
        let (mut place, mut line_at) = (text.known, 0);
        while place < bytes.len() {
            let Some(hit) = self.wanted.0.find_at(bytes, place) else { break };
            // What ends with what there is may go on, or may be none when something follows.
            if hit.end() == bytes.len() && !ends_line && hit.len() < OVERLAP {
                break;
            }
            let passed = bytes.get(line_at..hit.start()).unwrap_or_default();
            let ends = passed.iter().filter(|byte| **byte == b'\n').count() as u64;
            self.told &= ends == 0;
            self.number += ends;
            line_at = hit.start();
            if !self.told && !hit.is_empty() {
                if self.hits.len() >= self.most {
                    let begin = before(bytes, hit.start());
                    let whole_line = match begin.checked_sub(1) {
                        Some(place) => bytes.get(place) == Some(&b'\n'),
                        None => text.known == 0,
                    };
                    let offset = Some(text.at + begin as u64).filter(|_| !whole_line);
                    return Some(Place { line: self.number, offset });
                }
                self.hits.push(around(bytes, self.number, hit.start(), hit.end()));
                self.told = true;
            }
            // One hit of a line is enough.
            let line_end = bytes.get(hit.start()..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n'));
            place = line_end.map_or(bytes.len(), |end| hit.start() + end + 1);
        }
        let passed = bytes.get(line_at..).unwrap_or_default();
        let ends = passed.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.number += ends;
        self.told &= ends == 0;
        None
    }
}

/// Where what is shown before a hit begins.
fn before(text: &[u8], start: usize) -> usize {
    let before = text.get(..start).unwrap_or_default();
    let begins = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    begins.max(start.saturating_sub(AROUND))
}

/// A hit with some of its line around it.
fn around(text: &[u8], line: u64, start: usize, end: usize) -> Hit {
    let of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let begins = before(text, start);
    let itself = text.get(start..end.min(start + AROUND)).unwrap_or_default();
    let itself = itself.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let after = text.get(start + itself.len()..).unwrap_or_default();
    let after = after.get(..after.len().min(AROUND)).unwrap_or_default();
    let after = after.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Hit { line, before: of(text.get(begins..start).unwrap_or_default()), itself: of(itself), after: of(after) }
}
