//! What stays of a build: the files of its log directory go into the store, the executor's own are added; and which
//! attempts have a console here.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gatelog_log_files::manifest::CONSOLE;
use gatelog_log_files::{LogStore, Manifest, keep};
use gatelog_record::BuildId;

use crate::build::Build;
use crate::control::AbortReason;
use crate::executor::UNFINISHED;
use crate::screen::{Hidden, screen};

/// How long keeping the files of one build may take, and after that its console.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
/// The same when the executor is about to end.
const IN_A_HURRY: Duration = Duration::from_secs(5);

/// An attempt whose console is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptAttempt {
    /// The build.
    pub build: BuildId,
    /// The attempt.
    pub attempt: u32,
    /// When its console was written last, in milliseconds since 1970.
    pub ended_ms: i64,
    /// How many files there are.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
}

/// The finished attempts below a directory of consoles.
///
/// # Errors
/// The directory cannot be read.
pub fn kept(logs_root: &Path, running: impl Fn(BuildId, u32) -> bool) -> std::io::Result<Vec<KeptAttempt>> {
    let mut all = Vec::new();
    let names = |entry: &fs::DirEntry| entry.file_name().into_string().unwrap_or_default();
    for build in fs::read_dir(logs_root)? {
        let build = build?;
        let Ok(id) = names(&build).parse::<BuildId>() else { continue };
        for attempt in fs::read_dir(build.path())? {
            let attempt = attempt?;
            let Ok(number) = names(&attempt).parse::<u32>() else { continue };
            let directory = attempt.path();
            if running(id, number) || directory.join(UNFINISHED).exists() {
                continue;
            }
            let Ok(console) = fs::metadata(directory.join(CONSOLE)) else { continue };
            let since = console.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            let mut one = KeptAttempt {
                build: id,
                attempt: number,
                ended_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
                files: 0,
                bytes: 0,
            };
            for file in fs::read_dir(&directory)? {
                one.files += 1;
                one.bytes = one.bytes.saturating_add(file?.metadata()?.len());
            }
            all.push(one);
        }
    }
    Ok(all)
}

impl Build {
    fn store(&self) -> Option<&LogStore> {
        self.executor.config.log_store.as_ref()
    }

    fn patience(&self) -> Duration {
        if self.control.aborted() == Some(AbortReason::Shutdown) { IN_A_HURRY } else { PATIENCE }
    }

    /// Keeps what the job has left in its log directory, and says on the console what was left out. All its processes
    /// have ended.
    pub(crate) async fn keep_logs(&self, warnings: &mut Vec<String>) -> Option<Manifest> {
        let of = (self.spec.build, self.spec.attempt, self.executor.config.hostname.as_str());
        let (logs, limits) = (self.job_dir.logs(), &self.executor.config.keep_limits);
        let hidden = Hidden::default();
        let place = self.job_dir.root().join("screened");
        let screen = self.mask.is_needed().then(|| screen(Arc::clone(&self.mask), place, hidden.clone()));
        let manifest = keep::keep(self.store()?, of, &logs, (limits, screen), self.patience()).await;
        warnings.extend(hidden.told());
        if !manifest.files.is_empty() {
            let (files, bytes) = (manifest.files.len(), manifest.bytes());
            self.console.say(&format!("Kept {files} files of the log directory, {bytes} bytes"));
        }
        warnings.extend(manifest.warnings());
        Some(manifest)
    }

    /// Adds console and results, once nothing more comes to them.
    pub(crate) async fn keep_own(&self, manifest: Option<Manifest>) {
        if let (Some(store), Some(manifest)) = (self.store(), manifest) {
            let of = (self.spec.build, self.spec.attempt);
            keep::finish(store, of, manifest, &self.log_dir, self.patience()).await;
        }
    }
}
