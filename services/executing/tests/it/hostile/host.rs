//! A host with canaries: what no build may reach, and who looks after it from outside.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value as Json, json};

use crate::nap;
use crate::site::Site;

/// What stands in everything that a build must not read.
pub const CANARY: &str = "canary-of-the-host";
/// A secret that a playbook is given.
pub const SECRET: &str = "canary-secret-of-a-playbook";

/// Files with the canary, below the site's directory.
const FILES: [&str; 2] = ["keyring", "executor/builds/another-1/work/report"];

/// The canaries of one site. Dropping it takes them away.
pub struct Host {
    folder: PathBuf,
    keeper: Child,
    answers: BufReader<ChildStdout>,
    victim: Child,
    /// Where they are, for who attacks.
    pub targets: Json,
}

/// A Python of this host's own, which a sandbox shows, too.
pub fn python() -> &'static str {
    if Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" }
}

impl Host {
    pub fn new(site: &Site, playbook: &str) -> Host {
        let folder = site.folder.path().to_owned();
        for file in FILES {
            let file = folder.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, CANARY).unwrap();
        }
        let name = format!("gatelog-canary-{}", folder.file_name().unwrap().to_string_lossy().trim_start_matches('.'));
        let program = include_str!("canaries.py");
        let mut keeper = Command::new(python())
            .args(["-c", program])
            .arg(&folder)
            .args([&name, CANARY])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut answers = BufReader::new(keeper.stdout.take().unwrap());
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        let mut targets: Json = serde_json::from_str(&line).unwrap();
        let victim = Command::new("sleep").arg(nap(690)).env("CANARY", CANARY).spawn().unwrap();
        let home = std::env::var("HOME").unwrap_or_else(|_| "/root".into());
        let names =
            std::fs::read_dir(&home).map(|all| all.flatten().map(|entry| entry.file_name()).collect::<Vec<_>>());
        // What leads to Ansible is shown.
        let names: Vec<String> = names
            .unwrap_or_default()
            .into_iter()
            .map(|name| name.to_string_lossy().into_owned())
            .filter(|name| ![".cache", ".pyenv", ".local"].contains(&name.as_str()))
            .collect();
        let more = json!({
            "folder": folder, "own": std::process::id(), "victim": victim.id(), "nap": nap(690), "home": home,
            "home_names": names, "playbook": playbook, "queue": name, "key": name, "disk": disk(),
            "secret_reversed": SECRET.chars().rev().collect::<String>(),
        });
        targets.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Host { folder, keeper, answers, victim, targets }
    }

    /// How often each listener was reached, by now.
    pub fn reached(&mut self) -> BTreeMap<String, u64> {
        self.keeper.stdin.as_mut().unwrap().write_all(b"?\n").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// What is not as it was; `None`: all is.
    pub fn harm(&mut self) -> Option<String> {
        for file in FILES {
            if std::fs::read_to_string(self.folder.join(file)).ok().as_deref() != Some(CANARY) {
                return Some(format!("{file} was written"));
            }
        }
        if self.folder.join("planted").exists() || Path::new("/planted").exists() {
            return Some("a file was planted".into());
        }
        match self.victim.try_wait() {
            Ok(None) => None,
            ended => Some(format!("a process of the host ended: {ended:?}")),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

/// The number of a disk, or of a memory device where there is none.
fn disk() -> [u32; 2] {
    use std::os::unix::fs::MetadataExt;
    let device = std::fs::metadata("/").map(|root| root.dev()).unwrap_or_default();
    [rustix::fs::major(device), rustix::fs::minor(device)]
}
