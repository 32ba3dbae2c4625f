//! Why something could not be done, in the form the gate's inputs carry.

use gatelog_record::Timestamp;

/// The code of trouble with a commit that is not where it was said to be: [`crate::CodeReview::submit_all`].
pub const COMMIT_MISSING: &str = "commit-missing";

/// Why something could not be done.
///
/// Three things are told apart, because what helps differs: it may pass (`again`), perhaps not before a certain moment
/// (`retry_at`); the thing is not there *now*, and may be in a second (`not_found_now`); or it stays until somebody does
/// something. "Refused by the rules of the other side" is none of these: that is an outcome, not trouble.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Trouble {
    /// A code, such as `repository-vanished`.
    pub code: String,
    /// For people: what is wrong, and the cure.
    pub message: String,
    /// Whether trying again may help.
    pub again: bool,
    /// Not before this moment, in the time of [`crate::Opening::now`]: the other side said so (a rate limit, an outage
    /// that was announced). `again` is set then.
    pub retry_at: Option<Timestamp>,
    /// It was not found at this moment, and that proves nothing: an index may lag behind, or a right may be missing.
    /// What does not exist for certain is an answer (`None`, an empty list, `missing`), never trouble.
    pub not_found_now: bool,
}

impl Trouble {
    /// Trouble that stays until somebody does something.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Trouble {
        Trouble { code: code.into(), message: message.into(), again: false, retry_at: None, not_found_now: false }
    }

    /// Trouble that trying again may end.
    pub fn passing(code: impl Into<String>, error: &dyn std::error::Error) -> Trouble {
        Trouble { again: true, ..Trouble::new(code, chain(error)) }
    }

    /// Trouble that stays until somebody does something.
    pub fn lasting(code: impl Into<String>, error: &dyn std::error::Error) -> Trouble {
        Trouble::new(code, chain(error))
    }

    /// The same, said to be passing or not.
    #[must_use]
    pub fn again(self, again: bool) -> Trouble {
        Trouble { again, ..self }
    }

    /// The same, to be tried again from this moment on.
    #[must_use]
    pub fn not_before(self, moment: Timestamp) -> Trouble {
        Trouble { again: true, retry_at: Some(moment), ..self }
    }

    /// Something was not found, which proves nothing.
    pub fn not_found_now(code: impl Into<String>, message: impl Into<String>) -> Trouble {
        Trouble { again: true, not_found_now: true, ..Trouble::new(code, message) }
    }

    /// The driver has no such fact to tell, and never will.
    pub fn not_offered(what: &str) -> Trouble {
        Trouble::new("not-offered", format!("this driver cannot tell {what}"))
    }
}

/// An error and all that is behind it, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
