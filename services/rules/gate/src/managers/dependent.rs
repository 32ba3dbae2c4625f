//! Dependent: changes of one queue are tested on top of each other and merge in order; what a change
//! needs is pulled in ahead of it, what needs it behind it.

use std::collections::BTreeSet;

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::ChangeRow;
use gatelog_record::draft::gate::{ChangeKey, FactsPurpose, PipelineVerdict, Subject};

use super::{Entry, LIMIT, NEEDS_UNFIT, Place};
use crate::decision::Decision;
use crate::dependencies::{Group, NeedsError};
use crate::requirements;
use crate::triggers::verdict;

/// How many changes one change may pull in behind itself, and those behind them.
const MAX_BEHIND: usize = 200;

/// What is handed on while one change pulls in others.
#[derive(Default)]
pub(crate) struct Pulling {
    /// Who was found to need something; the tenant's limit counts them.
    counted: BTreeSet<ChangeKey>,
    /// How many were pulled in behind others.
    behind: usize,
    /// How many changes were begun with, whether they entered or not; the tenant's limit counts them.
    begun: usize,
}

/// What becomes of a change that is needed.
enum Ahead {
    /// It is in the branch.
    Merged,
    /// It is in the queue.
    There,
    /// It is to be pulled in.
    Wanted(Subject),
}

