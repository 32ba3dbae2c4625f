//! Between the gate's words and the mirrors': keys, filters, and what trouble means.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use gatelog_driver_contract::Credentials;
use gatelog_event_log::Blobs;
use gatelog_merging::{Access, FileFilter, MergeError, Mirrors, Moment, ProjectKey, SourceFile};
use gatelog_record::BuildsetId;
use gatelog_record::draft::gate::ConfigFile;

use crate::connection::{Connections, Trouble, chain};

/// Everything effects on repositories need.
#[derive(Clone)]
pub struct Repositories {
    /// The mirrors.
    pub mirrors: Arc<Mirrors>,
    /// Where repositories are.
    pub connections: Connections,
    /// Where files' contents go.
    pub blobs: Arc<dyn Blobs>,
    /// When buildsets began.
    pub begun: Arc<Begun>,
}

/// How many buildsets are remembered with when they began; what a forgotten one needs is read again.
const BEGUN_MAX: usize = 1024;

/// When this process first knew of buildsets: each sees repositories as they were read at some time since.
#[derive(Debug, Default)]
pub struct Begun {
    moments: Mutex<VecDeque<(BuildsetId, Moment)>>,
}

impl Begun {
    /// Notes that a buildset begins now, unless it has begun.
    pub fn note(&self, buildset: BuildsetId, mirrors: &Mirrors) {
        let mut moments = self.moments.lock().unwrap_or_else(PoisonError::into_inner);
        if moments.iter().any(|(known, _)| *known == buildset) {
            return;
        }
        if moments.len() >= BEGUN_MAX {
            moments.pop_front();
        }
        moments.push_back((buildset, mirrors.moment()));
    }

    /// When it began, if that is remembered.
    pub fn of(&self, buildset: BuildsetId) -> Option<Moment> {
        let moments = self.moments.lock().unwrap_or_else(PoisonError::into_inner);
        moments.iter().rev().find(|(known, _)| *known == buildset).map(|(_, moment)| *moment)
    }
}

impl Repositories {
    /// The mirror's key of a project, its source set.
    pub fn key(&self, connection: &str, canonical: &str) -> Result<ProjectKey, Trouble> {
        let name = self.connections.local_name(connection, canonical)?;
        let key = ProjectKey::new(connection, name);
        let source = self.connections.review(connection)?.source(name)?;
        self.mirrors.set_source(&key, &source.url).map_err(|error| trouble(&error))?;
        self.mirrors.set_access(&key, source.credentials.as_ref().map(access));
        Ok(key)
    }

    /// Keeps files' contents and names them.
    pub fn keep(&self, files: Vec<SourceFile>) -> Result<Vec<ConfigFile>, Trouble> {
        files
            .into_iter()
            .map(|file| {
                let blob = self.blobs.put(&file.content).map_err(|error| Trouble::passing("blob-store", &error))?;
                Ok(ConfigFile { path: file.path, blob })
            })
            .collect()
    }
}

/// What a mirror is fetched with.
fn access(credentials: &Credentials) -> Access {
    match credentials {
        Credentials::Basic { user, password } => {
            Access::Header(format!("Basic {}", BASE64.encode(format!("{user}:{}", password.0))))
        }
        Credentials::Bearer(token) => Access::Header(format!("Bearer {}", token.0)),
        Credentials::Ssh { key, known_hosts } => Access::Ssh { key: key.clone(), known_hosts: known_hosts.clone() },
    }
}

/// Where a project's configuration is looked for.
pub fn config_filter(extra: &[String]) -> FileFilter {
    FileFilter::zuul(extra.iter().map(String::as_str))
}

/// What an error of the mirrors means to the gate.
pub fn trouble(error: &MergeError) -> Trouble {
    let (code, again) = match error {
        MergeError::BadName { .. } => ("bad-name", false),
        MergeError::UnknownProject { .. } => ("unknown-project", false),
        MergeError::Vanished { .. } => ("repository-vanished", false),
        MergeError::UnsupportedUrl { .. } => ("unsupported-url", false),
        MergeError::MissingRef { .. } => ("ref-missing", false),
        MergeError::MissingBranch { .. } => ("branch-missing", false),
        MergeError::MissingCommit { .. } => ("commit-missing", false),
        MergeError::Damaged { .. } => ("repository-damaged", false),
        MergeError::FileTooLarge { .. } | MergeError::TooMany { .. } => ("too-large", false),
        MergeError::Locked { .. } => ("mirror-locked", true),
        MergeError::DestinationTaken { .. } => ("destination-taken", false),
        MergeError::Io { .. } | MergeError::Git { .. } => ("repository-error", true),
    };
    Trouble::new(code, chain(error)).again(again)
}
