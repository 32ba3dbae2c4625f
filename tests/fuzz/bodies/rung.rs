//! Rungs, of both domains.
//!
//! Of `super`: `within`, which holds a reader to the room it may take.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test, wherever it is compiled")]

use std::path::Path;

use gatelog_capacity_state::Capacity;
use gatelog_gate_state::Gate;
use gatelog_record::{Domain, Partition};
use gatelog_store::StoreError;
use gatelog_store::rung::{self, EncodedRung};
use gatelog_tables::{DomainState, Maps};
use sha2::{Digest, Sha256};

use super::within;

/// What rows may take in memory for each of their bytes, and what the codec makes room for before it reads.
const ROW_TIMES: usize = 1_024;
const ROW_ROOM: usize = gatelog_record::codec::MAX_BODY + (4 << 20);
/// How far a byte of a file can unfold.
const UNFOLDED: usize = (128 << 10) / 4;

/// The first byte: bit 0, the hash at the end is set right; bit 1, only rows, not folded; bit 2, of capacity.
pub fn rung(data: &[u8], file: &Path) {
    let Some((choice, rest)) = data.split_first() else { return };
    match (choice & 2 == 2, choice & 4 == 4) {
        (true, false) => rows::<Gate>(rest),
        (true, true) => rows::<Capacity>(rest),
        (false, capacity) => {
            let mut bytes = rest.to_vec();
            if choice & 1 == 1 {
                bytes.extend_from_slice(&Sha256::digest(rest));
            }
            std::fs::write(file, &bytes).unwrap();
            let length = bytes.len();
            if capacity {
                whole::<Capacity>(file, length, Domain::Capacity)
            } else {
                whole::<Gate>(file, length, Domain::Gate)
            }
        }
    }
}

fn whole<S: DomainState>(file: &Path, length: usize, domain: Domain) {
    let partition = Partition { domain, index: 0 };
    let header = within(4 * length + (64 << 10), || rung::header(file));
    match within(UNFOLDED * length + ROW_ROOM, || rung::read::<S>(file, partition)) {
        Ok(read) => {
            assert_eq!(header.as_ref(), Ok(&read.header));
            let again = EncodedRung::new::<S, Maps>(partition, &read.header.position, &read.live).unwrap();
            std::fs::write(file, again.into_bytes()).unwrap();
            let same = rung::read::<S>(file, partition).unwrap();
            assert_eq!(same.header, read.header);
            assert_eq!(rung::rows_of(&same.live).unwrap(), rung::rows_of(&read.live).unwrap());
        }
        Err(error) => {
            let (StoreError::RungDamaged { path, message } | StoreError::RungOther { path, message }) = &error else {
                panic!("a file that cannot be read: {error}")
            };
            assert!(path == file && !message.is_empty() && error.to_string().contains(&file.display().to_string()));
        }
    }
}

fn rows<S: DomainState>(bytes: &[u8]) {
    match within(ROW_TIMES * bytes.len() + ROW_ROOM, || rung::tables_of::<S::Live<Maps>>(bytes)) {
        Ok(tables) => {
            let canonical = rung::rows_of(&tables).unwrap();
            let again: S::Live<Maps> = rung::tables_of(&canonical).unwrap();
            assert_eq!(rung::rows_of(&again).unwrap(), canonical, "rows have one form");
        }
        Err(error) => {
            let told = error.to_string();
            assert!(!told.is_empty(), "which table");
        }
    }
}
