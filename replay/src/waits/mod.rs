//! What everything of a site waits for: why, since when, what ends it, and what helps.
//!
//! The rules write down what tenants, triggers, items and builds wait for ([`gatelog_gate_state::live::Waits`]), and
//! capacity what its requests wait for. Here the two are put together, with what neither says: short work that failed
//! and is sent again, work that nobody answers, messages that are not taken, nodes that are kept. Pure: what it says
//! follows from the tables and the moment alone. How a server's own parts are, its API adds.

mod reasons;

use std::collections::BTreeSet;

use gatelog_capacity_state::{CapacityLive, LeaseState, OwnerKey, owner_key};
use gatelog_gate_state::GateLive;
use gatelog_gate_state::live::{ItemRow, PendingRow, WaitRow, subject_name};
use gatelog_record::draft::gate::{WaitCode, WaitSubject, build_owner};
use gatelog_record::{BuildId, ItemId, Timestamp, WorkId};
use gatelog_tables::{Backing, Table, TableError, TableExt};

pub use reasons::{
    CONNECTION_FAILS, DRAINING, PART_STARTING, PART_STOPPED, PART_YELLOW, REASONS, ROLE_MISSING, ROLE_PAUSED, Reason,
    SILENT, Standing, reason,
};

/// From how long on a wait is told of: a minute, in milliseconds.
pub const TOLD_AFTER_MS: i64 = 60_000;

/// What waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A part of a server, by its name.
    Part(String),
    /// A tenant.
    Tenant(String),
    /// A project of a tenant, by its canonical name.
    Project(String),
    /// An event from outside, by its input's sequence.
    Trigger(u64),
    /// An item.
    Item(ItemId),
    /// A build.
    Build(BuildId),
    /// Short work that no item, trigger or tenant waits for, such as a report's delivery.
    Work(WorkId),
    /// A message to another domain, by the event that sent it and its place among that event's.
    Message(u64, u32),
    /// The kept nodes of a build.
    Nodes(BuildId),
}

impl Subject {
    /// What kind of thing it is, a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Subject::Part(_) => "part",
            Subject::Tenant(_) => "tenant",
            Subject::Project(_) => "project",
            Subject::Trigger(_) => "trigger",
            Subject::Item(_) => "item",
            Subject::Build(_) => "build",
            Subject::Work(_) => "work",
            Subject::Message(..) => "message",
            Subject::Nodes(_) => "nodes",
        }
    }

    /// Its id.
    pub fn id(&self) -> String {
        match self {
            Subject::Part(name) | Subject::Tenant(name) | Subject::Project(name) => name.clone(),
            Subject::Trigger(trigger) => trigger.to_string(),
            Subject::Item(item) => item.to_string(),
            Subject::Build(build) | Subject::Nodes(build) => build.to_string(),
            Subject::Work(work) => work.to_string(),
            Subject::Message(sequence, ordinal) => format!("{sequence}.{ordinal}"),
        }
    }
}

/// Something that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What waits.
    pub subject: Subject,
    /// What people call it.
    pub name: String,
    /// Its tenant, if it is of one.
    pub tenant: Option<String>,
    /// Why: what it means, what ends it, what helps.
    pub reason: &'static Reason,
    /// What exactly: which semaphore, which item, which worker.
    pub detail: String,
    /// Since when.
    pub since: Timestamp,
    /// What ends it.
    pub ends_when: String,
    /// What somebody can do about it; empty where nothing needs to be done.
    pub cure: String,
}

impl Wait {
    fn new(subject: Subject, name: String, tenant: Option<&str>, reason: &'static Reason, why: Why) -> Wait {
        let (ends_when, cure) = (reason.ends_when.to_owned(), reason.cure.to_owned());
        let tenant = tenant.map(str::to_owned);
        Wait { subject, name, tenant, reason, detail: why.detail, since: why.since, ends_when, cure }
    }

    /// A part of a server, or a process, that is in a way that `code` names; `None` when no reason has that code.
    pub fn of_part(part: String, code: &str, detail: String, since: Timestamp) -> Option<Wait> {
        Some(Wait::new(Subject::Part(part.clone()), part, None, reason(code)?, Why { detail, since }))
    }

    /// Whether it is a part of a server that holds something up: that is told at once.
    pub fn is_part_held_up(&self) -> bool {
        matches!(self.subject, Subject::Part(_)) && self.reason.standing == Standing::HeldUp
    }

