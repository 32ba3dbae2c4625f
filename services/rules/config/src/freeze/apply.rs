//! Applying definitions on each other: what the layout says to it, and what is refused.
//!
//! What is decided here is written down as steps of the trace; [`fold`](super::fold) takes them.

use std::collections::{BTreeMap, BTreeSet};

use super::Refusal;
use super::fold::Making;
use super::graph::{FrozenJob, FrozenNodeset, FrozenRole, Phase, Playbook, RequiredProject};
use super::trace::{Action, Definitions, Effect, JobTrace, ProjectVars, Step};
use crate::assemble::project_problem;
use crate::dialect::playbook_of;
use crate::layout::{Layout, LayoutProject};
use crate::objects::job::{JobAttribute, JobDefinition, Mode, Parent, Setting};
use crate::objects::job_parts::{AttributeValue, PlaybookUse, ProjectFilter, RoleUse};
use crate::objects::nodeset::NodesetContent;
use crate::place::{Place, SourceContext};
use crate::problem::{Problem, UNKNOWN};
use crate::schema::Merge;
use crate::shared::Shared;
use crate::validate::nodeset_problem;

/// A job in the making, with what decides about the next definition.
pub(crate) struct Builder<'a> {
    layout: &'a Layout,
    making: Making,
    /// Attributes closed by `attribute-control`, and by whom.
    controls: BTreeMap<String, Place>,
    /// Who made it final.
    final_by: Option<Place>,
    /// Attributes somebody has set, a bit for each.
    known: u64,
    /// What runs when nobody says what to run.
    implied: Option<(Shared<Playbook>, Place)>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(layout: &'a Layout) -> Self {
        Builder { layout, making: Making::new(), controls: BTreeMap::new(), final_by: None, known: 0, implied: None }
    }

    /// The job as far as it is.
    pub(crate) fn job(&self) -> &FrozenJob {
        &self.making.job
    }

    /// Applies one definition on what is there.
    pub(crate) fn apply(
        &mut self,
        shared: &Shared<JobDefinition>,
        definitions: &mut Definitions,
        trace: &mut JobTrace,
    ) -> Result<(), Refusal> {
        let definition: &JobDefinition = shared;
        let first = self.job().inheritance_path.is_empty();
        let number = definitions.number(shared);
        let begun = Step::Begin { definition: number, home: self.home(definition) };
        if let Err((step, refusal)) = self.refuse_heir(definition) {
            trace.steps.extend([begun, step]);
            return Err(refusal);
        }
        if !first {
            // The refused step is told as that of the definition which is refused.
            let refused = self.refuse_closed(definition).and_then(|()| self.refuse_standing(definition));
            if let Err((step, refusal)) = refused {
                trace.steps.extend([begun, step]);
                return Err(refusal);
            }
        }
        if definition.bool(JobAttribute::Final) == Some(true) {
            self.final_by = Some(definition.place_of(JobAttribute::Final));
        }
        self.step(begun, definition, trace);
        self.add_roles(definition, trace);
        self.pass_secrets(definition, first, trace)?;
        for (attribute, setting) in &definition.settings {
            self.set(definition, *attribute, setting, first, trace)?;
        }
        self.untrusted_secrets(definition, trace);
        self.heir(definition, trace);
        if !first {
            self.semaphore_conflict(definition)?;
        }
        trace.place.clone_from(&definition.place);
        Ok(())
    }

    /// Writes a step down and takes it.
    fn step(&mut self, step: Step, definition: &JobDefinition, trace: &mut JobTrace) {
        self.making.take(&step, Some(definition), &[]);
        trace.steps.push(step);
    }

    /// Puts variables of project and templates under those of the job.
    pub(crate) fn project_vars(&mut self, vars: &[ProjectVars], trace: &mut JobTrace) {
        if vars.iter().any(|one| !one.vars.is_empty()) {
            self.making.take(&Step::ProjectVars, None, vars);
            trace.steps.push(Step::ProjectVars);
        }
    }

    /// The job, done.
    pub(crate) fn finish(mut self, trace: &mut JobTrace) -> FrozenJob {
        if self.making.job.ansible_version.is_empty() {
            let step = Step::Rule {
                attribute: JobAttribute::AnsibleVersion,
                place: None,
                effect: Effect::Ansible(self.layout.default_ansible_version.clone()),
                reason: String::new(),
            };
            self.making.take(&step, None, &[]);
            trace.steps.push(step);
        }
        self.making.finish()
    }

    /// A file beside the tenant file lies in no repository: its playbooks do.
    fn home(&self, definition: &JobDefinition) -> Option<Shared<SourceContext>> {
        let context = &definition.place.context;
        let home = self.layout.playbook_home().filter(|_| context.project.is_empty())?;
        Some(Shared::new(SourceContext {
            project: home.canonical_name.clone(),
            branch: home.default_branch.clone(),
            trusted: home.trusted,
            path: context.path.clone(),
        }))
    }

    /// Older spellings: a job with credentials that are not to be inherited has no heirs.
    fn refuse_heir(&self, definition: &JobDefinition) -> Result<(), (Step, Refusal)> {
        let Some(auth) = self.job().auth.as_ref().filter(|auth| !auth.inherit && auth.job != definition.name) else {
            return Ok(());
        };
        let message = format!(
            "Job {} may not inherit from {}, whose `auth` does not say that it may be inherited",
            definition.name, auth.job
        );
        let cure = format!("add `inherit: true` to `auth` of {}, or inherit from another job", auth.job);
        Err(refused(definition, JobAttribute::Auth, "auth-not-inherited", message, cure))
    }

    /// Older spellings: secrets that are inherited, and the playbook a job without `run` runs.
    fn heir(&mut self, definition: &JobDefinition, trace: &mut JobTrace) {
        let context = &definition.place.context;
        let inherits = self.making.inherits_secrets() && definition.has_playbooks();
        if inherits && !context.trusted && !self.job().post_review {
            let why = "an untrusted playbook inherits secrets";
            self.rule(definition, JobAttribute::PostReview, Effect::PostReview, why, trace);
        }
        if definition.older && !definition.project_pipeline {
            let path = playbook_of(&definition.name, context.project.is_empty());
            let used = PlaybookUse { path, semaphores: Vec::new(), cleanup: false };
            let made = self.making.playbooks_of(definition, Phase::Run, &[used]);
            self.implied = made.into_iter().next().map(|one| (Shared::new(one), definition.place.clone()));
        }
        let lets = self.job().auth.as_ref().is_some_and(|auth| auth.inherit && auth.job == definition.name);
        if lets && !definition.secrets().is_empty() {
            let why = "`auth` lets jobs that inherit from it have them";
            self.rule(definition, JobAttribute::Secrets, Effect::InheritSecrets, why, trace);
        }
    }

    /// Older spellings: where nobody names a playbook, a job runs that of its own name.
    pub(crate) fn imply_playbook(&mut self, trace: &mut JobTrace) {
        if self.making.has_run() {
            return;
        }
        let Some((playbook, place)) = self.implied.take() else { return };
        let step = Step::Rule {
            attribute: JobAttribute::Run,
            place: Some(place),
            effect: Effect::Playbook(playbook),
            reason: "an older job without `run` runs the playbook of its name".to_owned(),
        };
        self.making.take(&step, None, &[]);
        trace.steps.push(step);
    }

    /// Zuul: what `final`, `protected` and `attribute-control` close.
    fn refuse_closed(&self, definition: &JobDefinition) -> Result<(), (Step, Refusal)> {
        let job = self.job();
        // An entry of a list may name a parent, which is not looked at any more and yet a change of the job.
        let names_parent = definition.project_pipeline && definition.parent != Parent::Default;
        if let Some(by) = self.final_by.as_ref().filter(|_| names_parent) {
            let message = format!("Unable to modify final job {} attribute parent with {}", job.name, definition.place);
            let cure = format!("{} is final, see {by}: remove `parent`, or use another job", job.name);
            return Err(refused_parent(definition, "job-final", message, cure));
        }
        let own = &definition.place.context.project;
        if let Some(by) = job.protected_by.as_ref().filter(|by| names_parent && *by != own) {
            let message = format!(
                "Job {} which is defined in {by} is protected and cannot be inherited from other projects.",
                job.name
            );
            let cure = "only its own project may change it: remove `parent`".to_owned();
            return Err(refused_parent(definition, "job-protected", message, cure));
        }
        if job.is_final || job.protected_by.is_some() {
            // A definition that is no list entry always brings its repository as a role.
            let roles = (!definition.project_pipeline).then_some(JobAttribute::Roles);
            let standing =
                [JobAttribute::Final, JobAttribute::Protected, JobAttribute::Abstract, JobAttribute::Intermediate];
            let executing = definition
                .settings
                .iter()
                // Zuul: variables that are there but empty set nothing.
                .filter(|(_, setting)| !matches!(&setting.value, AttributeValue::Map(map) if map.is_empty()))
                .map(|(attribute, _)| *attribute)
                .chain(roles)
                .find(|attribute| attribute.row().execution && !standing.contains(attribute));
            if let Some(attribute) = executing {
                if let Some(by) = &self.final_by {
                    let message = format!(
                        "Unable to modify final job {} attribute {} with {}",
                        job.name,
                        attribute.row().name,
                        definition.place
                    );
                    let cure = format!("{} is final, see {by}: use it as it is, or inherit from another", job.name);
                    return Err(refused(definition, attribute, "job-final", message, cure));
                }
                let own = &definition.place.context.project;
                if let Some(by) = job.protected_by.as_ref().filter(|by| *by != own) {
                    let message = format!(
                        "Job {} which is defined in {by} is protected and cannot be inherited from other projects.",
                        job.name
                    );
                    let cure = "only its own project may change it: use it as it is";
                    return Err(refused(definition, attribute, "job-protected", message, cure.into()));
                }
            }
        }
        if self.controls.is_empty() {
            return Ok(());
        }
        for attribute in definition.settings.keys() {
            let name = attribute.row().name;
            if let Some(by) = self.controls.get(name) {
                let message = format!(
                    "Unable to modify job {} attribute {name} with {}: it is final",
                    job.name, definition.place
                );
                let cure = format!("attribute-control closes it, see {by}");
                return Err(refused(definition, *attribute, "attribute-final", message, cure));
            }
        }
        Ok(())
    }

    /// What `intermediate` and `protected` refuse.
    fn refuse_standing(&self, definition: &JobDefinition) -> Result<(), (Step, Refusal)> {
        let job = self.job();
        if job.intermediate && definition.bool(JobAttribute::Abstract) != Some(true) {
            let message = format!(
                "Intermediate job {} may only inherit to another abstract job, and {} is not",
                job.name, definition.name
            );
            let cure = "add `abstract: true`, or inherit from another job".to_owned();
            return Err(refused(definition, JobAttribute::Abstract, "job-intermediate", message, cure));
        }
        if job.protected_by.is_some() && definition.bool(JobAttribute::Protected) == Some(false) {
            let message = format!("Unable to reset protected attribute of job {}", job.name);
            let cure = "remove `protected: false`".to_owned();
            return Err(refused(definition, JobAttribute::Protected, "protected-reset", message, cure));
        }
        Ok(())
    }

    fn project(&self, name: &str, place: &Place, attribute: JobAttribute) -> Result<&'a LayoutProject, Refusal> {
        let layout = self.layout;
        layout
            .project(name)
            .map_err(|error| project_problem(layout, &error, place.clone()).about(attribute.row().name).into())
    }

    /// The roles a definition brings: a definition outside a project's list brings its own repository.
    fn add_roles(&mut self, definition: &JobDefinition, trace: &mut JobTrace) {
        let mut added: Vec<Shared<FrozenRole>> = Vec::new();
        if !definition.project_pipeline
            && let Some(own) = self.layout.projects.get(&definition.place.context.project)
        {
            let target = implicit_role(&own.name);
            // Most definitions of a chain stand in one repository, whose role is there already.
            if !self.making.has_role(&own.canonical_name, target) {
                added.push(role(own, target, true));
            }
        }
        let mut action = Action::Ruled;
        if let Some(setting) = definition.settings.get(&JobAttribute::Roles)
            && let AttributeValue::Roles(uses) = &setting.value
        {
            for RoleUse { project, name } in uses {
                // Zuul: a role of an unknown project is passed over.
                if let Ok(found) = self.layout.project(project) {
                    let last = found.name.rsplit('/').next().unwrap_or(&found.name);
                    added.push(role(found, name.as_deref().unwrap_or(last), false));
                }
            }
            action = self.action(JobAttribute::Roles, Merge::Prepend, Mode::Usual);
        }
        if added.is_empty() && action == Action::Ruled {
            return;
        }
        let effect = Effect::Roles(added);
        self.step(
            Step::Attribute { attribute: JobAttribute::Roles, action, effect, reason: String::new() },
            definition,
            trace,
        );
    }

    fn pass_secrets(&mut self, definition: &JobDefinition, first: bool, trace: &mut JobTrace) -> Result<(), Refusal> {
        let secrets = definition.secrets();
        if secrets.is_empty() {
            return Ok(());
        }
        if definition.has_playbooks() {
            for used in secrets {
                self.check_secret(definition, &used.secret, "secret-of-playbook-not-found")?;
            }
        }
        for used in secrets.iter().filter(|used| used.pass_to_parent && !first) {
            self.check_secret(definition, &used.secret, "secret-not-found")?;
        }
        if !secrets.iter().any(|used| used.pass_to_parent) || self.making.playbooks().next().is_none() {
            return Ok(());
        }
        let untrusted = self.making.playbooks().any(|playbook| !playbook.trusted);
        let why = "they are passed to the playbooks of its parents";
        self.rule(definition, JobAttribute::Secrets, Effect::PassSecrets, why, trace);
        if untrusted && !self.job().post_review {
            let why = "a secret is passed to an untrusted playbook";
            self.rule(definition, JobAttribute::PostReview, Effect::PostReview, why, trace);
        }
        Ok(())
    }

    fn check_secret(&self, definition: &JobDefinition, name: &str, missing: &str) -> Result<(), Refusal> {
        let place = definition.place_of(JobAttribute::Secrets);
        let problem = match self.layout.secrets.get(name) {
            // Zuul: that of another project is told when loading, and cannot be decrypted when the
            // playbook runs, because that is done with the key of the playbook's project.
            Some(_) => return Ok(()),
            None => Problem::error(missing, UNKNOWN, place, format!("the secret \"{name}\" was not found"))
                .cure("define it in the same project"),
        };
        Err(problem.about("secrets").into())
    }

    /// Zuul: a job of an untrusted project that uses secrets runs after review only, and for its own
    /// project only, unless it was for after review anyway.
    fn untrusted_secrets(&mut self, definition: &JobDefinition, trace: &mut JobTrace) {
        // `post-review: true` of this very definition has been applied already, and counts.
        if definition.secrets().is_empty() || definition.place.context.trusted || self.job().post_review {
            return;
        }
        let why = "an untrusted job uses secrets";
        self.rule(definition, JobAttribute::PostReview, Effect::PostReview, why, trace);
        let own = self.layout.projects.get(&definition.place.context.project);
        let own = own.map_or_else(|| definition.place.context.project.clone(), |project| project.name.clone());
        self.rule(definition, JobAttribute::AllowedProjects, Effect::Allow(vec![own]), why, trace);
    }

    /// A semaphore may be held by the job or by a playbook, not by both.
    fn semaphore_conflict(&self, definition: &JobDefinition) -> Result<(), Refusal> {
        let held = &self.job().semaphores;
        let twice = self
            .making
            .playbooks()
            .flat_map(|playbook| &playbook.semaphores)
            .find(|name| held.iter().any(|h| h.name == **name));
        let Some(name) = twice else { return Ok(()) };
        let message = format!("the job {} and a playbook of it both want the semaphore \"{name}\"", definition.name);
        let problem = Problem::error("semaphore-twice", UNKNOWN, definition.place.clone(), message);
        Err(problem.about("semaphores").cure("let either the job or the playbook hold it").into())
    }

    fn is_known(&self, attribute: JobAttribute) -> bool {
        self.known & bit(attribute) != 0
    }

    /// What setting an attribute does to it; from now on it is set.
    fn action(&mut self, attribute: JobAttribute, merge: Merge, mode: Mode) -> Action {
        let known = self.is_known(attribute);
        self.known |= bit(attribute);
        let joins = match (merge, mode) {
            (_, Mode::Override) => false,
            (Merge::ReplaceOrInherit, Mode::Inherit) => true,
            (Merge::Replace | Merge::ReplaceOrInherit | Merge::NotInherited, _) => false,
            _ => true,
        };
        match (known, joins) {
            // What is not inherited has nothing before it.
            _ if merge == Merge::NotInherited => Action::Set,
            (false, _) => Action::Set,
            (true, true) => Action::Merged,
            (true, false) => Action::Replaced,
        }
    }

    fn rule(
        &mut self,
        definition: &JobDefinition,
        attribute: JobAttribute,
        effect: Effect,
        reason: &str,
        trace: &mut JobTrace,
    ) {
        self.known |= bit(attribute);
        let step = Step::Attribute { attribute, action: Action::Ruled, effect, reason: reason.to_owned() };
        self.step(step, definition, trace);
    }

    /// Decides about one attribute, and writes the step.
    fn set(
        &mut self,
        definition: &JobDefinition,
        attribute: JobAttribute,
        setting: &Setting,
        first: bool,
        trace: &mut JobTrace,
    ) -> Result<(), Refusal> {
        use AttributeValue as V;
        use JobAttribute as A;
        let Setting { value, mode, .. } = setting;
        let place = || definition.place_of(attribute);
        let effect = match (attribute, value) {
            // Told by `add_roles`.
            (A::Roles, _) => return Ok(()),
            (A::SecretExposure, V::Text(wanted))
                if self.is_known(attribute) && *wanted != self.job().secret_exposure =>
            {
                let message = format!(
                    "the secret-exposure of job {} is {} and cannot be changed to {wanted}",
                    self.job().name,
                    self.job().secret_exposure
                );
                let cure = "once set it stays: remove it here".to_owned();
                let (step, refusal) = refused(definition, attribute, "secret-exposure", message, cure);
                trace.steps.push(step);
                return Err(refusal);
            }
            (A::AttributeControl, V::Names(names)) => {
                for name in names.iter().filter(|name| first || closes(definition, name)) {
                    self.controls.entry(name.clone()).or_insert_with(place);
                }
                Effect::Nothing
            }
            (A::AllowedProjects, V::Names(names)) => {
                let mut short = BTreeSet::new();
                let own = self.layout.projects.get(&definition.place.context.project).map(|own| own.name.as_str());
                for name in names {
                    // Zuul: the names of the first definition count as they stand.
                    let literal = first || own == Some(name.as_str());
                    let name = if literal { name } else { &self.project(name, &place(), attribute)?.name };
                    short.insert(name.clone());
                }
                Effect::Allow(short.into_iter().collect())
            }
            (A::Nodeset, V::NodesetName(name)) => match self.layout.nodesets.get(name) {
                Some(nodeset) => self.nodesets(nodeset, place())?,
                None => {
                    let error = crate::layout::NodesetError::Unknown(name.clone());
                    return Err(nodeset_problem(self.layout, &error, place()).about("nodeset").into());
                }
            },
            (A::Nodeset, V::Nodeset(nodeset)) => self.nodesets(nodeset, place())?,
            (A::RequiredProjects, V::Projects(all)) => {
                let mut resolved = Vec::with_capacity(all.len());
                let place = place();
                for used in all {
                    let found = self.project(&used.name, &place, attribute)?;
                    resolved.push(Shared::new(RequiredProject {
                        project: found.canonical_name.clone(),
                        name: found.name.clone(),
                        override_checkout: used.override_checkout.clone(),
                        override_branch: used.override_branch.clone(),
                    }));
                }
                Effect::Projects(resolved)
            }
            (A::IncludeProjects | A::ExcludeProjects, V::Filters(all)) => {
                let mut resolved = Vec::with_capacity(all.len());
                for filter in all {
                    resolved.push(match filter {
                        ProjectFilter::Project(name) => {
                            ProjectFilter::Project(self.project(name, &place(), attribute)?.canonical_name.clone())
                        }
                        other => other.clone(),
                    });
                }
                Effect::Filters(resolved)
            }
            (A::IncludeVars, V::IncludeVars(all)) => {
                let mut resolved = Vec::with_capacity(all.len());
                for file in all {
                    // A file without a project lies in that of the definition.
                    let mut file = file.clone();
                    file.project = match &file.project {
                        _ if file.zuul_project => None,
                        Some(name) => Some(self.project(name, &place(), attribute)?.canonical_name.clone()),
                        None => Some(definition.place.context.project.clone()),
                    };
                    resolved.push(file);
                }
                Effect::IncludeVars(resolved)
            }
            _ => Effect::AsWritten,
        };
        let action = self.action(attribute, attribute.row().merge, *mode);
        self.step(Step::Attribute { attribute, action, effect, reason: String::new() }, definition, trace);
        Ok(())
    }

    fn nodesets(&self, nodeset: &crate::objects::Nodeset, place: Place) -> Result<Effect, Refusal> {
        let frozen = |name: String, shape| FrozenNodeset { name, shape };
        if let NodesetContent::Shape(shape) = &nodeset.content {
            return Ok(Effect::Nodesets(Shared::new(vec![frozen(nodeset.name.clone(), shape.clone())])));
        }
        let flat = self.layout.flatten_nodeset(nodeset);
        let flat = flat.map_err(|error| nodeset_problem(self.layout, &error, place).about("nodeset"))?;
        Ok(Effect::Nodesets(Shared::new(flat.into_iter().map(|(name, shape)| frozen(name, shape)).collect())))
    }
}

