//! Applying definitions on each other: the merge rules of the job table at work.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_record::Value;

use super::Refusal;
use super::graph::{
    Applied, Auth, FrozenJob, FrozenNodeset, FrozenRole, Phase, Playbook, PlaybookSecret, RequiredProject,
};
use super::trace::{Action, AttributeStep, JobTrace, Look};
use crate::assemble::project_problem;
use crate::dialect::playbook_of;
use crate::layout::Layout;
use crate::objects::job::{JobAttribute, JobDefinition, Mode, Setting};
use crate::objects::job_parts::{AttributeValue, PlaybookUse, ProjectFilter, RoleUse};
use crate::objects::nodeset::NodesetShape;
use crate::place::Place;
use crate::problem::{Problem, UNKNOWN};
use crate::schema::Merge;
use crate::validate::nodeset_problem;

/// Merges `from` into `into`, maps key by key at every depth; anything else is replaced.
pub(crate) fn deep_merge(into: &mut BTreeMap<String, Value>, from: &BTreeMap<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (Some(Value::Map(below)), Value::Map(added)) => deep_merge(below, added),
            (Some(slot), _) => *slot = value.clone(),
            (None, _) => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

/// A job in the making.
pub(crate) struct Builder<'a> {
    layout: &'a Layout,
    pub job: FrozenJob,
    pre: Vec<Playbook>,
    run: Vec<Playbook>,
    post: Vec<Playbook>,
    cleanup: Vec<Playbook>,
    roles: Vec<FrozenRole>,
    /// Secrets of ancestors that let others have them.
    inherited: Vec<PlaybookSecret>,
    /// What runs when nobody says what to run.
    implied: Option<(Playbook, Place)>,
    /// Attributes closed by `attribute-control`, and by whom.
    controls: BTreeMap<String, Place>,
    /// Who made it final.
    final_by: Option<Place>,
    /// Who set each attribute last.
    setters: BTreeMap<JobAttribute, Place>,
    /// Where the definition applied last stands.
    pub last_place: Place,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(layout: &'a Layout) -> Self {
        Builder {
            layout,
            job: FrozenJob {
                job_type: "regular".to_owned(),
                voting: true,
                attempts: 3,
                match_on_config_updates: true,
                secret_exposure: "ignore".to_owned(),
                workspace_scheme: "golang".to_owned(),
                workspace_checkout: Some(true),
                ..FrozenJob::default()
            },
            pre: Vec::new(),
            run: Vec::new(),
            post: Vec::new(),
            cleanup: Vec::new(),
            roles: Vec::new(),
            inherited: Vec::new(),
            implied: None,
            controls: BTreeMap::new(),
            final_by: None,
            setters: BTreeMap::new(),
            last_place: Place::default(),
        }
    }

    /// Applies one definition on what is there.
    pub(crate) fn apply(&mut self, definition: &JobDefinition, trace: &mut JobTrace) -> Result<(), Refusal> {
        let first = self.job.inheritance_path.is_empty();
        let renamed = self.job.name != definition.name;
        self.refuse_heir(definition, trace)?;
        if !first {
            self.refuse_closed(definition, trace)?;
        }
        self.standing(definition, first, renamed, trace)?;
        self.add_roles(definition, trace);
        self.pass_secrets(definition, first, trace)?;
        for (attribute, setting) in &definition.settings {
            self.set(definition, *attribute, setting, first, trace)?;
        }
        self.untrusted_secrets(definition, trace);
        self.heir(definition, trace);
        if definition.project_pipeline && definition.place.context.trusted {
            self.job.ignore_allowed_projects = true;
        }
        if first {
            self.job.description.clone_from(&definition.description);
        }
        if !first {
            self.semaphore_conflict(definition)?;
        }
        self.job.name.clone_from(&definition.name);
        self.last_place.clone_from(&definition.place);
        self.job.inheritance_path.push(Applied {
            job: definition.name.clone(),
            place: definition.place.clone(),
            project_pipeline: definition.project_pipeline,
        });
        let what = match definition.project_pipeline {
            true => format!("job {} in the project's list", definition.name),
            false => format!("job {}", definition.name),
        };
        trace.applied.push(Look {
            what,
            place: definition.place.clone(),
            matched: true,
            code: "applied".to_owned(),
            reason: String::new(),
            path: Vec::new(),
        });
        Ok(())
    }

    /// Puts variables of project and templates under those of the job.
    pub(crate) fn project_vars(&mut self, vars: &BTreeMap<String, Value>) {
        let mut below = vars.clone();
        deep_merge(&mut below, &self.job.vars);
        self.job.vars = below;
    }

    /// The job, done.
    pub(crate) fn finish(mut self) -> FrozenJob {
        if let (Some(pre), Some(all)) = (self.job.pre_timeout, self.job.timeout) {
            self.job.pre_timeout = Some(pre.min(all));
        }
        if self.job.ansible_version.is_empty() {
            self.job.ansible_version.clone_from(&self.layout.default_ansible_version);
        }
        if self.job.nodesets.is_empty() {
            self.job.nodesets.push(FrozenNodeset { name: String::new(), shape: NodesetShape::default() });
        }
        self.job.playbooks = [self.pre, self.run, self.post, self.cleanup].concat();
        self.job
    }

    /// Older spellings: a job with credentials that are not to be inherited has no heirs.
    fn refuse_heir(&self, definition: &JobDefinition, trace: &mut JobTrace) -> Result<(), Refusal> {
        let Some(auth) = self.job.auth.as_ref().filter(|auth| !auth.inherit && auth.job != definition.name) else {
            return Ok(());
        };
        let message = format!(
            "Job {} may not inherit from {}, whose `auth` does not say that it may be inherited",
            definition.name, auth.job
        );
        let cure = format!("add `inherit: true` to `auth` of {}, or inherit from another job", auth.job);
        Err(self.refuse(definition, JobAttribute::Auth, "auth-not-inherited", message, cure, trace))
    }

    /// Older spellings: secrets that are inherited, and the playbook a job without `run` runs.
    fn heir(&mut self, definition: &JobDefinition, trace: &mut JobTrace) {
        let context = &definition.place.context;
        if !context.trusted && !self.inherited.is_empty() && definition.has_playbooks() && !self.job.post_review {
            let why = "an untrusted playbook inherits secrets";
            self.job.post_review = true;
            self.rule(definition, JobAttribute::PostReview, "true", why, trace);
        }
        if definition.older && !definition.project_pipeline {
            let path = playbook_of(&definition.name, context.project.is_empty());
            let used = PlaybookUse { path, semaphores: Vec::new(), cleanup: false };
            let made = self.playbooks(definition, Phase::Run, &[used]);
            self.implied = made.into_iter().next().map(|playbook| (playbook, definition.place.clone()));
        }
        let inherits = self.job.auth.as_ref().is_some_and(|auth| auth.inherit && auth.job == definition.name);
        if inherits {
            for used in definition.secrets() {
                self.inherited.retain(|known| known.name != used.name);
                self.inherited.push(PlaybookSecret { name: used.name.clone(), secret: used.secret.clone() });
            }
        }
    }

    /// Older spellings: where nobody names a playbook, a job runs that of its own name.
    pub(crate) fn imply_playbook(&mut self, trace: &mut JobTrace) {
        let Some((playbook, place)) = self.implied.take().filter(|_| self.run.is_empty()) else { return };
        trace.attributes.push(AttributeStep {
            attribute: JobAttribute::Run.row().name.to_owned(),
            place,
            action: Action::Ruled,
            value: format!("[\"{}\"]", playbook.path),
            before: None,
            reason: "an older job without `run` runs the playbook of its name".to_owned(),
        });
        self.run.push(playbook);
    }

    /// Zuul: what `final`, `protected` and `attribute-control` close.
    fn refuse_closed(&mut self, definition: &JobDefinition, trace: &mut JobTrace) -> Result<(), Refusal> {
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
            if let Some(by) = self.final_by.clone() {
                let message = format!(
                    "Unable to modify final job {} attribute {} with {}",
                    self.job.name,
                    attribute.row().name,
                    definition.place
                );
                let cure = format!("{} is final, see {by}: use it as it is, or inherit from another", self.job.name);
                return Err(self.refuse(definition, attribute, "job-final", message, cure, trace));
            }
            let own = &definition.place.context.project;
            if let Some(by) = self.job.protected_by.clone().filter(|by| by != own) {
                let message = format!(
                    "Job {} which is defined in {by} is protected and cannot be inherited from other projects.",
                    self.job.name
                );
                let cure = "only its own project may change it: use it as it is";
                return Err(self.refuse(definition, attribute, "job-protected", message, cure.into(), trace));
            }
        }
        for attribute in definition.settings.keys() {
            let name = attribute.row().name;
            if let Some(by) = self.controls.get(name).cloned() {
                let message = format!(
                    "Unable to modify job {} attribute {name} with {}: it is final",
                    self.job.name, definition.place
                );
                let cure = format!("attribute-control closes it, see {by}");
                return Err(self.refuse(definition, *attribute, "attribute-final", message, cure, trace));
            }
        }
        Ok(())
    }

    fn refuse(
        &self,
        definition: &JobDefinition,
        attribute: JobAttribute,
        code: &str,
        message: String,
        cure: String,
        trace: &mut JobTrace,
    ) -> Refusal {
        let place = definition.place_of(attribute);
        trace.attributes.push(AttributeStep {
            attribute: attribute.row().name.to_owned(),
            place: place.clone(),
            action: Action::Refused,
            value: definition.value(attribute).map_or_else(String::new, |value| value.to_value().to_string()),
            before: self.setters.get(&attribute).cloned(),
            reason: message.clone(),
        });
        Problem::error(code, UNKNOWN, place, message).about(attribute.row().name).cure(cure).into()
    }

    /// `final`, `abstract`, `intermediate` and `protected`.
    fn standing(
        &mut self,
        definition: &JobDefinition,
        first: bool,
        renamed: bool,
        trace: &mut JobTrace,
    ) -> Result<(), Refusal> {
        let said = |attribute| definition.bool(attribute).unwrap_or(false);
        if !first && self.job.intermediate && !said(JobAttribute::Abstract) {
            let message = format!(
                "Intermediate job {} may only inherit to another abstract job, and {} is not",
                self.job.name, definition.name
            );
            let attribute = JobAttribute::Abstract;
            let cure = "add `abstract: true`, or inherit from another job".to_owned();
            return Err(self.refuse(definition, attribute, "job-intermediate", message, cure, trace));
        }
        if said(JobAttribute::Final) {
            self.job.is_final = true;
            self.final_by = Some(definition.place_of(JobAttribute::Final));
        }
        if first || renamed {
            self.job.is_abstract = said(JobAttribute::Abstract);
            self.job.intermediate = said(JobAttribute::Intermediate);
        } else {
            self.job.is_abstract |= said(JobAttribute::Abstract);
            self.job.intermediate |= said(JobAttribute::Intermediate);
        }
        let origin = &mut self.job.protected_by;
        match definition.bool(JobAttribute::Protected) {
            // Zuul: the first definition protects nothing; a later one does even by saying false.
            _ if first => {}
            Some(_) if origin.is_none() => *origin = Some(definition.place.context.project.clone()),
            Some(false) => {
                let message = format!("Unable to reset protected attribute of job {}", self.job.name);
                let attribute = JobAttribute::Protected;
                let cure = "remove `protected: false`".to_owned();
                return Err(self.refuse(definition, attribute, "protected-reset", message, cure, trace));
            }
            _ => {}
        }
        Ok(())
    }

    fn project(&self, name: &str, place: Place, attribute: JobAttribute) -> Result<(String, String, String), Refusal> {
        match self.layout.project(name) {
            Ok(project) => Ok((project.canonical_name.clone(), project.name.clone(), project.connection.clone())),
            Err(error) => Err(project_problem(self.layout, &error, place).about(attribute.row().name).into()),
        }
    }

    /// Zuul: new roles come first; an explicit one replaces its implicit twin in place; a definition
    /// outside a project's list brings its own repository.
    fn add_roles(&mut self, definition: &JobDefinition, trace: &mut JobTrace) {
        let mut added: Vec<FrozenRole> = Vec::new();
        if !definition.project_pipeline
            && let Some(own) = self.layout.projects.get(&definition.place.context.project)
        {
            added.push(role(&own.canonical_name, &own.name, &own.connection, Some(implicit_role(&own.name)), true));
        }
        if let Some(setting) = definition.settings.get(&JobAttribute::Roles)
            && let AttributeValue::Roles(uses) = &setting.value
        {
            for RoleUse { project, name } in uses {
                // Zuul: a role of an unknown project is passed over.
                if let Ok(found) = self.layout.project(project) {
                    added.push(role(&found.canonical_name, &found.name, &found.connection, name.as_deref(), false));
                }
            }
            self.note(definition, JobAttribute::Roles, Merge::Prepend, Mode::Usual, trace);
        }
        let same = |left: &FrozenRole, right: &FrozenRole| {
            left.project == right.project && left.target_name == right.target_name
        };
        let mut roles: Vec<FrozenRole> = Vec::new();
        for old in &self.roles {
            let new = added.iter().find(|new| same(old, new)).filter(|new| old.implicit && !new.implicit);
            roles.push(new.unwrap_or(old).clone());
        }
        for new in added.iter().rev() {
            match roles.iter_mut().find(|old| same(old, new)) {
                Some(old) => old.implicit &= new.implicit,
                None => roles.insert(0, new.clone()),
            }
        }
        self.roles = roles;
    }

    /// Zuul: `pass-to-parent` gives a secret to every playbook collected so far that has none of
    /// that name.
    fn pass_secrets(&mut self, definition: &JobDefinition, first: bool, trace: &mut JobTrace) -> Result<(), Refusal> {
        if definition.has_playbooks() {
            for used in definition.secrets() {
                self.check_secret(definition, &used.secret, "secret-of-playbook-not-found")?;
            }
        }
        for used in definition.secrets().iter().filter(|used| used.pass_to_parent && !first) {
            self.check_secret(definition, &used.secret, "secret-not-found")?;
        }
        let passed: Vec<PlaybookSecret> = definition
            .secrets()
            .iter()
            .filter(|used| used.pass_to_parent)
            .map(|used| PlaybookSecret { name: used.name.clone(), secret: used.secret.clone() })
            .collect();
        if passed.is_empty() {
            return Ok(());
        }
        let mut untrusted = false;
        for playbook in [&mut self.pre, &mut self.run, &mut self.post, &mut self.cleanup].into_iter().flatten() {
            untrusted |= !playbook.trusted;
            for secret in &passed {
                if !playbook.secrets.iter().any(|known| known.name == secret.name) {
                    playbook.secrets.push(secret.clone());
                }
            }
        }
        if untrusted && !self.job.post_review {
            self.job.post_review = true;
            self.rule(
                definition,
                JobAttribute::PostReview,
                "true",
                "a secret is passed to an untrusted playbook",
                trace,
            );
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
        if definition.secrets().is_empty() || definition.place.context.trusted {
            return;
        }
        // `post-review: true` of this very definition has been applied already, and counts.
        if self.job.post_review {
            return;
        }
        let why = "an untrusted job uses secrets";
        self.job.post_review = true;
        self.rule(definition, JobAttribute::PostReview, "true", why, trace);
        let own = self.layout.projects.get(&definition.place.context.project);
        let own = own.map_or_else(|| definition.place.context.project.clone(), |project| project.name.clone());
        self.rule(definition, JobAttribute::AllowedProjects, &format!("[\"{own}\"]"), why, trace);
        self.allow(BTreeSet::from([own]));
    }

    fn allow(&mut self, names: BTreeSet<String>) {
        self.job.allowed_projects = Some(match self.job.allowed_projects.take() {
            Some(known) => known.intersection(&names).cloned().collect(),
            None => names,
        });
    }

    /// A semaphore may be held by the job or by a playbook, not by both.
    fn semaphore_conflict(&self, definition: &JobDefinition) -> Result<(), Refusal> {
        let held = &self.job.semaphores;
        let playbooks = [&self.pre, &self.run, &self.post, &self.cleanup].into_iter().flatten();
        let twice =
            playbooks.flat_map(|playbook| &playbook.semaphores).find(|name| held.iter().any(|h| h.name == **name));
        let Some(name) = twice else { return Ok(()) };
        let message = format!("the job {} and a playbook of it both want the semaphore \"{name}\"", definition.name);
        let problem = Problem::error("semaphore-twice", UNKNOWN, definition.place.clone(), message);
        Err(problem.about("semaphores").cure("let either the job or the playbook hold it").into())
    }

    fn playbooks(&self, definition: &JobDefinition, phase: Phase, uses: &[PlaybookUse]) -> Vec<Playbook> {
        let mut context = (*definition.place.context).clone();
        // A file beside the tenant file lies in no repository: its playbooks do.
        if context.project.is_empty()
            && let Some(home) = self.layout.playbook_home()
        {
            context.project.clone_from(&home.canonical_name);
            context.branch.clone_from(&home.default_branch);
            context.trusted = home.trusted;
        }
        let mut secrets: Vec<PlaybookSecret> = definition
            .secrets()
            .iter()
            .map(|used| PlaybookSecret { name: used.name.clone(), secret: used.secret.clone() })
            .collect();
        for secret in &self.inherited {
            if !secrets.iter().any(|own| own.name == secret.name) {
                secrets.push(secret.clone());
            }
        }
        uses.iter()
            .map(|used| Playbook {
                phase,
                project: context.project.clone(),
                branch: context.branch.clone(),
                path: used.path.clone(),
                trusted: context.trusted,
                cleanup: used.cleanup,
                roles: self.roles.clone(),
                secrets: secrets.clone(),
                semaphores: sorted(&used.semaphores),
                nesting_level: u32::try_from(self.job.inheritance_path.len()).unwrap_or(u32::MAX),
            })
            .collect()
    }

    /// Records what a definition does to an attribute.
    fn note(
        &mut self,
        definition: &JobDefinition,
        attribute: JobAttribute,
        merge: Merge,
        mode: Mode,
        trace: &mut JobTrace,
    ) {
        let place = definition.place_of(attribute);
        let before = self.setters.insert(attribute, place.clone());
        let joins = match (merge, mode) {
            (_, Mode::Override) => false,
            (Merge::ReplaceOrInherit, Mode::Inherit) => true,
            (Merge::Replace | Merge::ReplaceOrInherit | Merge::NotInherited, _) => false,
            _ => true,
        };
        let action = match (&before, joins) {
            (None, _) => Action::Set,
            (Some(_), true) => Action::Merged,
            (Some(_), false) => Action::Replaced,
        };
        let value = definition.value(attribute).map_or_else(String::new, |value| value.to_value().to_string());
        let name = attribute.row().name.to_owned();
        trace.attributes.push(AttributeStep { attribute: name, place, action, value, before, reason: String::new() });
    }

    fn rule(
        &mut self,
        definition: &JobDefinition,
        attribute: JobAttribute,
        value: &str,
        reason: &str,
        trace: &mut JobTrace,
    ) {
        let place = definition.place.clone();
        let before = self.setters.insert(attribute, place.clone());
        trace.attributes.push(AttributeStep {
            attribute: attribute.row().name.to_owned(),
            place,
            action: Action::Ruled,
            value: value.to_owned(),
            before,
            reason: reason.to_owned(),
        });
    }

    /// Applies one attribute by its row in the table.
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
        let place = definition.place_of(attribute);
        if attribute == A::SecretExposure
            && let V::Text(wanted) = value
            && self.setters.contains_key(&attribute)
            && *wanted != self.job.secret_exposure
        {
            let message = format!(
                "the secret-exposure of job {} is {} and cannot be changed to {wanted}",
                self.job.name, self.job.secret_exposure
            );
            let cure = "once set it stays: remove it here".to_owned();
            return Err(self.refuse(definition, attribute, "secret-exposure", message, cure, trace));
        }
        if attribute != A::Roles {
            self.note(definition, attribute, attribute.row().merge, *mode, trace);
        }
        let replace = *mode == Mode::Override;
        let inherit = *mode == Mode::Inherit;
        match (attribute, value) {
            (A::Voting, V::Bool(truth)) => self.job.voting = *truth,
            (A::HoldFollowingChanges, V::Bool(truth)) => self.job.hold_following_changes = *truth,
            (A::MatchOnConfigUpdates, V::Bool(truth)) => self.job.match_on_config_updates = *truth,
            (A::AnsibleSplitStreams, V::Bool(truth)) => self.job.ansible_split_streams = Some(*truth),
            (A::PostReview, V::Bool(truth)) => {
                // Sticky: false is refused where it is read.
                self.job.post_review |= *truth;
            }
            (A::Deduplicate, V::BoolOrAuto(truth)) => self.job.deduplicate = *truth,
            (A::WorkspaceCheckout, V::BoolOrAuto(truth)) => self.job.workspace_checkout = *truth,
            (A::Attempts, V::Int(number)) => self.job.attempts = *number,
            (A::PreTimeout, V::Int(seconds)) => self.job.pre_timeout = Some(*seconds),
            (A::Timeout, V::Int(seconds)) => self.job.timeout = Some(*seconds),
            (A::PostTimeout, V::Int(seconds)) => self.job.post_timeout = Some(*seconds),
            (A::Type, V::Text(text)) => self.job.job_type.clone_from(text),
            (A::SuccessMessage, V::Text(text)) => self.job.success_message = Some(text.clone()),
            (A::FailureMessage, V::Text(text)) => self.job.failure_message = Some(text.clone()),
            (A::SecretExposure, V::Text(text)) => self.job.secret_exposure.clone_from(text),
            (A::AnsibleVersion, V::Text(text)) => self.job.ansible_version.clone_from(text),
            (A::OverrideCheckout, V::Text(text)) => self.job.override_checkout = Some(text.clone()),
            (A::OverrideBranch, V::Text(text)) => self.job.override_branch = Some(text.clone()),
            (A::ImageBuildName, V::Text(text)) => self.job.image_build_name = Some(text.clone()),
            (A::Workspace, V::Text(text)) => self.job.workspace = Some(text.clone()),
            (A::Fingerprint, V::Text(text)) => self.job.fingerprint = Some(text.clone()),
            (A::Host, V::Text(text)) => {
                self.job.host = Some(text.clone());
                self.job.nodesets.clear();
            }
            (A::Auth, V::Map(map)) => {
                let known = self.job.auth.take().unwrap_or_default();
                let swift = map.get("swift").map(|swift| match swift {
                    Value::List(items) => items.clone(),
                    one => vec![one.clone()],
                });
                self.job.auth = Some(Auth {
                    job: definition.name.clone(),
                    inherit: map.get("inherit").and_then(Value::as_bool).unwrap_or(false),
                    swift: swift.unwrap_or(known.swift),
                });
            }
            (A::WorkspaceScheme, V::Text(text)) => self.job.workspace_scheme.clone_from(text),
            (A::Tags, V::Names(names)) => union(&mut self.job.tags, names, replace),
            (A::Provides, V::Names(names)) => union(&mut self.job.provides, names, replace),
            (A::Requires, V::Names(names)) => union(&mut self.job.requires, names, replace),
            (A::PreserveHomePaths, V::Names(names)) => union(&mut self.job.preserve_home_paths, names, false),
            (A::AttributeControl, V::Names(names)) => {
                for name in names.iter().filter(|name| first || closes(definition, name)) {
                    self.controls.entry(name.clone()).or_insert_with(|| place.clone());
                }
            }
            (A::AllowedProjects, V::Names(names)) => {
                let mut short = BTreeSet::new();
                let own = self.layout.projects.get(&definition.place.context.project).map(|own| own.name.as_str());
                for name in names {
                    // Zuul: the names of the first definition count as they stand.
                    let literal = first || own == Some(name.as_str());
                    short.insert(if literal { name.clone() } else { self.project(name, place.clone(), attribute)?.1 });
                }
                self.allow(short);
            }
            (A::Dependencies, V::Dependencies(all)) => {
                if !inherit {
                    self.job.declared_dependencies.clear();
                }
                for dependency in all {
                    if !self.job.declared_dependencies.contains(dependency) {
                        self.job.declared_dependencies.push(dependency.clone());
                    }
                }
            }
            (A::Files, V::Patterns(all)) => extend_patterns(&mut self.job.files, all, inherit),
            (A::IrrelevantFiles, V::Patterns(all)) => extend_patterns(&mut self.job.irrelevant_files, all, inherit),
            (A::FailureOutput, V::Patterns(all)) => {
                if replace {
                    self.job.failure_output.clear();
                }
                self.job.failure_output.extend(all.iter().cloned());
                self.job.failure_output.sort();
                self.job.failure_output.dedup();
            }
            (A::Nodeset, V::NodesetName(name)) => match self.layout.nodesets.get(name) {
                Some(nodeset) => self.set_nodeset(nodeset, place)?,
                None => {
                    let error = crate::layout::NodesetError::Unknown(name.clone());
                    return Err(nodeset_problem(self.layout, &error, place).about("nodeset").into());
                }
            },
            (A::Nodeset, V::Nodeset(nodeset)) => self.set_nodeset(nodeset, place)?,
            (A::PreRun, V::Playbooks(uses)) => self.pre.extend(self.playbooks(definition, Phase::Pre, uses)),
            (A::Run, V::Playbooks(uses)) => self.run = self.playbooks(definition, Phase::Run, uses),
            (A::PostRun, V::Playbooks(uses)) => {
                let added = self.playbooks(definition, Phase::Post, uses);
                self.post.splice(0..0, added);
            }
            (A::CleanupRun, V::Playbooks(uses)) => {
                let added = self.playbooks(definition, Phase::Cleanup, uses);
                self.cleanup.splice(0..0, added);
            }
            (A::Semaphores, V::Semaphores(all)) => {
                for semaphore in all {
                    self.job.semaphores.retain(|known| known.name != semaphore.name);
                    self.job.semaphores.push(semaphore.clone());
                }
                self.job.semaphores.sort();
            }
            (A::RequiredProjects, V::Projects(all)) => {
                if replace {
                    self.job.required_projects.clear();
                }
                for used in all {
                    let (project, name, _) = self.project(&used.name, place.clone(), attribute)?;
                    self.job.required_projects.retain(|known| known.project != project);
                    let (override_checkout, override_branch) =
                        (used.override_checkout.clone(), used.override_branch.clone());
                    let required = RequiredProject { project, name, override_checkout, override_branch };
                    self.job.required_projects.push(required);
                }
                self.job.required_projects.sort_by(|left, right| left.project.cmp(&right.project));
            }
            (A::IncludeProjects | A::ExcludeProjects, V::Filters(all)) => {
                let mut resolved = Vec::new();
                for filter in all {
                    resolved.push(match filter {
                        ProjectFilter::Project(name) => {
                            ProjectFilter::Project(self.project(name, place.clone(), attribute)?.0)
                        }
                        other => other.clone(),
                    });
                }
                let into = match attribute {
                    A::IncludeProjects => &mut self.job.include_projects,
                    _ => &mut self.job.exclude_projects,
                };
                union_list(into, &resolved, replace);
                if let Some(all) = into {
                    all.sort();
                }
            }
            (A::Vars, V::Map(map)) => merge_vars(&mut self.job.vars, map, replace),
            (A::ExtraVars, V::Map(map)) => merge_vars(&mut self.job.extra_vars, map, replace),
            (A::HostVars, V::Map(map)) => merge_vars(&mut self.job.host_vars, map, replace),
            (A::GroupVars, V::Map(map)) => merge_vars(&mut self.job.group_vars, map, replace),
            (A::IncludeVars, V::IncludeVars(all)) => {
                if replace {
                    self.job.include_vars.clear();
                }
                for file in all {
                    // A file without a project lies in that of the definition.
                    let mut file = file.clone();
                    file.project = match &file.project {
                        _ if file.zuul_project => None,
                        Some(name) => Some(self.project(name, place.clone(), attribute)?.0),
                        None => Some(definition.place.context.project.clone()),
                    };
                    if !self.job.include_vars.contains(&file) {
                        self.job.include_vars.push(file);
                    }
                }
            }
            // Read by `standing`, `add_roles` and `playbooks`; a value of another type cannot be
            // there, because the reader makes it by the same table.
            _ => {}
        }
        Ok(())
    }

    fn set_nodeset(&mut self, nodeset: &crate::objects::Nodeset, place: Place) -> Result<(), Refusal> {
        let flat = self.layout.flatten_nodeset(nodeset);
        let flat = flat.map_err(|error| nodeset_problem(self.layout, &error, place).about("nodeset"))?;
        self.job.host = None;
        self.job.nodesets = flat.into_iter().map(|(name, shape)| FrozenNodeset { name, shape }).collect();
        Ok(())
    }
}

fn role(project: &str, name: &str, connection: &str, target: Option<&str>, implicit: bool) -> FrozenRole {
    let last = name.rsplit('/').next().unwrap_or(name);
    FrozenRole {
        project: project.to_owned(),
        connection: connection.to_owned(),
        target_name: target.unwrap_or(last).to_owned(),
        implicit,
    }
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

fn sorted(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort();
    names
}

fn union(into: &mut BTreeSet<String>, names: &[String], replace: bool) {
    if replace {
        into.clear();
    }
    into.extend(names.iter().cloned());
}

fn union_list<T: Clone + PartialEq>(into: &mut Option<Vec<T>>, added: &[T], replace: bool) {
    let mut all = if replace { Vec::new() } else { into.take().unwrap_or_default() };
    for one in added {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
    *into = Some(all);
}

fn extend_patterns(into: &mut Option<Vec<crate::regexes::Pattern>>, added: &[crate::regexes::Pattern], inherit: bool) {
    union_list(into, added, !inherit);
}

fn merge_vars(into: &mut BTreeMap<String, Value>, from: &BTreeMap<String, Value>, replace: bool) {
    if replace {
        into.clear();
    }
    deep_merge(into, from);
}
