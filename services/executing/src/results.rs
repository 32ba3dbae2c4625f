//! Reading `job-output.json`, also while playbooks are added to it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;

use crate::console::MAX_READ;
use crate::json_output::TAIL;

/// A playbook is added within less, so many times.
const REST: Duration = Duration::from_millis(10);
const TRIES: usize = 100;

/// A complete document: what `job-output.json` was when it was opened. Clones are cheap.
#[derive(Clone, Debug)]
pub struct ResultsReader {
    file: Arc<File>,
    /// What never changes: more is only added behind it.
    body: u64,
    tail: &'static [u8],
}

impl ResultsReader {
    /// Opens it. May wait a moment for a playbook that is being added.
    pub(crate) fn open(path: &Path, running: bool) -> io::Result<ResultsReader> {
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let mut size = 0;
        for _ in 0..if running { TRIES } else { 1 } {
            let metadata = file.metadata()?;
            if !metadata.is_file() {
                return Err(io::Error::other("it is not a plain file"));
            }
            size = metadata.len();
            let mut end = [0; TAIL.len()];
            if let Some(body) = size.checked_sub(TAIL.len() as u64)
                && file.read_exact_at(&mut end, body).is_ok()
                && end == TAIL.as_bytes()
            {
                return Ok(ResultsReader { file: Arc::new(file), body, tail: TAIL.as_bytes() });
            }
            if running {
                std::thread::sleep(REST);
            }
        }
        Ok(ResultsReader { file: Arc::new(file), body: size, tail: b"" })
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.body + self.tail.len() as u64
    }

    /// What there is from an offset on, at most `max` (and [`MAX_READ`]) bytes; empty at the end.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_from(&self, offset: u64, max: usize) -> io::Result<Vec<u8>> {
        let max = max.min(MAX_READ);
        let of_file = usize::try_from(self.body.saturating_sub(offset)).unwrap_or(usize::MAX).min(max);
        let mut bytes = vec![0; of_file];
        self.file.read_exact_at(&mut bytes, offset.min(self.body))?;
        let of_tail = (offset + of_file as u64).saturating_sub(self.body);
        if offset + of_file as u64 >= self.body {
            let skip = usize::try_from(of_tail).unwrap_or(usize::MAX).min(self.tail.len());
            let rest = self.tail.get(skip..).unwrap_or_default();
            bytes.extend_from_slice(rest.get(..rest.len().min(max - of_file)).unwrap_or_default());
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_a_whole_document_as_they_were_when_they_were_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job-output.json");
        std::fs::write(&path, "[\n{\"a\": 1}\n]\n").unwrap();
        let reader = ResultsReader::open(&path, true).unwrap();
        // Another playbook takes the place of the end.
        std::fs::write(&path, "[\n{\"a\": 1},\n{\"b\": 2}\n]\n").unwrap();
        for max in [1, 3, 5, 100] {
            let mut whole = Vec::new();
            loop {
                let piece = reader.read_from(whole.len() as u64, max).unwrap();
                if piece.is_empty() {
                    break;
                }
                assert!(piece.len() <= max);
                whole.extend_from_slice(&piece);
            }
            assert_eq!(String::from_utf8(whole).unwrap(), "[\n{\"a\": 1}\n]\n", "in pieces of {max}");
        }
        assert_eq!(reader.size(), 13);
        assert!(reader.read_from(1 << 40, 5).unwrap().is_empty());
    }
}
