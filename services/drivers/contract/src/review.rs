//! Code-review systems.

use std::fmt;
use std::path::PathBuf;

use gatelog_record::WorkId;
use gatelog_record::draft::gate::{ChangeKey, ChangesWanted};

use crate::facts::{Branch, Found, Permission};
use crate::submit::{Landing, Target};
use crate::trouble::Trouble;

/// A secret in memory: never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// What a repository is fetched with. Never part of its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// HTTP: a user and a password or token.
    Basic {
        /// The user.
        user: String,
        /// The password.
        password: Secret,
    },
    /// HTTP: the value of an `Authorization` header.
    Bearer(Secret),
    /// SSH: a private key, and the hosts that are known.
    Ssh {
        /// The file of the private key.
        key: PathBuf,
        /// The file of known host keys; a host that is not in it is refused.
        known_hosts: PathBuf,
    },
}

/// Where a repository can be fetched, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The address: a path on this host or a URL, without credentials.
    pub url: String,
    /// What the other side asks for; `None` where it asks for nothing.
    pub credentials: Option<Credentials>,
}

impl Source {
    /// A repository that is fetched without credentials.
    pub fn open(url: impl Into<String>) -> Source {
        Source { url: url.into(), credentials: None }
    }
}

/// A code-review system: it has projects and changes, and merges or lets merge.
///
/// Facts are what holds at the moment of asking; asking changes nothing. A fact that a driver cannot tell at all is
/// trouble with the code `not-offered`; one that does not apply (topics where there are none) is empty.
pub trait CodeReview: Send + Sync {
    /// The host part of its projects' canonical names. The same for the life of a connection.
    fn canonical_hostname(&self) -> &str;

    /// All hosts by which addresses of its changes may name it, the canonical one among them.
    fn hosts(&self) -> Vec<String> {
        vec![self.canonical_hostname().to_owned()]
    }

    /// Where a project (by its name on this connection) can be fetched. Asks nobody; a project that is not there shows
    /// when it is fetched. The ref of a change is in its facts ([`gatelog_record::draft::gate::Subject::git_ref`]).
    ///
    /// # Errors
    /// A name that no project can have; credentials that cannot be read.
    fn source(&self, project: &str) -> Result<Source, Trouble>;

    /// The closure of the changes asked for: what they need by git, by `Depends-On`, by topic, and if wanted the open
    /// changes that need them. All of it, or trouble `too-many-changes`: a part would be tested without the rest.
    ///
    /// # Errors
    /// Nothing is decided on trouble; the question is asked again, where that may help.
    fn find_changes(&self, wanted: &ChangesWanted) -> Result<Found, Trouble>;

    /// The change that an address names; `None` when it names none of this connection's. The number or name is parsed
    /// and compared, never searched as a text, and the answer does not depend on an index that may lag: a change that
    /// is being merged is found.
    ///
    /// # Errors
    /// The other side could not be asked. An address that is nobody's is not worth asking.
    fn change_by_url(&self, url: &str) -> Result<Option<ChangeKey>, Trouble>;

    /// The open changes of a topic, over all projects. None where the other side has no topics.
    ///
    /// # Errors
    /// The other side could not be asked, or tells of more changes than a closure may have (`too-many-changes`).
    fn changes_by_topic(&self, topic: &str) -> Result<Vec<ChangeKey>, Trouble> {
        let _ = topic;
        Ok(Vec::new())
    }

    /// The open changes of a project whose current patchset is this commit: whose event names a commit alone.
    ///
    /// # Errors
    /// The other side could not be asked.
    fn changes_by_commit(&self, project: &str, commit: &str) -> Result<Vec<ChangeKey>, Trouble>;

    /// The branches of a project, sorted by name.
    ///
    /// # Errors
    /// The project does not exist, or the other side could not be asked.
    fn branches(&self, project: &str) -> Result<Vec<Branch>, Trouble>;

    /// The branch that a clone of a project checks out; `None` where the project has none yet.
    ///
    /// # Errors
    /// As [`CodeReview::branches`].
    fn default_branch(&self, project: &str) -> Result<Option<String>, Trouble>;

    /// What an account of the other side may do in a project; `None` where it does not tell such things.
    ///
    /// # Errors
    /// As [`CodeReview::branches`].
    fn permission(&self, project: &str, account: &str) -> Result<Option<Permission>, Trouble> {
        let _ = (project, account);
        Ok(None)
    }

    /// Merges for real: every target of one item that is on this connection, in their order, in one call, so that the
    /// other side can merge together what belongs together (a topic, a cycle). Reports of the same item are delivered
    /// before it is called.
    ///
    /// The answer has one landing for each target, in their order. Each branch moves only from exactly `tested_base`.
    /// Where gatelog moves the branch, it moves to exactly `tested_commit`. Where the other side merges, the driver reads
    /// the branch before (another tip: [`Landing::BaseMoved`]) and commit and tree after (another tree:
    /// [`Landing::MergedUntested`]). Nothing comes after a target that did not merge: those are [`Landing::HeldBack`],
    /// unless the other side merged them along.
    ///
    /// To be asked twice for the same `work` is to do it once: what is in the branch already is [`Landing::Merged`],
    /// whoever asked for it, and "already merged" is no refusal.
    ///
    /// # Errors
    /// Only where nothing was touched. Where the commit, or the repository it was said to be in, is not there, that is
    /// [`crate::COMMIT_MISSING`]: it is made there and asked for again. What fails later is a landing.
    fn submit_all(&self, work: WorkId, targets: &[Target<'_>]) -> Result<Vec<Landing>, Trouble>;
}
