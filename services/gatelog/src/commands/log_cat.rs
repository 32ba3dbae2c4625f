//! `gatelog log cat`: every record of any age.

use std::process::ExitCode;

use gatelog_event_log::{HistoryReader, Log, Offset, ReadLimit, ReadRecord, Step, Tail};
use gatelog_record::{Domain, Envelope, Event, Input, InputFrame, Partition, Stream, Timestamp};
use gatelog_replay::explain::Names;
use serde_json::{Value as Json, json};

use super::failure::{Code, Failure};
use super::output::{Output, Reader};
use crate::cli::{CatArgs, Parts, SiteArgs};
use crate::show::{self, Paint, Style, clean};

/// Runs it.
pub fn run(parts: &Parts, site: &SiteArgs, args: &CatArgs) -> Result<ExitCode, Failure> {
    let (log, _) = site.directory("log cat")?.history()?;
    check_kinds(args)?;
    check_stream(&*log, args.stream)?;
    let mut out = Output::new();
    let cat = Cat::new(parts, args, Style::of_stdout(), out_width(args));
    let ended = cat.run(&*log, &mut out);
    // What was read before the trouble is said before it.
    let flushed = out.flush();
    ended?;
    let _ = flushed?;
    Ok(ExitCode::SUCCESS)
}

fn out_width(args: &CatArgs) -> usize {
    let longest = |names: &mut dyn Iterator<Item = &'static str>| names.map(str::len).max().unwrap_or(0);
    match args.stream {
        Stream::Events(partition) => {
            let of = partition.domain.name();
            longest(&mut Event::kinds().map(|info| info.name).filter(|name| name.starts_with(of)))
        }
        _ => longest(&mut Input::kinds().map(|info| info.name)),
    }
}

fn check_kinds(args: &CatArgs) -> Result<(), Failure> {
    let names: Vec<&'static str> = match args.stream {
        Stream::Events(_) => Event::kinds().map(|info| info.name).collect(),
        _ => Input::kinds().map(|info| info.name).collect(),
    };
    for kind in &args.kind {
        if !names.contains(&kind.as_str()) {
            let failure = Failure::new(Code::Usage, format!("{} has no records of kind {kind:?}", args.stream));
            return Err(match gatelog_replay::explain::did_you_mean(kind, &names) {
                Some(name) => failure.hint(format!("did you mean {name}?")),
                None => failure.hint(format!("kinds are: {}", names.join(", "))),
            });
        }
    }
    Ok(())
}

fn check_stream(log: &dyn Log, stream: Stream) -> Result<(), Failure> {
    let known = log.streams()?;
    let expected = matches!(stream, Stream::Intake(0))
        || Domain::all().any(|domain| {
            let partition = Partition { domain, index: 0 };
            stream == Stream::Events(partition) || stream == Stream::Inputs(partition)
        });
    if known.contains(&stream) || expected {
        return Ok(());
    }
    let known = known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Err(Failure::new(Code::NotFound, format!("there is no stream {stream} on this log"))
        .detail(format!("there are: {known}")))
}

/// Prints one stream.
struct Cat<'a> {
    args: &'a CatArgs,
    style: Style,
    kind_width: usize,
    names: Names,
}