    /// How long it has waited by then, in milliseconds; 0 where clocks disagree.
    pub fn millis(&self, now: Timestamp) -> i64 {
        now.millis_since(self.since).max(0)
    }
}

/// What exactly is waited for, and since when.
struct Why {
    detail: String,
    since: Timestamp,
}

/// When an event of the gate was recorded, as far as that is known.
pub type Recorded<'a> = &'a dyn Fn(u64) -> Option<Timestamp>;

/// Puts what is held up first, and of equals what has waited longest.
pub fn worst_first(waits: &mut [Wait]) {
    waits.sort_by(|a, b| (a.reason.standing, a.since, &a.subject).cmp(&(b.reason.standing, b.since, &b.subject)));
}

/// Everything that waits as of `now`, of one tenant or of all, worst first.
///
/// # Errors
/// A table cannot be read.
pub fn waits<G: Backing, C: Backing>(
    gate: &GateLive<G>,
    capacity: &CapacityLive<C>,
    tenant: Option<&str>,
    now: Timestamp,
    recorded: Recorded<'_>,
) -> Result<Vec<Wait>, TableError> {
    let mut gathered = Gathered { gate, capacity, tenant, now, found: Vec::new(), awaited: BTreeSet::new() };
    gathered.rows()?;
    gathered.work()?;
    gathered.unread()?;
    gathered.kept_nodes()?;
    if tenant.is_none() {
        gathered.pauses()?;
        gathered.messages(recorded)?;
    }
    let mut found = gathered.found;
    worst_first(&mut found);
    Ok(found)
}

struct Gathered<'t, G: Backing, C: Backing> {
    gate: &'t GateLive<G>,
    capacity: &'t CapacityLive<C>,
    tenant: Option<&'t str>,
    now: Timestamp,
    found: Vec<Wait>,
    /// Work that something told of waits for.
    awaited: BTreeSet<WorkId>,
}