/// Why a change may not enter: a code, a sentence, and whether it is reported.
type Hindrance = (&'static str, String, bool);

/// The code of what is gated elsewhere.
pub(super) const OTHER_QUEUE: &str = "needs-other-queue";

/// Of two hindrances the one to tell. Zuul: everything that is needed is looked at, and what is gated elsewhere is
/// told, each of it, whatever else is wrong.
fn worse(before: Option<Hindrance>, found: Hindrance) -> Hindrance {
    match before {
        None => found,
        Some((OTHER_QUEUE, detail, report)) => match found.0 {
            OTHER_QUEUE => (OTHER_QUEUE, format!("{detail} {}", found.1), report),
            _ => (OTHER_QUEUE, detail, report),
        },
        Some(before) => {
            if found.0 == OTHER_QUEUE {
                found
            } else {
                before
            }
        }
    }
}

impl Decision<'_> {
    pub(crate) fn enter_dependent(&mut self, entry: &Entry<'_>) -> Result<PipelineVerdict, Refusal> {
        let Some(key) = entry.subject.change_key() else {
            let why = "only changes can be merged, and this is a ref";
            return self.turn_away(entry, "not-a-change", why, false);
        };
        self.enter_with_needs(entry, &key, &mut Pulling::default())
    }

    /// Enqueues a change, with all it needs ahead of it, or says why not.
    fn enter_with_needs(
        &mut self,
        entry: &Entry<'_>,
        key: &ChangeKey,
        pulling: &mut Pulling,
    ) -> Result<PipelineVerdict, Refusal> {
        let groups = if entry.pipeline.ignore_dependencies {
            vec![vec![key.clone()]]
        } else {
            let queue = entry.queue_of(entry.subject);
            let there = |key: &ChangeKey| {
                self.current_subject(entry.tenant, key).is_some_and(|subject| self.is_in_queue(entry, &subject, &queue))
            };
            match self.needs_to_enter(entry.tenant, key, there, &pulling.counted) {
                Ok((groups, needy)) => {
                    pulling.counted = needy;
                    groups
                }
                Err(why) => {
                    let (code, detail) = why.describe();
                    return self.turn_away(entry, code, &detail, !matches!(why, NeedsError::OverLimit(_)));
                }
            }
        };
        let own = groups.last().cloned().unwrap_or_else(|| vec![key.clone()]);
        Ok(match self.enter_group(entry, &own, &groups, pulling)? {
            Some(refused) => refused,
            None => verdict(&entry.pipeline.name, "enqueued", ""),
        })
    }

    /// Enqueues changes that are tested as one, behind what they need and before what needs them; says why not if
    /// they may not enter. Zuul: whatever is pulled in is asked the same questions, and what is wrong with it is told to it.
    fn enter_group(
        &mut self,
        entry: &Entry<'_>,
        group: &Group,
        groups: &[Group],
        pulling: &mut Pulling,
    ) -> Result<Option<PipelineVerdict>, Refusal> {
        let queue = entry.queue_of(entry.subject);
        if let Some((code, why)) = self.unfit_member(entry, group) {
            return self.turn_away(entry, code, &why, false).map(Some);
        }
        if let Some(verdict) = self.refuse_group(entry, group)? {
            return Ok(Some(verdict));
        }
        if let Some(verdict) = self.refuse_too_many(entry, pulling.begun, group.len())? {
            return Ok(Some(verdict));
        }
        pulling.begun = pulling.begun.saturating_add(group.len());
        let mut pulled = Vec::new();
        let mut hindrance = None;
        for (need, member) in self.needs_of_members(entry, group) {
            match self.fits_ahead(entry, &need, &member, group) {
                Ok(Ahead::Wanted(subject)) => pulled.push((need, subject)),
                Ok(_) => {}
                Err(why) => hindrance = Some(worse(hindrance, why)),
            }
        }
        if let Some((code, detail, report)) = hindrance {
            self.ask_queue(entry, entry.subject)?;
            for (need, member) in self.needs_of_members(entry, group) {
                for key in [member, need] {
                    if let Some(row) = self.change(entry.tenant, &key).filter(|row| !row.facts.merged) {
                        let subject = row.facts.subject.clone();
                        self.ask_queue(entry, &subject)?;
                    }
                }
            }
            return self.turn_away(entry, code, &detail, report).map(Some);
        }
        for (need, subject) in pulled {
            // Another member may need it too, or a circle that was pulled in before may hold it.
            if self.is_in_queue(entry, &subject, &queue) {
                continue;
            }
            let Some(theirs) = groups.iter().find(|group| group.contains(&need)) else { continue };
            let ahead = Entry { subject: &subject, reason: "needs", ..*entry };
            if let Some(refused) = self.enter_group(&ahead, theirs, groups, pulling)? {
                if refused.code == LIMIT {
                    return self.refuse_pulling_too_many(entry, &refused.detail).map(Some);
                }
                // Zuul: silence; it enters by itself once what it needs does.
                let detail = format!("It depends on {}, which may not enter.", subject.url);
                return self.turn_away(entry, NEEDS_UNFIT, &detail, false).map(Some);
            }
        }
        // Zuul: it may have come in as one of those that need what was pulled in.
        if self.is_in_queue(entry, entry.subject, &queue) {
            return Ok(None);
        }
        let subjects = match group.len() {
            0 | 1 => vec![entry.subject.clone()],
            _ => self.subjects_of(entry.tenant, group),
        };
        self.put_in_queue(entry, Place { queue, subjects: &subjects, live: true, reason: entry.reason })?;
        for subject in &subjects {
            self.pull_in_behind(&Entry { subject, ..*entry }, pulling)?;
        }
        Ok(None)
    }

    /// A member that may not enter: then none does, and nothing is said.
    fn unfit_member(&self, entry: &Entry<'_>, group: &[ChangeKey]) -> Option<(&'static str, String)> {
        for member in group {
            let Some(row) = self.change(entry.tenant, member) else {
                return Some(("change-missing", "nothing is known of the change".into()));
            };
            let mut fit = requirements::can_merge(entry.pipeline, &row.facts).map_err(|why| ("cannot-merge", why));
            if !entry.knows(&row.facts.subject.connection) {
                fit = Err(("other-connection", "the pipeline takes nothing from its connection".into()));
            }
            if fit.is_ok() && !entry.asked {
                fit = requirements::requirements(entry.pipeline, &row.facts, true, self.now())
                    .map_err(|why| ("requirements", why));
            }
            if let Err((code, why)) = fit {
                let own = entry.subject.change_key().as_ref() == Some(member);
                let why = if own { why } else { format!("{}, to be merged with it: {why}", row.facts.subject.url) };
                return Some((code, why));
            }
        }
        None
    }

    fn is_in_queue(&self, entry: &Entry<'_>, subject: &Subject, queue: &str) -> bool {
        let there = self.items_in(entry.tenant, &entry.pipeline.name, subject);
        there
            .into_iter()
            .filter_map(|item| self.item(item))
            .any(|item| item.queue == queue && item.subjects.iter().any(|one| super::same(one, subject)))
    }

    /// What each change of a group needs, in the order in which they name it, and who needs it.
    fn needs_of_members(&self, entry: &Entry<'_>, group: &[ChangeKey]) -> Vec<(ChangeKey, ChangeKey)> {
        if entry.pipeline.ignore_dependencies {
            return Vec::new();
        }
        let needs = |member: &ChangeKey| {
            let needs = self.needs_of(entry.tenant, member).into_iter();
            needs.map(|need| (need, member.clone())).collect::<Vec<_>>()
        };
        group.iter().flat_map(needs).collect()
    }

    /// What is to be done about a change that one of a group needs.
    fn fits_ahead(
        &self,
        entry: &Entry<'_>,
        need: &ChangeKey,
        member: &ChangeKey,
        group: &[ChangeKey],
    ) -> Result<Ahead, Hindrance> {
        let Some(row) = self.change(entry.tenant, need) else {
            let detail = format!("It depends on {} of {}, which does not exist.", need.change, need.project);
            return Err(("needs-missing", detail, true));
        };
        let subject = &row.facts.subject;
        let stood_on = self.stood_on(entry.tenant, std::iter::once(member), subject);
        let outdated = || format!("It stands on an older patchset of {}: rebase it.", subject.url);
        if row.facts.merged {
            // Zuul: another patchset merged than the one it stands on; what the code review made anew as it merged is
            // the one that was submitted.
            return match stood_on.is_some_and(|older| older.patchset != row.submitted) {
                true => Err(("needs-outdated", outdated(), false)),
                false => Ok(Ahead::Merged),
            };
        }
        let whose = self.change(entry.tenant, member).map_or(entry.subject, |row| &row.facts.subject);
        let (theirs, queue) = (entry.queue_of(subject), entry.queue_of(whose));
        // Zuul: so it is inside of a circle, too.
        if theirs != queue {
            let who = if group.len() > 1 { whose.url.as_str() } else { "It" };
            let detail =
                format!("{who} depends on {}, which is gated in queue {theirs:?}, not in {queue:?}.", subject.url);
            return Err((OTHER_QUEUE, detail, true));
        }
        // Zuul: a commit that stands on an older patchset, which nobody approved in its time, is silently left out.
        if stood_on.is_some() {
            return Err(("needs-outdated", outdated(), false));
        }
        if group.contains(need) || self.is_in_queue(entry, subject, &queue) {
            return Ok(Ahead::There);
        }
        if !row.facts.open {
            let detail = format!("It depends on {}, which was abandoned.", subject.url);
            return Err(("needs-abandoned", detail, false));
        }
        if let Err(why) = requirements::can_merge(entry.pipeline, &row.facts) {
            let detail = format!("It depends on {}, and {why}.", subject.url);
            // Zuul: silence; it enters by itself once what it needs does.
            return Err((NEEDS_UNFIT, detail, false));
        }
        Ok(Ahead::Wanted(subject.clone()))
    }

    /// Enqueues the changes that need one which is in the queue, each followed by those that need it.
    pub(crate) fn pull_in_behind(&mut self, entry: &Entry<'_>, pulling: &mut Pulling) -> Result<(), Refusal> {
        let Some(key) = entry.subject.change_key() else { return Ok(()) };
        let queue = entry.queue_of(entry.subject);
        // Zuul: also what ignores dependencies takes in what needs a change.
        let needs = if entry.pipeline.ignore_dependencies { Vec::new() } else { self.needs_of(entry.tenant, &key) };
        let mut ready = Vec::new();
        for other in self.found_behind(entry.tenant, &key) {
            let Some(row) = self.change(entry.tenant, &other).filter(|_| !needs.contains(&other)) else { continue };
            let subject = row.facts.subject.clone();
            let fits = requirements::can_merge(entry.pipeline, &row.facts).is_ok();
            match entry.queue_of(&subject) == queue {
                true if fits => ready.push((other, subject)),
                true => {}
                false => self.ask_queue(entry, &subject)?,
            }
        }
        for (other, subject) in ready {
            if pulling.behind >= MAX_BEHIND || self.is_in_pipeline(entry, &subject) {
                continue;
            }
            pulling.behind += 1;
            // Where it is already, nobody knew that it needs this one: by now it is known.
            if !self.needs_of(entry.tenant, &other).contains(&key) && !self.items_of(entry.tenant, &other).is_empty() {
                self.want_changes(entry.tenant, &subject.connection, other.clone(), false, FactsPurpose::Refresh)?;
            }
            // Zuul: whoever asked, what is pulled in behind must meet the requirements.
            let pulled = Entry { subject: &subject, reason: "needed-by", asked: false, ..*entry };
            // Zuul: where nothing was counted each begins by itself.
            let own = pulling.counted.is_empty();
            self.enter_with_needs(&pulled, &other, pulling)?;
            if own {
                pulling.counted.clear();
            }
        }
        Ok(())
    }

    /// The changes that need one, as Zuul finds them: those that stand on its commit, then of those that name it the
    /// first, and from there on only who names the one found last. Whose address begins like another's is taken for it
    /// where the code review gives it to us: whether it tells `/1` from `/11` is up to its own search.
    pub(crate) fn found_behind(&self, tenant: &str, key: &ChangeKey) -> Vec<ChangeKey> {
        let Some(row) = self.change(tenant, key) else { return Vec::new() };
        let names = |other: &ChangeKey, below: &ChangeKey| {
            let texts = self.change(tenant, other).map(|row| row.facts.depends_on.as_slice()).unwrap_or_default();
            let url = self.change(tenant, below).map(|row| row.facts.subject.url.as_str()).unwrap_or_default();
            let address = url.split_once("://").map_or(url, |(_, rest)| rest);
            texts.iter().any(|text| {
                !text.is_empty() && url.ends_with(text.as_str()) || !address.is_empty() && text.contains(address)
            })
        };
        let stands_on = |other: &&ChangeKey| {
            // Zuul: of what is merged it is remembered what stood on it.
            if row.facts.merged {
                return other.project == key.project && !names(other, key);
            }
            // Zuul: a commit that stands on it counts as long as it is open.
            if self.change(tenant, other).is_some_and(|row| !row.facts.open) {
                return false;
            }
            let needs = |row: &ChangeRow| row.facts.needs.contains(key) && !names(other, key);
            let told = other.project == key.project && self.stacked_on(tenant, other).as_ref() == Some(&key.change);
            told || self.change(tenant, other).is_some_and(needs)
        };
        let needed_by = &row.facts.needed_by;
        let mut found: Vec<ChangeKey> = needed_by.iter().filter(stands_on).cloned().collect();
        let mut last = key;
        for other in needed_by {
            if names(other, last) {
                if !found.contains(other) {
                    found.push(other.clone());
                }
                last = other;
            }
        }
        found
    }

    /// Whether a live item of the pipeline holds a change at this patchset.
    fn is_in_pipeline(&self, entry: &Entry<'_>, subject: &Subject) -> bool {
        let there = self.items_in(entry.tenant, &entry.pipeline.name, subject);
        let mut live = there.into_iter().filter_map(|item| self.item(item)).filter(|row| row.live);
        live.any(|row| row.subjects.iter().any(|one| super::same(one, subject)))
    }
}
