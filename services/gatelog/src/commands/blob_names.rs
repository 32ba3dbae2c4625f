//! Every blob a record names, found by walking it: no list of fields that could be forgotten.

use std::collections::BTreeSet;
use std::fmt::Display;

use gatelog_record::draft::gate::{ReturnedChange, ReturnedChanged};
use gatelog_record::event::GateEvent;
use gatelog_record::{BlobHash, Event};
use serde::ser::{self, Impossible, Serialize};

/// The blobs this names, anywhere in it.
pub fn of(value: &impl Serialize) -> BTreeSet<BlobHash> {
    let mut found = BTreeSet::new();
    // Walking fails only where a shape refuses to be walked; then what was found so far counts.
    let _ = value.serialize(Walk { found: &mut found });
    found
}

/// The blobs that go with an event: from there on they are removed, and missed by nobody.
pub fn ended(event: &Event) -> Vec<BlobHash> {
    match event {
        Event::Gate(GateEvent::ReturnedChanged(ReturnedChanged {
            change: ReturnedChange::Dropped { blobs, .. },
            ..
        })) => blobs.iter().map(|of| of.blob).collect(),
        _ => Vec::new(),
    }
}

/// Walks a value and keeps what is a [`BlobHash`].
struct Walk<'a> {
    found: &'a mut BTreeSet<BlobHash>,
}

/// The bytes of what stands inside a `BlobHash`.
#[derive(Default)]
struct Bytes(Vec<u8>);

#[derive(Debug)]
struct Never(String);

impl Display for Never {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Never {}

impl ser::Error for Never {
    fn custom<T: Display>(message: T) -> Self {
        Never(message.to_string())
    }
}

macro_rules! nothing {
    ($($name:ident: $type:ty),* $(,)?) => {$(
        fn $name(self, _: $type) -> Result<(), Never> {
            Ok(())
        }
    )*};
}

impl<'a> ser::Serializer for Walk<'a> {
    type Ok = ();
    type Error = Never;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    nothing! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_f32: f32,
        serialize_f64: f64, serialize_char: char, serialize_str: &str, serialize_bytes: &[u8],
        serialize_unit_struct: &'static str,
    }

