//! What can be said to the debugger, and what it answers.

use gatelog_record::{Cause, EventRecord, EventRef, Timestamp};
use serde_json::json;

use super::{Answer, Debugger, StepError};
use crate::diff::{About, entries, entry_words};
use crate::explain::{Found, Tone, position};
use crate::reading::{event_at, input_at};

/// What can be said.
pub const HELP: &str = "\
next [N]                  go on, N events                                         n
previous [N]              go back, N events                                       p
next item [NAME]          to the next event of this item, in whatever domain; or of the one named
next build [NAME]         of this build
next tenant [NAME]        of this tenant
next kind KIND            of this kind, such as gate.wait-changed
previous item|build|tenant|kind …   the same, backwards
goto POSITION             117, capacity/0:31, a time (RFC 3339), start, end       g
event                     the event, whole                                        e
made                      what the event changed in the state                     m
input                     the input it was decided on
causes                    its causes, back to the outside event                   c
state [TABLE [KEY]]       the tables after this event; one table's rows; rows whose key begins so   s
where                     where this is                                           w
help                      this list                                               h
quit                      leave                                                   q";

/// The most rows that are told of one table.
const MAX_ROWS: usize = 200;

impl Debugger<'_> {
    /// Does what a line says.
    ///
    /// # Errors
    /// [`StepError`]; it stands where it stood.
    pub fn command(&mut self, line: &str) -> Result<Answer, StepError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] => Ok(Answer::default()),
            ["next" | "n", rest @ ..] => self.walk(true, rest),
            ["previous" | "prev" | "p" | "back", rest @ ..] => self.walk(false, rest),
            ["goto" | "go" | "g", place] => self.goto(place),
            ["event" | "e"] => self.whole_event(),
            ["made" | "m" | "diff"] => self.made(),
            ["input"] => self.input(),
            ["causes" | "c" | "why"] => self.causes(),
            ["state" | "s", rest @ ..] if rest.len() <= 2 => self.state(rest),
            ["where" | "w"] => self.here(),
            ["help" | "h" | "?"] => {
                let lines = HELP.lines().map(|line| (Tone::Plain, line.to_owned())).collect();
                Ok(Answer { lines, json: json!({ "help": HELP }), quit: false })
            }
            ["quit" | "q" | "exit"] => Ok(Answer { quit: true, json: json!({ "quit": true }), ..Answer::default() }),
            [unknown, ..] => Err(StepError::Command(format!("{unknown:?} cannot be understood as it stands here"))),
        }
    }

    fn walk(&mut self, forward: bool, rest: &[&str]) -> Result<Answer, StepError> {
        match rest {
            [] => self.by(forward, 1),
            ["item", name @ ..] => self.of_found(forward, "item", name),
            ["build", name @ ..] => self.of_found(forward, "build", name),
            ["tenant", name @ ..] if name.len() <= 1 => {
                let tenant = match name.first() {
                    Some(name) => (*name).to_owned(),
                    None => self.event()?.map(|record| record.key).unwrap_or_default(),
                };
                self.until(forward, &format!("tenant {tenant}"), |record| record.key == tenant)
            }
            ["kind", kind] => self.until(forward, &format!("kind {kind}"), |record| record.event.name() == *kind),
            [count] => match count.parse() {
                Ok(count) => self.by(forward, count),
                Err(_) => Err(StepError::Command(format!("{count:?} is no number of events"))),
            },
            _ => Err(StepError::Command("after next and previous stands a number, item, build, tenant or kind".into())),
        }
    }

    fn by(&mut self, forward: bool, count: u64) -> Result<Answer, StepError> {
        let EventRef { partition, sequence } = self.at;
        let to = if forward {
            let newest = self.newest()?;
            if sequence >= newest {
                return Err(StepError::AtTheEnd(partition));
            }
            sequence.saturating_add(count).min(newest)
        } else {
            if sequence == 0 {
                return Err(StepError::AtTheBeginning(partition));
            }
            sequence.saturating_sub(count)
        };
        self.go_to(EventRef { partition, sequence: to })?;
        self.here()
    }

    /// To the next event of an item or a build: they stand in two domains, and go by time.
    fn of_found(&mut self, forward: bool, kind: &str, name: &[&str]) -> Result<Answer, StepError> {
        let found = match name {
            [] => {
                let record = self.event()?;
                let event = record.as_ref().map(|record| &record.event);
                let found = match kind {
                    "item" => event.and_then(|event| self.explainer.item_of(event)).map(Found::Item),
                    _ => event.and_then(|event| self.explainer.build_of(event)).map(Found::Build),
                };
                found.ok_or_else(|| StepError::Command(format!("this event is of no {kind}: name one")))?
            }
            [name] => self.explainer.find(name, None)?,
            _ => return Err(StepError::Command(format!("one {kind} is named, without spaces"))),
        };
        let now = (self.event()?.map(|record| record.recorded_at).unwrap_or(Timestamp::ZERO), self.at);
        let mut nearest: Option<(Timestamp, EventRef)> = None;
        for at in self.explainer.events_of(&found)? {
            let place = (event_at(&*self.log, at)?.recorded_at, at);
            let nearer = match (forward, nearest) {
                (true, _) if place <= now => false,
                (false, _) if place >= now => false,
                (true, Some(nearest)) => place < nearest,
                (false, Some(nearest)) => place > nearest,
                (_, None) => true,
            };
            if nearer {
                nearest = Some(place);
            }
        }
        let what = match &found {
            Found::Item(item) => self.explainer.names().item(*item),
            Found::Build(build) => self.explainer.names().build(*build),
            _ => name.first().copied().unwrap_or_default().to_owned(),
        };
        let (_, to) = nearest.ok_or(StepError::NoFurther { what, forward })?;
        self.go_to(to)?;
        self.here()
    }

    /// To the next event of this partition that is wanted.
    fn until(&mut self, forward: bool, what: &str, wanted: impl Fn(&EventRecord) -> bool) -> Result<Answer, StepError> {
        let EventRef { partition, mut sequence } = self.at;
        let newest = self.newest()?;
        loop {
            let next =
                if forward { sequence.checked_add(1).filter(|next| *next <= newest) } else { sequence.checked_sub(1) };
            let Some(next) = next.filter(|next| *next > 0) else {
                return Err(StepError::NoFurther { what: what.to_owned(), forward });
            };
            sequence = next;
            let at = EventRef { partition, sequence };
            if wanted(&event_at(&*self.log, at)?) {
                self.go_to(at)?;
                return self.here();
            }
        }
    }

    fn goto(&mut self, place: &str) -> Result<Answer, StepError> {
        let partition = self.at.partition;
        let to = match place {
            "start" => Some(EventRef { partition, sequence: 0 }),
            "end" => Some(EventRef { partition, sequence: self.newest()? }),
            // A bare number is of the partition at hand.
            number if !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()) => {
                number.parse().ok().map(|sequence| EventRef { partition, sequence })
            }
            other => position(other)?,
        };
        match to {
            Some(to) => self.go_to(to)?,
            None => match (self.time_of)(place) {
                Some(at) => self.go_to_time(at)?,
                None => {
                    return Err(StepError::Command(format!(
                        "{place:?} is no position: expected 117, capacity/0:31, a time such as 2026-11-21T10:15:00Z, start or end"
                    )));
                }
            },
        }
        self.here()
    }

    /// Where it stands, in one line.
    pub fn here(&self) -> Result<Answer, StepError> {
        let place = format!("{}:{}", self.at.partition, self.at.sequence);
        let Some(record) = self.event()? else {
            let json = json!({ "at": place, "event": null });
            return Ok(Answer {
                lines: vec![(Tone::Faint, format!("{place}  before the first event"))],
                json,
                quit: false,
            });
        };
        let text = self.explainer.names().event(&record.event);
        let (kind, time) = (record.event.name(), record.recorded_at);
        let line = format!("{place}  {time}  {kind}  {text}");
        let json = json!({ "at": place, "time": time.to_string(), "kind": kind, "key": record.key, "text": text,
                           "event": record.id.to_string() });
        Ok(Answer { lines: vec![(Tone::Plain, line)], json, quit: false })
    }

    fn needed(&self) -> Result<EventRecord, StepError> {
        self.event()?.ok_or(StepError::AtTheBeginning(self.at.partition))
    }

    fn whole_event(&self) -> Result<Answer, StepError> {
        let json = self.needed()?.to_json();
        let text = serde_json::to_string_pretty(&json).unwrap_or_default();
        Ok(Answer { lines: text.lines().map(|line| (Tone::Plain, line.to_owned())).collect(), json, quit: false })
    }

    fn made(&mut self) -> Result<Answer, StepError> {
        self.needed()?;
        let at = self.at;
        let changes = self.stand(at.partition)?.made()?;
        let mut lines = Vec::new();
        let mut last = None;
        let mut told = Vec::new();
        let mut found = entries(at.partition, changes, self.explainer.names());
        found.sort_by_key(|(about, _)| *about);
        for (about, entry) in found {
            if last != Some(about) {
                lines.push((Tone::Head, about.word().to_owned()));
                last = Some(about);
            }
            if about == About::Bookkeeping {
                let fields: Vec<&str> = entry.change.fields.iter().map(|field| field.field.as_str()).collect();
                let what = if fields.is_empty() { String::new() } else { format!(": {}", fields.join(", ")) };
                lines.push((Tone::Faint, format!("  {} {}{what}", entry.change.table, entry.subject)));
            } else {
                lines.extend(entry_words(&entry, self.explainer.names()));
            }
            told.push(json!({ "about": about, "entry": entry }));
        }
        Ok(Answer { lines, json: json!({ "made": told }), quit: false })
    }

    fn input(&self) -> Result<Answer, StepError> {
        let record = self.needed()?;
        let offset = match record.cause {
            Cause::Input { offset } => offset,
            // What an event of the same decision caused stands on that decision's input.
            Cause::Event { sequence: cause } => {
                match event_at(&*self.log, EventRef { sequence: cause, ..self.at })?.cause {
                    Cause::Input { offset } => offset,
                    _ => return Err(StepError::Command("this event was decided on no input".into())),
                }
            }
            Cause::Start => {
                return Err(StepError::Command("the writer records this of its own accord: there is no input".into()));
            }
        };
        let stream = gatelog_record::Stream::Inputs(self.at.partition);
        let json = json!({ "stream": stream.to_string(), "offset": offset,
                           "input": input_at(&*self.log, stream, offset)?.to_json() });
        let text = serde_json::to_string_pretty(&json).unwrap_or_default();
        Ok(Answer { lines: text.lines().map(|line| (Tone::Plain, line.to_owned())).collect(), json, quit: false })
    }

    fn causes(&self) -> Result<Answer, StepError> {
        self.needed()?;
        let way = self.explainer.way_to(self.at)?;
        let lines = way.iter().map(|step| {
            let place = format!("{} {}", step.spot.stream, step.spot.sequence);
            (Tone::Plain, format!("  {place:<24} {}  {}", step.step, step.text))
        });
        let lines = lines.collect();
        Ok(Answer { lines, json: json!({ "causes": way }), quit: false })
    }

    fn state(&mut self, rest: &[&str]) -> Result<Answer, StepError> {
        let only = rest.first().copied();
        let at = self.at;
        let tables = self.stand(at.partition)?.tables(only)?;
        let mut lines = Vec::new();
        let mut told = serde_json::Map::new();
        for (table, rows) in &tables {
            let begins = rest.get(1).copied().unwrap_or_default();
            let rows: Vec<_> = rows.iter().filter(|(key, _)| key.starts_with(begins)).collect();
            if only.is_none() {
                lines.push((
                    if rows.is_empty() { Tone::Faint } else { Tone::Plain },
                    format!("  {table:<20} {}", rows.len()),
                ));
                told.insert((*table).to_owned(), rows.len().into());
                continue;
            }
            for (key, row) in rows.iter().take(MAX_ROWS) {
                lines.push((Tone::Head, if key.is_empty() { (*table).to_owned() } else { key.clone() }));
                let text = serde_json::to_string_pretty(row).unwrap_or_default();
                lines.extend(text.lines().map(|line| (Tone::Plain, format!("  {line}"))));
            }
            if let Some(more) = rows.len().checked_sub(MAX_ROWS).filter(|more| *more > 0) {
                lines.push((Tone::Faint, format!("and {more} more: say the beginning of a key")));
            }
            let rows = rows.into_iter().map(|(key, row)| (key.clone(), row.clone()));
            told.insert((*table).to_owned(), rows.collect::<serde_json::Map<_, _>>().into());
        }
        if let (Some(only), true) = (only, tables.is_empty()) {
            return Err(StepError::Command(format!("{} has no table {only:?}: `state` lists them", at.partition)));
        }
        Ok(Answer { lines, json: json!({ "state": told }), quit: false })
    }
}
