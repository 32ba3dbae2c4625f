//! The managed environments: which releases of Ansible a job may ask for, and what stands on disk for each.
//!
//! An environment is a directory `<root>/<version>-<number>` with a Python venv and a marker. It counts once the link
//! `<root>/<version>` names it, and that link is set when all of it is there: what a crash leaves behind is named by no
//! link. A venv holds its own path in its scripts, so it is made where it stays, and never moved.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The marker's name in an environment's directory.
pub const MARKER: &str = "gatelog-ansible.json";
/// The marker's format that this gatelog writes and reads.
pub const FORMAT: u32 = 1;
/// The longest marker that is read, in bytes.
const MARKER_BYTES: u64 = 4 << 20;

/// A release of PyPI's community package `ansible` that jobs may ask for. Zuul 14.3: `ansible-config.conf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// How jobs name it (`ansible-version`).
    pub version: &'static str,
    /// What pip is asked for.
    pub requirement: &'static str,
    /// The series of ansible-core it contains.
    pub core: (u32, u32),
    /// The oldest and the newest Python 3 it runs on, as minor versions.
    pub python: (u32, u32),
    /// Whether Zuul advises against it.
    pub deprecated: bool,
}

/// The releases, the newest last.
pub const RELEASES: [Release; 2] = [
    Release { version: "9", requirement: "ansible>=9.0,<10.0", core: (2, 16), python: (10, 12), deprecated: true },
    Release { version: "11", requirement: "ansible>=11.0,<12.0", core: (2, 18), python: (11, 13), deprecated: false },
];

/// The release that jobs run with where neither they nor their tenant name one. Zuul: `default_version`.
pub const DEFAULT_RELEASE: &str = "11";

/// What is installed beside Ansible, because roles of zuul-jobs and Zuul's own modules need it. Zuul 14.3: `requirements`
/// under `[common]` of `ansible-config.conf`.
pub const COMMON_REQUIREMENTS: [&str; 14] = [
    "openstacksdk",
    "openshift",
    "jmespath",
    "google-api-core<2.28.0",
    "google-cloud-storage",
    "pywinrm",
    "boto3<1.36.0",
    "azure-storage-blob",
    "ibm-cos-sdk",
    "netaddr",
    "passlib",
    "google-re2",
    "urllib3!=2.1.0",
    "voluptuous",
];

impl Release {
    /// The release that jobs name so.
    pub fn named(version: &str) -> Option<&'static Release> {
        RELEASES.iter().find(|release| release.version == version)
    }

    /// Whether an ansible-core of this version is the one the release contains, but for its patch level.
    pub fn has_core(&self, core: &str) -> bool {
        let mut parts = core.split('.').map(|part| part.parse::<u32>().ok());
        (parts.next().flatten(), parts.next().flatten()) == (Some(self.core.0), Some(self.core.1))
    }

    /// The ansible-core it contains, such as `2.18`.
    pub fn core_series(&self) -> String {
        format!("{}.{}", self.core.0, self.core.1)
    }
}

/// A Python package of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// Its version.
    pub version: String,
    /// SHA-256 of the archive it was installed from, in hex; `None` where pip did not say.
    pub sha256: Option<String>,
}

/// What an environment says of itself, in [`MARKER`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// [`FORMAT`].
    pub format: u32,
    /// The release, as jobs name it.
    pub release: String,
    /// The version of the package `ansible`.
    pub ansible: String,
    /// The version of ansible-core.
    pub ansible_core: String,
    /// The Python it was made with, such as `3.11.7`.
    pub python: String,
    /// What pip was asked for.
    pub requirements: Vec<String>,
    /// Every package that was installed, by name.
    pub packages: BTreeMap<String, Package>,
}

/// An environment that is complete, as far as its marker tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Its directory, not the link to it.
    pub directory: PathBuf,
    /// What it says of itself.
    pub marker: Marker,
}

impl Environment {
    /// A program of it.
    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.join("bin").join(name)
    }
}

