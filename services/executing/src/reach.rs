//! The set-up phase: before the first playbook, every host is known to be the one that is meant, and to answer.
//!
//! Zuul runs `ansible -m setup` with a limit of 60 s; a host that does not answer then is a reason to try again with other
//! nodes, before any playbook has done half of its work. Local nodes are this host and need no such question.

use gatelog_record::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use crate::ansible;
use crate::build::Build;
use crate::config::ExecutorError;
use crate::console::now;
use crate::jobdir::write;
use crate::json_output::PlaybookJson;
use crate::outcome::{BuildResult, PlaybookEnding, RetryCause};
use crate::process::kill_marked;
use crate::setup::Stopped;
use crate::spec::HostKeys;
use crate::ssh::{self, Unproven};
use crate::yaml::Yaml;

/// Connections over which a host answers Ansible's question. Zuul: not `network_cli`.
const ASKED: [&str; 2] = ["ssh", "winrm"];

impl Build {
    /// Writes down which keys hosts have; those with a fingerprint are asked for their key.
    pub(crate) async fn prove_hosts(&self) -> Result<(), Box<Stopped>> {
        let mut pinned = String::new();
        for remote in ssh::remotes(&self.spec) {
            let HostKeys::Fingerprint(fingerprint) = &remote.host_keys else { continue };
            let Some(scanner) = &self.executor.ssh_keyscan else {
                let why = format!("host {} cannot be asked for its key: install openssh-client", remote.host);
                return Err(Box::new((BuildResult::Error(why.clone()), why)));
            };
            let proven = tokio::select! {
                proven = ssh::prove(remote, fingerprint, scanner) => proven,
                _ = self.control.wait() => {
                    return Err(Box::new((BuildResult::Aborted, format!("stopped while {} was asked for its key", remote.host))));
                }
            };
            match proven {
                Ok(line) => pinned.push_str(&line),
                Err(Unproven::Unreachable(why)) => {
                    return Err(Box::new((BuildResult::Retry(RetryCause::Unreachable), why)));
                }
                Err(Unproven::Other(why) | Unproven::Impossible(why)) => {
                    return Err(Box::new((BuildResult::Error(why.clone()), why)));
                }
            }
        }
        write(&self.job_dir.pinned_hosts(), pinned.as_bytes())?;
        // Where rsync and git of playbooks look, too. For Ansible's own connections the pinned file alone counts.
        write(&self.job_dir.known_hosts(), (ssh::known_hosts(&self.spec) + &pinned).as_bytes())?;
        Ok(())
    }

    /// Asks every host over a network for its facts.
    pub(crate) async fn reach_hosts(&self, zuul: &Yaml) -> Result<(), Box<Stopped>> {
        let names: Vec<&str> = self
            .spec
            .nodeset
            .nodes
            .iter()
            .filter(|node| node.connection.remote().is_some_and(|remote| ASKED.contains(&remote.plugin.as_str())))
            .map(|node| node.name.as_str())
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        self.console.say("Setting up: every host is asked for its facts");
        let play = json!([{
            "name": "Set up",
            "hosts": names,
            "gather_facts": false,
            "tasks": [{"name": "Reach the host", "ansible.builtin.setup": {"gather_subset": "!all"}}],
        }]);
        let directory = self.job_dir.ansible().join("setup");
        let playbook = self.prepare_own(zuul, &directory, "setup.yaml", &play.to_string())?;
        let inventory = directory.join("inventory.yaml");
        let deadline = Instant::now() + self.executor.config.limits.reach;
        let ended = Box::pin(self.start(&playbook, &inventory, None, None, deadline)).await;
        let left = kill_marked(self.job_dir.root(), crate::play::HUNT).await;
        if left > 0 {
            let why = format!("{left} processes of the set-up phase could not be killed");
            return Err(Box::new((BuildResult::Retry(RetryCause::SetupFailed), why)));
        }
        self.job_dir.tidy(false).map_err(ExecutorError::io("tidy", self.job_dir.root()))?;
        let results = ansible::results_file(&self.job_dir);
        let document = PlaybookJson::read(&results, self.executor.config.limits.json_bytes, &self.mask).ok();
        let unreachable = document.map(|document| document.unreachable).unwrap_or_default();
        let ended = ended?;
        let (result, why) = match ended.ending {
            PlaybookEnding::Ok | PlaybookEnding::Failed(_) if !unreachable.is_empty() => {
                (BuildResult::Retry(RetryCause::Unreachable), format!("cannot reach {}", unreachable.join(", ")))
            }
            PlaybookEnding::Ok => return Ok(()),
            PlaybookEnding::TimedOut => (
                BuildResult::Retry(RetryCause::Unreachable),
                format!(
                    "cannot reach all of {} within {} s",
                    names.join(", "),
                    self.executor.config.limits.reach.as_secs()
                ),
            ),
            ending => (
                ending.result().unwrap_or(BuildResult::Retry(RetryCause::SetupFailed)),
                format!("setting up failed: {}", ended.said.unwrap_or_else(|| "see the console".to_owned())),
            ),
        };
        Err(Box::new((result, why)))
    }

    /// The facts of `localhost` that every playbook has without gathering any: the time. Zuul writes the same file, so
    /// that facts of the executor stay unknown; under ansible-core 2.16 and later a play that gathers facts gathers them
    /// nevertheless, there as here.
    pub(crate) fn tell_the_time(&self) -> Result<(), ExecutorError> {
        let place = self.job_dir.ansible_state().join("fact-cache/localhost");
        let facts = json!({"date_time": date_time(now()), "module_setup": true});
        write(&place, facts.to_string().as_bytes())
    }
}

/// `ansible_date_time` as Ansible's `setup` has it, in UTC.
fn date_time(moment: Timestamp) -> serde_json::Value {
    let time = jiff::Timestamp::from_millisecond(moment.0).unwrap_or_default().to_zoned(jiff::tz::TimeZone::UTC);
    let form = |pattern: &str| time.strftime(pattern).to_string();
    json!({
        "year": form("%Y"), "month": form("%m"), "day": form("%d"),
        "weekday": form("%A"), "weekday_number": form("%w"), "weeknumber": form("%W"),
        "hour": form("%H"), "minute": form("%M"), "second": form("%S"), "epoch": form("%s"),
        "date": form("%Y-%m-%d"), "time": form("%H:%M:%S"),
        "iso8601": form("%Y-%m-%dT%H:%M:%SZ"), "iso8601_micro": form("%Y-%m-%dT%H:%M:%S.%6fZ"),
        "iso8601_basic": form("%Y%m%dT%H%M%S%6f"), "iso8601_basic_short": form("%Y%m%dT%H%M%S"),
        "tz": "UTC", "tz_offset": "+0000",
    })
}
