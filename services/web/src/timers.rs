//! The timers of a tenant: which branches enter which pipelines by the calendar, and when next.

use std::collections::BTreeMap;
use std::ops::Bound;

use gatelog_calendar::{Next, Told, next_of};
use gatelog_gate_state::live::{GateLive, TimerKey, TimerRow, Timers};
use gatelog_record::Timestamp;
use gatelog_record::draft::gate::TimerName;
use gatelog_rules_config::timers::cron::TimerSpec;
use gatelog_rules_config::timers::times;
use gatelog_tables::{Backing, Table};

use crate::answers::{Timer, TimerBranch};
use crate::error::ApiError;
use crate::reading::{Live, Reading};
use crate::shape::ms;

/// One branch of a timer.
type Branch = (TimerName, TimerRow);

/// `timers`: for each `time` of each pipeline, when it is due next, and for which branches. Times are those after the
/// moment that is asked about; one before it is late.
pub(crate) fn timers(reading: &Reading<'_>, tenant: &str) -> Result<Vec<Timer>, ApiError> {
    reading.need_tenant(tenant)?;
    let rows = match reading.live() {
        Live::Now(live) => rows(live, tenant)?,
        Live::Then(live) => rows(&*live, tenant)?,
    };
    let mut groups: BTreeMap<(String, String, bool), Vec<Branch>> = BTreeMap::new();
    for (timer, row) in rows {
        let group = (timer.pipeline.clone(), timer.time.clone(), timer.dereference);
        groups.entry(group).or_default().push((timer, row));
    }
    let zone = reading.app.site.calendar.zone();
    let groups = groups.into_iter().map(|((pipeline, time, dereference), branches)| {
        let spec = TimerSpec::parse(&time).ok();
        let next = |branch: &Branch| next(reading, tenant, spec.as_ref(), branch);
        let told = |branch: &Branch| TimerBranch {
            project: branch.0.project.clone(),
            branch: branch.0.branch.clone(),
            next_ms: next(branch).map(ms),
            last_ms: branch.1.last.map(ms),
            since_ms: ms(branch.1.since),
            ticks: branch.1.count,
        };
        Timer {
            next_ms: branches.iter().filter_map(next).min().map(ms),
            last_ms: branches.iter().filter_map(|(_, row)| row.last).max().map(ms),
            branches: branches.iter().map(told).collect(),
            jitter: spec.as_ref().map_or(0, |spec| spec.jitter),
            pipeline,
            time,
            time_zone: zone.to_owned(),
            dereference,
        }
    });
    Ok(groups.collect())
}

/// When a branch of a timer is due next, its jitter included.
fn next(reading: &Reading<'_>, tenant: &str, spec: Option<&TimerSpec>, branch: &Branch) -> Option<Timestamp> {
    let (spec, (timer, row)) = (spec?, branch);
    let told = Told { since: row.since, last: row.last };
    match next_of(&reading.app.site.calendar, spec, (tenant, timer), told, reading.now) {
        Next::Due(tick) => Some(tick.due),
        Next::At(moment) => Some(moment),
        Next::Never => None,
    }
}

/// Of each pipeline with timers, the `time` that is due next, and when, jitter left out.
pub(crate) fn next_of_pipelines(
    reading: &Reading<'_>,
    tenant: &str,
) -> Result<BTreeMap<String, (String, Timestamp)>, ApiError> {
    let Some(layout) = reading.layout(tenant)? else { return Ok(BTreeMap::new()) };
    let calendar = &reading.app.site.calendar;
    let next = |time: &str| {
        let next = calendar.next_after(&TimerSpec::parse(time).ok()?, reading.now)?;
        Some((next, time.to_owned()))
    };
    let next = layout.pipelines_in_order().filter_map(|pipeline| {
        let (at, time) = times(pipeline).filter_map(|(time, _)| next(time)).min()?;
        Some((pipeline.name.clone(), (time, at)))
    });
    Ok(next.collect())
}

fn rows<B: Backing>(live: &GateLive<B>, tenant: &str) -> Result<Vec<Branch>, ApiError> {
    let first = TimerKey::first_of(tenant);
    let mut found = Vec::new();
    for entry in Table::<Timers>::range(&live.gate.timers, Bound::Included(&first), Bound::Unbounded)? {
        let (key, row) = entry?;
        if key.tenant != tenant {
            break;
        }
        found.push((key.timer, *row));
    }
    Ok(found)
}
