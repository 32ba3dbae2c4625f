//! Autoholds: nodes of builds that fail are kept for people to look at.

use std::ops::Bound;

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::{AutoholdRow, BuildRow};
use gatelog_record::BuildId;
use gatelog_record::draft::capacity::{LeaseHoldAsked, LeaseLost};
use gatelog_record::draft::gate::{
    AutoholdAsked, AutoholdDeleteAsked, AutoholdEnded, AutoholdSet, BuildResult, HoldEnded, NodesHeld, build_owner,
};
use gatelog_record::event::GateEvent;
use gatelog_rules_config::regexes::{Anchor, Pattern, Verdict};

use crate::decision::Decision;
use crate::work::hold_timer;

/// How many requests a tenant may have.
const MAX_REQUESTS: usize = 1_000;
/// For how many builds one request may keep nodes.
const MAX_COUNT: u32 = 1_000;
/// The longest regular expression for refs, in bytes.
const MAX_FILTER: usize = 1_000;
/// The longest that nodes are kept, in seconds: ten years.
const MAX_EXPIRATION: u64 = 315_360_000;

/// How much a request says of the refs it is for. Zuul: job, change, ref.
fn precision(ref_filter: &str) -> u8 {
    match ref_filter {
        ".*" => 0,
        _ if ref_filter.ends_with(".*") => 1,
        _ => 2,
    }
}

fn pattern(ref_filter: &str) -> Pattern {
    Pattern::new(ref_filter, false, Anchor::Start)
}

/// What is wrong with a request: a code and a sentence with the cure.
fn wrong(asked: &AutoholdAsked) -> Option<(&'static str, String)> {
    if asked.count == 0 || asked.count > MAX_COUNT {
        let message = format!("nodes of {} builds are to be kept: ask for 1 to {MAX_COUNT}", asked.count);
        return Some(("bad-count", message));
    }
    if asked.node_expiration > MAX_EXPIRATION {
        let message = format!(
            "nodes are to be kept for {} seconds: ask for at most {MAX_EXPIRATION}, or for 0, which is without end",
            asked.node_expiration
        );
        return Some(("bad-expiration", message));
    }
    if asked.ref_filter.len() > MAX_FILTER {
        let message = format!("the filter for refs has more than {MAX_FILTER} bytes: make it shorter");
        return Some(("bad-ref-filter", message));
    }
    if let Verdict::Invalid(why) = pattern(&asked.ref_filter).check() {
        let message = format!("the filter for refs is no regular expression: {why}");
        return Some(("bad-ref-filter", message));
    }
    None
}

