//! Taking the steps of a trace: from nothing to a frozen job.
//!
//! Freezing decides what the steps are and has each taken here at once; [`job`] takes them from a
//! trace alone. There is no other way to change a job in the making.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_record::Value;

use super::graph::{Applied, Auth, FrozenJob, FrozenNodeset, FrozenRole, Phase, Playbook, PlaybookSecret};
use super::trace::{Effect, FreezeTrace, JobFate, JobTrace, ProjectVars, Step};
use crate::objects::job::{JobAttribute, JobDefinition, Mode, Setting};
use crate::objects::job_parts::{AttributeValue, Dependency, PlaybookUse};
use crate::objects::nodeset::NodesetShape;
use crate::place::SourceContext;
use crate::regexes::Pattern;
use crate::shared::Shared;

/// The frozen job a trace tells of; none when it does not run, or is not there.
pub fn job(trace: &FreezeTrace, name: &str) -> Option<FrozenJob> {
    let told = trace.job(name).filter(|told| told.fate == JobFate::Runs)?;
    Some(steps(trace, told))
}

/// What the steps of one job come to, whether it runs or not: that is how far it came.
pub(crate) fn steps(trace: &FreezeTrace, told: &JobTrace) -> FrozenJob {
    let mut making = Making::new();
    let mut at: Option<&Shared<JobDefinition>> = None;
    for step in &told.steps {
        if let Step::Begin { definition, .. } = step {
            at = trace.definition(*definition);
        }
        making.take(step, at.map(|at| &**at), &trace.vars);
    }
    making.finish()
}

/// A job in the making.
#[derive(Debug)]
pub(crate) struct Making {
    pub job: FrozenJob,
    /// Whether a definition has begun before the present one.
    begun: u32,
    pre: Vec<Playbook>,
    run: Vec<Playbook>,
    post: Vec<Playbook>,
    cleanup: Vec<Playbook>,
    /// Roles as accumulated so far; all playbooks of one definition share them.
    roles: Shared<Vec<Shared<FrozenRole>>>,
    /// Where the playbooks of the definition begun last lie.
    home: Shared<SourceContext>,
    /// Secrets of ancestors that let others have them.
    inherited: Vec<PlaybookSecret>,
    waits: Vec<Effect>,
}

impl Making {
    pub(crate) fn new() -> Self {
        Making {
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
            begun: 0,
            pre: Vec::new(),
            run: Vec::new(),
            post: Vec::new(),
            cleanup: Vec::new(),
            roles: Shared::default(),
            home: Shared::default(),
            inherited: Vec::new(),
            waits: Vec::new(),
        }
    }

    /// Whether there are secrets of ancestors that let others have them.
    pub(crate) fn inherits_secrets(&self) -> bool {
        !self.inherited.is_empty()
    }

    /// Whether there is something to run.
    pub(crate) fn has_run(&self) -> bool {
        !self.run.is_empty()
    }

    /// Whether the roles of a repository are looked for already.
    pub(crate) fn has_role(&self, project: &str, target: &str) -> bool {
        self.roles.iter().any(|role| role.project == project && role.target_name == target)
    }

    /// All playbooks so far.
    pub(crate) fn playbooks(&self) -> impl Iterator<Item = &Playbook> {
        [&self.pre, &self.run, &self.post, &self.cleanup].into_iter().flatten()
    }

    /// Takes a step; `at` is the definition begun last.
    pub(crate) fn take(&mut self, step: &Step, at: Option<&JobDefinition>, vars: &[ProjectVars]) {
        match (step, at) {
            (Step::Begin { home, .. }, Some(definition)) => {
                self.home = home.as_ref().unwrap_or(&definition.place.context).clone();
                self.begin(definition);
            }
            (Step::Attribute { attribute, effect, .. }, Some(definition)) => {
                self.effect(*attribute, effect, Some(definition));
            }
            (Step::ProjectVars, _) => self.project_vars(vars),
            (Step::Rule { attribute, effect, .. }, _) => self.effect(*attribute, effect, None),
            // A step of a definition that is not there: no trace of ours has it.
            (Step::Begin { .. } | Step::Attribute { .. }, None) => {}
        }
    }

