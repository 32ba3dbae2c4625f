//! What is wrong with an item: its change moved on, what it needs is gone, what it stands on changed,
//! its jobs failed.

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::{Ahead, BuildState, ItemRow, Phase, ProblemKind, Work};
use gatelog_record::draft::gate::{BuildResult, ChangeFacts, ChangeKey, Subject};
use gatelog_record::{BuildId, ItemId};
use gatelog_rules_config::Pipeline;
use gatelog_rules_config::objects::pipeline::Manager;

use crate::decision::Decision;
use crate::dependencies::has_topic;
use crate::queue_pass::{JOB_FAILED, Walk};
use crate::requirements;

/// Which of an item's changes moved on without it, and how: a code and a sentence.
pub(crate) struct Outdated {
    pub subject: Subject,
    pub code: &'static str,
    pub detail: String,
}

/// Whether a pipeline cares about what its changes need. Zuul: managers that pull nothing in do not ask for it either.
pub(crate) fn minds_needs(pipeline: &Pipeline) -> bool {
    !pipeline.ignore_dependencies && !matches!(pipeline.manager, Manager::Serial | Manager::Supercedent)
}

impl Decision<'_> {
    /// Whether the item's change moved on without it.
    pub(crate) fn outdated(&self, row: &ItemRow, pipeline: &Pipeline) -> Option<Outdated> {
        for subject in &row.subjects {
            let outdated = |code, detail| Some(Outdated { subject: subject.clone(), code, detail });
            let Some(key) = subject.change_key() else { continue };
            // Zuul: a commit that stands on one which moved on is tested on what it stands on.
            if !row.live && !self.is_wanted_current(row, subject) {
                continue;
            }
            let Some(change) = self.change(&row.tenant, &key) else {
                return outdated("gone", "The change does not exist any more.".into());
            };
            let facts = &change.facts;
            // Zuul: what enters though it was abandoned before stays, and so does what others stand on.
            if row.live && !facts.open && !facts.merged && change.closed.is_some_and(|closed| closed > row.enqueued) {
                return outdated("abandoned", "The change was abandoned.".into());
            }
            let moved_on = facts.subject.patchset != subject.patchset;
            if moved_on && pipeline.dequeue_on_new_patchset {
                let patchset = facts.subject.patchset.clone().unwrap_or_default();
                return outdated("new-patchset", format!("Patchset {patchset} took its place."));
            }
        }
        None
    }

    /// Whether all that can be said at once is well: it is live and holds one change, which is as it was and may be
    /// merged, is of the tenant, and needs nothing. None of the questions that are asked otherwise then finds anything.
    pub(crate) fn is_unchanged(&self, pipeline: &Pipeline, row: &ItemRow) -> bool {
        let [subject] = row.subjects.as_slice() else { return false };
        let Some(change) = subject.change.as_ref().filter(|_| row.live) else { return false };
        let key = (row.tenant.clone(), subject.project.clone(), change.clone());
        let Some(facts) = self.gate().changes.row(&key).map(|row| &row.facts) else { return false };
        (facts.open || facts.merged)
            && facts.subject.patchset == subject.patchset
            && facts.needs.is_empty()
            && !has_topic(facts)
            && self.tenant(&row.tenant).is_some_and(|tenant| tenant.project(&subject.project).is_some())
            && (pipeline.manager != Manager::Dependent || requirements::can_merge(pipeline, facts).is_ok())
    }

    /// Whether a live item's project left the tenant: a code and a sentence.
    pub(crate) fn not_ours(&self, row: &ItemRow) -> Option<(&'static str, String)> {
        let tenant = self.tenant(&row.tenant)?;
        let foreign = row.subjects.iter().find(|subject| tenant.project(&subject.project).is_none())?;
        row.live.then(|| ("project-gone", format!("Project {} is no longer in the tenant.", foreign.project)))
    }

    /// Whether something behind an item that is not live needs its change as it is now. Zuul: what
    /// names it by Depends-On does; a commit stacked on an old patchset is tested on that.
    fn is_wanted_current(&self, row: &ItemRow, subject: &Subject) -> bool {
        let key = (row.tenant.clone(), row.pipeline.clone(), row.queue.clone());
        let items = self.gate().queues.row(&key).map(|queue| queue.items.as_slice()).unwrap_or_default();
        items
            .iter()
            .filter_map(|item| self.item(*item))
            .flat_map(|other| &other.subjects)
            .filter_map(|other| self.change(&row.tenant, &other.change_key()?))
            .flat_map(|row| &row.facts.depends_on)
            .any(|text| !text.is_empty() && (*text == subject.url || subject.url.ends_with(text.as_str())))
    }

    /// Lets the items of a change go that are not at its current patchset, or whose change is closed. Zuul: those of one
    /// pipeline, which gives what they held to its own queues before the next pipeline lets go.
    pub(crate) fn drop_outdated(
        &mut self,
        tenant: &str,
        pipeline: &Pipeline,
        subject: &Subject,
    ) -> Result<(), Refusal> {
        for item in self.items_in(tenant, &pipeline.name, subject) {
            let Some(row) = self.item(item).cloned() else { continue };
            if let Some(why) = self.outdated(&row, pipeline)
                && !self.is_merging(item)
            {
                self.leave_outdated(item, &row, &why)?;
            }
        }
        Ok(())
    }

    /// Lets the first of some items go whose change moved on without it; says whether there was one.
    pub(crate) fn drop_one_outdated(&mut self, pipeline: &Pipeline, items: &[ItemId]) -> Result<bool, Refusal> {
        for item in items.iter().filter(|item| !self.is_reporting(**item) && !self.is_merging(**item)) {
            let Some(row) = self.item(*item).filter(|row| row.live).cloned() else { continue };
            if let Some(why) = self.outdated(&row, pipeline) {
                self.leave_outdated(*item, &row, &why)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The items ahead that hold what an item needs; an error names what is in no branch and not ahead.
    pub(crate) fn needed_items(
        &self,
        walk: &Walk<'_>,
        row: &ItemRow,
        ahead: &[ItemId],
    ) -> Result<Vec<ItemId>, (&'static str, String)> {
        let mut found = Vec::new();
        let own: Vec<ChangeKey> = row.subjects.iter().filter_map(Subject::change_key).collect();
        if !minds_needs(walk.pipeline) {
            // Zuul: a change fails with one that it needs, wherever that stands, also where it may do without. What is
            // about to be merged ahead is out of the way first.
            let leaving = || walk.chain.iter().any(|ahead| self.is_leaving(*ahead));
            if walk.pipeline.manager == Manager::Dependent && !leaving() {
                let needs = self.needs_of_group(walk.tenant, &own).into_iter();
                found.extend(
                    needs
                        .flat_map(|need| self.items_of(walk.tenant, &need))
                        .filter(|item| self.item(*item).is_some_and(|row| row.pipeline == walk.pipeline.name)),
                );
            }
            return Ok(found);
        }
        let mut missing = self.gated_apart(walk, &own);
        for need in self.needs_of_group(walk.tenant, &own) {
            // Where a patchset stays when there is a newer one, it is not what is needed any more.
            let newest = self.change(walk.tenant, &need).and_then(|row| row.facts.subject.patchset.as_ref());
            let kept = walk.pipeline.manager == Manager::Dependent && !walk.pipeline.dequeue_on_new_patchset;
            let holds = |item: &&ItemId| {
                let subjects = self.item(**item).map(|row| row.subjects.as_slice()).unwrap_or_default();
                let is_it = |one: &Subject| one.change_key().as_ref() == Some(&need);
                subjects.iter().any(|one| is_it(one) && (!kept || one.patchset.as_ref() == newest))
            };
            if let Some(item) = ahead.iter().find(holds) {
                found.push(*item);
                continue;
            }
            match self.change(walk.tenant, &need) {
                Some(change) if change.facts.merged => {}
                Some(change) if !change.facts.open => {
                    return Err((
                        "needs-abandoned",
                        format!("Change {} is needed, and was abandoned.", change.facts.subject.url),
                    ));
                }
                Some(change) => missing.push(change.facts.subject.url.clone()),
                None => missing.push(format!("{} of {}", need.change, need.project)),
            }
        }
        match missing.as_slice() {
            [] => Ok(found),
            [one] => Err(("needs-gone", format!("Change {one} is needed."))),
            several => Err(("needs-gone", format!("Changes {} are needed.", several.join(", ")))),
        }
    }

    /// Which changes of a circle are gated in another queue by now than one that needs them: what does not share a queue
    /// does not merge together.
    fn gated_apart(&self, walk: &Walk<'_>, group: &[ChangeKey]) -> Vec<String> {
        let mut apart = Vec::new();
        if group.len() < 2 || walk.pipeline.manager != Manager::Dependent {
            return apart;
        }
        let facts = |key: &ChangeKey| self.change(walk.tenant, key).map(|row| &row.facts);
        let queue_of = |facts: &ChangeFacts| {
            let subject = &facts.subject;
            walk.layout.queue_name(&walk.pipeline.name, &subject.project, subject.branch.as_deref())
        };
        for (key, of_member) in group.iter().filter_map(|key| Some((key, facts(key)?))) {
            let needs = self.needs_of(walk.tenant, key);
            for need in needs.iter().filter(|need| group.contains(need)).filter_map(facts) {
                let url = &need.subject.url;
                if !need.merged && queue_of(need) != queue_of(of_member) && !apart.contains(url) {
                    apart.push(url.clone());
                }
            }
        }
        apart
    }

    /// Why an item of a pipeline that merges could not be merged any more.
    pub(crate) fn cannot_merge(&self, walk: &Walk<'_>, row: &ItemRow) -> Option<String> {
        if walk.pipeline.manager != Manager::Dependent {
            return None;
        }
        let facts = |subject: &Subject| self.change(walk.tenant, &subject.change_key()?).map(|change| &change.facts);
        // Zuul: a patchset that may stay when there is a newer one keeps the votes it had.
        let kept = |subject: &Subject, facts: &ChangeFacts| {
            !walk.pipeline.dequeue_on_new_patchset && facts.open && facts.subject.patchset != subject.patchset
        };
        let known = row.subjects.iter().filter_map(|subject| Some((subject, facts(subject)?)));
        known
            .filter(|(subject, facts)| !kept(subject, facts))
            .find_map(|(_, facts)| requirements::can_merge(walk.pipeline, facts).err())
    }

    /// Whether an item's buildset stands on something else than the chain: a code and a sentence.
    pub(crate) fn stands_wrong(&self, walk: &Walk<'_>, row: &ItemRow) -> Option<(&'static str, String)> {
        let set = self.buildset(row.buildset?)?;
        // It was begun on the one ahead of it, which stands on all the others.
        if set.stacked && walk.sound && set.ahead.last() == walk.standing.last() {
            return None;
        }
        let stands_on = walk.queue.stands_on(set);
        if *stands_on == walk.standing {
            return None;
        }
        if stands_on.iter().any(|ahead| self.item(ahead.item).is_none()) {
            return Some(("ahead-left", "An item ahead of it left without being merged.".into()));
        }
        let failing = |ahead: &&Ahead| self.item(ahead.item).is_some_and(|row| !row.failing.is_empty());
        if let Some(ahead) = stands_on.iter().find(failing) {
            return Some(("ahead-failing", format!("{} ahead of it is failing.", self.name_of(ahead.item))));
        }
        Some(("ahead-changed", "What is ahead of it is tested anew.".into()))
    }

    /// What people call an item: its change.
    pub(crate) fn name_of(&self, item: ItemId) -> String {
        let subject = self.item(item).and_then(|row| row.subjects.first());
        subject.map(gatelog_gate_state::live::subject_name).unwrap_or_else(|| item.to_string())
    }

    /// Why an item is failing, by its buildset alone.
    pub(crate) fn reasons_to_fail(&self, item: ItemId) -> Vec<String> {
        let Some((_, set)) = self.buildset_of(item) else { return Vec::new() };
        match &set.problem {
            // Zuul: one without jobs fails nothing; what is behind stands on it, and begins anew when it leaves.
            Some(problem) if problem.kind == ProblemKind::NoJobs => return Vec::new(),
            Some(problem) => return vec![problem.code.clone()],
            None => {}
        }
        let tests = self.tests_of(&set.builds);
        let builds = tests.iter().filter_map(|build| self.build(*build));
        // Zuul: a build that is known to fail counts as failed before it ends.
        let mut reasons: Vec<String> = builds
            .filter(|build| build.job.voting && build.fails())
            .map(|build| format!("{JOB_FAILED} {}", build.job.name))
            .collect();
        // Zuul: when every job was skipped, nothing was tested.
        if reasons.is_empty() && self.all_skipped(&tests) {
            reasons.push("all-skipped".into());
        }
        reasons
    }

    /// Those of an item's builds that say whether it is good: all but the reporter jobs.
    pub(crate) fn tests_of(&self, builds: &[BuildId]) -> Vec<BuildId> {
        let is_test = |build: &&BuildId| self.build(**build).is_some_and(|row| !row.job.traits.reporter);
        builds.iter().filter(is_test).copied().collect()
    }

    fn all_skipped(&self, builds: &[BuildId]) -> bool {
        let skipped = |build: &BuildId| self.build(*build).is_some_and(|row| row.result == Some(BuildResult::Skipped));
        !builds.is_empty() && builds.iter().all(skipped)
    }

    pub(crate) fn is_complete(&self, item: ItemId) -> bool {
        let Some((_, set)) = self.buildset_of(item) else { return false };
        match set.phase {
            Phase::Ended => true,
            Phase::Frozen => self.are_done(&self.tests_of(&set.builds)),
            _ => false,
        }
    }

    pub(crate) fn are_done(&self, builds: &[BuildId]) -> bool {
        builds.iter().all(|build| self.build(*build).is_some_and(|row| row.state == BuildState::Done))
    }

    /// Whether an item was reported and its reporter jobs run.
    pub(crate) fn is_reporting(&self, item: ItemId) -> bool {
        self.item(item).is_some_and(|row| row.reporting.is_some())
    }

    /// Whether an item's merge is under way.
    pub(crate) fn is_merging(&self, item: ItemId) -> bool {
        let work = self.item(item).and_then(|row| row.work).and_then(|work| self.pending(work));
        work.is_some_and(|row| matches!(row.work, Work::Submit(_)))
    }
}
