//! Keys keep their order as bytes; an overlay reads like the map it would become.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic and explains itself")]

use std::borrow::Cow;
use std::ops::Bound;

use gatelog_record::{ItemId, Timestamp};
use gatelog_tables::digest::StateDigest;
use gatelog_tables::fold::TableSet;
use gatelog_tables::table::Rows;
use gatelog_tables::{FoldRefused, Life, Maps, Table, TableDef, TableError, TableExt, TableKey};
use proptest::prelude::*;

#[derive(Debug)]
struct Shelf;
impl TableDef for Shelf {
    const ID: u16 = 7;
    const NAME: &'static str = "shelf";
    const LIFE: Life = Life::Live;
    type Key = (String, u8);
    type Row = u32;
}

#[derive(Debug)]
struct Readers;
impl TableDef for Readers {
    const ID: u16 = 8;
    const NAME: &'static str = "readers";
    const LIFE: Life = Life::Live;
    type Key = u64;
    type Row = String;
}

gatelog_tables::tables! {
    /// A library.
    pub struct Library { shelf: Shelf, readers: Readers }
}

fn ordered<K: TableKey>(one: K, other: K) -> Result<(), TestCaseError> {
    let bytes = (one.to_bytes(), other.to_bytes());
    prop_assert_eq!(one.cmp(&other), bytes.0.cmp(&bytes.1), "{:?} {:?}", one, other);
    prop_assert_eq!(K::from_bytes(&bytes.0), Ok(one));
    prop_assert_eq!(K::from_bytes(&bytes.1), Ok(other));
    Ok(())
}

/// Texts that are alike, with the bytes that need care.
fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!['\0', '\u{1}', 'a', 'b', 'ÿ', '\u{10ffff}']), 0..4)
        .prop_map(String::from_iter)
}

proptest! {
    #[test]
    fn keys_keep_their_order_as_bytes(
        numbers in any::<(u64, u64, i64, i64)>(),
        texts in (text(), text(), text(), text()),
        small in (0..3_u8, 0..3_u8, 0..3_u16, 0..3_u16),
        ids in (prop::array::uniform16(0..2_u8), prop::array::uniform16(0..2_u8)),
    ) {
        let (a, b, c, d) = texts;
        ordered(numbers.0, numbers.1)?;
        ordered(numbers.2, numbers.3)?;
        ordered(Timestamp(numbers.2), Timestamp(numbers.3))?;
        ordered(a.clone(), b.clone())?;
        ordered((a.clone(), small.0), (b.clone(), small.1))?;
        ordered((a.clone(), c.clone()), (b.clone(), d.clone()))?;
        ordered((a.clone(), small.0, c.clone()), (b.clone(), small.1, d.clone()))?;
        ordered((small.0, a, small.2, c), (small.1, b, small.3, d))?;
        ordered((ItemId(ids.0), small.2), (ItemId(ids.1), small.3))?;
    }

    #[test]
    fn bytes_that_are_no_key_are_an_error_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
        if let Ok(key) = <(String, u8)>::from_bytes(&bytes) {
            prop_assert_eq!(key.to_bytes(), bytes.clone());
        }
        if let Ok(key) = <(u16, String, i64)>::from_bytes(&bytes) {
            prop_assert_eq!(key.to_bytes(), bytes);
        }
    }

    #[test]
    fn an_overlay_reads_like_the_map_it_would_become(
        base in prop::collection::btree_map((text(), 0..3_u8), any::<u32>(), 0..12),
        changes in prop::collection::vec(((text(), 0..3_u8), prop::option::of(any::<u32>())), 0..12),
        bounds in ((0..3_u8, (text(), 0..3_u8)), (0..3_u8, (text(), 0..3_u8))),
    ) {
        let mut library = Library::in_memory();
        library.shelf.rows = base.clone();
        let mut becomes = Library::in_memory();
        becomes.shelf.rows = base.clone();
        let mut overlay = library.overlay();
        for (key, change) in changes {
            match change {
                Some(row) => {
                    overlay.shelf.put(key.clone(), row).unwrap();
                    becomes.shelf.put(key, row).unwrap();
                }
                None => prop_assert_eq!(overlay.shelf.delete(&key).unwrap(), becomes.shelf.delete(&key).unwrap()),
            }
        }
        let bound = |(kind, key): &(u8, (String, u8))| match kind {
            0 => Bound::Unbounded,
            1 => Bound::Included(key.clone()),
            _ => Bound::Excluded(key.clone()),
        };
        let (from, to) = (bound(&bounds.0), bound(&bounds.1));
        let (from, to) = (from.as_ref(), to.as_ref());
        prop_assert_eq!(rows(overlay.shelf.range(from, to)), rows(becomes.shelf.range(from, to)));
        prop_assert_eq!(rows(overlay.shelf.range_back(from, to)), rows(becomes.shelf.range_back(from, to)));
        prop_assert_eq!(overlay.shelf.every().count(), becomes.shelf.rows.len());
        for key in base.keys() {
            prop_assert_eq!(overlay.shelf.row(key), becomes.shelf.rows.get(key));
        }
        prop_assert_eq!(digest(&overlay), digest(&becomes));
        // And the tables below are untouched.
        prop_assert_eq!(&library.shelf.rows, &base);
    }
}

