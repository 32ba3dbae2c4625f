//! What happens at the forge: refs are looked at, and hooks say when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gatelog_driver_contract::{Batch, Heard, Intake, Listening, Sink, Trouble};
use gatelog_record::Value;
use gatelog_record::draft::intake::ForgeEvent;

use crate::connection::{GitConnection, trouble};
use crate::notify::Notifier;
use crate::poll::{EventKind, ForgeEvent as Happened, RefSnapshot};

impl GitConnection {
    /// Looks at a project, and tells the sink.
    fn look(&self, project: &str, sink: &mut dyn Sink) -> Result<(), Trouble> {
        let place = sink.place(project);
        sink.take(project, self.news(project, place.as_deref()))
    }

    /// What is new in a project since its refs were as they are kept.
    fn news(&self, project: &str, place: Option<&[u8]>) -> Result<Batch, Trouble> {
        let known: RefSnapshot = place.and_then(|place| serde_json::from_slice(place).ok()).unwrap_or_default();
        let (events, snapshot) = self.forge.poll(project, &known).map_err(|error| trouble(&error))?;
        if events.is_empty() {
            return Ok(Batch::default());
        }
        let place = serde_json::to_vec(&snapshot).map_err(|error| Trouble::lasting("forge", &error))?;
        Ok(Batch { events: events.iter().map(|event| self.told(event)).collect(), place: Some(place) })
    }

    /// An event in the gate's words.
    fn told(&self, event: &Happened) -> ForgeEvent {
        let (name, change, patchset) = match &event.kind {
            EventKind::ChangeProposed { change, patchset, .. } | EventKind::PatchsetPushed { change, patchset, .. } => {
                ("change-proposed", Some(change), Some(*patchset))
            }
            EventKind::Approved { change, patchset, .. } => ("change-approved", Some(change), Some(*patchset)),
            EventKind::ApprovalIgnored { change, .. } => ("approval-ignored", Some(change), None),
            EventKind::ApprovalWithdrawn { change } => ("approval-withdrawn", Some(change), None),
            EventKind::Abandoned { change } => ("change-abandoned", Some(change), None),
            EventKind::Merged { change, patchset, .. } => ("change-merged", Some(change), Some(*patchset)),
            EventKind::BranchCreated { .. }
            | EventKind::BranchUpdated { .. }
            | EventKind::BranchDeleted { .. }
            | EventKind::TagCreated { .. }
            | EventKind::TagUpdated { .. }
            | EventKind::TagDeleted { .. } => ("ref-updated", None, None),
            EventKind::RefIgnored { .. } => ("ref-ignored", None, None),
        };
        let reason = match &event.kind {
            EventKind::RefIgnored { reason } => Some(reason.clone()),
            EventKind::ApprovalIgnored { reason, .. } => Some(format!("{reason:?}")),
            _ => None,
        };
        let branch = change
            .map(|change| change.branch.clone())
            .or_else(|| event.ref_name.strip_prefix("refs/heads/").map(str::to_owned));
        ForgeEvent {
            connection: self.name.clone(),
            project: self.canonical(&event.project),
            event: name.to_owned(),
            branch,
            git_ref: event.ref_name.clone(),
            change: change.map(|change| format!("{}/{}", change.branch, change.name)),
            patchset: patchset.map(|number| number.to_string()),
            commit: event.new.clone(),
            old_commit: event.old.clone(),
            attributes: reason
                .map_or(Value::Null, |reason| Value::Map(BTreeMap::from([("reason".to_owned(), Value::Str(reason))]))),
            delivery: event.delivery.clone(),
            raw: None,
        }
    }
}

impl Intake for GitConnection {
    fn recover(&self, sink: &mut dyn Sink) -> Result<(), Trouble> {
        for project in self.forge.projects().map_err(|error| trouble(&error))? {
            if sink.stopping() {
                break;
            }
            // What could not be kept is found again.
            let _ = self.look(&project, sink);
        }
        Ok(())
    }

    fn listen(&self) -> Result<Box<dyn Listening + '_>, Trouble> {
        let directory = self.forge.config().notify.as_ref();
        let directory = directory.ok_or_else(|| Trouble::new("forge", "no hook leaves word of pushes here"))?;
        let notifier = Notifier::open(directory).map_err(|error| trouble(&error))?;
        Ok(Box::new(Pushes { connection: self, notifier }))
    }

    fn look_every(&self) -> Option<Duration> {
        Some(self.look_every)
    }

    fn projects(&self) -> Result<Option<BTreeSet<String>>, Trouble> {
        let all = self.forge.projects().map_err(|error| trouble(&error))?;
        Ok(Some(all.into_iter().collect()))
    }

    fn remarks(&self) -> Vec<String> {
        // They are nobody's to change without being asked: pushes to them are noticed by polling, and nobody is told what
        // is wrong with one.
        let troubled = self.forge.projects().unwrap_or_default().into_iter().filter_map(|project| {
            let trouble = self.forge.hook_troubles(&project).ok()?.into_iter().next()?;
            Some(format!("{project}: hooks are not well ({trouble}): run `gatelog project add {project}`"))
        });
        troubled.collect()
    }
}

/// Word of pushes.
struct Pushes<'c> {
    connection: &'c GitConnection,
    notifier: Notifier,
}

impl Listening for Pushes<'_> {
    fn next(&mut self, at_most: Duration, sink: &mut dyn Sink) -> Result<Heard, Trouble> {
        for project in self.notifier.wait(at_most).map_err(|error| trouble(&error))? {
            let _ = self.connection.look(&project, sink);
        }
        Ok(Heard::Everything)
    }
}
