//! What a change needs, in an order in which it can be tested. Changes that need each other in a circle
//! stand together: they are tested and merged as one item.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_gate_state::live::ItemRow;
use gatelog_record::Value;
use gatelog_record::draft::gate::{ChangeFacts, ChangeKey, Subject};
use gatelog_rules_config::Pipeline;
use gatelog_rules_config::objects::pipeline::Manager;

use crate::decision::Decision;

/// The most changes one change may need, over any number of steps.
const MAX_NEEDS: usize = 200;

/// The attribute by which a code-review system tells the other open changes of a topic.
const TOPIC_CHANGES: &str = "topic-changes";

/// Changes that are tested as one; nearly always one alone.
pub(crate) type Group = Vec<ChangeKey>;

/// Why there is no such order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NeedsError {
    /// A needed change does not exist, or nothing is known of it.
    Missing(ChangeKey),
    /// There are too many.
    TooMany,
    /// More than the tenant allows need others. Zuul: `max-dependencies`.
    OverLimit(u64),
}

impl NeedsError {
    /// A code, and a sentence for people.
    pub(crate) fn describe(&self) -> (&'static str, String) {
        match self {
            NeedsError::Missing(key) => {
                ("needs-missing", format!("It depends on {} of {}, which does not exist.", key.change, key.project))
            }
            NeedsError::OverLimit(limit) => {
                ("needs-limit", format!("Of what it depends on more than the tenant's limit of {limit} need others."))
            }
            NeedsError::TooMany => ("needs-limit", format!("It depends on more than {MAX_NEEDS} changes.")),
        }
    }
}

/// A change on the way from the one asked for to the one looked at, with what is left of its needs.
struct Visit {
    key: ChangeKey,
    rest: std::vec::IntoIter<ChangeKey>,
    /// The earliest change on the way that can be reached from here.
    low: usize,
    at: usize,
}

/// The other open changes of a change's topic, as the code-review system told them.
pub(crate) fn of_topic(facts: &ChangeFacts) -> Vec<ChangeKey> {
    told_topic(facts).iter().filter_map(told_key).collect()
}

/// Whether anything was told of a change's topic.
pub(crate) fn has_topic(facts: &ChangeFacts) -> bool {
    !told_topic(facts).is_empty()
}

/// The same as [`of_topic`], of project and change.
pub(crate) fn names_of_topic(facts: &ChangeFacts) -> impl Iterator<Item = (&str, &str)> {
    told_topic(facts).iter().filter_map(told_names)
}

fn told_topic(facts: &ChangeFacts) -> &[Value] {
    let told = facts.attributes.as_map().and_then(|map| map.get(TOPIC_CHANGES)).and_then(Value::as_list);
    told.unwrap_or_default()
}

/// Of the changes of a topic leaves those that are among some.
pub(crate) fn keep_topic(facts: &mut ChangeFacts, known: &[ChangeKey]) {
    if let Value::Map(map) = &mut facts.attributes
        && let Some(Value::List(told)) = map.get_mut(TOPIC_CHANGES)
    {
        told.retain(|entry| told_key(entry).is_some_and(|key| known.contains(&key)));
    }
}

fn told_names(entry: &Value) -> Option<(&str, &str)> {
    let map = entry.as_map()?;
    Some((map.get("project")?.as_str()?, map.get("change")?.as_str()?))
}

fn told_key(entry: &Value) -> Option<ChangeKey> {
    told_names(entry).map(|(project, change)| ChangeKey { project: project.to_owned(), change: change.to_owned() })
}

