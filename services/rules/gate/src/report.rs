//! Reports: what is said, to whom, and what becomes of it.

use gatelog_deciding::Refusal;
use gatelog_deciding::work::DecidesWork;
use gatelog_gate_state::live::{BuildRow, BuildsetRow, ItemRow, ProblemKind, Work};
use gatelog_record::draft::gate::{
    BuildResult, ConfigRemark, FailuresCounted, ReportAction, ReportDelivered, ReportDone, ReportRequested, Subject,
};
use gatelog_record::event::GateEvent;
use gatelog_record::{BuildId, ItemId, Timestamp};
use gatelog_rules_config::Pipeline;

use crate::decision::Decision;

/// The longest text of a build that goes into a report, in bytes.
const MAX_DETAIL: usize = 300;

/// A pipeline's text with its placeholders filled in.
pub(crate) fn filled(text: &str, pipeline: &Pipeline, item_url: &str) -> String {
    text.replace("{pipeline.name}", &pipeline.name).replace("{item_url}", item_url)
}

/// A pipeline's text, a paragraph and the footer.
pub(crate) fn plain(text: &str, detail: &str, pipeline: &Pipeline) -> String {
    paragraphs([text, detail, &pipeline.messages.footer])
}

fn paragraphs<'p>(parts: impl IntoIterator<Item = &'p str>) -> String {
    let parts: Vec<&str> = parts.into_iter().map(str::trim_end).filter(|part| !part.is_empty()).collect();
    parts.join("\n\n")
}

/// How long a build took: `5m 03s`, `1h 05m 03s`.
pub(crate) fn took(from: Timestamp, to: Timestamp) -> String {
    let seconds = to.millis_since(from).max(0) / 1_000;
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}m {seconds:02}s"),
        _ => format!("{hours}h {minutes:02}m {seconds:02}s"),
    }
}

/// A build's line. Zuul: other programs read lines of this form.
fn line(id: BuildId, build: &BuildRow, root: &str) -> Option<String> {
    let result = build.result?;
    let url = build.log_url.clone().unwrap_or_else(|| format!("{root}/t/{}/build/{id}", build.tenant));
    let said = match (result, &build.job.success_message, &build.job.failure_message) {
        (BuildResult::Success, Some(text), _) | (BuildResult::Failure, _, Some(text)) => text.as_str(),
        _ => result.word(),
    };
    let detail = match (&build.detail, result) {
        (Some(detail), result) if result != BuildResult::Success => format!(" {}", shortened(detail)),
        _ => String::new(),
    };
    let time = match (build.started_at, build.finished_at) {
        (Some(from), Some(to)) if build.settled.is_none() => format!(" in {}", took(from, to)),
        _ => String::new(),
    };
    let voting = if build.job.voting { "" } else { " (non-voting)" };
    Some(format!("- {} {url} : {said}{detail}{time}{voting}", build.job.name))
}

fn shortened(text: &str) -> String {
    let one_line = text.lines().next().unwrap_or_default();
    let mut end = one_line.len().min(MAX_DETAIL);
    while !one_line.is_char_boundary(end) {
        end -= 1;
    }
    one_line.get(..end).unwrap_or_default().to_owned()
}

/// Zuul: jobs left out by what another returned are counted, not listed.
fn is_hidden(build: &BuildRow) -> bool {
    matches!(build.settled.as_deref(), Some("child-jobs" | "dependency-skipped"))
}

