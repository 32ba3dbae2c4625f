//! `[executor]`: where builds run, with what, and what they may use up.

use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use gatelog_executing::{
    ByteSize, CgroupSetting, CountLimit, ExecutorConfig, ExtraPaths, Limits, Network, SandboxMode, SizeLimit,
};
use serde::Deserialize;

use super::governors::Decimal;

/// Where builds run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ExecutorSection {
    /// How many builds run at once.
    #[serde(default = "default_slots")]
    pub slots: u32,
    /// `ansible-playbook`, for versions of Ansible that are not installed below `ansible-root`; found on PATH or by
    /// `GATELOG_ANSIBLE_PLAYBOOK` if not set. It runs jobs that ask for the version whose ansible-core it is.
    #[serde(default)]
    pub ansible_playbook: Option<PathBuf>,
    /// Whether that also runs jobs that ask for another version. Their builds carry a warning.
    #[serde(default)]
    pub ansible_any_version: bool,
    /// Where `gatelog ansible install` puts versions of Ansible, relative to the site's directory. Zuul: `ansible_root`.
    #[serde(default = "default_ansible_root")]
    pub ansible_root: PathBuf,
    /// The user for nodes that name none. Zuul: `default_username`.
    #[serde(default = "default_username")]
    pub default_username: String,
    /// A YAML or JSON file of variables that every playbook is given, relative to the site's directory: stronger than a
    /// job's, weaker than `zuul`. Zuul: `variables`.
    #[serde(default)]
    pub variables: Option<PathBuf>,
    /// A private SSH key without a passphrase that every build's agent holds, relative to the site's directory. Zuul:
    /// `private_key_file`, which is `~/.ssh/id_rsa` if not set; here there is none then.
    #[serde(default)]
    pub private_key_file: Option<PathBuf>,
    /// Paths of this host that playbooks of config projects see, read-only. Zuul: `trusted_ro_paths`.
    #[serde(default)]
    pub trusted_ro_paths: Vec<PathBuf>,
    /// The same, writable. Zuul: `trusted_rw_paths`.
    #[serde(default)]
    pub trusted_rw_paths: Vec<PathBuf>,
    /// Paths of this host that other playbooks see, read-only. Zuul: `untrusted_ro_paths`.
    #[serde(default)]
    pub untrusted_ro_paths: Vec<PathBuf>,
    /// The same, writable. Zuul: `untrusted_rw_paths`.
    #[serde(default)]
    pub untrusted_rw_paths: Vec<PathBuf>,
    /// The zone of this executor, told to all processes of the site. Zuul: `zone`.
    #[serde(default)]
    pub zone: Option<String>,
    /// Whether an executor in a zone also runs builds that are for none. Zuul: `allow_unzoned`.
    #[serde(default)]
    pub allow_unzoned: bool,
    /// The labels of nodes its local cloud makes.
    #[serde(default = "default_labels")]
    pub labels: Vec<String>,
    /// Run builds without bubblewrap. Only for hosts where nothing runs that is not trusted.
    #[serde(default)]
    pub unsandboxed: bool,
    /// The network of builds: `"host"`, this host's own with its loopback; `"private"`, a loopback of each build's own and a
    /// way out; `"none"`, that loopback alone.
    #[serde(default)]
    pub network: Network,
    /// Whether builds run programs of the older processor of this one's kind, such as 32-bit ones: of their system calls
    /// fewer can be refused.
    #[serde(default)]
    pub foreign_abi: bool,
    /// Memory of all processes of a build together, such as `"4G"`, or `"none"`; three quarters of the host's memory
    /// divided by `slots` if not set.
    #[serde(default)]
    pub job_memory: Option<SizeLimit>,
    /// Processes and threads of a build, or `"none"`.
    #[serde(default = "default_job_pids")]
    pub job_pids: CountLimit,
    /// What a build keeps on disk, or `"none"`; more is `DISK_FULL`.
    #[serde(default = "default_job_disk")]
    pub job_disk: SizeLimit,
    /// What fits into each of `/tmp`, `/var/tmp`, `/run` and `/dev/shm` of a build, which lie in memory, or `"none"`.
    #[serde(default = "default_job_tmp")]
    pub job_tmp: SizeLimit,
    /// What a build writes to its console; one that writes more fails.
    #[serde(default = "default_job_output")]
    pub job_output: ByteSize,
    /// What a build writes to its console in a second; one that writes faster waits.
    #[serde(default = "default_job_output_rate")]
    pub job_output_rate: ByteSize,
    /// Seconds that pre-run and run take together at most, also for jobs that allow themselves more or name none.
    #[serde(default = "default_job_timeout")]
    pub job_timeout: u64,
    /// Of each file system that builds write to, so many hundredths must be free, or no build is taken; 0: nobody looks.
    /// Zuul: `min_avail_hdd`.
    #[serde(default = "five_percent")]
    pub min_avail_hdd: Decimal,
    /// The same of its inodes. Zuul: `min_avail_inodes`.
    #[serde(default = "five_percent")]
    pub min_avail_inodes: Decimal,
    /// The same of this host's memory, or of that of gatelog's control group where it has a limit. Zuul: `min_avail_mem`.
    #[serde(default = "five_percent")]
    pub min_avail_mem: Decimal,
    /// While the load of the last minute is more than so many times the number of processors, no build is taken; 0: nobody
    /// looks. Zuul: `load_multiplier`.
    #[serde(default = "default_load_multiplier")]
    pub load_multiplier: Decimal,
    /// How many builds are set up at once (workspace, inventory); 0: all. Twice the number of processors if not set. Zuul:
    /// `max_starting_builds`.
    #[serde(default)]
    pub max_starting_builds: Option<u32>,
    /// Where the kernel keeps the limits of builds: `"auto"` (the control group gatelog is in, if it was delegated),
    /// `"off"` (a watch in gatelog keeps them), or a delegated directory of a cgroup2 file system,
    /// or one of the tree of memory or pids in version 1 (those at the same place in the other trees are used, too).
    #[serde(default = "default_cgroup")]
    pub cgroup: String,
    /// Where other processes of the site get consoles from. Port 0 takes a free one. Only with `[log.kafka]`.
    #[serde(default = "default_console_listen")]
    pub listen: SocketAddr,
    /// How other processes reach that, `host:port`; the address it listens on if not set.
    #[serde(default)]
    pub address: Option<String>,
}

