//! Who uses each attribute of a frozen job, and what of a job cannot be executed.
//!
//! Nothing that a job says may be passed over in silence: whatever is frozen is used by the gate, by configuration or by
//! the executor, or the build ends ERROR with a sentence that names the attribute. The table below takes a frozen job
//! apart field by field, so a new field does not compile before somebody says here who uses it.

use gatelog_rules_config::freeze::graph::Auth;
use gatelog_rules_config::{FrozenJob, Phase, Playbook};

/// Who uses an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Used {
    /// The gate: whether, when and how often the job runs, and what its result means.
    Gate,
    /// Capacity and the worker: on which nodes, with which keys.
    Worker,
    /// The executor: what runs, on what, with which variables.
    Executor,
    /// Freezing itself; it has done its work by now.
    Configuration,
    /// Nobody yet: the job cannot run. Why, and the cure.
    Refused(String),
}

impl Used {
    /// Executed, unless the job asks for what nobody executes.
    fn unless(refused: Option<String>, otherwise: Used) -> Used {
        refused.map_or(otherwise, Used::Refused)
    }
}

/// Why a job cannot be executed as it was frozen: the first attribute of it that nobody executes.
pub fn refusal(job: &FrozenJob) -> Option<String> {
    let of_playbooks = job.playbooks.iter().flat_map(playbook);
    attributes(job).into_iter().chain(of_playbooks).find_map(|(_, used)| match used {
        Used::Refused(why) => Some(why),
        _ => None,
    })
}

/// A sentence about an attribute that nobody executes.
fn nobody(job: &FrozenJob, attribute: &str, cure: &str) -> String {
    format!("job {} has {attribute}, which gatelog does not execute: {cure}", job.name)
}

/// Each attribute of a job, by the name of its field, and who uses it.
#[rustfmt::skip]
fn attributes(job: &FrozenJob) -> Vec<(&'static str, Used)> {
    // No `..` here: a new field must find its user.
    let FrozenJob {
        name: _, description: _, job_type: _, voting: _, hold_following_changes: _, success_message: _,
        failure_message: _, attempts: _, pre_timeout: _, timeout: _, post_timeout: _, nodesets: _,
        declared_dependencies: _, dependencies: _, semaphores: _, required_projects: _, include_projects: _,
        exclude_projects: _, override_checkout: _, override_branch: _, vars: _, extra_vars: _, host_vars: _,
        group_vars: _, include_vars: _, playbooks: _, tags: _, provides: _, requires: _, files: _,
        irrelevant_files: _, match_on_config_updates: _, deduplicate: _, is_abstract: _, intermediate: _,
        is_final: _, protected_by: _, post_review: _, allowed_projects: _, ignore_allowed_projects: _,
        secret_exposure: _, ansible_version: _, ansible_split_streams: _, failure_output: _, image_build_name,
        workspace_scheme: _, workspace_checkout: _, preserve_home_paths: _, workspace, host: _, fingerprint: _,
        auth, inheritance_path: _,
    } = job;
    vec![
        ("name", Used::Executor),
        ("description", Used::Configuration),
        ("job_type", Used::Gate),
        ("voting", Used::Gate),
        ("hold_following_changes", Used::Gate),
        ("success_message", Used::Gate),
        ("failure_message", Used::Gate),
        ("attempts", Used::Gate),
        ("pre_timeout", Used::Executor),
        ("timeout", Used::Executor),
        ("post_timeout", Used::Executor),
        ("nodesets", Used::Worker),
        ("declared_dependencies", Used::Configuration),
        ("dependencies", Used::Gate),
        ("semaphores", Used::Gate),
        ("required_projects", Used::Executor),
        ("include_projects", Used::Executor),
        ("exclude_projects", Used::Executor),
        ("override_checkout", Used::Executor),
        ("override_branch", Used::Executor),
        ("vars", Used::Executor),
        ("extra_vars", Used::Executor),
        ("host_vars", Used::Executor),
        ("group_vars", Used::Executor),
        ("include_vars", Used::Executor),
        ("playbooks", Used::Executor),
        ("tags", Used::Executor),
        ("provides", Used::Gate),
        ("requires", Used::Gate),
        ("files", Used::Configuration),
        ("irrelevant_files", Used::Configuration),
        ("match_on_config_updates", Used::Configuration),
        ("deduplicate", Used::Configuration),
        ("is_abstract", Used::Configuration),
        ("intermediate", Used::Configuration),
        ("is_final", Used::Configuration),
        ("protected_by", Used::Configuration),
        ("post_review", Used::Configuration),
        ("allowed_projects", Used::Configuration),
        ("ignore_allowed_projects", Used::Configuration),
        ("secret_exposure", Used::Executor),
        ("ansible_version", Used::Executor),
        ("ansible_split_streams", Used::Executor),
        ("failure_output", Used::Executor),
        ("image_build_name", Used::unless(image_build_name.as_ref().map(|image| {
            nobody(job, &format!("image-build-name {image}"), "build the image with another tool, and take it out of the job")
        }), Used::Executor)),
        ("workspace_scheme", Used::Executor),
        ("workspace_checkout", Used::Executor),
        ("preserve_home_paths", Used::Executor),
        ("workspace", Used::unless(workspace.as_ref().map(|place| {
            nobody(job, &format!("workspace {place}"), "take it out of the job; zuul.executor.src_root says where repositories lie")
        }), Used::Executor)),
        // The machine a job runs on instead of nodes, and the key that it must show.
        ("host", Used::Worker),
        ("fingerprint", Used::Worker),
        ("auth", Used::unless(swift(job, auth.as_ref()), Used::Executor)),
        ("inheritance_path", Used::Executor),
    ]
}

