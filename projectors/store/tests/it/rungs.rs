//! Rungs: whole or passed over.

use gatelog_record::{Domain, Partition};
use gatelog_store::rung::{self, EncodedRung};
use gatelog_store::{Layout, Position, Projection, RungDir, StoreError, StoreWarning, known};
use gatelog_tables::LiveTables;

use crate::lending::{InMaps, Lending, PARTITION, Story, digest_of};

fn rung_at(story: &Story, sequence: usize) -> EncodedRung {
    let mut maps = InMaps::default();
    let mut position = Position::default();
    for event in &story.events[..sequence] {
        maps.apply(&event.record).unwrap();
        position = position.after(&event.record, event.link, event.log_offset);
    }
    EncodedRung::new::<Lending, _>(PARTITION, &position, &maps.live).unwrap()
}

#[test]
fn a_rung_gives_the_live_tables_back_and_folding_goes_on_from_it() {
    let story = Story::long(50);
    let dir = tempfile::tempdir().unwrap();
    let rungs = RungDir::new(dir.path().join("rungs"));
    assert_eq!(rungs.list().unwrap(), []);
    for sequence in [7, 20, 33] {
        rungs.put(&rung_at(&story, sequence)).unwrap();
    }
    let mut warnings = Vec::new();
    for wanted in 0..=50_u64 {
        let nearest = rungs.nearest::<Lending>(PARTITION, wanted, &mut warnings).unwrap();
        let expected = [33, 20, 7].into_iter().find(|sequence| *sequence <= wanted);
        assert_eq!(nearest.as_ref().map(|rung| rung.header.position.sequence), expected);
        let Some(mut rung) = nearest else { continue };
        assert_eq!(rung.header.position.link, story.events[rung.header.position.sequence as usize - 1].link);
        for event in &story.events[rung.header.position.sequence as usize..wanted as usize] {
            rung.live.apply(&event.record).unwrap();
        }
        assert_eq!(digest_of(&rung.live), story.live_digests[wanted as usize]);
    }
    assert_eq!(warnings, []);
    assert_eq!(rungs.discard_after(10).unwrap(), 2);
    assert_eq!(rungs.list().unwrap().len(), 1);
}

#[test]
fn a_rung_is_the_same_bytes_from_every_backing() {
    let story = Story::long(50);
    let dir = tempfile::tempdir().unwrap();
    let (mut projection, _) = Projection::<Lending>::open(dir.path(), PARTITION).unwrap();
    projection.fold(&story.events, 50, 0).unwrap();
    let stored = EncodedRung::new::<Lending, _>(PARTITION, projection.position(), projection.live()).unwrap();
    let (one, other) = (RungDir::new(dir.path().join("one")), RungDir::new(dir.path().join("other")));
    let (one, other) = (one.put(&stored).unwrap(), other.put(&rung_at(&story, 50)).unwrap());
    assert_eq!(std::fs::read(one).unwrap(), std::fs::read(other).unwrap());
}

#[test]
fn a_rung_damaged_in_any_byte_or_cut_off_anywhere_is_passed_over() {
    let story = Story::long(30);
    let dir = tempfile::tempdir().unwrap();
    let rungs = RungDir::new(dir.path());
    rungs.put(&rung_at(&story, 10)).unwrap();
    let path = rungs.put(&rung_at(&story, 30)).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let mut broken: Vec<Vec<u8>> = (0..whole.len()).map(|length| whole[..length].to_vec()).collect();
    for place in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[place] ^= 1 << (place % 8);
        broken.push(bytes);
    }
    for bytes in broken {
        std::fs::write(&path, &bytes).unwrap();
        let mut warnings = Vec::new();
        let rung = rungs.nearest::<Lending>(PARTITION, 30, &mut warnings).unwrap().unwrap();
        assert_eq!(rung.header.position.sequence, 10);
        assert!(
            matches!(&warnings[..], [StoreWarning::RungPassedOver(StoreError::RungDamaged { .. })]),
            "{warnings:?}"
        );
    }
}

#[test]
fn rungs_of_another_schema_or_partition_are_passed_over_and_told() {
    let story = Story::long(30);
    let dir = tempfile::tempdir().unwrap();
    let rungs = RungDir::new(dir.path());
    let path = rungs.put(&rung_at(&story, 30)).unwrap();
    let mut warnings = Vec::new();
    assert!(rungs.nearest::<Lending<2, 1>>(PARTITION, 99, &mut warnings).unwrap().is_none());
    let other = Partition { domain: Domain::Deployments, index: 4 };
    assert!(rungs.nearest::<Lending>(other, 99, &mut warnings).unwrap().is_none());
    let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert!(told[0].contains("its state schema is 1, this gatelog's is 2"), "{told:?}");
    assert!(told[1].contains("it is of domain 4 partition 0, not of deployments/4"), "{told:?}");
    assert_eq!(rung::header(&path).unwrap().position.sequence, 30);
}

#[test]
fn a_rung_knows_of_the_log_what_a_deleted_projection_no_longer_does() {
    let story = Story::long(30);
    let dir = tempfile::tempdir().unwrap();
    let (mut projection, _) = Projection::<Lending>::open(dir.path(), PARTITION).unwrap();
    projection.fold(&story.events[..20], 20, 0).unwrap();
    let rungs = RungDir::new(Layout::new(dir.path(), PARTITION).rungs());
    rungs.put(&rung_at(&story, 10)).unwrap();
    let by = |found: Option<gatelog_store::Known>| found.map(|known| known.sequence);
    let mut warnings = Vec::new();
    assert_eq!(by(known(dir.path(), PARTITION, &mut warnings).unwrap()), Some(20));
    drop(projection);
    Projection::<Lending>::delete(dir.path(), PARTITION).unwrap();
    assert_eq!(by(known(dir.path(), PARTITION, &mut warnings).unwrap()), Some(10));
    // A damaged rung knows nothing; the one before it does.
    let path = rungs.put(&rung_at(&story, 30)).unwrap();
    std::fs::write(path, b"nothing").unwrap();
    assert_eq!(by(known(dir.path(), PARTITION, &mut warnings).unwrap()), Some(10));
    assert_eq!(warnings.len(), 1);
}
