//! Values of any shape, made up by walking it as serde does: no sample is written by hand, and a changed shape has
//! samples at once.
//!
//! Sample 0 is the plain one; sample 1 has no options and empty lists; the others go on through every variant of every
//! enum and through numbers of every width. With a seed, all of this is drawn instead.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};

/// Beyond this depth options are empty, lists have no elements and enums their first variant.
const DEEPEST: usize = 24;

/// Why a shape has no sample.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoSample(String);

impl de::Error for NoSample {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        NoSample(message.to_string())
    }
}

/// How choices are made.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    /// The n-th sample of a series that meets everything.
    Nth(u64),
    /// By lot, from this seed.
    Seed(u64),
}

/// Makes one value.
pub struct Sampler {
    /// The variants of the outermost enums, which pick a kind.
    path: Vec<usize>,
    /// How many variants those enums have; for whoever goes through all kinds.
    pub widths: Vec<usize>,
    /// How many variants the widest enum within has.
    pub widest: u64,
    /// For each enum within: how many variants it has, and those taken.
    pub met: BTreeMap<&'static str, (usize, BTreeSet<usize>)>,
    choice: Choice,
    count: u64,
    field: String,
    inside: Vec<&'static str>,
}

impl Sampler {
    pub fn new(path: &[usize], choice: Choice) -> Sampler {
        let (path, field) = (path.to_vec(), "text".to_owned());
        Sampler {
            path,
            widths: Vec::new(),
            widest: 0,
            met: BTreeMap::new(),
            choice,
            count: 0,
            field,
            inside: Vec::new(),
        }
    }

    /// A value of this type.
    pub fn sample<T: serde::de::DeserializeOwned>(&mut self) -> Result<T, NoSample> {
        T::deserialize(self)
    }

    /// The next number drawn (SplitMix64, after Steele, Lea and Flood).
    fn draw(&mut self) -> Option<u64> {
        let Choice::Seed(state) = &mut self.choice else { return None };
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(mixed ^ (mixed >> 31))
    }

    fn nth(&self) -> u64 {
        match self.choice {
            Choice::Nth(nth) => nth,
            Choice::Seed(_) => 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.count += 1;
        if let Some(drawn) = self.draw() {
            // Small and large ones alike: they have different widths on the log.
            return drawn >> (drawn % 64);
        }
        let scale = [1, 251, 70_001, 5_000_000_029][(self.nth() % 4) as usize];
        self.count.wrapping_mul(scale)
    }

    fn signed(&mut self) -> i64 {
        let number = self.number() as i64;
        let negative = self.draw().map_or(self.nth() % 3 == 2, |drawn| drawn % 2 == 1);
        if negative { number.wrapping_neg() } else { number }
    }

    fn text(&mut self) -> String {
        self.count += 1;
        match self.draw() {
            None => format!("{}-{}", self.field.replace('_', "-"), self.count),
            Some(drawn) => (0..drawn % 9)
                .map(|at| ['a', 'é', '語', '\0', '"', '\n', '🦀', 'z'][((drawn >> (8 + 3 * at)) % 8) as usize])
                .collect(),
        }
    }

    fn is_some(&mut self) -> bool {
        let lot = self.draw().map_or(self.nth() != 1, |drawn| drawn % 3 != 0);
        lot && self.inside.len() < DEEPEST
    }

    fn length(&mut self) -> usize {
        if self.inside.len() >= DEEPEST {
            return 0;
        }
        match (self.draw(), self.nth()) {
            (Some(drawn), _) => (drawn % 4) as usize,
            (None, 1) => 0,
            (None, nth) => {
                if nth % 3 == 2 {
                    2
                } else {
                    1
                }
            }
        }
    }

    fn variant(&mut self, name: &'static str, width: usize) -> usize {
        if self.widths.len() < self.path.len() {
            let forced = self.path[self.widths.len()];
            self.widths.push(width);
            return forced;
        }
        self.widest = self.widest.max(width as u64);
        let drawn = self.draw().unwrap_or_else(|| self.nth());
        // Shapes that hold themselves must come to an end; their first variant is the plainest.
        let taken = match self.inside.iter().filter(|above| **above == name).count() {
            0 => (drawn % width as u64) as usize,
            1 => ((drawn + 2) % width as u64) as usize,
            _ => 0,
        };
        self.met.entry(name).or_insert_with(|| (width, BTreeSet::new())).1.insert(taken);
        taken
    }

    fn within<T>(&mut self, name: &'static str, walk: impl FnOnce(&mut Self) -> T) -> T {
        self.inside.push(name);
        let walked = walk(self);
        self.inside.pop();
        walked
    }
}

/// Elements of a list, a tuple or a struct (whose fields' names go into the texts).
struct Elements<'s> {
    sampler: &'s mut Sampler,
    left: usize,
    fields: &'static [&'static str],
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = NoSample;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, NoSample> {
        if self.left == 0 {
            return Ok(None);
        }
        if let Some(field) = self.fields.len().checked_sub(self.left).and_then(|at| self.fields.get(at)) {
            self.sampler.field = (*field).to_owned();
        }
        self.left -= 1;
        seed.deserialize(&mut *self.sampler).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for Elements<'_> {
    type Error = NoSample;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, NoSample> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.sampler).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, NoSample> {
        seed.deserialize(&mut *self.sampler)
    }
}

