//! The console: a file that grows while a build runs, and any number of readers that follow it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gatelog_record::Timestamp;
use rustix::fs::OFlags;
use tokio::sync::watch;

use crate::mask::Mask;

/// The most bytes one read returns.
pub const MAX_READ: usize = 1 << 20;

/// How far a console has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    bytes: u64,
    ended: bool,
}

/// What was read from a console.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsoleChunk {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The offset to go on from.
    pub next: u64,
    /// Whether nothing will ever come after these bytes.
    pub ended: bool,
}

/// Follows one console. Clones are cheap and independent: the offset is the caller's.
#[derive(Clone, Debug)]
pub struct ConsoleReader {
    file: Arc<File>,
    progress: watch::Receiver<Progress>,
}

impl ConsoleReader {
    /// A console that is complete, from where it is kept.
    pub fn open(path: &Path) -> io::Result<ConsoleReader> {
        // No job can write there; should one ever, then it finds no way to other files.
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a plain file"));
        }
        let bytes = metadata.len();
        Ok(ConsoleReader { file: Arc::new(file), progress: watch::channel(Progress { bytes, ended: true }).1 })
    }

    /// What there is from this offset on, at most `max` (and [`MAX_READ`]) bytes; empty if nothing
    /// has come yet.
    pub fn read_from(&self, offset: u64, max: usize) -> io::Result<ConsoleChunk> {
        let progress = *self.progress.borrow();
        let there = usize::try_from(progress.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; there.min(max).min(MAX_READ)];
        // An offset far beyond the end is no error, but the system would say so.
        let read = if bytes.is_empty() { 0 } else { self.file.read_at(&mut bytes, offset)? };
        bytes.truncate(read);
        let next = offset.saturating_add(read as u64);
        Ok(ConsoleChunk { bytes, next, ended: progress.ended && next >= progress.bytes })
    }

    /// Like [`read_from`](Self::read_from), but waits up to `patience` for bytes or the end.
    pub async fn wait_from(&self, offset: u64, max: usize, patience: Duration) -> io::Result<ConsoleChunk> {
        let mut progress = self.progress.clone();
        let more = progress.wait_for(|progress| progress.bytes > offset || progress.ended);
        // Neither a timeout nor a writer that is gone is an error: the read says what there is.
        let _ = tokio::time::timeout(patience, more).await;
        let mut chunk = self.read_from(offset, max)?;
        // A writer that is gone without a word has ended too.
        chunk.ended |= chunk.bytes.is_empty() && self.progress.has_changed().is_err();
        Ok(chunk)
    }
}

/// The console grew over its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverLimit;

/// Writes one console.
#[derive(Debug)]
pub(crate) struct Console {
    state: Mutex<Writer>,
    progress: watch::Sender<Progress>,
    file: Arc<File>,
    mask: Arc<Mask>,
}

#[derive(Debug)]
struct Writer {
    /// Bytes that playbooks may still write.
    allowance: u64,
    /// Set when a write failed: a full disk must not stop the build, but it must be known.
    failed: Option<String>,
    /// How many lines there are.
    lines: u64,
    /// The job's own copy, as long as it can be written.
    copy: Option<File>,
}

impl Console {
    /// An empty console at `path`, for `limit` bytes of playbooks' output, without what `mask` hides.
    pub(crate) fn create(path: &Path, limit: u64, mask: Arc<Mask>) -> io::Result<Console> {
        let file = OpenOptions::new().read(true).append(true).create_new(true).open(path)?;
        Ok(Console {
            state: Mutex::new(Writer { allowance: limit, failed: None, lines: 0, copy: None }),
            progress: watch::channel(Progress::default()).0,
            file: Arc::new(file),
            mask,
        })
    }

    /// Writes a copy, here too, from now on: the job may read, change and remove it. Zuul: the file in the log
    /// directory, which roles upload while the build runs, is the console itself.
    ///
    /// # Errors
    /// There is something at `path`, or the console cannot be read.
    pub(crate) fn copy_to(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut copy = OpenOptions::new().append(true).create_new(true).mode(0o644).open(path)?;
        let (mut offset, mut piece) = (0, vec![0; 64 << 10]);
        loop {
            let read = self.file.read_at(&mut piece, offset)?;
            if read == 0 {
                break;
            }
            copy.write_all(piece.get(..read).unwrap_or_default())?;
            offset += read as u64;
        }
        state.copy = Some(copy);
        Ok(())
    }

    /// A reader from the start.
    pub(crate) fn reader(&self) -> ConsoleReader {
        ConsoleReader { file: self.file.clone(), progress: self.progress.subscribe() }
    }

    /// A line of the executor's own. Not counted. What a job said may be part of it: a further line is set in, so that
    /// none of them looks like the executor's own.
    pub(crate) fn say(&self, text: &str) {
        let mut block = String::new();
        for (number, line) in text.lines().enumerate() {
            let margin = if number == 0 { "" } else { "    " };
            block.push_str(&format!("{} | {margin}{line}\n", stamp(now())));
        }
        self.append(block.as_bytes());
    }

