//! Whose data a key seals.

use std::fmt;

use gatelog_record::{ActorId, BuildsetId, Timestamp};

use crate::error::KeyringError;

/// What is forgotten together, and so has one key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// A person's name and addresses.
    Person(ActorId),
    /// A project's texts and private blobs, by its canonical name (`host/path`).
    Project(String),
    /// What a buildset's jobs hand each other under `secret_data`; forgotten when the buildset is over.
    Buildset(BuildsetId),
    /// Raw bodies that came by a connection in one month.
    Intake {
        /// The connection.
        connection: String,
        /// The month, as `2026-11`.
        month: String,
    },
}

impl Scope {
    /// The longest name of a scope, in bytes.
    pub const MAX: usize = 512;

    /// The intake of a connection in the month (UTC) of this moment.
    pub fn intake(connection: impl Into<String>, at: Timestamp) -> Scope {
        let month = at.to_string().get(..7).unwrap_or_default().to_owned();
        Scope::Intake { connection: connection.into(), month }
    }

    /// What [`Scope`] prints, read back.
    pub fn read(name: &str) -> Option<Scope> {
        let (kind, subject) = name.split_once('/')?;
        let scope = match kind {
            "person" => Scope::Person(subject.parse().ok()?),
            "project" => Scope::Project(subject.to_owned()),
            "buildset" => Scope::Buildset(subject.parse().ok()?),
            "intake" => {
                let (connection, month) = subject.rsplit_once('/')?;
                Scope::Intake { connection: connection.to_owned(), month: month.to_owned() }
            }
            _ => return None,
        };
        scope.name().is_ok().then_some(scope)
    }

    /// The scope's name, checked: it becomes the first part of key ids (`<name>@<which>`).
    pub(crate) fn name(&self) -> Result<String, KeyringError> {
        let name = self.to_string();
        let subject = name.split_once('/').map_or("", |(_, subject)| subject);
        let fine =
            !subject.is_empty() && name.len() <= Self::MAX && !name.contains('@') && !name.contains(char::is_control);
        if fine { Ok(name) } else { Err(KeyringError::Scope { scope: name, most: Self::MAX }) }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Person(actor) => write!(f, "person/{actor}"),
            Scope::Project(name) => write!(f, "project/{name}"),
            Scope::Buildset(buildset) => write!(f, "buildset/{buildset}"),
            Scope::Intake { connection, month } => write!(f, "intake/{connection}/{month}"),
        }
    }
}