/// One variant of an enum.
struct Variant<'s>(&'s mut Sampler, usize);

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = NoSample;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), NoSample> {
        let index = de::value::U32Deserializer::<NoSample>::new(self.1 as u32);
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = NoSample;

    fn unit_variant(self) -> Result<(), NoSample> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, NoSample> {
        seed.deserialize(self.0)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, NoSample> {
        visitor.visit_seq(Elements { sampler: self.0, left: length, fields: &[] })
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NoSample> {
        visitor.visit_seq(Elements { sampler: self.0, left: fields.len(), fields })
    }
}

macro_rules! numbers {
    ($($walk:ident $visit:ident $draw:ident $type:ty;)*) => {$(
        fn $walk<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
            visitor.$visit(self.$draw() as $type)
        }
    )*};
}

macro_rules! refused {
    ($($walk:ident($($argument:ty),*) $what:literal;)*) => {$(
        fn $walk<V: Visitor<'de>>(self, $(_: $argument,)* _visitor: V) -> Result<V::Value, NoSample> {
            Err(NoSample(format!("{} may not be on the log (field {:?})", $what, self.field)))
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Sampler {
    type Error = NoSample;

    numbers! {
        deserialize_u8 visit_u8 number u8;
        deserialize_u16 visit_u16 number u16;
        deserialize_u32 visit_u32 number u32;
        deserialize_u64 visit_u64 number u64;
        deserialize_i8 visit_i8 signed i8;
        deserialize_i16 visit_i16 signed i16;
        deserialize_i32 visit_i32 signed i32;
        deserialize_i64 visit_i64 signed i64;
    }

    refused! {
        deserialize_any() "data that only the bytes describe";
        deserialize_ignored_any() "data that is passed over";
        deserialize_identifier() "a field's name";
        deserialize_f32() "a fraction";
        deserialize_f64() "a fraction";
        deserialize_char() "a single character";
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        visitor.visit_bool(self.number().is_multiple_of(2))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        visitor.visit_string(self.text())
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        visitor.visit_string(self.text())
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        visitor.visit_byte_buf(self.text().into_bytes())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        visitor.visit_byte_buf(self.text().into_bytes())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        if self.is_some() { self.within("?", |inner| visitor.visit_some(inner)) } else { visitor.visit_none() }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, NoSample> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, NoSample> {
        if name == "Timestamp" && matches!(self.choice, Choice::Nth(_)) {
            self.count += 1;
            let moment = 1_790_000_000_000_000 + self.count as i64 * 1_000_001;
            return visitor.visit_newtype_struct(de::value::I64Deserializer::<NoSample>::new(moment));
        }
        self.within(name, |inner| visitor.visit_newtype_struct(inner))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        let left = self.length();
        self.within("[]", |sampler| visitor.visit_seq(Elements { sampler, left, fields: &[] }))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, left: usize, visitor: V) -> Result<V::Value, NoSample> {
        visitor.visit_seq(Elements { sampler: self, left, fields: &[] })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        left: usize,
        visitor: V,
    ) -> Result<V::Value, NoSample> {
        self.within(name, |sampler| visitor.visit_seq(Elements { sampler, left, fields: &[] }))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NoSample> {
        let left = self.length();
        self.within("{}", |sampler| visitor.visit_map(Elements { sampler, left, fields: &[] }))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NoSample> {
        self.within(name, |sampler| visitor.visit_seq(Elements { sampler, left: fields.len(), fields }))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NoSample> {
        let variant = self.variant(name, variants.len());
        self.within(name, |sampler| visitor.visit_enum(Variant(sampler, variant)))
    }
}
