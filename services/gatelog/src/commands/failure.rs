//! How a command ends: exit codes, and what is said when it failed.

use std::fmt::Display;
use std::process::ExitCode;

use gatelog_event_log::history::VerifyError;
use gatelog_event_log::{BlobError, HistoryError, LogError};
use gatelog_log_kafka::FindingKind;
use gatelog_replay::ReplayError;
use gatelog_replay::explain::ExplainError;
use gatelog_replay::step::StepError;

use crate::client::ClientError;
use crate::config::ConfigError;
use crate::logs::OpenError;
use crate::server::StartError;
use crate::show::{Paint, Style, clean};

/// Exit codes. The numbers are a promise: scripts rely on them (`docs/exit-codes.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// All is well.
    Ok = 0,
    /// The answer is no, or something failed that has no code of its own.
    No = 1,
    /// The command line does not make sense.
    Usage = 2,
    /// There is no such thing.
    NotFound = 3,
    /// The server does not allow it, or the brokers of a log do not.
    NotAllowed = 4,
    /// Somebody else uses it.
    InUse = 5,
    /// Nobody answers, or not in time.
    Unavailable = 6,
    /// The log, a blob or the chain is not what was written.
    Integrity = 7,
    /// Replay came to something else than what is on the log.
    Diverged = 8,
    /// Another process has taken over.
    Fenced = 9,
}

impl Code {
    fn of_log(error: &LogError) -> Code {
        match error {
            LogError::Damaged { .. } | LogError::Behind { .. } => Code::Integrity,
            LogError::InUse { .. } => Code::InUse,
            LogError::Busy { .. } => Code::Unavailable,
            _ => Code::No,
        }
    }

    fn of_config(error: &ConfigError) -> Code {
        match error {
            ConfigError::Read { why, .. } if why.kind() == std::io::ErrorKind::NotFound => Code::NotFound,
            ConfigError::Read { .. } => Code::No,
            ConfigError::Parse { .. } | ConfigError::Meaning { .. } => Code::Usage,
        }
    }

    fn of_client(error: &ClientError) -> Code {
        match error {
            ClientError::Unreachable { .. } => Code::Unavailable,
            ClientError::Refused { status: 404, .. } => Code::NotFound,
            ClientError::Refused { status: 401 | 403, .. } => Code::NotAllowed,
            ClientError::Refused { status: 409, .. } => Code::InUse,
            ClientError::Refused { status: 400, .. } => Code::Usage,
            ClientError::Refused { status: 408 | 429 | 502.., .. } => Code::Unavailable,
            _ => Code::No,
        }
    }

    /// Of something that is wrong with a log on Kafka.
    pub fn of_finding(kind: FindingKind) -> Code {
        match kind {
            FindingKind::Configuration => Code::Usage,
            FindingKind::Security => Code::NotAllowed,
            FindingKind::Unreachable => Code::Unavailable,
            _ => Code::No,
        }
    }

    fn of_start(error: &StartError) -> Code {
        match error {
            StartError::Config(error) => Code::of_config(error),
            StartError::Open(error) => Code::of_open(error),
            StartError::Settings(_) | StartError::Tenants(_) | StartError::Alone { .. } => Code::Usage,
            StartError::InUse { .. } => Code::InUse,
            StartError::Projection { .. } | StartError::NotHosted { .. } | StartError::Part { .. } => Code::No,
        }
    }

    fn of_open(error: &OpenError) -> Code {
        match error {
            OpenError::Log(error) => Code::of_log(error),
            OpenError::Unreachable { .. } => Code::Unavailable,
            OpenError::Security { .. } => Code::NotAllowed,
            OpenError::Configuration { .. } | OpenError::Partitions { .. } | OpenError::Slice { .. } => Code::Usage,
            OpenError::Topics { .. } | OpenError::Blobs(_) => Code::No,
        }
    }

