//! Which repositories a job has, and in which state: its workspace, playbooks, roles and files of variables.

use std::collections::BTreeSet;

use gatelog_record::draft::gate::Subject;
use gatelog_rules_config::objects::job_parts::ProjectFilter;
use gatelog_rules_config::{FrozenJob, Playbook};
use gatelog_rules_gate::own_changes;

use crate::connection::Trouble;
use crate::pins::{Override, Pins, Wish};
use crate::spec::{PinnedCheckout, PinnedVars};

/// In place of the number of a repository: the role is left out.
const NO_REPOSITORY: u32 = u32::MAX;

/// Everything a job has checked out.
pub(crate) struct Checkouts {
    /// The repositories of the workspace.
    pub(crate) workspace: Vec<PinnedCheckout>,
    /// For each playbook, the repository it is taken from.
    pub(crate) playbooks: Vec<PinnedCheckout>,
    /// Repositories with roles, each state once.
    pub(crate) role_repositories: Vec<PinnedCheckout>,
    /// For each playbook and each of its roles, which of these, or [`NO_REPOSITORY`].
    pub(crate) roles: Vec<Vec<u32>>,
    /// For each file of variables, the repository it is taken from.
    pub(crate) include_vars: Vec<PinnedVars>,
}

/// Pins all repositories of a job that is run for a change or ref.
pub(crate) fn pin(pins: &mut Pins<'_>, own: &Subject, job: &FrozenJob) -> Result<Checkouts, Trouble> {
    let names = workspace(pins, own, job);
    let mut workspace = Vec::with_capacity(names.len());
    for (name, required) in &names {
        let project = pins.project(name)?.clone();
        let wish = Wish { use_ref: true, ..wish(job, name) };
        let pinned = pins.resolve(&project, own, wish, true)?;
        workspace.push(PinnedCheckout { required: *required, ..pinned });
    }
    let mut using = Using { own, job, in_workspace: names.into_iter().map(|(name, _)| name).collect() };
    let (mut playbooks, mut role_repositories, mut roles) = (Vec::new(), Vec::new(), Vec::new());
    for playbook in &job.playbooks {
        let pinned = using.playbook(pins, playbook)?;
        let mut of_playbook = Vec::with_capacity(playbook.roles.len());
        for role in playbook.roles.iter() {
            let found = match using.role(pins, playbook, &pinned, &role.project) {
                // It is there because a parent of the job is: the job may do without, and learns from Ansible if not.
                Err(trouble) if role.implicit && trouble.code == "repository-vanished" => {
                    tracing::warn!(job = job.name, %trouble, "a playbook is without the roles of a repository");
                    of_playbook.push(NO_REPOSITORY);
                    continue;
                }
                found => found?,
            };
            let known = role_repositories.iter().position(|known| *known == found);
            let place = known.unwrap_or_else(|| {
                role_repositories.push(found);
                role_repositories.len() - 1
            });
            of_playbook.push(u32::try_from(place).unwrap_or(NO_REPOSITORY));
        }
        roles.push(of_playbook);
        playbooks.push(pinned);
    }
    let include_vars = using.include_vars(pins)?;
    Ok(Checkouts { workspace, playbooks, role_repositories, roles, include_vars })
}

/// What the job says of the checkout of a project.
fn wish<'j>(job: &'j FrozenJob, project: &str) -> Wish<'j> {
    let required = job.required_projects.iter().find(|required| required.project == project);
    let of_project = required.map_or_else(Override::default, |required| Override {
        checkout: required.override_checkout.as_deref(),
        branch: required.override_branch.as_deref(),
    });
    let of_job = Override { checkout: job.override_checkout.as_deref(), branch: job.override_branch.as_deref() };
    Wish { of_project, of_job, ..Wish::default() }
}

/// The projects of the workspace, and which of them the job requires. Zuul: those of the item and of everything ahead of
/// it, as far as the job includes them or runs something from them, and those the job requires.
fn workspace(pins: &Pins<'_>, own: &Subject, job: &FrozenJob) -> Vec<(String, bool)> {
    let executed = executed(pins, own, job);
    let mut names: Vec<(String, bool)> = Vec::new();
    for step in &pins.wanted.steps {
        let project = &step.subject.project;
        let wanted = includes(pins, own, job, project) || executed.contains(project.as_str());
        if wanted && !names.iter().any(|(name, _)| name == project) {
            names.push((project.clone(), false));
        }
    }
    for required in &job.required_projects {
        match names.iter_mut().find(|(name, _)| *name == required.project) {
            Some(known) => known.1 = true,
            None => names.push((required.project.clone(), true)),
        }
    }
    names
}

