//! What operators ask for, on its way to the log and back.

use gatelog_record::draft::gate::PipelineVerdict;
use gatelog_record::{Input, Partition};

use crate::auth::Person;
use crate::error::ApiError;

/// A request of an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Who asks.
    pub person: Person,
    /// What makes it the same request when it is sent again; from the client, or drawn.
    pub request: Option<String>,
    /// Which partition is asked.
    pub partition: Partition,
    /// The key: of the gate, the tenant.
    pub key: String,
    /// What is asked.
    pub input: Input,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was decided: something followed, or (a code) nothing did.
    Decided {
        /// The first event of the decision.
        sequence: u64,
        /// The number of the request among the partition's inputs, by which later events name it.
        input: u64,
        /// Why nothing followed.
        nothing: Option<String>,
    },
    /// What it asked to enqueue was placed, or not.
    Settled {
        /// The event that says so.
        sequence: u64,
        /// What each pipeline made of it.
        verdicts: Vec<PipelineVerdict>,
    },
    /// It could not be decided.
    Refused {
        /// A code.
        code: String,
        /// For people.
        message: String,
    },
    /// It is on the log, and not decided yet.
    Waiting,
}

/// Why a request is not on the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request could not be put onto the log: {0}")]
pub struct NotAsked(pub String);

/// Where requests of operators go.
pub trait Operators: Send + Sync {
    /// Puts a request onto the log and waits for a while for what becomes of it. Not called where that would hold
    /// anybody up.
    ///
    /// # Errors
    /// When it is not on the log.
    fn ask(&self, ask: &Ask) -> Result<Answer, NotAsked>;

    /// Who stands behind an actor's id, where that is known.
    fn name_of(&self, actor: gatelog_record::ActorId) -> Option<String>;
}

/// Nobody can be asked: for a site that is only looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOperators;

impl Operators for NoOperators {
    fn ask(&self, _: &Ask) -> Result<Answer, NotAsked> {
        Err(NotAsked("this site is only looked at".into()))
    }

    fn name_of(&self, _: gatelog_record::ActorId) -> Option<String> {
        None
    }
}

/// Codes that say that what was asked for is so already.
const SO_ALREADY: &[&str] = &["already-so", "in-that-order", "duplicate", "already-in-pipeline", "nothing-to-do"];

impl Answer {
    /// The same, as of a later event.
    #[must_use]
    pub fn as_of(mut self, event: u64) -> Answer {
        match &mut self {
            Answer::Decided { sequence, .. } | Answer::Settled { sequence, .. } => *sequence = event,
            Answer::Refused { .. } | Answer::Waiting => {}
        }
        self
    }

    /// The last event of what was decided; an error where what was asked for did not happen.
    pub(super) fn taken(self) -> Result<Option<u64>, ApiError> {
        let declined = |code: &str, message: String| ApiError::Declined { code: code.to_owned(), message };
        match self {
            Answer::Waiting => Ok(None),
            Answer::Decided { sequence, nothing: None, .. } => Ok(Some(sequence)),
            Answer::Decided { sequence, nothing: Some(code), .. } if SO_ALREADY.contains(&code.as_str()) => {
                Ok(Some(sequence))
            }
            Answer::Decided { nothing: Some(code), .. } => {
                let message = match code.as_str() {
                    "not-in-pipeline" => "it is not in that pipeline".to_owned(),
                    "no-such-request" => "there is no such request any more".to_owned(),
                    "project-not-in-tenant" => "the tenant has no such project any more".to_owned(),
                    "being-merged" => "it is being merged, and cannot be taken out any more".to_owned(),
                    "no-such-tenant" => "the tenant is gone".to_owned(),
                    "over-limit" => "there are too many of these already".to_owned(),
                    "too-many-triggers-wait" => "too much waits in this tenant; ask again later".to_owned(),
                    other => format!("nothing was done ({other})"),
                };
                Err(declined(&code, message))
            }
            Answer::Refused { code, message } => Err(declined(&code, message)),
            Answer::Settled { sequence, verdicts } => {
                let good = |one: &PipelineVerdict| one.code == "enqueued" || SO_ALREADY.contains(&one.code.as_str());
                match verdicts.iter().find(|one| !good(one)) {
                    None => Ok(Some(sequence)),
                    Some(one) => {
                        let detail = if one.detail.is_empty() { "it was not enqueued" } else { one.detail.as_str() };
                        Err(declined(&one.code, detail.to_owned()))
                    }
                }
            }
        }
    }
}
