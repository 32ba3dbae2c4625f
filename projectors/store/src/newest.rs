//! The newest row of each subject, remembered.
//!
//! A fold goes back to the newest row of what it is about again and again, and asks as often about what is not
//! there yet. Both are answered here without a search through the database: newest rows are held as long as there
//! is room, and of what had to make room at least that it exists is remembered. What is not known for certain is
//! [`Found::Unknown`] and looked for where the rows are.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use gatelog_tables::{TableDef, TableKey};

/// How many rows of a table are remembered.
const MAX_ROWS: usize = 16_384;
/// The length of what stands at the end of each key of a table that grows: the event that put it.
const EVENT: usize = 8;

/// What is known here.
pub(crate) enum Found<'a, T: TableDef> {
    /// The row.
    Row(&'a T::Row),
    /// There is none.
    Nothing,
    /// It has to be looked for.
    Unknown,
}

struct Remembered<T: TableDef> {
    key: T::Key,
    /// Taken out while it is being changed.
    row: Option<Arc<T::Row>>,
    /// When it was put last.
    turn: u64,
    /// Which of [`Newest::turns`] is its own.
    queued: u64,
}

/// What is remembered of a table whose rows grow (see [`TableDef::GROWS`]).
pub(crate) struct Newest<T: TableDef> {
    rows: BTreeMap<Vec<u8>, Remembered<T>>,
    /// In the order in which they were put last, or earlier.
    turns: VecDeque<(u64, Vec<u8>)>,
    turn: u64,
    room: usize,
    /// Subjects that may have rows and are not remembered. `None`: any may.
    forgotten: Option<Ids>,
}

impl<T: TableDef> fmt::Debug for Newest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Newest").field("rows", &self.rows.len()).field("complete", &self.forgotten.is_some()).finish()
    }
}

/// The part of a key that all rows of one subject share.
fn subject<T: TableDef>(key: &T::Key) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(40);
    key.write(&mut bytes);
    bytes.truncate(bytes.len().saturating_sub(EVENT));
    bytes
}

impl<T: TableDef> Newest<T> {
    /// Of a table that is empty, or of one of whose rows nothing is known.
    pub fn new(empty: bool) -> Newest<T> {
        Newest {
            rows: BTreeMap::new(),
            turns: VecDeque::new(),
            turn: 0,
            room: MAX_ROWS,
            forgotten: empty.then(Ids::default),
        }
    }

    /// The row of a key.
    pub fn get(&self, key: &T::Key) -> Found<'_, T> {
        let subject = subject::<T>(key);
        match self.rows.get(&subject) {
            Some(Remembered { key: newest, row: Some(row), .. }) if newest == key => Found::Row(row.as_ref()),
            Some(Remembered { key: newest, .. }) if newest < key => Found::Nothing,
            Some(_) => Found::Unknown,
            None => self.stranger(&subject),
        }
    }

    /// The last row between two keys, both included.
    pub fn between(&self, from: &T::Key, to: &T::Key) -> Found<'_, T> {
        let subject = subject::<T>(to);
        let found = match self.rows.get(&subject) {
            // Older rows may lie between the two.
            Some(known) if known.key > *to => Found::Unknown,
            Some(Remembered { key, row: Some(row), .. }) if key >= from => Found::Row(row.as_ref()),
            Some(known) if known.key >= *from => Found::Unknown,
            Some(_) => Found::Nothing,
            None => self.stranger(&subject),
        };
        match found {
            // Rows of another subject may lie between the two.
            Found::Nothing if self::subject::<T>(from) != subject => Found::Unknown,
            found => found,
        }
    }

    fn stranger(&self, subject: &[u8]) -> Found<'_, T> {
        match &self.forgotten {
            Some(forgotten) if !forgotten.may_have(subject) => Found::Nothing,
            _ => Found::Unknown,
        }
    }

    /// A row was put: the newest of its subject.
    pub fn put(&mut self, key: T::Key, row: Arc<T::Row>) {
        self.turn += 1;
        let subject = subject::<T>(&key);
        if let Some(known) = self.rows.get_mut(&subject) {
            if known.key <= key {
                *known = Remembered { key, row: Some(row), turn: self.turn, queued: known.queued };
            }
            return;
        }
        self.turns.push_back((self.turn, subject.clone()));
        self.rows.insert(subject, Remembered { key, row: Some(row), turn: self.turn, queued: self.turn });
        while self.rows.len() > self.room || self.turns.len() > 2 * self.room {
            let Some((queued, subject)) = self.turns.pop_front() else { break };
            match self.rows.get_mut(&subject) {
                // It was put again since: it waits for that turn.
                Some(known) if known.queued == queued && known.turn > queued => {
                    known.queued = known.turn;
                    self.turns.push_back((known.turn, subject));
                }
                Some(known) if known.queued == queued => self.doubt_subject(&subject),
                // It left and came back, or only left.
                _ => {}
            }
        }
    }

    /// Gives the row of a key away to be changed; it has to be put again.
    pub fn lend(&mut self, key: &T::Key) -> Option<Arc<T::Row>> {
        self.rows.get_mut(&subject::<T>(key)).filter(|known| known.key == *key)?.row.take()
    }

    /// Nothing is known any more of this key's subject: a row of it was taken away, or taken back.
    pub fn doubt(&mut self, key: &T::Key) {
        self.doubt_subject(&subject::<T>(key));
    }

    fn doubt_subject(&mut self, subject: &[u8]) {
        self.rows.remove(subject);
        if self.forgotten.as_mut().is_some_and(|forgotten| !forgotten.add(subject)) {
            self.forgotten = None;
        }
    }
}

/// Ids seen, in little memory: one that was added is always found, one that was not seldom. (Bloom filters, each
/// twice as large as the one before it.)
#[derive(Default)]
struct Ids {
    layers: Vec<Layer>,
}

