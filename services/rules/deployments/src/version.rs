//! Which Fuel a graph is read as.

use serde::{Deserialize, Serialize};

/// A version of Fuel whose rules are followed. Graphs of gatelog itself are read as [`Version::Seven`] with names
/// that may be patterns ([`Version::patterns`]); the others exist for graphs, and for answers, of those versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Version {
    /// 7.0: roles with numbers, the whole graph sorted.
    #[default]
    Seven,
    /// 8.0: patterns in `groups`, relations between nodes, versions of tasks.
    Eight,
    /// 9.2: tasks on nodes instead of roles with numbers.
    Nine,
}

impl Version {
    /// The version as Fuel writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::Seven => "7.0",
            Version::Eight => "8.0",
            Version::Nine => "9.2",
        }
    }

    /// Whether a name between slashes is a pattern. Fuel: since 8.0.
    pub fn patterns(self) -> bool {
        self >= Version::Eight
    }

    /// The types of tasks that an upload may name, in the order in which Fuel lists them.
    pub fn task_types(self) -> &'static [&'static str] {
        const OLD: &[&str] =
            &["puppet", "shell", "sync", "upload_file", "group", "stage", "skipped", "reboot", "copy_files"];
        const NINE: &[&str] = &[
            "puppet",
            "shell",
            "sync",
            "upload_file",
            "group",
            "stage",
            "skipped",
            "reboot",
            "copy_files",
            "role",
            "master_shell",
            "move_to_bootstrap",
            "erase_node",
        ];
        if self == Version::Nine { NINE } else { OLD }
    }
}
