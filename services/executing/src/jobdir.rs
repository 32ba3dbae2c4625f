//! The directory of one attempt while it runs.
//!
//! ```text
//! owner.json                whose build it is; written before the directory gets its name
//! ansible/                  read-only for playbooks: inventory.yaml, zuul_vars.yaml, passwd, group,
//!                           known_hosts (of hosts whose fingerprint the job has),
//!                           {pre,run,post,cleanup}_playbook_N/{ansible.cfg,inventory.yaml}
//! .ansible/                 Ansible's own: fact cache, temporary files, results
//! trusted/project_N/…       repositories playbooks come from, read-only
//! untrusted/project_N/…
//! agent/                    the sockets of the SSH agents, and of the proxy that playbooks are shown
//! home/                     the home directory of what is neither trusted nor holds secrets
//! homes/                    those of the others, see [`crate::homes`]
//! playbook.json             the results of the playbook that runs
//! work/src/…                the repositories under test
//! work/logs/, work/tmp/     for the job; the console is shown in logs, read-only
//! work/results.json         what zuul_return wrote
//! ```

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gatelog_record::BuildId;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::config::ExecutorError;
use crate::process::ProcessIdentity;

/// What `owner.json` says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Owner {
    /// The process the build belongs to.
    pub(crate) process: ProcessIdentity,
    /// The build.
    pub(crate) build: BuildId,
    /// The attempt.
    pub(crate) attempt: u32,
}

/// The directory of one attempt.
#[derive(Clone, Debug)]
pub(crate) struct JobDir {
    root: PathBuf,
}

impl JobDir {
    /// Where builds live below the executor's root.
    pub(crate) fn folder(executor_root: &Path) -> PathBuf {
        executor_root.join("builds")
    }

    /// The directory of this attempt, whether it exists or not.
    pub(crate) fn at(executor_root: &Path, build: BuildId, attempt: u32) -> JobDir {
        JobDir { root: Self::folder(executor_root).join(format!("{build}-{attempt}")) }
    }

    /// Makes it. It appears under its name complete with its owner, so nobody ever finds one that
    /// belongs to nobody.
    pub(crate) fn create(executor_root: &Path, owner: &Owner) -> Result<JobDir, ExecutorError> {
        let job_dir = JobDir::at(executor_root, owner.build, owner.attempt);
        let folder = Self::folder(executor_root);
        let fresh = folder.join(format!(".new-{}-{}-{}", owner.process.pid, owner.build, owner.attempt));
        let folders = [
            "ansible",
            ".ansible/tmp",
            ".ansible/fact-cache",
            ".ansible/cp",
            "trusted",
            "untrusted",
            "agent",
            "home/.ssh",
            "homes",
            "work/src",
            "work/logs",
            "work/tmp",
        ];
        if fresh.exists() {
            fs::remove_dir_all(&fresh).map_err(ExecutorError::io("remove", &fresh))?;
        }
        make_dir(&fresh)?;
        for name in folders {
            make_dir(&fresh.join(name))?;
        }
        let text = serde_json::to_vec(owner).unwrap_or_default();
        write(&fresh.join("owner.json"), &text)?;
        fs::rename(&fresh, &job_dir.root).map_err(ExecutorError::io("make", &job_dir.root))?;
        Ok(job_dir)
    }

    /// Who owns the directory at this path; `None` if it does not say.
    pub(crate) fn owner(path: &Path) -> Option<Owner> {
        let text = read_limited(&path.join("owner.json"), 64 << 10).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }
    pub(crate) fn ansible(&self) -> PathBuf {
        self.root.join("ansible")
    }
    pub(crate) fn ansible_state(&self) -> PathBuf {
        self.root.join(".ansible")
    }
    pub(crate) fn trusted(&self) -> PathBuf {
        self.root.join("trusted")
    }
    pub(crate) fn untrusted(&self) -> PathBuf {
        self.root.join("untrusted")
    }
    pub(crate) fn agent(&self) -> PathBuf {
        self.root.join("agent")
    }
    pub(crate) fn home(&self) -> PathBuf {
        self.root.join("home")
    }
    pub(crate) fn homes(&self) -> PathBuf {
        self.root.join("homes")
    }
    pub(crate) fn work(&self) -> PathBuf {
        self.root.join("work")
    }
    pub(crate) fn logs(&self) -> PathBuf {
        self.root.join("work/logs")
    }
    pub(crate) fn results(&self) -> PathBuf {
        self.root.join("work/results.json")
    }
    pub(crate) fn passwd(&self) -> PathBuf {
        self.root.join("ansible/passwd")
    }
    pub(crate) fn group(&self) -> PathBuf {
        self.root.join("ansible/group")
    }
    pub(crate) fn known_hosts(&self) -> PathBuf {
        self.root.join("home/.ssh/known_hosts")
    }
    pub(crate) fn pinned_hosts(&self) -> PathBuf {
        self.root.join("ansible/known_hosts")
    }
    pub(crate) fn inventory(&self) -> PathBuf {
        self.root.join("ansible/inventory.yaml")
    }
    pub(crate) fn zuul_vars(&self) -> PathBuf {
        self.root.join("ansible/zuul_vars.yaml")
    }
}

