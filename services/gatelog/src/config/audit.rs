//! `[audit]`: signed checkpoints of the log, and where they go.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

/// The shortest time between checkpoints, in seconds.
const SHORTEST: u64 = 1;

/// Signed checkpoints of the log.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AuditSection {
    /// The directory they are put into, relative to the site's; none are made if not set. On a disk or host that those
    /// who could change the log cannot write to.
    #[serde(default)]
    pub checkpoint_directory: Option<PathBuf>,
    /// How often, in seconds; nothing is put there while nothing has happened.
    #[serde(default = "default_interval")]
    pub interval: u64,
}

fn default_interval() -> u64 {
    600
}

impl Default for AuditSection {
    fn default() -> Self {
        AuditSection { checkpoint_directory: None, interval: default_interval() }
    }
}

impl AuditSection {
    /// Where checkpoints go, for a site in this directory.
    pub fn directory(&self, site: &Path) -> Option<PathBuf> {
        self.checkpoint_directory.as_ref().map(|directory| site.join(directory))
    }

    /// How often they are made.
    pub fn every(&self) -> Duration {
        Duration::from_secs(self.interval.max(SHORTEST))
    }

    /// What does not go together, and the cure.
    pub(super) fn contradiction(&self, site: &Path) -> Option<(String, String)> {
        if self.interval < SHORTEST {
            return Some((
                format!("interval = {} under [audit] would never end", self.interval),
                format!("set it to {SHORTEST} or more seconds"),
            ));
        }
        let plain = |path: &Path| {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            let mut plain = PathBuf::new();
            for part in path.components() {
                match part {
                    std::path::Component::ParentDir => drop(plain.pop()),
                    part => plain.push(part),
                }
            }
            plain
        };
        let directory = self.directory(site)?;
        if !plain(&directory).starts_with(plain(site)) {
            return None;
        }
        Some((
            format!(
                "checkpoint-directory = {:?} under [audit] lies in the site's own directory: whoever changes the log \
                 there can change the checkpoints with it",
                self.checkpoint_directory.as_deref().unwrap_or(&directory)
            ),
            "name one outside, best on another machine's disk".to_owned(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_inside_the_site_proves_nothing_and_is_refused() {
        let said = |text: &str| {
            let section: AuditSection = toml::from_str(text).unwrap();
            section.contradiction(Path::new("/srv/ci")).map(|(what, cure)| format!("{what}; {cure}"))
        };
        assert_eq!(said(""), None);
        assert_eq!(said("checkpoint-directory = \"/mnt/witness\"\ninterval = 60"), None);
        assert_eq!(said("checkpoint-directory = \"../witness\""), None);
        for inside in ["witness", "./a/../witness", "/srv/ci/log/checkpoints", "/srv/other/../ci"] {
            let said = said(&format!("checkpoint-directory = {inside:?}")).unwrap();
            assert!(said.contains("lies in the site's own directory") && said.contains("name one outside"), "{said}");
        }
        assert!(said("interval = 0").unwrap().contains("1 or more seconds"));
        assert!(toml::from_str::<AuditSection>("interval = 5\ndirectory = \"x\"").is_err());
    }
}
