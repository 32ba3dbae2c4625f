//! Explanations as text, a line at a time.

use std::collections::BTreeMap;

use gatelog_record::Timestamp;

use super::say::{after_colon, commit_name, short, span};
use super::shapes::{
    AttemptStory, BuildStory, BuildsetStory, ChangeStory, EventStory, Explanation, ItemStory, JobStory, Note, Spot,
    ThingStory, Wait, WayStep,
};

/// What a line says, for whoever paints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it is.
    Plain,
    /// A head.
    Head,
    /// What matters less.
    Faint,
    /// Success.
    Good,
    /// Trouble.
    Bad,
    /// Waiting.
    Waiting,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it says.
    pub tone: Tone,
    /// Its text, without a newline; may hold text from outside.
    pub text: String,
}

#[derive(Default)]
struct Page {
    lines: Vec<Line>,
}

impl Page {
    fn line(&mut self, tone: Tone, text: impl Into<String>) {
        // A text of several lines stays under its first line's indent.
        let text: String = text.into();
        let indent: String = text.chars().take_while(|c| *c == ' ').collect();
        for (index, part) in text.lines().enumerate() {
            let text = if index == 0 { part.to_owned() } else { format!("{indent}  {part}") };
            self.lines.push(Line { tone, text });
        }
    }

    fn plain(&mut self, text: impl Into<String>) {
        self.line(Tone::Plain, text);
    }

    fn field(&mut self, name: &str, text: impl std::fmt::Display) {
        self.plain(format!("  {name:<10} {text}"));
    }

    fn gap(&mut self) {
        if self.lines.last().is_some_and(|line| !line.text.is_empty()) {
            self.lines.push(Line { tone: Tone::Plain, text: String::new() });
        }
    }
}

impl Explanation {
    /// The explanation for people.
    pub fn render(&self) -> Vec<Line> {
        let mut page = Page::default();
        match self {
            Explanation::Change(story) => change(&mut page, story),
            Explanation::Item(story) => item(&mut page, story),
            Explanation::Job(story) => job(&mut page, story),
            Explanation::Event(story) => event(&mut page, story),
            Explanation::Thing(story) => thing(&mut page, story),
        }
        page.lines
    }
}

/// The time of day to the millisecond; the date stands in the heads.
fn clock(at: Timestamp) -> String {
    at.to_string().get(11..23).unwrap_or_default().to_owned()
}

fn date(at: Timestamp) -> String {
    let text = at.to_string();
    format!("{} {}", text.get(..10).unwrap_or_default(), clock(at))
}

fn at(spot: &Spot) -> String {
    let stream = spot.stream.strip_suffix("/0").unwrap_or(&spot.stream);
    match stream.strip_suffix(".events") {
        Some("gate") => format!("event {}", spot.sequence),
        Some(domain) => format!("{domain} event {}", spot.sequence),
        None => format!("{stream} {}", spot.sequence),
    }
}

/// The width of `event 12345`.
const PLACE: usize = 11;

fn verdict(result: Option<&str>) -> Tone {
    match result {
        Some("SUCCESS") => Tone::Good,
        None | Some("SKIPPED" | "CANCELED" | "DEQUEUED" | "NO_JOBS") => Tone::Plain,
        Some(_) => Tone::Bad,
    }
}

fn change(page: &mut Page, story: &ChangeStory) {
    page.line(Tone::Head, format!("{} {} in tenant {}", story.project, story.change, story.tenant));
    if !story.url.is_empty() {
        page.line(Tone::Faint, format!("  {}", story.url));
    }
    for one in &story.items {
        let result = one.left.as_ref().map(|left| left.result.as_str());
        let text = match &one.left {
            Some(left) => {
                format!("{}{} [{}]{}", left.result, after_colon(&left.detail), left.code, by(left.by.as_deref()))
            }
            None => match one.waits.last().filter(|wait| wait.millis.is_none()) {
                Some(wait) => format!("still there, waits for {}: {}", wait.code, wait.detail),
                None => "still there".to_owned(),
            },
        };
        let live = if one.live { "" } else { " (not live)" };
        page.line(verdict(result), format!("  {:<10} {text}{live}", one.pipeline));
    }
    if !story.events.is_empty() {
        page.gap();
        page.line(Tone::Head, "Triggers");
        notes(page, &story.events);
    }
    for one in &story.items {
        page.gap();
        item(page, one);
    }
}