fn default_ansible_root() -> PathBuf {
    "ansible".into()
}

fn default_username() -> String {
    "zuul".into()
}

fn default_job_pids() -> CountLimit {
    CountLimit(Limits::default().processes)
}

fn default_job_disk() -> SizeLimit {
    SizeLimit(Limits::default().disk_bytes)
}

fn default_job_tmp() -> SizeLimit {
    SizeLimit(Limits::default().tmp_bytes)
}

fn default_job_output() -> ByteSize {
    ByteSize(Limits::default().console_bytes)
}

fn default_job_output_rate() -> ByteSize {
    ByteSize(Limits::default().console_rate)
}

fn default_job_timeout() -> u64 {
    Limits::default().run.as_secs()
}

fn five_percent() -> Decimal {
    Decimal::whole(5)
}

fn default_load_multiplier() -> Decimal {
    Decimal::thousandths(2500)
}

fn default_cgroup() -> String {
    "auto".into()
}

fn default_console_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn default_labels() -> Vec<String> {
    vec!["sandbox".into()]
}

fn default_slots() -> u32 {
    2
}

impl Default for ExecutorSection {
    fn default() -> Self {
        ExecutorSection {
            slots: default_slots(),
            ansible_playbook: None,
            ansible_any_version: false,
            ansible_root: default_ansible_root(),
            default_username: default_username(),
            variables: None,
            private_key_file: None,
            trusted_ro_paths: Vec::new(),
            trusted_rw_paths: Vec::new(),
            untrusted_ro_paths: Vec::new(),
            untrusted_rw_paths: Vec::new(),
            zone: None,
            allow_unzoned: false,
            labels: default_labels(),
            unsandboxed: false,
            network: Network::Host,
            foreign_abi: false,
            job_memory: None,
            job_pids: default_job_pids(),
            job_disk: default_job_disk(),
            job_tmp: default_job_tmp(),
            job_output: default_job_output(),
            job_output_rate: default_job_output_rate(),
            job_timeout: default_job_timeout(),
            min_avail_hdd: five_percent(),
            min_avail_inodes: five_percent(),
            min_avail_mem: five_percent(),
            load_multiplier: default_load_multiplier(),
            max_starting_builds: None,
            cgroup: default_cgroup(),
            listen: default_console_listen(),
            address: None,
        }
    }
}

