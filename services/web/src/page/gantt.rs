//! When the jobs of a buildset waited, were set up and ran: bars on one scale of time.
//!
//! Every bar is a shape with lengths in per cent, so it is drawn by the server, needs no script and no
//! style of its own, and fits any width.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_gate_state::history::{BuildEntry, BuildsetEntry};
use gatelog_record::{BuildId, Timestamp};

use maud::html;

use super::buildset::standing;
use super::frame::Frame;
use super::html::{Html, Piece};
use super::words::{self, Stand, took};
use crate::error::ApiError;
use crate::estimate::Estimates;
use crate::reading::Reading;
use crate::shape::ms;

/// The most rows that are drawn.
const MOST: usize = 500;
/// About how many lines of the scale there are.
const LINES: i64 = 5;

/// When each attempt got its worker.
pub(crate) type Grants = BTreeMap<(BuildId, u32), Timestamp>;

/// What a stretch of a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It waited for something else than a worker.
    Held,
    /// It waited for a worker.
    Wait,
    /// Its worker set it up.
    SetUp,
    /// It ran, or runs.
    Ran(Stand),
    /// It is thought to run on to here.
    Expected,
}

impl Phase {
    fn class(self) -> &'static str {
        match self {
            Phase::Held => "held",
            Phase::Wait => "wait",
            Phase::SetUp => "setup",
            Phase::Ran(stand) => stand.class(),
            Phase::Expected => "expected",
        }
    }
}

/// A stretch of a row, in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    phase: Phase,
    from: i64,
    to: i64,
    /// How long it was by the clock that tells of it: two clocks may overlap in a row.
    length: i64,
    says: String,
}

struct Row {
    name: Html,
    spans: Vec<Span>,
    says: Html,
    longest: bool,
}

/// The stretches of a build up to a moment.
fn spans(build: &BuildEntry, id: BuildId, grants: &Grants, now: i64, mean: Option<i64>) -> Vec<Span> {
    let mut out: Vec<Span> = Vec::new();
    // Two clocks tell of it, the gate's and the worker's: time never goes back within a row.
    let mut at = ms(build.frozen_at);
    let mut go = |phase: Phase, to: i64, length: Option<i64>, says: String| {
        let to = to.clamp(at, now.max(at));
        if to > at || matches!(phase, Phase::Ran(_)) {
            out.push(Span { phase, from: at, to, length: length.unwrap_or(to - at).max(0), says });
        }
        at = to;
    };
    let over = build.ended_at().or(build.finished_at).map(ms);
    for (place, attempt) in build.attempts.iter().enumerate() {
        let number = attempt.attempt;
        let last = place + 1 == build.attempts.len();
        let end = attempt
            .finished_at
            .or(attempt.let_go.as_ref().map(|(_, at)| *at))
            .map(ms)
            .or(build.finished_at.map(ms).filter(|_| last));
        let still = end.unwrap_or(now);
        let held = if place > 0 {
            "between attempts"
        } else if build.dependencies.is_empty() {
            "before a worker was asked for"
        } else {
            "for the jobs before it"
        };
        go(Phase::Held, ms(attempt.requested_at), None, format!("waited {held}"));
        let started = attempt.started_at.map(ms);
        let granted = grants.get(&(id, number)).copied().map(ms).filter(|granted| *granted <= now);
        go(Phase::Wait, granted.or(started).unwrap_or(still), None, "waited for a worker".into());
        if granted.is_some() {
            go(Phase::SetUp, started.unwrap_or(still), None, "was set up".into());
        }
        if let Some(started) = started {
            let (stand, word) = match attempt.result {
                Some(result) => (Stand::of_result(result.word()), words::lower(result.word())),
                None if end.is_some() => (Stand::Warn, "given up".into()),
                None => (Stand::Running, "running".into()),
            };
            go(Phase::Ran(stand), still, Some(still - started), format!("attempt {number}: {word}"));
        }
    }
    if build.attempts.is_empty() {
        go(Phase::Held, over.unwrap_or(now), None, "waited".into());
    }
    let running = out.last().is_some_and(|span| span.phase == Phase::Ran(Stand::Running));
    if let (true, Some(mean), Some(last)) = (running, mean, out.last()) {
        let (from, to) = (last.to, last.from.saturating_add(mean));
        if to > from {
            out.push(Span {
                phase: Phase::Expected,
                from,
                to,
                length: to - from,
                says: "thought to run on to here".into(),
            });
        }
    }
    out
}

