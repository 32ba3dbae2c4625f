//! One run of `ansible-playbook`, as `plugins/run/gatelog_playbook.py` reads it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use serde::Serialize;

/// What a process needs to become a run of `ansible-playbook`. It reaches that process through a socket, so that secrets
/// are in no file, argument or environment.
#[derive(Clone, Serialize)]
pub(crate) struct Run {
    /// The command line; the first word is `ansible-playbook` itself.
    arguments: Vec<String>,
    /// The whole environment.
    environment: BTreeMap<String, String>,
    /// Where it starts.
    directory: String,
    /// Whether it runs in a sandbox: then the filter and all that belongs to it holds.
    sandboxed: bool,
    /// The most processes the kernel allows where it counts them by user namespace.
    processes: Option<u64>,
    /// A seccomp filter, in base64.
    filter: Option<String>,
    /// The secrets of the playbook, as YAML.
    secrets: Option<String>,
    /// A process in the sandbox that the run enters, by this host's numbers. `None`: it is there already.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<i32>,
}

/// What of a run depends on the executor and the playbook.
pub(crate) struct Parts<'a> {
    pub(crate) arguments: &'a [OsString],
    pub(crate) environment: &'a BTreeMap<String, OsString>,
    pub(crate) directory: &'a Path,
    pub(crate) sandboxed: bool,
    pub(crate) processes: Option<u64>,
    pub(crate) filter: Option<&'a str>,
    pub(crate) secrets: Option<String>,
}

fn text(word: impl AsRef<OsStr>) -> String {
    word.as_ref().to_string_lossy().into_owned()
}

impl Run {
    pub(crate) fn new(parts: Parts) -> Run {
        Run {
            arguments: parts.arguments.iter().map(text).collect(),
            environment: parts.environment.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
            directory: text(parts.directory),
            sandboxed: parts.sandboxed,
            processes: parts.processes,
            filter: parts.filter.map(str::to_owned),
            secrets: parts.secrets,
            holder: None,
        }
    }

    /// The same, for a process outside that first enters the sandbox of this one.
    pub(crate) fn entering(&self, holder: i32) -> Run {
        Run { holder: Some(holder), ..self.clone() }
    }

    pub(crate) fn json(&self) -> Vec<u8> {
        // Text and numbers: it cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}