struct Layer {
    bits: Vec<u64>,
    left: usize,
}

/// Ids in the first layer.
const FIRST_LAYER: usize = 1 << 14;
/// 16 bits an id: 8 million ids and 17 MB at most.
const MAX_LAYERS: usize = 9;
const BITS_PER_ID: usize = 16;
const PROBES: u64 = 6;

/// The places of an id's bits, as two numbers from which they follow.
fn places(id: &[u8]) -> (u64, u64) {
    // FNV-1a, stirred once more at its end (as SplitMix64 does).
    let hash = id
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let stirred = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let stirred = (stirred ^ (stirred >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (stirred ^ (stirred >> 31), hash | 1)
}

impl Layer {
    fn bit(&self, places: (u64, u64), probe: u64) -> (usize, u64) {
        // The length is a power of two.
        let bits = self.bits.len() as u64 * 64;
        let bit = places.0.wrapping_add(probe.wrapping_mul(places.1)) & (bits - 1);
        ((bit / 64) as usize, 1 << (bit % 64))
    }
}

impl Ids {
    /// Whether it may have been added.
    fn may_have(&self, id: &[u8]) -> bool {
        let places = places(id);
        self.layers.iter().any(|layer| {
            (0..PROBES).all(|probe| {
                let (word, bit) = layer.bit(places, probe);
                layer.bits.get(word).is_some_and(|word| word & bit != 0)
            })
        })
    }

    /// Adds an id; `false` when there is no room for it.
    #[must_use]
    fn add(&mut self, id: &[u8]) -> bool {
        if self.layers.last().is_none_or(|layer| layer.left == 0) {
            if self.layers.len() == MAX_LAYERS {
                return false;
            }
            let ids = FIRST_LAYER << self.layers.len();
            self.layers.push(Layer { bits: vec![0; ids * BITS_PER_ID / 64], left: ids });
        }
        let places = places(id);
        if let Some(layer) = self.layers.last_mut() {
            layer.left -= 1;
            for probe in 0..PROBES {
                let (word, bit) = layer.bit(places, probe);
                if let Some(word) = layer.bits.get_mut(word) {
                    *word |= bit;
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use gatelog_tables::maps::MapTable;
    use gatelog_tables::{Life, Table};
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug)]
    struct Seen;
    impl TableDef for Seen {
        const ID: u16 = 1;
        const NAME: &'static str = "seen";
        const LIFE: Life = Life::Temporal;
        const GROWS: bool = true;
        type Key = (String, u64);
        type Row = u64;
    }

    #[test]
    fn ids_that_were_added_are_found_and_hardly_any_other() {
        let mut ids = Ids::default();
        let id = |number: u64| [7; 8].into_iter().chain(number.to_be_bytes()).collect::<Vec<u8>>();
        assert!(!ids.may_have(&id(0)));
        (0..100_000).for_each(|number| assert!(ids.add(&id(number))));
        assert!((0..100_000).all(|number| ids.may_have(&id(number))));
        let wrong = (100_000..200_000).filter(|number| ids.may_have(&id(*number))).count();
        assert!(wrong < 1_000, "{wrong} of 100000 others are found");
    }

    #[test]
    fn when_there_is_no_room_for_an_id_it_says_so() {
        let mut ids = Ids { layers: (0..MAX_LAYERS).map(|_| Layer { bits: vec![0; 1], left: 1 }).collect() };
        assert!(ids.add(b"fits"));
        assert!(!ids.add(b"does not"));
    }

    proptest! {
        // What is said is what a map would say; what is not known is never wrong.
        #[test]
        fn what_is_known_is_right(
            steps in prop::collection::vec((0..4_u8, 0..40_usize), 1..300),
            room in 1..20_usize,
            empty: bool,
        ) {
            let mut table = MapTable::<Seen>::default();
            let mut newest = Newest::<Seen>::new(empty);
            newest.room = room;
            for (sequence, (what, who)) in (1_u64..).zip(steps) {
                let who = format!("who {who}");
                let last = (who.clone(), u64::MAX);
                let held = table
                    .range_back(Bound::Included(&(who.clone(), 0)), Bound::Included(&last))
                    .unwrap()
                    .next()
                    .map(|entry| entry.unwrap().0);
                match (what, held) {
                    (0, Some(held)) => {
                        table.delete(&held).unwrap();
                        newest.doubt(&held);
                    }
                    (1, Some(held)) => {
                        table.put(held.clone(), sequence).unwrap();
                        newest.lend(&held);
                        prop_assert!(!matches!(newest.get(&held), Found::Row(_)));
                        newest.put(held, Arc::new(sequence));
                    }
                    _ => {
                        table.put((who.clone(), sequence), sequence).unwrap();
                        newest.put((who.clone(), sequence), Arc::new(sequence));
                    }
                }
                prop_assert!(newest.rows.len() <= room);
                for who in (0..41).map(|who| format!("who {who}")) {
                    for up_to in [0, sequence / 2, sequence, u64::MAX] {
                        let (from, to) = ((who.clone(), 0), (who.clone(), up_to));
                        let right = table.newest(&from, &to).unwrap().map(|row| *row);
                        match newest.between(&from, &to) {
                            Found::Row(row) => prop_assert_eq!(Some(*row), right),
                            Found::Nothing => prop_assert_eq!(None, right),
                            Found::Unknown => {}
                        }
                        match newest.get(&to) {
                            Found::Row(row) => prop_assert_eq!(Some(row), table.rows.get(&to)),
                            Found::Nothing => prop_assert_eq!(None, table.rows.get(&to)),
                            Found::Unknown => {}
                        }
                    }
                }
            }
        }
    }
}
