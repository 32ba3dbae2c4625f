//! A frozen job in words, attribute by attribute.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use gatelog_record::Value;

use super::graph::{FrozenJob, Phase};
use crate::objects::job::JobAttribute;
use crate::objects::job_parts::{Dependency, ProjectFilter};
use crate::regexes::Pattern;

impl FrozenJob {
    /// What an attribute came to, in one line: `none` where nobody says anything, empty for an empty
    /// list. Places are told as `project@branch:path`, secrets by the names playbooks see.
    ///
    /// None for `attribute-control` and `secrets`, of which nothing is left in the job itself.
    pub fn tell(&self, attribute: JobAttribute) -> Option<String> {
        use JobAttribute as A;
        Some(match attribute {
            A::Final => self.is_final.to_string(),
            A::Protected => self.protected_by.clone().unwrap_or_else(none),
            A::Abstract => self.is_abstract.to_string(),
            A::Intermediate => self.intermediate.to_string(),
            A::Type => self.job_type.clone(),
            A::Voting => self.voting.to_string(),
            A::HoldFollowingChanges => self.hold_following_changes.to_string(),
            A::SuccessMessage => self.success_message.clone().unwrap_or_else(none),
            A::FailureMessage => self.failure_message.clone().unwrap_or_else(none),
            A::Roles => {
                let first = self.phase(Phase::Run).next().map(|playbook| &playbook.roles);
                comma(first.into_iter().flat_map(|all| all.iter()).map(|role| role.target_name.clone()))
            }
            A::Secrets | A::AttributeControl => return None,
            A::SecretExposure => self.secret_exposure.clone(),
            A::Tags => set(&self.tags),
            A::Provides => set(&self.provides),
            A::Requires => set(&self.requires),
            A::Dependencies => comma(self.declared_dependencies.iter().map(dependency)),
            A::Files => patterns(self.files.as_deref()),
            A::IrrelevantFiles => patterns(self.irrelevant_files.as_deref()),
            A::MatchOnConfigUpdates => self.match_on_config_updates.to_string(),
            A::Deduplicate => bool_or_auto(self.deduplicate),
            A::Nodeset => {
                let told: Vec<String> = self.nodesets.iter().map(|nodeset| nodeset.shape.tell()).collect();
                told.join(" or ")
            }
            A::PreRun => self.tell_phase(Phase::Pre),
            A::Run => self.tell_phase(Phase::Run),
            A::PostRun => self.tell_phase(Phase::Post),
            A::CleanupRun => self.tell_phase(Phase::Cleanup),
            A::Semaphores => comma(self.semaphores.iter().map(|semaphore| {
                let first = if semaphore.resources_first { " (resources first)" } else { "" };
                format!("{}{first}", semaphore.name)
            })),
            A::PreTimeout => seconds(self.pre_timeout),
            A::Timeout => seconds(self.timeout),
            A::PostTimeout => seconds(self.post_timeout),
            A::Attempts => self.attempts.to_string(),
            A::AnsibleVersion => self.ansible_version.clone(),
            A::AnsibleSplitStreams => self.ansible_split_streams.map_or_else(none, |truth| truth.to_string()),
            A::RequiredProjects => comma(self.required_projects.iter().map(|required| {
                let over = required.override_checkout.as_ref().or(required.override_branch.as_ref());
                over.map_or_else(|| required.name.clone(), |over| format!("{} ({over})", required.name))
            })),
            A::IncludeProjects => filters(self.include_projects.as_deref()),
            A::ExcludeProjects => filters(self.exclude_projects.as_deref()),
            A::Vars => map(&self.vars),
            A::ExtraVars => map(&self.extra_vars),
            A::HostVars => map(&self.host_vars),
            A::GroupVars => map(&self.group_vars),
            A::IncludeVars => comma(self.include_vars.iter().map(|file| {
                let of = file.project.as_deref().unwrap_or("the project under test");
                let need = if file.required { "" } else { " (optional)" };
                format!("{} of {of}{need}", file.name)
            })),
            A::AllowedProjects => match (&self.allowed_projects, self.ignore_allowed_projects) {
                (None, _) => "all".to_owned(),
                (Some(all), false) => set(all),
                (Some(all), true) => format!("{} (lifted by a config project)", set(all)),
            },
            A::OverrideCheckout => self.override_checkout.clone().unwrap_or_else(none),
            A::OverrideBranch => self.override_branch.clone().unwrap_or_else(none),
            A::PostReview => self.post_review.to_string(),
            A::FailureOutput => comma(self.failure_output.iter().map(Pattern::describe)),
            A::ImageBuildName => self.image_build_name.clone().unwrap_or_else(none),
            A::Workspace => self.workspace.clone().unwrap_or_else(none),
            A::Host => self.host.clone().unwrap_or_else(none),
            A::Fingerprint => self.fingerprint.clone().unwrap_or_else(none),
            A::Auth => self.auth.as_ref().map_or_else(none, |auth| {
                let heirs = if auth.inherit { "inherited" } else { "not inherited" };
                format!("{heirs}, swift {}", Value::List(auth.swift.clone()))
            }),
            A::WorkspaceScheme => self.workspace_scheme.clone(),
            A::WorkspaceCheckout => bool_or_auto(self.workspace_checkout),
            A::PreserveHomePaths => set(&self.preserve_home_paths),
        })
    }

    /// The jobs of the graph it waits for, in one line.
    pub fn waits_for(&self) -> String {
        comma(self.dependencies.iter().map(dependency))
    }

    fn tell_phase(&self, phase: Phase) -> String {
        comma(self.phase(phase).map(|playbook| {
            let secrets: Vec<&str> = playbook.secrets.iter().map(|secret| secret.name.as_str()).collect();
            let mut told = format!("{}@{}:{}", playbook.project, playbook.branch, playbook.path);
            // Writing to a String does not fail.
            if !secrets.is_empty() {
                let _ = write!(told, " with {}", secrets.join("+"));
            }
            if playbook.cleanup {
                told.push_str(" (cleanup)");
            }
            told
        }))
    }
}

fn none() -> String {
    "none".to_owned()
}

fn comma(all: impl Iterator<Item = String>) -> String {
    all.collect::<Vec<_>>().join(", ")
}

fn set(all: &BTreeSet<String>) -> String {
    comma(all.iter().cloned())
}

fn map(map: &BTreeMap<String, Value>) -> String {
    Value::Map(map.clone()).to_string()
}

fn patterns(all: Option<&[Pattern]>) -> String {
    all.map_or_else(none, |all| comma(all.iter().map(Pattern::describe)))
}

fn bool_or_auto(value: Option<bool>) -> String {
    value.map_or_else(|| "auto".to_owned(), |truth| truth.to_string())
}

fn seconds(value: Option<i64>) -> String {
    value.map_or_else(none, |seconds| seconds.to_string())
}

fn filters(all: Option<&[ProjectFilter]>) -> String {
    let one = |filter: &ProjectFilter| match filter {
        ProjectFilter::Project(name) => name.clone(),
        ProjectFilter::Change => "those of the change".to_owned(),
        ProjectFilter::Item => "those of the item".to_owned(),
    };
    all.map_or_else(none, |all| comma(all.iter().map(one)))
}

fn dependency(dependency: &Dependency) -> String {
    format!("{}{}", dependency.name, if dependency.soft { " (soft)" } else { "" })
}
