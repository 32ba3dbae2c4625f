//! Reading frames from a segment, one after the other, every byte checked.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::format::{FRAME_HEADER, FrameHeader, FrameKind, checked_payload};
use crate::index::Segment;

/// How much is read at a time, unless a frame is larger.
const CHUNK: usize = 64 << 10;

/// What stands at a place of a segment.
pub(crate) enum Found<'a> {
    /// A whole frame.
    Frame(Frame<'a>),
    /// Nothing: the segment ends here.
    End,
    /// Something that is no whole frame, and what is wrong with it.
    Bad(&'static str),
}

/// A whole frame.
pub(crate) struct Frame<'a> {
    pub(crate) byte: u64,
    pub(crate) kind: FrameKind,
    pub(crate) count: u32,
    pub(crate) payload: &'a [u8],
    /// All of it, from header to checksum.
    pub(crate) bytes: &'a [u8],
}

/// What stands where no whole frame does.
pub(crate) struct Rest {
    /// How many bytes of it were written: all up to the last that is not zero.
    pub(crate) written: u64,
    /// Whether a frame was begun anywhere after its first byte. A frame is begun only when the one before it is durable:
    /// then what stands here is not the frame that was being written last, but is damaged.
    pub(crate) begun_after: bool,
}

/// Reads the frames of one segment.
pub(crate) struct Scanner<'a> {
    file: &'a File,
    segment: &'a Segment,
    at: u64,
    buffer: Vec<u8>,
    buffer_at: u64,
}

impl<'a> Scanner<'a> {
    /// From this byte on, which must be where a frame begins.
    pub(crate) fn new(file: &'a File, segment: &'a Segment, at: u64) -> Scanner<'a> {
        Scanner { file, segment, at, buffer: Vec::new(), buffer_at: at }
    }

    /// Where the next frame begins.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The next frame; after a `Bad` or `End` the place stays the same.
    pub(crate) fn next(&mut self) -> io::Result<Found<'_>> {
        self.fill(FRAME_HEADER)?;
        let start = (self.at - self.buffer_at) as usize;
        let available = self.buffer.len() - start;
        if available == 0 {
            return Ok(Found::End);
        }
        let Some(header) = self.buffer.get(start..).and_then(|bytes| FrameHeader::decode(bytes, self.segment.salt))
        else {
            return Ok(Found::Bad("no frame begins here, or its header does not fit its checksum"));
        };
        if header.durable != self.segment.base + self.at {
            return Ok(Found::Bad("the frame says that it stands elsewhere"));
        }
        let byte = self.at;
        let length = header.frame_bytes() as usize;
        self.fill(length)?;
        let start = (self.at - self.buffer_at) as usize;
        let Some(bytes) = self.buffer.get(start..start + length) else {
            return Ok(Found::Bad("the frame is incomplete"));
        };
        let Some(payload) = checked_payload(bytes, &header, self.segment.salt) else {
            return Ok(Found::Bad("the frame does not fit its checksum"));
        };
        self.at += length as u64;
        Ok(Found::Frame(Frame { byte, kind: header.kind, count: header.count, payload, bytes }))
    }

    /// Whether a frame's header stands at the next place, whole or not behind it.
    pub(crate) fn header_follows(&mut self) -> io::Result<bool> {
        self.fill(FRAME_HEADER)?;
        let start = (self.at - self.buffer_at) as usize;
        let header = self.buffer.get(start..).and_then(|bytes| FrameHeader::decode(bytes, self.segment.salt));
        Ok(header.is_some_and(|header| header.durable == self.segment.base + self.at))
    }

    /// What stands from the next place on, where no whole frame does.
    pub(crate) fn rest(&self) -> io::Result<Rest> {
        let mut rest = Vec::new();
        let mut from = self.at;
        loop {
            let have = rest.len();
            rest.resize(have + CHUNK, 0);
            let read = read_at_most(self.file, &mut rest[have..], from)?;
            rest.truncate(have + read);
            if read < CHUNK {
                break;
            }
            from += read as u64;
        }
        let written = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let mut begun_after = false;
        for start in 1..written {
            let Some(bytes) = rest.get(start..).filter(|bytes| bytes.starts_with(&crate::format::FRAME_MAGIC)) else {
                continue;
            };
            let begun = FrameHeader::decode(bytes, self.segment.salt)
                .is_some_and(|header| header.durable == self.segment.base + self.at + start as u64);
            if begun {
                begun_after = true;
                break;
            }
        }
        Ok(Rest { written: written as u64, begun_after })
    }

    /// Makes `count` bytes from the next place on be in the buffer, if the file has them.
    fn fill(&mut self, count: usize) -> io::Result<()> {
        let start = (self.at - self.buffer_at) as usize;
        if self.buffer.len() >= start + count {
            return Ok(());
        }
        self.buffer.drain(..start.min(self.buffer.len()));
        self.buffer_at = self.at;
        // Room is made as bytes come: a length that lies takes no more than twice what is there.
        while self.buffer.len() < count {
            let have = self.buffer.len();
            let more = (count - have).min(have).max(CHUNK);
            self.buffer.resize(have + more, 0);
            let read = read_at_most(self.file, &mut self.buffer[have..], self.at + have as u64)?;
            self.buffer.truncate(have + read);
            if read < more {
                break;
            }
        }
        Ok(())
    }
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_at_most(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match file.read_at(&mut buffer[have..], at + have as u64) {
            Ok(0) => break,
            Ok(read) => have += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}