/// The bit of an attribute; there are fewer than 64.
fn bit(attribute: JobAttribute) -> u64 {
    1_u64.checked_shl(attribute as u32).unwrap_or(0)
}

fn refused(
    definition: &JobDefinition,
    attribute: JobAttribute,
    code: &str,
    message: String,
    cure: String,
) -> (Step, Refusal) {
    let step = Step::Attribute { attribute, action: Action::Refused, effect: Effect::Nothing, reason: message.clone() };
    let place = definition.place_of(attribute);
    (step, Problem::error(code, UNKNOWN, place, message).about(attribute.row().name).cure(cure).into())
}

/// The same of its parent, which stands among what names a definition; the step is told of what closes the job.
fn refused_parent(definition: &JobDefinition, code: &str, message: String, cure: String) -> (Step, Refusal) {
    let (step, refusal) = refused(definition, JobAttribute::Final, code, message, cure);
    (step, (*refusal.0).about("parent").into())
}

fn role(project: &LayoutProject, target: &str, implicit: bool) -> Shared<FrozenRole> {
    Shared::new(FrozenRole {
        project: project.canonical_name.clone(),
        connection: project.connection.clone(),
        target_name: target.to_owned(),
        implicit,
    })
}

/// Zuul: the last part of a project's name, without the prefixes repositories of roles have.
fn implicit_role(project: &str) -> &str {
    let last = project.rsplit('/').next().unwrap_or(project);
    let mut rest = last;
    for prefix in ["ansible", "role"] {
        while let Some(after) = rest.strip_prefix(prefix) {
            rest = after.trim_start_matches(['-', '_', '.', '+']);
        }
    }
    if rest.is_empty() { last } else { rest }
}

/// Whether a later definition that wants to close an attribute does. Zuul: attributes of execution
/// are closed only by a definition that sets them, too.
fn closes(definition: &JobDefinition, attribute: &str) -> bool {
    let Some(closed) = JobAttribute::ALL.iter().find(|known| known.row().name == attribute) else { return false };
    let always = matches!(closed.row().merge, Merge::Deep) || !closed.row().execution;
    always || definition.settings.contains_key(closed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attribute_has_a_bit_of_its_own() {
        let all: BTreeSet<u64> = JobAttribute::ALL.iter().map(|attribute| bit(*attribute)).collect();
        assert_eq!(all.len(), JobAttribute::ALL.len());
        assert!(!all.contains(&0));
    }
}