    /// `final`, `abstract`, `intermediate` and `protected`, the description, the path.
    fn begin(&mut self, definition: &JobDefinition) {
        let job = &mut self.job;
        let said = |attribute| definition.bool(attribute).unwrap_or(false);
        let first = self.begun == 0;
        job.is_final |= said(JobAttribute::Final);
        if first || job.name != definition.name {
            job.is_abstract = said(JobAttribute::Abstract);
            job.intermediate = said(JobAttribute::Intermediate);
        } else {
            job.is_abstract |= said(JobAttribute::Abstract);
            job.intermediate |= said(JobAttribute::Intermediate);
        }
        // Zuul: the first definition protects nothing; a later one does even by saying false.
        if !first && job.protected_by.is_none() && definition.bool(JobAttribute::Protected).is_some() {
            job.protected_by = Some(definition.place.context.project.clone());
        }
        if first {
            job.description.clone_from(&definition.description);
        }
        job.ignore_allowed_projects |= definition.project_pipeline && definition.place.context.trusted;
        job.name.clone_from(&definition.name);
        job.inheritance_path.push(Applied {
            job: definition.name.clone(),
            place: definition.place.clone(),
            project_pipeline: definition.project_pipeline,
        });
        self.begun = self.begun.saturating_add(1);
    }

    fn project_vars(&mut self, all: &[ProjectVars]) {
        if all.is_empty() {
            return;
        }
        let mut below = BTreeMap::new();
        for one in all {
            deep_merge(&mut below, &one.vars);
        }
        deep_merge(&mut below, &self.job.vars);
        self.job.vars = below;
    }

    fn effect(&mut self, attribute: JobAttribute, effect: &Effect, at: Option<&JobDefinition>) {
        let mode = at.and_then(|definition| definition.settings.get(&attribute)).map_or(Mode::Usual, |set| set.mode);
        let replace = mode == Mode::Override;
        match effect {
            Effect::Nothing => {}
            Effect::AsWritten => {
                if let Some(definition) = at
                    && let Some(setting) = definition.settings.get(&attribute)
                {
                    self.set(definition, attribute, setting);
                }
            }
            Effect::Roles(added) => self.add_roles(added),
            Effect::PassSecrets => self.pass_secrets(at.map_or(&[], |definition| definition.secrets())),
            Effect::InheritSecrets => {
                for used in at.map_or(&[][..], |definition| definition.secrets()) {
                    self.inherited.retain(|known| known.name != used.name);
                    self.inherited.push(PlaybookSecret { name: used.name.clone(), secret: used.secret.clone() });
                }
            }
            Effect::Playbook(playbook) => self.run.push((**playbook).clone()),
            Effect::PostReview => self.job.post_review = true,
            Effect::Projects(all) => {
                if replace {
                    self.job.required_projects.clear();
                }
                for required in all {
                    self.job.required_projects.retain(|known| known.project != required.project);
                    self.job.required_projects.push(required.clone());
                }
                self.job.required_projects.sort_by(|left, right| left.project.cmp(&right.project));
            }
            Effect::Filters(all) => {
                let into = match attribute {
                    JobAttribute::IncludeProjects => &mut self.job.include_projects,
                    _ => &mut self.job.exclude_projects,
                };
                union_list(into, all, replace);
                if let Some(all) = into {
                    all.sort();
                }
            }
            Effect::Allow(names) => {
                let names: BTreeSet<String> = names.iter().cloned().collect();
                self.job.allowed_projects = Some(match self.job.allowed_projects.take() {
                    Some(known) => known.intersection(&names).cloned().collect(),
                    None => names,
                });
            }
            Effect::IncludeVars(all) => {
                if replace {
                    self.job.include_vars.clear();
                }
                for file in all {
                    if !self.job.include_vars.contains(file) {
                        self.job.include_vars.push(file.clone());
                    }
                }
            }
            Effect::Nodesets(nodesets) => {
                self.job.host = None;
                self.job.nodesets = nodesets.clone();
            }
            Effect::Ansible(version) => self.job.ansible_version.clone_from(version),
            Effect::WaitFor(_) | Effect::Forget(_) => self.waits.push(effect.clone()),
        }
    }

