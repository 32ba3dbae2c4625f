//! The writer: one at a time, one wait for the disk for many appends, and what a failing disk does.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::medium::{Medium, SegmentFile};
use gatelog_event_log::conformance::input;
use gatelog_event_log::{Pending, ReadLimit, history};
use parking_lot::{Condvar, Mutex};

/// A disk that waits, or fails, when it is told to.
#[derive(Default)]
pub(super) struct Disk {
    closed: Mutex<bool>,
    changed: Condvar,
    waiting: AtomicU64,
    /// The write of so many bytes more fails, after the bytes that still fit.
    room: Mutex<Option<usize>>,
    fail_sync: Mutex<bool>,
    fail_cut: Mutex<bool>,
}

struct Controlled(Arc<Disk>, SegmentFile);

impl Medium for Controlled {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(room) = &mut *self.0.room.lock() {
            if bytes.len() > *room {
                Medium::append(&mut self.1, &bytes[..*room])?;
                return Err(io::Error::new(io::ErrorKind::StorageFull, "No space left on device"));
            }
            *room -= bytes.len();
        }
        Medium::append(&mut self.1, bytes)
    }

    fn cut(&mut self, end: u64) -> io::Result<()> {
        if *self.0.fail_cut.lock() {
            return Err(io::Error::other("Input/output error"));
        }
        self.1.cut(end)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut closed = self.0.closed.lock();
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        while *closed {
            self.0.changed.wait(&mut closed);
        }
        if *self.0.fail_sync.lock() {
            return Err(io::Error::other("Input/output error"));
        }
        self.1.sync()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.sync()?;
        self.1.finish()
    }
}

impl Disk {
    pub(super) fn options(self: &Arc<Self>, options: Options) -> Options {
        let disk = Arc::clone(self);
        Options { medium: Arc::new(move |file| Box::new(Controlled(Arc::clone(&disk), file))), ..options }
    }

    pub(super) fn close(&self) {
        *self.closed.lock() = true;
    }

    pub(super) fn open(&self) {
        *self.closed.lock() = false;
        self.changed.notify_all();
    }

    /// Waits until the writer has begun so many waits for the disk in all.
    pub(super) fn until_syncs(&self, count: u64) {
        while self.waiting.load(Ordering::SeqCst) < count {
            std::thread::yield_now();
        }
    }
}

#[test]
fn many_appends_share_one_wait_for_the_disk() {
    let dir = TempDir::new().unwrap();
    let disk = Arc::new(Disk::default());
    let log = open(&dir, disk.options(usual()));
    let (mut scribe, mut writer) = claim(&log);
    disk.close();
    let mut waiting: Vec<Pending<Result<Vec<Offset>, LogError>>> = vec![log.append_inputs(INPUTS, vec![input("0")])];
    disk.until_syncs(1);
    waiting.extend((1..50).map(|index| log.append_inputs(INPUTS, vec![input(&format!("{index}"))])));
    let events: Vec<_> = (0..10).map(|_| writer.append(scribe.several(1))).collect();
    assert_eq!(log.stats().syncs, 0);
    assert!(log.waiting() > 0);
    disk.open();
    for (index, result) in waiting.into_iter().enumerate() {
        assert_eq!(arrived(result), Ok(vec![Offset(index as u64)]));
    }
    for (index, result) in events.into_iter().enumerate() {
        assert_eq!(arrived(result), Ok(Offset(index as u64)));
    }
    let stats = log.stats();
    assert_eq!((stats.syncs, stats.frames, stats.appends, stats.records), (2, 2, 60, 60));
    assert_eq!(log.waiting(), 0);
}

#[test]
fn nothing_is_seen_before_it_is_durable() {
    let dir = TempDir::new().unwrap();
    let disk = Arc::new(Disk::default());
    let log = open(&dir, disk.options(usual()));
    put(&log, b"before");
    disk.close();
    let waiting = log.append_inputs(INPUTS, vec![b"not yet".to_vec()]);
    let change = log.changed(INPUTS, Offset(1));
    disk.until_syncs(2);
    assert_eq!(contents(&log, INPUTS), [b"before".to_vec()]);
    assert_eq!(log.end(INPUTS), Ok(Offset(1)));
    let change = change.wait_for(std::time::Duration::from_millis(1)).err().unwrap();
    disk.open();
    arrived(waiting).unwrap();
    arrived(change);
    assert_eq!(contents(&log, INPUTS), [b"before".to_vec(), b"not yet".to_vec()]);
}

