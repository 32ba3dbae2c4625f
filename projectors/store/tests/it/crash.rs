//! Whatever dies, state and position agree, and the log gives the rest again.

use std::collections::BTreeMap;

use gatelog_record::{Domain, Partition};
use gatelog_store::{Layout, Opened, Projection, SchemaVersion, StoreError, checkpoint, known};
use gatelog_tables::TableKey;
use sha2::{Digest, Sha256};

use crate::lending::{Lending, PARTITION, Story};
use crate::{copy_dir, files_ending};

const SCHEMA: SchemaVersion = SchemaVersion { live: 1, read: 1 };

fn open(dir: &std::path::Path) -> Projection<Lending> {
    Projection::open(dir, PARTITION).unwrap().0
}

#[test]
fn killed_at_any_commit_state_and_position_agree_and_folding_on_gives_the_same() {
    let story = Story::long(60);
    let dir = tempfile::tempdir().unwrap();
    let mut projection = open(dir.path());
    for (count, event) in story.events.iter().enumerate() {
        projection.apply(event).unwrap();
        if count % 4 != 0 {
            continue;
        }
        projection.commit().unwrap();
        if let Some(uncommitted) = story.events.get(count + 1) {
            // Folded but not committed when the machine stops.
            projection.apply(uncommitted).unwrap();
        }
        let other = tempfile::tempdir().unwrap();
        copy_dir(dir.path(), other.path());
        projection.rollback();
        let mut killed = open(other.path());
        assert_eq!(killed.position(), projection.position());
        assert_eq!(killed.digest().unwrap(), story.digests[count + 1]);
        killed.fold(&story.events[count + 1..], 0, 0).unwrap();
        assert_eq!(killed.digest().unwrap(), *story.digests.last().unwrap());
    }
}

#[test]
fn a_write_cut_off_anywhere_by_loss_of_power_leaves_an_older_state_that_is_whole() {
    let story = Story::long(40);
    let dir = tempfile::tempdir().unwrap();
    let mut projection = open(dir.path());
    for event in &story.events {
        projection.apply(event).unwrap();
        projection.commit().unwrap();
    }
    let database = Layout::new(dir.path(), PARTITION).database(SCHEMA);
    let journal = files_ending(&database, ".log").pop().unwrap();
    let length = std::fs::metadata(&journal).unwrap().len();
    assert!(length > 1_000, "the journal is {length} bytes long");
    let mut positions = std::collections::BTreeSet::new();
    for kept in (0..20).map(|part| length * part / 20) {
        let other = tempfile::tempdir().unwrap();
        copy_dir(dir.path(), other.path());
        let cut = Layout::new(other.path(), PARTITION).database(SCHEMA).join(journal.file_name().unwrap());
        std::fs::File::options().write(true).open(&cut).unwrap().set_len(kept).unwrap();
        let mut older = open(other.path());
        let sequence = older.position().sequence as usize;
        assert_eq!(older.digest().unwrap(), story.digests[sequence], "cut at byte {kept}");
        older.fold(&story.events[sequence..], 0, 0).unwrap();
        assert_eq!(older.digest().unwrap(), *story.digests.last().unwrap());
        positions.insert(sequence);
    }
    assert!(positions.len() > 5, "cuts led to {positions:?}");
}

/// A projection with its rows in table files, two checkpoints behind it, and damage in one file.
fn damaged(story: &Story) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut projection = open(dir.path());
    for (count, event) in story.events.iter().enumerate() {
        projection.apply(event).unwrap();
        projection.commit().unwrap();
        if count % 10 == 9 {
            checkpoint::create(&projection).unwrap();
        }
    }
    drop(projection);
    for table in files_ending(&Layout::new(dir.path(), PARTITION).database(SCHEMA), ".sst") {
        // Not in place: the checkpoint's file is linked to this one.
        let mut bytes = std::fs::read(&table).unwrap();
        let middle = bytes.len() / 3;
        bytes.iter_mut().skip(middle / 4).take(middle).for_each(|byte| *byte ^= 0x55);
        std::fs::remove_file(&table).unwrap();
        std::fs::write(&table, bytes).unwrap();
    }
    dir
}

#[test]
fn a_damaged_projection_is_named_with_its_cure() {
    let story = Story::long(40);
    let dir = damaged(&story);
    let error = Projection::<Lending>::open(dir.path(), PARTITION).unwrap_err();
    assert!(matches!(error, StoreError::StoreDamaged { .. }), "{error}");
    assert!(error.to_string().ends_with("delete that directory: it is rebuilt from the log"), "{error}");
    assert!(error.to_string().contains("deployments-0/l1-r1"), "{error}");
    assert!(error.is_cured_by_rebuild());

    Projection::<Lending>::delete(dir.path(), PARTITION).unwrap();
    let mut rebuilt = open(dir.path());
    rebuilt.fold(&story.events, 0, 0).unwrap();
    assert_eq!(rebuilt.digest().unwrap(), *story.digests.last().unwrap());
}

