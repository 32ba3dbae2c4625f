//! `gatelog log export|import`: a slice of the log with its blobs and the state it begins with, as one file for somebody
//! who is to look into what happened.
//!
//! No key goes with it, so what is sealed stays sealed: names, addresses, texts of commits and reviews, secrets. The
//! records themselves are as they are on the log, or the chain could not be checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use gatelog_event_log::{Blobs, Log, LogError, Offset, ReadLimit, ReadRecord, Step, Tail};
use gatelog_hosting::HostedDomain;
use gatelog_log_embedded::{FileBlobs, Piece, SliceHead, SliceLog, SliceWriter, read_slice};
use gatelog_record::draft::gate::AccessTold;
use gatelog_record::event::GateEvent;
use gatelog_record::{BlobHash, Domain, Event, EventRecord, InputFrame, ItemId, Partition, Stream, Timestamp};
use gatelog_replay::timeline::{newest, sequence_at_time};
use gatelog_replay::{Moment, ReplayError};
use gatelog_store::rung::EncodedRung;
use gatelog_store::{Layout, RungDir};
use serde_json::json;

use super::audit::{NewFile, file_failure, keyring, tell};
use super::blob_names;
use super::explain::moment;
use super::failure::{Code, Failure};
use super::output::Output;
use crate::cli::slice::{LogExportArgs, LogImportArgs};
use crate::cli::{Parts, SiteArgs};

/// Where an imported slice lies in a site's directory.
pub const FILE: &str = "log/slice";

/// The slice in a site's directory, if it holds one rather than a log.
pub fn in_site(dir: &Path) -> Result<Option<Arc<SliceLog>>, LogError> {
    let path = dir.join(FILE);
    if path.exists() { Ok(Some(Arc::new(SliceLog::open(path)?))) } else { Ok(None) }
}

/// The part of a partition that goes into a slice.
struct Part {
    partition: Partition,
    /// What its first record follows.
    begins: Tail,
    /// The state before the range, as a rung: its name and bytes.
    rung: Option<(String, Vec<u8>)>,
    records: Vec<ReadRecord>,
    /// When the event before the range was recorded, and the last in it.
    from: Timestamp,
    to: Timestamp,
}

/// What the records of a slice refer to.
#[derive(Default)]
struct Named {
    blobs: BTreeSet<BlobHash>,
    /// The first and the last input of each partition.
    inputs: BTreeMap<Partition, (u64, u64)>,
}

impl Named {
    fn event(&mut self, partition: Partition, event: &EventRecord) {
        self.blobs.extend(blob_names::of(&event.event));
        if let Some(decision) = &event.decision {
            widen(&mut self.inputs, partition, decision.input_offset);
        }
    }
}

fn widen(ranges: &mut BTreeMap<Partition, (u64, u64)>, of: Partition, at: u64) {
    let range = ranges.entry(of).or_insert((at, at));
    *range = (range.0.min(at), range.1.max(at));
}

/// Blobs that the state at some event refers to: of the configuration in force, and of items that are there.
#[derive(Default)]
struct InForce {
    of_tenant: BTreeMap<(String, &'static str), BTreeSet<BlobHash>>,
    of_item: BTreeMap<ItemId, BTreeSet<BlobHash>>,
}

impl InForce {
    fn learn(&mut self, event: &EventRecord) {
        let Event::Gate(gate) = &event.event else { return };
        let item = match gate {
            GateEvent::ItemDequeued(left) => {
                self.of_item.remove(&left.item);
                return;
            }
            GateEvent::TenantConfigured(_) | GateEvent::ConfigRead(_) | GateEvent::LayoutActivated(_) => {
                self.of_tenant.insert((event.key.clone(), gate.name()), blob_names::of(gate));
                return;
            }
            GateEvent::LayoutWanted(_) => {
                self.of_tenant.insert((event.key.clone(), gate.name()), blob_names::of(gate));
                return;
            }
            GateEvent::LayoutReady(of) => of.item,
            GateEvent::Prepared(of) => of.item,
            GateEvent::FreezeWanted(of) => of.item,
            GateEvent::Frozen(of) => of.item,
            _ => return,
        };
        self.of_item.entry(item).or_default().extend(blob_names::of(gate));
    }