#[test]
fn inputs_are_refused_when_too_much_waits_and_events_much_later() {
    let dir = TempDir::new().unwrap();
    let disk = Arc::new(Disk::default());
    let log = open(&dir, Options { queue_bytes: 1_000, ..disk.options(usual()) });
    let (mut scribe, mut writer) = claim(&log);
    disk.close();
    let first = log.append_inputs(INPUTS, vec![vec![1; 10]]);
    disk.until_syncs(1);
    let second = log.append_inputs(INPUTS, vec![vec![2; 900]]);
    let refused = arrived(log.append_inputs(INPUTS, vec![vec![3; 100]]));
    assert_eq!(refused, Err(LogError::Busy { waiting: 920 }));
    assert!(refused.unwrap_err().to_string().contains("try again"));
    let event = writer.append(scribe.several(1));
    disk.open();
    assert!(arrived(first).is_ok() && arrived(second).is_ok() && arrived(event).is_ok());
    assert!(arrived(log.append_inputs(INPUTS, vec![vec![3; 100]])).is_ok());
}

#[test]
fn a_process_that_dies_acknowledges_nothing_more() {
    let dir = TempDir::new().unwrap();
    let disk = Arc::new(Disk::default());
    let log = Arc::new(open(&dir, disk.options(usual())));
    put(&*log, b"kept");
    disk.close();
    let written = log.append_inputs(INPUTS, vec![b"written".to_vec()]);
    disk.until_syncs(2);
    let queued = log.append_inputs(INPUTS, vec![b"queued".to_vec()]);
    let dying = Arc::clone(&log);
    let death = std::thread::spawn(move || dying.abandon());
    while !log.shared().queue.lock().abandoned {
        std::thread::yield_now();
    }
    disk.open();
    death.join().unwrap();
    assert_eq!(queued.wait(), None);
    assert_eq!(written.wait(), Some(Ok(vec![Offset(1)])), "its wait for the disk was over");
    let late = arrived(log.append_inputs(INPUTS, vec![b"late".to_vec()]));
    assert!(matches!(late, Err(LogError::Stopped { .. })));
    drop(log);
    assert_eq!(contents(&open(&dir, usual()), INPUTS), [b"kept".to_vec(), b"written".to_vec()]);
}

#[test]
fn a_full_disk_refuses_appends_and_once_there_is_room_the_log_goes_on() {
    for room in [0, 1, 40, 100] {
        let dir = TempDir::new().unwrap();
        let disk = Arc::new(Disk::default());
        let log = open(&dir, disk.options(usual()));
        let (mut scribe, mut writer) = claim(&log);
        arrived(writer.append(scribe.several(3))).unwrap();
        put(&log, b"kept");
        *disk.room.lock() = Some(room);
        let refused = arrived(log.append_inputs(INPUTS, vec![vec![7; 500]])).unwrap_err();
        assert!(matches!(refused, LogError::System { .. }), "{refused:?}");
        for words in ["appending to the log in", "No space left on device", "make room"] {
            assert!(refused.to_string().contains(words), "{refused}");
        }
        let lost = scribe.several(2);
        assert_eq!(arrived(writer.append(lost)), Err(refused.clone()));
        assert_eq!(contents(&log, INPUTS), [b"kept".to_vec()], "what is there can still be read");
        assert_eq!(log.refusing(), Some(refused.to_string()));
        *disk.room.lock() = None;
        put(&log, b"goes on");
        assert_eq!(log.refusing(), None);
        // An event was lost: what this claim appends would not follow on.
        assert_eq!(arrived(writer.append(scribe.several(1))), Err(refused));
        let (mut scribe, mut writer) = claim(&log);
        arrived(writer.append(scribe.several(2))).unwrap();
        assert_eq!(contents(&log, INPUTS), [b"kept".to_vec(), b"goes on".to_vec()]);
        assert_eq!(history::verify(&log, GATE).tail.sequence, 5);
        log.verify().unwrap();
        drop(log);
        let log = open(&dir, usual());
        assert_eq!(log.stats().cut_off, 0, "nothing half-written was left");
        assert_eq!(contents(&log, INPUTS), [b"kept".to_vec(), b"goes on".to_vec()]);
        assert_eq!(history::verify(&log, GATE).tail.sequence, 5);
    }
}

