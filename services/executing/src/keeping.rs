//! What stays of a build: the files of its log directory go into the store, the executor's own are added.

use std::sync::Arc;
use std::time::Duration;

use gatelog_log_files::{LogStore, Manifest, keep};

use crate::build::Build;
use crate::control::AbortReason;
use crate::screen::{Hidden, screen};

/// How long keeping the files of one build may take, and after that its console.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
/// The same when the executor is about to end.
const IN_A_HURRY: Duration = Duration::from_secs(5);

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