impl Decision<'_> {
    /// What a change needs that is not merged, each behind what it needs itself, the change's own group
    /// last. (Tarjan's way: groups come out in the order in which they can be tested.)
    pub(crate) fn needs(&self, tenant: &str, change: &ChangeKey) -> Result<Vec<Group>, NeedsError> {
        self.needs_and_needy(tenant, change, &BTreeSet::new()).map(|(groups, _)| groups)
    }

    /// The same, for a change that is to enter a pipeline, with those that need something. `there` says which changes
    /// are in it already: for what has to be pulled in and needs something itself, the limit counts again. Zuul: with
    /// all that was `counted` before, for whoever pulled this one in.
    pub(crate) fn needs_to_enter(
        &self,
        tenant: &str,
        change: &ChangeKey,
        there: impl Fn(&ChangeKey) -> bool,
        counted: &BTreeSet<ChangeKey>,
    ) -> Result<(Vec<Group>, BTreeSet<ChangeKey>), NeedsError> {
        let (groups, needy) = self.needs_and_needy(tenant, change, counted)?;
        let limit = self.layout(tenant).ok().flatten().and_then(|layout| layout.max_dependencies());
        match limit {
            Some(limit)
                if needy.len() as u64 > limit
                    && needy.iter().any(|key| !groups.last().is_some_and(|own| own.contains(key)) && !there(key)) =>
            {
                Err(NeedsError::OverLimit(limit))
            }
            _ => Ok((groups, needy)),
        }
    }

    fn needs_and_needy(
        &self,
        tenant: &str,
        change: &ChangeKey,
        counted: &BTreeSet<ChangeKey>,
    ) -> Result<(Vec<Group>, BTreeSet<ChangeKey>), NeedsError> {
        let mut groups = Vec::new();
        let mut seen: BTreeMap<ChangeKey, usize> = BTreeMap::new();
        let mut open: Vec<ChangeKey> = Vec::new();
        let mut path: Vec<Visit> = Vec::new();
        let visit = |seen: &mut BTreeMap<ChangeKey, usize>, open: &mut Vec<ChangeKey>, key: ChangeKey| {
            let at = seen.len();
            seen.insert(key.clone(), at);
            open.push(key.clone());
            let rest = self.needs_of(tenant, &key).into_iter();
            Visit { key, rest, low: at, at }
        };
        path.push(visit(&mut seen, &mut open, change.clone()));
        let limit = self.layout(tenant).ok().flatten().and_then(|layout| layout.max_dependencies());
        // Those that need something which is not merged.
        let mut needy = counted.clone();
        while let Some(top) = path.last_mut() {
            let Some(next) = top.rest.next() else {
                let Some(done) = path.pop() else { break };
                if done.low == done.at {
                    let start = open.iter().position(|key| *key == done.key).unwrap_or(open.len());
                    groups.push(self.in_git_order(tenant, open.split_off(start)));
                }
                if let Some(before) = path.last_mut() {
                    before.low = before.low.min(done.low);
                }
                continue;
            };
            // Zuul: who is merged holds nothing together any more, not even a circle.
            let merged = self.change(tenant, &next).map(|row| row.facts.merged);
            if merged == Some(true) {
                continue;
            }
            if merged == Some(false) {
                if let Some(limit) = limit.filter(|limit| needy.len() as u64 > *limit) {
                    return Err(NeedsError::OverLimit(limit));
                }
                needy.insert(top.key.clone());
            }
            if let Some(at) = seen.get(&next) {
                if open.contains(&next) {
                    top.low = top.low.min(*at);
                }
                continue;
            }
            if merged.is_none() {
                return Err(NeedsError::Missing(next));
            }
            if seen.len() > MAX_NEEDS {
                return Err(NeedsError::TooMany);
            }
            path.push(visit(&mut seen, &mut open, next));
        }
        Ok((groups, needy))
    }

    /// The members of a circle, each behind the commit it stands on; the one asked for last, as Zuul does.
    fn in_git_order(&self, tenant: &str, members: Group) -> Group {
        let mut ordered: Group = Vec::with_capacity(members.len());
        let mut left: Vec<ChangeKey> = members.into_iter().rev().collect();
        while !left.is_empty() {
            let free = |key: &ChangeKey| {
                let below = self.stacked_on(tenant, key);
                !left.iter().any(|other| Some(&other.change) == below.as_ref() && other.project == key.project)
            };
            let next = left.iter().position(free).unwrap_or(0);
            ordered.push(left.remove(next));
        }
        ordered
    }

    /// An older patchset of a change that one of these commits stands on and none names otherwise.
    pub(crate) fn stood_on<'k>(
        &self,
        tenant: &str,
        by: impl Iterator<Item = &'k ChangeKey> + Clone,
        subject: &Subject,
    ) -> Option<Subject> {
        let row = |key: &ChangeKey| self.change(tenant, key).map(|row| &row.facts);
        if by.clone().filter_map(row).any(|facts| facts.depends_on.contains(&subject.url)) {
            return None;
        }
        by.filter_map(row).find_map(|facts| {
            let stacked = facts.attributes.as_map()?.get("stacked-on")?.as_map()?;
            let told = |key: &str| stacked.get(key).and_then(|value| value.as_str()).map(str::to_owned);
            let ours = facts.subject.project == subject.project && told("change") == subject.change;
            (ours && told("patchset") != subject.patchset).then(|| Subject {
                patchset: told("patchset"),
                commit: told("commit"),
                git_ref: told("ref").unwrap_or_default(),
                ..subject.clone()
            })
        })
    }

    /// The change a commit stands on, where the code-review system says.
    pub(crate) fn stacked_on(&self, tenant: &str, key: &ChangeKey) -> Option<String> {
        let attributes = &self.change(tenant, key)?.facts.attributes;
        let stacked = attributes.as_map()?.get("stacked-on")?.as_map()?;
        stacked.get("change")?.as_str().map(str::to_owned)
    }

    /// What a change needs directly, as far as it is known.
    pub(crate) fn needs_of(&self, tenant: &str, change: &ChangeKey) -> Vec<ChangeKey> {
        let Some(facts) = self.change(tenant, change).map(|row| &row.facts) else { return Vec::new() };
        let mut needs = facts.needs.clone();
        let topic = of_topic(facts);
        if !topic.is_empty()
            && let Ok(Some(layout)) = self.layout(tenant)
            && layout.by_topic(&facts.subject.project, facts.subject.branch.as_deref())
        {
            needs.extend(topic.into_iter().filter(|other| other != change));
        }
        needs
    }

    /// Whether an item's change is by now to be tested as one with others than those the item holds.
    pub(crate) fn circle_changed(&self, pipeline: &Pipeline, row: &ItemRow) -> bool {
        if pipeline.ignore_dependencies || pipeline.manager == Manager::Supercedent {
            return false;
        }
        let facts = |key: &ChangeKey| self.change(&row.tenant, key).map(|row| &row.facts);
        let Some(first) = row.subjects.iter().find_map(|subject| {
            let key = subject.change_key()?;
            // What an older patchset needed is not known any more.
            (facts(&key)?.subject.patchset == subject.patchset).then_some(key)
        }) else {
            return false;
        };
        if row.subjects.len() == 1 && self.needs_of(&row.tenant, &first).is_empty() {
            return false;
        }
        let own: BTreeSet<ChangeKey> = row.subjects.iter().filter_map(Subject::change_key).collect();
        let Ok(groups) = self.needs(&row.tenant, &first) else { return false };
        let mut now: BTreeSet<ChangeKey> = groups.into_iter().last().unwrap_or_default().into_iter().collect();
        // Zuul: who was merged meanwhile still belongs to it.
        now.extend(own.iter().filter(|key| facts(key).is_some_and(|facts| facts.merged)).cloned());
        now != own
    }

    /// What the changes of a group need directly outside of it, each once, in the order in which they name it.
    pub(crate) fn needs_of_group(&self, tenant: &str, group: &[ChangeKey]) -> Vec<ChangeKey> {
        let mut needs = Vec::new();
        for need in group.iter().flat_map(|key| self.needs_of(tenant, key)) {
            if !group.contains(&need) && !needs.contains(&need) {
                needs.push(need);
            }
        }
        needs
    }

    /// The changes of a group as they are now.
    pub(crate) fn subjects_of(&self, tenant: &str, group: &[ChangeKey]) -> Vec<Subject> {
        group.iter().filter_map(|key| self.current_subject(tenant, key)).collect()
    }
}
