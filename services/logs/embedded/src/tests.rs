//! The embedded log against its promises and against what disks and people do to it.

mod contract;
mod corruption;
mod damage;
mod fuzzed;
mod kill;
mod model;
mod reader;
mod stores;
mod writing;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gatelog_event_log::conformance::{Scribe, arrived};
use gatelog_event_log::{EventWriter, Log, LogError, Offset, pending};
use gatelog_record::{Domain, Partition, Stream};
use tempfile::TempDir;

use crate::commit::{Item, Owed};
use crate::format::{FrameBuilder, FrameKind};
use crate::{EmbeddedLog, Options};

const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
const INPUTS: Stream = Stream::Inputs(GATE);
const EVENTS: Stream = Stream::Events(GATE);

/// Segments so small that every test crosses several, and no memory of what was written.
fn tiny() -> Options {
    Options { segment_bytes: 700, hot_bytes: 0, max_record: 10_000, max_append: 40_000, ..Options::default() }
}

/// Segments of the usual size.
fn usual() -> Options {
    Options { max_record: 10_000, max_append: 40_000, ..Options::default() }
}

fn open(dir: &TempDir, options: Options) -> EmbeddedLog {
    EmbeddedLog::open(dir.path(), options).unwrap()
}

fn claim(log: &dyn Log) -> (Scribe, Box<dyn EventWriter>) {
    let (claim, writer) = log.claim(GATE).unwrap();
    (Scribe::of(&claim), writer)
}

fn put(log: &dyn Log, record: &[u8]) -> Offset {
    arrived(log.append_inputs(INPUTS, vec![record.to_vec()])).unwrap()[0]
}

fn contents(log: &dyn Log, stream: Stream) -> Vec<Vec<u8>> {
    let records = gatelog_event_log::conformance::read_all(log, stream).unwrap();
    records.into_iter().map(|record| record.bytes).collect()
}

/// Puts a record on the log past every check.
fn append_unchecked(log: &EmbeddedLog, stream: Stream, record: Vec<u8>) {
    let (completer, result) = pending();
    let shared = log.shared();
    let item = Item::Append { stream, records: vec![record.into()], size: 0, owed: Owed::Inputs(completer) };
    shared.queue.lock().items.push_back(item);
    shared.queue_changed.notify_all();
    arrived(result).unwrap();
}

fn segment(dir: &Path, number: u64) -> PathBuf {
    dir.join("segments").join(format!("{number:08}.log"))
}

fn segments(dir: &Path) -> u64 {
    fs::read_dir(dir.join("segments")).unwrap().count() as u64
}

/// The bytes of the frame that would be written next, and to which place of which segment's file.
fn next_frame(log: &EmbeddedLog, records: &[(Stream, u64, Vec<u8>)]) -> (PathBuf, u64, Vec<u8>) {
    let tip = log.shared().view.lock().segments.last().cloned().unwrap();
    let end = log.shared().home.read_hint().saturating_sub(tip.base).max(crate::format::SEGMENT_HEADER);
    let mut builder = FrameBuilder::new();
    for (stream, offset, bytes) in records {
        builder.record(*stream, *offset, bytes);
    }
    (tip.path.clone(), end, builder.finish(FrameKind::Records, tip.base + end, tip.salt))
}

/// Writes to the end of a file, as a writer that was interrupted would have.
fn append_bytes(path: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

/// Writes to a place of a file, as a writer that was interrupted would have.
fn write_bytes(path: &Path, at: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

fn make_writable(path: &Path) {
    let mut permissions = fs::metadata(path).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o644);
    fs::set_permissions(path, permissions).unwrap();
}

/// Flips one bit of a file. Doing it again undoes it.
fn flip(path: &Path, byte: u64) {
    make_writable(path);
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut one = [0];
    file.read_exact_at(&mut one, byte).unwrap();
    file.write_all_at(&[one[0] ^ 0x10], byte).unwrap();
}

fn cut(path: &Path, length: u64) {
    make_writable(path);
    OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}

fn forget_hint(dir: &Path) {
    fs::remove_file(dir.join("durable")).unwrap();
}

fn copy(from: &Path) -> TempDir {
    fn copy_into(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let to = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy_into(&entry.path(), &to)
            } else {
                fs::copy(entry.path(), to).map(|_| ()).unwrap()
            }
        }
    }
    let to = TempDir::new().unwrap();
    copy_into(from, to.path());
    to
}

/// The segment and byte of a place such as `segment 00000003.log byte 4711`.
#[track_caller]
fn place_of(error: &LogError) -> (u64, u64) {
    let LogError::Damaged { place, .. } = error else { panic!("{error}") };
    let mut words = place.physical.split(' ');
    let (Some("segment"), Some(name), Some("byte"), Some(byte)) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        panic!("{place}")
    };
    (name.trim_end_matches(".log").parse().unwrap(), byte.parse().unwrap())
}

fn threads(work: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = work.into_iter().map(std::thread::spawn).collect();
    for thread in threads {
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

fn arc(log: EmbeddedLog) -> Arc<dyn Log> {
    Arc::new(log)
}
