//! The inputs near a moment that a what-if may be asked about.

use gatelog_event_log::Log;
use gatelog_record::draft::gate::TimerName;
use gatelog_record::input::GateInput;
use gatelog_record::{Domain, EventRef, Input, Partition, Stream, Timestamp};
use serde::Serialize;

use crate::error::ReplayError;
use crate::explain::intake_offset;
use crate::reading::{envelopes, input_at};

/// How many events are read at once on the way back.
const WINDOW: u64 = 256;
/// How many events are looked at for the inputs they were decided on.
const LOOK_FOR: u64 = 8_192;

/// Something that came from outside and could not have come, or said something else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InputNear {
    /// Where it stands, as a what-if takes it: `intake/0:41`, `gate.inputs/0:7`.
    pub place: String,
    /// The first event of what was decided on it.
    pub sequence: u64,
    /// When that was.
    pub at: Timestamp,
    /// Its kind, without its family: `trigger-received`.
    pub kind: String,
    /// The tenant.
    pub tenant: String,
    /// What it says, in a few words.
    pub says: String,
}

/// The last inputs from outside that were decided on up to an event, the newest first, at most so many. Outcomes of
/// gatelog's own work are none of them, only what forges, people and workers said.
///
/// # Errors
/// `Log`, `Frame`.
pub fn inputs_near(log: &dyn Log, at: EventRef, most: usize) -> Result<Vec<InputNear>, ReplayError> {
    let mut found = Vec::new();
    let mut above = at.sequence;
    let begins = log.begins(at.partition).sequence.max(at.sequence.saturating_sub(LOOK_FOR));
    while above > begins && found.len() < most {
        let below = above.saturating_sub(WINDOW).max(begins);
        for envelope in envelopes(log, at.partition, below + 1, above)?.into_iter().rev() {
            let Some(decision) = envelope.decision else { continue };
            let offset = decision.input_offset;
            // What cannot be read was refused: it says nothing that could be otherwise.
            let Ok(record) = input_at(log, Stream::Inputs(at.partition), offset) else { continue };
            let Some((tenant, says)) = said(&record.input) else { continue };
            let place = match decision.source.filter(|source| source.partition.domain == Domain::Intake) {
                Some(source) => {
                    let origin = EventRef { partition: source.partition, sequence: source.sequence };
                    format!("{}:{}", Stream::Intake(origin.partition.index), intake_offset(log, origin, &record.input))
                }
                None => place_of(at.partition, offset),
            };
            let kind = record.input.name().rsplit('.').next().unwrap_or_default().to_owned();
            let (sequence, at) = (envelope.sequence, envelope.recorded_at);
            found.push(InputNear { place, sequence, at, kind, tenant, says });
            if found.len() >= most {
                break;
            }
        }
        above = below;
    }
    Ok(found)
}

fn place_of(partition: Partition, offset: u64) -> String {
    format!("{}:{offset}", Stream::Inputs(partition))
}

/// Whose it is, and what it says; nothing of what is not from outside.
fn said(input: &Input) -> Option<(String, String)> {
    let Input::Gate(input) = input else { return None };
    Some(match input {
        GateInput::TriggerReceived(received) => {
            let event = &received.event;
            let what = event.change.as_deref().unwrap_or(&event.git_ref);
            let patchset = event.patchset.as_ref().map(|patchset| format!(",{patchset}")).unwrap_or_default();
            (received.tenant.clone(), format!("{} of {what}{patchset} in {}", event.event, event.project))
        }
        GateInput::EnqueueAsked(asked) => (
            asked.tenant.clone(),
            format!("enqueue {} of {} in {}", asked.change.change, asked.change.project, asked.pipeline),
        ),
        GateInput::DequeueAsked(asked) => (
            asked.tenant.clone(),
            format!("dequeue {} of {} from {}", asked.change.change, asked.change.project, asked.pipeline),
        ),
        GateInput::PromoteAsked(asked) => {
            let changes: Vec<&str> = asked.changes.iter().map(|change| change.change.as_str()).collect();
            (asked.tenant.clone(), format!("promote {} in {}", changes.join(", "), asked.pipeline))
        }
        GateInput::IntakeAsked(asked) => (asked.tenant.clone(), format!("outside events: {:?}", asked.triggers)),
        GateInput::TimerTicked(ticked) => {
            let TimerName { pipeline, project, branch, time, .. } = &ticked.timer;
            (ticked.tenant.clone(), format!("timer `{time}` of {pipeline} for {branch} of {project}"))
        }
        GateInput::AttemptFinished(done) => {
            let word = done.result.word();
            (
                done.tenant.clone(),
                format!("attempt {} of build {} ended with {word} on {}", done.attempt, done.build, done.worker),
            )
        }
        _ => return None,
    })
}
