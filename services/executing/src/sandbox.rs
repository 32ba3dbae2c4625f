//! What a playbook may see and touch: a profile as data, and the bubblewrap arguments it becomes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The parts of `/etc` that programs need to resolve names, find users and trust certificates.
const ETC: [&str; 21] = [
    "alternatives",
    "ca-certificates",
    "debian_version",
    "group",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "lsb-release",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki",
    "protocols",
    "resolv.conf",
    "services",
    "ssl",
    "timezone",
];

/// One thing put into the sandbox's file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mount {
    /// A path of this host, read-only, at the same place. It must exist.
    ReadOnly(PathBuf),
    /// A path of this host, read-only, at the same place, if it exists.
    ReadOnlyIfThere(PathBuf),
    /// A path of this host, read-only, at another place.
    ReadOnlyAt {
        /// What.
        from: PathBuf,
        /// Where.
        to: PathBuf,
    },
    /// A path of this host, writable, at the same place. It must exist.
    ReadWrite(PathBuf),
    /// An empty file system in memory.
    Tmpfs(PathBuf),
}

/// What a process may see and touch. Everything not named here does not exist for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The file system, in order: a later mount hides what an earlier one put at its place.
    pub mounts: Vec<Mount>,
    /// The whole environment.
    pub environment: BTreeMap<String, OsString>,
    /// The working directory.
    pub directory: Option<PathBuf>,
    /// Whether the host's network is shared. Jobs of all kinds fetch things, so Zuul shares it.
    pub network: bool,
}

impl Profile {
    /// The system's programs and libraries, and nothing of a job.
    pub fn system() -> Profile {
        let mut mounts: Vec<Mount> = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"]
            .map(|path| Mount::ReadOnlyIfThere(path.into()))
            .into();
        mounts.extend(ETC.map(|name| Mount::ReadOnlyIfThere(Path::new("/etc").join(name))));
        mounts.push(Mount::Tmpfs("/tmp".into()));
        mounts.push(Mount::Tmpfs("/run".into()));
        mounts.push(Mount::Tmpfs("/var/tmp".into()));
        Profile { mounts, environment: BTreeMap::new(), directory: None, network: true }
    }

    /// The arguments for bubblewrap that run `command` under this profile.
    ///
    /// The whole process tree lives in a PID namespace of its own, whose first process dies with
    /// this one (`--die-with-parent`) and takes all others along: no process can stay behind, also
    /// when the executor itself is killed.
    pub fn argv(&self, command: &[OsString]) -> Vec<OsString> {
        let mut argv: Vec<OsString> = vec!["--unshare-all".into()];
        if self.network {
            argv.push("--share-net".into());
        }
        for word in ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev"] {
            argv.push(word.into());
        }
        for mount in &self.mounts {
            match mount {
                Mount::ReadOnly(path) => argv.extend(["--ro-bind".into(), path.into(), path.into()]),
                Mount::ReadOnlyIfThere(path) => argv.extend(["--ro-bind-try".into(), path.into(), path.into()]),
                Mount::ReadOnlyAt { from, to } => argv.extend(["--ro-bind".into(), from.into(), to.into()]),
                Mount::ReadWrite(path) => argv.extend(["--bind".into(), path.into(), path.into()]),
                Mount::Tmpfs(path) => argv.extend(["--tmpfs".into(), path.into()]),
            }
        }
        argv.push("--clearenv".into());
        for (name, value) in &self.environment {
            argv.extend(["--setenv".into(), name.into(), value.clone()]);
        }
        if let Some(directory) = &self.directory {
            argv.extend(["--chdir".into(), directory.into()]);
        }
        argv.push("--".into());
        argv.extend(command.iter().cloned());
        argv
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(argv: Vec<OsString>) -> String {
        argv.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ").replace(" --", "\n--")
    }

    #[test]
    fn a_profile_becomes_these_arguments() {
        let profile = Profile {
            mounts: vec![
                Mount::ReadOnlyIfThere("/usr".into()),
                Mount::Tmpfs("/tmp".into()),
                Mount::ReadOnly("/b/ansible".into()),
                Mount::ReadWrite("/b/work".into()),
                Mount::ReadOnlyAt { from: "/logs/out.txt".into(), to: "/b/work/logs/out.txt".into() },
            ],
            environment: [("HOME".to_owned(), "/b/home".into()), ("LANG".to_owned(), "C.UTF-8".into())].into(),
            directory: Some("/b/work".into()),
            network: true,
        };
        let expected = "--unshare-all
--share-net
--die-with-parent
--new-session
--cap-drop ALL
--proc /proc
--dev /dev
--ro-bind-try /usr /usr
--tmpfs /tmp
--ro-bind /b/ansible /b/ansible
--bind /b/work /b/work
--ro-bind /logs/out.txt /b/work/logs/out.txt
--clearenv
--setenv HOME /b/home
--setenv LANG C.UTF-8
--chdir /b/work
-- ansible-playbook -v";
        assert_eq!(joined(profile.argv(&["ansible-playbook".into(), "-v".into()])), expected);
    }

    #[test]
    fn the_system_is_read_only_and_nothing_of_a_home_or_var_is_seen() {
        let profile = Profile { network: false, ..Profile::system() };
        let text = joined(profile.argv(&["true".into()]));
        assert!(!text.contains("--share-net"), "{text}");
        assert!(!text.contains("--bind "), "{text}");
        for hidden in ["/home", "/root", "/var/lib", "/etc/shadow", "/etc/ssh", "/srv"] {
            assert!(!text.contains(hidden), "{hidden} is shown: {text}");
        }
        assert!(text.contains("--ro-bind-try /etc/resolv.conf /etc/resolv.conf"), "{text}");
    }
}