/// `; by somebody`, where it was somebody.
fn by(who: Option<&str>) -> String {
    who.map(|who| format!("; by {who}")).unwrap_or_default()
}

fn notes(page: &mut Page, notes: &[Note]) {
    let width = notes.iter().map(|note| at(&note.spot).len()).max().unwrap_or_default().max(PLACE);
    for note in notes {
        page.plain(format!("  {}  {:<width$} {}", clock(note.spot.time), at(&note.spot), note.text));
    }
}

fn item(page: &mut Page, story: &ItemStory) {
    let what = story.subjects.join(" + ");
    page.line(Tone::Head, format!("{what} in {} of tenant {}", story.pipeline, story.tenant));
    page.field("item", story.item);
    page.field("enqueued", format!("{} ({}) [{}]", date(story.enqueued.time), at(&story.enqueued), story.reason));
    let behind = match &story.ahead {
        Some(ahead) => format!("behind {ahead}"),
        None => "first".to_owned(),
    };
    let live = if story.live { "" } else { "; not live: it stands here for a change that needs it" };
    // An independent pipeline has a queue for each item.
    let own = story.queue.len() == 32 && story.queue.chars().all(|c| c.is_ascii_hexdigit());
    let queue = if own { "one of its own" } else { story.queue.as_str() };
    page.field("queue", format!("{queue}, {behind}{live}"));
    if let Some(actor) = &story.actor {
        page.field("by", story.by.clone().unwrap_or_else(|| format!("actor {}", short(actor))));
    }
    let waited = waited(&story.waits);
    if !waited.is_empty() {
        page.field("time", waited);
    }
    match &story.left {
        Some(left) => {
            let after = span(left.spot.time.millis_since(story.enqueued.time));
            let Spot { time, .. } = left.spot;
            page.line(
                verdict(Some(&left.result)),
                format!(
                    "  {:<10} {} ({}) after {after}: {}{} [{}]{}",
                    "left",
                    clock(time),
                    at(&left.spot),
                    left.result,
                    after_colon(&left.detail),
                    left.code,
                    by(left.by.as_deref())
                ),
            );
        }
        None => now_waits(page, "  now        ", &story.waits),
    }
    for (index, buildset) in story.buildsets.iter().enumerate() {
        page.gap();
        buildset_story(page, index + 1, story.buildsets.len(), buildset);
    }
    if !story.notes.is_empty() {
        page.gap();
        page.line(Tone::Head, "On the way");
        notes(page, &story.notes);
    }
    if !story.merges.is_empty() || !story.reports.is_empty() {
        page.gap();
        page.line(Tone::Head, "Merging and reporting");
    }
    for merge in &story.merges {
        notes(page, std::slice::from_ref(&merge.asked));
        notes(page, merge.ended.as_slice());
    }
    for report in &story.reports {
        let to = report.to.join(", ");
        let text = match &report.ended {
            Some(ended) => format!("{} ({})", ended.text, at(&ended.spot)),
            None => "not delivered yet".to_owned(),
        };
        page.plain(format!(
            "  {}  {:<PLACE$} {} to {to}: {text}",
            clock(report.asked.time),
            at(&report.asked),
            report.action
        ));
    }
    if !story.way.is_empty() {
        page.gap();
        way(page, &story.way);
    }
}

/// How long was waited for what, in the order in which it first was.
fn waited(waits: &[Wait]) -> String {
    let mut sums: BTreeMap<&str, (usize, i64)> = BTreeMap::new();
    for (index, wait) in waits.iter().enumerate() {
        sums.entry(&wait.code).or_insert((index, 0)).1 += wait.millis.unwrap_or_default();
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, (index, _))| *index);
    let sums = sums.into_iter().filter(|(_, (_, millis))| *millis > 0);
    sums.map(|(code, (_, millis))| format!("{code} {}", span(millis))).collect::<Vec<_>>().join(", ")
}

