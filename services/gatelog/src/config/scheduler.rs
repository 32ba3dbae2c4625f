//! `[scheduler]`: what the process decides for all tenants that has this role.

use gatelog_calendar::{Calendar, UnknownZone};
use gatelog_executing::environments::{DEFAULT_RELEASE, RELEASES, Release};
use serde::Deserialize;

/// What holds for all tenants.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SchedulerSection {
    /// The version of Ansible for jobs whose tenant names none (`default-ansible-version` of the tenant file) and that
    /// name none themselves. Zuul: `default_ansible_version`.
    #[serde(default = "default_ansible_version")]
    pub default_ansible_version: String,
    /// The time zone in which timers of pipelines are meant, as in `Europe/Berlin`; the machine's own unless set. Zuul:
    /// the zone of the scheduler's machine.
    pub time_zone: Option<String>,
}

fn default_ansible_version() -> String {
    DEFAULT_RELEASE.into()
}

impl Default for SchedulerSection {
    fn default() -> Self {
        SchedulerSection { default_ansible_version: default_ansible_version(), time_zone: None }
    }
}

impl SchedulerSection {
    /// The calendar by which timers of pipelines are due.
    pub fn calendar(&self) -> Result<Calendar, UnknownZone> {
        self.time_zone.as_deref().map_or_else(|| Ok(Calendar::local()), Calendar::named)
    }

    /// What cannot be, and the cure.
    pub(super) fn contradiction(&self) -> Option<(String, String)> {
        if let Err(error) = self.calendar() {
            return Some((
                format!("time-zone under [scheduler]: {error}"),
                "name the zone in which timers of pipelines are meant, or leave the key out: then it is the machine's"
                    .into(),
            ));
        }
        let version = &self.default_ansible_version;
        if Release::named(version).is_some() {
            return None;
        }
        let known = RELEASES.map(|release| format!("\"{}\"", release.version)).join(" or ");
        Some((
            format!(
                "default-ansible-version = {version:?} under [scheduler] is no version of Ansible that jobs may ask for"
            ),
            format!("set it to {known}"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::said;

    #[test]
    fn the_default_version_is_one_that_jobs_may_ask_for() {
        assert!(said("").contains("default_ansible_version: \"11\""));
        assert!(said("[scheduler]\ndefault-ansible-version = \"9\"\n").contains("default_ansible_version: \"9\""));
        let zone = said("[scheduler]\ntime-zone = \"Europe/Atlantis\"\n");
        assert!(zone.contains("`Europe/Atlantis` is no time zone"), "{zone}");
        let unknown = said("[scheduler]\ndefault-ansible-version = \"2.9\"\n");
        assert!(unknown.contains("default-ansible-version = \"2.9\" under [scheduler]"), "{unknown}");
        assert!(unknown.contains("set it to \"9\" or \"11\""), "{unknown}");
    }
}