    /// The code of the first cause that has one of its own.
    fn of_any(error: &anyhow::Error) -> Code {
        let known = error.chain().find_map(|cause| {
            let log = cause.downcast_ref::<LogError>().map(Code::of_log);
            let config = || cause.downcast_ref::<ConfigError>().map(Code::of_config);
            let client = || cause.downcast_ref::<ClientError>().map(Code::of_client);
            let history = || cause.downcast_ref::<HistoryError>().map(|_| Code::Integrity);
            let start = || cause.downcast_ref::<StartError>().map(Code::of_start);
            let open = || cause.downcast_ref::<OpenError>().map(Code::of_open);
            log.or_else(config).or_else(client).or_else(history).or_else(start).or_else(open)
        });
        known.unwrap_or(Code::No)
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code as u8)
    }
}

/// Why a command failed: what happened, what is known of it, and what may help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub code: Code,
    /// What happened, one sentence.
    pub primary: String,
    /// What else is known.
    pub detail: Vec<String>,
    /// What may help.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure in one sentence.
    pub fn new(code: Code, primary: impl Into<String>) -> Failure {
        Failure { code, primary: primary.into(), detail: Vec::new(), hint: None }
    }

    /// With one more thing that is known.
    pub fn detail(mut self, detail: impl Into<String>) -> Failure {
        self.detail.push(detail.into());
        self
    }

    /// With what may help.
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// The text for a terminal or a file.
    pub fn render(&self, style: Style) -> String {
        let lines = |text: &str| text.lines().map(clean).collect::<Vec<_>>().join("\n  ");
        let mut out = format!("{} {}\n", style.paint(Paint::Red, "error:"), lines(&self.primary));
        for detail in &self.detail {
            out.push_str(&format!("  {}\n", lines(detail)));
        }
        if let Some(hint) = &self.hint {
            out.push_str(&format!("{} {}\n", style.paint(Paint::Bold, "hint:"), lines(hint)));
        }
        out
    }

    /// Says it on stderr.
    pub fn print(&self) {
        use std::io::Write;
        // Nobody can be told when stderr is closed.
        let _ = std::io::stderr().write_all(self.render(style_of_stderr()).as_bytes());
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.primary)
    }
}

impl std::error::Error for Failure {}

fn style_of_stderr() -> Style {
    use std::io::IsTerminal;
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if std::io::stderr().is_terminal() && !refused { Style::Colour } else { Style::Plain }
}

/// `what: message; cure` as the house writes its errors, with the cure as the hint.
fn split(code: Code, error: &dyn Display) -> Failure {
    let text = error.to_string();
    match text.rsplit_once("; ") {
        Some((primary, hint)) => Failure::new(code, primary).hint(hint),
        None => Failure::new(code, text),
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        split(Code::of_open(&error), &error)
    }
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Failure {
        split(Code::of_log(&error), &error)
    }
}

impl From<HistoryError> for Failure {
    fn from(error: HistoryError) -> Failure {
        Failure::new(Code::Integrity, format!("history of {} is broken at offset {}", error.partition, error.offset.0))
            .detail(error.what.to_string())
            .hint("nothing after this place is read: see `gatelog log verify`, or restore the log from a backup")
    }
}

impl From<VerifyError> for Failure {
    fn from(error: VerifyError) -> Failure {
        match error {
            VerifyError::History(error) => error.into(),
            VerifyError::Log(error) => error.into(),
            VerifyError::Input { .. } => Failure::new(Code::Integrity, error.to_string()),
        }
    }
}