impl<G: Backing, C: Backing> Gathered<'_, G, C> {
    fn is_wanted(&self, tenant: &str) -> bool {
        self.tenant.is_none_or(|wanted| wanted == tenant)
    }

    /// What the rules have written down.
    fn rows(&mut self) -> Result<(), TableError> {
        // A tenant's triggers have keys with its name; what they wait for is found by that.
        for entry in self.gate.gate.triggers.all()? {
            let ((tenant, trigger), row) = entry?;
            if !self.is_wanted(&tenant) {
                continue;
            }
            let Some(wait) = self.gate.gate.waits.get(&key(WaitSubject::Trigger(trigger)))? else { continue };
            let name = format!("event {trigger} from outside");
            let wait = WaitRow { since: wait.since.min(row.since), ..wait.into_owned() };
            let told = match (&row.failed, row.work) {
                (Some((code, text)), work) => {
                    self.awaited.extend(work);
                    (by_word(reasons::RETRY), Why { detail: format!("{text} ({code})"), since: wait.since })
                }
                (None, Some(work)) => self.by_work(&wait, work)?,
                (None, None) => self.by_code(&wait, false),
            };
            self.tell(Subject::Trigger(trigger), name, &tenant, told);
        }
        for entry in self.gate.gate.waits.all()? {
            let (subject, wait) = entry?;
            match subject.0 {
                WaitSubject::Tenant(tenant) => self.tenant_waits(&tenant, &wait)?,
                WaitSubject::Trigger(_) => {}
                WaitSubject::Item(item) => self.item_waits(item, &wait)?,
                WaitSubject::Build(build) => self.build_waits(build, &wait)?,
            }
        }
        Ok(())
    }

    fn tell(&mut self, subject: Subject, name: String, tenant: &str, told: (&'static Reason, Why)) {
        let (reason, why) = told;
        self.found.push(Wait::new(subject, name, Some(tenant), reason, why));
    }

    fn tenant_waits(&mut self, tenant: &str, wait: &WaitRow) -> Result<(), TableError> {
        let tenants = &self.gate.gate.tenants;
        let Some(row) = tenants.get(&tenant.to_owned())?.filter(|_| self.is_wanted(tenant)) else { return Ok(()) };
        self.awaited.extend(row.config_reads.iter().copied().chain(row.layout_work));
        let none = self.gate.gate.layouts.get(&tenant.to_owned())?.is_none();
        let told = match row.config_reads.first().copied().or(row.layout_work) {
            _ if none && row.layout_problem.is_some() => {
                (by_word(reasons::NO_LAYOUT), Why { detail: wait.detail.clone(), since: wait.since })
            }
            Some(work) => self.by_work(wait, work)?,
            None => self.by_code(wait, false),
        };
        self.tell(Subject::Tenant(tenant.to_owned()), format!("tenant {tenant}"), tenant, told);
        Ok(())
    }

    fn item_waits(&mut self, item: ItemId, wait: &WaitRow) -> Result<(), TableError> {
        let Some(row) = self.gate.gate.items.get(&item)?.filter(|row| self.is_wanted(&row.tenant)) else {
            return Ok(());
        };
        let told = match row.work {
            Some(work) => self.by_work(wait, work)?,
            None => self.by_code(wait, false),
        };
        self.tell(Subject::Item(item), named(&row), &row.tenant, told);
        Ok(())
    }

    fn build_waits(&mut self, build: BuildId, wait: &WaitRow) -> Result<(), TableError> {
        let Some(row) = self.gate.gate.builds.get(&build)?.filter(|row| self.is_wanted(&row.tenant)) else {
            return Ok(());
        };
        let item = self.gate.gate.items.get(&row.item)?;
        let of = item.map_or_else(String::new, |item| format!(" of {}", named(&item)));
        let name = format!("{}{of}", row.job.name);
        let mut told = self.by_code(wait, true);
        if wait.code == WaitCode::Lease
            && let Some(lease) = self.capacity.own.by_owner.get(&lease_of(&row.tenant, build, row.attempt))?
            && let Some(lease) = self.capacity.own.leases.get(&lease)?
        {
            told = match (&lease.wait, lease.state) {
                (Some(asked), LeaseState::Queued) => {
                    // The gate says `paused` of a build that waits for others, capacity of executors.
                    let code = if asked.code == "paused" { reasons::EXECUTOR_PAUSED } else { &asked.code };
                    (by_word(code), Why { detail: asked.detail.clone(), since: asked.since })
                }
                (_, LeaseState::Granted) => {
                    let grant = lease.grant.as_ref();
                    let worker = grant.map_or("a worker", |grant| grant.worker.as_str());
                    let since = grant.map_or(wait.since, |grant| grant.granted_at);
                    (by_word(reasons::STARTING), Why { detail: format!("{worker} makes it ready"), since })
                }
                _ => told,
            };
        }
        self.tell(Subject::Build(build), name, &row.tenant, told);
        Ok(())
    }

    fn by_code(&self, wait: &WaitRow, build: bool) -> (&'static Reason, Why) {
        let code = match wait.code {
            // The rules have one word for both.
            WaitCode::Paused if !build => reasons::INTAKE_PAUSED,
            code => code.word(),
        };
        (by_word(code), Why { detail: wait.detail.clone(), since: wait.since })
    }

    /// What waits for short work: it may have failed before, or be without an answer.
    fn by_work(&mut self, wait: &WaitRow, work: WorkId) -> Result<(&'static Reason, Why), TableError> {
        self.awaited.insert(work);
        let told = self.gate.gate.pending_work.get(&work)?.and_then(|row| trouble(&row, self.now));
        Ok(told.unwrap_or_else(|| self.by_code(wait, false)))
    }

    /// Short work that nothing waits for which was told of.
    fn work(&mut self) -> Result<(), TableError> {
        for entry in self.gate.gate.pending_work.all()? {
            let (work, row) = entry?;
            if self.awaited.contains(&work) || !self.is_wanted(&row.key) {
                continue;
            }
            let told = trouble(&row, self.now).unwrap_or_else(|| {
                (by_word(row.work.wait_code().word()), Why { detail: String::new(), since: row.requested_at })
            });
            self.tell(Subject::Work(work), row.work.title(), &row.key, told);
        }
        Ok(())
    }

    fn unread(&mut self) -> Result<(), TableError> {
        for entry in self.gate.gate.unread.all()? {
            let ((tenant, project), row) = entry?;
            if self.is_wanted(&tenant) {
                let times = if row.times > 1 { format!(", {} times in a row", row.times) } else { String::new() };
                let detail = format!("{} ({}){times}", row.problem.message, row.problem.code);
                let told = (by_word(reasons::UNREAD), Why { detail, since: row.since });
                self.tell(Subject::Project(project.clone()), format!("configuration of {project}"), &tenant, told);
            }
        }
        Ok(())
    }

    /// Who takes nothing new: what waits for that says so itself, but there may be nothing that does.
    fn pauses(&mut self) -> Result<(), TableError> {
        for entry in self.capacity.own.pauses.all()? {
            let ((role, name), row) = entry?;
            let detail = if row.reason.is_empty() { "no reason given".to_owned() } else { row.reason.clone() };
            let why = Why { detail, since: row.since };
            let part = format!("{role} {name}");
            let mut wait = Wait::new(Subject::Part(part.clone()), part, None, by_word(reasons::PAUSED_PROCESS), why);
            wait.cure = format!("`gatelog {role} resume {name}`");
            self.found.push(wait);
        }
        Ok(())
    }

    fn kept_nodes(&mut self) -> Result<(), TableError> {
        for entry in self.gate.gate.autoholds.all()? {
            let ((tenant, request), row) = entry?;
            if !self.is_wanted(&tenant) {
                continue;
            }
            for held in &row.held {
                let name = format!("nodes of build {} ({})", held.build, row.asked.job);
                let worker = held.worker.as_deref().unwrap_or("a worker");
                let detail = format!("{worker} keeps them for request {request:010}: {}", row.asked.reason);
                let why = Why { detail, since: held.since };
                let mut wait =
                    Wait::new(Subject::Nodes(held.build), name, Some(&tenant), by_word(reasons::NODES_HELD), why);
                if let Some(until) = held.hold.until {
                    wait.ends_when = format!("{until} comes, or the request is deleted");
                }
                wait.cure = wait.cure.replace("REQUEST", &format!("{request:010}"));
                self.found.push(wait);
            }
        }
        Ok(())
    }

    /// What the gate has said to others, and nobody is known to have taken.
    fn messages(&mut self, recorded: Recorded<'_>) -> Result<(), TableError> {
        for entry in self.gate.partition.outbox.all()? {
            let ((_, _, sequence, ordinal), row) = entry?;
            let Some(since) = recorded(sequence) else { continue };
            let name = format!("{} for {}", row.input.name(), row.key);
            let why = Why { detail: format!("sent with event {sequence} of the gate"), since };
            let subject = Subject::Message(sequence, ordinal);
            self.found.push(Wait::new(subject, name, None, by_word(reasons::MESSAGE), why));
        }
        Ok(())
    }
}

