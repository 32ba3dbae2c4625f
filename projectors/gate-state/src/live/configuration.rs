//! Tenants, their configuration files, their layouts, the tips of their branches.

use std::collections::BTreeSet;

use gatelog_record::draft::gate::{
    ConfigFileSet, ProjectBranch, ProjectProblem, TenantLoaded, TenantProject, TriggerIntake,
};
use gatelog_record::{BlobHash, Timestamp, WorkId};
use gatelog_tables::TableDef;
use gatelog_tables::table::Life;
use serde::{Deserialize, Serialize};

/// Tenants, by name.
#[derive(Debug)]
pub struct Tenants;
impl TableDef for Tenants {
    const ID: u16 = 20;
    const NAME: &'static str = "tenants";
    const LIFE: Life = Life::Live;
    type Key = String;
    type Row = TenantRow;
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantRow {
    /// Its settings.
    pub loaded: TenantLoaded,
    /// The event that brought them.
    pub configured: u64,
    /// Whether its configuration files were read since.
    pub read: bool,
    /// Whether something a layout is made of changed since the last layout was asked for.
    pub stale: bool,
    /// Reads of configuration files under way.
    pub config_reads: Vec<WorkId>,
    /// Projects (canonical names) of which the gate has merged configuration that nobody has read since.
    pub unread_merges: BTreeSet<String>,
    /// The making of its layout under way.
    pub layout_work: Option<WorkId>,
    /// Why the newest layout could not be made: code and text. The one before stays in force.
    pub layout_problem: Option<(String, String)>,
    /// What becomes of outside events.
    pub triggers: TriggerIntake,
    /// Why, in the words of whoever asked.
    pub triggers_reason: String,
}

impl TenantRow {
    /// The project of this canonical name.
    pub fn project(&self, canonical: &str) -> Option<&TenantProject> {
        self.loaded.projects.iter().find(|project| project.project == canonical)
    }

    /// Whether its configuration is on its way to change.
    pub fn reconfiguring(&self) -> bool {
        self.stale || self.layout_work.is_some() || !self.config_reads.is_empty()
    }
}

/// Configuration files, by tenant, project (canonical name) and branch.
#[derive(Debug)]
pub struct ConfigFiles;
impl TableDef for ConfigFiles {
    const ID: u16 = 21;
    const NAME: &'static str = "config-files";
    const LIFE: Life = Life::Live;
    type Key = (String, String, String);
    type Row = ConfigFileSet;
}

/// Projects whose configuration could not be read, by tenant and project (canonical name).
#[derive(Debug)]
pub struct Unread;
impl TableDef for Unread {
    const ID: u16 = 22;
    const NAME: &'static str = "unread";
    const LIFE: Life = Life::Live;
    type Key = (String, String);
    type Row = UnreadRow;
}

/// A project whose configuration could not be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnreadRow {
    /// Why.
    pub problem: ProjectProblem,
    /// Since when.
    pub since: Timestamp,
    /// How often in a row.
    pub times: u32,
}

/// Layouts in force, by tenant.
#[derive(Debug)]
pub struct Layouts;
impl TableDef for Layouts {
    const ID: u16 = 23;
    const NAME: &'static str = "layouts";
    const LIFE: Life = Life::Live;
    type Key = String;
    type Row = LayoutRow;
}

/// A layout in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayoutRow {
    /// The layout, a blob.
    pub layout: BlobHash,
    /// Its problems, a blob.
    pub problems: BlobHash,
    /// How many of them are errors.
    pub errors: u32,
    /// The version of the loader.
    pub loader: u32,
    /// How many layouts the tenant has had, with this one.
    pub generation: u64,
    /// The event since which it is in force.
    pub activated: u64,
}

/// Tips of branches as far as they are known, by tenant, project (canonical name) and branch.
#[derive(Debug)]
pub struct Branches;
impl TableDef for Branches {
    const ID: u16 = 24;
    const NAME: &'static str = "branches";
    const LIFE: Life = Life::Live;
    type Key = (String, String, String);
    type Row = String;
}

/// How new what is known of a project's configuration is, by tenant and project (canonical name):
/// the event that asked for the newest read that was taken.
#[derive(Debug)]
pub struct ProjectReads;
impl TableDef for ProjectReads {
    const ID: u16 = 35;
    const NAME: &'static str = "project-reads";
    const LIFE: Life = Life::Live;
    type Key = (String, String);
    type Row = u64;
}

/// The key of a branch.
pub(crate) fn branch_key(tenant: &str, at: &ProjectBranch) -> (String, String, String) {
    (tenant.to_owned(), at.project.clone(), at.branch.clone())
}