impl ExecutorSection {
    /// Where managed environments of Ansible lie, for a site in this directory.
    pub fn ansible_root(&self, site: &Path) -> PathBuf {
        let root = site.join(&self.ansible_root);
        // A venv holds its own path, and whoever uses it may stand elsewhere.
        std::path::absolute(&root).unwrap_or(root)
    }

    /// What the executor is opened with, for a site in this directory.
    pub fn settings(&self, site: &Path) -> ExecutorConfig {
        let mut settings = ExecutorConfig::new(site.join("builds"), site.join("logs"));
        let from_environment = || std::env::var_os("GATELOG_ANSIBLE_PLAYBOOK").map(PathBuf::from);
        settings.ansible_playbook = self.ansible_playbook.clone().or_else(from_environment);
        settings.ansible_any_version = self.ansible_any_version;
        settings.ansible_root = Some(self.ansible_root(site));
        settings.default_username.clone_from(&self.default_username);
        settings.variables = self.variables.as_ref().map(|file| site.join(file));
        settings.private_key_file = self.private_key_file.as_ref().map(|file| site.join(file));
        let paths = |ro: &[PathBuf], rw: &[PathBuf]| ExtraPaths { ro: ro.to_vec(), rw: rw.to_vec() };
        settings.trusted_paths = paths(&self.trusted_ro_paths, &self.trusted_rw_paths);
        settings.untrusted_paths = paths(&self.untrusted_ro_paths, &self.untrusted_rw_paths);
        if self.unsandboxed {
            settings.sandbox = SandboxMode::Unsandboxed;
        }
        settings.network = self.network;
        settings.foreign_abi = self.foreign_abi;
        settings.slots = self.slots;
        let share = || {
            let total = gatelog_executing::host_memory().map(|(total, _)| total);
            total.map_or(Limits::default().memory_bytes, |total| Some(Limits::memory_share(total, self.slots)))
        };
        settings.limits = Limits {
            memory_bytes: self.job_memory.map_or_else(share, |limit| limit.0),
            processes: self.job_pids.0,
            disk_bytes: self.job_disk.0,
            tmp_bytes: self.job_tmp.0,
            console_bytes: self.job_output.0,
            console_rate: self.job_output_rate.0,
            run: Duration::from_secs(self.job_timeout),
            ..Limits::default()
        };
        settings.cgroup = match self.cgroup.as_str() {
            "auto" => CgroupSetting::Auto,
            "off" => CgroupSetting::Off,
            path => CgroupSetting::At(path.into()),
        };
        settings
    }

