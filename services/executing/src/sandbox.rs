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

/// What of `/proc` belongs to the whole host. The kernel lets root write there even from inside a
/// sandbox and without any capability, so where gatelog runs as root only this keeps a job from it.
const PROC: [&str; 9] = ["acpi", "asound", "bus", "fs", "irq", "pressure", "scsi", "sys", "sysrq-trigger"];

/// Kernels without keyrings have no such list.
const KEYS: &str = "/proc/keys";

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
    /// A path of this host, writable, at another place. It must exist.
    ReadWriteAt {
        /// What.
        from: PathBuf,
        /// Where.
        to: PathBuf,
    },
    /// An empty file system in memory.
    Tmpfs {
        /// Where.
        path: PathBuf,
        /// The most bytes it takes; `None`: the kernel's default, half of the host's memory.
        size: Option<u64>,
    },
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
    /// Whether the host's network is shared; else there is a loopback of its own. Jobs of all kinds fetch things, so Zuul
    /// shares it.
    pub network: bool,
    /// The most bytes in `/dev/shm`; `None`: the kernel's default.
    pub shared_memory: Option<u64>,
}

/// What the bubblewrap of this host can do. Best is tried first when the executor starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `--size` and `--perms` for file systems in memory (bubblewrap 0.7).
    pub sizes: bool,
    /// `--disable-userns` (bubblewrap 0.8): no namespaces within the sandbox, which are the way to
    /// most of the kernel's past holes.
    pub no_nested_namespaces: bool,
}

impl Features {
    /// All of them.
    pub const ALL: Features = Features { sizes: true, no_nested_namespaces: true };
    /// What to try, best first.
    pub(crate) const LADDER: [Features; 3] = [
        Features::ALL,
        Features { no_nested_namespaces: false, ..Features::ALL },
        Features { sizes: false, no_nested_namespaces: false },
    ];
}

impl Profile {
    /// The system's programs and libraries, and nothing of a job. `tmp` is the most bytes each of
    /// the directories in memory takes.
    pub fn system(tmp: Option<u64>) -> Profile {
        let mut mounts: Vec<Mount> = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"]
            .map(|path| Mount::ReadOnlyIfThere(path.into()))
            .into();
        mounts.extend(ETC.map(|name| Mount::ReadOnlyIfThere(Path::new("/etc").join(name))));
        // It lists the keys of this user on the whole host, and whoever knows a key's number may ask for it.
        let list = Path::new(KEYS);
        mounts.extend(list.exists().then(|| Mount::ReadOnlyAt { from: "/dev/null".into(), to: list.into() }));
        mounts.extend(["/tmp", "/run", "/var/tmp"].map(|path| Mount::Tmpfs { path: path.into(), size: tmp }));
        Profile { mounts, network: true, shared_memory: tmp, ..Profile::default() }
    }

    /// The arguments for bubblewrap that run `command` under this profile.
    ///
    /// The whole process tree lives in a PID namespace of its own, whose first process dies with
    /// this one (`--die-with-parent`) and takes all others along: no process can stay behind, also
    /// when the executor itself is killed.
    ///
    /// Nothing in it can be written but what is named: also the root and `/dev`, which bubblewrap
    /// makes as file systems in memory without a limit, are read-only in the end.
    pub fn argv(&self, command: &[OsString], features: Features) -> Vec<OsString> {
        let mut argv: Vec<OsString> = vec!["--unshare-all".into()];
        if features.no_nested_namespaces {
            argv.extend(["--unshare-user".into(), "--disable-userns".into()]);
        }
        if self.network {
            argv.push("--share-net".into());
        }
        for word in ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev"] {
            argv.push(word.into());
        }
        for name in PROC {
            let path = Path::new("/proc").join(name);
            argv.extend(["--ro-bind-try".into(), path.clone().into(), path.into()]);
        }
        let tmpfs = |path: &Path, size: Option<u64>| -> Vec<OsString> {
            let mut words: Vec<OsString> = Vec::new();
            if let Some(bytes) = size.filter(|_| features.sizes) {
                words.extend(["--size".into(), bytes.to_string().into()]);
            }
            words.extend(["--tmpfs".into(), path.into()]);
            words
        };
        if features.sizes {
            argv.extend(["--perms".into(), "1777".into()]);
        }
        argv.extend(tmpfs(Path::new("/dev/shm"), self.shared_memory));
        for mount in &self.mounts {
            match mount {
                Mount::ReadOnly(path) => argv.extend(["--ro-bind".into(), path.into(), path.into()]),
                Mount::ReadOnlyIfThere(path) => argv.extend(["--ro-bind-try".into(), path.into(), path.into()]),
                Mount::ReadOnlyAt { from, to } => argv.extend(["--ro-bind".into(), from.into(), to.into()]),
                Mount::ReadWriteAt { from, to } => argv.extend(["--bind".into(), from.into(), to.into()]),
                Mount::ReadWrite(path) => argv.extend(["--bind".into(), path.into(), path.into()]),
                Mount::Tmpfs { path, size } => argv.extend(tmpfs(path, *size)),
            }
        }
        argv.extend(["--remount-ro".into(), "/dev".into(), "--remount-ro".into(), "/".into()]);
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

