//! From a log directory into the store.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use gatelog_record::BuildId;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::collect::{KeepLimits, collect, open_below};
use crate::manifest::{CONSOLE, Digest, KeptFile, Manifest, RESULTS};
use crate::mime;
use crate::store::LogStore;

/// Files on their way into the store at once.
const AT_ONCE: usize = 4;
/// How much of a file is read at once, in bytes.
const PIECE: usize = 256 << 10;

/// Looks into a file before it is kept, and may replace it: its directory, its path below that.
pub type Screen = Arc<dyn Fn(&Path, &str) -> io::Result<()> + Send + Sync>;

/// Keeps what a job has left below `root`, each file after `screen` has seen it; no process of the job may run. What could not be kept is in the manifest,
/// which stays pending until [`finish`].
pub async fn keep(
    store: &LogStore,
    (build, attempt, worker): (BuildId, u32, &str),
    root: &Path,
    (limits, screen): (&KeepLimits, Option<Screen>),
    patience: Duration,
) -> Manifest {
    let deadline = Instant::now() + patience;
    let (mut manifest, limits, place) = (Manifest::new(build, attempt, worker), *limits, root.to_path_buf());
    let looking = tokio::task::spawn_blocking(move || {
        look(&place, (&limits, screen), &mut manifest, deadline.into_std());
        manifest
    });
    let mut manifest = looking.await.unwrap_or_else(|panic| {
        let mut manifest = Manifest::new(build, attempt, worker);
        manifest.leave_out(".", format!("it could not be read: {panic}"));
        manifest
    });
    manifest.pending = true;
    // First what is going to be there: what no manifest names is never removed.
    if let Err(error) = store.put_manifest(build, attempt, &manifest).await {
        manifest.files.clear();
        manifest.leave_out(".", format!("the store cannot be written: {error}"));
        return manifest;
    }
    let put = |file: KeptFile| async move {
        let Some(digest) = file.digest else { return Ok(file) };
        let (place, path) = (root.to_path_buf(), file.path.clone());
        let put = store.put_file(digest, file.size, move || open_below(&place, &path));
        match tokio::time::timeout_at(deadline, put).await {
            Ok(Ok(())) => Ok(file),
            Ok(Err(error)) => Err((file.path, error.to_string())),
            Err(_) => Err((file.path, "there was no time left for it".to_owned())),
        }
    };
    let files = std::mem::take(&mut manifest.files);
    let mut kept = futures::stream::iter(files).map(put).buffer_unordered(AT_ONCE);
    while let Some(outcome) = kept.next().await {
        match outcome {
            Ok(file) => manifest.files.push(file),
            Err((path, why)) => manifest.leave_out(path, why),
        }
    }
    drop(kept);
    manifest.files.sort_by(|one, other| one.path.cmp(&other.path));
    manifest
}

/// Adds the executor's own files, which are complete, and writes the manifest. Where others read the store, they are
/// put there too. What went wrong is told in the log of this process: the build's console is over.
pub async fn finish(
    store: &LogStore,
    (build, attempt): (BuildId, u32),
    mut manifest: Manifest,
    log_dir: &Path,
    patience: Duration,
) {
    let deadline = Instant::now() + patience;
    for (name, mime) in [(CONSOLE, "text/plain; charset=utf-8"), (RESULTS, "application/json")] {
        let path = log_dir.join(name);
        let Ok(metadata) = std::fs::metadata(&path) else { continue };
        let mut file = KeptFile { path: name.into(), size: metadata.len(), digest: None, mime: mime.into() };
        if store.is_shared() {
            match tokio::time::timeout_at(deadline, own(store, &path)).await {
                Ok(Ok((digest, size))) => (file.digest, file.size) = (Some(digest), size),
                Ok(Err(error)) => tracing::warn!(%build, attempt, name, %error, "not kept in the store"),
                Err(_) => tracing::warn!(%build, attempt, name, "not kept in the store: there was no time left for it"),
            }
        }
        manifest.files.push(file);
    }
    manifest.files.sort_by(|one, other| one.path.cmp(&other.path));
    manifest.pending = false;
    if let Err(error) = store.put_manifest(build, attempt, &manifest).await {
        tracing::warn!(%build, attempt, %error, "the list of the files that a job left could not be written");
    }
}

/// Keeps one of the executor's own files.
async fn own(store: &LogStore, path: &Path) -> io::Result<(Digest, u64)> {
    let place: PathBuf = path.to_path_buf();
    let read = tokio::task::spawn_blocking(move || digest(File::open(place)?, None));
    let (digest, size, _) = read.await.map_err(io::Error::other)??;
    store.put_file(digest, size, || File::open(path)).await?;
    Ok((digest, size))
}

/// Finds the files and their digests.
fn look(
    root: &Path,
    (limits, screen): (&KeepLimits, Option<Screen>),
    manifest: &mut Manifest,
    deadline: std::time::Instant,
) {
    let found = match collect(root, limits, manifest) {
        Ok(found) => found,
        Err(error) => return manifest.leave_out(".", format!("it cannot be read: {error}")),
    };
    for found in found {
        let screened = screen.as_ref().map_or(Ok(()), |screen| screen(root, &found.path));
        let digest =
            screened.and_then(|()| open_below(root, &found.path)).and_then(|file| digest(file, Some(deadline)));
        match digest {
            Ok((digest, size, head)) if size <= found.size || screen.is_some() => {
                let mime = mime::of(&found.path, &head).to_owned();
                manifest.files.push(KeptFile { path: found.path, size, digest: Some(digest), mime });
            }
            Ok(_) => manifest.leave_out(found.path, "it changed while it was read"),
            Err(error) => manifest.leave_out(found.path, format!("it cannot be read: {error}")),
        }
    }
}

/// A file's digest, size and beginning.
fn digest(mut file: File, deadline: Option<std::time::Instant>) -> io::Result<(Digest, u64, Vec<u8>)> {
    let (mut hash, mut size, mut head) = (Sha256::new(), 0_u64, Vec::new());
    let mut piece = vec![0; PIECE];
    loop {
        if deadline.is_some_and(|deadline| std::time::Instant::now() >= deadline) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "there was no time left for it"));
        }
        let read = file.read(&mut piece)?;
        let bytes = piece.get(..read).unwrap_or_default();
        if read == 0 {
            return Ok((Digest(hash.finalize().into()), size, head));
        }
        hash.update(bytes);
        size += read as u64;
        let room = mime::LOOKED_AT.saturating_sub(head.len());
        head.extend_from_slice(bytes.get(..read.min(room)).unwrap_or_default());
    }
}
