//! The whole story of an item, event by event.

use std::collections::BTreeSet;

use gatelog_gate_state::history::{BuildEntry, FrozenEntry, Held, ItemEntry, Moment, PreparedEntry, WaitEntry};
use gatelog_record::draft::gate::{SubmitOutcome, TriggerCause, WaitSubject};
use gatelog_record::{ActorId, BuildId, ItemId};

use maud::html;

use super::buildset::{self, standing};
use super::frame::{Content, Frame, Tab, address};
use super::gantt::{self, Grants};
use super::html::{Html, Piece, segment};
use super::parts::{self, crumbs, facts, refs_table, subjects, subjects_text};
use super::words::{self, Stand, lower, took};
use crate::builds::id;
use crate::error::ApiError;
use crate::reading::Reading;
use crate::shape::{ms, queue_name};

/// How many events are looked at: those of other items stand among them.
const LOOKED_AT: usize = 20_000;
/// How many are read at once.
const AHEAD: usize = 1_024;
/// How long after its end reports of an item may still be answered, in events.
const AFTERWARDS: usize = 2_000;

struct Story<'a> {
    reading: &'a Reading<'a>,
    frame: &'a Frame,
    item: ItemId,
    waits: Vec<Held<WaitEntry>>,
    rows: Html,
    count: usize,
}

/// An item of a tenant.
pub(crate) fn find(reading: &Reading<'_>, tenant: &str, uuid: &str) -> Result<(ItemId, ItemEntry), ApiError> {
    reading.need_tenant(tenant)?;
    let item: ItemId = id(uuid)?;
    match reading.history().item(item, reading.at)? {
        Some(entry) if entry.tenant == tenant => Ok((item, entry)),
        _ => Err(ApiError::NotFound(format!("tenant {tenant} has no item {item}"))),
    }
}

/// The jobs of the item's newest buildset: how far they are, and when each ran.
fn jobs(
    reading: &Reading<'_>,
    frame: &Frame,
    tenant: &str,
    entry: &ItemEntry,
    grants: &Grants,
) -> Result<Html, ApiError> {
    let Some(set) = entry.buildset else { return Ok(Html::default()) };
    let Some(row) = reading.history().buildset(set, reading.at)? else { return Ok(Html::default()) };
    let builds = buildset::builds_of(reading, &row)?;
    if builds.is_empty() {
        return Ok(Html::default());
    }
    Ok(html! {
        (buildset::progress(reading, frame, tenant, &row, &builds)?)
        section class="card" {
            header class="row" {
                h2 { "Jobs" }
                a class="end small" href=(frame.to(&format!("/buildset/{set}"))) {
                    "graph, reports, explanations"
                }
            }
            (gantt::draw(reading, frame, tenant, &row, &builds, grants)?)
        }
    })
}