    /// The paths that builds see, by key, and whether they are writable.
    fn shown(&self) -> [(&'static str, &[PathBuf]); 4] {
        [
            ("trusted-ro-paths", &self.trusted_ro_paths),
            ("trusted-rw-paths", &self.trusted_rw_paths),
            ("untrusted-ro-paths", &self.untrusted_ro_paths),
            ("untrusted-rw-paths", &self.untrusted_rw_paths),
        ]
    }

    /// What is wrong on this host with the paths that builds see, and the cure. `private`: what no build may see.
    pub fn unusable_path(&self, site: &Path, private: &[PathBuf]) -> Option<(String, String)> {
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        let mut hidden: Vec<PathBuf> = private.iter().filter_map(|path| real(path)).collect();
        hidden.extend(self.private_key_file.as_ref().and_then(|file| real(&site.join(file))));
        for (key, path) in self.shown().into_iter().flat_map(|(key, paths)| paths.iter().map(move |path| (key, path))) {
            let told = format!("{key} names {} under [executor]", path.display());
            let Some(found) = real(path) else {
                return Some((format!("{told}, which is not there"), "make it, or take it out of the list".into()));
            };
            let within = |one: &&PathBuf| one.starts_with(&found) || found.starts_with(one);
            if let Some(secret) = hidden.iter().find(within) {
                let message = format!("{told}, which would show builds {}", secret.display());
                return Some((message, "name directories that hold nothing of gatelog's own".into()));
            }
        }
        None
    }

    /// What does not go together, and the cure.
    pub(super) fn contradiction(&self) -> Option<(String, String)> {
        if let Some((key, path)) = self
            .shown()
            .into_iter()
            .flat_map(|(key, paths)| paths.iter().map(move |path| (key, path)))
            .find(|(_, path)| !path.is_absolute() || path.components().any(|part| part == Component::ParentDir))
        {
            return Some((
                format!("{key} = {path:?} under [executor] is no place that a sandbox could show"),
                "name absolute directories without `..`".to_owned(),
            ));
        }
        if !is_word(&self.default_username, "._-") {
            return Some((
                format!("default-username = {:?} under [executor] cannot be a user's name", self.default_username),
                "use letters, digits and `._-`, such as \"zuul\"".to_owned(),
            ));
        }
        if let Some(zone) = self.zone.as_ref().filter(|zone| !is_word(zone, "._-")) {
            return Some((
                format!("zone = {zone:?} under [executor] cannot name a zone"),
                "use letters, digits and `._-`".to_owned(),
            ));
        }
        if self.allow_unzoned && self.zone.is_none() {
            return Some((
                "allow-unzoned = true under [executor] without a zone".to_owned(),
                "set zone, or remove allow-unzoned: an executor without a zone runs what is for none".to_owned(),
            ));
        }
        if let Some(ungovernable) = self.ungovernable() {
            return Some(ungovernable);
        }
        if !matches!(self.cgroup.as_str(), "auto" | "off") && !self.cgroup.starts_with('/') {
            return Some((
                format!("cgroup = {:?} under [executor] is no place for control groups", self.cgroup),
                "set it to \"auto\", \"off\" or an absolute directory such as \"/sys/fs/cgroup/gatelog\"".to_owned(),
            ));
        }
        let least = [
            ("job-memory", self.job_memory.and_then(|limit| limit.0), 64 << 20),
            ("job-pids", self.job_pids.0, 32),
            ("job-disk", self.job_disk.0, 1 << 20),
            ("job-tmp", self.job_tmp.0, 1 << 20),
            ("job-timeout", Some(self.job_timeout), 1),
            ("job-output", Some(self.job_output.0), 64 << 10),
            ("job-output-rate", Some(self.job_output_rate.0), 64 << 10),
        ];
        let (key, value, least) = least
            .into_iter()
            .find_map(|(key, value, least)| value.filter(|value| *value < least).map(|value| (key, value, least)))?;
        let (value, needed) = match key {
            "job-pids" | "job-timeout" => (value.to_string(), least.to_string()),
            _ => (ByteSize(value).to_string(), ByteSize(least).to_string()),
        };
        Some((
            format!("{key} = {value} under [executor] is less than Ansible itself needs"),
            format!("set it to {needed} or more"),
        ))
    }
}

/// Whether a name is 1 to 100 letters, digits and these, and does not begin with one of them.
fn is_word(text: &str, more: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
    text.len() <= 100 && text.chars().all(known) && text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::super::SiteConfig;
    use super::super::tests::said;
    use super::*;

    #[test]
    fn what_an_operator_gives_to_builds_is_read_as_it_stands() {
        let text = "[executor]\nansible-root = \"/opt/ansible\"\nansible-any-version = true\n\
            default-username = \"ci\"\nvariables = \"site.yaml\"\nprivate-key-file = \"/etc/ci/key\"\n\
            trusted-ro-paths = [\"/etc/ci/tokens\"]\nuntrusted-rw-paths = [\"/var/cache/ci\"]\nzone = \"dc-1\"\n\
            allow-unzoned = true\n";
        let site: SiteConfig = toml::from_str(text).unwrap();
        assert_eq!(site.executor.contradiction(), None);
        let settings = site.executor.settings(Path::new("/srv/ci"));
        assert_eq!(settings.ansible_root.as_deref(), Some(Path::new("/opt/ansible")));
        assert!(settings.ansible_any_version);
        assert_eq!(settings.default_username, "ci");
        assert_eq!(settings.variables.as_deref(), Some(Path::new("/srv/ci/site.yaml")));
        assert_eq!(settings.private_key_file.as_deref(), Some(Path::new("/etc/ci/key")));
        assert_eq!(settings.trusted_paths, ExtraPaths { ro: vec!["/etc/ci/tokens".into()], rw: vec![] });
        assert_eq!(settings.untrusted_paths, ExtraPaths { ro: vec![], rw: vec!["/var/cache/ci".into()] });
        let usual = ExecutorSection::default().settings(Path::new("/srv/ci"));
        assert_eq!(usual.ansible_root.as_deref(), Some(Path::new("/srv/ci/ansible")));
        assert_eq!((usual.default_username.as_str(), usual.private_key_file), ("zuul", None));
        assert!(!usual.ansible_any_version);
    }

    #[test]
    fn what_cannot_be_is_named_with_its_cure() {
        for (line, expected) in [
            ("trusted-ro-paths = [\"etc/x\"]", "trusted-ro-paths = \"etc/x\" under [executor]"),
            ("untrusted-rw-paths = [\"/a/../b\"]", "name absolute directories without `..`"),
            ("trusted-ro-paths = \"/a:/b\"", "expected a sequence"),
            ("default-username = \"a b\"", "cannot be a user's name"),
            ("default-username = \"-oProxyCommand=x\"", "cannot be a user's name"),
            ("zone = \"\"", "cannot name a zone"),
            ("allow-unzoned = true", "set zone, or remove allow-unzoned"),
            ("ansible_root = \"/x\"", "ansible-root"),
        ] {
            let error = said(&format!("[executor]\n{line}\n"));
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn a_path_that_is_not_there_or_shows_what_is_gatelogs_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let site = folder.path().join("site");
        for name in ["site/keys", "cache"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("key"), "").unwrap();
        let private = [site.join("keys")];
        let said = |path: &Path| {
            let section = ExecutorSection {
                untrusted_ro_paths: vec![path.to_owned()],
                private_key_file: Some("../key".into()),
                ..ExecutorSection::default()
            };
            section.unusable_path(&site, &private).map(|(message, _)| message)
        };
        assert_eq!(said(&folder.path().join("cache")), None);
        let missing = said(&folder.path().join("none")).unwrap();
        assert!(missing.contains("untrusted-ro-paths names ") && missing.ends_with("which is not there"), "{missing}");
        for path in ["", "site", "site/keys", "key"] {
            let shown = said(&folder.path().join(path)).unwrap();
            assert!(shown.contains("which would show builds"), "{path}: {shown}");
        }
    }
}
