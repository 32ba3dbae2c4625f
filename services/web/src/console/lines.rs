//! Lines of a console by their number: a bounded part of it, however long it or one of its lines is.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gatelog_record::BuildId;
use tokio::time::Instant;

use super::index::{BLOCK, Index};
use crate::error::ApiError;
use crate::reading::App;
use crate::site::ConsoleSource;

/// The most lines one answer has.
pub(crate) const MOST: usize = 1_000;
/// How much of a line is taken; the rest is in the raw text only.
pub(crate) const HEAD: usize = 16 << 10;
/// The most that is read for the lines of one answer, in bytes.
const READ: usize = 4 << 20;
/// The most text one answer has, in bytes.
const TEXT: usize = 512 << 10;
/// The most that is read to count lines for one answer, in bytes: who wants more asks again.
pub(crate) const BUDGET: u64 = 256 << 20;
/// How much before the first line is looked at for the colour it begins with.
const COLOUR: u64 = 4 << 10;
/// How long an answer waits for a line that has not come yet.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it rests while parts of a line come in.
const REST: Duration = Duration::from_millis(100);
/// How many consoles' indexes are kept.
const KEPT: usize = 64;

/// One line.
#[derive(Debug)]
pub(crate) struct Line {
    /// Which, from 1.
    pub(crate) number: u64,
    /// Where it begins, in bytes.
    pub(crate) offset: u64,
    /// Its beginning.
    pub(crate) head: Vec<u8>,
    /// How long it is, in bytes and without its end; `None` while that is not known.
    pub(crate) length: Option<u64>,
}

impl Line {
    /// Whether there is more of it than its beginning.
    pub(crate) fn cut(&self) -> bool {
        self.length.is_none_or(|length| length > self.head.len() as u64)
    }
}

/// A part of a console.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) lines: Vec<Line>,
    /// What was said just before, for its colours.
    pub(crate) before: Vec<u8>,
    /// The line to go on from.
    pub(crate) next: u64,
    /// How many lines and bytes are known of.
    pub(crate) known: u64,
    pub(crate) bytes: u64,
    /// Whether those are all there are now.
    pub(crate) complete: bool,
    /// Whether nothing will ever come after them.
    pub(crate) ended: bool,
    /// The first line known to tell of a failure.
    pub(crate) failure: Option<u64>,
}

/// Where a console is read.
pub(crate) struct Opened {
    pub(crate) source: Box<dyn ConsoleSource>,
    /// Whether it is what is stored of it.
    pub(crate) stored: bool,
    index: Arc<tokio::sync::Mutex<Index>>,
}

/// A build's attempt, and whether its stored console is meant.
type Key = (BuildId, u32, bool);

/// The indexes of the consoles asked for last.
#[derive(Default)]
pub(crate) struct Indexes(Mutex<Vec<(Key, Arc<tokio::sync::Mutex<Index>>)>>);

impl Indexes {
    fn get(&self, key: Key) -> Arc<tokio::sync::Mutex<Index>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().position(|(other, _)| *other == key).map(|place| kept.remove(place).1);
        let index = found.unwrap_or_default();
        if kept.len() >= KEPT {
            kept.remove(0);
        }
        kept.push((key, Arc::clone(&index)));
        index
    }
}

/// Opens the console of an attempt: with its worker, or what is stored of it.
pub(crate) async fn open(
    app: &Arc<App>,
    build: BuildId,
    attempt: u32,
    stored: bool,
) -> Result<Option<Opened>, ApiError> {
    let source = app
        .blocking(move |app| {
            let consoles = &app.site.consoles;
            let live = if stored { None } else { consoles.open(build, attempt).map(|source| (source, false)) };
            Ok(live.or_else(|| consoles.stored(build, attempt).map(|source| (source, true))))
        })
        .await?;
    Ok(source.map(|(source, stored)| Opened { source, stored, index: app.indexes.get((build, attempt, stored)) }))
}

