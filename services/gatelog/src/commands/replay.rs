//! `gatelog replay`: the queues as they were, and every decision made again.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use gatelog_effects::layout::LOADER;
use gatelog_event_log::Blobs;
use gatelog_gate_state::{Gate, GateLive};
use gatelog_record::{Domain, Partition, Stream, Timestamp};
use gatelog_replay::layouts::{LayoutDifference, LayoutsVerified, Loader, verify_layouts};
use gatelog_replay::{Moment, Redecided, Timeline};
use gatelog_store::{Layout as StoreLayout, RungDir};
use gatelog_tables::Maps;
use serde_json::{Value as Json, json};

use super::explain::moment;
use super::failure::{Code, Failure};
use super::log_cat::millis;
use super::output::Output;
use super::queues;
use super::site::{Site, Target};
use super::status;
use crate::cli::{Parts, ReplayVerifyArgs, SiteArgs, StateArgs};
use crate::show::{Paint, Style, clean};

/// Queues as somebody saw them.
pub struct Seen {
    /// Who saw them, and as of when.
    pub head: String,
    /// The moment up to which spans are counted, in milliseconds since 1970.
    pub now_ms: i64,
    /// The status document of each tenant.
    pub tenants: Vec<(String, Json)>,
    /// What has waited for more than a minute, by tenant; only a server knows.
    pub waits: BTreeMap<String, Json>,
}

/// `replay state`
pub fn state(site: &SiteArgs, args: &StateArgs) -> Result<ExitCode, Failure> {
    let tenant = args.tenant.as_deref();
    let seen = match site.target()? {
        Target::Url(client) => status::from_server(&client, tenant, Some(args.at))?,
        Target::Dir(site) => at_moment(&site, moment(Some(args.at)), tenant)?,
    };
    status::print(&seen, args.json)
}

/// What the gates of a site knew at a moment, from its log and rungs alone: `visit` sees each partition's tables, with when
/// its last event was recorded. Tells which moment that is.
pub fn gates_at(
    site: &Site,
    moment: Moment,
    mut visit: impl FnMut(&GateLive<Maps>, &dyn Blobs, Timestamp) -> Result<(), Failure>,
) -> Result<String, Failure> {
    let (log, blobs) = site.history()?;
    let mut partitions: Vec<Partition> = log
        .streams()?
        .into_iter()
        .filter_map(|stream| match stream {
            Stream::Events(partition) if partition.domain == Domain::Gate => Some(partition),
            _ => None,
        })
        .collect();
    partitions.sort();
    if partitions.is_empty() {
        partitions.push(Partition { domain: Domain::Gate, index: 0 });
    }
    let mut head = String::new();
    let mut moment = moment;
    for partition in partitions {
        let rungs = RungDir::new(StoreLayout::new(&site.dir().join("projections"), partition).rungs());
        let at = Timeline::<Gate>::new(Arc::clone(&log), partition, Some(rungs)).state_at(moment)?;
        let recorded_at = at.live.partition.place().map(|place| place.recorded_at).unwrap_or(Timestamp::ZERO);
        if head.is_empty() {
            head = match at.position.sequence {
                0 => format!("before the first event of {partition}"),
                sequence => format!("as of {partition} event {sequence}, {}", millis(recorded_at)),
            };
        }
        // A sequence is of the first partition; the others are shown as of its time.
        if let Moment::Sequence(_) = moment {
            moment = Moment::Time(recorded_at);
        }
        visit(&at.live, &*blobs, recorded_at)?;
    }
    Ok(head)
}

/// A site's queues at a moment, from its log and rungs alone.
pub fn at_moment(site: &Site, moment: Moment, tenant: Option<&str>) -> Result<Seen, Failure> {
    let mut seen = Seen { head: String::new(), now_ms: 0, tenants: Vec::new(), waits: BTreeMap::new() };
    seen.head = gates_at(site, moment, |live, blobs, recorded_at| {
        // Waits and builds go on until now, or were as long as they were then.
        let until = if moment == Moment::Newest { crate::clock::now() } else { recorded_at };
        seen.now_ms = seen.now_ms.max(until.0 / 1_000);
        tenants(live, blobs, tenant, &mut seen.tenants)
    })?;
    if let Some(tenant) = tenant
        && seen.tenants.is_empty()
    {
        return Err(Failure::new(Code::NotFound, format!("there was no tenant {tenant:?} ({})", seen.head)));
    }
    Ok(seen)
}

fn tenants(
    live: &GateLive<Maps>,
    blobs: &dyn Blobs,
    only: Option<&str>,
    into: &mut Vec<(String, Json)>,
) -> Result<(), Failure> {
    for name in queues::tenants(live)? {
        if only.is_none_or(|only| only == name) {
            let document = queues::document(live, blobs, &name)?;
            into.push((name, document));
        }
    }
    Ok(())
}

