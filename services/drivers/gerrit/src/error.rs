//! What can go wrong, by what to conclude from it.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Why Gerrit could not be asked, or what it answered instead. A submit that lost its race is not an error but an
/// [`crate::Submitted`].
#[derive(Debug, thiserror::Error)]
pub enum GerritError {
    /// Gerrit has too much to do, or is down: ask again, not before `retry_at`.
    #[error("{what}: Gerrit answers {status}: {said}; it is asked again later")]
    Busy {
        /// The request.
        what: String,
        /// The HTTP status: 429 or 500 and above.
        status: u16,
        /// The answer's text, shortened.
        said: String,
        /// When to ask again: what `Retry-After` says, else [`crate::Limits::retry_after`] from now.
        retry_at: SystemTime,
    },
    /// No answer at all: no connection, or none in time.
    #[error("{what}: Gerrit at {address} cannot be reached: {why}")]
    Unreachable {
        /// The request.
        what: String,
        /// Gerrit's address, without credentials.
        address: String,
        /// The cause.
        why: String,
        /// When to ask again.
        retry_at: SystemTime,
    },
    /// It is not found at this moment. Gerrit's index has short gaps (while a change merges, after a crash), and
    /// what this account may not see looks the same; asking again may find it.
    #[error(
        "{what} is not found now: {said}; it may be between two states of Gerrit's index, or account {user} may not see it"
    )]
    NotFoundNow {
        /// What was asked for.
        what: String,
        /// The answer's text, shortened.
        said: String,
        /// The account that asked.
        user: String,
    },
    /// It does not exist, for certain: a direct look at the project says so.
    #[error("{what} does not exist on this Gerrit, or account {user} may not read it")]
    Missing {
        /// What was asked for.
        what: String,
        /// The account that asked.
        user: String,
    },
    /// Gerrit takes the account's name and password, but it may not do this.
    #[error("{what}: account {user} may not: {said}; docs/gerrit.md lists the rights that gatelog needs")]
    Forbidden {
        /// The request.
        what: String,
        /// The answer's text, shortened.
        said: String,
        /// The account that asked.
        user: String,
    },
    /// Gerrit does not know the account or its HTTP password.
    #[error("{what}: Gerrit does not accept the HTTP password of account {user}: make one under Settings, HTTP Credentials, and put it into {file}", file = file.display())]
    Unauthorized {
        /// The request.
        what: String,
        /// The account.
        user: String,
        /// Where its password is kept.
        file: PathBuf,
    },
    /// Gerrit understood and said no: asking the same again will not help.
    #[error("{what} is refused with {status}: {said}")]
    Refused {
        /// The request.
        what: String,
        /// The HTTP status.
        status: u16,
        /// The answer's text, shortened.
        said: String,
    },
    /// An answer or an event is not of the shape it should be.
    #[error("{what}: field {field} {why}")]
    BadField {
        /// The answer or event.
        what: String,
        /// The field, by its path.
        field: String,
        /// What is wrong with it.
        why: String,
    },
    /// An answer or an event is no JSON, or no text.
    #[error("{what} cannot be read: {why}")]
    Unreadable {
        /// The answer or event.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// More than a limit allows.
    #[error("{what}: more than the limit of {limit}")]
    TooMuch {
        /// What there is too much of.
        what: String,
        /// The limit.
        limit: usize,
    },
    /// A name or id that cannot be used.
    #[error("{what} {text:?} is not usable: {why}")]
    BadName {
        /// What it should have been.
        what: &'static str,
        /// What was given, shortened.
        text: String,
        /// The rule it breaks.
        why: &'static str,
    },
    /// A setting that cannot work.
    #[error("the connection's {setting} is not usable: {why}")]
    BadSetting {
        /// The setting.
        setting: &'static str,
        /// Why, and what to write instead.
        why: String,
    },
    /// A program (`git`, `ssh`) could not be run, or failed.
    #[error("{program} {what}: {why}")]
    Program {
        /// The program.
        program: &'static str,
        /// What it was to do.
        what: String,
        /// What it said, shortened, without credentials.
        why: String,
    },
    /// A commit that was to be submitted is not where it was said to be.
    #[error("commit {commit} is not in {place}: prepare it again", place = place.display())]
    CommitMissing {
        /// The commit.
        commit: String,
        /// The repository.
        place: PathBuf,
    },
    /// A file could not be read or written.
    #[error("{what} {path}: {why}", path = path.display())]
    File {
        /// What was to be done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        why: std::io::Error,
    },
}