/// What is wrong with short work: it failed and is sent again, or nobody answers.
fn trouble(row: &PendingRow, now: Timestamp) -> Option<(&'static Reason, Why)> {
    let (kind, since) = (row.work.kind(), row.requested_at);
    if row.attempt > 1 {
        let again = match row.not_before > now {
            true => format!("is sent again at {}", row.not_before),
            false => "was sent again".to_owned(),
        };
        let failed = row.attempt - 1;
        let times = if failed == 1 { "once".to_owned() } else { format!("{failed} times") };
        return Some((by_word(reasons::RETRY), Why { detail: format!("{kind} failed {times} and {again}"), since }));
    }
    (now.millis_since(since) > TOLD_AFTER_MS)
        .then(|| (by_word(reasons::NO_ANSWER), Why { detail: format!("{kind} was sent and is not answered"), since }))
}

/// The key of the lease of an attempt of a build.
fn lease_of(tenant: &str, build: BuildId, attempt: u32) -> OwnerKey {
    let owner = build_owner(tenant, build, attempt);
    owner_key(owner.partition, &owner.subject)
}

fn key(subject: WaitSubject) -> gatelog_gate_state::live::WaitKey {
    gatelog_gate_state::live::WaitKey(subject)
}

fn named(row: &ItemRow) -> String {
    let one = row.subjects.first().map(|subject| {
        let project = subject.project.split_once('/').map_or(subject.project.as_str(), |(_, name)| name);
        format!("{project} {}", subject_name(subject))
    });
    format!("{} in {}", one.unwrap_or_default(), row.pipeline)
}

/// The reason for a word of the rules, of capacity or of this crate.
fn by_word(word: &str) -> &'static Reason {
    reason(word).unwrap_or(&reasons::OTHER)
}

#[cfg(test)]
mod tests;