/// `replay verify`
pub fn verify(parts: &Parts, site: &SiteArgs, args: &ReplayVerifyArgs) -> Result<ExitCode, Failure> {
    let (log, blobs) = site.directory("replay verify")?.history()?;
    let domains = parts.domains.replay();
    let (mut done, mut layouts) = (Vec::new(), Vec::new());
    let loader = Loader { version: LOADER, schemas: crate::drivers::schemas() };
    let mut streams = log.streams()?;
    streams.sort();
    for stream in streams {
        let Stream::Events(partition) = stream else { continue };
        // Where nothing decides, nothing stands.
        if let Some(domain) = domains.of(partition.domain) {
            done.push((partition, domain.redecide(&*log, &*blobs, partition)?));
        }
        if partition.domain == Domain::Gate {
            layouts.push((partition, verify_layouts(&*log, &*blobs, partition, loader)?));
        }
    }
    let mut out = Output::new();
    let _ = if args.json {
        let partitions: Vec<Json> = done
            .iter()
            .map(|(partition, redecided)| {
                let mut json = serde_json::to_value(redecided).unwrap_or_default();
                json["partition"] = partition.to_string().into();
                json
            })
            .collect();
        let again: Vec<Json> = layouts
            .iter()
            .map(|(partition, made)| {
                let mut json = serde_json::to_value(made).unwrap_or_default();
                json["partition"] = partition.to_string().into();
                json
            })
            .collect();
        let same = done.iter().all(|(_, redecided)| redecided.difference.is_none())
            && layouts.iter().all(|(_, made)| made.difference.is_none());
        out.json(&json!({ "ok": same, "partitions": partitions, "layouts": again }))?
    } else {
        let style = Style::of_stdout();
        let lines: Vec<String> = done.iter().map(|(partition, redecided)| line(*partition, redecided, style)).collect();
        let made = layouts.iter().map(|(partition, made)| layout_line(*partition, made, style));
        out.lines(&lines.into_iter().chain(made).collect::<Vec<_>>())?
    };
    let _ = out.flush()?;
    let difference = done.iter().find_map(|(_, redecided)| redecided.difference.as_ref());
    let Some(difference) = difference else {
        let layout = layouts.iter().find_map(|(_, made)| made.difference.as_ref());
        let Some(LayoutDifference { partition, sequence, what, recorded, made }) = layout else {
            return Ok(ExitCode::SUCCESS);
        };
        let message = format!("{partition} event {sequence}: its {what} comes out otherwise when it is made again");
        let failure = Failure::new(Code::Diverged, message).detail(format!("recorded: {recorded}"));
        return Err(failure
            .detail(format!("made again: {made}"))
            .hint("this gatelog loads or freezes otherwise than the one that wrote the log"));
    };
    let at = format!("{} event {}", difference.partition, difference.sequence);
    let mut failure = Failure::new(Code::Diverged, format!("{at} comes out otherwise: {}", clean(&difference.what)))
        .detail(format!("the input at offset {} is {}", difference.input_offset, difference.input));
    let first = |values: &[Json]| values.first().map(ToString::to_string).unwrap_or_else(|| "nothing".to_owned());
    failure.detail.push(format!("recorded: {}", first(&difference.recorded)));
    failure.detail.push(format!("decided again: {}", first(&difference.decided)));
    Err(failure.hint("this gatelog decides otherwise than the one that wrote the log; --json has both decisions whole"))
}

fn line(partition: Partition, redecided: &Redecided, style: Style) -> String {
    let state = match &redecided.difference {
        None => style.paint(Paint::Green, "same"),
        Some(_) => style.paint(Paint::Red, "DIVERGED"),
    };
    let Redecided { decisions, events, as_recorded, sequence, .. } = redecided;
    let outside = match as_recorded {
        0 => String::new(),
        1 => " (one refusal for what a log or blob store said that day is taken as recorded)".to_owned(),
        many => format!(" ({many} refusals for what a log or blob store said that day are taken as recorded)"),
    };
    let partition = partition.to_string();
    format!("{partition:<12} {state}  {decisions} decisions with {events} events, up to event {sequence}{outside}")
}

fn layout_line(partition: Partition, made: &LayoutsVerified, style: Style) -> String {
    let state = match &made.difference {
        None => style.paint(Paint::Green, "same"),
        Some(_) => style.paint(Paint::Red, "DIVERGED"),
    };
    let older = match made.of_other_loaders {
        0 => String::new(),
        other => format!(" ({other} layouts of other versions of the loader are taken as recorded)"),
    };
    let LayoutsVerified { layouts, graphs, .. } = made;
    let partition = partition.to_string();
    format!("{partition:<12} {state}  {layouts} layouts and {graphs} job graphs made again{older}")
}

/// A text as one segment of a path or one value of a query.
pub fn path_segment(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}
