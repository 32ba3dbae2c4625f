//! Shapes that stand in more than one document.

use gatelog_gate_state::history::{AttemptEntry, BuildEntry, BuildsetEntry, Held, ItemEntry, WaitEntry};
use gatelog_gate_state::live::WaitRow;
use gatelog_record::draft::gate::{self, Subject, WaitSubject};
use gatelog_record::{BuildId, BuildsetId, Timestamp};
use serde_json::{Map, Value as Json};

use crate::answers::{
    Artifact, Attempt, Build, Buildset, BuildsetOfBuild, Ended, GitRef, LetGo, Reason, Wait, WaitHeld,
};
use crate::error::ApiError;
use crate::reading::Reading;

/// Zuul's times: ISO 8601 to the second, in UTC, without a zone.
pub(crate) fn iso(moment: Timestamp) -> String {
    let mut text = moment.to_string();
    if let Some((seconds, _)) = text.split_once('.') {
        text.truncate(seconds.len());
    }
    text
}

/// Milliseconds since 1970.
pub(crate) fn ms(moment: Timestamp) -> i64 {
    moment.0.div_euclid(1_000)
}

/// Seconds since 1970, with their fraction.
pub(crate) fn seconds(moment: Timestamp) -> f64 {
    ms(moment) as f64 / 1_000.0
}

/// A project's name at its connection: the canonical one without the host.
pub(crate) fn short(canonical: &str) -> &str {
    canonical.split_once('/').map_or(canonical, |(_, name)| name)
}

/// Zuul's `REF`.
pub(crate) fn git_ref(subject: &Subject) -> GitRef {
    // A change has no new revision in Zuul's sense; a ref that moved has.
    let moved = subject.change.is_none();
    GitRef {
        project: short(&subject.project).to_owned(),
        project_canonical: subject.project.clone(),
        branch: subject.branch.clone(),
        change: subject.change.clone(),
        patchset: subject.patchset.clone(),
        git_ref: subject.git_ref.clone(),
        oldrev: subject.old_commit.clone(),
        newrev: subject.commit.clone().filter(|_| moved),
        ref_url: subject.url.clone(),
        commit: subject.commit.clone(),
    }
}

/// Zuul's ids of what an item holds: `change,patchset`, or the commit of a ref that moved.
pub(crate) fn ref_id(subject: &Subject) -> String {
    match (&subject.change, &subject.patchset) {
        (Some(change), Some(patchset)) => format!("{change},{patchset}"),
        (Some(change), None) => change.clone(),
        (None, _) => subject.commit.clone().unwrap_or_else(|| subject.git_ref.clone()),
    }
}

/// What people call a queue. Zuul: a queue that holds one item alone is called after its project; on the
/// log it has an id of 32 hexadecimal digits for a name.
pub(crate) fn queue_name<'n>(name: &'n str, subject: Option<&'n Subject>) -> &'n str {
    let is_id = name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    match subject {
        Some(subject) if is_id => short(&subject.project),
        _ => name,
    }
}

/// What something waits for, now or then.
pub(crate) fn wait_row(row: &WaitRow) -> Wait {
    Wait {
        code: row.code.word().to_owned(),
        detail: row.detail.clone(),
        since_ms: ms(row.since),
        unblocks: row.unblocks.clone(),
    }
}

/// Everything something waited for up to the moment asked about.
pub(crate) fn waits(reading: &Reading<'_>, subject: &WaitSubject) -> Result<Vec<WaitHeld>, ApiError> {
    let mut told = Vec::new();
    for held in reading.history().waits(subject, reading.at)? {
        let until = held.until.filter(|until| *until <= reading.at);
        let until = match until {
            Some(sequence) => reading.history().moment(sequence)?.map(|moment| ms(moment.at)),
            None => None,
        };
        told.push(wait_entry(&held, until));
    }
    Ok(told)
}

fn wait_entry(held: &Held<WaitEntry>, until: Option<i64>) -> WaitHeld {
    WaitHeld {
        code: held.row.code.word().to_owned(),
        detail: held.row.detail.clone(),
        since_ms: ms(held.row.since),
        until_ms: until,
        unblocks: held.row.unblocks.clone(),
        from: held.from,
    }
}

pub(crate) fn artifact(artifact: &gate::Artifact) -> Artifact {
    let metadata = (artifact.metadata != gatelog_record::Value::Null).then(|| artifact.metadata.to_json());
    Artifact { name: artifact.name.clone(), url: artifact.url.clone(), metadata }
}

fn attempt(attempt: &AttemptEntry) -> Attempt {
    Attempt {
        attempt: attempt.attempt,
        requested_ms: ms(attempt.requested_at),
        started_ms: attempt.started_at.map(ms),
        finished_ms: attempt.finished_at.map(ms),
        result: attempt.result.map(|result| result.word().to_owned()),
        detail: attempt.detail.clone(),
        worker: attempt.worker.clone(),
        lease: attempt.lease.map(|lease| lease.to_string()),
        log_url: attempt.log_url.clone(),
        let_go: attempt.let_go.as_ref().map(|(reason, at)| LetGo { reason: reason.clone(), at_ms: ms(*at) }),
    }
}

/// A build's number in Zuul's sense: grows with every build.
pub(crate) fn build_index(build: &BuildEntry) -> u64 {
    build.frozen.saturating_mul(BUILDS_OF_EVENT).saturating_add(u64::from(build.ordinal).min(BUILDS_OF_EVENT - 1))
}