fn swift(job: &FrozenJob, auth: Option<&Auth>) -> Option<String> {
    let Auth { job: _, inherit: _, swift } = auth?;
    let cure = "give the job a secret with the credentials of the object store in its place";
    (!swift.is_empty()).then(|| nobody(job, "auth.swift", cure))
}

/// Each attribute of a playbook, by the name of its field, and who uses it.
fn playbook(playbook: &Playbook) -> Vec<(&'static str, Used)> {
    // No `..` here: a new field must find its user.
    let Playbook {
        phase,
        project: _,
        branch: _,
        path,
        trusted: _,
        cleanup: _,
        roles: _,
        secrets: _,
        semaphores,
        nesting_level: _,
    } = playbook;
    let word = match phase {
        Phase::Pre => "pre-run",
        Phase::Run => "run",
        Phase::Post => "post-run",
        Phase::Cleanup => "cleanup-run",
    };
    let held = (!semaphores.is_empty()).then(|| {
        format!(
            "{word} playbook {path} has semaphores ({}), which gatelog does not execute: let the job have them in its \
             own semaphores",
            semaphores.join(", ")
        )
    });
    vec![
        ("phase", Used::Executor),
        ("project", Used::Executor),
        ("branch", Used::Executor),
        ("path", Used::Executor),
        ("trusted", Used::Executor),
        ("cleanup", Used::Executor),
        ("roles", Used::Executor),
        ("secrets", Used::Executor),
        ("semaphores", Used::unless(held, Used::Gate)),
        ("nesting_level", Used::Executor),
    ]
}

#[cfg(test)]
mod tests {
    use gatelog_record::Value;
    use gatelog_rules_config::Shared;

    use super::*;

    fn job() -> FrozenJob {
        let playbook = Playbook {
            phase: Phase::Run,
            project: "git.test/app".into(),
            branch: "master".into(),
            path: "run.yaml".into(),
            trusted: false,
            cleanup: false,
            roles: Shared::new(Vec::new()),
            secrets: Vec::new(),
            semaphores: Vec::new(),
            nesting_level: 0,
        };
        FrozenJob {
            name: "unit".into(),
            secret_exposure: "ignore".into(),
            playbooks: vec![playbook],
            ..FrozenJob::default()
        }
    }

    #[test]
    fn every_attribute_of_a_frozen_job_has_a_user_and_each_is_listed_once() {
        let job = job();
        let fields = |value: &serde_json::Value| -> Vec<String> {
            value.as_object().unwrap().keys().cloned().collect::<std::collections::BTreeSet<_>>().into_iter().collect()
        };
        let listed = |all: Vec<(&str, Used)>| -> Vec<String> {
            let mut names: Vec<String> = all.into_iter().map(|(name, _)| name.to_owned()).collect();
            names.sort();
            names
        };
        let json = serde_json::to_value(&job).unwrap();
        assert_eq!(listed(attributes(&job)), fields(&json));
        assert_eq!(listed(playbook(&job.playbooks[0])), fields(&json["playbooks"][0]));
        assert_eq!(refusal(&job), None, "a plain job runs");
    }

    #[test]
    fn what_nobody_executes_ends_the_build_with_the_attribute_and_the_cure() {
        let with = |change: &dyn Fn(&mut FrozenJob)| {
            let mut job = job();
            change(&mut job);
            refusal(&job).unwrap()
        };
        let cases = [
            (with(&|job| job.image_build_name = Some("debian".into())), "job unit has image-build-name debian"),
            (with(&|job| job.workspace = Some("/opt/workspace".into())), "has workspace /opt/workspace"),
            (
                with(&|job| job.playbooks[0].semaphores = vec!["lab".into()]),
                "run playbook run.yaml has semaphores (lab)",
            ),
            (
                with(&|job| job.auth = Some(Auth { swift: vec![Value::from("logs")], ..Auth::default() })),
                "has auth.swift",
            ),
        ];
        for (refused, expected) in cases {
            assert!(refused.contains(expected) && refused.contains("gatelog does not execute: "), "{refused}");
        }
        let mut job = job();
        job.auth = Some(Auth { inherit: true, ..Auth::default() });
        assert_eq!(refusal(&job), None, "secrets of the older spelling are executed");
    }
}
