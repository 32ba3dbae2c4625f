//! One run of `ansible-playbook`, as `plugins/run/gatelog_playbook.py` reads it.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use serde::Serialize;

/// What a process needs to become a run of `ansible-playbook`. It reaches that process through a socket, so that secrets
/// are in no file, argument or environment.
#[derive(Clone, Serialize)]
pub(crate) struct Run {
    /// The command line; the first word is `ansible-playbook` itself.
    pub(crate) arguments: Vec<String>,
    /// The whole environment.
    pub(crate) environment: BTreeMap<String, String>,
    /// Where it starts.
    pub(crate) directory: String,
    /// Whether it runs in a sandbox, where it may not gain rights and nobody looks into its memory.
    pub(crate) sandboxed: bool,
    /// The most processes the kernel allows where it counts them by user namespace.
    pub(crate) processes: Option<u64>,
    /// The secrets of the playbook, as YAML.
    pub(crate) secrets: Option<String>,
    /// The system calls that are refused, see [`crate::seccomp`]. `None`: there is no filter.
    pub(crate) filter: Option<String>,
    /// What the sandbox may have of what the kernel counts, see [`crate::kernel`].
    pub(crate) kernel: Vec<(&'static str, String)>,
    /// A process in the sandbox that the run enters, by this host's numbers. `None`: it is there already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<i32>,
}

/// A word as JSON can hold it.
pub(crate) fn text(word: impl AsRef<OsStr>) -> String {
    word.as_ref().to_string_lossy().into_owned()
}

impl Run {
    /// The same, for a process outside that first enters the sandbox of this one.
    pub(crate) fn entering(&self, holder: i32) -> Run {
        Run { holder: Some(holder), ..self.clone() }
    }

    /// As the program reads it.
    pub(crate) fn json(&self) -> Vec<u8> {
        // Text and numbers: it cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}