/// Makes a directory, and those above it, for this user alone.
pub(crate) fn make_dir(path: &Path) -> Result<(), ExecutorError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(ExecutorError::io("make", path))
}

/// Writes a file for this user alone. A link in its place is an error, not followed.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), ExecutorError> {
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).custom_flags(flags).open(path);
    file.and_then(|mut file| file.write_all(content)).map_err(ExecutorError::io("write", path))
}

/// Reads a file a job may have made: no link, no pipe, no more than `limit` bytes.
pub(crate) fn read_limited(path: &Path, limit: u64) -> std::io::Result<Vec<u8>> {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(std::io::Error::other("it is not a plain file"));
    }
    let mut content = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(std::io::Error::other(format!("it is larger than {limit} bytes")));
    }
    Ok(content)
}

/// Removes a directory tree, also where a job has taken its own rights away or has put directories
/// into each other without end. Nothing there is fine.
pub(crate) fn remove_tree(path: &Path) -> std::io::Result<()> {
    let is_there = || fs::symlink_metadata(path).is_ok();
    if !is_there() {
        return Ok(());
    }
    // The program, because it needs neither a file nor room on the stack for every level.
    let mut said = run_tool(Command::new("rm").args(["-rf", "--"]).arg(path))?;
    if is_there() {
        run_tool(Command::new("chmod").args(["-R", "u+rwx", "--"]).arg(path))?;
        said = run_tool(Command::new("rm").args(["-rf", "--"]).arg(path))?;
    }
    if is_there() { Err(std::io::Error::other(said)) } else { Ok(()) }
}

/// What a program complains of, in one line.
fn run_tool(command: &mut Command) -> std::io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    Ok(said.lines().next().unwrap_or("it is still there").chars().take(300).collect())
}

/// Removes whatever is at this place, if anything. A link is removed, not what it leads to.
pub(crate) fn clear(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        // Most directories here are empty; a job may also have made one of a file.
        Err(_) => fs::remove_dir(path).or_else(|_| remove_tree(path)),
        Ok(()) => Ok(()),
    }
}

impl JobDir {
    /// Makes sure that what the executor is going to use in places where a job can write is what it
    /// seems to be. No process of the job may run.
    ///
    /// `for_secrets`: the next playbook is trusted or has secrets. Then what earlier ones left where
    /// Ansible looks for code (plugins, collections) goes too. Zuul: removes the configuration of
    /// ssh and kubectl.
    pub(crate) fn tidy(&self, for_secrets: bool) -> std::io::Result<()> {
        let others = fs::read_dir(self.homes())?.filter_map(|entry| Some(entry.ok()?.path()));
        for home in others.chain([self.home()]) {
            for place in [".ssh", ".kube"].map(|name| home.join(name)) {
                if fs::symlink_metadata(&place).is_ok_and(|found| found.is_dir()) {
                    clear(&place.join("config"))?;
                } else {
                    clear(&place)?;
                }
            }
        }
        if for_secrets {
            for entry in fs::read_dir(self.ansible_state())? {
                let entry = entry?;
                if entry.file_name() != "fact-cache" || !entry.file_type()?.is_dir() {
                    clear(&entry.path())?;
                }
            }
        }
        for place in ["work/src", "work/logs", "work/tmp", ".ansible/tmp", ".ansible/fact-cache", ".ansible/cp"] {
            let place = self.root.join(place);
            if !fs::symlink_metadata(&place).is_ok_and(|found| found.is_dir()) {
                clear(&place)?;
                fs::DirBuilder::new().mode(0o700).create(&place)?;
            }
        }
        Ok(())
    }
}