#[test]
fn a_damaged_projection_goes_on_from_the_newest_whole_checkpoint() {
    let story = Story::long(45);
    let dir = damaged(&story);
    let layout = Layout::new(dir.path(), PARTITION);
    let made: Vec<u64> = checkpoint::list(&layout, SCHEMA)
        .unwrap()
        .iter()
        .map(|path| checkpoint::metadata(path).unwrap().sequence)
        .collect();
    assert_eq!(made, [40, 30], "the two newest are kept");
    let newest = checkpoint::list(&layout, SCHEMA).unwrap().remove(0);

    let mut warnings = Vec::new();
    let mut restored = checkpoint::restore::<Lending>(dir.path(), PARTITION, &mut warnings).unwrap().unwrap();
    assert_eq!((restored.position().sequence, warnings.len()), (40, 0));
    assert_eq!(restored.digest().unwrap(), story.digests[40]);
    restored.fold(&story.events[40..], 0, 0).unwrap();
    assert_eq!(restored.digest().unwrap(), *story.digests.last().unwrap());
    drop(restored);

    // The newest checkpoint has lost a file: the one before it serves, and that is told.
    std::fs::remove_file(files_ending(&newest, ".sst").pop().unwrap()).unwrap();
    let restored = checkpoint::restore::<Lending>(dir.path(), PARTITION, &mut warnings).unwrap().unwrap();
    assert_eq!((restored.position().sequence, warnings.len()), (30, 1));
    assert!(warnings[0].to_string().contains("its files are not those it was made with"), "{}", warnings[0]);
    assert_eq!(restored.digest().unwrap(), story.digests[30]);
}

/// Where the records of a file begin that RocksDB writes record by record, all in one block.
fn records_of(bytes: &[u8]) -> Vec<usize> {
    assert!(bytes.len() < 32 << 10);
    let mut begin = vec![0];
    while let Some([low, high]) = bytes.get(begin.last().unwrap() + 4..begin.last().unwrap() + 6) {
        begin.push(begin.last().unwrap() + 7 + usize::from(u16::from_le_bytes([*low, *high])));
    }
    begin.pop();
    begin
}

#[test]
fn a_flipped_bit_over_which_the_database_would_pass_or_read_for_ever_is_named() {
    let story = Story::long(40);
    let dir = tempfile::tempdir().unwrap();
    let mut projection = open(dir.path());
    projection.fold(&story.events[..20], 5, 0).unwrap();
    // Opened again, there are tables, and a manifest of several records.
    drop(projection);
    let mut projection = open(dir.path());
    for event in &story.events[20..] {
        projection.apply(event).unwrap();
        projection.commit().unwrap();
    }
    drop(projection);
    let database = Layout::new(dir.path(), PARTITION).database(SCHEMA);
    let current = std::fs::read_to_string(database.join("CURRENT")).unwrap();
    let manifest = database.join(current.trim());
    let journal = files_ending(&database, ".log").pop().unwrap();
    let (mut recycled, mut cut, mut read) = (0, 0, 0);
    for file in [&manifest, &journal] {
        let whole = std::fs::read(file).unwrap();
        let begin = records_of(&whole);
        assert!(begin.len() > 2, "{}: {begin:?}", file.display());
        // The length and the type of each record.
        let headers = begin.iter().flat_map(|begin| (4..7).map(move |byte| (*begin, begin + byte)));
        for (begin, at, bit) in headers.flat_map(|(begin, at)| (0..8).map(move |bit| (begin, at, bit))) {
            let other = tempfile::tempdir().unwrap();
            copy_dir(dir.path(), other.path());
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            let name = file.file_name().unwrap().to_string_lossy();
            std::fs::write(Layout::new(other.path(), PARTITION).database(SCHEMA).join(&*name), &bytes).unwrap();
            let what = format!("bit {bit} of byte {at} of {name}");
            let is_recycled = at == begin + 6 && [5, 6, 7, 8, 11, 131].contains(&bytes[at]);
            match Projection::<Lending>::open(other.path(), PARTITION) {
                Ok((older, _)) => {
                    assert!(!is_recycled && file == &journal, "{what}");
                    let sequence = older.position().sequence as usize;
                    assert_eq!(older.digest().unwrap(), story.digests[sequence], "{what}");
                    read += 1;
                }
                Err(error) => {
                    assert!(error.is_cured_by_rebuild(), "{what}: {error}");
                    let said = error.to_string();
                    if is_recycled {
                        let why = format!("byte {begin} of {name} begins a record of type {}", bytes[at]);
                        assert!(said.contains(&why), "{what}: {said}");
                        recycled += 1;
                    } else if file == &manifest {
                        assert!(said.contains(&format!("{name} is not whole from byte {begin} on")), "{what}: {said}");
                        cut += 1;
                    }
                }
            }
        }
        if file == &manifest {
            // A manifest that ends anywhere but behind a record.
            for kept in (1..whole.len()).filter(|kept| !begin.contains(kept)) {
                let other = tempfile::tempdir().unwrap();
                copy_dir(dir.path(), other.path());
                let place = Layout::new(other.path(), PARTITION).database(SCHEMA).join(file.file_name().unwrap());
                std::fs::write(&place, &whole[..kept]).unwrap();
                let error = Projection::<Lending>::open(other.path(), PARTITION).unwrap_err();
                assert!(error.to_string().contains("is not whole from byte"), "cut at {kept}: {error}");
            }
        }
    }
    assert!(recycled > 10 && cut > 50 && read > 50, "{recycled} recycled, {cut} cut, {read} read as they were before");
}

