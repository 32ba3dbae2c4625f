//! Events: files in the inbox, in the order of their names.

use std::time::{Duration, Instant};

use gatelog_driver_contract::{Batch, Heard, Intake, Listening, Sink, Trouble};
use gatelog_record::Value;
use gatelog_record::draft::intake::ForgeEvent;

use crate::review::Shelf;

/// How often the inbox is looked at while somebody listens.
const GLANCE: Duration = Duration::from_millis(20);

impl Shelf {
    /// What lies in the inbox beyond a name, and the last name.
    fn news(&self, beyond: Option<Vec<u8>>) -> Result<Batch, Trouble> {
        let inbox = self.root.join("inbox");
        let failed = |error: std::io::Error| Trouble::passing("inbox", &error);
        let beyond = beyond.map(|name| String::from_utf8_lossy(&name).into_owned()).unwrap_or_default();
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&inbox).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            if name > beyond {
                names.push(name);
            }
        }
        names.sort();
        let mut events = Vec::new();
        for name in &names {
            let text = std::fs::read_to_string(inbox.join(name)).map_err(failed)?;
            events.extend(self.event(name, &text)?);
        }
        Ok(Batch { events, place: names.pop().map(String::into_bytes) })
    }

    /// An event as it is written; what cannot be read is none.
    fn event(&self, name: &str, text: &str) -> Result<Option<ForgeEvent>, Trouble> {
        let mut words = text.split_whitespace();
        let (Some(project), Some(change), Some(event)) = (words.next(), words.next(), words.next()) else {
            return Ok(None);
        };
        let Some(subject) = self.subject(project, change)? else { return Ok(None) };
        Ok(Some(ForgeEvent {
            connection: self.name.clone(),
            project: subject.project,
            event: event.to_owned(),
            branch: subject.branch,
            git_ref: subject.git_ref,
            change: subject.change,
            patchset: subject.patchset,
            commit: subject.commit,
            old_commit: None,
            attributes: Value::Null,
            delivery: name.to_owned(),
            raw: None,
        }))
    }
}

impl Intake for Shelf {
    fn recover(&self, sink: &mut dyn Sink) -> Result<(), Trouble> {
        let place = sink.place("");
        sink.take("", self.news(place))
    }

    fn listen(&self) -> Result<Box<dyn Listening + '_>, Trouble> {
        Ok(Box::new(Looking(self)))
    }

    fn look_every(&self) -> Option<Duration> {
        None
    }
}

/// Whoever looks into the inbox.
struct Looking<'s>(&'s Shelf);

impl Listening for Looking<'_> {
    fn next(&mut self, at_most: Duration, sink: &mut dyn Sink) -> Result<Heard, Trouble> {
        let until = Instant::now() + at_most;
        loop {
            let batch = self.0.news(sink.place(""))?;
            if !batch.events.is_empty() {
                sink.take("", Ok(batch))?;
                return Ok(Heard::Everything);
            }
            if Instant::now() >= until {
                return Ok(Heard::Everything);
            }
            std::thread::sleep(GLANCE);
        }
    }
}
