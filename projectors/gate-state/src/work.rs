//! The gate's pending work: its seven kinds, and everything that depends on which of them it is.
//!
//! A new kind is a variant of [`Work`], a line in each method of this file, a method of [`PerformKinds`] for whoever does
//! it, and a rule that takes its outcome in.

use std::collections::BTreeSet;

use gatelog_partition_state::work::{self, Duty, Sending, Terms};
use gatelog_record::draft::gate::{
    ChangesFound, ChangesWanted, ConfigFilesFound, ConfigReadWanted, FactsPurpose, FreezeDone, FreezeOutcome,
    FreezeWanted, LayoutMade, LayoutOutcome, LayoutWanted, PrepareDone, PrepareOutcome, PrepareRequested,
    ProjectProblem, ReportDone, ReportRequested, SubmitDone, SubmitOutcome, SubmitRequested, WaitCode,
};
use gatelog_record::event::GateEvent;
use gatelog_record::input::GateInput;
use gatelog_record::{ItemId, WorkId};
use serde::{Deserialize, Serialize};

use crate::live::subject_name;

/// Short work, with everything needed to do it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// Read configuration files.
    ConfigRead(ConfigReadWanted),
    /// Make a layout.
    Layout(LayoutWanted),
    /// Ask for facts about changes.
    Changes(ChangesWanted),
    /// Prepare a speculative state.
    Prepare(PrepareRequested),
    /// Freeze jobs.
    Freeze(FreezeWanted),
    /// Merge what was tested.
    Submit(SubmitRequested),
    /// Deliver a report.
    Report(ReportRequested),
}

const CONFIG_READ: Terms = Terms {
    kind: "config-read",
    duty: Duty::Merge,
    deadline_ms: 60_000,
    attempts_max: 5,
    steps: ["effect/config-read", "effect/config-read-done", "effect/config-read-told"],
};
const LAYOUT: Terms = Terms {
    kind: "layout",
    duty: Duty::Compute,
    deadline_ms: 120_000,
    attempts_max: 3,
    steps: ["effect/layout", "effect/layout-done", "effect/layout-told"],
};
const CHANGES: Terms = Terms {
    kind: "changes",
    duty: Duty::Review,
    deadline_ms: 60_000,
    attempts_max: 5,
    steps: ["effect/changes", "effect/changes-done", "effect/changes-told"],
};
const PREPARE: Terms = Terms {
    kind: "prepare",
    duty: Duty::Merge,
    deadline_ms: 300_000,
    attempts_max: 5,
    steps: ["effect/prepare", "effect/prepare-done", "effect/prepare-told"],
};
const FREEZE: Terms = Terms {
    kind: "freeze",
    duty: Duty::Compute,
    deadline_ms: 120_000,
    attempts_max: 3,
    steps: ["effect/freeze", "effect/freeze-done", "effect/freeze-told"],
};
const SUBMIT: Terms = Terms {
    kind: "submit",
    duty: Duty::Submit,
    deadline_ms: 120_000,
    attempts_max: 8,
    steps: ["effect/submit", "effect/submit-done", "effect/submit-told"],
};
const REPORT: Terms = Terms {
    kind: "report",
    duty: Duty::Review,
    deadline_ms: 60_000,
    attempts_max: 8,
    steps: ["effect/report", "effect/report-done", "effect/report-told"],
};

impl work::Work for Work {
    fn terms(&self) -> &'static Terms {
        match self {
            Work::ConfigRead(_) => &CONFIG_READ,
            Work::Layout(_) => &LAYOUT,
            Work::Changes(_) => &CHANGES,
            Work::Prepare(_) => &PREPARE,
            Work::Freeze(_) => &FREEZE,
            Work::Submit(_) => &SUBMIT,
            Work::Report(_) => &REPORT,
        }
    }

    fn connections(&self) -> Vec<&str> {
        let all: BTreeSet<&str> = match self {
            Work::ConfigRead(wanted) => wanted.projects.iter().map(|project| project.connection.as_str()).collect(),
            Work::Changes(wanted) => BTreeSet::from([wanted.connection.as_str()]),
            Work::Prepare(wanted) => wanted.steps.iter().map(|step| step.subject.connection.as_str()).collect(),
            Work::Submit(wanted) => wanted.targets.iter().map(|target| target.at.connection.as_str()).collect(),
            Work::Report(wanted) => wanted.reporters.iter().map(|(connection, _)| connection.as_str()).collect(),
            Work::Layout(_) | Work::Freeze(_) => BTreeSet::new(),
        };
        all.into_iter().collect()
    }

    fn place(&self) -> Option<&str> {
        match self {
            Work::Prepare(wanted) => wanted.steps.last().map(|step| step.subject.project.as_str()),
            Work::ConfigRead(wanted) => wanted.projects.first().map(|project| project.project.as_str()),
            Work::Submit(wanted) => wanted.targets.first().map(|target| target.at.project.as_str()),
            Work::Layout(_) | Work::Freeze(_) | Work::Changes(_) | Work::Report(_) => None,
        }
    }
}