#[test]
fn what_waits_behind_an_append_without_room_is_refused_with_it() {
    let dir = TempDir::new().unwrap();
    let disk = Arc::new(Disk::default());
    let log = open(&dir, disk.options(Options { group_bytes: 600, ..usual() }));
    let (mut scribe, mut writer) = claim(&log);
    disk.close();
    let first = log.append_inputs(INPUTS, vec![vec![1; 500]]);
    disk.until_syncs(1);
    *disk.room.lock() = Some(100);
    let (large, events) = (log.append_inputs(INPUTS, vec![vec![2; 500]]), writer.append(scribe.several(1)));
    let next = writer.append(scribe.several(1));
    disk.open();
    assert_eq!(arrived(first), Ok(vec![Offset(0)]), "it had its room");
    assert!(matches!(arrived(large), Err(LogError::System { .. })));
    // No event without the one before it, whichever of them there would have been room for.
    assert!(arrived(events).is_err() && arrived(next).is_err());
    *disk.room.lock() = None;
    assert!(arrived(writer.append(scribe.several(1))).is_err());
    let (mut scribe, mut writer) = claim(&log);
    arrived(writer.append(scribe.several(1))).unwrap();
    assert_eq!(history::verify(&log, GATE).tail.sequence, 1);
}

#[test]
fn a_segment_that_cannot_be_ended_for_want_of_room_is_ended_later() {
    let dir = TempDir::new().unwrap();
    let disk = Arc::new(Disk::default());
    let log = open(&dir, disk.options(tiny()));
    let mut kept = 0;
    for round in 0..40_u8 {
        // Now there is no room, now there is: for frames and for footers alike.
        *disk.room.lock() = (round % 2 == 1).then_some(usize::from(round) * 3 % 50);
        match arrived(log.append_inputs(INPUTS, vec![vec![round; 60]])) {
            Ok(_) => kept += 1,
            Err(error) => assert!(matches!(error, LogError::System { .. }), "{error}"),
        }
    }
    assert!(kept >= 20 && log.stats().sealed >= 3, "{kept} {:?}", log.stats());
    assert_eq!(contents(&log, INPUTS).len(), kept);
    log.verify().unwrap();
    drop(log);
    let log = open(&dir, tiny());
    assert_eq!(contents(&log, INPUTS).len(), kept);
    assert_eq!(log.verify().unwrap().records, kept as u64);
}

#[test]
fn where_a_write_cannot_be_taken_back_the_log_stops() {
    let dir = TempDir::new().unwrap();
    let disk = Arc::new(Disk::default());
    let log = open(&dir, disk.options(usual()));
    put(&log, b"kept");
    (*disk.room.lock(), *disk.fail_cut.lock()) = (Some(40), true);
    let stopped = LogError::Stopped { message: "No space left on device".to_owned() };
    assert_eq!(arrived(log.append_inputs(INPUTS, vec![vec![7; 500]])), Err(stopped.clone()));
    (*disk.room.lock(), *disk.fail_cut.lock()) = (None, false);
    assert_eq!(arrived(log.append_inputs(INPUTS, vec![b"no".to_vec()])), Err(stopped.clone()));
    assert_eq!(log.claim(GATE).map(|_| ()), Err(stopped));
    drop(log);
    let log = open(&dir, usual());
    // A frame's header is there, and what it says of its length may end in zeros.
    assert!((33..=40).contains(&log.stats().cut_off), "{:?}", log.stats());
    assert_eq!(contents(&log, INPUTS), [b"kept".to_vec()]);
    put(&log, b"goes on");
}

