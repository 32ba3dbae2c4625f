//! What a code-review system knows of changes, branches and people.

use gatelog_record::draft::gate::{ChangeFacts, ChangeKey};

/// Changes with all they hang together with on their connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The facts of each: of those asked for, and of what they need, over any number of steps.
    pub changes: Vec<ChangeFacts>,
    /// Of those asked for, the ones that do not exist, for certain.
    pub missing: Vec<ChangeKey>,
    /// What a `Depends-On` names that is not of this connection, as far as it is an address.
    pub elsewhere: Vec<Unresolved>,
}

/// An address in a `Depends-On` that leads to no change of the connection that read it. Who has all connections decides
/// whose it is ([`crate::Connections::by_address`]); what is nobody's is no dependency. Zuul ignores it, too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unresolved {
    /// The change that names it.
    pub change: ChangeKey,
    /// The address.
    pub url: String,
}

/// A branch of a project.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Branch {
    /// Its name, without `refs/heads/`.
    pub name: String,
    /// Where it is.
    pub commit: String,
    /// Whether the code-review system protects it; `None` where it has no such notion, or does not tell.
    pub protected: Option<bool>,
}

/// What somebody may do in a project, where a code-review system tells. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// Nothing.
    None,
    /// To read.
    Read,
    /// To write: to push, to merge.
    Write,
    /// To administer.
    Admin,
}
