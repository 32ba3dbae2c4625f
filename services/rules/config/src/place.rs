//! Where something stands in the configuration.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::shared::Shared;

/// The file a stanza comes from, as one tenant sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SourceContext {
    /// Canonical name of the project (`host/name`).
    pub project: String,
    /// Branch the file was read from.
    pub branch: String,
    /// Path in the repository.
    pub path: String,
    /// Whether the project is a config project of this tenant.
    pub trusted: bool,
}

/// A file, a line and a column, both counted from 1; 0 means that the whole file is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The file.
    pub context: Shared<SourceContext>,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SourceContext { project, branch, path, .. } = &*self.context;
        match (project.is_empty(), path.is_empty()) {
            (true, true) => write!(f, "built in")?,
            (true, false) => write!(f, "{path}")?,
            (false, _) if branch.is_empty() => write!(f, "{project} {path}")?,
            (false, _) => write!(f, "{project}@{branch} {path}")?,
        }
        if self.line > 0 { write!(f, ":{}:{}", self.line, self.column) } else { Ok(()) }
    }
}
