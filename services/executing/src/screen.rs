//! Hides secrets in the files that a job left in its log directory, before they are kept.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gatelog_log_files::collect::open_below;
use gatelog_log_files::keep;

use crate::mask::Mask;

/// How much is looked at together, in bytes: whole lines, as far as they end.
const PIECE: usize = 1 << 20;
/// How many files are named.
const NAMED: usize = 5;

/// What was hidden in the files of one build.
#[derive(Clone, Default)]
pub(crate) struct Hidden(Arc<Mutex<Vec<String>>>);

impl Hidden {
    /// What to say of it.
    pub(crate) fn told(&self) -> Option<String> {
        let paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let named = paths.get(..NAMED).unwrap_or(&paths).join(", ");
        match paths.len() {
            0 => None,
            count if count > NAMED => {
                Some(format!("secrets are hidden in {count} files of the log directory: {named}, …"))
            }
            _ => Some(format!("secrets are hidden in files of the log directory: {named}")),
        }
    }
}

/// Replaces files in which a secret stands by others without it, which are written to `place` first. No process of the job
/// runs any more.
pub(crate) fn screen(mask: Arc<Mask>, place: PathBuf, hidden: Hidden) -> keep::Screen {
    Arc::new(move |root, path| {
        if !holds_secret(&mask, open_below(root, path)?)? {
            return Ok(());
        }
        hidden.0.lock().unwrap_or_else(PoisonError::into_inner).push(mask.text(path));
        rewrite(&mask, open_below(root, path)?, &place)?;
        fs::rename(&place, root.join(path))
    })
}

fn holds_secret(mask: &Mask, file: File) -> io::Result<bool> {
    let mut held = false;
    pieces(file, |piece| {
        held = matches!(mask.bytes(piece), std::borrow::Cow::Owned(_));
        Ok(!held)
    })?;
    Ok(held)
}

fn rewrite(mask: &Mask, file: File, place: &Path) -> io::Result<()> {
    let mut to = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(place)?;
    pieces(file, |piece| to.write_all(&mask.bytes(piece)).map(|()| true))
}

/// Reads a file in pieces of whole lines; a line that is longer than a piece comes in several. Goes on while it is wanted.
fn pieces(file: File, mut each: impl FnMut(&[u8]) -> io::Result<bool>) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(PIECE, file);
    let mut held: Vec<u8> = Vec::with_capacity(2 * PIECE);
    loop {
        let read = reader.fill_buf()?;
        if read.is_empty() {
            if !held.is_empty() {
                each(&held)?;
            }
            return Ok(());
        }
        let count = read.len();
        held.extend_from_slice(read);
        reader.consume(count);
        let end = held.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        // Without an end of line the last of it waits for the next, so that no secret is cut in two.
        let end = end.or((held.len() > 2 * PIECE).then(|| held.len() - PIECE));
        if let Some(end) = end {
            if !each(held.get(..end).unwrap_or_default())? {
                return Ok(());
            }
            held.drain(..end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_secrets_are_replaced_and_others_stay_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("logs");
        fs::create_dir_all(root.join("a")).unwrap();
        let long = format!("{}\npassword: hunter22\n{}", "x".repeat(3 << 20), "y".repeat(100));
        fs::write(root.join("a/long"), &long).unwrap();
        fs::write(root.join("clean"), "nothing\n").unwrap();
        let (mask, hidden) = (Arc::new(Mask::new(["hunter22".to_owned()])), Hidden::default());
        let screen = screen(mask, folder.path().join("screened"), hidden.clone());
        assert_eq!(hidden.told(), None);
        screen(&root, "a/long").unwrap();
        screen(&root, "clean").unwrap();
        assert_eq!(fs::read_to_string(root.join("a/long")).unwrap(), long.replace("hunter22", "[masked]"));
        assert_eq!(fs::read_to_string(root.join("clean")).unwrap(), "nothing\n");
        assert_eq!(hidden.told().unwrap(), "secrets are hidden in files of the log directory: a/long");
    }
}