pub(crate) fn page(
    reading: &Reading<'_>,
    frame: &Frame,
    tenant: &str,
    uuid: &str,
    grants: &Grants,
) -> Result<Content, ApiError> {
    let (item, entry) = find(reading, tenant, uuid)?;
    let badge = match &entry.end {
        Some(end) => words::result_badge(end.result.word()),
        None if !entry.failing.is_empty() => Stand::Bad.badge("failing"),
        None => Stand::Running.badge("in the queue"),
    };
    let mut main = html! {
        (crumbs(&[
            (frame.to("/status"), html! { (entry.pipeline) }),
            (frame.to_with("/buildsets", &[("queue_item_uuid", uuid)]), html! { "its buildsets" }),
        ]))
        div class="head" { h1 { (subjects(&entry)) } (badge) }
    };
    let end = entry.end.as_ref();
    let length = match end {
        Some(end) => html! { span class="num" { (took(end.at.millis_since(entry.enqueued_at))) } },
        None => words::since(ms(entry.enqueued_at), frame.clock_ms()),
    };
    main.add(facts(&[
        ("Pipeline", html! { (entry.pipeline) }),
        ("Queue", html! { (queue_name(&entry.queue, entry.subjects.first())) }),
        ("Entered", words::moment(entry.enqueued_at)),
        ("There for", length),
        (
            "Begun anew",
            match entry.resets.len() {
                0 => Html::default(),
                resets => html! { (words::many(resets, "time", "times")) },
            },
        ),
        (
            "Buildset",
            entry.buildset.map_or_else(Html::default, |set| {
                html! {
                    a href=(frame.to(&format!("/buildset/{set}"))) {
                        @if end.is_some() { "the last one" } @else { "the current one" }
                    }
                }
            }),
        ),
    ]));
    for reason in &entry.failing {
        main.add(html! { p class="card bad-edge" { (Stand::Bad.mark()) " " (reason) } });
    }
    if let Some(wait) = reading.history().wait(&WaitSubject::Item(item), reading.at)? {
        main.add(html! {
            p class="card note" {
                span class="mark waiting" aria-hidden="true" { "◌" }
                " "
                code { (wait.code.word()) }
                " "
                (wait.detail)
                " "
                span class="muted" {
                    "for "
                    (words::since(ms(wait.since), frame.clock_ms()))
                    " · goes on with: "
                    (wait.unblocks)
                }
            }
        });
    }
    main.add(jobs(reading, frame, tenant, &entry, grants)?);
    let waits = reading.history().waits(&WaitSubject::Item(item), reading.at)?;
    let mut story = Story { reading, frame, item, waits, rows: Html::default(), count: 0 };
    let whole = story.tell(&entry)?;
    main.add(html! {
        section class="card tale" {
            header {
                h2 { "Its story " span class="muted small" { (words::many(story.count, "event", "events")) } }
                label class="end small" {
                    input type="checkbox" id="steps" autocomplete="off" checked data-keep="all";
                    " small steps too"
                }
            }
            ol class="story" { (story.rows) }
            @if !whole { p class="muted" { "There is more: so many events lie between that not all were looked at." } }
        }
    });
    main.add(html! { section class="card" { (refs_table(frame, &entry)) } });
    Ok(Content {
        title: format!("{} in {}", subjects_text(&entry), entry.pipeline),
        tab: Tab::Status,
        kind: "item",
        main,
        item: Some(item),
        live: end.is_none(),
    })
}