    /// A value as it was written.
    fn set(&mut self, definition: &JobDefinition, attribute: JobAttribute, setting: &Setting) {
        use AttributeValue as V;
        use JobAttribute as A;
        let Setting { value, mode, .. } = setting;
        let replace = *mode == Mode::Override;
        let inherit = *mode == Mode::Inherit;
        let job = &mut self.job;
        match (attribute, value) {
            (A::Voting, V::Bool(truth)) => job.voting = *truth,
            (A::HoldFollowingChanges, V::Bool(truth)) => job.hold_following_changes = *truth,
            (A::MatchOnConfigUpdates, V::Bool(truth)) => job.match_on_config_updates = *truth,
            (A::AnsibleSplitStreams, V::Bool(truth)) => job.ansible_split_streams = Some(*truth),
            // Sticky: false is refused where it is read.
            (A::PostReview, V::Bool(truth)) => job.post_review |= *truth,
            (A::Deduplicate, V::BoolOrAuto(truth)) => job.deduplicate = *truth,
            (A::WorkspaceCheckout, V::BoolOrAuto(truth)) => job.workspace_checkout = *truth,
            (A::Attempts, V::Int(number)) => job.attempts = *number,
            (A::PreTimeout, V::Int(seconds)) => job.pre_timeout = Some(*seconds),
            (A::Timeout, V::Int(seconds)) => job.timeout = Some(*seconds),
            (A::PostTimeout, V::Int(seconds)) => job.post_timeout = Some(*seconds),
            (A::Type, V::Text(text)) => job.job_type.clone_from(text),
            (A::SuccessMessage, V::Text(text)) => job.success_message = Some(text.clone()),
            (A::FailureMessage, V::Text(text)) => job.failure_message = Some(text.clone()),
            (A::SecretExposure, V::Text(text)) => job.secret_exposure.clone_from(text),
            (A::AnsibleVersion, V::Text(text)) => job.ansible_version.clone_from(text),
            (A::OverrideCheckout, V::Text(text)) => job.override_checkout = Some(text.clone()),
            (A::OverrideBranch, V::Text(text)) => job.override_branch = Some(text.clone()),
            (A::ImageBuildName, V::Text(text)) => job.image_build_name = Some(text.clone()),
            (A::Workspace, V::Text(text)) => job.workspace = Some(text.clone()),
            (A::Fingerprint, V::Text(text)) => job.fingerprint = Some(text.clone()),
            (A::Host, V::Text(text)) => {
                job.host = Some(text.clone());
                job.nodesets = Shared::default();
            }
            (A::Auth, V::Map(map)) => {
                let known = job.auth.take().unwrap_or_default();
                let swift = map.get("swift").map(|swift| match swift {
                    Value::List(items) => items.clone(),
                    one => vec![one.clone()],
                });
                job.auth = Some(Auth {
                    job: definition.name.clone(),
                    inherit: map.get("inherit").and_then(Value::as_bool).unwrap_or(false),
                    swift: swift.unwrap_or(known.swift),
                });
            }
            (A::WorkspaceScheme, V::Text(text)) => job.workspace_scheme.clone_from(text),
            (A::Tags, V::Names(names)) => union(&mut job.tags, names, replace),
            (A::Provides, V::Names(names)) => union(&mut job.provides, names, replace),
            (A::Requires, V::Names(names)) => union(&mut job.requires, names, replace),
            (A::PreserveHomePaths, V::Names(names)) => union(&mut job.preserve_home_paths, names, false),
            (A::Dependencies, V::Dependencies(all)) => {
                if !inherit {
                    job.declared_dependencies.clear();
                }
                for dependency in all {
                    if !job.declared_dependencies.contains(dependency) {
                        job.declared_dependencies.push(dependency.clone());
                    }
                }
            }
            (A::Files, V::Patterns(all)) => union_list(&mut job.files, all, !inherit),
            (A::IrrelevantFiles, V::Patterns(all)) => union_list(&mut job.irrelevant_files, all, !inherit),
            (A::FailureOutput, V::Patterns(all)) => add_sorted(&mut job.failure_output, all, replace),
            (A::PreRun, V::Playbooks(uses)) => {
                let added = self.playbooks_of(definition, Phase::Pre, uses);
                self.pre.extend(added);
            }
            (A::Run, V::Playbooks(uses)) => self.run = self.playbooks_of(definition, Phase::Run, uses),
            (A::PostRun, V::Playbooks(uses)) => {
                let added = self.playbooks_of(definition, Phase::Post, uses);
                self.post.splice(0..0, added);
            }
            (A::CleanupRun, V::Playbooks(uses)) => {
                let added = self.playbooks_of(definition, Phase::Cleanup, uses);
                self.cleanup.splice(0..0, added);
            }
            (A::Semaphores, V::Semaphores(all)) => {
                for semaphore in all {
                    job.semaphores.retain(|known| known.name != semaphore.name);
                    job.semaphores.push(semaphore.clone());
                }
                job.semaphores.sort();
            }
            (A::Vars, V::Map(map)) => merge_vars(&mut job.vars, map, replace),
            (A::ExtraVars, V::Map(map)) => merge_vars(&mut job.extra_vars, map, replace),
            (A::HostVars, V::Map(map)) => merge_vars(&mut job.host_vars, map, replace),
            (A::GroupVars, V::Map(map)) => merge_vars(&mut job.group_vars, map, replace),
            // Taken when the definition begins, or by an effect of their own; a value of another type
            // cannot be there, because the reader makes it by the same table.
            _ => {}
        }
    }

