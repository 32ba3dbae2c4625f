//! A site as its users see it: developers who push and approve, a server that is started, stopped
//! and killed, an API that is asked.

pub mod clock;
pub mod cluster;
pub mod crash;
pub mod failpoints;
pub mod host;
pub mod kafka;
pub mod process;
pub mod projects;
pub mod room;
pub mod secure;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use gatelog_driver_git::{ChangeKey, Forge, ForgeConfig, HookProgram, Report};
use serde_json::Value as Json;

pub use process::Server;

/// The host part of canonical names.
pub const HOST: &str = "git.test";
/// Nothing that is waited for may take longer.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// From which all is drawn that is drawn by lot: `GATELOG_TEST_SEED`, which `./dev test` sets to the number of the day.
pub fn test_seed() -> u64 {
    std::env::var("GATELOG_TEST_SEED").map_or(0, |text| text.parse().unwrap())
}

/// A site's directory with its forge and its developers' clones.
pub struct Site {
    dir: tempfile::TempDir,
    author: (String, String),
}

/// Files of a project: path and content.
pub type Files<'a> = &'a [(&'a str, &'a str)];

/// Keys of `[executor]`: however full or busy the machine is on which tests run, builds are taken.
pub const UNGOVERNED: &str = "min-avail-hdd = 0\nmin-avail-inodes = 0\nmin-avail-mem = 0\nload-multiplier = 0\n";