impl Opened {
    /// The lines from one on, at most `count` of them. With `wait`, waits a while for one to come.
    pub(crate) async fn lines(&self, from: u64, count: usize, wait: bool) -> io::Result<Part> {
        let from = from.max(1);
        let until = Instant::now() + PATIENCE;
        loop {
            let (part, scanned) = {
                let mut index = self.index.lock().await;
                (part(self.source.as_ref(), &mut index, from, count).await?, index.scanned)
            };
            let now = Instant::now();
            if !wait || !part.lines.is_empty() || part.ended || !part.complete || now >= until {
                return Ok(part);
            }
            // Nobody else waits meanwhile: the index is free.
            self.source.read_from(scanned, 1, until - now).await?;
            tokio::time::sleep(REST).await;
        }
    }

    /// Counts lines to the end, as far as the budget goes. Gives what is known then.
    pub(crate) async fn count(&self, budget: u64) -> io::Result<Part> {
        let mut index = self.index.lock().await;
        index.reach(self.source.as_ref(), u64::MAX, budget).await?;
        Ok(known(&index))
    }

    /// Where a line begins, if that is known after as much counting as the budget allows.
    pub(crate) async fn offset(&self, line: u64) -> io::Result<Option<u64>> {
        let mut index = self.index.lock().await;
        index.reach(self.source.as_ref(), line.saturating_sub(1), BUDGET).await?;
        index.offset(self.source.as_ref(), line).await
    }
}

fn known(index: &Index) -> Part {
    Part {
        known: index.lines(),
        bytes: index.scanned,
        complete: index.complete,
        ended: index.ended,
        failure: index.failure,
        ..Part::default()
    }
}

async fn part(source: &dyn ConsoleSource, index: &mut Index, from: u64, count: usize) -> io::Result<Part> {
    let mut lines: Vec<Line> = Vec::new();
    let mut number = from;
    // A little further than asked, so that what is known is not just what is shown.
    index.reach(source, from.saturating_add(MOST as u64), BUDGET).await?;
    let Some(begin) = index.offset(source, from).await? else {
        return Ok(Part { next: from, ..known(index) });
    };
    let (mut at, mut rest, mut read, mut text) = (begin, Vec::new(), 0_usize, 0_usize);
    while lines.len() < count && read < READ && text < TEXT {
        let chunk = source.read_from(at + rest.len() as u64, BLOCK, Duration::ZERO).await?;
        read += chunk.bytes.len();
        rest.extend_from_slice(&chunk.bytes);
        let mut begun = 0;
        for line in rest.split_inclusive(|byte| *byte == b'\n') {
            let Some(said) = line.strip_suffix(b"\n").filter(|_| lines.len() < count && text < TEXT) else { break };
            text += said.len().min(HEAD);
            lines.push(whole(number, at + begun as u64, said));
            begun += line.len();
            number += 1;
        }
        rest.drain(..begun);
        at += begun as u64;
        if lines.len() >= count || text >= TEXT {
            break;
        }
        if chunk.bytes.is_empty() || chunk.ended {
            // The last line is shown when it is over, or will be cut anyway.
            if !rest.is_empty() && (chunk.ended || rest.len() > HEAD) {
                let mut last = whole(number, at, &rest);
                last.length = last.length.filter(|_| chunk.ended);
                lines.push(last);
                number += 1;
            }
            break;
        }
        if rest.len() > HEAD {
            // A long line: where it ends is looked up, or counted, not read into memory.
            index.reach(source, number, BUDGET).await?;
            let next = index.offset(source, number + 1).await?;
            let mut line = whole(number, at, &rest);
            line.length = next.map(|next| next - 1 - at).or(index.ended.then(|| index.scanned - at));
            text += line.head.len();
            lines.push(line);
            number += 1;
            read += BLOCK;
            rest.clear();
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
    }
    let back = begin.min(COLOUR);
    let before = match usize::try_from(back) {
        Ok(size) if size > 0 => source.read_from(begin - back, size, Duration::ZERO).await?.bytes,
        _ => Vec::new(),
    };
    Ok(Part { lines, before, next: number, ..known(index) })
}

fn whole(number: u64, offset: u64, said: &[u8]) -> Line {
    let head = said.get(..said.len().min(HEAD)).unwrap_or_default().to_vec();
    Line { number, offset, head, length: Some(said.len() as u64) }
}
