//! Requests of operators: onto the log, and what became of them from there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gatelog_effects::connection::chain;
use gatelog_event_log::{Log, LogError, Offset, ReadLimit};
use gatelog_record::event::{GateEvent, PartitionEvent};
use gatelog_record::input::GateInput;
use gatelog_record::{ActorId, Envelope, Event, EventRecord, Input, InputId, InputRecord, Partition, Stream};
use gatelog_secrets::Keyring;
use gatelog_web::operators::{Answer, Ask, NotAsked, Operators};

/// How long the log may take to acknowledge.
const ACKNOWLEDGED: Duration = Duration::from_secs(10);
/// How long what becomes of a request is waited for.
const DECIDED: Duration = Duration::from_secs(10);

/// The operators of a site.
pub struct SiteOperators {
    /// The log.
    pub log: Arc<dyn Log>,
    /// The keys, and the names behind actors' ids.
    pub keyring: Arc<Keyring>,
}

impl Operators for SiteOperators {
    fn ask(&self, ask: &Ask) -> Result<Answer, NotAsked> {
        let failed = |error: &dyn std::error::Error| NotAsked(chain(error));
        let person = &ask.person;
        let actor = self.keyring.actor(&person.issuer, &person.uid).map_err(|error| failed(&error))?;
        if let Err(error) = self.keyring.introduce(actor, &format!("{} ({})", person.uid, person.issuer)) {
            tracing::warn!(error = %chain(&error), "the name of an operator could not be kept");
        }
        let request = match &ask.request {
            Some(request) => request.clone(),
            None => crate::server::draw().map_err(|error| failed(&error))?,
        };
        // Two people never send the same request.
        let id = InputId::new(format!("api/{actor}/{request}"));
        let mut record = InputRecord::new(id.clone(), &*ask.key, crate::clock::now(), ask.input.clone());
        record.actor = actor;
        let frame = record.close().map_err(|error| failed(&error))?.encode();
        let from = self.log.end(Stream::Events(ask.partition)).map_err(|error| failed(&error))?;
        let appended = self.log.append_inputs(Stream::Inputs(ask.partition), vec![frame]).wait_for(ACKNOWLEDGED);
        match appended {
            Ok(Some(Ok(_))) => {}
            Ok(Some(Err(error))) => return Err(failed(&error)),
            Ok(None) => return Err(NotAsked("the log is closing".into())),
            Err(_) => {
                let what =
                    "the log did not answer in time, and may take it yet: send it again with the same X-Request-Id";
                return Err(NotAsked(what.into()));
            }
        }
        tracing::info!(%actor, key = ask.key, request, kind = record.input.name(), "an operator asks");
        let enqueues = matches!(ask.input, Input::Gate(GateInput::EnqueueAsked(_)));
        Ok(self.outcome(ask.partition, &id, from, enqueues).unwrap_or_else(|error| {
            tracing::warn!(error = %chain(&error), "what became of a request cannot be read");
            Answer::Waiting
        }))
    }

    fn name_of(&self, actor: ActorId) -> Option<String> {
        self.keyring.name_of(actor).unwrap_or_else(|error| {
            tracing::warn!(error = %chain(&error), "the name of an operator cannot be read");
            None
        })
    }
}

impl SiteOperators {
    /// What became of an input, from events after a place; with `settled`, what became of it as a trigger.
    fn outcome(&self, of: Partition, id: &InputId, from: Offset, settled: bool) -> Result<Answer, LogError> {
        let events = Stream::Events(of);
        let until = Instant::now() + DECIDED;
        let (mut at, mut decided) = (from, None);
        let mut answer: Option<(Answer, Option<InputId>)> = None;
        loop {
            let batch = self.log.read(events, at, ReadLimit::default())?;
            for read in &batch.records {
                let opened = Envelope::decode(&read.bytes).ok().and_then(|(envelope, _)| envelope.open().ok());
                let Some(record) = opened else { continue };
                let cause = record.decision.as_ref().map(|decision| &decision.input_id);
                match answer.take() {
                    None => {
                        let found = next(id, settled, &record, &mut decided);
                        answer = found.map(|found| (found, cause.cloned()));
                    }
                    // What was asked for is there once the whole decision is: its last event is the one to wait for.
                    Some((found, whole)) if cause.is_some() && cause == whole.as_ref() => {
                        answer = Some((found.as_of(record.sequence), whole));
                    }
                    Some((found, _)) => return Ok(found),
                }
            }
            at = batch.next;
            match answer.take() {
                Some((found, _)) if batch.records.is_empty() => return Ok(found),
                // Where a read ended within a decision the rest of it can be read: both are on the log at once.
                Some(found) => {
                    answer = Some(found);
                    continue;
                }
                None => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let answer = decided.map(|(sequence, input)| Answer::Decided { sequence, input, nothing: None });
                return Ok(answer.unwrap_or(Answer::Waiting));
            }
            if batch.records.is_empty() {
                let _ = self.log.changed(events, at).wait_for(left.min(Duration::from_millis(250)));
            }
        }
    }
}

/// What an event says of a request; `decided` is the first event of its decision and its number, once that came.
fn next(id: &InputId, settled: bool, record: &EventRecord, decided: &mut Option<(u64, u64)>) -> Option<Answer> {
    let own = record.decision.as_ref().filter(|decision| decision.input_id == *id);
    if let Some(decision) = own {
        let (sequence, input) = (record.sequence, decision.input_sequence);
        match &record.event {
            Event::Partition(PartitionEvent::InputTaken(taken)) => {
                let nothing = Some(taken.reason.clone());
                return Some(Answer::Decided { sequence, input, nothing });
            }
            Event::Partition(PartitionEvent::InputRefused(refused)) => {
                return Some(Answer::Refused { code: refused.code.clone(), message: refused.message.clone() });
            }
            _ if !settled => return Some(Answer::Decided { sequence, input, nothing: None }),
            _ => *decided = Some((sequence, input)),
        }
    }
    match (&record.event, &decided) {
        (Event::Gate(GateEvent::TriggerSettled(done)), Some((_, input))) if done.trigger == *input => {
            Some(Answer::Settled { sequence: record.sequence, verdicts: done.verdicts.clone() })
        }
        _ => None,
    }
}
