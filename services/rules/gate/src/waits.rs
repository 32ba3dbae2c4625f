//! Reasons: what every tenant, trigger, item and build waits for. Written down only when the code or
//! what it is about changes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::{BuildRow, BuildState, ItemRow, Phase, WaitKey};
use gatelog_record::draft::gate::{WaitChanged, WaitCode, WaitSubject};
use gatelog_record::event::GateEvent;
use gatelog_record::{BuildId, ItemId};

use crate::decision::Decision;
use crate::jobs::Hold;
use crate::queue_pass::NEEDED_FAILING;
use crate::triggers::{Lane, lane};
use crate::window::is_inside;

/// What something waits for: a code, what exactly, what would unblock it.
type Why = (WaitCode, Cow<'static, str>, &'static str);

fn why(code: WaitCode, detail: impl Into<Cow<'static, str>>, unblocks: &'static str) -> Why {
    (code, detail.into(), unblocks)
}

/// What became of waits, by what waits; what waits for the same as before is not among them.
type News = BTreeMap<WaitKey, Option<Why>>;

impl Decision<'_> {
    /// Writes down what everything of a tenant waits for.
    pub(crate) fn note_waits(&mut self, tenant: &str) -> Result<(), Refusal> {
        let mut news = News::new();
        self.compare(WaitSubject::Tenant(tenant.to_owned()), self.why_tenant(tenant), &mut news);
        if self.seen.all || self.seen.triggers {
            self.why_triggers(tenant, &mut news);
        }
        let keys = match self.seen.all {
            true => self.queue_keys(tenant),
            false => self.seen.queues.keys().filter(|key| key.0 == tenant).cloned().collect(),
        };
        for key in keys {
            let Some(queue) = self.gate().queues.row(&key) else { continue };
            let everywhere = Some((0, queue.items.len()));
            let touch = self.seen.queues.get(&key).filter(|_| !self.seen.all);
            let Some((first, until)) = touch.map_or(everywhere, |touch| touch.places(&queue.items)) else { continue };
            let mut chain = Vec::new();
            let mut leaving = false;
            for (index, item) in queue.items.iter().enumerate().take(until) {
                let Some(row) = self.item(*item) else { continue };
                if index >= first {
                    let active = is_inside(queue.window, index);
                    let reason = self.why_item(tenant, row, &chain, active, leaving);
                    self.compare(WaitSubject::Item(*item), Some(reason), &mut news);
                    self.why_builds(row, &chain, active, &mut news);
                }
                if row.failing.is_empty() {
                    chain.push(*item);
                    leaving |= self.is_leaving(*item);
                }
            }
        }
        for (key, reason) in news {
            self.note_wait(key, reason)?;
        }
        Ok(())
    }

    /// Takes down what waits for something else than before.
    fn compare(&self, subject: WaitSubject, reason: Option<Why>, news: &mut News) {
        let key = WaitKey(subject);
        let same = match (self.gate().waits.row(&key), &reason) {
            (None, None) => true,
            (Some(known), Some((code, detail, _))) => known.code == *code && known.detail == *detail,
            _ => false,
        };
        if !same {
            news.insert(key, reason);
        }
    }

    fn note_wait(&mut self, key: WaitKey, reason: Option<Why>) -> Result<(), Refusal> {
        let known = self.gate().waits.row(&key);
        let since = match (known, &reason) {
            // It still waits for the same kind of thing.
            (Some(known), Some((code, ..))) if known.code == *code => known.since,
            _ => self.now(),
        };
        let (code, detail, unblocks) = match reason {
            Some((code, detail, unblocks)) => (Some(code), detail.into_owned(), unblocks.to_owned()),
            None => (None, String::new(), String::new()),
        };
        self.emit(GateEvent::WaitChanged(WaitChanged { subject: key.0, code, detail, since, unblocks }))
    }

    fn why_tenant(&self, tenant: &str) -> Option<Why> {
        let row = self.tenant(tenant)?;
        if !row.config_reads.is_empty() {
            return Some(why(WaitCode::ConfigFiles, "configuration files are read", "the answer of a merger"));
        }
        if row.layout_work.is_some() {
            return Some(why(WaitCode::Layout, "a layout is made", "the answer of a merger"));
        }
        let problem = row.layout_problem.as_ref();
        if self.gate().layouts.row(&tenant.to_owned()).is_none() {
            let detail = problem.map_or(Cow::Borrowed("there is no layout yet"), |(code, message)| {
                format!("the configuration could not be loaded: {message} ({code})").into()
            });
            return Some(why(WaitCode::Layout, detail, "a layout, which is asked for again every minute"));
        }
        None
    }

    fn why_triggers(&self, tenant: &str, news: &mut News) {
        let mut lanes: BTreeSet<Lane<'_>> = BTreeSet::new();
        for (trigger, row) in self.waiting(tenant) {
            let lane = lane(&row.cause);
            let behind = lane.2.is_some() && !lanes.insert(lane);
            let reason = if row.needs_facts && !row.answered {
                why(WaitCode::ChangeFacts, "the code-review system is asked about the change", "its answer")
            } else if self.is_paused(tenant, &row.cause) {
                why(WaitCode::Paused, "outside events of the tenant wait", "an operator")
            } else if behind {
                why(WaitCode::TriggerAhead, "another event of its branch goes first", "what that waits for")
            } else {
                self.why_tenant(tenant).unwrap_or_else(|| {
                    why(WaitCode::Layout, "the configuration is on its way to change", "the new layout")
                })
            };
            self.compare(WaitSubject::Trigger(trigger), Some(reason), news);
        }
    }

    fn why_item(&self, tenant: &str, row: &ItemRow, chain: &[ItemId], active: bool, leaving: bool) -> Why {
        if !row.live {
            return why(WaitCode::NotLive, "it stands for what an item behind it needs", "the item behind it");
        }
        if row.failing.iter().any(|reason| reason == NEEDED_FAILING) {
            let detail = "a change it needs is failing";
            return why(WaitCode::NeededFailing, detail, "that change, when it leaves or is tested anew");
        }
        if let Some(work) = row.work.and_then(|work| self.pending(work)) {
            let (code, detail, unblocks) = work.work.awaited();
            return why(code, detail, unblocks);
        }
        let ahead = || chain.last().map(|item| self.name_of(*item));
        let begun = row.buildset.and_then(|buildset| self.buildset(buildset));
        let Some(set) = begun.filter(|set| set.phase != Phase::Opened) else {
            let has_place = active || begun.is_some();
            return match ahead() {
                Some(ahead) if has_place && leaving => {
                    why(WaitCode::ItemAhead, format!("{ahead} is being merged first"), "that item, when it leaves")
                }
                _ if !has_place => why(WaitCode::Window, "the queue's window is full", "an item ahead, when it leaves"),
                Some(ahead) => {
                    let detail = format!("enough of what is ahead of it, up to {ahead}, is prepared first");
                    why(WaitCode::ItemAhead, detail, "the answer of a merger")
                }
                None => why(WaitCode::Prepare, "its state is to be prepared", "the next decision"),
            };
        };
        match set.phase {
            Phase::Opened | Phase::Preparing => why(WaitCode::Prepare, "its state is prepared", "a merger"),
            Phase::Prepared | Phase::LayoutReady if !active && self.may_change_configuration(row) => {
                why(WaitCode::Window, "it is outside of the queue's window", "an item ahead, when it leaves")
            }
            Phase::Prepared | Phase::LayoutReady | Phase::Layout => match ahead() {
                Some(ahead) if !self.awaits_config(tenant) => {
                    why(WaitCode::Layout, format!("the layout of {ahead} is made first"), "that layout")
                }
                _ => why(WaitCode::Layout, "the tenant's configuration is on its way to change", "the new layout"),
            },
            Phase::Freezing => why(WaitCode::Freeze, "its jobs are frozen", "the answer of a merger"),
            Phase::Frozen if row.reporting.is_some() => {
                why(WaitCode::Report, "it was reported and its reporter jobs run", "the last of them")
            }
            Phase::Frozen if self.runs(&set.builds) => why(WaitCode::Jobs, "its jobs run", "the last of them"),
            Phase::Frozen | Phase::Ended => {
                let ahead = ahead().unwrap_or_default();
                why(WaitCode::ItemAhead, format!("it is complete and waits for {ahead}"), "that item, when it leaves")
            }
        }
    }

    fn runs(&self, builds: &[BuildId]) -> bool {
        let runs = |row: &BuildRow| !row.job.traits.reporter && row.state != BuildState::Done;
        builds.iter().any(|build| self.build(*build).is_some_and(runs))
    }

    fn why_builds(&self, row: &ItemRow, chain: &[ItemId], active: bool, news: &mut News) {
        let Some(buildset) = row.buildset else { return };
        let reporting = row.reporting.is_some();
        let builds = self.builds_of(buildset);
        let waiting = builds.iter().any(|(_, row)| row.state == BuildState::Waiting);
        let held = if waiting { self.holds_all(chain, active || reporting) } else { None };
        for (build, row) in &builds {
            let reason = match row.state {
                BuildState::Done => continue,
                BuildState::Leased if row.ready.is_some() => {
                    let name = self.taken_from_ready(row).unwrap_or_default();
                    why(
                        WaitCode::Semaphore,
                        format!("it has its nodes, and semaphore {name} is taken"),
                        "a build that holds it",
                    )
                }
                BuildState::Leased => why(WaitCode::Lease, "nodes and a worker are asked for", "capacity"),
                BuildState::Running if row.paused => {
                    why(WaitCode::Paused, "it waits for the jobs that need it", "the last of them")
                }
                BuildState::Running => {
                    let worker = row.worker.as_deref().unwrap_or("a worker");
                    why(WaitCode::Running, format!("{worker} runs it"), "its end")
                }
                BuildState::Waiting if row.job.traits.reporter && !reporting => {
                    why(WaitCode::Report, "it runs once the item was reported", "the item's report")
                }
                BuildState::Waiting => match self.hold(&builds, chain, held.as_ref(), row) {
                    Some(Hold::Semaphore(name)) => {
                        why(WaitCode::Semaphore, format!("semaphore {name} is taken"), "a build that holds it")
                    }
                    Some(Hold::Job(name)) => {
                        why(WaitCode::JobDependency, format!("job {name} must end first"), "that job")
                    }
                    Some(Hold::Following(name)) => why(
                        WaitCode::HoldFollowing,
                        format!("job {name} of an item ahead must succeed first"),
                        "that job",
                    ),
                    Some(Hold::Window) => {
                        why(WaitCode::Window, "its item is outside of the window", "an item ahead, when it leaves")
                    }
                    Some(Hold::Artifact(name)) => why(
                        WaitCode::Artifact,
                        format!("{name} of a change ahead is not there yet"),
                        "the job that makes it",
                    ),
                    None => why(WaitCode::Lease, "its lease is to be asked for", "the next decision"),
                },
            };
            self.compare(WaitSubject::Build(*build), Some(reason), news);
        }
    }
}
