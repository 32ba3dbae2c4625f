//! Tenants, their configuration files, layouts.

use serde::{Deserialize, Serialize};

use super::subjects::ProjectBranch;
use crate::id::{BlobHash, BuildsetId, ItemId, WorkId};

/// One project of a tenant, as routing and placement need it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantProject {
    /// The connection.
    pub connection: String,
    /// The canonical name.
    pub project: String,
    /// Whether it is a config project (trusted).
    pub trusted: bool,
    /// Whether its configuration is read.
    pub reads_config: bool,
}

/// A tenant's settings. Also on the intake, in [`crate::draft::intake::TenantFile`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantLoaded {
    /// The tenant.
    pub tenant: String,
    /// The version of the tenant file it stands in.
    pub version: u64,
    /// All its settings, as a blob.
    pub settings: BlobHash,
    /// Where its page stands: the beginning of addresses in reports. May be empty.
    pub web_root: String,
    /// Its projects, in the order of the tenant file.
    pub projects: Vec<TenantProject>,
}

/// Input: somebody asks that a tenant is configured anew: its files are read again, and a layout is made of them, also
/// where nothing changed in them. Zuul: `tenant-reconfigure`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReconfigureAsked {
    /// The tenant.
    pub tenant: String,
    /// Why, in their words.
    pub reason: String,
}

/// A tenant's settings came into force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantConfigured {
    /// What they are.
    pub tenant: TenantLoaded,
}

/// One configuration file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConfigFile {
    /// Its path in the repository.
    pub path: String,
    /// Its content.
    pub blob: BlobHash,
}

/// The configuration files of one branch of one project.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConfigFileSet {
    /// Connection, project and branch.
    pub at: ProjectBranch,
    /// Whether it is the project's default branch.
    pub default: bool,
    /// The commit they were read from.
    pub commit: String,
    /// The files; empty when there are none.
    pub files: Vec<ConfigFile>,
}

/// What `ConfigFileSet`s are to be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ConfigScope {
    /// Every branch of every project of the tenant that reads configuration.
    Tenant,
    /// All branches of these projects (canonical names).
    Projects(Vec<String>),
}

/// Work: read configuration files at the branches' tips.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigReadWanted {
    /// The work.
    pub work: WorkId,
    /// The tenant.
    pub tenant: String,
    /// What to read.
    pub scope: ConfigScope,
    /// The tenant's projects to be read, resolved from the scope.
    pub projects: Vec<TenantProject>,
}

/// Input: the files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigFilesFound {
    /// The work it answers.
    pub work: WorkId,
    /// Which sending of it.
    pub attempt: u32,
    /// The tenant.
    pub tenant: String,
    /// Every branch that was found, with or without files, project by project.
    pub sets: Vec<ConfigFileSet>,
    /// Projects that could not be read, and why.
    pub failed: Vec<ProjectProblem>,
}

/// A project that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectProblem {
    /// The canonical name.
    pub project: String,
    /// A code: `vanished`, `damaged`, `unreachable`, …
    pub code: String,
    /// For people.
    pub message: String,
}

/// The files were read and replace what was known of those projects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigRead {
    /// What was found.
    pub found: ConfigFilesFound,
    /// The projects whose sets are replaced (canonical names).
    pub replaces: Vec<String>,
    /// Whether anything a layout is made of is different from before.
    pub changed: bool,
}

/// What a layout is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LayoutPurpose {
    /// To be the tenant's.
    Tenant,
    /// To test an item with.
    Use,
    /// To see whether an item's changes to config projects would be right. Nothing is tested with it.
    Validate,
}

/// What is wrong with a line of a configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigRemark {
    /// Canonical name of the project; empty where it is about no file.
    pub project: String,
    /// The branch.
    pub branch: String,
    /// The file.
    pub path: String,
    /// The line, from 1; 0 where it is about the whole file.
    pub line: u32,
    /// What is wrong, with the lines around it and how to mend it.
    pub text: String,
}

/// Work: make a layout. A pure function of what stands here; replay recomputes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayoutWanted {
    /// The work.
    pub work: WorkId,
    /// The tenant.
    pub tenant: String,
    /// What for.
    pub purpose: LayoutPurpose,
    /// For whom: an item's speculative layout, or (if none) the tenant's.
    pub item: Option<ItemId>,
    /// The buildset, if for an item.
    pub buildset: Option<BuildsetId>,
    /// The tenant's settings.
    pub settings: BlobHash,
    /// All files, those of the prepared state in place of those they replace.
    pub files: Vec<ConfigFileSet>,
    /// The problems of the layout ahead: an item's errors count only where they are not there already.
    pub ahead: Option<BlobHash>,
    /// The branches the item's own changes are for: there every error counts.
    pub changed: Vec<ProjectBranch>,
    /// The tenant's layout, a blob: of an item that is tested with what is made, what is static comes from there.
    pub base: Option<BlobHash>,
}

/// Input: the layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayoutMade {
    /// The work it answers.
    pub work: WorkId,
    /// Which sending of it.
    pub attempt: u32,
    /// The tenant.
    pub tenant: String,
    /// The outcome.
    pub outcome: LayoutOutcome,
}

/// What those who have the keys say of a secret that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretVerdict {
    /// The secret.
    pub secret: String,
    /// Canonical name of its project.
    pub project: String,
    /// Why, a code: `secret-undecipherable` (it does not decipher with its project's key), `secret-key-unreadable` (that
    /// key cannot be read), `secrets-too-many` (nobody tried: there is too much to decipher).
    pub code: String,
}

/// How making a layout ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LayoutOutcome {
    /// There is one.
    Made {
        /// The layout, a blob.
        layout: BlobHash,
        /// All problems, a blob.
        problems: BlobHash,
        /// How many of them are errors.
        errors: u32,
        /// For an item: the errors it introduces, for its report.
        introduced: Vec<ConfigRemark>,
        /// The version of the loader.
        loader: u32,
        /// The secrets that the layout's jobs use and that cannot be had, in the order of their names. Rules have no
        /// keys: whether a secret deciphers is found by the effect, and enters with its outcome.
        secrets: Vec<SecretVerdict>,
        /// For an item: warnings about what it changes, and older spellings that it brings. They are told with its
        /// report and keep it from nothing.
        warnings: Vec<ConfigRemark>,
    },
    /// There is none; `code` says why (`blob-missing`, …).
    Failed {
        /// A code.
        code: String,
        /// For people.
        message: String,
    },
}

/// A layout was made for an item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayoutReady {
    /// What was made.
    pub made: LayoutMade,
    /// The item.
    pub item: ItemId,
    /// The buildset.
    pub buildset: BuildsetId,
    /// What it was made for.
    pub purpose: LayoutPurpose,
    /// What is reported when the item's configuration is wrong.
    pub problem: Option<String>,
}

/// A queue counts as begun by what is first in it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueBegun {
    /// The pipeline.
    pub pipeline: String,
    /// The queue.
    pub queue: String,
    /// Project and branch of what is first in it; none while it is empty.
    pub first: Option<(String, Option<String>)>,
}

/// A tenant's layout came into force, or could not be made (then the old one stays).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayoutActivated {
    /// What was made.
    pub made: LayoutMade,
    /// How many layouts the tenant has had, with this one.
    pub generation: u64,
    /// The queues that count as begun anew with it; `None` in version 1, which left it to whoever folds it.
    pub begun: Option<Vec<QueueBegun>>,
}