#[test]
fn after_a_failed_sync_the_log_stops_and_does_not_try_again() {
    let dir = TempDir::new().unwrap();
    let disk = Arc::new(Disk::default());
    let log = open(&dir, disk.options(usual()));
    put(&log, b"kept");
    *disk.fail_sync.lock() = true;
    let stopped = Err(LogError::Stopped { message: "Input/output error".to_owned() });
    assert_eq!(arrived(log.append_inputs(INPUTS, vec![b"unsure".to_vec()])), stopped);
    *disk.fail_sync.lock() = false;
    let syncs = disk.waiting.load(Ordering::SeqCst);
    assert_eq!(arrived(log.append_inputs(INPUTS, vec![b"no".to_vec()])), stopped);
    assert_eq!(disk.waiting.load(Ordering::SeqCst), syncs);
    assert_eq!(contents(&log, INPUTS), [b"kept".to_vec()]);
    drop(log);
    // It may or may not be there; what it may not do is to be there in part.
    let found = contents(&open(&dir, usual()), INPUTS);
    assert!(found.len() <= 2 && found[0] == b"kept");
}

#[test]
fn a_directory_has_one_writer() {
    let dir = TempDir::new().unwrap();
    let log = open(&dir, usual());
    let error = EmbeddedLog::open(dir.path(), usual()).err().unwrap();
    let LogError::InUse { path, holder } = &error else { panic!("{error}") };
    assert_eq!(path, &dir.path().display().to_string());
    assert!(holder.starts_with(&format!("{}, started 20", std::process::id())), "{holder}");
    assert!(error.to_string().contains("stop it, or use another --dir"));
    log.close();
    assert!(EmbeddedLog::open(dir.path(), usual()).is_ok());
}

#[test]
fn what_is_full_is_sealed_and_never_changes() {
    let dir = TempDir::new().unwrap();
    let log = open(&dir, tiny());
    let (mut scribe, mut writer) = claim(&log);
    for round in 0..20 {
        put(&log, &input(&format!("{round}")));
        arrived(writer.append(scribe.several(2))).unwrap();
    }
    let count = segments(dir.path());
    assert_eq!(log.stats().sealed, count - 1);
    assert!(count > 5);
    let sealed: Vec<_> = (1..count).map(|number| fs::read(segment(dir.path(), number)).unwrap()).collect();
    for number in 1..count {
        assert!(fs::metadata(segment(dir.path(), number)).unwrap().permissions().readonly());
    }
    drop(log);
    let log = open(&dir, tiny());
    for sequence in 1..=40 {
        assert_eq!(log.seek(GATE, sequence), Ok(Offset(sequence - 1)));
    }
    let all = contents(&log, EVENTS);
    for from in 0..40 {
        let batch = log.read(EVENTS, Offset(from), ReadLimit { records: 3, bytes: 1 << 20 }).unwrap();
        let found: Vec<_> = batch.records.into_iter().map(|record| record.bytes).collect();
        assert_eq!(found, all[from as usize..40.min(from as usize + 3)]);
    }
    let (mut scribe, mut writer) = claim(&log);
    arrived(writer.append(scribe.several(2))).unwrap();
    for (bytes, number) in sealed.iter().zip(1..) {
        assert_eq!(&fs::read(segment(dir.path(), number)).unwrap(), bytes);
    }
    assert_eq!(history::verify(&log, GATE).tail, scribe.tail);
}

#[test]
fn records_larger_than_a_segment_and_than_what_is_read_at_once() {
    let dir = TempDir::new().unwrap();
    let options = || Options { segment_bytes: 100_000, hot_bytes: 0, ..Options::default() };
    let log = open(&dir, options());
    let wanted: Vec<Vec<u8>> = [10, 300_000, 0, 70_000, 70_000, 1_000_000, 5].map(|size| vec![size as u8; size]).into();
    arrived(log.append_inputs(INPUTS, wanted[..3].to_vec())).unwrap();
    for record in &wanted[3..] {
        put(&log, record);
    }
    assert!(contents(&log, INPUTS) == wanted);
    drop(log);
    let log = open(&dir, options());
    assert!(contents(&log, INPUTS) == wanted);
    assert_eq!(log.verify().unwrap().records, 7);
}

