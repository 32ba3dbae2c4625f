//! `gatelog log verify`: that what stands on the log is what was written.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use gatelog_audit::Checkpoint;
use gatelog_event_log::history::{Report, verify, verify_inputs};
use gatelog_event_log::{BlobError, Blobs, HistoryReader, Log, Offset, ReadLimit, Step, Tail};
use gatelog_record::{BlobHash, EventRef, InputFrame, Partition, Stream};
use serde_json::{Value as Json, json};

use super::blob_names;
use super::failure::{Code, Failure};
use super::output::Output;
use super::site::Site;
use crate::audit::{check, notary, public};
use crate::cli::{SiteArgs, VerifyArgs};
use crate::logs::Known;
use crate::show::{Paint, Style};

/// How many findings about blobs are listed; all are counted.
const LISTED: usize = 20;

/// Runs it.
pub fn run(site: &SiteArgs, args: &VerifyArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("log verify")?;
    let mut findings = Findings::default();
    // Segments are the embedded log's; brokers check their own.
    let slice = site.slice()?;
    let segments = match site.kafka()? {
        _ if slice.is_some() => None,
        Some(_) => None,
        None => Some(match site.embedded()?.verify() {
            Ok(report) => json!({ "segments": report.segments, "sealed": report.sealed, "frames": report.frames,
                                  "records": report.records, "bytes": report.bytes }),
            Err(error) => {
                findings.broken.push(error.to_string());
                Json::Null
            }
        }),
    };
    let (log, blobs) = site.history()?;
    findings.slice = slice.map(|slice| slice.head().begins.clone());
    findings.streams(&*log)?;
    findings.blobs(&*log, &*blobs)?;
    findings.checkpoints(&site, &*log, &args.checkpoint)?;
    let mut out = Output::new();
    let _ = if args.json {
        out.json(&findings.to_json(segments))?
    } else {
        out.lines(&findings.render(segments.as_ref(), Style::of_stdout()))?
    };
    let _ = out.flush()?;
    if findings.sound() {
        return Ok(ExitCode::SUCCESS);
    }
    let mut failure = Failure::new(Code::Integrity, "the log is not what was written");
    failure.detail.extend(findings.places());
    Err(failure.hint("restore it from a backup or an export; nothing after such a place is read"))
}

/// What was found.
#[derive(Default)]
struct Findings {
    /// What is wrong with the segments themselves.
    broken: Vec<String>,
    /// Of a slice: what its partitions begin after.
    slice: Option<BTreeMap<Partition, Tail>>,
    streams: Vec<Report>,
    /// What is signed elsewhere: which, and what is wrong with it or with the log.
    checkpoints: Vec<(String, Option<String>)>,
    blobs: u64,
    blob_bytes: u64,
    /// Blobs that are not there, with the record that names each.
    missing: BTreeMap<BlobHash, String>,
    /// Blobs whose end is on the log.
    ended: BTreeSet<BlobHash>,
    /// How many of these are not there.
    ended_blobs: u64,
    /// What is wrong with blobs, with the record that names each; at most [`LISTED`].
    wrong_blobs: Vec<String>,
    wrong_blob_count: u64,
}

impl Findings {
    fn streams(&mut self, log: &dyn Log) -> Result<(), Failure> {
        let mut streams = log.streams()?;
        streams.sort();
        for stream in streams {
            self.streams.push(match stream {
                Stream::Events(partition) => verify(log, partition),
                stream => verify_inputs(log, stream),
            });
        }
        Ok(())
    }

