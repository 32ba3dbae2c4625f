//! Cut at every byte, bits flipped anywhere: what is read is what was written, or the damage is named. Never a third.
//!
//! `GATELOG_CORRUPTION=long` cuts the last 64 KiB at every byte and flips 10,000 bits; otherwise a sample of both.

use super::*;
use crate::{FileBlobs, Known, Piece, ReaderOptions, SliceHead, SliceLog, SliceWriter, read_slice};
use gatelog_event_log::conformance::{input, read_all};
use gatelog_event_log::{BlobError, Blobs, ReadLimit, Tail, history};
use gatelog_record::BlobHash;

/// A directory in memory where there is one: thousands of opens are not to wait for a disk that says it kept each.
fn in_memory() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

fn long() -> bool {
    std::env::var_os("GATELOG_CORRUPTION").is_some_and(|value| value == "long")
}

/// Chance that is the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below.max(1)
    }
}

/// A log of inputs and events, a frame each; where each event's history stood after it.
struct Written {
    dir: TempDir,
    options: Options,
    tails: Vec<Tail>,
    inputs: Vec<Vec<u8>>,
    events: Vec<Vec<u8>>,
}

impl Written {
    fn new(options: Options, rounds: usize) -> Written {
        let dir = in_memory();
        let log = open(&dir, options.clone());
        let (mut scribe, mut writer) = claim(&log);
        let mut tails = vec![Tail::GENESIS];
        for round in 0..rounds {
            put(&log, &input(&format!("round {round} {}", "with some words ".repeat(round % 7))));
            arrived(writer.append(scribe.several(1))).unwrap();
            tails.push(scribe.tail);
        }
        let (inputs, events) = (contents(&log, INPUTS), contents(&log, EVENTS));
        drop(writer);
        drop(log);
        Written { dir, options, tails, inputs, events }
    }

    /// Opened by somebody who knows of this event.
    fn knowing(&self, tail: Tail) -> Result<EmbeddedLog, LogError> {
        let known = match tail.sequence {
            0 => Vec::new(),
            sequence => vec![Known { who: "a checkpoint".into(), partition: GATE, sequence, link: tail.link }],
        };
        EmbeddedLog::open(self.dir.path(), Options { known, ..self.options.clone() })
    }

    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files: Vec<(PathBuf, Vec<u8>)> = (1..=segments(self.dir.path()))
            .map(|number| segment(self.dir.path(), number))
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect();
        files.sort();
        files
    }
}

fn put_back(path: &Path, bytes: &[u8]) {
    if path.exists() {
        make_writable(path);
    }
    fs::write(path, bytes).unwrap();
}

/// Cuts a log's end at every byte of its last 64 KiB, or of a sample of it.
fn cut_everywhere(options: Options, rounds: usize) -> (u64, u64) {
    let written = Written::new(options, rounds);
    let files = written.files();
    let whole: u64 = files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    assert!(whole > 70 << 10, "{whole} bytes are enough");
    let step = if long() { 1 } else { 509 };
    let (mut opened, mut named) = (0, 0);
    let mut length = whole;
    let newest = *written.tails.last().unwrap();
    while length > whole - (64 << 10) {
        length -= step.min(length);
        // The log as far as it reaches.
        let mut base = 0;
        let mut in_head = false;
        for (path, bytes) in &files {
            let end = base + bytes.len() as u64;
            if length <= base {
                let _ = fs::remove_file(path);
            } else if length < end {
                let keep = (length - base) as usize;
                in_head = base > 0 && keep < crate::format::SEGMENT_HEADER as usize;
                put_back(path, &bytes[..keep]);
            }
            base = end;
        }
        let _ = fs::remove_file(written.dir.path().join("durable"));
        if in_head {
            // A segment is there with its whole head or not at all: no crash leaves this.
            assert!(matches!(written.knowing(Tail::GENESIS), Err(LogError::Damaged { .. })), "cut at {length}");
            named += 1;
            continue;
        }
        // Somebody knows the newest event: opened only if it is still there.
        let before: Vec<u64> =
            files.iter().map(|(path, _)| fs::metadata(path).map_or(0, |metadata| metadata.len())).collect();
        match written.knowing(newest) {
            Ok(log) => assert_eq!(history::verify(&log, GATE).tail, newest, "cut at {length}"),
            Err(LogError::Damaged { .. } | LogError::Behind { .. }) => {
                named += 1;
                let after: Vec<u64> =
                    files.iter().map(|(path, _)| fs::metadata(path).map_or(0, |metadata| metadata.len())).collect();
                assert_eq!(before, after, "what is refused is not touched");
            }
            Err(other) => panic!("cut at {length}: {other}"),
        }
        let _ = fs::remove_file(written.dir.path().join("durable"));
        // Nobody knows: a whole prefix.
        let log = written.knowing(Tail::GENESIS).unwrap_or_else(|error| panic!("cut at {length}: {error}"));
        let (inputs, events) = (contents(&log, INPUTS), contents(&log, EVENTS));
        assert!(written.inputs.starts_with(&inputs) && written.events.starts_with(&events), "cut at {length}");
        assert!(inputs.len() - events.len() <= 1, "each input and its event in order");
        let tail = history::verify(&log, GATE).tail;
        assert_eq!(tail, written.tails[events.len()]);
        drop(log);
        // Whoever knows exactly that much opens it too.
        let _ = fs::remove_file(written.dir.path().join("durable"));
        drop(written.knowing(tail).unwrap());
        opened += 1;
    }
    (opened, named)
}