#[test]
fn the_newest_records_are_kept_in_memory_up_to_a_limit() {
    let dir = TempDir::new().unwrap();
    let log = open(&dir, Options { hot_bytes: 250, ..usual() });
    for index in 0..10_u8 {
        put(&log, &[index; 100]);
    }
    let hot = |offset| log.shared().view.lock().streams[&INPUTS].hot_from(offset).map(|records| records.count());
    assert_eq!((hot(7), hot(8), hot(9)), (None, Some(2), Some(1)));
    assert!(contents(&log, INPUTS) == (0..10_u8).map(|index| vec![index; 100]).collect::<Vec<_>>());
}

#[test]
fn a_site_id_is_drawn_once() {
    let (one, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let site = open(&one, Options { partitions: 3, ..usual() }).describe();
    assert_eq!(open(&one, usual()).describe(), site);
    assert_eq!(site.partitions, 3);
    assert_ne!(open(&other, usual()).describe().site, site.site);
}

#[test]
fn after_a_few_came_together_the_next_ones_share_a_sync() {
    let dir = TempDir::new().unwrap();
    let log = open(&dir, Options { linger: std::time::Duration::from_secs(2), ..usual() });
    put(&log, b"alone");
    let (first, second) = {
        // Both are there before the committer looks.
        let mut queue = log.shared().queue.lock();
        let mut one = |record: &[u8]| {
            let (completer, result) = pending();
            let owed = Owed::Inputs(completer);
            queue.items.push_back(Item::Append { stream: INPUTS, records: vec![record.into()], size: 0, owed });
            result
        };
        let both = (one(b"first"), one(b"second"));
        log.shared().queue_changed.notify_all();
        both
    };
    arrived(first).unwrap();
    arrived(second).unwrap();
    let before = log.stats();
    let third = log.append_inputs(INPUTS, vec![b"third".to_vec()]);
    // Long enough for a sync of its own, had nobody waited.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let fourth = log.append_inputs(INPUTS, vec![b"fourth".to_vec()]);
    arrived(third).unwrap();
    arrived(fourth).unwrap();
    let after = log.stats();
    assert_eq!((after.appends - before.appends, after.syncs - before.syncs), (2, 1));
    assert_eq!(contents(&log, INPUTS), [&b"alone"[..], b"first", b"second", b"third", b"fourth"]);
}

/// What the writer is shown of the gate's inputs, with offsets.
fn shown(writer: &mut Box<dyn EventWriter>, from: u64) -> Vec<(u64, Vec<u8>)> {
    let batch = writer.accepted(Offset(from), ReadLimit::default()).unwrap();
    batch.records.into_iter().map(|record| (record.offset.0, record.bytes)).collect()
}

#[test]
fn an_input_and_what_was_decided_of_it_share_a_wait_for_the_disk() {
    let dir = TempDir::new().unwrap();
    let log = open(&dir, Options { linger: std::time::Duration::from_secs(60), ..usual() });
    let (mut scribe, mut writer) = claim(&log);
    put(&log, b"before anybody attends");
    for round in 1..20_u64 {
        let before = log.stats();
        let more = writer.awaits(Offset(round)).unwrap().unwrap();
        let input = log.append_inputs(INPUTS, vec![b"input".to_vec()]);
        arrived(more);
        assert_eq!(log.end(INPUTS), Ok(Offset(round)), "nobody else sees it");
        assert_eq!(shown(&mut writer, round), [(round, b"input".to_vec())]);
        let events = writer.append(scribe.several(2));
        // It has said what it had to say of all before.
        let more = writer.awaits(Offset(round + 1)).unwrap().unwrap();
        assert_eq!((arrived(input), arrived(events).is_ok()), (Ok(vec![Offset(round)]), true));
        assert!(more.wait_for(std::time::Duration::ZERO).is_err());
        let after = log.stats();
        assert_eq!((after.appends - before.appends, after.syncs - before.syncs), (2, 1), "round {round}");
    }
    log.verify().unwrap();
    drop((log, writer));
    let log = open(&dir, usual());
    assert_eq!((contents(&log, INPUTS).len(), contents(&log, EVENTS).len()), (20, 38));
}

#[test]
fn a_writer_that_takes_its_time_holds_nobody_up_for_long() {
    let dir = TempDir::new().unwrap();
    let log = open(&dir, Options { linger: std::time::Duration::from_millis(500), ..usual() });
    let (_scribe, mut writer) = claim(&log);
    let more = writer.awaits(Offset(0)).unwrap().unwrap();
    let input = log.append_inputs(INPUTS, vec![b"input".to_vec()]);
    arrived(more);
    assert_eq!(shown(&mut writer, 0), [(0, b"input".to_vec())]);
    assert_eq!(arrived(input), Ok(vec![Offset(0)]), "though nothing was decided");
    assert!(shown(&mut writer, 0).is_empty());
    // One that is gone is not waited for.
    drop(writer);
    assert!(!log.shared().view.lock().is_being_decided());
}

#[test]
fn what_was_shown_and_is_refused_after_all_ends_the_claim() {
    let dir = TempDir::new().unwrap();
    let disk = Arc::new(Disk::default());
    let log = open(&dir, disk.options(Options { linger: std::time::Duration::from_secs(60), ..usual() }));
    let (mut scribe, mut writer) = claim(&log);
    arrived(writer.append(scribe.several(1))).unwrap();
    let more = writer.awaits(Offset(0)).unwrap().unwrap();
    *disk.room.lock() = Some(10);
    let lost = log.append_inputs(INPUTS, vec![b"lost".to_vec()]);
    arrived(more);
    assert_eq!(shown(&mut writer, 0), [(0, b"lost".to_vec())]);
    // It says nothing yet, and waits for more: it is told.
    let more = writer.awaits(Offset(1)).unwrap().unwrap();
    let refused = arrived(lost).unwrap_err();
    arrived(more);
    assert!(matches!(refused, LogError::System { .. }), "{refused:?}");
    *disk.room.lock() = None;
    // Another input takes the offset: what this writer would say of it, it would say of one that never was.
    assert_eq!(put(&log, b"another"), Offset(0));
    assert_eq!(arrived(writer.append(scribe.several(1))), Err(refused.clone()));
    assert_eq!(writer.accepted(Offset(0), ReadLimit::default()).unwrap_err(), refused);
    assert_eq!(writer.awaits(Offset(0)).err(), Some(refused));
    let (mut scribe, mut writer) = claim(&log);
    arrived(writer.append(scribe.several(1))).unwrap();
    assert_eq!(contents(&log, INPUTS), [b"another".to_vec()]);
}

#[test]
fn a_writer_that_was_shown_nothing_of_what_is_refused_goes_on() {
    let dir = TempDir::new().unwrap();
    let disk = Arc::new(Disk::default());
    let log = open(&dir, disk.options(usual()));
    let (mut scribe, mut writer) = claim(&log);
    arrived(writer.append(scribe.several(1))).unwrap();
    let more = writer.awaits(Offset(0)).unwrap().unwrap();
    *disk.room.lock() = Some(10);
    arrived(log.append_inputs(INPUTS, vec![b"lost".to_vec()])).unwrap_err();
    arrived(more);
    assert!(shown(&mut writer, 0).is_empty());
    *disk.room.lock() = None;
    put(&log, b"kept");
    arrived(writer.append(scribe.several(1))).unwrap();
}

#[test]
fn whoever_takes_over_is_shown_what_waits_and_who_was_before_is_fenced() {
    let dir = TempDir::new().unwrap();
    let log = open(&dir, usual());
    let (_, mut old) = claim(&log);
    let waiting = old.awaits(Offset(0)).unwrap().unwrap();
    let (mut scribe, mut new) = claim(&log);
    let fenced = LogError::Fenced { partition: GATE, term: 1 };
    assert_eq!(old.awaits(Offset(0)).err(), Some(fenced.clone()));
    let more = new.awaits(Offset(0)).unwrap().unwrap();
    arrived(waiting);
    assert_eq!(old.accepted(Offset(0), ReadLimit::default()).unwrap_err(), fenced);
    drop(old);
    let input = log.append_inputs(INPUTS, vec![b"input".to_vec()]);
    arrived(more);
    arrived(new.append(scribe.several(1))).unwrap();
    arrived(input).unwrap();
}