fn now_waits(page: &mut Page, indent: &str, waits: &[Wait]) {
    if let Some(wait) = waits.last().filter(|wait| wait.millis.is_none()) {
        let since = clock(wait.since);
        page.line(Tone::Waiting, format!("{indent}waits for {} since {since}: {}", wait.code, wait.detail));
        if !wait.unblocks.is_empty() {
            page.line(Tone::Waiting, format!("{indent}until {}", wait.unblocks));
        }
    }
}

fn buildset_story(page: &mut Page, number: usize, of: usize, story: &BuildsetStory) {
    let on = match story.ahead.as_slice() {
        [] => "on its branch alone".to_owned(),
        ahead => format!("on top of {}", ahead.join(", ")),
    };
    let count = if of > 1 { format!(" {number} of {of}") } else { String::new() };
    page.line(Tone::Head, format!("Buildset{count} {}, {on}", short(&story.buildset)));
    page.field("opened", format!("{} ({})", clock(story.opened.time), at(&story.opened)));
    if let Some(prepared) = &story.prepared {
        if story.on.is_empty() {
            page.field(
                "prepared",
                format!("{} ({}): {}", clock(prepared.spot.time), at(&prepared.spot), prepared.text),
            );
        } else {
            page.field("prepared", format!("{} ({})", clock(prepared.spot.time), at(&prepared.spot)));
        }
        for branch in &story.on {
            let with_ahead = match branch.ahead == branch.base {
                true => String::new(),
                false => format!(", with what is ahead {}", commit_name(&branch.ahead)),
            };
            let (base, commit) = (commit_name(&branch.base), commit_name(&branch.commit));
            page.field(
                "",
                format!("{} of {} at {base}{with_ahead}, tested as {commit}", branch.branch, branch.project),
            );
        }
    }
    if let Some(layout) = &story.layout {
        page.field("layout", format!("{} ({}): its own: {}", clock(layout.spot.time), at(&layout.spot), layout.text));
    }
    if let Some(frozen) = &story.frozen {
        page.field("jobs", format!("{} ({}): {}", clock(frozen.spot.time), at(&frozen.spot), frozen.text));
    }
    for build in &story.builds {
        build_story(page, build);
    }
    if let Some(reset) = &story.reset {
        page.line(
            Tone::Bad,
            format!("  {:<10} {} ({}): {}", "given up", clock(reset.spot.time), at(&reset.spot), reset.text),
        );
    }
}

fn build_story(page: &mut Page, story: &BuildStory) {
    let voting = if story.voting { "" } else { " (non-voting)" };
    let result = story.result.as_deref().unwrap_or("no result yet");
    let why = story.settled.as_ref().map(|note| format!(": {} ({})", note.text, at(&note.spot))).unwrap_or_default();
    page.line(
        verdict(story.result.as_deref()),
        format!("  job {}{voting} {result}{why}  [build {}]", story.job, short(&story.build)),
    );
    let waited = waited(&story.waits);
    if !waited.is_empty() {
        page.plain(format!("    time: {waited}"));
    }
    if story.result.is_none() {
        now_waits(page, "    ", &story.waits);
    }
    for attempt in &story.attempts {
        attempt_story(page, attempt);
    }
}

