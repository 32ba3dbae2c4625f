//! Where the lines of a console begin, so that any of a gigabyte's lines is found by reading one block.

use std::io;
use std::time::Duration;

use crate::site::ConsoleSource;

/// How much is read at once, and how far apart the marks of the index are, in bytes.
pub(crate) const BLOCK: usize = 256 << 10;
const BLOCK_BYTES: u64 = BLOCK as u64;
/// How much of a line is looked at to tell what it is about.
const LOOKED_AT: usize = 256;

/// The line ends before each block of a console, as far as it was read.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// How many lie before each block.
    before: Vec<u64>,
    /// How far it was read, in bytes.
    pub(crate) scanned: u64,
    /// How many line ends lie there.
    pub(crate) ends: u64,
    /// Whether that was everything there was.
    pub(crate) complete: bool,
    /// Whether nothing will ever come after.
    pub(crate) ended: bool,
    /// The first line that tells of a failure.
    pub(crate) failure: Option<u64>,
    /// The beginning of the line that is not over yet.
    head: Vec<u8>,
    /// Where that line begins.
    pub(crate) last_begins: u64,
}

impl Index {
    /// Reads on until so many line ends are known, the console has no more, or `budget` bytes were read.
    pub(crate) async fn reach(&mut self, source: &dyn ConsoleSource, ends: u64, budget: u64) -> io::Result<()> {
        let most = self.scanned.saturating_add(budget);
        while self.ends < ends && self.scanned < most && !self.ended {
            let room = BLOCK - usize::try_from(self.scanned % BLOCK_BYTES).unwrap_or(0);
            let chunk = source.read_from(self.scanned, room, Duration::ZERO).await?;
            let bytes = chunk.bytes.get(..room.min(chunk.bytes.len())).unwrap_or_default();
            self.take(bytes);
            self.ended = chunk.ended && bytes.len() == chunk.bytes.len();
            self.complete = self.ended || bytes.is_empty();
            if bytes.is_empty() {
                break;
            }
            // However long the console is, others have their turn.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.scanned.is_multiple_of(BLOCK_BYTES) {
            self.before.push(self.ends);
        }
        if self.failure.is_none() {
            self.look(bytes);
        }
        self.ends += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        if let Some(last) = bytes.iter().rposition(|byte| *byte == b'\n') {
            self.last_begins = self.scanned + last as u64 + 1;
        }
        self.scanned += bytes.len() as u64;
    }

    /// Looks for the first line that tells of a failure.
    fn look(&mut self, bytes: &[u8]) {
        for (number, line) in (self.ends + 1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
            let (line, over) = line.strip_suffix(b"\n").map_or((line, false), |line| (line, true));
            let room = LOOKED_AT.saturating_sub(self.head.len());
            self.head.extend_from_slice(line.get(..line.len().min(room)).unwrap_or_default());
            if over {
                let failed = super::words::fails(&String::from_utf8_lossy(&self.head));
                self.head.clear();
                if failed {
                    self.failure = Some(number);
                    return;
                }
            }
        }
    }

    /// Where a line begins: `None` when that is not known, or not there.
    pub(crate) async fn offset(&self, source: &dyn ConsoleSource, line: u64) -> io::Result<Option<u64>> {
        let Some(end) = line.checked_sub(1).filter(|end| *end <= self.ends) else { return Ok(None) };
        if end == 0 {
            return Ok(Some(0));
        }
        // The line end before it lies in the last block that has fewer before it.
        let block = self.before.partition_point(|before| *before < end).saturating_sub(1);
        let Some(before) = self.before.get(block) else { return Ok(None) };
        let mut left = end - before;
        let mut at = block as u64 * BLOCK_BYTES;
        while left > 0 {
            let chunk = source.read_from(at, BLOCK, Duration::ZERO).await?;
            if chunk.bytes.is_empty() {
                return Ok(None);
            }
            for (place, _) in chunk.bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
                left -= 1;
                if left == 0 {
                    return Ok(Some(at + place as u64 + 1));
                }
            }
            at += chunk.bytes.len() as u64;
        }
        Ok(None)
    }

    /// How many lines there are, the unfinished last one included once it will not change.
    pub(crate) fn lines(&self) -> u64 {
        self.ends + u64::from(self.ended && self.scanned > self.last_begins)
    }
}
