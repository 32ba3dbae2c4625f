//! Reading and writing fixed little-endian fields: what the hand-laid frames are made of.

use thiserror::Error;

use crate::id::InputId;

/// Why bytes are not the frame they should be. The place is added by whoever read them.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The bytes end inside a field.
    #[error("{what}: the record ends {missing} bytes too early")]
    Short {
        /// The field.
        what: &'static str,
        /// How many bytes are missing.
        missing: usize,
    },
    /// The first bytes are not those of such a record.
    #[error("not {expected}: it begins with {found:02x?}")]
    Magic {
        /// What was expected, with its article.
        expected: &'static str,
        /// What was found.
        found: [u8; 2],
    },
    /// Written by a newer gatelog (or, with version 0, by none).
    #[error("the record has envelope version {found}, this gatelog reads 1 to {known}: read it with a newer gatelog")]
    Version {
        /// The version found.
        found: u8,
        /// The newest version known.
        known: u8,
    },
    /// The checksum does not fit the bytes.
    #[error("the checksum is {found:08x}, the bytes give {computed:08x}: the record is damaged")]
    Checksum {
        /// As stored.
        found: u32,
        /// As computed.
        computed: u32,
    },
    /// A field holds what it never may.
    #[error("{what}: {found} is not a value it can have")]
    Field {
        /// The field.
        what: &'static str,
        /// What was found.
        found: u64,
    },
    /// A text field is not UTF-8.
    #[error("{what} is not UTF-8")]
    Text {
        /// The field.
        what: &'static str,
    },
    /// There are bytes after the end.
    #[error("{0} bytes follow the end of the record")]
    Trailing(usize),
}

/// A cursor over bytes from the log; every step is checked.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes }
    }

    pub(crate) fn take(&mut self, what: &'static str, count: usize) -> Result<&'a [u8], FrameError> {
        if self.bytes.len() < count {
            return Err(FrameError::Short { what, missing: count - self.bytes.len() });
        }
        let (taken, rest) = self.bytes.split_at(count);
        self.bytes = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], FrameError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(what, N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, FrameError> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, FrameError> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, FrameError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, FrameError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn i64(&mut self, what: &'static str) -> Result<i64, FrameError> {
        Ok(i64::from_le_bytes(self.array(what)?))
    }

    /// A text with its length in two bytes before it.
    pub(crate) fn text(&mut self, what: &'static str) -> Result<String, FrameError> {
        let length = self.u16(what)?;
        let bytes = self.take(what, usize::from(length))?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| FrameError::Text { what })
    }

    /// The id of an input: never longer than one that is kept as it is.
    pub(crate) fn input_id(&mut self) -> Result<InputId, FrameError> {
        let text = self.text("input id")?;
        if text.len() > InputId::MAX {
            return Err(FrameError::Field { what: "length of the input id", found: text.len() as u64 });
        }
        Ok(InputId::new(text))
    }

    pub(crate) fn magic(&mut self, expected: &'static str, magic: [u8; 2]) -> Result<(), FrameError> {
        let found: [u8; 2] = self.array("magic")?;
        if found == magic { Ok(()) } else { Err(FrameError::Magic { expected, found }) }
    }

    pub(crate) fn end(&self) -> Result<(), FrameError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(FrameError::Trailing(self.bytes.len())) }
    }
}

/// Appends a text with its length in two bytes; what is longer is cut at a character's edge.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut length = text.len().min(usize::from(u16::MAX));
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    out.extend_from_slice(&(length as u16).to_le_bytes());
    out.extend_from_slice(&text.as_bytes()[..length]);
}