impl Story<'_> {
    /// Tells every event of the item; says whether that was all.
    fn tell(&mut self, entry: &ItemEntry) -> Result<bool, ApiError> {
        let (mut last, mut looked_at, mut since_end) = (entry.enqueued.saturating_sub(1), 0_usize, None::<usize>);
        let mut builds: BTreeSet<BuildId> = BTreeSet::new();
        while looked_at < LOOKED_AT && since_end.is_none_or(|since| since < AFTERWARDS) {
            let moments = self.reading.history().moments_after(last, AHEAD)?;
            if moments.is_empty() {
                return Ok(true);
            }
            for (sequence, moment) in moments {
                if sequence > self.reading.at {
                    return Ok(true);
                }
                (last, looked_at) = (sequence, looked_at + 1);
                if let Some(since) = &mut since_end {
                    *since += 1;
                }
                let own = moment.item == Some(self.item);
                if !own && !moment.build.is_some_and(|build| builds.contains(&build)) {
                    continue;
                }
                let kind = words::kind(moment.kind);
                if own && kind == "frozen" {
                    let set = self.as_of(sequence)?.and_then(|item| item.buildset);
                    if let Some(set) = set
                        && let Some(row) = self.reading.history().buildset(set, sequence)?
                    {
                        builds.extend(row.builds);
                    }
                }
                builds.extend(moment.build.filter(|_| own));
                self.event(sequence, &moment, kind)?;
                if kind == "item-dequeued" {
                    since_end = Some(0);
                }
            }
        }
        Ok(since_end.is_some())
    }

    fn as_of(&self, sequence: u64) -> Result<Option<ItemEntry>, ApiError> {
        Ok(self.reading.history().item(self.item, sequence)?)
    }

    fn build(&self, build: Option<BuildId>, sequence: u64) -> Result<Option<(BuildId, BuildEntry)>, ApiError> {
        let Some(build) = build else { return Ok(None) };
        Ok(self.reading.history().build(build, sequence)?.map(|entry| (build, entry)))
    }

    fn job(&self, build: Option<&(BuildId, BuildEntry)>) -> Html {
        build.map_or_else(Html::default, |(id, entry)| {
            html! { a href=(self.frame.to(&format!("/build/{id}"))) { (entry.job) } }
        })
    }

    /// Who asked for the item, and why, where somebody did.
    fn asked(&self, trigger: Option<u64>, sequence: u64) -> Result<Html, ApiError> {
        let Some(trigger) = trigger else { return Ok(Html::default()) };
        let entry = self.reading.history().trigger(trigger, sequence)?;
        Ok(match entry.as_ref().map(|entry| (&entry.cause, entry.actor)) {
            Some((TriggerCause::Asked(asked), actor)) => {
                let reason = if asked.reason.is_empty() { String::new() } else { format!(" ({})", asked.reason) };
                html! { (reason) (self.by(actor)) }
            }
            _ => Html::default(),
        })
    }

    /// Who asked, where somebody did.
    fn by(&self, actor: ActorId) -> Html {
        if actor == ActorId::SYSTEM {
            return Html::default();
        }
        let name = self.reading.app.site.operators.name_of(actor);
        html! {
            " "
            span class="muted" {
                "by "
                (name.unwrap_or_else(|| format!("actor {}", actor.to_string().get(..8).unwrap_or_default())))
            }
        }
    }

    fn event(&mut self, sequence: u64, moment: &Moment, kind: &'static str) -> Result<(), ApiError> {
        let Some((stand, title, detail, minor)) = self.words(sequence, moment, kind)? else { return Ok(()) };
        self.count += 1;
        let tenant = self.frame.tenant.as_deref().unwrap_or_default();
        let path = format!("/t/{}/item/{}", segment(tenant), self.item);
        let sequence_text = sequence.to_string();
        let here = address(&path, std::iter::once(("at", sequence_text.as_str())));
        self.rows.add(html! {
            li class={ (stand.class()) (if minor { " minor" } else { "" }) } data-key={ "e" (sequence) } {
                a class="seq num" href=(here) title="the site as of this event" { (sequence) }
                (stand.mark())
                span class="when" { (words::clock(moment.at)) }
                div {
                    b { (title) }
                    " "
                    (detail)
                    @if kind == "item-dequeued" || kind == "item-reset" { (self.by(moment.actor)) }
                }
            }
        });
        Ok(())
    }

    /// An event in words: how it stands, what it is, more of it, and whether it is only a step on the way.
    fn words(
        &self,
        sequence: u64,
        moment: &Moment,
        kind: &'static str,
    ) -> Result<Option<(Stand, Html, Html, bool)>, ApiError> {
        let history = self.reading.history();
        let item = self.as_of(sequence)?;
        let build = self.build(moment.build, sequence)?;
        let set = match item.as_ref().and_then(|item| item.buildset) {
            Some(id) => history.buildset(id, sequence)?.map(|row| (id, row)),
            None => None,
        };
        let told = match kind {
            "item-enqueued" => {
                let item = item.as_ref();
                let detail = html! {
                    "into "
                    (item.map_or("", |item| &item.pipeline))
                    ", queue "
                    (item.map_or("", |item| queue_name(&item.queue, item.subjects.first())))
                    (item.map_or_else(String::new, |item| format!(": {}", item.reason)))
                    (self.asked(item.and_then(|item| item.trigger), sequence)?)
                };
                (Stand::Running, html! { "Enqueued" }, detail, false)
            }
            "buildset-opened" => {
                let detail = set.as_ref().map_or_else(Html::default, |(id, row)| {
                    let ahead = match row.ahead.len() {
                        0 => "on top of its branch alone".to_owned(),
                        count => format!("on top of {} ahead", words::many(count, "item", "items")),
                    };
                    html! { a href=(self.frame.to(&format!("/buildset/{id}"))) { "buildset" } " " (ahead) }
                });
                (Stand::Running, html! { "Buildset opened" }, detail, false)
            }
            "prepare-requested" => (Stand::Waiting, html! { "Merging asked for" }, Html::default(), true),
            "prepared" => match set.as_ref().and_then(|(_, row)| row.prepared.as_ref()) {
                Some(PreparedEntry::Conflict { subject, paths, message }) => (
                    Stand::Bad,
                    html! { "It does not merge" },
                    html! { (parts::subject(subject)) ": " (message) " " (paths.join(", ")) },
                    false,
                ),
                Some(PreparedEntry::Failed { code, message }) => {
                    (Stand::Bad, html! { "It could not be prepared" }, html! { code { (code) } " " (message) }, false)
                }
                Some(PreparedEntry::Merged { branches }) => {
                    let mut detail = Html::default();
                    for branch in branches {
                        detail.add(html! {
                            (crate::shape::short(&branch.at.project))
                            " "
                            (branch.at.branch)
                            " at "
                            (words::shortened(&branch.commit))
                            " "
                        });
                    }
                    (Stand::Good, html! { "Merged speculatively" }, detail, false)
                }
                None => (Stand::Good, html! { "Prepared" }, Html::default(), false),
            },
            "layout-wanted" => (Stand::Waiting, html! { "Its own configuration asked for" }, Html::default(), true),
            "layout-ready" => (Stand::Good, html! { "Its own configuration read" }, Html::default(), false),
            "freeze-wanted" => (Stand::Waiting, html! { "Choosing jobs" }, Html::default(), true),
            "frozen" => match set.as_ref().and_then(|(_, row)| row.frozen.as_ref()) {
                Some(FrozenEntry::Refused { message, .. }) => {
                    (Stand::Bad, html! { "The configuration is wrong for it" }, html! { (message) }, false)
                }
                Some(FrozenEntry::Failed { code, message }) => {
                    (Stand::Bad, html! { "No jobs could be chosen" }, html! { code { (code) } " " (message) }, false)
                }
                Some(FrozenEntry::NoJobs { .. }) => {
                    (Stand::Quiet, html! { "No job is to run" }, Html::default(), false)
                }
                _ => {
                    let mut detail = Html::default();
                    if let Some((id, row)) = &set {
                        for (number, build) in row.builds.iter().enumerate() {
                            let Some(entry) = history.build(*build, sequence)? else { continue };
                            detail.add(html! {
                                @if number > 0 { ", " }
                                a href=(parts::why(self.frame, &id.to_string(), &entry.job)) title="why" {
                                    (entry.job)
                                }
                            });
                        }
                    }
                    (Stand::Good, html! { "Jobs chosen" }, detail, false)
                }
            },
            "lease-wanted" => {
                let attempts = build.as_ref().map_or(0, |(_, entry)| entry.attempts.len());
                let detail = html! { (self.job(build.as_ref())) " attempt " (attempts) };
                (Stand::Waiting, html! { "Worker asked for" }, detail, true)
            }
            "lease-end-wanted" => {
                let reason = build.as_ref().and_then(|(_, entry)| entry.attempt()?.let_go.as_ref());
                let reason = reason.map_or("", |(reason, _)| reason);
                (Stand::Quiet, html! { "Worker let go" }, html! { (self.job(build.as_ref())) " " (reason) }, true)
            }
            "build-started" => {
                let attempt = build.as_ref().and_then(|(_, entry)| entry.attempt());
                let detail = html! {
                    (self.job(build.as_ref()))
                    " on "
                    (attempt.and_then(|attempt| attempt.worker.as_deref()).unwrap_or("?"))
                    ", attempt "
                    (attempt.map_or(0, |attempt| attempt.attempt))
                };
                (Stand::Running, html! { "Job started" }, detail, false)
            }
            "build-finished" => {
                let attempt = build.as_ref().and_then(|(_, entry)| entry.attempt());
                let result = attempt.and_then(|attempt| attempt.result).map_or("ERROR", |result| result.word());
                let span = attempt.and_then(|attempt| Some(attempt.finished_at?.millis_since(attempt.started_at?)));
                let detail = html! {
                    (self.job(build.as_ref()))
                    ": "
                    (lower(result))
                    (span.map_or_else(String::new, |span| format!(" after {}", took(span))))
                    " "
                    (attempt.and_then(|attempt| attempt.detail.as_deref()).unwrap_or_default())
                };
                (Stand::of_result(result), html! { "Job ended" }, detail, false)
            }
            "build-settled" => {
                let (stand, word) = build.as_ref().map_or((Stand::Quiet, String::new()), |(_, entry)| standing(entry));
                let why = build.as_ref().map(|(_, entry)| {
                    (entry.settled.clone().unwrap_or_default(), entry.detail.clone().unwrap_or_default())
                });
                let (code, text) = why.unwrap_or_default();
                let detail = html! { (self.job(build.as_ref())) ": " (word) " " code { (code) } " " (text) };
                (stand, html! { "Job settled" }, detail, false)
            }
            "item-failing" => {
                let reasons = item.as_ref().map(|item| item.failing.join("; ")).unwrap_or_default();
                if reasons.is_empty() {
                    (Stand::Running, html! { "No longer failing" }, Html::default(), false)
                } else {
                    (Stand::Bad, html! { "Failing" }, html! { (reasons) }, false)
                }
            }
            "item-reset" => {
                let reset = item.as_ref().and_then(|item| item.resets.iter().find(|reset| reset.sequence == sequence));
                let detail = reset.map_or_else(Html::default, |reset| {
                    let set = reset.buildset.map_or_else(Html::default, |set| {
                        html! {
                            " "
                            a href=(self.frame.to(&format!("/buildset/{set}"))) { "what was given up" }
                        }
                    });
                    html! { code { (reset.code) } " " (reset.detail) (set) }
                });
                (Stand::Warn, html! { "Begun anew" }, detail, false)
            }
            "wait-changed" => return self.wait(sequence, build.as_ref()),
            "submit-requested" => {
                let mut detail = Html::default();
                if let Some(submit) = item.as_ref().and_then(|item| item.submits.last()) {
                    for target in &submit.targets {
                        detail.add(html! {
                            (crate::shape::short(&target.at.project))
                            " "
                            (target.at.branch)
                            " from "
                            (words::shortened(&target.tested_base))
                            " to "
                            (words::shortened(&target.tested_commit))
                            " "
                        });
                    }
                }
                (Stand::Running, html! { "Merging what was tested" }, detail, false)
            }
            "submitted" => {
                let outcome = item.as_ref().and_then(|item| item.submits.last()?.outcome.clone());
                match outcome {
                    Some(SubmitOutcome::Merged) => (Stand::Good, html! { "Merged" }, Html::default(), false),
                    Some(SubmitOutcome::BaseMoved { at, expected, found }) => {
                        let detail = html! {
                            (crate::shape::short(&at.project))
                            " "
                            (at.branch)
                            " was to be at "
                            (words::shortened(&expected))
                            " and is at "
                            (found.as_deref().map_or_else(|| html! { "nothing" }, words::shortened))
                        };
                        (Stand::Warn, html! { "The branch has moved" }, detail, false)
                    }
                    Some(SubmitOutcome::Refused { code, message }) => {
                        (Stand::Bad, html! { "Merging was refused" }, html! { code { (code) } " " (message) }, false)
                    }
                    Some(SubmitOutcome::Failed { code, message, .. }) => {
                        (Stand::Bad, html! { "Merging failed" }, html! { code { (code) } " " (message) }, false)
                    }
                    None => (Stand::Quiet, html! { "Merging answered" }, Html::default(), false),
                }
            }
            "report-requested" | "report-delivered" => return self.report(sequence, kind),
            "item-dequeued" => {
                let end = item.as_ref().and_then(|item| item.end.as_ref());
                let stand = end.map_or(Stand::Quiet, |end| Stand::of_result(end.result.word()));
                let detail = end.map_or_else(Html::default, |end| {
                    html! { (lower(end.result.word())) " " code { (end.code) } " " (end.detail) }
                });
                (stand, html! { "Dequeued" }, detail, false)
            }
            other => (Stand::Quiet, html! { (other) }, Html::default(), true),
        };
        Ok(Some(told))
    }

    fn wait(
        &self,
        sequence: u64,
        build: Option<&(BuildId, BuildEntry)>,
    ) -> Result<Option<(Stand, Html, Html, bool)>, ApiError> {
        let own;
        let waits = match build {
            Some((id, _)) => {
                own = self.reading.history().waits(&WaitSubject::Build(*id), sequence)?;
                &own
            }
            None => &self.waits,
        };
        let who = self.job(build);
        Ok(Some(match waits.iter().find(|held| held.from == sequence) {
            Some(held) => (
                Stand::Waiting,
                html! { "Waits" },
                html! { (who) " " code { (held.row.code.word()) } " " (held.row.detail) },
                true,
            ),
            None => (Stand::Quiet, html! { "Waits no longer" }, who, true),
        }))
    }

    fn report(&self, sequence: u64, kind: &str) -> Result<Option<(Stand, Html, Html, bool)>, ApiError> {
        let history = self.reading.history();
        let mut newest = None;
        for work in history.reports_of(self.item, sequence)?.take(10) {
            if let Some(report) = history.report(work?, sequence)? {
                newest = Some(report);
                break;
            }
        }
        let Some(report) = newest else { return Ok(None) };
        let action = format!("{:?}", report.action).to_lowercase();
        let to = report.connections.join(", ");
        Ok(Some(if kind == "report-requested" {
            let message = html! {
                (action)
                " to "
                (to)
                " "
                details { summary { "the message" } pre { (parts::linked(&report.message)) } }
            };
            (Stand::Running, html! { "Reporting" }, message, false)
        } else {
            match &report.failed {
                Some((code, text)) => (
                    Stand::Bad,
                    html! { "Report not delivered" },
                    html! { (action) " to " (to) ": " code { (code) } " " (text) },
                    false,
                ),
                None => (Stand::Good, html! { "Reported" }, html! { (action) " to " (to) }, false),
            }
        }))
    }
}