    fn profile() -> Profile {
        Profile {
            mounts: vec![
                Mount::ReadOnlyIfThere("/usr".into()),
                Mount::Tmpfs { path: "/tmp".into(), size: Some(1 << 30) },
                Mount::ReadOnly("/b/ansible".into()),
                Mount::ReadWrite("/b/work".into()),
                Mount::ReadOnlyAt { from: "/logs/out.txt".into(), to: "/b/work/logs/out.txt".into() },
            ],
            environment: [("HOME".to_owned(), "/b/home".into()), ("LANG".to_owned(), "C.UTF-8".into())].into(),
            directory: Some("/b/work".into()),
            network: true,
            shared_memory: Some(64 << 20),
        }
    }

    #[test]
    fn a_profile_becomes_these_arguments() {
        let expected = "--unshare-all
--unshare-user
--disable-userns
--share-net
--die-with-parent
--new-session
--cap-drop ALL
--proc /proc
--dev /dev
--ro-bind-try /proc/acpi /proc/acpi
--ro-bind-try /proc/asound /proc/asound
--ro-bind-try /proc/bus /proc/bus
--ro-bind-try /proc/fs /proc/fs
--ro-bind-try /proc/irq /proc/irq
--ro-bind-try /proc/pressure /proc/pressure
--ro-bind-try /proc/scsi /proc/scsi
--ro-bind-try /proc/sys /proc/sys
--ro-bind-try /proc/sysrq-trigger /proc/sysrq-trigger
--perms 1777
--size 67108864
--tmpfs /dev/shm
--ro-bind-try /usr /usr
--size 1073741824
--tmpfs /tmp
--ro-bind /b/ansible /b/ansible
--bind /b/work /b/work
--ro-bind /logs/out.txt /b/work/logs/out.txt
--remount-ro /dev
--remount-ro /
--clearenv
--setenv HOME /b/home
--setenv LANG C.UTF-8
--chdir /b/work
-- ansible-playbook -v";
        assert_eq!(joined(profile().argv(&["ansible-playbook".into(), "-v".into()], Features::ALL)), expected);
    }

    #[test]
    fn an_older_bubblewrap_is_asked_for_less() {
        let [_, _, least] = Features::LADDER;
        let text = joined(profile().argv(&["true".into()], least));
        for missing in ["--size", "--perms", "--disable-userns", "--unshare-user"] {
            assert!(!text.contains(missing), "{missing}: {text}");
        }
        assert!(text.contains("--tmpfs /dev/shm\n") && text.contains("--remount-ro /\n"), "{text}");
    }

    #[test]
    fn the_system_is_read_only_and_nothing_of_a_home_or_var_is_seen() {
        let profile = Profile { network: false, ..Profile::system(Some(1 << 20)) };
        let text = joined(profile.argv(&["true".into()], Features::ALL));
        assert!(!text.contains("--share-net"), "{text}");
        assert!(!text.contains("--bind "), "{text}");
        for hidden in ["/home", "/root", "/var/lib", "/etc/shadow", "/etc/ssh", "/srv"] {
            assert!(!text.contains(hidden), "{hidden} is shown: {text}");
        }
        assert!(text.contains("--ro-bind-try /etc/resolv.conf /etc/resolv.conf"), "{text}");
        assert_eq!(text.matches("--size 1048576\n--tmpfs").count(), 4, "{text}");
    }
}