#[test]
fn damage_found_while_folding_is_remembered_and_the_next_start_does_not_go_on_with_it() {
    let story = Story::of("buy dune 3\nlend dune 1\nlend dune 2\nreturn dune 1");
    let dir = tempfile::tempdir().unwrap();
    let mut projection = open(dir.path());
    projection.fold(&story.events[..4], 4, 0).unwrap();
    // Taken with the damage already in it, and in no live row.
    drop(projection);
    let database = Layout::new(dir.path(), PARTITION).database(SCHEMA);
    let mut key = 400_u16.to_be_bytes().to_vec();
    ("dune".to_owned(), 4_u64).write(&mut key);
    let raw = rocksdb::DB::open_default(&database).unwrap();
    assert!(raw.get(&key).unwrap().is_some(), "the row is where it is looked for");
    raw.put(&key, b"\xff").unwrap();
    drop(raw);

    let mut projection = open(dir.path());
    let error = projection.fold(&story.events[4..], 5, 0).unwrap_err();
    assert!(matches!(error, StoreError::StoreDamaged { .. }), "{error}");
    assert!(error.to_string().contains("table copies: the row at key"), "{error}");
    assert_eq!(projection.position().sequence, 4);
    drop(projection);
    let again = Projection::<Lending>::open(dir.path(), PARTITION).unwrap_err();
    assert!(again.to_string().contains("table copies: the row at key"), "{again}");
    Projection::<Lending>::delete(dir.path(), PARTITION).unwrap();
    let mut rebuilt = open(dir.path());
    rebuilt.fold(&story.events, 5, 0).unwrap();
    assert_eq!(rebuilt.digest().unwrap(), story.digests[5]);
}