impl<'a> Cat<'a> {
    fn new(parts: &Parts, args: &'a CatArgs, style: Style, kind_width: usize) -> Cat<'a> {
        Cat { args, style, kind_width, names: Names::of(parts.domains.replay()) }
    }

    fn run(mut self, log: &dyn Log, out: &mut Output) -> Result<(), Failure> {
        match self.args.stream {
            Stream::Events(partition) => self.events(log, partition, out),
            stream => self.inputs(log, stream, out),
        }
    }

    fn events(&mut self, log: &dyn Log, partition: Partition, out: &mut Output) -> Result<(), Failure> {
        let first = self.args.from.unwrap_or(1).max(1);
        let (mut reader, from) = history_from(log, partition, first)?;
        let (style, kind_width, to) = (self.style, self.kind_width, self.args.to.unwrap_or(u64::MAX));
        self.each(log, from, out, |cat, record| {
            let event = match reader.next(record).map_err(|error| error.with_writer(log))? {
                Step::Event(event, _) => event,
                Step::StaleWriter(stale) => {
                    let json = json!({ "stale_writer": { "offset": stale.offset.0, "sequence": stale.sequence,
                        "term": stale.term, "newest_term": stale.newest_term } });
                    let text = format!("offset {}: no part of history: term {} had ended", stale.offset.0, stale.term);
                    return Ok(Said::Line(if cat.args.json {
                        show::json(&json, false)
                    } else {
                        style.paint(Paint::Yellow, &text)
                    }));
                }
            };
            if event.sequence > to {
                return Ok(Said::End);
            }
            cat.names.learn(&event.event);
            if event.sequence < first || !cat.wanted(event.event.name(), &event.key) {
                return Ok(Said::Nothing);
            }
            if cat.args.json {
                return Ok(Said::Line(show::json(&event.to_json(), false)));
            }
            let sentence = cat.names.event(&event.event);
            Ok(Said::Line(line(style, kind_width, event.recorded_at, event.sequence, event.event.name(), &sentence)))
        })
    }

    fn inputs(&mut self, log: &dyn Log, stream: Stream, out: &mut Output) -> Result<(), Failure> {
        let from = Offset(self.args.from.unwrap_or(0));
        let (style, kind_width, to) = (self.style, self.kind_width, self.args.to.unwrap_or(u64::MAX));
        self.each(log, from, out, |cat, record| {
            if record.offset.0 > to {
                return Ok(Said::End);
            }
            let damaged = |what: String| {
                Failure::new(Code::Integrity, format!("{stream} offset {} cannot be read", record.offset.0))
                    .detail(what)
            };
            let frame = InputFrame::decode(&record.bytes).map_err(|error| damaged(error.to_string()))?;
            let kind_version = frame.kind_version;
            let (observed_at, key) = (frame.observed_at, frame.key.clone());
            let opened = match frame.open() {
                Ok(opened) => opened,
                // An input nobody can read is no damage: the partition's writer has refused it by name.
                Err(error) => {
                    let text = format!("{kind_version} cannot be read: {error}");
                    let json = json!({ "offset": record.offset.0, "unreadable": text });
                    return Ok(Said::Line(match cat.args.json {
                        true => show::json(&json, false),
                        false => line(style, kind_width, observed_at, record.offset.0, "?", &text),
                    }));
                }
            };
            if !cat.wanted(opened.input.name(), &key) {
                return Ok(Said::Nothing);
            }
            if cat.args.json {
                let mut json = json!({ "offset": record.offset.0 });
                if let (Json::Object(all), Json::Object(of_record)) = (&mut json, opened.to_json()) {
                    all.extend(of_record);
                }
                return Ok(Said::Line(show::json(&json, false)));
            }
            let sentence = cat.names.input(&opened.input);
            Ok(Said::Line(line(style, kind_width, observed_at, record.offset.0, opened.input.name(), &sentence)))
        })
    }

    fn wanted(&self, kind: &str, key: &str) -> bool {
        (self.args.kind.is_empty() || self.args.kind.iter().any(|wanted| wanted == kind))
            && self.args.key.as_ref().is_none_or(|wanted| wanted == key)
    }

    fn each(
        &mut self,
        log: &dyn Log,
        mut from: Offset,
        out: &mut Output,
        mut say: impl FnMut(&mut Self, &ReadRecord) -> Result<Said, Failure>,
    ) -> Result<(), Failure> {
        let stream = self.args.stream;
        loop {
            let batch = log.read(stream, from, ReadLimit::default())?;
            for record in &batch.records {
                match say(self, record)? {
                    Said::Line(text) if out.line(&text)? == Reader::Gone => return Ok(()),
                    Said::Line(_) | Said::Nothing => {}
                    Said::End => return Ok(()),
                }
            }
            if batch.records.is_empty() {
                if !self.args.follow || out.flush()? == Reader::Gone {
                    return Ok(());
                }
                log.changed(stream, from).wait();
            }
            from = batch.next;
        }
    }
}

enum Said {
    Line(String),
    Nothing,
    End,
}

/// One record for people.
fn line(style: Style, kind_width: usize, at: Timestamp, place: u64, kind: &str, sentence: &str) -> String {
    format!(
        "{} {} {} {}",
        style.paint(Paint::Faint, &millis(at)),
        style.paint(Paint::Bold, &format!("{place:>6}")),
        style.paint(Paint::Blue, &format!("{kind:<kind_width$}")),
        clean(sentence)
    )
}

/// A moment to the millisecond.
pub fn millis(at: Timestamp) -> String {
    let text = at.to_string();
    match text.strip_suffix("Z").and_then(|text| text.get(..text.len() - 3)) {
        Some(cut) => format!("{cut}Z"),
        None => text,
    }
}

/// A reader of history that begins at this event, and where to read. What stands before it is taken at its word.
fn history_from(log: &dyn Log, partition: Partition, first: u64) -> Result<(HistoryReader, Offset), Failure> {
    let Some(before) = first.checked_sub(1).filter(|before| *before > 0) else {
        return Ok((HistoryReader::from_the_beginning(log, partition), Offset::default()));
    };
    if before <= log.begins(partition).sequence {
        return Ok((HistoryReader::from_the_beginning(log, partition), Offset::default()));
    }
    let from = log.seek(partition, before)?;
    let batch = log.read(Stream::Events(partition), from, ReadLimit { records: 1, bytes: 1 })?;
    let Some(record) = batch.records.first() else {
        return Ok((HistoryReader::from_the_beginning(log, partition), Offset::default()));
    };
    let (envelope, link) = Envelope::decode(&record.bytes).map_err(|error| {
        let place = format!("{} offset {}", Stream::Events(partition), record.offset.0);
        Failure::new(Code::Integrity, format!("{place} cannot be read")).detail(error.to_string())
    })?;
    let tail = Tail { sequence: envelope.sequence, term: envelope.term, link };
    Ok((HistoryReader::after(partition, tail), batch.next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_time_place_kind_and_sentence_and_no_control_characters() {
        let at = Timestamp(1_709_164_800_123_456);
        assert_eq!(
            line(Style::Plain, 10, at, 7, "gate.x", "evil\u{1b}[2J"),
            "2024-02-29T00:00:00.123Z      7 gate.x     evil\u{fffd}[2J"
        );
    }
}