/// Does the gate's work, kind by kind. Each method gives what is found; [`Work::perform`] makes the outcome of it.
pub trait PerformKinds {
    /// Why there is no outcome.
    type Error;

    /// Reads configuration files.
    fn config_read(&mut self, of: Sending<'_>, wanted: &ConfigReadWanted) -> Result<ConfigFilesFound, Self::Error>;
    /// Makes a layout.
    fn layout(&mut self, of: Sending<'_>, wanted: &LayoutWanted) -> Result<LayoutOutcome, Self::Error>;
    /// Asks for facts about changes.
    fn changes(&mut self, of: Sending<'_>, wanted: &ChangesWanted) -> Result<ChangesFound, Self::Error>;
    /// Prepares a speculative state.
    fn prepare(&mut self, of: Sending<'_>, wanted: &PrepareRequested) -> Result<PrepareOutcome, Self::Error>;
    /// Freezes jobs.
    fn freeze(&mut self, of: Sending<'_>, wanted: &FreezeWanted) -> Result<FreezeOutcome, Self::Error>;
    /// Merges what was tested.
    fn submit(&mut self, of: Sending<'_>, wanted: &SubmitRequested) -> Result<SubmitOutcome, Self::Error>;
    /// Delivers a report. Why it could not be, if it could not: code, words, whether trying again may help.
    fn report(&mut self, of: Sending<'_>, wanted: &ReportRequested) -> Result<NotReported, Self::Error>;
}

/// Why a report was not delivered: code, words, whether trying again may help. `None`: it was.
pub type NotReported = Option<(String, String, bool)>;

impl Work {
    /// The kind's name, such as `prepare`.
    pub fn kind(&self) -> &'static str {
        work::Work::kind(self)
    }

    /// Has the work done, and makes the gate's input of what was found.
    ///
    /// # Errors
    /// When whoever does it has nothing to say.
    pub fn perform<P: PerformKinds + ?Sized>(&self, of: Sending<'_>, by: &mut P) -> Result<GateInput, P::Error> {
        let (work, attempt, tenant) = (of.work, of.attempt, of.key.to_owned());
        Ok(match self {
            Work::ConfigRead(wanted) => by.config_read(of, wanted)?.into(),
            Work::Layout(wanted) => LayoutMade { work, attempt, tenant, outcome: by.layout(of, wanted)? }.into(),
            Work::Changes(wanted) => by.changes(of, wanted)?.into(),
            Work::Prepare(wanted) => PrepareDone { work, attempt, tenant, outcome: by.prepare(of, wanted)? }.into(),
            Work::Freeze(wanted) => FreezeDone { work, attempt, tenant, outcome: by.freeze(of, wanted)? }.into(),
            Work::Submit(wanted) => SubmitDone { work, attempt, tenant, outcome: by.submit(of, wanted)? }.into(),
            Work::Report(wanted) => ReportDone { work, attempt, tenant, failed: by.report(of, wanted)? }.into(),
        })
    }

    /// The outcome that it failed. `again` says whether trying again may help, for kinds whose outcomes say so.
    pub fn failed(&self, of: Sending<'_>, code: &str, message: &str, again: bool) -> GateInput {
        let (work, attempt, tenant) = (of.work, of.attempt, of.key.to_owned());
        let (code, message) = (code.to_owned(), message.to_owned());
        match self {
            Work::ConfigRead(wanted) => {
                let problem = |project: &str| ProjectProblem {
                    project: project.to_owned(),
                    code: code.clone(),
                    message: message.clone(),
                };
                let failed = wanted.projects.iter().map(|project| problem(&project.project)).collect();
                ConfigFilesFound { work, attempt, tenant, sets: Vec::new(), failed }.into()
            }
            Work::Layout(_) => {
                LayoutMade { work, attempt, tenant, outcome: LayoutOutcome::Failed { code, message } }.into()
            }
            Work::Changes(_) => {
                let failed = Some((code, message));
                ChangesFound { work, attempt, tenant, changes: Vec::new(), missing: Vec::new(), failed }.into()
            }
            Work::Prepare(_) => {
                let outcome = PrepareOutcome::Failed { code, message, again };
                PrepareDone { work, attempt, tenant, outcome }.into()
            }
            Work::Freeze(_) => {
                let outcome = FreezeOutcome::Failed { code, message, again };
                FreezeDone { work, attempt, tenant, outcome }.into()
            }
            Work::Submit(_) => {
                let outcome = SubmitOutcome::Failed { code, message, again };
                SubmitDone { work, attempt, tenant, outcome }.into()
            }
            Work::Report(_) => ReportDone { work, attempt, tenant, failed: Some((code, message, again)) }.into(),
        }
    }

    /// The work an event asks for.
    pub fn asked_by(event: &GateEvent) -> Option<WorkId> {
        match event {
            GateEvent::ConfigReadWanted(wanted) => Some(wanted.work),
            GateEvent::LayoutWanted(wanted) => Some(wanted.work),
            GateEvent::ChangesWanted(wanted) => Some(wanted.work),
            GateEvent::PrepareRequested(wanted) => Some(wanted.work),
            GateEvent::FreezeWanted(wanted) => Some(wanted.work),
            GateEvent::SubmitRequested(wanted) => Some(wanted.work),
            GateEvent::ReportRequested(wanted) => Some(wanted.work),
            _ => None,
        }
    }

    /// The item it is for, if it is for one.
    pub fn item(&self) -> Option<ItemId> {
        match self {
            Work::ConfigRead(_) => None,
            Work::Layout(wanted) => wanted.item,
            Work::Changes(wanted) => match wanted.purpose {
                FactsPurpose::BeforeSubmit { item } => Some(item),
                FactsPurpose::Trigger { .. } | FactsPurpose::Refresh | FactsPurpose::ProjectMerged { .. } => None,
            },
            Work::Prepare(wanted) => Some(wanted.item),
            Work::Freeze(wanted) => Some(wanted.item),
            Work::Submit(wanted) => Some(wanted.item),
            Work::Report(wanted) => wanted.item,
        }
    }

    /// Whether an item that has it waits for it.
    pub fn is_waited_for(&self) -> bool {
        !matches!(self, Work::Report(_))
    }

    /// Whether doing it changes anything outside gatelog, so that whoever does it may have done it and not know.
    pub fn is_seen_outside(&self) -> bool {
        matches!(self, Work::Submit(_) | Work::Report(_))
    }

    /// Whether the tenant's configuration depends on how it goes.
    pub fn is_of_configuration(&self) -> bool {
        matches!(self, Work::ConfigRead(_) | Work::Layout(_))
    }

    /// Why whatever needs it waits.
    pub fn wait_code(&self) -> WaitCode {
        match self {
            Work::ConfigRead(_) => WaitCode::ConfigFiles,
            Work::Layout(_) => WaitCode::Layout,
            Work::Changes(_) => WaitCode::ChangeFacts,
            Work::Prepare(_) => WaitCode::Prepare,
            Work::Freeze(_) => WaitCode::Freeze,
            Work::Submit(_) => WaitCode::Submit,
            Work::Report(_) => WaitCode::Report,
        }
    }

    /// Why an item that has it waits: what is done, and what would end the wait.
    pub fn awaited(&self) -> (WaitCode, &'static str, &'static str) {
        let (detail, unblocks) = match self {
            Work::Prepare(_) => ("its state is prepared", "the answer of a merger"),
            Work::Layout(_) => ("its layout is made", "the answer of a merger"),
            Work::Freeze(_) => ("its jobs are frozen", "the answer of a merger"),
            Work::Submit(_) => ("it is merged", "the code-review system's answer"),
            Work::Report(_) => ("it is reported", "the code-review system's answer"),
            Work::Changes(_) | Work::ConfigRead(_) => {
                return (WaitCode::ChangeFacts, "whether it may still be merged is asked", "the answer");
            }
        };
        (self.wait_code(), detail, unblocks)
    }

    /// What it is, for people who look at it alone.
    pub fn title(&self) -> String {
        match self {
            Work::Report(report) => {
                let subject = report.subjects.first().map(subject_name).unwrap_or_default();
                format!("report of {subject} in {}", report.pipeline)
            }
            other => other.kind().to_owned(),
        }
    }
}

/// The failures an outcome tells of: the code and the words of each. Nothing for what is no outcome of work.
pub fn failures(input: &mut GateInput) -> Vec<(&mut String, &mut String)> {
    match input {
        GateInput::ConfigFilesFound(found) => {
            found.failed.iter_mut().map(|problem| (&mut problem.code, &mut problem.message)).collect()
        }
        GateInput::ChangesFound(found) => found.failed.iter_mut().map(|(code, message)| (code, message)).collect(),
        GateInput::ReportDone(done) => done.failed.iter_mut().map(|(code, message, _)| (code, message)).collect(),
        GateInput::LayoutMade(LayoutMade { outcome: LayoutOutcome::Failed { code, message }, .. })
        | GateInput::PrepareDone(PrepareDone { outcome: PrepareOutcome::Failed { code, message, .. }, .. })
        | GateInput::FreezeDone(FreezeDone { outcome: FreezeOutcome::Failed { code, message, .. }, .. })
        | GateInput::SubmitDone(SubmitDone { outcome: SubmitOutcome::Failed { code, message, .. }, .. }) => {
            vec![(code, message)]
        }
        _ => Vec::new(),
    }
}

/// What an outcome says of its work: which sending of it this is, and how it failed if it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told<'i> {
    /// The work.
    pub work: WorkId,
    /// Which sending of it.
    pub attempt: u32,
    /// The code of the first failure, and whether trying again may help.
    pub failed: Option<(&'i str, bool)>,
}

impl Told<'_> {
    /// Of an outcome of work. `None` for what is none.
    pub fn of(input: &GateInput) -> Option<Told<'_>> {
        let (work, attempt, failed) = match input {
            GateInput::ConfigFilesFound(found) => {
                (found.work, found.attempt, found.failed.first().map(|problem| (problem.code.as_str(), true)))
            }
            GateInput::ChangesFound(found) => {
                (found.work, found.attempt, found.failed.as_ref().map(|(code, _)| (code.as_str(), true)))
            }
            GateInput::LayoutMade(LayoutMade { work, attempt, outcome, .. }) => match outcome {
                LayoutOutcome::Failed { code, .. } => (*work, *attempt, Some((code.as_str(), false))),
                LayoutOutcome::Made { .. } => (*work, *attempt, None),
            },
            GateInput::PrepareDone(PrepareDone { work, attempt, outcome, .. }) => match outcome {
                PrepareOutcome::Failed { code, again, .. } => (*work, *attempt, Some((code.as_str(), *again))),
                PrepareOutcome::Merged(_) | PrepareOutcome::Conflict { .. } => (*work, *attempt, None),
            },
            GateInput::FreezeDone(FreezeDone { work, attempt, outcome, .. }) => match outcome {
                FreezeOutcome::Failed { code, again, .. } => (*work, *attempt, Some((code.as_str(), *again))),
                _ => (*work, *attempt, None),
            },
            GateInput::SubmitDone(SubmitDone { work, attempt, outcome, .. }) => match outcome {
                SubmitOutcome::Failed { code, again, .. } => (*work, *attempt, Some((code.as_str(), *again))),
                _ => (*work, *attempt, None),
            },
            GateInput::ReportDone(done) => {
                let failed = done.failed.as_ref().map(|(code, _, again)| (code.as_str(), *again));
                (done.work, done.attempt, failed)
            }
            _ => return None,
        };
        Some(Told { work, attempt, failed })
    }
}
