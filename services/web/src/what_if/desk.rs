//! The questions there are, and what became of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gatelog_record::{BlobHash, Timestamp};
use gatelog_replay::what_if::Answer;
use serde_json::json;
use tokio::sync::Semaphore;

use super::Question;
use crate::answers;
use crate::error::ApiError;
use crate::reading::App;
use crate::shape::ms;

/// How many are answered at once.
const AT_ONCE: usize = 1;
/// How many may wait for that.
const WAITING: usize = 8;
/// How many are kept, those that wait among them.
const KEPT: usize = 32;
/// How long an answer is kept.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3_600);

/// How far it is.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Waiting,
    Running,
    /// The answer.
    Answered(Arc<Answer>),
    /// Why there is none.
    Failed(String),
    Cancelled,
}

impl State {
    /// A word for it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Running => "running",
            State::Answered(_) => "answered",
            State::Failed(_) => "failed",
            State::Cancelled => "cancelled",
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self, State::Waiting | State::Running)
    }
}

/// A question that was asked.
#[derive(Debug)]
pub(crate) struct Case {
    /// By which it is linked to.
    pub(crate) id: String,
    pub(crate) question: Question,
    /// Who asked; nothing where nobody needs to say so.
    pub(crate) by: String,
    pub(crate) asked_at: Timestamp,
    asked: Instant,
    cancelled: AtomicBool,
    state: Mutex<State>,
}

impl Case {
    pub(crate) fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Has it end without an answer, unless it has one.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_open() {
            *state = State::Cancelled;
        }
    }

    pub(crate) fn told(&self) -> answers::Case {
        let state = self.state();
        let mut told = answers::Case {
            id: self.id.clone(),
            state: state.name().to_owned(),
            question: self.question.clone(),
            by: self.by.clone(),
            asked_ms: ms(self.asked_at),
            page: format!("/what-if/{}", self.id),
            answer: None,
            error: None,
        };
        match state {
            State::Answered(answer) => told.answer = Some(json!(*answer)),
            State::Failed(why) => told.error = Some(why),
            State::Waiting | State::Running | State::Cancelled => {}
        }
        told
    }
}

/// All of them.
pub(crate) struct Desk {
    cases: Mutex<VecDeque<Arc<Case>>>,
    places: Arc<Semaphore>,
}

impl Default for Desk {
    fn default() -> Desk {
        Desk { cases: Mutex::default(), places: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl Desk {
    fn cases(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Case>>> {
        let mut cases = self.cases.lock().unwrap_or_else(PoisonError::into_inner);
        cases.retain(|case| case.state().is_open() || case.asked.elapsed() < KEPT_FOR);
        cases
    }

    /// The newest first.
    pub(crate) fn all(&self) -> Vec<Arc<Case>> {
        self.cases().iter().rev().cloned().collect()
    }

    pub(crate) fn find(&self, id: &str) -> Result<Arc<Case>, ApiError> {
        let found = self.cases().iter().find(|case| case.id == id).cloned();
        found.ok_or_else(|| {
            ApiError::NotFound(format!("there is no what-if {id:?}: the newest {KEPT} are kept, for a day; ask again"))
        })
    }

    /// Takes a question that was checked and has it answered.
    pub(crate) fn ask(&self, app: &Arc<App>, question: Question, by: String) -> Result<Arc<Case>, ApiError> {
        let asked_at = Timestamp(jiff::Timestamp::now().as_microsecond());
        let case = {
            let mut cases = self.cases();
            if cases.iter().filter(|case| case.state().is_open()).count() > WAITING {
                return Err(ApiError::Busy);
            }
            let words = json!([question, asked_at.0, cases.len()]).to_string();
            let id = BlobHash::of(words.as_bytes()).to_string().chars().take(16).collect();
            let state = Mutex::new(State::Waiting);
            let (asked, cancelled) = (Instant::now(), AtomicBool::new(false));
            let case = Arc::new(Case { id, question, by, asked_at, asked, cancelled, state });
            while cases.len() >= KEPT {
                let Some(place) = cases.iter().position(|case| !case.state().is_open()) else { break };
                cases.remove(place);
            }
            cases.push_back(Arc::clone(&case));
            case
        };
        let (places, answering) = (Arc::clone(&self.places), Arc::clone(&app.site.what_ifs));
        let asked = Arc::clone(&case);
        tokio::spawn(async move {
            let Ok(_place) = places.acquire_owned().await else { return };
            let case = Arc::clone(&asked);
            let work = move || {
                let cancelled = || case.cancelled.load(Ordering::Relaxed);
                if cancelled() {
                    return;
                }
                case.set(State::Running);
                let answered = answering.answer(&case.question, &cancelled);
                case.set(match answered {
                    _ if cancelled() => State::Cancelled,
                    Ok(answer) => State::Answered(Arc::new(answer)),
                    Err(why) => State::Failed(why),
                });
            };
            if let Err(error) = tokio::task::spawn_blocking(work).await {
                asked.set(State::Failed(format!("it could not be answered: {error}")));
            }
        });
        Ok(case)
    }
}