    /// Zuul: new roles come first; an explicit one replaces its implicit twin in place.
    fn add_roles(&mut self, added: &[Shared<FrozenRole>]) {
        let same = |left: &FrozenRole, right: &FrozenRole| {
            left.project == right.project && left.target_name == right.target_name
        };
        let mut roles: Vec<Shared<FrozenRole>> = Vec::with_capacity(self.roles.len() + added.len());
        for old in self.roles.iter() {
            let new = added.iter().find(|new| same(old, new)).filter(|new| old.implicit && !new.implicit);
            roles.push(new.unwrap_or(old).clone());
        }
        for new in added.iter().rev() {
            match roles.iter_mut().find(|old| same(old, new)) {
                Some(old) if old.implicit && !new.implicit => {
                    *old = Shared::new(FrozenRole { implicit: false, ..(**old).clone() });
                }
                Some(_) => {}
                None => roles.insert(0, new.clone()),
            }
        }
        self.roles = Shared::new(roles);
    }

    /// Zuul: `pass-to-parent` gives a secret to every playbook collected so far that has none of that
    /// name.
    fn pass_secrets(&mut self, secrets: &[crate::objects::job_parts::SecretUse]) {
        for playbook in [&mut self.pre, &mut self.run, &mut self.post, &mut self.cleanup].into_iter().flatten() {
            for used in secrets.iter().filter(|used| used.pass_to_parent) {
                if !playbook.secrets.iter().any(|known| known.name == used.name) {
                    playbook.secrets.push(PlaybookSecret { name: used.name.clone(), secret: used.secret.clone() });
                }
            }
        }
    }

    /// The playbooks a definition names, as they are at this step.
    pub(crate) fn playbooks_of(&self, definition: &JobDefinition, phase: Phase, uses: &[PlaybookUse]) -> Vec<Playbook> {
        let context = &self.home;
        let own = definition.secrets().iter();
        let mut secrets: Vec<PlaybookSecret> =
            own.map(|used| PlaybookSecret { name: used.name.clone(), secret: used.secret.clone() }).collect();
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
                nesting_level: self.begun.saturating_sub(1),
            })
            .collect()
    }

    /// The job, done.
    pub(crate) fn finish(self) -> FrozenJob {
        let Making { mut job, pre, run, post, cleanup, waits, .. } = self;
        if let (Some(before), Some(all)) = (job.pre_timeout, job.timeout) {
            job.pre_timeout = Some(before.min(all));
        }
        if job.nodesets.is_empty() {
            let none = FrozenNodeset { name: String::new(), shape: NodesetShape::default() };
            job.nodesets = Shared::new(vec![none]);
        }
        job.playbooks = pre;
        job.playbooks.reserve_exact(run.len() + post.len() + cleanup.len());
        job.playbooks.extend(run);
        job.playbooks.extend(post);
        job.playbooks.extend(cleanup);
        job.dependencies.clone_from(&job.declared_dependencies);
        for rule in &waits {
            wait(&mut job.dependencies, rule);
        }
        job
    }
}

/// Takes a rule of the graph about whom a job waits for.
pub(crate) fn wait(dependencies: &mut Vec<Dependency>, rule: &Effect) {
    match rule {
        Effect::WaitFor(name) => {
            dependencies.retain(|dependency| dependency.name != *name);
            dependencies.push(Dependency { name: name.clone(), soft: true });
        }
        Effect::Forget(name) => dependencies.retain(|dependency| dependency.name != *name),
        _ => {}
    }
}

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

fn add_sorted(into: &mut Vec<Pattern>, added: &[Pattern], replace: bool) {
    if replace {
        into.clear();
    }
    into.extend(added.iter().cloned());
    into.sort();
    into.dedup();
}

fn merge_vars(into: &mut BTreeMap<String, Value>, from: &BTreeMap<String, Value>, replace: bool) {
    if replace {
        into.clear();
    }
    if into.is_empty() {
        into.clone_from(from);
    } else {
        deep_merge(into, from);
    }
}