fn attempt_story(page: &mut Page, story: &AttemptStory) {
    let mut parts = vec![format!("asked for at {} ({})", clock(story.asked.time), at(&story.asked))];
    if let Some(queued) = &story.queued {
        parts.push(format!("queued ({})", at(queued)));
    }
    if let (Some(granted), worker) = (&story.granted, story.worker.as_deref().unwrap_or("a worker")) {
        let after = story.waited_millis.map(|millis| format!(" after {}", span(millis))).unwrap_or_default();
        parts.push(format!("granted{after} to {worker} ({})", at(granted)));
    }
    if let Some(started) = &story.started {
        parts.push(format!("started ({})", at(started)));
    }
    if let Some(finished) = &story.finished {
        let ran = story.ran_millis.map(|millis| format!(" after {}", span(millis))).unwrap_or_default();
        parts.push(format!("ended {}{ran} ({})", story.result.as_deref().unwrap_or("somehow"), at(finished)));
    }
    page.plain(format!("    attempt {}: {}", story.attempt, parts.join(", ")));
    for wait in &story.waits {
        let long = wait.millis.map_or("until now".to_owned(), span);
        page.line(
            Tone::Waiting,
            format!("      waited {long} for {}: {} ({})", wait.code, wait.detail, at(&wait.spot)),
        );
    }
    if let Some(detail) = &story.detail {
        let tone = verdict(story.result.as_deref());
        page.line(tone, format!("      {detail}"));
    }
    if let Some(url) = &story.log_url {
        page.line(Tone::Faint, format!("      log: {url}"));
    }
    for note in &story.ended {
        page.line(Tone::Faint, format!("      {} ({})", note.text, at(&note.spot)));
    }
}

fn thing(page: &mut Page, story: &ThingStory) {
    page.line(Tone::Head, format!("{} {}", story.kind, story.id));
    for (name, value) in &story.facts {
        page.field(name, value);
    }
    if !story.events.is_empty() {
        page.gap();
        page.line(Tone::Head, "What happened");
        notes(page, &story.events);
    }
    if !story.way.is_empty() {
        page.gap();
        way(page, &story.way);
    }
}

fn way(page: &mut Page, steps: &[WayStep]) {
    page.line(Tone::Head, "The way, from the outside event on");
    let wide = |of: &dyn Fn(&WayStep) -> usize| steps.iter().map(of).max().unwrap_or_default();
    let step_width = wide(&|step| step.step.len()).max(4);
    let stream_width = wide(&|step| step.spot.stream.len()).max(6);
    page.line(Tone::Faint, format!("  {:<step_width$}  {:<stream_width$}  sequence  time", "step", "stream"));
    for step in steps {
        let who = |actor| step.by.clone().unwrap_or_else(|| format!("actor {}", short(actor)));
        let by = step.actor.as_ref().map(|actor| format!("; by {}", who(actor))).unwrap_or_default();
        let WayStep { step, spot, text, .. } = step;
        page.plain(format!(
            "  {step:<step_width$}  {:<stream_width$}  {:>8}  {}  {text}{by}",
            spot.stream,
            spot.sequence,
            clock(spot.time)
        ));
    }
}

fn job(page: &mut Page, story: &JobStory) {
    let fate = if story.runs { "runs" } else { "does not run" };
    let head = format!("job {} {fate} for {} in {} of tenant {}", story.job, story.of, story.pipeline, story.tenant);
    page.line(Tone::Head, head);
    page.field("item", story.item);
    page.field("buildset", story.buildset);
    page.field("frozen", format!("{} ({})", date(story.frozen.time), at(&story.frozen)));
    if let Some(build) = &story.build {
        page.field("build", build.build);
        build_story(page, build);
    }
    page.gap();
    page.line(Tone::Head, "Why");
    for line in &story.trace {
        page.plain(format!("  {line}"));
    }
    if !story.way.is_empty() {
        page.gap();
        way(page, &story.way);
    }
}

fn event(page: &mut Page, story: &EventStory) {
    let place = |key: &str| story.event.get(key).map(|value| value.as_str().map_or(value.to_string(), str::to_owned));
    let kind = place("kind").unwrap_or_default();
    page.line(Tone::Head, format!("{kind}, sequence {}: {}", place("sequence").unwrap_or_default(), story.text));
    page.field("recorded", place("recorded_at").unwrap_or_default());
    page.field("key", place("key").filter(|key| !key.is_empty()).unwrap_or("none".to_owned()));
    page.field("id", place("id").unwrap_or_default());
    if !story.way.is_empty() {
        page.gap();
        way(page, &story.way);
    }
    if !story.with.is_empty() {
        page.gap();
        page.line(Tone::Head, "The same decision brought");
        notes(page, &story.with);
    }
    page.gap();
    page.line(Tone::Head, "The event");
    for line in serde_json::to_string_pretty(&story.event).unwrap_or_default().lines() {
        page.plain(format!("  {line}"));
    }
}
