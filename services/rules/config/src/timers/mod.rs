//! Timers: which pipelines start by the calendar, for what, and when.

pub mod cron;

use std::collections::BTreeSet;

use gatelog_record::Value;

use crate::findings::Findings;
use crate::layout::Layout;
use crate::objects::Pipeline;
use crate::problem::{Problem, Severity, UNKNOWN};
use cron::TimerSpec;

/// The connection whose triggers are timers.
const CONNECTION: &str = "timer";

/// A timer: one branch of one project enters one pipeline at certain times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timer {
    /// The pipeline.
    pub pipeline: String,
    /// Canonical name of the project.
    pub project: String,
    /// The branch.
    pub branch: String,
    /// The `time` as it is written.
    pub time: String,
    /// What it says.
    pub spec: TimerSpec,
    /// Whether the branch's newest commit is part of the event, so that two events of a branch that moved are two items.
    pub dereference: bool,
}

/// How many seconds after the time it says a branch is due, from 0 to the jitter: the same on every machine and after
/// every start, as long as tenant, project and branch are called the same. Zuul: drawn once for these three.
pub fn delay(tenant: &str, project: &str, branch: &str, jitter: u32) -> u32 {
    // FNV-1a: any function that spreads names will do.
    let bytes = [tenant, project, branch].into_iter().flat_map(|text| text.bytes().chain([0]));
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // The upper half is the better mixed one.
    u32::try_from((hash >> 32) % (u64::from(jitter) + 1)).unwrap_or(0)
}

/// The timers of a tenant. Zuul: every branch that is loaded of every project that names the pipeline, in a stanza for
/// whatever branch or in a template: which jobs there are is found out when it fires.
pub fn of_layout(layout: &Layout) -> Vec<Timer> {
    let mut timers = Vec::new();
    for pipeline in layout.pipelines_in_order() {
        let specs: Vec<(&str, TimerSpec, bool)> = times(pipeline)
            .filter_map(|(time, dereference)| Some((time, TimerSpec::parse(time).ok()?, dereference)))
            .collect();
        if specs.is_empty() {
            continue;
        }
        for project in layout.projects.values().filter(|project| names(layout, &project.canonical_name, pipeline)) {
            let mut seen = BTreeSet::new();
            for branch in &project.branches {
                // The same text twice is one timer.
                let fresh = specs.iter().filter(|(time, _, dereference)| seen.insert((branch, *time, *dereference)));
                timers.extend(fresh.map(|(time, spec, dereference)| Timer {
                    pipeline: pipeline.name.clone(),
                    project: project.canonical_name.clone(),
                    branch: branch.clone(),
                    time: (*time).to_owned(),
                    spec: spec.clone(),
                    dereference: *dereference,
                }));
            }
        }
    }
    timers
}

/// Each `time` of a pipeline, with its `dereference`.
pub fn times(pipeline: &Pipeline) -> impl Iterator<Item = (&str, bool)> {
    pipeline.filters(CONNECTION).iter().filter_map(|filter| {
        let dereference = filter.get("dereference").and_then(Value::as_bool).unwrap_or(false);
        Some((filter.get("time").and_then(Value::as_str)?, dereference))
    })
}

fn names(layout: &Layout, project: &str, pipeline: &Pipeline) -> bool {
    let stanzas = layout.stanzas.get(project).map_or(&[][..], Vec::as_slice);
    stanzas.iter().any(|stanza| {
        let mut templates = stanza.templates.iter().filter_map(|name| layout.templates.get(name)).flatten();
        stanza.pipelines.contains_key(&pipeline.name)
            || templates.any(|template| template.pipelines.contains_key(&pipeline.name))
    })
}

/// Times that cannot be read. The pipeline is there all the same, and the timer does not fire.
pub(crate) fn check(layout: &Layout, findings: &mut Findings) {
    for pipeline in layout.pipelines_in_order() {
        for (time, _) in times(pipeline) {
            let Err(error) = TimerSpec::parse(time) else { continue };
            findings.begin();
            let message = format!("the timer `{time}` of the pipeline \"{}\" never fires: {error}", pipeline.name);
            let problem = Problem::new(Severity::Warning, TIMER_INVALID, UNKNOWN, pipeline.place.clone(), message);
            findings.push(problem.about("trigger").cure("the fields are minute, hour, day of month, month, weekday (0 is Monday), and if wanted seconds and jitter"));
        }
    }
}

/// The code of a `time` that cannot be read. Zuul says so in its log alone.
pub(crate) const TIMER_INVALID: &str = "timer-invalid";