    fn serialize_none(self) -> Result<(), Never> {
        Ok(())
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<(), Never> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Never> {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Never> {
        Ok(())
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(self, name: &'static str, value: &T) -> Result<(), Never> {
        if name != "BlobHash" {
            return value.serialize(self);
        }
        let bytes = value.serialize(Bytes::default())?;
        if let Ok(hash) = bytes.try_into() {
            self.found.insert(BlobHash(hash));
        }
        Ok(())
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Never> {
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Never> {
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Never> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Never> {
        Ok(self)
    }

    fn serialize_tuple_variant(self, _: &'static str, _: u32, _: &'static str, _: usize) -> Result<Self, Never> {
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Never> {
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Never> {
        Ok(self)
    }

    fn serialize_struct_variant(self, _: &'static str, _: u32, _: &'static str, _: usize) -> Result<Self, Never> {
        Ok(self)
    }
}

impl Walk<'_> {
    fn into(&mut self, value: &(impl ?Sized + Serialize)) -> Result<(), Never> {
        value.serialize(Walk { found: self.found })
    }
}

macro_rules! elements {
    ($($trait:ident $method:ident),* $(,)?) => {$(
        impl ser::$trait for Walk<'_> {
            type Ok = ();
            type Error = Never;
            fn $method<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), Never> {
                self.into(value)
            }
            fn end(self) -> Result<(), Never> {
                Ok(())
            }
        }
    )*};
}

elements! {
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field,
}

macro_rules! fields {
    ($($trait:ident),* $(,)?) => {$(
        impl ser::$trait for Walk<'_> {
            type Ok = ();
            type Error = Never;
            fn serialize_field<T: ?Sized + Serialize>(&mut self, _: &'static str, value: &T) -> Result<(), Never> {
                self.into(value)
            }
            fn end(self) -> Result<(), Never> {
                Ok(())
            }
        }
    )*};
}

fields! { SerializeStruct, SerializeStructVariant }

impl ser::SerializeMap for Walk<'_> {
    type Ok = ();
    type Error = Never;
    fn serialize_key<T: ?Sized + Serialize>(&mut self, key: &T) -> Result<(), Never> {
        self.into(key)
    }
    fn serialize_value<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), Never> {
        self.into(value)
    }
    fn end(self) -> Result<(), Never> {
        Ok(())
    }
}

macro_rules! no {
    ($($name:ident($($type:ty),*) -> $ok:ty;)*) => {$(
        fn $name(self, $(_: $type),*) -> Result<$ok, Never> {
            Err(ser::Error::custom("not the bytes of a hash"))
        }
    )*};
}

impl ser::Serializer for Bytes {
    type Ok = Vec<u8>;
    type Error = Never;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Impossible<Vec<u8>, Never>;
    type SerializeTupleVariant = Impossible<Vec<u8>, Never>;
    type SerializeMap = Impossible<Vec<u8>, Never>;
    type SerializeStruct = Impossible<Vec<u8>, Never>;
    type SerializeStructVariant = Impossible<Vec<u8>, Never>;

    fn serialize_u8(mut self, byte: u8) -> Result<Vec<u8>, Never> {
        self.0.push(byte);
        Ok(self.0)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Never> {
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Never> {
        Ok(self)
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<Vec<u8>, Never> {
        Ok(bytes.to_vec())
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<Vec<u8>, Never> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(self, _: &'static str, value: &T) -> Result<Vec<u8>, Never> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<Vec<u8>, Never> {
        value.serialize(self)
    }

    no! {
        serialize_bool(bool) -> Vec<u8>;
        serialize_i8(i8) -> Vec<u8>;
        serialize_i16(i16) -> Vec<u8>;
        serialize_i32(i32) -> Vec<u8>;
        serialize_i64(i64) -> Vec<u8>;
        serialize_u16(u16) -> Vec<u8>;
        serialize_u32(u32) -> Vec<u8>;
        serialize_u64(u64) -> Vec<u8>;
        serialize_f32(f32) -> Vec<u8>;
        serialize_f64(f64) -> Vec<u8>;
        serialize_char(char) -> Vec<u8>;
        serialize_str(&str) -> Vec<u8>;
        serialize_none() -> Vec<u8>;
        serialize_unit() -> Vec<u8>;
        serialize_unit_struct(&'static str) -> Vec<u8>;
        serialize_unit_variant(&'static str, u32, &'static str) -> Vec<u8>;
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
        serialize_map(Option<usize>) -> Self::SerializeMap;
        serialize_struct(&'static str, usize) -> Self::SerializeStruct;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant;
    }
}

macro_rules! bytes {
    ($($trait:ident),* $(,)?) => {$(
        impl ser::$trait for Bytes {
            type Ok = Vec<u8>;
            type Error = Never;
            fn serialize_element<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), Never> {
                self.0.extend(value.serialize(Bytes::default())?);
                Ok(())
            }
            fn end(self) -> Result<Vec<u8>, Never> {
                Ok(self.0)
            }
        }
    )*};
}

bytes! { SerializeSeq, SerializeTuple }

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gatelog_record::draft::gate::{ConfigFile, ConfigFileSet, LayoutOutcome, ProjectBranch};
    use gatelog_record::{Value, WorkId};

    use super::*;

    #[test]
    fn every_blob_is_found_wherever_it_stands_and_ids_are_not_taken_for_blobs() {
        let blob = |n: u8| BlobHash([n; 32]);
        let files = ConfigFileSet {
            at: ProjectBranch { connection: "forge".into(), project: "git.demo/a".into(), branch: "master".into() },
            default: true,
            commit: "c".into(),
            files: vec![
                ConfigFile { path: "a.yaml".into(), blob: blob(2) },
                ConfigFile { path: "b.yaml".into(), blob: blob(3) },
            ],
        };
        let outcome = LayoutOutcome::Made {
            layout: blob(4),
            problems: blob(5),
            errors: 0,
            introduced: vec![Default::default()],
            loader: 1,
            secrets: Vec::new(),
            warnings: Vec::new(),
        };
        let map = BTreeMap::from([("key".to_owned(), (blob(6), Value::Bool(true)))]);
        let all = (WorkId([9; 16]), blob(1), vec![files], Some(outcome), map, [7_u8; 32]);
        let expected: Vec<BlobHash> = (1..=6).map(blob).collect();
        assert_eq!(of(&all).into_iter().collect::<Vec<_>>(), expected);
    }
}
