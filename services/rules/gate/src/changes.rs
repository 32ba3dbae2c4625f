//! Facts about changes: asked for, taken in, dropped when nothing refers to them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use gatelog_deciding::Refusal;
use gatelog_deciding::work::DecidesWork;
use gatelog_gate_state::live::{ChangeRow, Work};
use gatelog_record::ItemId;
use gatelog_record::draft::gate::{
    ChangeFacts, ChangeKey, ChangesForgotten, ChangesFound, ChangesObserved, ChangesWanted, FactsPurpose, ItemResult,
    TriggerCause,
};
use gatelog_record::event::GateEvent;
use gatelog_rules_config::{Pipeline, Shared};

use crate::decision::Decision;
use crate::dependencies::{keep_topic, names_of_topic, of_topic};
use crate::filters;
use crate::managers::same;

/// The most changes one answer may hold.
const MAX_FOUND: usize = 2_000;

impl Decision<'_> {
    /// What is known of a change.
    pub(crate) fn change(&self, tenant: &str, key: &ChangeKey) -> Option<&ChangeRow> {
        self.gate().changes.row(&(tenant.to_owned(), key.project.clone(), key.change.clone()))
    }

    /// Asks for a change and everything that hangs together with it.
    pub(crate) fn want_changes(
        &mut self,
        tenant: &str,
        connection: &str,
        change: ChangeKey,
        with_needed_by: bool,
        purpose: FactsPurpose,
    ) -> Result<(), Refusal> {
        self.want_facts(tenant, connection, vec![change], with_needed_by, purpose)
    }

    /// Asks for changes; none are named where the purpose says which are meant.
    pub(crate) fn want_facts(
        &mut self,
        tenant: &str,
        connection: &str,
        changes: Vec<ChangeKey>,
        with_needed_by: bool,
        purpose: FactsPurpose,
    ) -> Result<(), Refusal> {
        let Some(row) = self.tenant(tenant) else { return Ok(()) };
        let among = row
            .loaded
            .projects
            .iter()
            .filter(|project| project.connection == connection)
            .map(|project| project.project.clone())
            .collect();
        let work = self.deciding.id();
        self.emit(GateEvent::ChangesWanted(ChangesWanted {
            work,
            tenant: tenant.to_owned(),
            connection: connection.to_owned(),
            changes,
            with_needed_by,
            among,
            purpose,
        }))
    }

    /// Facts came, or the news that there are none.
    pub(crate) fn changes_found(&mut self, found: &ChangesFound) -> Result<(), Refusal> {
        let failed = found.failed.is_some();
        let is_changes = |work: &Work| matches!(work, Work::Changes(_));
        let Some(row) = self.outcome(found.work, found.attempt, failed, is_changes)? else { return Ok(()) };
        if failed && self.send_again(found.work, &row)? {
            return Ok(());
        }
        let mut found = found.clone();
        found.changes.retain(|facts| facts.subject.change_key().is_some());
        if found.changes.len() > MAX_FOUND {
            let message = format!("{} changes hang together here, more than {MAX_FOUND}", found.changes.len());
            found.failed = Some(("too-many-changes".into(), message));
            found.changes.clear();
        }
        let failure = found.failed.clone();
        if let Work::Changes(wanted) = &row.work {
            self.keep_known_needs(wanted, &mut found)?;
        }
        let told: Vec<ChangeKey> = found.changes.iter().filter_map(|facts| facts.subject.change_key()).collect();
        self.emit(GateEvent::ChangesObserved(ChangesObserved { found }))?;
        if let Work::Changes(wanted) = &row.work
            && let FactsPurpose::ProjectMerged { project } = &wanted.purpose
        {
            return self.tell_project(&wanted.tenant, project, &told);
        }
        if let (Some((_, message)), Work::Changes(wanted)) = (failure, &row.work)
            && let FactsPurpose::BeforeSubmit { item } = wanted.purpose
        {
            let detail = format!("Whether it may still be merged could not be found out: {message}.");
            return self.leave_failing(item, ItemResult::MergeFailure, "facts-unavailable", &detail, false);
        }
        Ok(())
    }

    /// Zuul: that a change in a pipeline needs one which was proposed only later is noticed with the next news of
    /// the change itself, or when it is needed by something that enters. Until then it goes on without.
    fn keep_known_needs(&self, wanted: &ChangesWanted, found: &mut ChangesFound) -> Result<(), Refusal> {
        let tenant = wanted.tenant.as_str();
        let mut looked_at: BTreeSet<ChangeKey> = match wanted.purpose {
            FactsPurpose::Trigger { .. } | FactsPurpose::Refresh => wanted.changes.iter().cloned().collect(),
            FactsPurpose::BeforeSubmit { .. } | FactsPurpose::ProjectMerged { .. } => BTreeSet::new(),
        };
        if let FactsPurpose::Trigger { trigger } = wanted.purpose {
            let known: BTreeMap<ChangeKey, &ChangeFacts> =
                found.changes.iter().filter_map(|facts| Some((facts.subject.change_key()?, facts))).collect();
            let asked: Vec<&ChangeFacts> = wanted.changes.iter().filter_map(|key| known.get(key).copied()).collect();
            if self.sets_off(tenant, trigger, &asked)? {
                let layout = self.layout(tenant)?;
                let mut todo: Vec<ChangeKey> = wanted.changes.clone();
                while let Some(key) = todo.pop() {
                    let Some(facts) = known.get(&key) else { continue };
                    let at = &facts.subject;
                    let by_topic = layout.as_ref().is_some_and(|one| one.by_topic(&at.project, at.branch.as_deref()));
                    let topic = if by_topic { of_topic(facts) } else { Vec::new() };
                    let needs = facts.needs.iter().cloned().chain(topic);
                    todo.extend(needs.filter(|need| looked_at.insert(need.clone())));
                }
            }
        }
        for facts in &mut found.changes {
            let Some(key) = facts.subject.change_key().filter(|key| !looked_at.contains(key)) else { continue };
            let Some(row) = self.change(tenant, &key) else { continue };
            let is_as_before =
                row.facts.subject.patchset == facts.subject.patchset && row.facts.depends_on == facts.depends_on;
            // Zuul: a new patchset of what it is known to need is news of it, too.
            let known = &row.facts.needs;
            let renewed =
                known.iter().any(|need| looked_at.contains(need) && self.has_new_patchset(tenant, need, wanted));
            if is_as_before && !renewed && !self.items_of(tenant, &key).is_empty() {
                facts.needs.retain(|need| known.contains(need));
                keep_topic(facts, &of_topic(&row.facts));
            }
        }
        Ok(())
    }

    /// Whether a trigger is about a new patchset of a change.
    fn has_new_patchset(&self, tenant: &str, change: &ChangeKey, wanted: &ChangesWanted) -> bool {
        let FactsPurpose::Trigger { trigger } = wanted.purpose else { return false };
        let Some(row) = self.gate().triggers.row(&(tenant.to_owned(), trigger)) else { return false };
        let TriggerCause::Forge(received) = &row.cause else { return false };
        let known = self.change(tenant, change).and_then(|row| row.facts.subject.patchset.as_ref());
        wanted.changes.contains(change)
            && received.event.patchset.is_some()
            && received.event.patchset.as_ref() != known
    }

    /// Whether a trigger lets changes enter a pipeline, as far as they are not in it already.
    fn sets_off(&self, tenant: &str, trigger: u64, changes: &[&ChangeFacts]) -> Result<bool, Refusal> {
        let Some(row) = self.gate().triggers.row(&(tenant.to_owned(), trigger)) else { return Ok(false) };
        let received = match &row.cause {
            TriggerCause::Asked(_) => return Ok(true),
            // Branches enter by a timer, and no change.
            TriggerCause::Timer(_) => return Ok(false),
            TriggerCause::Forge(received) => received,
        };
        let Some(layout) = self.layout(tenant)? else { return Ok(false) };
        let is_in = |pipeline: &str, facts: &ChangeFacts| {
            let there = self.items_in(tenant, pipeline, &facts.subject);
            there
                .into_iter()
                .filter_map(|item| self.item(item))
                .any(|row| row.live && row.subjects.iter().any(|one| same(one, &facts.subject)))
        };
        let event = &received.event;
        let takes = |pipeline: &Pipeline, facts: &ChangeFacts| {
            let current = event.patchset.is_none() || event.patchset == facts.subject.patchset;
            filters::takes(pipeline, event, Some(filters::Known { facts, current, now: self.now() })).is_ok()
        };
        let sets_off =
            |one: &Shared<Pipeline>| changes.iter().any(|facts| takes(one, facts) && !is_in(&one.name, facts));
        Ok(layout.pipelines().iter().any(sets_off))
    }

    /// The rows of facts of a tenant, by project and change.
    pub(crate) fn known_changes(&self, tenant: &str) -> impl Iterator<Item = ((&str, &str), &ChangeRow)> {
        let from = (tenant.to_owned(), String::new(), String::new());
        let rows = self.gate().changes.rows(Bound::Included(&from), Bound::Unbounded);
        rows.take_while(move |(key, _)| key.0 == tenant).map(|(key, row)| ((key.1.as_str(), key.2.as_str()), row))
    }

    /// Drops facts to which nothing live refers: no item, no waiting trigger, and nothing these need.
    pub(crate) fn forget_changes(&mut self, tenant: &str) -> Result<(), Refusal> {
        // What no longer holds a change touched it, and what holds it itself keeps all it stands by.
        let held = |key: &ChangeKey| self.change(tenant, key).is_none() || self.is_held(tenant, key);
        if !self.seen.everything && self.seen.let_go.iter().all(held) {
            return Ok(());
        }
        let known: BTreeMap<(&str, &str), &ChangeRow> = self.known_changes(tenant).collect();
        let mut keep: BTreeSet<(&str, &str)> = BTreeSet::new();
        let from = (tenant.to_owned(), String::new(), String::new(), ItemId([0; 16]));
        let items = self.gate().items_by_change.rows(Bound::Included(&from), Bound::Unbounded);
        let items = items.take_while(|(key, ())| key.0 == tenant);
        let mut todo: Vec<(&str, &str)> = items.map(|(key, ())| (key.1.as_str(), key.2.as_str())).collect();
        todo.extend(self.waiting(tenant).filter_map(|(_, row)| names_of(&row.cause)));
        while let Some(key) = todo.pop() {
            if let Some(row) = known.get(&key)
                && keep.insert(key)
            {
                todo.extend(held_by(&row.facts));
            }
        }
        let forgotten = known.keys().filter(|key| !keep.contains(*key));
        let changes: Vec<ChangeKey> = forgotten.map(|(project, change)| named(project, change)).collect();
        if changes.is_empty() {
            return Ok(());
        }
        self.emit(GateEvent::ChangesForgotten(ChangesForgotten { tenant: tenant.to_owned(), changes }))
    }

    /// Whether an item holds a change, or a waiting trigger is about it.
    fn is_held(&self, tenant: &str, key: &ChangeKey) -> bool {
        let at = |id: [u8; 16]| (tenant.to_owned(), key.project.clone(), key.change.clone(), ItemId(id));
        let (from, to) = (at([0; 16]), at([255; 16]));
        let mut items = self.gate().items_by_change.rows(Bound::Included(&from), Bound::Included(&to));
        let names = Some((key.project.as_str(), key.change.as_str()));
        items.next().is_some() || self.waiting(tenant).any(|(_, row)| names_of(&row.cause) == names)
    }
}

/// What is kept with a change: what it needs, its topic, and what needs it, which may be brought along when it enters
/// again.
pub(crate) fn held_by(facts: &ChangeFacts) -> impl Iterator<Item = (&str, &str)> {
    let keys = facts.needs.iter().chain(&facts.needed_by);
    keys.map(|key| (key.project.as_str(), key.change.as_str())).chain(names_of_topic(facts))
}

/// The project and the change that a trigger is about.
fn names_of(cause: &TriggerCause) -> Option<(&str, &str)> {
    match cause {
        TriggerCause::Forge(received) => {
            let event = &received.event;
            event.change.as_deref().map(|change| (event.project.as_str(), change))
        }
        TriggerCause::Asked(asked) => Some((&asked.change.project, &asked.change.change)),
        TriggerCause::Timer(_) => None,
    }
}

/// The change that a trigger is about.
pub(crate) fn change_of(cause: &TriggerCause) -> Option<ChangeKey> {
    names_of(cause).map(|(project, change)| named(project, change))
}

/// A change's key.
pub(crate) fn named(project: &str, change: &str) -> ChangeKey {
    ChangeKey { project: project.to_owned(), change: change.to_owned() }
}