#[test]
fn a_checkpoint_that_shares_the_damage_is_passed_over() {
    let story = Story::long(40);
    let dir = tempfile::tempdir().unwrap();
    let mut projection = open(dir.path());
    projection.fold(&story.events, 40, 0).unwrap();
    let made = checkpoint::create(&projection).unwrap();
    drop(projection);
    for table in files_ending(&made, ".sst") {
        // In place: every link to the file sees it.
        let mut bytes = std::fs::read(&table).unwrap();
        bytes[20] ^= 0x55;
        std::fs::write(&table, bytes).unwrap();
    }
    let mut warnings = Vec::new();
    assert!(checkpoint::restore::<Lending>(dir.path(), PARTITION, &mut warnings).unwrap().is_none());
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[test]
fn a_checkpoint_made_of_what_was_damaged_before_is_passed_over() {
    let story = Story::long(40);
    let dir = tempfile::tempdir().unwrap();
    let mut projection = open(dir.path());
    projection.fold(&story.events, 40, 0).unwrap();
    let database = projection.layout().database(SCHEMA);
    let made = checkpoint::create(&projection).unwrap();
    drop(projection);
    // As if it had been damaged when its sums were taken, and a read had come upon that.
    let mut metadata = checkpoint::metadata(&made).unwrap();
    for table in files_ending(&made, ".sst") {
        let mut bytes = std::fs::read(&table).unwrap();
        bytes[20] ^= 0x55;
        std::fs::write(&table, &bytes).unwrap();
        let name = table.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(metadata.sums.insert(name, hex::encode(Sha256::digest(&bytes))).is_some());
    }
    std::fs::write(made.join("metadata.json"), serde_json::to_vec(&metadata).unwrap()).unwrap();
    std::fs::write(database.join("DAMAGED"), "a read").unwrap();
    let mut warnings = Vec::new();
    assert!(checkpoint::restore::<Lending>(dir.path(), PARTITION, &mut warnings).unwrap().is_none());
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[test]
fn a_checkpoint_without_sums_is_read_through() {
    let story = Story::long(40);
    let dir = tempfile::tempdir().unwrap();
    let mut projection = open(dir.path());
    projection.fold(&story.events, 40, 0).unwrap();
    let digest = projection.digest().unwrap();
    let made = checkpoint::create(&projection).unwrap();
    drop(projection);
    let metadata = checkpoint::metadata(&made).unwrap();
    assert_eq!(metadata.sums.len(), metadata.files.len());
    let older = checkpoint::Metadata { sums: BTreeMap::new(), ..metadata };
    std::fs::write(made.join("metadata.json"), serde_json::to_vec(&older).unwrap()).unwrap();
    let restored = checkpoint::restore::<Lending>(dir.path(), PARTITION, &mut Vec::new()).unwrap().unwrap();
    assert_eq!(restored.digest().unwrap(), digest);
}

#[test]
fn a_projection_without_its_current_file_is_damaged_not_new() {
    let story = Story::long(10);
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).fold(&story.events, 0, 0).unwrap();
    let database = Layout::new(dir.path(), PARTITION).database(SCHEMA);
    std::fs::remove_file(database.join("CURRENT")).unwrap();
    let error = Projection::<Lending>::open(dir.path(), PARTITION).unwrap_err();
    assert!(matches!(error, StoreError::StoreDamaged { .. }), "{error}");
}

#[test]
fn a_second_process_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let _open = open(dir.path());
    let error = Projection::<Lending>::open(dir.path(), PARTITION).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
}

#[test]
fn another_partitions_projection_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let other = Partition { domain: Domain::Deployments, index: 1 };
    std::fs::rename(dir.path().join("deployments-0"), dir.path().join("deployments-1")).unwrap();
    let error = Projection::<Lending>::open(dir.path(), other).unwrap_err();
    assert!(matches!(error, StoreError::OtherPartition { .. }), "{error}");
}

#[test]
fn a_new_state_schema_is_built_beside_the_old_one_and_changes_over() {
    let story = Story::long(30);
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).fold(&story.events, 30, 0).unwrap();

    let (mut new, opened) = Projection::<Lending<2, 1>>::open(dir.path(), PARTITION).unwrap();
    assert_eq!(opened, Opened::Fresh { beside: vec![SCHEMA] });
    new.fold(&story.events[..20], 20, 0).unwrap();
    // Going back to the gatelog before costs nothing yet, and the log is known to its end.
    assert_eq!(open(dir.path()).position().sequence, 30);
    assert_eq!(known(dir.path(), PARTITION, &mut Vec::new()).unwrap().unwrap().sequence, 30);

    new.fold(&story.events[20..], 30, 0).unwrap();
    let wanted = SchemaVersion { live: 2, read: 1 };
    assert_eq!(new.layout().retire_others(wanted).unwrap(), [SCHEMA]);
    assert_eq!(new.layout().schemas().unwrap(), [wanted]);
    assert_eq!(new.digest().unwrap(), *story.digests.last().unwrap());
    drop(new);

    // A directory moved by hand into another schema's place is seen through.
    let layout = Layout::new(dir.path(), PARTITION);
    std::fs::rename(layout.schema(wanted), layout.schema(SCHEMA)).unwrap();
    let error = Projection::<Lending>::open(dir.path(), PARTITION).unwrap_err();
    assert_eq!(error, StoreError::SchemaChanged { path: layout.schema(SCHEMA), found: wanted, wanted: SCHEMA });
}

#[test]
fn what_is_known_of_the_log_can_be_asked_while_the_projection_is_open() {
    let story = Story::long(12);
    let dir = tempfile::tempdir().unwrap();
    let mut warnings = Vec::new();
    assert_eq!(known(dir.path(), PARTITION, &mut warnings).unwrap(), None);
    let mut projection = open(dir.path());
    assert_eq!(known(dir.path(), PARTITION, &mut warnings).unwrap(), None);
    projection.fold(&story.events, 12, 0).unwrap();
    let found = known(dir.path(), PARTITION, &mut warnings).unwrap().unwrap();
    assert_eq!((found.sequence, found.link), (12, story.events[11].link));
    assert_eq!(warnings, []);
}