    fn all(self) -> impl Iterator<Item = BlobHash> {
        self.of_tenant.into_values().chain(self.of_item.into_values()).flatten()
    }
}

/// `log export`
pub fn export(parts: &Parts, site: &SiteArgs, args: &LogExportArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("log export")?;
    let (log, blobs) = site.history()?;
    let output = NewFile::create(&args.output)?;
    let mut named = Named::default();
    let from = match moment(args.from) {
        Moment::Newest => Moment::Sequence(1),
        from => from,
    };
    let description = log.describe();
    // What else is hosted goes along as of the same time: what one domain tells has its causes in another.
    let mut slices: Vec<Part> = Vec::new();
    for domain in parts.domains.iter() {
        let (since, until) = match slices.first() {
            None => (from, moment(args.to)),
            Some(first) => (
                if first.rung.is_none() { Moment::Sequence(1) } else { Moment::Time(first.from) },
                if args.to.is_none() { Moment::Newest } else { Moment::Time(first.to) },
            ),
        };
        slices.push(part(domain, &log, since, until, &mut named)?);
    }
    let begins = slices.iter().filter(|part| part.begins.sequence > 0).map(|part| (part.partition, part.begins));
    let head = SliceHead {
        site: description.site,
        generation: description.generation,
        partitions: description.partitions,
        begins: begins.collect(),
    };
    let wrong = |error: std::io::Error| file_failure(&args.output, &error);
    let mut slice = SliceWriter::new(BufWriter::new(&output.file), &head).map_err(wrong)?;
    let (mut events, mut inputs, mut missing) = (0_u64, 0_u64, 0_u64);
    for part in &slices {
        for record in &part.records {
            slice.record(Stream::Events(part.partition), record).map_err(wrong)?;
            events += 1;
        }
        if let Some((name, bytes)) = &part.rung {
            slice.file(name, bytes).map_err(wrong)?;
        }
    }
    let mut intake: Option<(u64, u64)> = None;
    for (partition, (first, last)) in std::mem::take(&mut named.inputs) {
        let stream = Stream::Inputs(partition);
        for record in read_range(&*log, stream, first, last)? {
            if let Ok(frame) = InputFrame::decode(&record.bytes) {
                if let Some(source) = frame.source.filter(|source| source.partition.domain == Domain::Intake) {
                    let at = source.sequence;
                    intake = Some(intake.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
                }
                if let Ok(opened) = frame.open() {
                    named.blobs.extend(blob_names::of(&opened.input));
                }
            }
            slice.record(stream, &record).map_err(wrong)?;
            inputs += 1;
        }
    }
    if let Some((first, last)) = intake {
        // A source is counted from 1 where a place may be 0: one more on each side does no harm.
        for record in read_range(&*log, Stream::Intake(0), first.saturating_sub(1), last.saturating_add(1))? {
            if let Ok(opened) =
                InputFrame::decode(&record.bytes).map_err(drop).and_then(|frame| frame.open().map_err(drop))
            {
                named.blobs.extend(blob_names::of(&opened.input));
            }
            slice.record(Stream::Intake(0), &record).map_err(wrong)?;
            inputs += 1;
        }
    }
    let mut blob_count = 0_u64;
    for hash in &named.blobs {
        match blobs.get(hash) {
            Ok(bytes) => {
                slice.blob(hash, &bytes).map_err(wrong)?;
                blob_count += 1;
            }
            // Whoever looks into it shall see what is there, also where something is not.
            Err(error) => {
                missing += 1;
                tracing::warn!(%hash, %error, "a blob that the slice names cannot go with it");
            }
        }
    }
    let _ = slice.finish().map_err(wrong)?;
    let keys = keyring(&site)?;
    let detail = format!("{events} events, {inputs} inputs, {blob_count} blobs");
    tell(
        &site,
        &keys,
        "",
        AccessTold { what: "log-exported".to_owned(), subject: String::new(), detail: detail.clone() },
    )?;
    output.keep()?;
    let mut out = Output::new();
    let _ = if args.json {
        out.json(&json!({ "file": args.output.display().to_string(), "events": events, "inputs": inputs,
                          "blobs": blob_count, "blobs_missing": missing }))?
    } else {
        let missing = if missing > 0 {
            format!("; {missing} blobs are missing, damaged or past their time here, too")
        } else {
            String::new()
        };
        out.line(&format!("{detail}, no keys: what is sealed stays so; written to {}{missing}", args.output.display()))?
    };
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a partition from one moment to another, and folds the state it had before.
fn part(
    domain: &dyn HostedDomain,
    log: &Arc<dyn Log>,
    from: Moment,
    to: Moment,
    named: &mut Named,
) -> Result<Part, Failure> {
    let partition = domain.partition();
    let newest = newest(&**log, partition)?;
    let begins = log.begins(partition);
    let last = match to {
        Moment::Newest => newest,
        Moment::Sequence(sequence) => sequence,
        Moment::Time(time) => sequence_at_time(&**log, partition, time)?,
    };
    if last > newest {
        return Err(ReplayError::NotYet { partition, wanted: last, newest }.into());
    }
    // The newest event that is not in the range.
    let before = match from {
        Moment::Newest => 0,
        Moment::Sequence(first) => first.saturating_sub(1),
        Moment::Time(time) => sequence_at_time(&**log, partition, time)?,
    };
    let before = before.min(last);
    let mut part =
        Part { partition, begins, rung: None, records: Vec::new(), from: Timestamp::ZERO, to: Timestamp::ZERO };
    if before > begins.sequence {
        part.rung = Some(named_rung(partition, domain.replay().rung(log, partition, before)?));
    }
    let mut in_force = InForce::default();
    let mut reader = gatelog_event_log::HistoryReader::from_the_beginning(&**log, partition);
    let mut place = Offset::default();
    'read: loop {
        let batch = log.read(Stream::Events(partition), place, ReadLimit::default())?;
        if batch.records.is_empty() {
            break;
        }
        for record in batch.records {
            let tail = reader.tail();
            let Step::Event(event, _) = reader.next(&record)? else { continue };
            if event.sequence > last {
                break 'read;
            }
            if event.sequence < before && part.rung.is_some() {
                in_force.learn(&event);
                continue;
            }
            if event.sequence == before {
                // It is known by its link that the state is of this history.
                part.begins = tail;
                part.from = event.recorded_at;
                in_force.learn(&event);
            } else {
                named.event(partition, &event);
                part.to = event.recorded_at;
            }
            part.records.push(record);
        }
        place = batch.next;
    }
    named.blobs.extend(in_force.all());
    Ok(part)
}

/// A rung with the name it has in a slice.
fn named_rung(partition: Partition, rung: EncodedRung) -> (String, Vec<u8>) {
    (format!("{}-{}/{}", partition.domain, partition.index, rung.file_name()), rung.into_bytes())
}

/// The records of a stream between two places, both inside.
fn read_range(log: &dyn Log, stream: Stream, first: u64, last: u64) -> Result<Vec<ReadRecord>, LogError> {
    let mut found = Vec::new();
    let mut from = Offset(first);
    loop {
        let batch = log.read(stream, from, ReadLimit::default())?;
        if batch.records.is_empty() {
            return Ok(found);
        }
        for record in batch.records {
            if record.offset.0 > last {
                return Ok(found);
            }
            found.push(record);
        }
        from = batch.next;
    }
}

/// `log import`
pub fn import(parts: &Parts, site: &SiteArgs, args: &LogImportArgs) -> Result<ExitCode, Failure> {
    let dir = site
        .dir
        .clone()
        .ok_or_else(|| Failure::new(Code::Usage, "into which directory?").hint("name a new one with --dir"))?;
    let empty = match std::fs::read_dir(&dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => return Err(file_failure(&dir, &error)),
    };
    if !empty {
        return Err(Failure::new(Code::No, format!("{} is not empty", dir.display()))
            .hint("a slice goes into a directory of its own: name a new one with --dir"));
    }
    // First all of it is read: nothing is made of one that is damaged.
    let head = read_slice(&args.file, |_, _, _, _| Ok::<(), LogError>(()))?;
    let wrong = |path: &Path| {
        let path = path.to_owned();
        move |error: std::io::Error| file_failure(&path, &error)
    };
    let log_dir = dir.join("log");
    std::fs::create_dir_all(&log_dir).map_err(wrong(&log_dir))?;
    let blobs = FileBlobs::open(log_dir.join("blobs"))?;
    let projections = dir.join("projections");
    let (mut events, mut count) = (0_u64, 0_u64);
    let partitions = parts.domains.partitions();
    let _ = read_slice(&args.file, |_, piece, _, bytes| {
        match piece {
            Piece::Record { stream: Stream::Events(_), .. } => events += 1,
            Piece::Record { .. } => {}
            Piece::Blob(_) => {
                let _ = blobs.put(&bytes)?;
                count += 1;
            }
            Piece::File(name) => {
                if let Some((folder, file)) = name.split_once('/')
                    && let Some(partition) = partitions
                        .iter()
                        .copied()
                        .find(|partition| format!("{}-{}", partition.domain, partition.index) == folder)
                    && file.ends_with(".rung")
                    && !file.contains('/')
                {
                    let rungs = RungDir::new(Layout::new(&projections, partition).rungs());
                    std::fs::create_dir_all(rungs.path()).map_err(wrong(rungs.path()))?;
                    let path = rungs.path().join(file);
                    std::fs::write(&path, &bytes).map_err(wrong(&path))?;
                }
            }
        }
        Ok::<(), Failure>(())
    })?;
    let kept = dir.join(FILE);
    let _ = std::fs::copy(&args.file, &kept).map_err(wrong(&kept))?;
    File::open(&kept).and_then(|file| file.sync_all()).map_err(wrong(&kept))?;
    let mut out = Output::new();
    let _ = out.line(&format!("{events} events and {count} blobs of site {} are in {}", head.site, dir.display()))?;
    for (partition, tail) in &head.begins {
        let _ = out.line(&format!("{partition} begins after event {}; what was before is not there", tail.sequence))?;
    }
    let _ = out.line(&format!(
        "look around with --dir {}: status, replay state, explain, log cat, log verify",
        dir.display()
    ))?;
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}