impl Decision<'_> {
    fn requests(&self, tenant: &str) -> impl Iterator<Item = (u64, &AutoholdRow)> {
        let (from, to) = ((tenant.to_owned(), 0), (tenant.to_owned(), u64::MAX));
        let rows = self.gate().autoholds.rows(Bound::Included(&from), Bound::Included(&to));
        rows.map(|((_, request), row)| (*request, row))
    }

    /// Somebody asks that nodes of a job's builds be kept when they fail.
    pub(crate) fn autohold_asked(&mut self, asked: &AutoholdAsked) -> Result<(), Refusal> {
        let Some(row) = self.tenant(&asked.tenant) else { return self.nothing("no-such-tenant") };
        if row.project(&asked.project).is_none() {
            return self.nothing("project-not-in-tenant");
        }
        if let Some((code, message)) = wrong(asked) {
            return self.refuse(code, message, "gate.in.autohold-asked");
        }
        if self.requests(&asked.tenant).count() >= MAX_REQUESTS {
            let message = format!("the tenant has {MAX_REQUESTS} requests to keep nodes: delete one first");
            return self.refuse("too-many-requests", message, "gate.in.autohold-asked");
        }
        let request = self.deciding.input_sequence;
        self.emit(GateEvent::AutoholdSet(AutoholdSet { request, asked: asked.clone() }))
    }

    /// Somebody asks that a request be deleted: what it keeps is let go.
    pub(crate) fn autohold_delete_asked(&mut self, asked: &AutoholdDeleteAsked) -> Result<(), Refusal> {
        let (tenant, request) = (asked.tenant.as_str(), asked.request);
        let Some(row) = self.gate().autoholds.row(&(tenant.to_owned(), request)) else {
            return self.nothing("no-such-request");
        };
        for one in row.held.clone() {
            self.end_hold(tenant, request, (one.build, one.attempt), "hold-deleted", true)?;
        }
        let detail = if asked.reason.is_empty() { "Deleted on request." } else { asked.reason.as_str() };
        self.emit(GateEvent::AutoholdEnded(AutoholdEnded {
            tenant: tenant.to_owned(),
            request,
            code: "deleted".into(),
            detail: detail.into(),
        }))
    }

    /// The request by which the nodes of a build that has its result are kept. Zuul: the one that says most of its
    /// refs, of several such the newest; one that is used up no longer counts.
    fn request_for(&self, row: &BuildRow) -> Option<u64> {
        let failed = [BuildResult::Failure, BuildResult::RetryLimit, BuildResult::PostFailure, BuildResult::TimedOut];
        if !row.result.is_some_and(|result| failed.contains(&result)) || row.nodes().is_empty() {
            return None;
        }
        let item = self.item(row.item)?;
        let changes = &row.job.traits.changes;
        let own = |(index, _): &(usize, _)| {
            changes.is_empty() || u32::try_from(*index).is_ok_and(|index| changes.contains(&index))
        };
        let subjects: Vec<_> = item.subjects.iter().enumerate().filter(own).map(|(_, one)| one).collect();
        let fits = |(_, request): &(u64, &AutoholdRow)| {
            let asked = &request.asked;
            asked.job == row.job.name
                && !request.used_up()
                && subjects
                    .iter()
                    .any(|one| one.project == asked.project && pattern(&asked.ref_filter).matches(&one.git_ref))
        };
        let found = self.requests(&row.tenant).filter(fits);
        found.max_by_key(|(number, request)| (precision(&request.asked.ref_filter), *number)).map(|(number, _)| number)
    }

    /// An attempt is over: its nodes are kept if somebody asked for that. Says whether they are.
    pub(crate) fn hold_nodes(&mut self, build: BuildId, attempt: u32) -> Result<bool, Refusal> {
        let Some(row) = self.build(build) else { return Ok(false) };
        let Some(request) = self.request_for(row) else { return Ok(false) };
        let (tenant, item, buildset) = (row.tenant.clone(), row.item, row.buildset);
        let Some(by) = self.gate().autoholds.row(&(tenant.clone(), request)) else { return Ok(false) };
        let seconds = i64::try_from(by.asked.node_expiration).unwrap_or(i64::MAX);
        let until = (seconds > 0).then(|| self.now().plus_seconds(seconds));
        let (count, reason) = (by.count.saturating_add(1), by.asked.reason.clone());
        let hold = LeaseHoldAsked { owner: build_owner(&tenant, build, attempt), until, request, reason };
        let held = NodesHeld { tenant: tenant.clone(), request, item, buildset, build, attempt, hold, count };
        self.emit(GateEvent::NodesHeld(held))?;
        if let Some(until) = until {
            self.set_timer(hold_timer(&tenant), until)?;
        }
        Ok(true)
    }

    /// The time of some nodes is up.
    pub(crate) fn holds_due(&mut self, tenant: &str) -> Result<(), Refusal> {
        let now = self.now();
        let held: Vec<_> = self
            .requests(tenant)
            .flat_map(|(request, row)| row.held.iter().map(move |one| (request, one)))
            .filter_map(|(request, one)| Some((request, one.hold.until?, (one.build, one.attempt))))
            .collect();
        for (request, _, of) in held.iter().filter(|(_, until, _)| *until <= now) {
            self.end_hold(tenant, *request, *of, "hold-expired", true)?;
            self.used_up(tenant, *request)?;
        }
        match held.iter().map(|(_, until, _)| *until).filter(|until| *until > now).min() {
            Some(next) => self.set_timer(hold_timer(tenant), next),
            None => Ok(()),
        }
    }

    /// Capacity lost a lease: if it was kept, there is nothing left to keep. Says whether it was.
    pub(crate) fn hold_lost(&mut self, lost: &LeaseLost, of: (BuildId, u32)) -> Result<bool, Refusal> {
        let tenant = &lost.owner.key;
        let found = self
            .requests(tenant)
            .find(|(_, row)| row.held.iter().any(|one| (one.build, one.attempt) == of))
            .map(|(request, _)| request);
        let Some(request) = found else { return Ok(false) };
        self.end_hold(tenant, request, of, &lost.code, false)?;
        self.used_up(tenant, request)?;
        Ok(true)
    }

    fn end_hold(
        &mut self,
        tenant: &str,
        request: u64,
        (build, attempt): (BuildId, u32),
        code: &str,
        tell: bool,
    ) -> Result<(), Refusal> {
        let (tenant, code) = (tenant.to_owned(), code.to_owned());
        self.emit(GateEvent::HoldEnded(HoldEnded { tenant, request, build, attempt, code, tell }))
    }

    /// A request that kept the nodes of as many builds as were asked for, and keeps none any more, is done.
    fn used_up(&mut self, tenant: &str, request: u64) -> Result<(), Refusal> {
        let row = self.gate().autoholds.row(&(tenant.to_owned(), request));
        if !row.is_some_and(|row| row.used_up() && row.held.is_empty()) {
            return Ok(());
        }
        self.emit(GateEvent::AutoholdEnded(AutoholdEnded {
            tenant: tenant.to_owned(),
            request,
            code: "used-up".into(),
            detail: "The nodes of as many builds as asked for were kept, and let go.".into(),
        }))
    }
}