impl GerritError {
    /// Whether asking again, without anybody doing anything, may succeed.
    pub fn passes(&self) -> bool {
        matches!(
            self,
            GerritError::Busy { .. }
                | GerritError::Unreachable { .. }
                | GerritError::NotFoundNow { .. }
                | GerritError::Program { .. }
        )
    }

    /// When to ask again, where Gerrit or the circumstances say so.
    pub fn retry_at(&self) -> Option<SystemTime> {
        match self {
            GerritError::Busy { retry_at, .. } | GerritError::Unreachable { retry_at, .. } => Some(*retry_at),
            _ => None,
        }
    }

    /// A code that stays the same in every release, for logs and answers.
    pub fn code(&self) -> &'static str {
        match self {
            GerritError::Busy { .. } => "busy",
            GerritError::Unreachable { .. } => "unreachable",
            GerritError::NotFoundNow { .. } => "not-found-now",
            GerritError::Missing { .. } => "missing",
            GerritError::Forbidden { .. } => "forbidden",
            GerritError::Unauthorized { .. } => "unauthorized",
            GerritError::Refused { .. } => "refused",
            GerritError::BadField { .. } | GerritError::Unreadable { .. } => "bad-answer",
            GerritError::TooMuch { .. } => "too-much",
            GerritError::BadName { .. } => "bad-name",
            GerritError::BadSetting { .. } => "bad-setting",
            GerritError::Program { .. } => "program-failed",
            GerritError::CommitMissing { .. } => "commit-missing",
            GerritError::File { .. } => "file",
        }
    }
}

/// A text for people, shortened and without control characters, which could otherwise steer a terminal.
pub(crate) fn shorten(text: &str, limit: usize) -> String {
    let clean = text.trim().chars().map(|letter| if letter.is_control() && letter != '\n' { ' ' } else { letter });
    let mut short: String = clean.take(limit).collect();
    if text.trim().chars().nth(limit).is_some() {
        short.push('…');
    }
    short
}

/// `Retry-After`: seconds, or else `default`, which also stands for what is no number (a date is a clock of theirs)
/// and bounds nothing; at most an hour.
pub(crate) fn retry_at(header: Option<&str>, default: Duration, now: SystemTime) -> SystemTime {
    let wait = header.and_then(|text| text.trim().parse().ok()).map_or(default, Duration::from_secs);
    now + wait.min(Duration::from_secs(3600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_what_gerrit_says_within_an_hour() {
        let now = SystemTime::UNIX_EPOCH;
        let default = Duration::from_secs(5);
        let wait = |header| retry_at(header, default, now).duration_since(now).unwrap().as_secs();
        assert_eq!(wait(Some(" 17 ")), 17);
        assert_eq!(wait(None), 5);
        assert_eq!(wait(Some("Wed, 21 Oct 2026 07:28:00 GMT")), 5);
        assert_eq!(wait(Some("99999999999")), 3600);
        assert_eq!(wait(Some("-1")), 5);
    }

    #[test]
    fn texts_of_others_are_shortened_and_cannot_steer_a_terminal() {
        assert_eq!(shorten("  a\u{1b}[31mb\nc  ", 20), "a [31mb\nc");
        assert_eq!(shorten("ééééé", 3), "ééé…");
        assert_eq!(shorten("abc", 3), "abc");
    }
}
