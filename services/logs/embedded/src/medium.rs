//! What a segment is written to: a file, or in tests one that fails when it is told to.
//!
//! A file that grows with each frame has its length and its blocks made durable with each, which takes the file system
//! about as long again as the bytes do. So zeros are written ahead of the frames now and then, and frames over them: the
//! segment's *room*. It is given back when the segment is sealed and when the log is closed; what a process leaves
//! that is killed counts for nothing, for no frame begins with zeros.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use gatelog_event_log::failpoint;

/// Appending bytes and making them durable.
pub(crate) trait Medium: Send {
    /// Writes all of these at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Takes back everything behind this end.
    fn cut(&mut self, end: u64) -> io::Result<()>;
    /// Returns once everything appended is on disk.
    fn sync(&mut self) -> io::Result<()>;
    /// The same, and gives back what room there is behind the end.
    fn finish(&mut self) -> io::Result<()>;
}

/// Makes the medium of a segment from its file.
pub(crate) type MediumFactory = Arc<dyn Fn(SegmentFile) -> Box<dyn Medium> + Send + Sync>;

/// How much room is made ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// How many bytes at a time; 0 makes none.
    pub(crate) step: u64,
    /// Up to which byte of the segment.
    pub(crate) until: u64,
}

/// A segment's file, and where it is written.
pub(crate) struct SegmentFile {
    file: File,
    /// Where the next frame goes.
    end: u64,
    /// How long the file is: from the end on there are zeros.
    length: u64,
    room: Room,
}

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl SegmentFile {
    /// A file of this length, which is written to its end.
    pub(crate) fn new(file: File, length: u64, room: Room) -> SegmentFile {
        SegmentFile { file, end: length, length, room }
    }

    /// Sees to it that so many bytes more are there to be written over, if that is wanted and there is space.
    fn make_room(&mut self, more: u64) -> io::Result<()> {
        let Room { step, until } = self.room;
        let wanted = self.end + more;
        if step == 0 || wanted <= self.length || wanted > until {
            return Ok(());
        }
        let length = (wanted + step).min(until);
        let mut at = self.length;
        while at < length {
            let zeros = &ZEROS[..(length - at).min(ZEROS.len() as u64) as usize];
            match self.file.write_all_at(zeros, at) {
                Ok(()) => at += zeros.len() as u64,
                // The frame itself may find its place yet.
                Err(error) if is_full(&error) => {
                    self.room.step = 0;
                    return self.file.set_len(self.length);
                }
                Err(error) => return Err(error),
            }
        }
        self.length = length;
        failpoint::pass("log/room-made");
        Ok(())
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

impl Medium for SegmentFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.make_room(bytes.len() as u64)?;
        self.file.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        self.length = self.length.max(self.end);
        Ok(())
    }

    fn cut(&mut self, end: u64) -> io::Result<()> {
        self.file.set_len(end)?;
        (self.end, self.length) = (end, end);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.length > self.end {
            self.cut(self.end)?;
            failpoint::pass("log/room-cut");
        }
        self.file.sync_all()
    }
}

/// The file itself.
pub(crate) fn file_medium(file: SegmentFile) -> Box<dyn Medium> {
    Box::new(file)
}