/// Why an environment that a link names cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Ansible {version} in {} cannot be used: {reason}", path.display())]
pub struct BrokenEnvironment {
    /// The release.
    pub version: String,
    /// The link, or what it names.
    pub path: PathBuf,
    /// What is wrong.
    pub reason: String,
}

/// Where the link to an environment lies.
pub fn link(root: &Path, version: &str) -> PathBuf {
    root.join(version)
}

/// The environment of a release; `None`: none is installed.
///
/// # Errors
/// Something is there that is no complete environment of this release.
pub fn find(root: &Path, version: &str) -> Result<Option<Environment>, BrokenEnvironment> {
    let link = link(root, version);
    let broken = |path: &Path, reason: String| BrokenEnvironment { version: version.into(), path: path.into(), reason };
    let directory = match fs::canonicalize(&link) {
        Ok(directory) => directory,
        Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(&link).is_err() => return Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(broken(&link, "the directory it names is gone".into()));
        }
        Err(error) => return Err(broken(&link, error.to_string())),
    };
    let marker = read_marker(&directory.join(MARKER)).map_err(|reason| broken(&directory, reason))?;
    if marker.format != FORMAT {
        let reason = format!("its {MARKER} has format {}, and this gatelog knows {FORMAT}", marker.format);
        return Err(broken(&directory, reason));
    }
    if marker.release != version {
        return Err(broken(&directory, format!("it is an environment of Ansible {}", marker.release)));
    }
    Ok(Some(Environment { directory, marker }))
}

fn read_marker(path: &Path) -> Result<Marker, String> {
    let failed = |error: std::io::Error| format!("{MARKER} cannot be read: {error}");
    let mut bytes = Vec::new();
    fs::File::open(path).map_err(failed)?.take(MARKER_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    serde_json::from_slice(&bytes).map_err(|error| format!("{MARKER} is not what gatelog writes: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_knows_its_core_whatever_the_patch_level() {
        let eleven = Release::named("11").unwrap();
        for core in ["2.18.0", "2.18.19", "2.18.1rc1", "2.18"] {
            assert!(eleven.has_core(core), "{core}");
        }
        for core in ["2.16.3", "2.19.0", "3.18.1", "2", "", "2.180.1"] {
            assert!(!eleven.has_core(core), "{core}");
        }
        assert!(Release::named(DEFAULT_RELEASE).is_some());
        assert_eq!(Release::named("10"), None);
    }

    #[test]
    fn what_a_crash_leaves_is_not_installed_and_what_is_broken_says_so() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        // A crash in the middle: a directory, and no link to it.
        fs::create_dir_all(root.join("11-1/bin")).unwrap();
        assert_eq!(find(root, "11"), Ok(None));
        std::os::unix::fs::symlink("11-1", link(root, "11")).unwrap();
        let said = |version: &str| find(root, version).unwrap_err().to_string();
        assert!(said("11").contains("gatelog-ansible.json cannot be read"), "{}", said("11"));
        let marker = |release: &str, format: u32| Marker {
            format,
            release: release.into(),
            ansible: "11.13.0".into(),
            ansible_core: "2.18.19".into(),
            python: "3.11.7".into(),
            requirements: vec!["ansible>=11.0,<12.0".into()],
            packages: BTreeMap::new(),
        };
        let write = |marker: &Marker| {
            fs::write(root.join("11-1").join(MARKER), serde_json::to_vec(marker).unwrap()).unwrap();
        };
        write(&marker("11", FORMAT));
        let found = find(root, "11").unwrap().unwrap();
        assert_eq!(found.marker, marker("11", FORMAT));
        assert_eq!(found.program("pip"), fs::canonicalize(root).unwrap().join("11-1/bin/pip"));
        write(&marker("11", FORMAT + 1));
        assert!(said("11").contains("has format 2, and this gatelog knows 1"), "{}", said("11"));
        write(&marker("9", FORMAT));
        assert!(said("11").contains("it is an environment of Ansible 9"), "{}", said("11"));
        fs::remove_dir_all(root.join("11-1")).unwrap();
        assert!(said("11").contains("the directory it names is gone"), "{}", said("11"));
    }
}