fn rows(found: Result<Rows<'_, Shelf>, TableError>) -> Vec<((String, u8), u32)> {
    found.unwrap().map(|entry| entry.map(|(key, row)| (key, row.into_owned())).unwrap()).collect()
}

fn digest<B: gatelog_tables::Backing>(tables: &impl TableSet<B>) -> [u8; 32] {
    let mut digest = StateDigest::default();
    tables.visit(&mut digest).unwrap();
    digest.finish()
}

#[test]
fn an_event_that_names_a_missing_row_or_makes_one_twice_is_refused_by_name() {
    let mut library = Library::in_memory();
    library.readers.insert(3, "ada".to_owned()).unwrap();
    let exists = library.readers.insert(3, "bob".to_owned()).unwrap_err();
    assert_eq!(exists.to_string(), "table readers has a row 3 already");
    for missing in [
        library.readers.need(&4).map(Cow::into_owned).unwrap_err(),
        library.readers.update(&4, |name| name.push('!')).unwrap_err(),
        library.readers.remove(&4).unwrap_err(),
    ] {
        assert_eq!(missing, FoldRefused::Missing { table: "readers", key: "4".to_owned() });
    }
    library.readers.update(&3, |name| name.push('!')).unwrap();
    assert_eq!(library.readers.remove(&3).unwrap(), "ada!");
    assert!(library.readers.rows.is_empty());
}

#[test]
fn a_digest_knows_table_key_and_row() {
    let mut one = Library::in_memory();
    let empty = digest(&one);
    one.readers.put(1, "a".to_owned()).unwrap();
    let mut digests = vec![empty, digest(&one)];
    one.readers.put(1, "b".to_owned()).unwrap();
    digests.push(digest(&one));
    one.readers.delete(&1).unwrap();
    one.readers.put(2, "a".to_owned()).unwrap();
    digests.push(digest(&one));
    one.readers.delete(&2).unwrap();
    assert_eq!(digest(&one), empty);
    one.shelf.put(("a".to_owned(), 1), 1).unwrap();
    digests.push(digest(&one));
    let distinct: std::collections::BTreeSet<_> = digests.iter().collect();
    assert_eq!(distinct.len(), digests.len());
    // Pinned: rungs and checkpoints of earlier builds are compared with it.
    let hex: String = digest(&one).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "a74bf894a6f64acd8cef4b1c95ba0328c676a5f2307ebd04df81a5ffedf469a7");
}

#[test]
fn tables_are_opened_empty_by_the_factory_of_maps() {
    let library: Library<Maps> = Library::open(&mut Maps).unwrap();
    assert_eq!((library.shelf.rows.len(), library.readers.rows.len()), (0, 0));
}