impl Decision<'_> {
    /// The whole message of an item's result.
    pub(crate) fn result_message(
        &self,
        item: ItemId,
        row: &ItemRow,
        pipeline: &Pipeline,
        action: ReportAction,
        detail: &str,
    ) -> String {
        let root = self.tenant(&row.tenant).map(|row| row.loaded.web_root.trim_end_matches('/')).unwrap_or_default();
        let messages = &pipeline.messages;
        let text = match action {
            ReportAction::Success => &messages.success,
            ReportAction::MergeConflict => &messages.merge_conflict,
            ReportAction::NoJobs => &messages.no_jobs,
            ReportAction::Start => &messages.start,
            ReportAction::Enqueue => &messages.enqueue,
            ReportAction::Dequeue => &messages.dequeue,
            ReportAction::Failure | ReportAction::ConfigError | ReportAction::Disabled => &messages.failure,
        };
        let url = match (root, row.buildset) {
            ("", _) | (_, None) => String::new(),
            (root, Some(buildset)) => format!("{root}/t/{}/buildset/{buildset}", row.tenant),
        };
        // Zuul: of an item that does not merge, or that was thrown out, no job is listed.
        let shows_jobs =
            |set: &BuildsetRow| set.problem.as_ref().is_none_or(|problem| problem.kind != ProblemKind::Conflict);
        let builds: Vec<(BuildId, &BuildRow)> = self
            .buildset_of(item)
            .filter(|(_, set)| shows_jobs(set))
            .map(|(_, set)| set.builds.as_slice())
            .unwrap_or_default()
            .iter()
            .filter_map(|id| Some((*id, self.build(*id)?)))
            .filter(|(_, build)| !build.job.traits.reporter)
            .collect();
        let lines: Vec<String> = builds
            .iter()
            .filter(|(_, build)| !is_hidden(build))
            .filter_map(|(id, build)| line(*id, build, root))
            .collect();
        let skipped = match builds.iter().filter(|(_, build)| is_hidden(build)).count() {
            0 => String::new(),
            1 => "Skipped 1 job".to_owned(),
            count => format!("Skipped {count} jobs"),
        };
        let text = filled(text, pipeline, &url);
        let warned = match self.warnings(item, action) {
            [] => String::new(),
            warnings => {
                let texts: Vec<&str> = warnings.iter().map(|remark| remark.text.as_str()).collect();
                format!("Warnings about the configuration:\n\n{}", texts.join("\n\n"))
            }
        };
        paragraphs([text.as_str(), &url, detail, &lines.join("\n"), &skipped, &warned, &messages.footer])
    }

    /// What is wrong with an item's configuration without keeping it from anything: told once, with its result.
    fn warnings(&self, item: ItemId, action: ReportAction) -> &[ConfigRemark] {
        match action {
            ReportAction::Start | ReportAction::Enqueue | ReportAction::Dequeue => &[],
            _ => self.buildset_of(item).map_or(&[], |(_, set)| &set.warnings),
        }
    }

    /// Who is told of a result: nobody but the `disabled` reporters once too much failed in a row.
    pub(crate) fn told_as(&self, tenant: &str, pipeline: &Pipeline, action: ReportAction) -> ReportAction {
        if self.is_disabled(tenant, pipeline) { ReportAction::Disabled } else { action }
    }

    /// Whether too much failed in a row in a pipeline.
    pub(crate) fn is_disabled(&self, tenant: &str, pipeline: &Pipeline) -> bool {
        let row = self.gate().failures.row(&(tenant.to_owned(), pipeline.name.clone()));
        row.is_some_and(|row| row.disabled)
    }

    /// Counts an item that failed, or ends the count. Zuul: `disable-after-consecutive-failures`; the
    /// report that reaches the limit is still told as usual.
    pub(crate) fn count_failures(&mut self, tenant: &str, pipeline: &Pipeline, failed: bool) -> Result<(), Refusal> {
        let Some(limit) = pipeline.disable_after_consecutive_failures else { return Ok(()) };
        let row = self.gate().failures.row(&(tenant.to_owned(), pipeline.name.clone()));
        let (before, was_disabled) = row.map_or((0, false), |row| (row.failures, row.disabled));
        let failures = if failed { before.saturating_add(1) } else { 0 };
        let disabled = was_disabled || failures >= limit;
        if (failures, disabled) == (before, was_disabled) {
            return Ok(());
        }
        let (tenant, pipeline) = (tenant.to_owned(), pipeline.name.clone());
        self.emit(GateEvent::FailuresCounted(FailuresCounted { tenant, pipeline, failures, disabled }))
    }

    /// Zuul: a new layout enables every pipeline again.
    pub(crate) fn enable_pipelines(&mut self, tenant: &str) -> Result<(), Refusal> {
        let from = (tenant.to_owned(), String::new());
        let rows = self.gate().failures.rows(std::ops::Bound::Included(&from), std::ops::Bound::Unbounded);
        let pipelines: Vec<String> =
            rows.take_while(|(key, _)| key.0 == tenant).map(|(key, _)| key.1.clone()).collect();
        for pipeline in pipelines {
            let tenant = tenant.to_owned();
            self.emit(GateEvent::FailuresCounted(FailuresCounted { tenant, pipeline, failures: 0, disabled: false }))?;
        }
        Ok(())
    }

    /// Requests a report from all who report this action in a pipeline; nothing if nobody does.
    pub(crate) fn report_to(
        &mut self,
        tenant: &str,
        pipeline: &Pipeline,
        item: Option<ItemId>,
        action: ReportAction,
        subjects: &[Subject],
        message: String,
    ) -> Result<(), Refusal> {
        let reporters: Vec<(String, gatelog_record::Value)> = pipeline
            .reporters(action.word())
            .iter()
            .map(|(connection, settings)| (connection.clone(), settings.clone()))
            .collect();
        if reporters.is_empty() {
            return Ok(());
        }
        let remarks = item.map_or_else(Vec::new, |item| self.remarks(item, action, subjects));
        let work = self.deciding.id();
        let requested_at = self.now();
        self.emit(GateEvent::ReportRequested(ReportRequested {
            work,
            tenant: tenant.to_owned(),
            item,
            pipeline: pipeline.name.clone(),
            action,
            reporters,
            subjects: subjects.to_vec(),
            message,
            remarks,
            requested_at,
        }))
    }

    /// What is wrong with lines of the branches an item changes.
    fn remarks(&self, item: ItemId, action: ReportAction, subjects: &[Subject]) -> Vec<ConfigRemark> {
        let problem = self.buildset_of(item).and_then(|(_, set)| set.problem.as_ref());
        let errors = problem.map_or(&[][..], |problem| &problem.remarks);
        let own = |remark: &&ConfigRemark| {
            subjects.iter().any(|subject| {
                subject.project == remark.project && subject.branch.as_deref() == Some(remark.branch.as_str())
            })
        };
        errors.iter().chain(self.warnings(item, action)).filter(own).cloned().collect()
    }

    /// A report was delivered, or could not be. Nothing waits for it: a failure is tried again for a
    /// while, then recorded.
    pub(crate) fn report_done(&mut self, done: &ReportDone) -> Result<(), Refusal> {
        let is_report = |work: &Work| matches!(work, Work::Report(_));
        let Some(row) = self.outcome(done.work, done.attempt, done.failed.is_some(), is_report)? else {
            return Ok(());
        };
        if matches!(done.failed, Some((_, _, true))) && self.send_again(done.work, &row)? {
            return Ok(());
        }
        self.emit(GateEvent::ReportDelivered(ReportDelivered { item: row.work.item(), done: done.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_zuul_writes_them() {
        let after = |seconds| took(Timestamp::ZERO, Timestamp::ZERO.plus_seconds(seconds));
        assert_eq!([after(0), after(303), after(3_903)], ["0m 00s", "5m 03s", "1h 05m 03s"]);
        // Two clocks may disagree.
        assert_eq!(took(Timestamp(5), Timestamp(0)), "0m 00s");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(shortened("one\ntwo"), "one");
        let long = "\u{e9}".repeat(MAX_DETAIL);
        assert_eq!(shortened(&long).len(), MAX_DETAIL);
        assert_eq!(shortened(&format!("a{long}")).len(), MAX_DETAIL - 1);
    }
}