impl From<BlobError> for Failure {
    fn from(error: BlobError) -> Failure {
        let code = match error {
            BlobError::Missing(_) | BlobError::Damaged { .. } => Code::Integrity,
            _ => Code::No,
        };
        split(code, &error)
    }
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Failure {
        let code = match error {
            ReplayError::Log(error) => return error.into(),
            ReplayError::History(error) => return error.into(),
            ReplayError::Blob(error) => return error.into(),
            ReplayError::NotYet { .. }
            | ReplayError::Slice { .. }
            | ReplayError::NoEvent(_)
            | ReplayError::NoSuchInput { .. }
            | ReplayError::BeforeGenesis { .. } => Code::NotFound,
            ReplayError::TenantFile { .. } => Code::Usage,
            ReplayError::RungDiffers { .. }
            | ReplayError::NoInput { .. }
            | ReplayError::NoBlob { .. }
            | ReplayError::InputChanged { .. }
            | ReplayError::Frame { .. }
            | ReplayError::Body { .. } => Code::Integrity,
            ReplayError::FoldRefused { .. } => Code::Diverged,
            _ => Code::No,
        };
        split(code, &error)
    }
}

impl From<ExplainError> for Failure {
    fn from(error: ExplainError) -> Failure {
        let code = match &error {
            ExplainError::Replay(_) => Code::No,
            ExplainError::Ambiguous { .. } | ExplainError::NotAPosition(_) => Code::Usage,
            ExplainError::Trace { .. } => Code::Integrity,
            ExplainError::NoTenant { .. }
            | ExplainError::Unknown { .. }
            | ExplainError::NoEvent { .. }
            | ExplainError::NoJob { .. }
            | ExplainError::NothingFrozen { .. } => Code::NotFound,
        };
        let mut failure = Failure::new(code, error.to_string());
        failure.detail = error.detail();
        failure.hint = error.hint();
        match error {
            ExplainError::Replay(error) => error.into(),
            _ => failure,
        }
    }
}

impl From<StepError> for Failure {
    fn from(error: StepError) -> Failure {
        match error {
            StepError::Replay(error) => error.into(),
            StepError::Explain(error) => error.into(),
            StepError::Command(_) => split(Code::Usage, &error),
            StepError::NoDomain { .. }
            | StepError::AtTheEnd(_)
            | StepError::AtTheBeginning(_)
            | StepError::NoFurther { .. } => split(Code::NotFound, &error),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        split(Code::of_client(&error), &error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        split(Code::of_config(&error), &error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        let error = match error.downcast::<Failure>() {
            Ok(failure) => return failure,
            Err(error) => error,
        };
        let code = Code::of_any(&error);
        let mut texts = error.chain().map(ToString::to_string);
        let primary = texts.next().unwrap_or_default();
        let mut failure = Failure::new(code, primary.clone());
        let mut last = primary;
        for text in texts {
            // Many errors quote their cause: it is not said twice.
            if !last.contains(&text) {
                failure.detail.push(text.clone());
            }
            last = text;
        }
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_happened_what_is_known_and_what_may_help() {
        let failure = Failure::new(Code::NotFound, "there is no change \"a\u{1b}[2J\"")
            .detail("known are: b")
            .hint("name one of these");
        assert_eq!(
            failure.render(Style::Plain),
            "error: there is no change \"a\u{fffd}[2J\"\n  known are: b\nhint: name one of these\n"
        );
        assert!(failure.render(Style::Colour).starts_with("\u{1b}[31merror:\u{1b}[0m "));
    }

    #[test]
    fn exit_codes_follow_from_what_went_wrong() {
        let in_use = LogError::InUse { path: "/srv/ci/log".into(), holder: "4711".into() };
        let wrapped = anyhow::Error::from(in_use).context("the server cannot start");
        let failure = Failure::from(wrapped);
        assert_eq!((failure.code, failure.primary.as_str()), (Code::InUse, "the server cannot start"));
        assert!(failure.detail[0].contains("4711"), "{failure:?}");

        let refused =
            |status| Failure::from(ClientError::Refused { url: "u".into(), status, message: "m".into() }).code;
        let codes: Vec<Code> = [400, 401, 403, 404, 409, 500, 503].map(refused).into();
        use Code::*;
        assert_eq!(codes, [Usage, NotAllowed, NotAllowed, NotFound, InUse, No, Unavailable]);
        assert_eq!(Failure::from(BlobError::Missing(gatelog_record::BlobHash([1; 32]))).code, Integrity);
    }
}