impl Site {
    /// A site with these projects; the first is its config project.
    pub fn new(projects: &[(&str, Files<'_>)]) -> Site {
        let site = Site::without_projects();
        let names: Vec<&str> = projects.iter().map(|(name, _)| *name).collect();
        site.write_tenants(&[("test", names[0], &names[1..])]);
        let forge = site.forge();
        for (name, files) in projects {
            forge.create(name, "master").unwrap();
            site.begin(name, files);
        }
        site
    }

    /// A site's directory with its settings alone.
    pub fn without_projects() -> Site {
        let site =
            Site { dir: tempfile::tempdir().unwrap(), author: ("Dana Developer".into(), "dana@example.org".into()) };
        site.write(
            "gatelog.toml",
            &format!(
                "[web]\nlisten = \"127.0.0.1:0\"\n[executor]\nslots = 2\nansible-any-version = true\n{UNGOVERNED}[log]\nrung-every = 25\n\
                 [connection.forge]\ndriver = \"git\"\nroot = \"forge\"\ncanonical-hostname = \"{HOST}\"\npoll-ms = 300\n"
            ),
        );
        site
    }

    /// A developer's clone of a project without commits: the first one, pushed to master.
    pub fn begin(&self, project: &str, files: Files<'_>) {
        let clone = self.clone_of(project);
        std::fs::create_dir_all(&clone).unwrap();
        self.git(&clone, &["init", "--quiet", "--initial-branch=master"]);
        self.git(&clone, &["remote", "add", "origin", self.forge().path(project).unwrap().to_str().unwrap()]);
        write_files(&clone, files);
        self.git(&clone, &["add", "--all"]);
        self.git(&clone, &["commit", "--quiet", "--message", "First"]);
        self.git(&clone, &["push", "--quiet", "origin", "master"]);
    }

    /// The same site, its developer another.
    pub fn with_author(mut self, name: &str, email: &str) -> Site {
        self.author = (name.into(), email.into());
        self
    }

    /// The site's directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file of the site.
    pub fn write(&self, path: &str, content: &str) {
        std::fs::write(self.path().join(path), content).unwrap();
    }

    /// Writes the tenant file: the name, the config project and the untrusted projects of each tenant.
    pub fn write_tenants(&self, tenants: &[(&str, &str, &[&str])]) {
        let mut text = String::new();
        for (name, config, projects) in tenants {
            let untrusted: String = projects.iter().map(|name| format!("          - {name}\n")).collect();
            text.push_str(&format!(
                "- tenant:\n    name: {name}\n    source:\n      forge:\n        config-projects:\n          - {config}\n        \
                 untrusted-projects:\n{untrusted}"
            ));
        }
        self.write("tenants.yaml", &text);
    }

    /// The forge.
    pub fn forge(&self) -> Forge {
        let mut config = ForgeConfig::new(self.path().join("forge"), HOST);
        let site = self.path().canonicalize().unwrap();
        config.notify = Some(site.join("notify").join("forge"));
        config.hooks = Some(HookProgram { program: host::binary(), site, connection: "forge".to_owned() });
        Forge::open(config).unwrap()
    }

    /// A developer's clone of a project.
    pub fn clone_of(&self, project: &str) -> PathBuf {
        self.path().join("developer").join(project)
    }

    /// git, as the site's developer.
    pub fn git(&self, directory: &Path, arguments: &[&str]) -> String {
        let output = self.try_git(directory, arguments);
        output.unwrap_or_else(|message| panic!("git {arguments:?}: {message}"))
    }

    /// git, as the site's developer, where it may say no.
    pub fn try_git(&self, directory: &Path, arguments: &[&str]) -> Result<String, String> {
        let (done, out, err) = self.git_said(directory, arguments);
        if done { Ok(out) } else { Err(err) }
    }

    /// git, as the site's developer: whether it did it, and what it said on standard output and standard error.
    pub fn git_said(&self, directory: &Path, arguments: &[&str]) -> (bool, String, String) {
        let (name, email) = &self.author;
        let output = Command::new("git")
            .arg("-C")
            .arg(directory)
            .args(["-c", "safe.directory=*", "-c", "gc.auto=0"])
            .args(arguments)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", name)
            .env("GIT_AUTHOR_EMAIL", email)
            .env("GIT_COMMITTER_NAME", name)
            .env("GIT_COMMITTER_EMAIL", email)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }

    /// Proposes a change on top of master as it is in the forge.
    pub fn push(&self, project: &str, name: &str, message: &str, files: Files<'_>) {
        let clone = self.clone_of(project);
        self.git(&clone, &["fetch", "--quiet", "origin", "master"]);
        self.git(&clone, &["checkout", "--quiet", "-B", name, "FETCH_HEAD"]);
        write_files(&clone, files);
        self.git(&clone, &["add", "--all"]);
        self.git(&clone, &["commit", "--quiet", "--message", message]);
        self.git(&clone, &["push", "--quiet", "--force", "origin", &format!("HEAD:refs/for/master/{name}")]);
    }

    /// Approves a change as it was proposed last.
    pub fn approve(&self, project: &str, name: &str) {
        let refspec = format!("{name}:refs/approved/master/{name}");
        self.git(&self.clone_of(project), &["push", "--quiet", "--force", "origin", &refspec]);
    }

    /// Pushes straight to master, behind the gate's back.
    pub fn push_to_master(&self, project: &str, message: &str, files: Files<'_>) {
        let clone = self.clone_of(project);
        self.git(&clone, &["fetch", "--quiet", "origin", "master"]);
        self.git(&clone, &["checkout", "--quiet", "-B", "behind-its-back", "FETCH_HEAD"]);
        write_files(&clone, files);
        self.git(&clone, &["add", "--all"]);
        self.git(&clone, &["commit", "--quiet", "--message", message]);
        self.git(&clone, &["push", "--quiet", "origin", "HEAD:master"]);
    }

    /// The address of a change.
    pub fn url_of(&self, project: &str, name: &str) -> String {
        format!("https://{HOST}/{project}/+/master/{name}")
    }

    /// The subjects of the commits of a project's master, oldest first, merges left out.
    pub fn merged(&self, project: &str) -> Vec<String> {
        let bare = self.forge().path(project).unwrap();
        let log = self.git(&bare, &["log", "--reverse", "--format=%s", "--no-merges", "master"]);
        log.lines().map(str::to_owned).collect()
    }

    /// The moves of a project's master by its reflog, oldest first: `<new commit> <message>`.
    ///
    /// Whoever moves a ref writes the reflog first and renames the ref's lock after it: one killed in
    /// between leaves a line of a move that was not made, and the next makes it. Two lines that begin at
    /// the same commit are one move; a ref moved twice has two beginnings.
    pub fn reflog(&self, project: &str) -> Vec<String> {
        let bare = self.forge().path(project).unwrap();
        let log = std::fs::read_to_string(bare.join("logs/refs/heads/master")).unwrap();
        let mut moves: Vec<(String, String)> = Vec::new();
        for line in log.lines() {
            let (head, message) = line.split_once('\t').unwrap_or((line, ""));
            let mut commits = head.split(' ');
            let (from, to) = (commits.next().unwrap_or_default(), commits.next().unwrap_or_default());
            let made = format!("{to} {message}");
            match moves.last() {
                Some((before, last)) if before == from && *last == made => {}
                _ => moves.push((from.to_owned(), made)),
            }
        }
        moves.into_iter().map(|(_, made)| made).collect()
    }

    /// What each move of a project's master brought, oldest first: the names of new `<name>.txt`.
    pub fn brought(&self, project: &str) -> Vec<String> {
        let bare = self.forge().path(project).unwrap();
        let mut known = std::collections::BTreeSet::new();
        let mut brought = Vec::new();
        for line in self.reflog(project) {
            let commit = line.split(' ').next().unwrap_or_default();
            for file in self.git(&bare, &["ls-tree", "--name-only", commit]).lines() {
                if let Some(name) = file.strip_suffix(".txt").filter(|name| known.insert((*name).to_owned())) {
                    brought.push(name.to_owned());
                }
            }
        }
        brought
    }

    /// The reports on a change's newest patchset.
    pub fn reports(&self, project: &str, name: &str) -> Vec<Report> {
        let forge = self.forge();
        let facts = forge.query(&ChangeKey::new(project, "master", name).unwrap()).unwrap();
        forge.read_reports(project, &facts.commit).unwrap()
    }

    /// Verdicts of the reports on a change (`check:success`, …), in the order of their telling.
    pub fn verdicts(&self, project: &str, name: &str) -> Vec<String> {
        self.reports(project, name).into_iter().map(|report| report.verdict).collect()
    }

    /// Runs the command line on this site: exit code, standard output, standard error.
    pub fn gatelog(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = Command::new(host::binary()).args(arguments).env("GATELOG_DIR", self.path()).output().unwrap();
        (
            output.status.code().unwrap_or(-1),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    }

    /// How often each kind of event stands in the gate's events.
    pub fn event_kinds(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for event in self.events("gate.events") {
            *kinds.entry(event["kind"].as_str().unwrap_or_default().to_owned()).or_insert(0) += 1;
        }
        kinds
    }

    /// The records of a stream.
    pub fn events(&self, stream: &str) -> Vec<Json> {
        let (code, out, err) = self.gatelog(&["log", "cat", stream, "--json"]);
        assert_eq!(code, 0, "{err}");
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Starts the server without waiting for it.
    pub fn launch(&self) -> Server {
        Server::launch(self.path(), &[])
    }

    /// Starts the server and waits until it answers.
    pub fn start(&self) -> Server {
        Server::start(self.path())
    }
}

/// Writes files below a directory.
pub fn write_files(root: &Path, files: Files<'_>) {
    for (path, content) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// Waits until it is so; says what was waited for when it never is.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited {}s in vain: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(50));
    }
}