/// Room for the builds of one event in their numbers.
pub(crate) const BUILDS_OF_EVENT: u64 = 4_096;

/// Zuul's `nodeset`: here the labels, in order.
pub(crate) fn nodeset(build: &BuildEntry) -> Option<String> {
    let labels: Vec<&str> = build.nodes.iter().map(|node| node.label.as_str()).collect();
    (!labels.is_empty()).then(|| labels.join(","))
}

/// Which parts of a build are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuildPart {
    /// As in a list of builds.
    Listed,
    /// By itself: with the changes of its buildset.
    Alone,
    /// Within its buildset: without pipeline and buildset.
    Within,
}

/// Zuul's `BUILD`.
pub(crate) fn build(id: BuildId, build: &BuildEntry, item: &ItemEntry, event: &Event, part: BuildPart) -> Build {
    let (start, end) = (build.started_at(), build.ended_at());
    let newest = build.attempt();
    let took = start.zip(end).map(|(start, end)| end.millis_since(start).max(0) as f64 / 1_000.0);
    let within = part == BuildPart::Within;
    let refs = (part == BuildPart::Alone).then(|| item.subjects.iter().map(git_ref).collect());
    Build {
        index: build_index(build),
        uuid: id.to_string(),
        job_name: build.job.clone(),
        result: build.result.map(|result| result.word().to_owned()),
        held: build.held,
        execute_time: newest.map(|attempt| iso(attempt.requested_at)),
        start_time: start.map(iso),
        end_time: end.map(iso),
        duration: took,
        voting: build.voting,
        log_url: newest.and_then(|attempt| attempt.log_url.clone()),
        nodeset: nodeset(build),
        error_detail: build.detail.clone(),
        last: true,
        artifacts: newest.map(|attempt| attempt.artifacts.iter().map(artifact).collect()).unwrap_or_default(),
        provides: Vec::new(),
        git_ref: item.subjects.first().map(git_ref),
        pipeline: (!within).then(|| build.pipeline.clone()),
        event_id: event.id.clone(),
        event_timestamp: iso(event.at),
        queue_item_uuid: build.item.to_string(),
        buildset: (!within).then(|| BuildsetOfBuild { uuid: build.buildset.to_string(), refs }),
        started_ms: start.map(ms),
        finished_ms: end.map(ms),
        settled: build.settled.clone(),
        attempts: build.attempts.iter().map(attempt).collect(),
        data: (part == BuildPart::Alone).then_some(Json::Null),
        data_kept: None,
        secret_data_kept: None,
        dependencies: None,
        waits: None,
    }
}

/// Zuul's `BUILDSET`, without its builds.
pub(crate) fn buildset(id: BuildsetId, row: &BuildsetEntry, item: &ItemEntry, event: &Event) -> Buildset {
    let end = item.end.as_ref().filter(|_| row.reset.is_none());
    let reset = |(code, detail): &(String, String)| Reason { code: code.clone(), detail: detail.clone() };
    Buildset {
        index: row.opened,
        uuid: id.to_string(),
        result: row.result.map(|result| result.word().to_owned()),
        message: row.message.clone(),
        pipeline: row.pipeline.clone(),
        event_id: event.id.clone(),
        event_timestamp: iso(event.at),
        queue_item_uuid: row.item.to_string(),
        first_build_start_time: row.first_start.map(iso),
        last_build_end_time: row.last_end.map(iso),
        user_id: None,
        parameters: parameters(item),
        refs: item.subjects.iter().map(git_ref).collect(),
        started_ms: ms(row.opened_at),
        finished_ms: row.finished_at.map(ms),
        reset: row.reset.as_ref().map(reset),
        end: end.map(|end| Ended { code: end.code.clone(), detail: end.detail.clone(), merged: end.merged }),
    }
}

/// What was given for parameters; nothing where nothing was.
fn parameters(item: &ItemEntry) -> Option<Map<String, Json>> {
    let given = item.parameters.iter().map(|(name, value)| (name.clone(), value.to_json()));
    (!item.parameters.is_empty()).then(|| given.collect())
}

/// The outside event an item goes back to, as far as it is known.
pub(crate) struct Event {
    id: Option<String>,
    at: Timestamp,
}

impl Event {
    /// The event of an item.
    pub(crate) fn of(reading: &Reading<'_>, item: &ItemEntry) -> Result<Event, ApiError> {
        let at = match item.trigger {
            Some(trigger) => reading.history().trigger(trigger, reading.at)?.map(|entry| entry.received_at),
            None => None,
        };
        Ok(Event { id: item.trigger.map(|trigger| trigger.to_string()), at: at.unwrap_or(item.enqueued_at) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_holds_one_item_alone_is_called_after_its_project() {
        let subject = Subject {
            connection: "forge".to_owned(),
            project: "git.example/library".to_owned(),
            branch: None,
            git_ref: "refs/for/master/a".to_owned(),
            change: None,
            patchset: None,
            commit: None,
            old_commit: None,
            url: String::new(),
        };
        assert_eq!(queue_name("01909d1b5b9e01599e9c25853e927205", Some(&subject)), "library");
        assert_eq!(queue_name("integrated", Some(&subject)), "integrated");
        assert_eq!(queue_name("integrated", None), "integrated");
    }
}
