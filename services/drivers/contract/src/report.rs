//! Reports.

use gatelog_record::Value;
use gatelog_record::draft::gate::{ReportRequested, Subject};

use crate::trouble::Trouble;

/// A report for one reporter.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// What is to be told. Its `work` is the report's id: the same at every sending. Its `subjects` are all the report is
    /// about, of whatever connection.
    pub request: &'a ReportRequested,
    /// Of the subjects those that this reporter speaks to: its own for a code-review system, all for the others.
    pub subjects: &'a [&'a Subject],
    /// What the pipeline says to the reporter, in the driver's words; it fits [`crate::DriverSchema::reporter`].
    pub settings: &'a Value,
}

/// Who is told how it went: a code-review system, a mail server, a message broker.
pub trait Reporter: Send + Sync {
    /// Whether it speaks to changes and refs of its own connection alone, as code-review systems do. Such a one is not
    /// asked about subjects of another; any other reporter is told of all.
    fn only_own(&self) -> bool;

    /// Delivers a report about all its subjects: start and result alike (`request.action`).
    ///
    /// Ok means that the other side has it and keeps it: a note is written, a vote is there, the mail server or the
    /// broker has acknowledged. Until then it is trouble.
    ///
    /// To be asked twice is to do it once as far as the other side lets one know: by a key of its own (a check run's
    /// external id, a status by its context, a tag or a hidden mark in a message that names `request.work`). Where it
    /// keeps no such thing (mail, brokers), the report carries `request.work` as its id and is delivered at least once.
    ///
    /// What is longer than the other side takes is shortened, the short form first, and says so. Remarks on lines go only
    /// to files that the change has. Where the settings ask for what is not allowed (an unknown vote, a foreign file), the
    /// message is delivered without it and the trouble says what was left out.
    ///
    /// # Errors
    /// Trouble that passes is tried again with the same `work`; other trouble is recorded with its words.
    fn report(&self, report: &Report<'_>) -> Result<(), Trouble>;
}