    /// Every blob that a readable record names is there and is what its name says, or its end is on the log.
    fn blobs(&mut self, log: &dyn Log, blobs: &dyn Blobs) -> Result<(), Failure> {
        let mut seen = BTreeSet::new();
        for stream in log.streams()? {
            let mut reader = match stream {
                Stream::Events(partition) => Some(HistoryReader::from_the_beginning(log, partition)),
                _ => None,
            };
            let mut from = Offset::default();
            // What cannot be read is told by the check of its stream.
            'stream: while let Ok(batch) = log.read(stream, from, ReadLimit::default()) {
                if batch.records.is_empty() {
                    break;
                }
                for record in &batch.records {
                    let (place, names) = match &mut reader {
                        Some(reader) => match reader.next(record) {
                            Ok(Step::Event(event, _)) => {
                                let at = EventRef { partition: reader.partition(), sequence: event.sequence };
                                self.ended.extend(blob_names::ended(&event.event));
                                (format!("{}:{}", at.partition, at.sequence), blob_names::of(&event.event))
                            }
                            Ok(Step::StaleWriter(_)) => continue,
                            Err(_) => break 'stream,
                        },
                        None => match InputFrame::decode(&record.bytes).ok().and_then(|frame| frame.open().ok()) {
                            Some(opened) => {
                                (format!("{stream} offset {}", record.offset.0), blob_names::of(&opened.input))
                            }
                            None => continue,
                        },
                    };
                    for hash in names {
                        if seen.insert(hash) {
                            self.blob(blobs, hash, &place);
                        }
                    }
                }
                from = batch.next;
            }
        }
        for (hash, named_by) in std::mem::take(&mut self.missing) {
            if self.ended.contains(&hash) {
                self.ended_blobs += 1;
            } else {
                self.wrong_blob(&named_by, &BlobError::Missing(hash));
            }
        }
        Ok(())
    }

    fn blob(&mut self, blobs: &dyn Blobs, hash: BlobHash, named_by: &str) {
        self.blobs += 1;
        match blobs.get(&hash) {
            Ok(bytes) => self.blob_bytes += bytes.len() as u64,
            // Its end may be told further on.
            Err(BlobError::Missing(_)) => {
                self.missing.insert(hash, named_by.to_owned());
            }
            Err(error) => self.wrong_blob(named_by, &error),
        }
    }

    fn wrong_blob(&mut self, named_by: &str, error: &BlobError) {
        self.wrong_blob_count += 1;
        if self.wrong_blobs.len() < LISTED {
            self.wrong_blobs.push(format!("named by {named_by}: {error}"));
        }
    }

    /// The log goes on from what was signed and lies elsewhere.
    fn checkpoints(&mut self, site: &Site, log: &dyn Log, files: &[PathBuf]) -> Result<(), Failure> {
        let keys = site.keys()?;
        // None is made here: who has no key has signed nothing.
        let key = if files.is_empty() || !keys.exists() {
            None
        } else {
            super::audit::keyring(site)?.known_signing_key().ok()
        };
        let key = key.flatten().map(|key| public(&key));
        let here = log.describe();
        for signed in super::audit::all_checkpoints(files)? {
            let Checkpoint { site, generation, partition, link, .. } = signed.checkpoint;
            let sequence = signed.checkpoint.sequence();
            let who = format!("the checkpoint of {partition} at event {sequence}");
            if (site, generation) != (here.site, here.generation) {
                let what =
                    format!("{who} is of site {site}, generation {generation}, and cannot be held against this log");
                return Err(Failure::new(Code::No, what)
                    .detail(format!("this one is of site {}, generation {}", here.site, here.generation))
                    .hint("name a checkpoint of this log; after `log adopt` those of the generation before no longer bind"));
            }
            let wrong = if key.as_ref().is_some_and(|key| !signed.is_signed_by(key, &check)) {
                Some(format!("{who} is not signed with the site's key"))
            } else {
                notary::agrees(log, &Known { who, partition, sequence, link }).err().map(|error| error.to_string())
            };
            self.checkpoints.push((format!("{partition} event {sequence}"), wrong));
        }
        Ok(())
    }

    fn sound(&self) -> bool {
        self.places().is_empty()
    }

    fn places(&self) -> Vec<String> {
        let mut places = self.broken.clone();
        for report in &self.streams {
            if let Some(error) = &report.error {
                places.push(format!("{}: {error}", report.stream));
            }
        }
        places.extend(self.checkpoints.iter().filter_map(|(_, wrong)| wrong.clone()));
        places.extend(self.wrong_blobs.iter().cloned());
        let more = self.wrong_blob_count.saturating_sub(self.wrong_blobs.len() as u64);
        if more > 0 {
            places.push(format!("and {more} more blobs"));
        }
        places.dedup();
        places
    }

    fn to_json(&self, segments: Option<Json>) -> Json {
        let streams: Vec<Json> = self
            .streams
            .iter()
            .map(|report| {
                let mut json = json!({ "stream": report.stream.to_string(), "records": report.records,
                    "bytes": report.bytes, "error": report.error.as_ref().map(ToString::to_string) });
                if let Stream::Events(_) = report.stream {
                    json["sequence"] = report.tail.sequence.into();
                    json["terms"] = report.terms.into();
                    json["link"] = report.tail.link.to_string().into();
                    json["stale_records"] = report.stale.into();
                }
                json
            })
            .collect();
        let slice = self.slice.as_ref().map(|begins| {
            begins
                .iter()
                .map(|(of, tail)| (of.to_string(), Json::from(tail.sequence)))
                .collect::<serde_json::Map<_, _>>()
        });
        let checkpoints: Vec<Json> =
            self.checkpoints.iter().map(|(of, wrong)| json!({ "of": of, "error": wrong })).collect();
        json!({ "ok": self.sound(), "segments": segments, "slice": slice, "streams": streams, "checkpoints": checkpoints,
                "blobs": { "named": self.blobs, "bytes": self.blob_bytes, "ended": self.ended_blobs, "wrong": self.wrong_blob_count },
                "problems": self.places() })
    }

    fn render(&self, segments: Option<&Json>, style: Style) -> Vec<String> {
        let good = style.paint(Paint::Green, "ok");
        let bad = style.paint(Paint::Red, "BROKEN");
        let mut lines = Vec::new();
        if let Some(begins) = &self.slice {
            let whole = if begins.is_empty() { ", from the first event on" } else { "" };
            lines.push(format!("{:<24} {good}  this is a slice of a log, not all of it{whole}", "slice"));
            for (partition, tail) in begins {
                lines.push(format!("{:<24} {good}  begins after event {}", partition.to_string(), tail.sequence));
            }
        }
        match segments {
            None => {}
            Some(Json::Null) => lines.push(format!("{:<24} {bad}", "segments")),
            Some(of) => lines.push(format!(
                "{:<24} {good}  {} ({} sealed), {}, {}, {} bytes",
                "segments",
                count(of["segments"].as_u64(), "segment"),
                of["sealed"],
                count(of["frames"].as_u64(), "frame"),
                count(of["records"].as_u64(), "record"),
                of["bytes"]
            )),
        }
        for report in &self.streams {
            let state = if report.error.is_none() { &good } else { &bad };
            let mut line =
                format!("{:<24} {state}  {}", report.stream.to_string(), count(Some(report.records), "record"));
            if let Stream::Events(_) = report.stream {
                let link: String = report.tail.link.to_string().chars().take(16).collect();
                line.push_str(&format!(
                    ", up to event {}, {}, chain {link}",
                    report.tail.sequence,
                    count(Some(report.terms), "term")
                ));
                if report.stale > 0 {
                    line.push_str(&format!(", {} of writers that had been cut off", report.stale));
                }
            }
            lines.push(line);
        }
        for (of, wrong) in &self.checkpoints {
            let state = if wrong.is_none() { &good } else { &bad };
            lines.push(format!("{:<24} {state}  {of}", "checkpoint"));
        }
        let state = if self.wrong_blob_count == 0 { &good } else { &bad };
        let wrong = match self.wrong_blob_count {
            0 => String::new(),
            wrong => format!(", {wrong} missing or damaged"),
        };
        let ended = match self.ended_blobs {
            0 => String::new(),
            ended => format!(", {ended} gone by the site's setting"),
        };
        lines.push(format!("{:<24} {state}  {} named, {} bytes{ended}{wrong}", "blobs", self.blobs, self.blob_bytes));
        lines
    }
}

fn count(number: Option<u64>, one: &str) -> String {
    match number {
        Some(1) => format!("1 {one}"),
        Some(number) => format!("{number} {one}s"),
        None => format!("? {one}s"),
    }
}