#[test]
fn the_end_of_a_log_cut_at_any_byte_leaves_a_whole_prefix_or_is_named() {
    let (opened, named) = cut_everywhere(usual(), 400);
    assert!(opened > 0 && named > 0);
    println!("one segment: {opened} cuts opened as a whole prefix, {named} refused by name where more was known");
}

#[test]
fn the_end_of_a_log_of_many_segments_cut_at_any_byte_leaves_a_whole_prefix_or_is_named() {
    let (opened, named) = cut_everywhere(Options { segment_bytes: 9_000, ..tiny() }, 400);
    assert!(opened > 0 && named > 0);
    println!("many segments: {opened} cuts opened as a whole prefix, {named} refused by name where more was known");
}

#[test]
fn a_bit_flipped_anywhere_in_a_log_changes_no_read_or_is_named() {
    let written = Written::new(Options { segment_bytes: 2_000, ..tiny() }, 60);
    let newest = *written.tails.last().unwrap();
    let mut files = written.files();
    for name in ["HEADER", "durable"] {
        let path = written.dir.path().join(name);
        files.push((path.clone(), fs::read(path).unwrap()));
    }
    let whole: u64 = files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    let as_written = (written.inputs.clone(), written.events.clone());
    assert_eq!(written.knowing(newest).and_then(|log| read_both(&log)).as_ref(), Ok(&as_written));
    let mut dice = Dice(0x1234_5678_9abc_def1);
    let (mut unchanged, mut named, mut found_by_verify) = (0, 0, 0);
    let flips = if long() { 10_000 } else { 300 };
    for _ in 0..flips {
        let mut at = dice.roll(whole);
        let bit = 1_u8 << dice.roll(8);
        let (path, bytes) = files
            .iter()
            .find(|(_, bytes)| {
                let here = at < bytes.len() as u64;
                if !here {
                    at -= bytes.len() as u64;
                }
                here
            })
            .unwrap();
        let mut flipped = bytes.clone();
        flipped[at as usize] ^= bit;
        put_back(path, &flipped);
        let what = format!("bit {bit} of byte {at} of {}", path.display());
        // Beside the writer, and as the writer.
        let reader = EmbeddedLog::open_reader(written.dir.path(), ReaderOptions::default());
        for (who, opened) in [("reader", reader), ("writer", written.knowing(newest))] {
            let read = opened.and_then(|log| Ok((read_both(&log)?, log.verify())));
            match read {
                Ok(((inputs, events), verified)) => {
                    // The hint is never needed; without it a reader sees the newest frame a little later.
                    let is_hint = path.ends_with("durable");
                    let whole = (&inputs, &events) == (&as_written.0, &as_written.1);
                    let all_but_newest = as_written.0.starts_with(&inputs) && as_written.1.starts_with(&events);
                    assert!(
                        whole || (is_hint && who == "reader" && all_but_newest),
                        "{who}: {what} changed what is read"
                    );
                    unchanged += 1;
                    match verified {
                        // A header reads the same with another white space at its end.
                        Ok(_) => {
                            let harmless = is_hint || path.ends_with("HEADER");
                            assert!(harmless, "{who}: {what} went unnoticed by verify");
                        }
                        Err(error) => {
                            assert!(matches!(error, LogError::Damaged { .. }), "{error}");
                            found_by_verify += 1;
                        }
                    }
                }
                Err(LogError::Damaged { .. } | LogError::Behind { .. }) => named += 1,
                Err(other) => panic!("{who}: {what}: {other}"),
            }
        }
        for (path, bytes) in &files {
            if fs::read(path).ok().as_ref() != Some(bytes) {
                put_back(path, bytes);
            }
        }
    }
    assert!(named > 0);
    println!(
        "{flips} bits flipped in segments, header and hint, read by two each: {unchanged} times read as written (of \
         these {found_by_verify} found by verify), {named} times named"
    );
}

type Both = (Vec<Vec<u8>>, Vec<Vec<u8>>);

/// Both streams to their end.
fn read_both(log: &EmbeddedLog) -> Result<Both, LogError> {
    let all = |stream| -> Result<Vec<Vec<u8>>, LogError> {
        let records = read_all(log, stream).map_err(|(_, error)| error)?;
        Ok(records.into_iter().map(|record| record.bytes).collect())
    };
    Ok((all(INPUTS)?, all(EVENTS)?))
}