/// The projects that are no config projects from which the job takes playbooks, roles or variables.
fn executed<'j>(pins: &Pins<'_>, own: &'j Subject, job: &'j FrozenJob) -> BTreeSet<&'j str> {
    let playbooks = job.playbooks.iter().filter(|playbook| !playbook.trusted);
    let of_playbooks = playbooks.flat_map(|playbook| {
        let roles = playbook.roles.iter().map(|role| role.project.as_str());
        std::iter::once(playbook.project.as_str()).chain(roles)
    });
    let of_files = job.include_vars.iter().map(|file| file.project.as_deref().unwrap_or(&own.project));
    let is_trusted = |project: &str| pins.project(project).is_ok_and(|project| project.trusted);
    of_playbooks.chain(of_files).filter(|project| !is_trusted(project)).collect()
}

/// Zuul: `include-projects` and `exclude-projects`.
fn includes(pins: &Pins<'_>, own: &Subject, job: &FrozenJob, project: &str) -> bool {
    let named = |filters: &[ProjectFilter]| {
        filters.iter().any(|filter| match filter {
            ProjectFilter::Project(name) => name == project,
            ProjectFilter::Change => own.project == project,
            ProjectFilter::Item => own_changes(pins.wanted).iter().any(|change| change.project == project),
        })
    };
    job.include_projects.as_deref().is_none_or(named) && !job.exclude_projects.as_deref().is_some_and(named)
}

/// What the repositories of playbooks depend on.
struct Using<'j> {
    own: &'j Subject,
    job: &'j FrozenJob,
    in_workspace: BTreeSet<String>,
}

impl Using<'_> {
    /// Zuul: what is trusted is always taken as merged; what is not, with the changes under test, if the workspace has
    /// them.
    fn is_speculative(&self, trusted: bool, project: &str) -> bool {
        !trusted && self.in_workspace.contains(project)
    }

    /// Zuul: a playbook comes from the branch its job was defined on.
    fn playbook(&self, pins: &mut Pins<'_>, playbook: &Playbook) -> Result<PinnedCheckout, Trouble> {
        let project = pins.project(&playbook.project)?.clone();
        let speculative = self.is_speculative(playbook.trusted, &playbook.project);
        if playbook.branch.is_empty() {
            let pinned = pins.resolve(&project, self.own, Wish::default(), speculative)?;
            return Ok(PinnedCheckout { description: "playbook branch".into(), ..pinned });
        }
        pins.pin(&project, &playbook.branch, speculative, "playbook branch")
    }

    /// Zuul: roles of the playbook's own project come from the playbook's branch, others are chosen as projects of the
    /// workspace are; both in the context of the playbook, whatever the project of the role is.
    fn role(
        &self,
        pins: &mut Pins<'_>,
        playbook: &Playbook,
        pinned: &PinnedCheckout,
        name: &str,
    ) -> Result<PinnedCheckout, Trouble> {
        if name == playbook.project {
            return Ok(pinned.clone());
        }
        let project = pins.project(name)?.clone();
        let speculative = self.is_speculative(playbook.trusted, name);
        let wish = Wish { otherwise: Some(&pinned.branch), ..wish(self.job, name) };
        pins.resolve(&project, self.own, wish, speculative)
    }

    fn include_vars(&mut self, pins: &mut Pins<'_>) -> Result<Vec<PinnedVars>, Trouble> {
        let mut pinned = Vec::with_capacity(self.job.include_vars.len());
        for file in &self.job.include_vars {
            let name = file.project.as_deref().unwrap_or(&self.own.project);
            let project = pins.project(name)?.clone();
            let wish = Wish { use_ref: file.use_ref, ..wish(self.job, name) };
            let speculative = self.is_speculative(project.trusted, name);
            pinned.push(PinnedVars {
                checkout: pins.resolve(&project, self.own, wish, speculative)?,
                trusted: project.trusted,
                default_branch: pins.default_branch(&project),
            });
        }
        Ok(pinned)
    }
}
