//! Torn, flipped, missing, exchanged: what may be mended on opening and what must be named.

use super::*;
use crate::Known;
use crate::format::{SEGMENT_HEADER, TRAILER};
use gatelog_event_log::conformance::input;
use gatelog_event_log::{Tail, history};
use gatelog_record::ChainLink;

/// A closed log of some inputs and events; the events' tail.
fn written(options: Options, rounds: usize) -> (TempDir, Tail) {
    let dir = TempDir::new().unwrap();
    let log = open(&dir, options);
    let (mut scribe, mut writer) = claim(&log);
    for round in 0..rounds {
        put(&log, &input(&format!("round {round}")));
        arrived(writer.append(scribe.several(1))).unwrap();
    }
    (dir, scribe.tail)
}

fn known(sequence: u64, link: ChainLink) -> Options {
    let who = "the projection in state/gate.0".to_owned();
    Options { known: vec![Known { who, partition: GATE, sequence, link }], ..usual() }
}

fn opened(dir: &TempDir, options: Options) -> Result<EmbeddedLog, LogError> {
    EmbeddedLog::open(dir.path(), options)
}

/// How many of these bytes count as written: who died left zeros behind them, too.
fn without_zeros(bytes: &[u8]) -> u64 {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

/// A log of so many inputs whose writer was killed; its only segment, and where its last frame ends.
fn killed(inputs: usize) -> (TempDir, PathBuf, u64) {
    let dir = TempDir::new().unwrap();
    let log = open(&dir, usual());
    for index in 0..inputs {
        put(&log, &input(&format!("{index}")));
    }
    let end = log.shared().home.read_hint();
    log.abandon();
    drop(log);
    let path = segment(dir.path(), 1);
    assert!(fs::metadata(&path).unwrap().len() > end + (512 << 10), "its room is left");
    (dir, path, end)
}

#[test]
fn room_that_a_killed_writer_left_counts_for_nothing() {
    let (dir, path, end) = killed(3);
    let beside = EmbeddedLog::open_reader(dir.path(), crate::ReaderOptions::default()).unwrap();
    assert_eq!(contents(&beside, INPUTS).len(), 3);
    assert_eq!(beside.verify().unwrap().bytes, end);
    let log = open(&dir, usual());
    assert_eq!((log.stats().cut_off, log.end(INPUTS)), (0, Ok(Offset(3))));
    assert_eq!(fs::metadata(&path).unwrap().len(), end);
    put(&log, &input("goes on"));
    assert_eq!(contents(&beside, INPUTS).len(), 4);
    assert_eq!(log.verify(), beside.verify());
    let end = log.shared().home.read_hint();
    log.close();
    assert_eq!(fs::metadata(&path).unwrap().len(), end, "who closes a log gives its room back");
}

#[test]
fn a_write_torn_at_any_byte_of_the_room_is_cut_off_and_nothing_else() {
    let (dir, path, end) = killed(2);
    let frame = {
        let copied = copy(dir.path());
        let log = open(&copied, usual());
        let (_, at, frame) = next_frame(&log, &[(INPUTS, 2, input("torn")), (INPUTS, 3, input("too"))]);
        assert_eq!(at, end);
        frame
    };
    for length in 0..frame.len() {
        let copied = copy(dir.path());
        write_bytes(&segment(copied.path(), 1), end, &frame[..length]);
        let log = open(&copied, usual());
        assert_eq!(log.stats().cut_off, without_zeros(&frame[..length]), "torn after {length} bytes");
        assert_eq!(log.end(INPUTS), Ok(Offset(2)));
    }
    write_bytes(&path, end, &frame);
    let log = open(&dir, usual());
    assert_eq!((log.stats().cut_off, log.end(INPUTS)), (0, Ok(Offset(4))));
}

#[test]
fn a_bit_flipped_in_the_room_takes_nothing_that_was_acknowledged() {
    let (dir, path, end) = killed(2);
    for byte in [end, end + 1, end + 40, end + 100_000] {
        flip(&path, byte);
        let copied = copy(dir.path());
        let log = open(&copied, usual());
        assert_eq!((log.stats().cut_off, log.end(INPUTS)), (byte + 1 - end, Ok(Offset(2))));
        flip(&path, byte);
    }
    // What was acknowledged and is zero now is no room.
    let start = *frame_starts(&path).last().unwrap();
    let zeros = vec![0; (end - start) as usize];
    write_bytes(&path, start, &zeros);
    let error = opened(&dir, usual()).err().unwrap();
    assert!(matches!(&error, LogError::Behind { .. }), "{error}");
    assert!(error.to_string().contains("bytes more had been acknowledged"), "{error}");
}

#[test]
fn sealing_that_was_cut_short_before_the_room_was_given_back_is_done_again() {
    let (dir, _) = written(tiny(), 8);
    let count = segments(dir.path());
    fs::remove_file(segment(dir.path(), count)).unwrap();
    let path = segment(dir.path(), count - 1);
    forget_hint(dir.path());
    let whole = fs::metadata(&path).unwrap().len();
    make_writable(&path);
    write_bytes(&path, whole, &[0; 5_000]);
    let beside = EmbeddedLog::open_reader(dir.path(), crate::ReaderOptions::default()).unwrap();
    assert_eq!(beside.verify().unwrap().sealed, count - 2);
    let log = open(&dir, tiny());
    let kept = log.end(INPUTS).unwrap();
    put(&log, &input("goes on"));
    assert_eq!(log.end(INPUTS), Ok(Offset(kept.0 + 1)));
    assert_eq!(
        log.verify().unwrap().records,
        contents(&log, INPUTS).len() as u64 + contents(&log, EVENTS).len() as u64
    );
    assert!(log.verify().unwrap().sealed >= count - 1);
}

/// Where each frame of a segment begins.
fn frame_starts(path: &Path) -> Vec<u64> {
    let bytes = fs::read(path).unwrap();
    let mut starts = vec![];
    let mut at = SEGMENT_HEADER as usize;
    while bytes[at..].starts_with(b"GLF1") {
        starts.push(at as u64);
        at += 32 + u32::from_le_bytes(bytes[at + 12..at + 16].try_into().unwrap()) as usize;
    }
    starts
}

#[test]
fn a_write_torn_at_any_byte_is_cut_off_and_nothing_else() {
    let (dir, tail) = written(usual(), 3);
    let log = open(&dir, usual());
    let torn: Vec<_> = (0..2).map(|index| (INPUTS, 3 + index, input(&format!("torn {index}")))).collect();
    let (path, _, frame) = next_frame(&log, &torn);
    drop(log);
    let before = fs::metadata(&path).unwrap().len();
    for length in 0..frame.len() {
        append_bytes(&path, &frame[..length]);
        let log = open(&dir, usual());
        assert_eq!(log.stats().cut_off, without_zeros(&frame[..length]));
        assert_eq!(log.end(INPUTS), Ok(Offset(3)), "torn after {length} bytes");
        drop(log);
        assert_eq!(fs::metadata(&path).unwrap().len(), before);
    }
    // Whole, but nobody was told: it is there, both records of it, and made durable now.
    append_bytes(&path, &frame);
    let log = open(&dir, usual());
    assert_eq!((log.stats().cut_off, log.end(INPUTS)), (0, Ok(Offset(5))));
    assert_eq!(history::verify(&log, GATE).tail, tail);
}

#[test]
fn a_write_that_left_zeros_or_rubbish_is_cut_off_too() {
    let (dir, _) = written(usual(), 2);
    let path = segment(dir.path(), 1);
    for rubbish in [vec![0; 5_000], vec![0xff; 100], b"GLF1".repeat(20)] {
        append_bytes(&path, &rubbish);
        let log = open(&dir, usual());
        assert_eq!((log.stats().cut_off, log.end(INPUTS)), (without_zeros(&rubbish), Ok(Offset(2))));
    }
}

#[test]
fn the_last_frame_is_not_cut_off_when_somebody_knows_of_it() {
    let (dir, tail) = written(usual(), 4);
    let path = segment(dir.path(), 1);
    let last = *frame_starts(&path).last().unwrap();
    let whole = fs::read(&path).unwrap();
    for length in [whole.len() as u64 - 1, last + 1] {
        cut(&path, length);
        // The hint knows that it had been acknowledged.
        let error = opened(&dir, usual()).err().unwrap();
        assert_eq!(place_of(&error), (1, last), "{error}");
        assert!(error.to_string().contains("had been acknowledged"), "{error}");
        // A projection knows.
        let copied = copy(dir.path());
        forget_hint(copied.path());
        let error = opened(&copied, known(4, tail.link)).err().unwrap();
        assert_eq!(place_of(&error), (1, last));
        assert!(error.to_string().contains("the projection in state/gate.0 knows event 4"), "{error}");
        // A projection knows less than that: then nobody was told of it.
        assert!(opened(&copied, known(0, ChainLink::GENESIS)).is_ok());
    }
    // A flipped byte in it is no different.
    fs::write(&path, &whole).unwrap();
    for byte in last..whole.len() as u64 {
        flip(&path, byte);
        assert_eq!(place_of(&opened(&dir, usual()).err().unwrap()), (1, last));
        flip(&path, byte);
    }
    assert!(opened(&dir, known(4, tail.link)).is_ok());
}

#[test]
fn two_damaged_frames_at_the_end_are_not_one_torn_write() {
    let (dir, _) = written(usual(), 3);
    forget_hint(dir.path());
    let path = segment(dir.path(), 1);
    let starts = frame_starts(&path);
    let [.., before, last] = starts[..] else { panic!() };
    flip(&path, before + 40);
    flip(&path, last + 40);
    let error = opened(&dir, usual()).err().unwrap();
    assert_eq!(place_of(&error), (1, before), "{error}");
}

#[test]
fn a_log_that_ends_too_early_is_behind() {
    let (dir, tail) = written(usual(), 4);
    let path = segment(dir.path(), 1);
    cut(&path, *frame_starts(&path).last().unwrap());
    let error = opened(&dir, usual()).err().unwrap();
    assert!(
        matches!(&error, LogError::Behind { knows, .. } if knows.contains("bytes more had been acknowledged")),
        "{error}"
    );
    forget_hint(dir.path());
    let error = opened(&dir, known(4, tail.link)).err().unwrap();
    let text = "the projection in state/gate.0 knows event 4 of gate/0, here 3 is the newest";
    assert!(
        matches!(&error, LogError::Behind { knows, place } if knows == text && place.stream == Some(EVENTS)),
        "{error}"
    );
    // Nobody knows better: then this is all there ever was.
    assert_eq!(open(&dir, usual()).end(EVENTS), Ok(Offset(3)));
}

#[test]
fn a_log_without_its_segments_is_behind() {
    let (dir, tail) = written(usual(), 2);
    fs::remove_file(segment(dir.path(), 1)).unwrap();
    assert!(matches!(opened(&dir, usual()), Err(LogError::Behind { .. })));
    forget_hint(dir.path());
    assert!(matches!(opened(&dir, known(2, tail.link)), Err(LogError::Behind { .. })));
}

#[test]
fn another_history_in_its_place_is_named() {
    let (dir, tail) = written(tiny(), 6);
    assert!(opened(&dir, known(6, tail.link)).is_ok());
    for sequence in [3, 6] {
        let error = opened(&dir, known(sequence, ChainLink([9; 32]))).err().unwrap();
        assert!(error.to_string().contains("this is another history"), "{error}");
    }
}

#[test]
fn a_byte_flipped_anywhere_in_a_sealed_segment_is_reported_at_its_place() {
    let (dir, _) = written(tiny(), 8);
    assert!(segments(dir.path()) > 3);
    let path = segment(dir.path(), 2);
    let length = fs::metadata(&path).unwrap().len();
    let mut starts = vec![0];
    starts.extend(frame_starts(&path));
    starts.push(length - TRAILER as u64);
    for byte in 0..length {
        flip(&path, byte);
        let found = match opened(&dir, tiny()) {
            Err(error) => error,
            Ok(log) => log.verify().unwrap_err(),
        };
        let expected = *starts.iter().rfind(|start| **start <= byte).unwrap();
        assert_eq!(place_of(&found), (2, expected), "byte {byte}: {found}");
        flip(&path, byte);
    }
    let report = open(&dir, tiny()).verify().unwrap();
    assert_eq!((report.records, report.segments), (16, segments(dir.path())));
    assert_eq!(report.sealed, report.segments - 1);
}

#[test]
fn a_byte_flipped_in_front_of_the_last_frame_is_refused_at_its_place() {
    let (dir, _) = written(usual(), 3);
    forget_hint(dir.path());
    let path = segment(dir.path(), 1);
    let starts = frame_starts(&path);
    for byte in 0..*starts.last().unwrap() {
        flip(&path, byte);
        let error = opened(&dir, usual()).err().unwrap_or_else(|| panic!("byte {byte} went unnoticed"));
        let expected = starts.iter().rfind(|start| **start <= byte).copied().unwrap_or(0);
        assert_eq!(place_of(&error), (1, expected), "byte {byte}: {error}");
        flip(&path, byte);
    }
}

#[test]
fn reading_stops_in_front_of_damage_and_names_it() {
    let (dir, _) = written(tiny(), 8);
    let path = segment(dir.path(), 2);
    let start = frame_starts(&path)[0];
    flip(&path, start + 60);
    let log = open(&dir, tiny());
    // The frame holds records of one of the streams; the other one is whole.
    let read_all = gatelog_event_log::conformance::read_all;
    let (stream, other) = if read_all(&log, INPUTS).is_err() { (INPUTS, EVENTS) } else { (EVENTS, INPUTS) };
    assert_eq!(read_all(&log, other).unwrap().len(), 8);
    let (before, error) = read_all(&log, stream).unwrap_err();
    assert!(!before.is_empty() && before.len() < 8);
    assert_eq!(place_of(&error), (2, start));
    let LogError::Damaged { place, .. } = error else { unreachable!() };
    assert_eq!((place.stream, place.offset), (Some(stream), Some(Offset(before.len() as u64))));
    // What lies behind it can still be read by those who ask for it.
    assert!(log.read(stream, Offset(7), Default::default()).is_ok());
}

#[test]
fn a_middle_segment_that_is_short_or_missing_or_exchanged_is_named() {
    let (dir, _) = written(tiny(), 10);
    assert!(segments(dir.path()) > 4);
    let whole = fs::read(segment(dir.path(), 2)).unwrap();
    for length in [0, 50, whole.len() as u64 / 2, whole.len() as u64 - 1] {
        let copied = copy(dir.path());
        cut(&segment(copied.path(), 2), length);
        assert_eq!(place_of(&opened(&copied, tiny()).err().unwrap()).0, 2);
    }
    let copied = copy(dir.path());
    fs::remove_file(segment(copied.path(), 2)).unwrap();
    let error = opened(&copied, tiny()).err().unwrap();
    assert_eq!(place_of(&error), (2, 0));
    assert!(error.to_string().contains("segment 00000002.log is missing"), "{error}");

    let copied = copy(dir.path());
    fs::rename(segment(copied.path(), 3), segment(copied.path(), 2)).unwrap();
    let error = opened(&copied, tiny()).err().unwrap();
    assert!(error.to_string().contains("this is segment 00000003.log under another's name"), "{error}");

    let (other, _) = written(tiny(), 10);
    let copied = copy(dir.path());
    make_writable(&segment(copied.path(), 2));
    fs::copy(segment(other.path(), 2), segment(copied.path(), 2)).unwrap();
    let error = opened(&copied, tiny()).err().unwrap();
    assert!(error.to_string().contains("belongs to the log of site"), "{error}");
}

#[test]
fn a_segment_of_the_same_log_but_of_another_past_is_named() {
    // Two logs that share their beginning (one was copied) go on differently; then parts are mixed.
    let (dir, _) = written(tiny(), 4);
    let fork = copy(dir.path());
    for (dir, word) in [(&dir, "one"), (&fork, "two")] {
        let log = open(dir, tiny());
        for round in 0..12 {
            put(&log, &input(&format!("{word} {round}")));
        }
    }
    let last_common = (1..).take_while(|number| {
        fs::read(segment(dir.path(), *number)).unwrap() == fs::read(segment(fork.path(), *number)).unwrap()
    });
    let first_different = last_common.count() as u64 + 1;
    make_writable(&segment(dir.path(), first_different));
    fs::copy(segment(fork.path(), first_different), segment(dir.path(), first_different)).unwrap();
    let error = opened(&dir, tiny()).err().unwrap();
    assert_eq!(place_of(&error), (first_different + 1, 0), "the next one names another digest: {error}");
}

#[test]
fn sealing_that_was_cut_short_is_done_again() {
    let (dir, tail) = written(tiny(), 8);
    let count = segments(dir.path());
    // As if the process had died while it wrote the footer of the segment before the last.
    fs::remove_file(segment(dir.path(), count)).unwrap();
    let path = segment(dir.path(), count - 1);
    let footer = *frame_starts(&path).last().unwrap();
    forget_hint(dir.path());
    let whole = fs::metadata(&path).unwrap().len();
    for length in [footer, footer + 1, whole - TRAILER as u64, whole - 1, whole] {
        let copied = copy(dir.path());
        cut(&segment(copied.path(), count - 1), length);
        let log = open(&copied, tiny());
        assert_eq!(log.verify().unwrap().segments, count - 1);
        let kept = log.end(INPUTS).unwrap();
        put(&log, &input("goes on"));
        drop(log);
        let log = open(&copied, tiny());
        assert_eq!(log.end(INPUTS), Ok(Offset(kept.0 + 1)));
        assert!(log.verify().is_ok());
        assert!(history::verify(&log, GATE).tail.sequence <= tail.sequence);
        assert_eq!(history::verify(&log, GATE).error, None);
    }
}

#[test]
fn a_segment_that_was_being_made_is_made_again() {
    let (dir, _) = written(usual(), 1);
    fs::write(dir.path().join("segments/00000002.new"), b"half a hea").unwrap();
    let log = open(&dir, tiny());
    for round in 0..10 {
        put(&log, &input(&format!("{round}")));
    }
    drop(log);
    assert_eq!(open(&dir, tiny()).end(INPUTS), Ok(Offset(11)));
}

#[test]
fn a_header_that_is_missing_or_damaged_is_named() {
    let (dir, _) = written(usual(), 1);
    let path = dir.path().join("HEADER");
    flip(&path, 20);
    let error = opened(&dir, usual()).err().unwrap();
    assert!(error.to_string().contains("HEADER"), "{error}");
    fs::remove_file(&path).unwrap();
    let error = opened(&dir, usual()).err().unwrap();
    assert!(error.to_string().contains("the log's header is missing"), "{error}");
}

#[test]
fn an_older_log_is_adopted_with_a_reason() {
    let (dir, tail) = written(usual(), 4);
    let before = open(&dir, usual()).describe();
    assert_eq!(before.generation, 1);
    let path = segment(dir.path(), 1);
    cut(&path, *frame_starts(&path).last().unwrap());
    assert!(matches!(opened(&dir, usual()), Err(LogError::Behind { .. })));
    assert_eq!(EmbeddedLog::adopt(dir.path(), "restored from\nthe backup of Monday"), Ok(2));
    // The projections still know more: they are to be built anew.
    assert!(matches!(opened(&dir, known(4, tail.link)), Err(LogError::Behind { .. })));
    let log = open(&dir, usual());
    assert_eq!((log.describe().site, log.describe().generation), (before.site, 2));
    assert!(log.adoptions()[0].starts_with("2 ") && log.adoptions()[0].ends_with("restored from the backup of Monday"));
    assert!(matches!(EmbeddedLog::adopt(dir.path(), "again"), Err(LogError::InUse { .. })));
    drop(log);
    let nowhere = TempDir::new().unwrap();
    let error = EmbeddedLog::adopt(nowhere.path(), "x").unwrap_err();
    assert!(error.to_string().contains("there is no gatelog log here"), "{error}");
}