    /// Whole lines of a playbook's. Once they do not fit any more nothing further is taken.
    pub(crate) fn push(&self, lines: &[u8]) -> Result<(), OverLimit> {
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            match state.allowance.checked_sub(lines.len() as u64) {
                Some(left) => state.allowance = left,
                None => {
                    state.allowance = 0;
                    return Err(OverLimit);
                }
            }
        }
        self.append(lines);
        Ok(())
    }

    /// Lets playbooks write so many bytes more than now, at least.
    pub(crate) fn allow_at_least(&self, bytes: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.allowance = state.allowance.max(bytes);
    }

    /// How many lines there are.
    pub(crate) fn lines(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).lines
    }

    /// No more lines will come.
    pub(crate) fn end(&self) {
        self.progress.send_modify(|progress| progress.ended = true);
    }

    /// Why the console is not complete, if it is not.
    pub(crate) fn failure(&self) -> Option<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failed.clone()
    }

    fn append(&self, bytes: &[u8]) {
        let bytes = &*self.mask.bytes(bytes);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The copy is the job's: one that cannot be written harms nobody else.
        if state.copy.as_mut().is_some_and(|copy| copy.write_all(bytes).is_err()) {
            state.copy = None;
        }
        state.lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        match (&*self.file).write_all(bytes) {
            Ok(()) => self.progress.send_modify(|progress| progress.bytes += bytes.len() as u64),
            Err(error) => {
                state.failed.get_or_insert_with(|| format!("the console is not complete: {error}"));
                // What got onto the disk before the error is there for readers.
                if let Ok(metadata) = self.file.metadata() {
                    self.progress.send_modify(|progress| progress.bytes = metadata.len());
                }
            }
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.end();
    }
}

/// The present moment.
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// `2026-11-21 10:20:06.123456`, in UTC.
pub(crate) fn stamp(moment: Timestamp) -> String {
    moment.to_string().replace('T', " ").trim_end_matches('Z').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_of_a_gigabyte_is_read_where_it_is_asked_and_a_link_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job-output.txt");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 30).unwrap();
        file.write_all_at(b"the end\n", (1 << 30) - 8).unwrap();
        let reader = ConsoleReader::open(&path).unwrap();
        let chunk = reader.read_from((1 << 30) - 8, usize::MAX).unwrap();
        assert_eq!((chunk.bytes.as_slice(), chunk.next, chunk.ended), (&b"the end\n"[..], 1 << 30, true));
        let chunk = reader.read_from(1 << 29, usize::MAX).unwrap();
        assert_eq!((chunk.bytes.len(), chunk.bytes.capacity(), chunk.ended), (MAX_READ, MAX_READ, false));
        let beyond = reader.read_from(u64::MAX, usize::MAX).unwrap();
        assert_eq!((beyond.bytes.len(), beyond.ended), (0, true));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(ConsoleReader::open(&link).is_err());
        assert!(ConsoleReader::open(folder.path()).is_err_and(|error| error.to_string().contains("plain file")));
    }

    fn hunter() -> Arc<Mask> {
        Arc::new(Mask::new(["hunter22".to_owned()]))
    }

    #[test]
    fn a_secret_is_on_no_line_whoever_writes_it() {
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("console"), folder.path().join("job-output.txt"));
        let console = Console::create(&path, 4096, hunter()).unwrap();
        console.say("cannot log in with hunter22");
        console.copy_to(&copy).unwrap();
        assert_eq!(console.push(b"n1 | hunter22\nn1 | hunter2\n"), Ok(()));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.ends_with(" | cannot log in with [masked]\nn1 | [masked]\nn1 | hunter2\n"), "{text}");
        assert_eq!(std::fs::read_to_string(&copy).unwrap(), text);
        assert_eq!(console.reader().read_from(0, 1 << 20).unwrap().bytes, text.as_bytes());
    }

    #[test]
    fn the_copy_of_the_job_has_every_line_and_what_becomes_of_it_harms_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("console"), folder.path().join("job-output.txt"));
        let console = Console::create(&path, 4096, hunter()).unwrap();
        assert_eq!(console.push(b"before\n"), Ok(()));
        console.copy_to(&copy).unwrap();
        assert_eq!(console.push(b"after\n"), Ok(()));
        assert_eq!(std::fs::read(&copy).unwrap(), b"before\nafter\n");
        // The job empties it, and puts a link in its place.
        std::fs::write(&copy, b"").unwrap();
        assert_eq!(console.push(b"later\n"), Ok(()));
        assert_eq!(std::fs::read(&copy).unwrap(), b"later\n");
        std::fs::remove_file(&copy).unwrap();
        std::os::unix::fs::symlink(folder.path().join("victim"), &copy).unwrap();
        assert_eq!(console.push(b"last\n"), Ok(()));
        assert!(!folder.path().join("victim").exists() && console.failure().is_none());
        assert_eq!(std::fs::read(&path).unwrap(), b"before\nafter\nlater\nlast\n");
        assert!(console.copy_to(&copy).is_err(), "never through a link");
    }

    #[tokio::test]
    async fn two_readers_follow_from_line_0_while_it_is_written_and_both_see_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job-output.txt");
        let console = Console::create(&path, 40, hunter()).unwrap();
        let follow = |reader: ConsoleReader, step: usize| async move {
            let (mut seen, mut offset) = (Vec::new(), 0);
            loop {
                let chunk = reader.wait_from(offset, step, Duration::from_secs(20)).await.unwrap();
                seen.extend_from_slice(&chunk.bytes);
                offset = chunk.next;
                if chunk.ended {
                    return seen;
                }
            }
        };
        let one = tokio::spawn(follow(console.reader(), 7));
        let two = tokio::spawn(follow(console.reader(), 4096));
        assert_eq!(console.push(b"first\n"), Ok(()));
        tokio::task::yield_now().await;
        console.say("own line");
        assert_eq!(console.push(&[b'y'; 41]), Err(OverLimit));
        assert_eq!(console.push(b"second\n"), Err(OverLimit), "once over, nothing more is taken");
        console.allow_at_least(10);
        assert_eq!(console.push(b"third\n"), Ok(()));
        console.end();
        let (one, two) = (one.await.unwrap(), two.await.unwrap());
        assert_eq!(one, std::fs::read(&path).unwrap());
        assert_eq!(one, two);
        let late = ConsoleReader::open(&path).unwrap().read_from(0, 4096).unwrap();
        assert_eq!((late.bytes, late.ended), (one, true));
    }
}
