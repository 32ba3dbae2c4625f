//! Keys, whose order is the order of their bytes.

use gatelog_record::{BlobHash, BuildId, BuildsetId, EventId, ItemId, LeaseId, NodeId, SubjectId, WorkId};

/// Why bytes are not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key's bytes do not fit: {0}")]
pub struct KeyError(pub &'static str);

/// A key of a table. `write` must keep order: `a < b` exactly when the bytes of `a` are less than
/// those of `b`, also when other keys follow in a tuple.
pub trait TableKey: Ord + Clone + std::fmt::Debug + Send + Sync + 'static {
    /// Appends the key's bytes.
    fn write(&self, out: &mut Vec<u8>);
    /// Reads a key off the front.
    fn read(bytes: &mut &[u8]) -> Result<Self, KeyError>;

    /// The key's bytes.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// The key of exactly these bytes.
    fn from_bytes(mut bytes: &[u8]) -> Result<Self, KeyError> {
        let key = Self::read(&mut bytes)?;
        if bytes.is_empty() { Ok(key) } else { Err(KeyError("bytes are left over")) }
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], KeyError> {
    let (head, rest) = bytes.split_first_chunk::<N>().ok_or(KeyError("it ends too early"))?;
    *bytes = rest;
    Ok(*head)
}

macro_rules! number_keys {
    ($($type:ty),*) => {$(
        impl TableKey for $type {
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }
            fn read(bytes: &mut &[u8]) -> Result<Self, KeyError> {
                Ok(<$type>::from_be_bytes(take(bytes)?))
            }
        }
    )*};
}
number_keys!(u8, u16, u32, u64);

impl TableKey for i64 {
    fn write(&self, out: &mut Vec<u8>) {
        // The sign bit turned over, so that negative numbers come first.
        (*self as u64 ^ 1 << 63).write(out);
    }
    fn read(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        Ok((u64::read(bytes)? ^ 1 << 63) as i64)
    }
}

macro_rules! id_keys {
    ($($type:ident),*) => {$(
        impl TableKey for $type {
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.0);
            }
            fn read(bytes: &mut &[u8]) -> Result<Self, KeyError> {
                Ok($type(take(bytes)?))
            }
        }
    )*};
}
id_keys!(ItemId, BuildsetId, BuildId, LeaseId, NodeId, SubjectId, WorkId, EventId, BlobHash);

impl TableKey for gatelog_record::Timestamp {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
    fn read(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        i64::read(bytes).map(gatelog_record::Timestamp)
    }
}

impl TableKey for String {
    /// A zero byte is written as 0 255, the end as 0 0: so a prefix comes first and nothing that
    /// follows in a tuple can change the order.
    fn write(&self, out: &mut Vec<u8>) {
        for byte in self.bytes() {
            out.push(byte);
            if byte == 0 {
                out.push(255);
            }
        }
        out.extend_from_slice(&[0, 0]);
    }
    fn read(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        let mut text = Vec::new();
        loop {
            match take::<1>(bytes)?[0] {
                0 => match take::<1>(bytes)?[0] {
                    0 => return String::from_utf8(text).map_err(|_| KeyError("a text is not UTF-8")),
                    255 => text.push(0),
                    _ => return Err(KeyError("a text has a bad escape")),
                },
                byte => text.push(byte),
            }
        }
    }
}

impl TableKey for () {
    fn write(&self, _: &mut Vec<u8>) {}
    fn read(_: &mut &[u8]) -> Result<Self, KeyError> {
        Ok(())
    }
}

macro_rules! tuple_keys {
    ($($name:ident $index:tt),*) => {
        impl<$($name: TableKey),*> TableKey for ($($name,)*) {
            fn write(&self, out: &mut Vec<u8>) {
                $(self.$index.write(out);)*
            }
            fn read(bytes: &mut &[u8]) -> Result<Self, KeyError> {
                Ok(($($name::read(bytes)?,)*))
            }
        }
    };
}
tuple_keys!(A 0, B 1);
tuple_keys!(A 0, B 1, C 2);
tuple_keys!(A 0, B 1, C 2, D 3);
