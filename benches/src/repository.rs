//! Repositories to measure on, written as one stream.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Failure;

/// A bare repository that `git fast-import` makes. The same calls make the same commits.
pub struct Repository {
    place: PathBuf,
    text: Vec<u8>,
    commits: usize,
}

impl Repository {
    /// An empty one, its branch is `master`.
    ///
    /// # Errors
    /// When there is no git, or no room.
    pub fn new(place: PathBuf) -> Result<Repository, Failure> {
        std::fs::create_dir_all(&place)?;
        git(&place, &["init", "--quiet", "--bare", "--initial-branch=master"])?;
        Ok(Repository { place, text: Vec::new(), commits: 0 })
    }

    /// A commit on top of others: files and their texts. Its number.
    ///
    /// # Errors
    /// None that comes to pass: it is kept in memory.
    pub fn commit(&mut self, on_ref: &str, parents: &[usize], files: &[(String, String)]) -> Result<usize, Failure> {
        self.commits += 1;
        let (mark, date) = (self.commits, 1_500_000_000 + 600 * self.commits);
        writeln!(self.text, "commit {on_ref}\nmark :{mark}\ncommitter Dana <dana@example.org> {date} +0000")?;
        writeln!(self.text, "data 7\nchange\n")?;
        for (at, parent) in parents.iter().enumerate() {
            writeln!(self.text, "{} :{parent}", if at == 0 { "from" } else { "merge" })?;
        }
        for (path, text) in files {
            writeln!(self.text, "M 100644 inline {path}\ndata {}\n{text}", text.len())?;
        }
        writeln!(self.text)?;
        Ok(mark)
    }

    /// Writes it down.
    ///
    /// # Errors
    /// When git refuses.
    pub fn done(self) -> Result<PathBuf, Failure> {
        let mut import = Command::new("git")
            .args(["fast-import", "--quiet", "--force"])
            .current_dir(&self.place)
            .stdin(Stdio::piped())
            .spawn()?;
        import.stdin.take().ok_or("git takes nothing")?.write_all(&self.text)?;
        if !import.wait()?.success() {
            return Err("git fast-import failed".into());
        }
        Ok(self.place)
    }
}

/// What git prints in a repository, with no configuration but its own.
///
/// # Errors
/// When it fails.
pub fn git(place: &Path, arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(place)
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")])
        .output()?;
    if !output.status.success() {
        return Err(format!("git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