#[test]
fn a_bit_flipped_in_a_blob_is_named() {
    let dir = in_memory();
    let blobs = FileBlobs::open(dir.path()).unwrap();
    let mut dice = Dice(77);
    let content: Vec<Vec<u8>> =
        (0..20_u8).map(|number| (0..200 * usize::from(number) + 1).map(|_| dice.roll(256) as u8).collect()).collect();
    let names: Vec<BlobHash> = content.iter().map(|bytes| blobs.put(bytes).unwrap()).collect();
    let flips = if long() { 10_000 } else { 300 };
    for _ in 0..flips {
        let which = dice.roll(content.len() as u64) as usize;
        let name = names[which].to_string();
        let path = dir.path().join(&name[..2]).join(&name[2..]);
        let mut bytes = content[which].clone();
        let at = dice.roll(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << dice.roll(8);
        put_back(&path, &bytes);
        let reader = FileBlobs::open_reader(dir.path());
        let found = reader.get(&names[which]);
        assert!(matches!(&found, Err(BlobError::Damaged { hash, .. }) if *hash == names[which]), "{found:?}");
        put_back(&path, &content[which]);
        assert_eq!(reader.get(&names[which]).unwrap(), content[which]);
    }
}

/// A slice of a log, from its fourth event on.
fn slice(written: &Written) -> PathBuf {
    let path = written.dir.path().join("some.slice");
    let log = EmbeddedLog::open_reader(written.dir.path(), ReaderOptions::default()).unwrap();
    let description = log.describe();
    let head = SliceHead {
        site: description.site,
        generation: description.generation,
        partitions: description.partitions,
        begins: [(GATE, written.tails[3])].into(),
    };
    let mut writer = SliceWriter::new(Vec::new(), &head).unwrap();
    for record in &read_all(&log, EVENTS).unwrap()[3..] {
        writer.record(EVENTS, record).unwrap();
    }
    for record in &read_all(&log, INPUTS).unwrap()[2..] {
        writer.record(INPUTS, record).unwrap();
    }
    writer.blob(&BlobHash::of(b"a layout\nof two lines"), b"a layout\nof two lines").unwrap();
    writer.file("gate-0/3-l1.rung", b"a rung").unwrap();
    assert!(writer.file("../escape", b"").is_err() && writer.file("/etc/x", b"").is_err());
    fs::write(&path, writer.finish().unwrap()).unwrap();
    path
}

#[test]
fn a_slice_is_a_log_that_begins_late() {
    let written = Written::new(usual(), 12);
    let log = SliceLog::open(slice(&written)).unwrap();
    assert_eq!(log.describe().site, open(&written.dir, usual()).describe().site);
    assert_eq!(log.begins(GATE), written.tails[3]);
    let report = history::verify(&log, GATE);
    assert_eq!((report.error, report.tail, report.records), (None, written.tails[12], 9));
    assert_eq!(contents(&log, EVENTS), written.events[3..]);
    assert_eq!(contents(&log, INPUTS), written.inputs[2..]);
    // Places are those of the whole log.
    assert_eq!(log.read(INPUTS, Offset(5), ReadLimit { records: 1, bytes: 1 }).unwrap().records[0].offset, Offset(5));
    assert_eq!(log.seek(GATE, 7), Ok(Offset(6)));
    assert_eq!(log.end(INPUTS), Ok(Offset(12)));
    assert!(matches!(log.claim(GATE), Err(LogError::ReadOnly)));
    let mut others = Vec::new();
    read_slice(&slice(&written), |_, piece, _, bytes| {
        if !matches!(piece, Piece::Record { .. }) {
            others.push((piece, bytes));
        }
        Ok::<(), LogError>(())
    })
    .unwrap();
    assert_eq!(others[1], (Piece::File("gate-0/3-l1.rung".into()), b"a rung".to_vec()));
    assert_eq!(others.len(), 2);
}

#[test]
fn a_slice_that_was_cut_or_changed_anywhere_is_refused_at_a_byte() {
    let written = Written::new(usual(), 12);
    let path = slice(&written);
    let whole = fs::read(&path).unwrap();
    let refused = |bytes: &[u8], what: &str| {
        fs::write(&path, bytes).unwrap();
        match SliceLog::open(&path) {
            Err(LogError::Damaged { place, .. }) => assert!(place.physical.contains(" byte "), "{place}"),
            Err(other) => panic!("{what}: {other}"),
            Ok(_) => panic!("{what} went unnoticed"),
        }
    };
    for length in 0..whole.len() {
        refused(&whole[..length], &format!("cut at {length}"));
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        refused(&bytes, &format!("a bit of byte {at}"));
    }
    refused(&[&whole[..], b"\n"].concat(), "a line more");
    fs::write(&path, &whole).unwrap();
    assert!(SliceLog::open(&path).is_ok());
}
