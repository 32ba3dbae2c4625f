//! What a segment is written to: a file, or in tests one that fails when it is told to.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

/// Appending bytes and making them durable.
pub(crate) trait Medium: Send {
    /// Writes all of these at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Takes back everything behind this end.
    fn cut(&mut self, end: u64) -> io::Result<()>;
    /// Returns once everything appended is on disk.
    fn sync(&mut self) -> io::Result<()>;
}

/// Makes the medium of a segment from its file, which stands at its end.
pub(crate) type MediumFactory = Arc<dyn Fn(File) -> Box<dyn Medium> + Send + Sync>;

impl Medium for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn cut(&mut self, end: u64) -> io::Result<()> {
        self.set_len(end)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// The file itself.
pub(crate) fn file_medium(file: File) -> Box<dyn Medium> {
    Box::new(file)
}
