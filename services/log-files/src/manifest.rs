//! What was kept of an attempt, and what was removed of it.

use std::fmt;
use std::str::FromStr;

use gatelog_record::BuildId;
use serde::{Deserialize, Serialize};

/// The executor's own files, beside those of the job: the console and the results of tasks. Zuul: the same names.
pub const CONSOLE: &str = "job-output.txt";
/// Results of tasks, playbook by playbook.
pub const RESULTS: &str = "job-output.json";
/// The most files a manifest names among those that were left out; the others are counted.
pub const MOST_LEFT_OUT: usize = 100;

/// SHA-256 of a file's content. Text: 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

/// A text is no digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest has 64 hex digits")]
pub struct NoDigest;

impl FromStr for Digest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Digest, NoDigest> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| NoDigest)?;
        Ok(Digest(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = NoDigest;

    fn try_from(text: String) -> Result<Digest, NoDigest> {
        text.parse()
    }
}

/// A file that was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFile {
    /// Where it lay below the log directory, with `/` between its parts; as the job named it.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its content in the store; `None` for a file of the executor's own that is kept by the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Its media type.
    pub mime: String,
}

/// A file or directory that was not kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Where it lay; what is no UTF-8 in its name is replaced.
    pub path: String,
    /// Why, a few words.
    pub why: String,
}

/// What was kept of an attempt's log directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The build, 32 hex digits.
    pub build: String,
    /// The attempt.
    pub attempt: u32,
    /// The worker it ran on.
    #[serde(default)]
    pub worker: String,
    /// Whether files may still be missing: they are being put into the store, or the executor ended meanwhile.
    #[serde(default)]
    pub pending: bool,
    /// The files, ordered by path.
    pub files: Vec<KeptFile>,
    /// What was not kept; at most [`MOST_LEFT_OUT`] are named.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// How many more were not kept.
    #[serde(default)]
    pub left_out_more: u64,
}

impl Manifest {
    /// An empty one.
    pub fn new(build: BuildId, attempt: u32, worker: &str) -> Manifest {
        Manifest { build: build.to_string(), attempt, worker: worker.to_owned(), ..Manifest::default() }
    }

    /// Bytes of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.size))
    }

    /// A file by its path.
    pub fn file(&self, path: &str) -> Option<&KeptFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Notes what was not kept.
    pub fn leave_out(&mut self, path: impl Into<String>, why: impl Into<String>) {
        if self.left_out.len() < MOST_LEFT_OUT {
            self.left_out.push(LeftOut { path: path.into(), why: why.into() });
        } else {
            self.left_out_more += 1;
        }
    }

    /// What was not kept, for people, a line each; empty when everything was.
    pub fn warnings(&self) -> Vec<String> {
        const TOLD: usize = 10;
        let named = self.left_out.iter().take(TOLD);
        let mut told: Vec<String> =
            named.map(|left| format!("{:?} in the log directory is not kept: {}", left.path, left.why)).collect();
        let more = self.left_out.len().saturating_sub(TOLD) as u64 + self.left_out_more;
        if more > 0 {
            told.push(format!("{more} more files of the log directory are not kept"));
        }
        told
    }
}

/// What is said of an attempt whose logs were removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// The build, 32 hex digits.
    pub build: String,
    /// The attempt.
    pub attempt: u32,
    /// When they were removed, milliseconds since 1970.
    pub removed_ms: i64,
    /// When the attempt had ended, milliseconds since 1970.
    pub ended_ms: i64,
    /// By which rule, such as `keep-days = 30`.
    pub rule: String,
    /// How many files there were, the executor's own included.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
}