/// How long a row spent in each phase, in words.
fn sums(spans: &[Span]) -> Vec<(&'static str, i64)> {
    let mut sums: BTreeMap<u8, (&'static str, i64)> = BTreeMap::new();
    for span in spans {
        let (place, word) = match span.phase {
            Phase::Held => (0, "held"),
            Phase::Wait => (1, "waited"),
            Phase::SetUp => (2, "set up"),
            Phase::Ran(_) => (3, "ran"),
            Phase::Expected => continue,
        };
        sums.entry(place).or_insert((word, 0)).1 += span.length;
    }
    // What took no time worth telling is left out.
    sums.into_values().filter(|(word, length)| *length >= 50 || *word == "ran").collect()
}

/// The jobs the end waited for: from the last one back along what each waited for longest.
fn longest_way(builds: &[(BuildId, BuildEntry)]) -> BTreeSet<BuildId> {
    let by_name: BTreeMap<&str, &(BuildId, BuildEntry)> =
        builds.iter().map(|build| (build.1.job.as_str(), build)).collect();
    let end = |build: &BuildEntry| build.ended_at().filter(|_| build.started_at().is_some());
    let mut way = BTreeSet::new();
    let mut at = builds.iter().filter(|(_, build)| end(build).is_some()).max_by_key(|(_, build)| end(build));
    while let Some((id, build)) = at {
        if !way.insert(*id) {
            break;
        }
        let before = build.dependencies.iter().filter_map(|(job, _)| by_name.get(job.as_str()).copied());
        at = before.filter(|(_, build)| end(build).is_some()).max_by_key(|(_, build)| end(build));
    }
    way
}

/// The bars of a buildset.
pub(crate) fn draw(
    reading: &Reading<'_>,
    frame: &Frame,
    tenant: &str,
    row: &BuildsetEntry,
    builds: &[(BuildId, BuildEntry)],
    grants: &Grants,
) -> Result<Html, ApiError> {
    let now = frame.clock_ms();
    let opened = ms(row.opened_at);
    let mut rows = Vec::new();
    let frozen = builds.iter().map(|(_, build)| ms(build.frozen_at)).min();
    let prepared = frozen.or(row.finished_at.map(ms)).unwrap_or(now).max(opened);
    rows.push(Row {
        name: html! { span class="muted" { "merge, choose jobs" } },
        spans: vec![Span {
            phase: Phase::SetUp,
            from: opened,
            to: prepared,
            length: prepared - opened,
            says: "merged, and jobs chosen".into(),
        }],
        says: html! { (took(prepared - opened)) },
        longest: false,
    });
    let way = if builds.len() > 1 { longest_way(builds) } else { BTreeSet::new() };
    let mut estimates = Estimates::default();
    for (id, build) in builds.iter().take(MOST) {
        let estimate = estimates.of(reading, tenant, &build.job)?;
        let spans = spans(build, *id, grants, now, estimate.map(|estimate| estimate.mean_ms));
        let (stand, word) = standing(build);
        let mut says = html! { (stand.mark()) " " (word) };
        for (word, length) in sums(&spans) {
            says.add(html! { " · " (word) " " (took(length)) });
        }
        rows.push(Row {
            name: html! { a href=(frame.to(&format!("/build/{id}"))) { (build.job) } },
            spans,
            says,
            longest: way.contains(id),
        });
    }
    if let (Some(last), Some(end)) = (row.last_end.map(ms), row.finished_at.map(ms)) {
        let last = last.clamp(prepared, end.max(prepared));
        rows.push(Row {
            name: html! { span class="muted" { "merge, report" } },
            spans: vec![Span {
                phase: Phase::SetUp,
                from: last,
                to: end.max(last),
                length: (end - last).max(0),
                says: "merged and reported".into(),
            }],
            says: html! { (took(end - last)) },
            longest: false,
        });
    }
    Ok(figure(&rows, opened, builds.len().saturating_sub(MOST)))
}

/// A round stretch so that about [`LINES`] of them make the whole, in milliseconds.
fn step(whole: i64) -> i64 {
    const ROUND: [i64; 22] = [
        10, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000,
        1_800_000, 3_600_000, 7_200_000, 14_400_000, 43_200_000, 86_400_000,
    ];
    ROUND.into_iter().find(|step| whole / step <= LINES).unwrap_or((whole / LINES).max(1))
}

/// A place on the scale, in per cent with two digits after the point.
fn per_cent(part: i64, whole: i64) -> String {
    let whole = whole.max(1);
    let hundredths = i128::from(part.clamp(0, whole)) * 10_000 / i128::from(whole);
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}

/// A moment of the scale, as short as it can be told.
fn mark(at: i64) -> String {
    match at {
        0 => "0".into(),
        1..1_000 => format!("{at} ms"),
        _ if at % 60_000 == 0 && at < 3_600_000 => format!("{} min", at / 60_000),
        _ if at % 3_600_000 == 0 => format!("{} h", at / 3_600_000),
        _ if at < 60_000 && at % 1_000 == 0 => format!("{} s", at / 1_000),
        _ => took(at),
    }
}

fn figure(rows: &[Row], begin: i64, left_out: usize) -> Html {
    let end = rows.iter().flat_map(|row| &row.spans).map(|span| span.to).max().unwrap_or(begin);
    let whole = (end - begin).max(1);
    let step = step(whole);
    let mut grid = Html::default();
    let mut scale = Html::default();
    let mut at = 0;
    while at <= whole {
        let x = per_cent(at, whole);
        grid.add(html! { line x1=(x) x2=(x) y1="0" y2="100%" {} });
        // The last one would hang out at the end.
        if at <= whole * 92 / 100 {
            scale.add(html! { text x=(x) y="11" { (mark(at)) } });
        }
        at += step;
    }
    let mut out = Html::default();
    let mut expects = false;
    for row in rows {
        let mut bars = Html::default();
        for span in &row.spans {
            expects |= span.phase == Phase::Expected;
            bars.add(html! {
                rect
                    class=(span.phase.class())
                    x=(per_cent(span.from - begin, whole))
                    width=(per_cent(span.to - span.from, whole))
                    y="3"
                    height="14"
                    rx="2"
                {
                    title { (span.says) ", " (took(span.length)) }
                }
            });
            if span.to - span.from < whole / 200 {
                // What would be too thin to see is a line.
                let x = per_cent(span.from - begin, whole);
                bars.add(html! { line class=(span.phase.class()) x1=(x) x2=(x) y1="3" y2="17" {} });
            }
        }
        out.add(html! {
            li class=[(row.longest).then_some("longest")] {
                span class="name" { (row.name) }
                svg class="bars" width="100%" height="20" aria-hidden="true" focusable="false" {
                    g class="grid" { (grid) }
                    (bars)
                }
                span class="says small" {
                    (row.says)
                    @if row.longest { " " span class="chip" { "longest way" } }
                }
            }
        });
    }
    let mut key = Html::default();
    let words: [(&str, &str); 5] = [
        ("held", "held back"),
        ("wait", "waits for a worker"),
        ("setup", "set up"),
        ("good", "ran"),
        ("expected", "thought to run on"),
    ];
    for (class, word) in words {
        if class == "expected" && !expects {
            continue;
        }
        key.add(html! {
            li {
                svg class="bars" width="14" height="10" aria-hidden="true" focusable="false" {
                    rect class=(class) x="0" y="0" width="14" height="10" rx="2" {}
                }
                " "
                (word)
            }
        });
    }
    let more = if left_out > 0 {
        html! { p class="small muted" { (left_out) " more are in the list of builds." } }
    } else {
        Html::default()
    };
    html! {
        figure class="gantt" role="group" aria-label="When each job waited and ran" {
            ol {
                li class="scale" aria-hidden="true" {
                    span {}
                    svg class="bars" width="100%" height="14" focusable="false" { (scale) }
                    span {}
                }
                (out)
            }
            (more)
            figcaption { ul class="key small muted" { (key) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_round_and_never_crowded() {
        for (whole, expected) in [(1, 10), (90, 50), (2_400, 500), (61_000, 15_000), (3_700_000, 900_000)] {
            assert_eq!(step(whole), expected, "{whole}");
        }
        for whole in [0, 7, 999, 12_345, 987_654, 100_000_000, i64::MAX / 2] {
            assert!(whole / step(whole) <= LINES + 1, "{whole}");
        }
        for (at, text) in
            [(0, "0"), (500, "500 ms"), (15_000, "15 s"), (60_000, "1 min"), (90_000, "1 min 30 s"), (7_200_000, "2 h")]
        {
            assert_eq!(mark(at), text);
        }
    }

    #[test]
    fn places_stay_on_the_scale() {
        assert_eq!(per_cent(1, 3), "33.33%");
        assert_eq!(per_cent(-5, 3), "0.00%");
        assert_eq!(per_cent(9, 3), "100.00%");
        assert_eq!(per_cent(0, 0), "0.00%");
        assert_eq!(per_cent(i64::MAX, i64::MAX), "100.00%");
    }
}
