//! From parsed files to a layout: the objects put together kind by kind, each checked against those
//! that are there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use crate::cache::Patterns;
use crate::findings::{Finding, Findings};
use crate::layout::{Layout, LayoutProject, ProjectLookupError};
use crate::load::{ParsedFile, ParsedStanza};
use crate::objects::job::{JobAttribute, JobDefinition, Parent};
use crate::objects::job_parts::{AttributeValue, ProjectFilter};
use crate::objects::nodeset::NodesetShape;
use crate::objects::secret::SecretSource;
use crate::objects::{
    NamedObject, Nodeset, Object, Pipeline, ProjectStanza, ProjectTemplate, Queue, Secret, Semaphore,
};
use crate::place::{Place, SourceContext};
use crate::problem::{Problem, UNKNOWN, did_you_mean};
use crate::regexes::{Anchor, Pattern, Verdict};
use crate::shared::Shared;
use crate::tenant::{TenantProject, TenantSettings};
use crate::{drivers, providers, validate};

/// Puts the objects of all files together, in the order given, and checks what they say about each
/// other.
pub fn assemble<'a>(tenant: &'a TenantSettings, files: &[&'a ParsedFile]) -> (Layout, Vec<Finding>) {
    assemble_with(tenant, files, &mut Patterns::default())
}

/// The same with patterns that were met before.
pub(crate) fn assemble_with<'a>(
    tenant: &'a TenantSettings,
    files: &[&'a ParsedFile],
    patterns: &mut Patterns,
) -> (Layout, Vec<Finding>) {
    let mut assembly = Assembly { patterns: std::mem::take(patterns), ..Assembly::new(tenant) };
    assembly.shadowed_projects();
    let pipelines_forbidden = assembly.forbidden_pipelines(files);
    let sorted = Files::new(&assembly, files);
    assembly.class("pragma", &sorted);
    // Zuul: objects are added kind by kind, so that the later kinds find the earlier ones.
    for class in ["pipeline", "nodeset", "secret", "job", "image", "flavor", "label"] {
        assembly.class(class, &sorted);
    }
    if tenant.older_spellings {
        providers::imply(&mut assembly.layout, files, &mut assembly.findings);
    }
    validate::labels(&assembly.layout, &mut assembly.findings);
    for class in ["semaphore", "section", "provider"] {
        assembly.class(class, &sorted);
    }
    validate::objects(&assembly.layout, tenant, &mut assembly.findings);
    for class in ["queue", "project-template", "project"] {
        assembly.class(class, &sorted);
    }
    assembly.regex_stanzas();
    assembly.project_settings();
    validate::projects(&assembly.layout, &assembly.stanza_order, &mut assembly.findings);
    let Assembly { layout, mut findings, patterns: met, .. } = assembly;
    *patterns = met;
    validate::hints(&layout, &mut findings);
    for problem in pipelines_forbidden {
        findings.begin();
        findings.push(problem);
    }
    (layout, findings.into_vec())
}

/// What stands for the files beside the tenant file: they may say everything.
static BESIDE: LazyLock<TenantProject> = LazyLock::new(|| TenantProject::new("", "", true));

struct Assembly<'a> {
    tenant: &'a TenantSettings,
    by_name: BTreeMap<&'a str, &'a TenantProject>,
    /// Projects by their short names, those apart that several have.
    by_short_name: BTreeMap<&'a str, &'a TenantProject>,
    layout: Layout,
    findings: Findings,
    patterns: Patterns,
    /// Projects in the order of their first stanza.
    stanza_order: Vec<String>,
    /// Stanzas whose name is a regular expression, for after all others: by name, in order.
    by_regex: Vec<(String, Vec<Shared<ProjectStanza>>)>,
}

/// An object of which there is one, though every branch may hold a copy.
trait Singleton: Clone + PartialEq {
    fn place(&self) -> &Place;
    /// What has to be the same on all branches.
    fn essence(&self) -> Self;
}

macro_rules! singletons {
    ($($kind:ty),*) => {$(
        impl Singleton for $kind {
            fn place(&self) -> &Place {
                &self.place
            }

            fn essence(&self) -> Self {
                Self { place: Place::default(), ..self.clone() }
            }
        }
    )*};
}

singletons!(Nodeset, Secret, Semaphore, Queue);

impl Singleton for NamedObject {
    fn place(&self) -> &Place {
        &self.place
    }

    fn essence(&self) -> Self {
        let mut essence = Self { place: Place::default(), ..self.clone() };
        if self.class == "image" {
            // Zuul: what an image says about its retention has no effect, and may differ.
            essence.attributes.retain(|name, _| !name.ends_with("retain-count"));
        }
        essence
    }
}

/// The stanzas of all files by their class, each with its project and its file.
struct Files<'a> {
    by_class: BTreeMap<&'a str, Vec<(&'a TenantProject, &'a ParsedFile, &'a ParsedStanza)>>,
}

impl<'a> Files<'a> {
    fn new(assembly: &Assembly<'a>, files: &[&'a ParsedFile]) -> Self {
        let mut by_class: BTreeMap<&'a str, Vec<_>> = BTreeMap::new();
        for file in files.iter().copied() {
            let Some(settings) = assembly.settings(&file.context.project) else { continue };
            for stanza in &file.stanzas {
                by_class.entry(stanza.class.as_str()).or_default().push((settings, file, stanza));
            }
        }
        Files { by_class }
    }
}

impl<'a> Assembly<'a> {
    fn new(tenant: &'a TenantSettings) -> Self {
        let projects = tenant.projects.iter();
        let mut short_names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut by_short_name: BTreeMap<&str, Option<&TenantProject>> = BTreeMap::new();
        for project in projects.clone() {
            short_names.entry(project.name.clone()).or_default().push(project.canonical_name.clone());
            by_short_name.entry(&project.name).and_modify(|known| *known = None).or_insert(Some(project));
        }
        Assembly {
            tenant,
            by_name: projects
                .clone()
                .map(|project| (project.canonical_name.as_str(), project))
                .chain([("", &*BESIDE)])
                .collect(),
            by_short_name: by_short_name.into_iter().filter_map(|(name, known)| Some((name, known?))).collect(),
            layout: Layout {
                tenant: tenant.name.clone(),
                default_parent: tenant.default_parent.clone(),
                default_ansible_version: tenant.default_ansible_version.clone(),
                max_job_timeout: tenant.max_job_timeout,
                max_nodes_per_job: tenant.max_nodes_per_job,
                max_changes_per_pipeline: tenant.max_changes_per_pipeline,
                max_dependencies: tenant.max_dependencies,
                use_nodepool: tenant.use_nodepool,
                playbook_home: tenant.playbook_home().map(|project| project.canonical_name.clone()),
                projects: projects
                    .map(|project| (project.canonical_name.clone(), LayoutProject::from(project)))
                    .collect(),
                short_names,
                global_semaphores: tenant.global_semaphores.clone(),
                jobs: BTreeMap::from([(JobDefinition::NOOP.to_owned(), vec![Shared::new(JobDefinition::noop())])]),
                ..Layout::default()
            },
            findings: Findings::default(),
            patterns: Patterns::default(),
            stanza_order: Vec::new(),
            by_regex: Vec::new(),
        }
    }

    fn settings(&self, canonical_name: &str) -> Option<&'a TenantProject> {
        self.by_name.get(canonical_name).copied()
    }

    /// The problems of one class of objects, then the objects themselves.
    fn class(&mut self, class: &str, files: &Files<'a>) {
        let stanzas = files.by_class.get(class).map_or(&[][..], Vec::as_slice);
        let forbidden: BTreeSet<(&str, &str)> = match class {
            "pipeline" => stanzas
                .iter()
                .filter(|(_, file, stanza)| !file.context.trusted && matches!(stanza.object, Some(Object::Pipeline(_))))
                .map(|(_, file, _)| branch_of(file))
                .collect(),
            _ => BTreeSet::new(),
        };
        // Pragmas cannot be left out. Pipelines of untrusted projects are refused elsewhere, where one
        // of the branch is well formed.
        let taken = |settings: &TenantProject, file: &ParsedFile| {
            (class == "pragma" || settings.include.iter().any(|name| name == class))
                && (forbidden.is_empty() || !forbidden.contains(&branch_of(file)))
        };
        for (settings, file, stanza) in stanzas {
            if taken(settings, file) {
                self.findings.begin();
                for problem in &stanza.problems {
                    self.findings.push(problem.clone());
                }
            }
        }
        for (settings, file, stanza) in stanzas {
            let Some(object) = stanza.object.as_ref().filter(|_| taken(settings, file)) else { continue };
            match object {
                Object::Nodeset(nodeset) => self.findings.begin_nodeset(nodeset),
                _ => self.findings.begin(),
            }
            self.add(settings, object);
        }
    }

    /// Zuul: one error for each branch of an untrusted project that defines pipelines, at the first that
    /// is one. What the others say to drivers is looked at all the same.
    fn forbidden_pipelines(&mut self, files: &[&ParsedFile]) -> Vec<Problem> {
        let mut seen = BTreeSet::new();
        let mut problems = Vec::new();
        for file in files {
            let untrusted = self
                .settings(&file.context.project)
                .is_some_and(|settings| !settings.trusted && settings.include.iter().any(|class| class == "pipeline"));
            let defined = file.stanzas.iter().filter_map(|stanza| match &stanza.object {
                Some(Object::Pipeline(pipeline)) if untrusted => Some(pipeline),
                _ => None,
            });
            for pipeline in defined {
                let before = self.findings.len();
                self.findings.begin();
                drivers::check(self.tenant, pipeline, &mut self.patterns, &mut self.findings);
                if !self.findings.failed_since(before) && seen.insert((&file.context.project, &file.context.branch)) {
                    let message = format!("the pipeline \"{}\" is defined in an untrusted project", pipeline.name);
                    let problem =
                        Problem::error("pipeline-not-permitted", "Pipeline Forbidden", pipeline.place.clone(), message);
                    problems.push(problem.cure("pipelines may be defined in config projects only: move it there"));
                }
            }
        }
        problems
    }

    fn error(&mut self, code: &str, label: &str, place: &Place, message: String, cure: impl Into<String>) {
        self.findings.push(Problem::error(code, label, place.clone(), message).cure(cure));
    }

    fn add(&mut self, settings: &'a TenantProject, object: &Object) {
        match object {
            Object::Pipeline(pipeline) => self.add_pipeline(pipeline),
            Object::Job(job) => self.add_job(settings, job),
            Object::Template(template) => self.add_template(template),
            Object::Project(stanza) => self.add_stanza(settings, stanza),
            Object::Nodeset(object) => {
                if let Some(problem) = self.forbidden_label(&object.shapes(), &object.place) {
                    self.findings.push(problem);
                    return;
                }
                let known = self.layout.nodesets.get(&object.name).cloned();
                if self.singleton("nodeset", &object.name, &**object, known.as_deref()) {
                    self.layout.nodesets.insert(object.name.clone(), object.clone());
                }
            }
            Object::Secret(object) => {
                if self.token_refused(object) {
                    return;
                }
                let known = self.layout.secrets.get(&object.name).cloned();
                if self.singleton("secret", &object.name, &**object, known.as_deref()) {
                    self.layout.secrets.insert(object.name.clone(), object.clone());
                }
            }
            Object::Semaphore(object) => {
                if self.tenant.semaphores.contains(&object.name) {
                    let message = format!("the semaphore \"{}\" is a global one of this tenant", object.name);
                    self.error("semaphore-is-global", UNKNOWN, &object.place, message, "choose another name");
                    return;
                }
                let known = self.layout.semaphores.get(&object.name).cloned();
                if self.singleton("semaphore", &object.name, &**object, known.as_deref()) {
                    self.layout.semaphores.insert(object.name.clone(), object.clone());
                }
            }
            Object::Queue(object) => {
                let known = self.layout.queues.get(&object.name).cloned();
                if self.singleton("queue", &object.name, &**object, known.as_deref()) {
                    self.layout.queues.insert(object.name.clone(), object.clone());
                }
            }
            Object::Named(object) => {
                let known = self.layout.named.get(&object.class).and_then(|all| all.get(&object.name)).cloned();
                if self.singleton(&object.class, &object.name, &**object, known.as_deref()) {
                    let all = self.layout.named.entry(object.class.clone()).or_default();
                    all.insert(object.name.clone(), object.clone());
                }
            }
        }
    }

    /// Zuul: the same name in another project, or again on the branch of the first, is an error; on
    /// another branch of the same project it must be the same.
    fn singleton<T: Singleton>(&mut self, class: &str, name: &str, object: &T, known: Option<&T>) -> bool {
        let context = &object.place().context;
        let Some(known) = known else { return true };
        let here = known.place().to_string();
        if known.place().context.project != context.project {
            let project = known.place().context.project.clone();
            let message = format!("the {class} \"{name}\" is already defined in project {project}");
            self.error(
                "defined-in-other-project",
                UNKNOWN,
                object.place(),
                message,
                format!("see {here}; choose another name"),
            );
        } else if known.place().context.branch == context.branch {
            let message = format!("the {class} \"{name}\" is already defined");
            self.error("defined-twice", UNKNOWN, object.place(), message, format!("see {here}; keep one of the two"));
        } else if known.essence() != object.essence() {
            let branch = known.place().context.branch.clone();
            let message = format!("the {class} \"{name}\" does not match its definition in branch {branch}");
            let cure = format!("see {here}; a {class} must be the same on all branches, or have another name on each");
            self.error("differs-between-branches", UNKNOWN, object.place(), message, cure);
        }
        false
    }

    /// Zuul: limits of the tenant on tokens.
    fn token_refused(&mut self, secret: &Secret) -> bool {
        let SecretSource::Oidc(settings) = &secret.source else { return false };
        let ttl = match settings.as_map().and_then(|map| map.get("ttl")) {
            Some(gatelog_record::Value::Int(seconds)) => *seconds,
            _ => self.tenant.default_oidc_ttl,
        };
        let name = &secret.name;
        if ttl > self.tenant.max_oidc_ttl {
            let message = format!(
                "the tokens of secret \"{name}\" live {ttl} s, above the tenant's {}",
                self.tenant.max_oidc_ttl
            );
            let cure = "lower `ttl`, or ask for a larger max-oidc-ttl";
            self.error("max-oidc-ttl", "Max OIDC TTL Exceeded", &secret.place, message, cure);
            return true;
        }
        let issuer = settings.as_map().and_then(|map| map.get("iss")).and_then(gatelog_record::Value::as_str);
        if let Some(issuer) = issuer.filter(|issuer| !issuer.is_empty())
            && !self.tenant.allowed_oidc_issuers.iter().any(|allowed| allowed == issuer)
        {
            let message = format!("the issuer \"{issuer}\" of secret \"{name}\" is not allowed in this tenant");
            let cure = "see allowed-oidc-issuers of the tenant";
            self.error("oidc-issuer", "OIDC issuer not allowed", &secret.place, message, cure);
            return true;
        }
        false
    }

    fn add_pipeline(&mut self, pipeline: &Shared<Pipeline>) {
        let before = self.findings.len();
        drivers::check(self.tenant, pipeline, &mut self.patterns, &mut self.findings);
        if self.findings.failed_since(before) {
            return;
        }
        self.findings.begin();
        if let Some(known) = self.layout.pipelines.get(&pipeline.name) {
            let cure = format!("see {}; keep one of the two", known.place);
            let message = format!("the pipeline \"{}\" is already defined", pipeline.name);
            self.error("defined-twice", UNKNOWN, &pipeline.place, message, cure);
            return;
        }
        if self.connection_not_allowed(pipeline) {
            return;
        }
        self.layout.pipeline_order.push(pipeline.name.clone());
        let full = drivers::said_in_full(self.tenant, pipeline);
        self.layout.pipelines.insert(pipeline.name.clone(), full);
    }

    fn connection_not_allowed(&mut self, pipeline: &Pipeline) -> bool {
        let forbidden = |allowed: &Option<Vec<String>>, name: &str| {
            allowed.as_ref().is_some_and(|all| !all.iter().any(|a| a == name))
        };
        // Zuul: the reporters of `config-error` are not looked at.
        let reporters = pipeline.actions.iter().filter(|(action, _)| *action != "config-error").flat_map(|(_, by)| by);
        let reporter = reporters.map(|(name, _)| name).find(|name| forbidden(&self.tenant.allowed_reporters, name));
        let trigger = pipeline.triggers.keys().find(|name| forbidden(&self.tenant.allowed_triggers, name));
        let (what, name) = match (reporter, trigger) {
            (Some(name), _) => ("reporter", name),
            (None, Some(name)) => ("trigger", name),
            (None, None) => return false,
        };
        let message =
            format!("the pipeline \"{}\" uses the {what} \"{name}\", which this tenant does not allow", pipeline.name);
        let cure = format!("see allowed-{what}s of the tenant");
        self.error("connection-not-allowed", "Unknown Connection", &pipeline.place, message, cure);
        true
    }

    /// A label this tenant may not use. Zuul: nodesets an alternative only names are looked at where
    /// they are defined.
    fn forbidden_label(&self, shapes: &[&NodesetShape], place: &Place) -> Option<Problem> {
        if !self.tenant.use_nodepool {
            return None;
        }
        // Zuul: an expression that RE2 does not take fails where a label is first compared with it.
        let any = |label: &str, patterns: &'a [Pattern]| -> Result<bool, &'a Pattern> {
            match patterns.iter().find(|pattern| !pattern.is_re2() || pattern.matches(label)) {
                Some(pattern) if !pattern.is_re2() => Err(pattern),
                found => Ok(found.is_some()),
            }
        };
        let allowed = |label: &str| -> Result<bool, &'a Pattern> {
            let (those, but) = (&self.tenant.allowed_labels, &self.tenant.disallowed_labels);
            Ok((those.is_empty() || any(label, those)?) && !any(label, but)?)
        };
        let labels: BTreeSet<&str> =
            shapes.iter().flat_map(|shape| &shape.nodes).map(|node| node.label.as_str()).collect();
        let answers: Result<Vec<(&str, bool)>, &Pattern> =
            labels.into_iter().map(|label| Ok((label, allowed(label)?))).collect();
        let answers = match answers {
            Ok(answers) => answers,
            Err(pattern) => {
                let (regex, why) = (pattern.regex(), pattern.refused_by_re2().unwrap_or_default());
                let message = format!("`{regex}` in the labels of this tenant is not valid RE2: {why}");
                let problem = Problem::error("label-pattern", UNKNOWN, place.clone(), message);
                return Some(problem.about("nodeset").cure("mend allowed-labels or disallowed-labels of the tenant"));
            }
        };
        let (label, _) = answers.into_iter().find(|(_, allowed)| !allowed)?;
        let message = format!("the label \"{label}\" is not allowed in this tenant");
        let problem = Problem::error("label-forbidden", "Label Forbidden", place.clone(), message);
        Some(problem.about("nodeset").cure("see allowed-labels and disallowed-labels of the tenant"))
    }

    /// What keeps a definition out of the layout, wherever it stands. Zuul: `_checkAddJob`.
    fn job_refused(&self, settings: &TenantProject, job: &JobDefinition) -> Vec<Problem> {
        let mut problems = Vec::new();
        // Most entries of lists only name a job.
        if job.settings.is_empty() && job.parent != Parent::Base {
            return problems;
        }
        let mut refuse = |problem: Problem| problems.push(problem.in_stanza(job.stanza_line));
        if let Some(AttributeValue::Nodeset(nodeset)) = job.value(JobAttribute::Nodeset)
            && let Some(problem) = self.forbidden_label(&nodeset.shapes(), &job.place_of(JobAttribute::Nodeset))
        {
            refuse(problem);
        }
        let own = &settings.name;
        let mut names: Vec<(JobAttribute, &str)> = Vec::new();
        if let Some(AttributeValue::Projects(all)) = job.value(JobAttribute::RequiredProjects) {
            names.extend(all.iter().map(|used| (JobAttribute::RequiredProjects, used.name.as_str())));
        }
        for attribute in [JobAttribute::IncludeProjects, JobAttribute::ExcludeProjects] {
            if let Some(AttributeValue::Filters(all)) = job.value(attribute) {
                names.extend(all.iter().filter_map(|filter| match filter {
                    ProjectFilter::Project(name) => Some((attribute, name.as_str())),
                    ProjectFilter::Change | ProjectFilter::Item => None,
                }));
            }
        }
        if let Some(AttributeValue::IncludeVars(all)) = job.value(JobAttribute::IncludeVars) {
            let given = all.iter().filter(|file| !file.zuul_project).filter_map(|file| file.project.as_deref());
            names.extend(given.map(|name| (JobAttribute::IncludeVars, name)));
        }
        if let Some(AttributeValue::Names(all)) = job.value(JobAttribute::AllowedProjects) {
            let others = all.iter().map(String::as_str).filter(|name| *name != own);
            names.extend(others.map(|name| (JobAttribute::AllowedProjects, name)));
        }
        if let Some(AttributeValue::Roles(all)) = job.value(JobAttribute::Roles) {
            // Zuul: a role of an unknown project is passed over, one of an ambiguous name is not.
            let ambiguous =
                |name: &&str| matches!(self.layout.project(name), Err(ProjectLookupError::Ambiguous { .. }));
            let found = all.iter().map(|role| role.project.as_str()).filter(ambiguous);
            names.extend(found.map(|name| (JobAttribute::Roles, name)));
        }
        for (attribute, name) in names {
            if let Err(error) = self.layout.project(name) {
                let problem = project_problem(&self.layout, &error, job.place_of(attribute));
                refuse(problem.about(attribute.row().name));
            }
        }
        if let Some(limit) = self.layout.max_job_timeout {
            for attribute in [JobAttribute::PreTimeout, JobAttribute::Timeout, JobAttribute::PostTimeout] {
                if let Some(AttributeValue::Int(seconds)) = job.value(attribute)
                    && *seconds > limit
                {
                    let name = attribute.row().name;
                    let message =
                        format!("the {name} of job \"{}\" ({seconds} s) exceeds the tenant's {limit} s", job.name);
                    let place = job.place_of(attribute);
                    let problem = Problem::error("max-timeout", "Max Timeout Exceeded", place, message).about(name);
                    refuse(problem.cure("lower it, or ask for a larger max-job-timeout"));
                }
            }
        }
        if job.parent == Parent::Base && !(settings.trusted && settings.allow_base_jobs) {
            let message = format!("the job \"{}\" has no parent, and this project may not define base jobs", job.name);
            let cure = "name a parent, or leave `parent` out for the tenant's default parent";
            let label = "Base Job Not Permitted";
            let problem = Problem::error("base-job-not-permitted", label, job.place.clone(), message);
            refuse(problem.about("parent").cure(cure));
        }
        problems
    }

    fn add_job(&mut self, settings: &TenantProject, job: &Shared<JobDefinition>) {
        let refused = self.job_refused(settings, job);
        if !refused.is_empty() {
            refused.into_iter().for_each(|problem| self.findings.push(problem));
            return;
        }
        let first = self.layout.definitions(&job.name).first().map(|other| other.place.clone());
        if let Some(place) = first.filter(|place| place.context.project != job.place.context.project) {
            if self.shadows(settings, &place.context.project) {
                return;
            }
            let message = if place.context.path.is_empty() {
                format!("the job \"{}\" is built in", job.name)
            } else {
                format!(
                    "the job \"{}\" is defined in project {} and may not be shadowed",
                    job.name, place.context.project
                )
            };
            let cure = format!("see {place}; choose another name, or let the tenant file say `shadow`");
            self.error("job-shadowed", UNKNOWN, &job.place, message, cure);
            return;
        }
        self.layout.jobs.entry(job.name.clone()).or_default().push(job.clone());
    }

    /// Who shadows a project that the tenant does not have is told once.
    fn shadowed_projects(&mut self) {
        for project in &self.tenant.projects {
            let Some(error) = project.shadow.iter().find_map(|name| self.layout.project(name).err()) else { continue };
            let context = SourceContext {
                project: project.canonical_name.clone(),
                trusted: project.trusted,
                ..SourceContext::default()
            };
            let place = Place { context: Shared::new(context), line: 0, column: 0 };
            self.findings.begin();
            self.findings.push_of_file(project_problem(&self.layout, &error, place).about("shadow"));
        }
    }

    /// Whether the jobs of a project may have the names of jobs of another. Zuul: where one name is of
    /// no project, the others count only as canonical names.
    fn shadows(&self, settings: &TenantProject, canonical_name: &str) -> bool {
        if settings.shadow.iter().any(|name| self.layout.project(name).is_err()) {
            return settings.shadow.iter().any(|name| name == canonical_name);
        }
        settings.shadow.iter().any(|name| self.is_project(name, canonical_name))
    }

    fn is_project(&self, name: &str, canonical_name: &str) -> bool {
        self.layout.project(name).is_ok_and(|project| project.canonical_name == canonical_name)
    }

    /// What keeps the entries of a stanza or template out of the layout.
    fn entries_refused<'b>(
        &self,
        settings: &TenantProject,
        pipelines: impl Iterator<Item = (&'b String, &'b crate::objects::project::ProjectPipeline)> + Clone,
        line: u32,
    ) -> Vec<Problem> {
        let jobs = pipelines.clone().flat_map(|(_, pipeline)| &pipeline.jobs);
        let mut problems: Vec<Problem> = jobs.flat_map(|job| self.job_refused(settings, job)).collect();
        problems.extend(pipelines.into_iter().filter_map(|(name, pipeline)| {
            let known = self.layout.pipelines.get(name)?;
            if pipeline.parameters.is_empty() || known.allow_parameters {
                return None;
            }
            let message = format!("the pipeline \"{name}\" does not allow parameters");
            let problem = Problem::error("parameters-not-allowed", UNKNOWN, pipeline.place.clone(), message);
            let cure = "remove them, or set `allow-parameters` of the pipeline";
            Some(problem.about("parameters").cure(cure).in_stanza(line))
        }));
        problems
    }

    fn add_template(&mut self, template: &Shared<ProjectTemplate>) {
        let Some(settings) = self.settings(&template.place.context.project) else { return };
        let refused = self.entries_refused(settings, template.in_order(), template.place.line);
        if !refused.is_empty() {
            refused.into_iter().for_each(|problem| self.findings.push(problem));
            return;
        }
        let variants = self.layout.templates.entry(template.name.clone()).or_default();
        let first = variants.first().map(|other| other.place.clone());
        if let Some(place) = first.filter(|place| place.context.project != template.place.context.project) {
            let message =
                format!("the template \"{}\" is already defined in project {}", template.name, place.context.project);
            let cure = format!("see {place}; choose another name");
            self.error("defined-in-other-project", UNKNOWN, &template.place, message, cure);
            return;
        }
        variants.push(template.clone());
    }

    fn add_stanza(&mut self, settings: &'a TenantProject, stanza: &Shared<ProjectStanza>) {
        let name = match &stanza.name {
            Some(name) if name.starts_with('^') => {
                match self.by_regex.iter_mut().find(|(known, _)| known == name) {
                    Some((_, stanzas)) => stanzas.push(stanza.clone()),
                    None => self.by_regex.push((name.clone(), vec![stanza.clone()])),
                }
                return;
            }
            Some(name) => name,
            None => &settings.canonical_name,
        };
        let project = match &stanza.name {
            None if !settings.canonical_name.is_empty() => Ok(settings),
            _ => match self
                .settings(name)
                .filter(|_| !name.is_empty())
                .or(self.by_short_name.get(name.as_str()).copied())
            {
                Some(project) => Ok(project),
                None => self.layout.project(name).map(|_| settings),
            },
        };
        match project {
            Ok(project) => {
                let refused = self.entries_refused(settings, stanza.in_order(), stanza.place.line);
                self.push_stanza(settings, stanza, project, &refused);
            }
            Err(error) => {
                let problem = project_problem(&self.layout, &error, stanza.place.clone());
                self.findings.push(problem.about("name"));
            }
        }
    }

    /// `refused` is what keeps its entries out of the layout, whatever the project.
    fn push_stanza(
        &mut self,
        settings: &TenantProject,
        stanza: &Shared<ProjectStanza>,
        project: &TenantProject,
        refused: &[Problem],
    ) {
        if !self.may_configure(settings, stanza, project) {
            return;
        }
        if !refused.is_empty() {
            refused.iter().for_each(|problem| self.findings.push(problem.clone()));
            return;
        }
        match self.layout.stanzas.get_mut(&project.canonical_name) {
            Some(stanzas) => stanzas.push(stanza.clone()),
            None => {
                self.stanza_order.push(project.canonical_name.clone());
                self.layout.stanzas.insert(project.canonical_name.clone(), vec![stanza.clone()]);
            }
        }
    }

    fn may_configure(&mut self, settings: &TenantProject, stanza: &ProjectStanza, project: &TenantProject) -> bool {
        let own = project.canonical_name == settings.canonical_name;
        let named = |pattern: &Pattern| pattern.matches(&project.name) || pattern.matches(&project.canonical_name);
        if own || settings.trusted || (!project.trusted && settings.configure_projects.iter().any(named)) {
            return true;
        }
        let message =
            format!("the untrusted project {} configures {}", settings.canonical_name, project.canonical_name);
        let cure = "move the stanza to a config project or to the project itself, or let the tenant file say \
                    `configure-projects`";
        self.error("project-not-permitted", "Project Forbidden", &stanza.place, message, cure);
        false
    }

    fn regex_stanzas(&mut self) {
        for (name, stanzas) in std::mem::take(&mut self.by_regex) {
            self.findings.begin();
            let (pattern, verdict) = self.patterns.look(Pattern::new(name.clone(), false, Anchor::Whole));
            if let Verdict::Deprecated(why) | Verdict::Invalid(why) = verdict {
                if let Some(first) = stanzas.first() {
                    let message = format!("`{name}` is not a regular expression: {why}");
                    let problem = Problem::error("regex-invalid", UNKNOWN, first.place.clone(), message);
                    self.findings.push(problem.about("name").cure("mend it; the syntax is that of RE2"));
                }
                continue;
            }
            // In the order of the tenant file, as everywhere.
            let projects = self.tenant.projects.iter();
            let matched =
                projects.filter(|project| pattern.matches(&project.name) || pattern.matches(&project.canonical_name));
            let refused: Vec<Vec<Problem>> = stanzas
                .iter()
                .map(|stanza| match self.settings(&stanza.place.context.project) {
                    Some(settings) => self.entries_refused(settings, stanza.in_order(), stanza.place.line),
                    None => Vec::new(),
                })
                .collect();
            for project in matched {
                for (stanza, refused) in stanzas.iter().zip(&refused) {
                    let Some(settings) = self.settings(&stanza.place.context.project) else { continue };
                    self.findings.begin();
                    self.push_stanza(settings, stanza, project, refused);
                }
            }
        }
    }

    /// Merge mode, default branch and queue: the first stanza, or template of it, that says.
    fn project_settings(&mut self) {
        let mut implicit = BTreeSet::new();
        for (name, project) in &mut self.layout.projects {
            for stanza in self.layout.stanzas.get(name).map_or(&[][..], Vec::as_slice) {
                if project.merge_mode.is_none() {
                    project.merge_mode.clone_from(&stanza.merge_mode);
                }
                if let Some(branch) = &stanza.default_branch {
                    let connected = self.by_name.get(name.as_str()).map(|settings| settings.default_branch.as_str());
                    if connected == Some(project.default_branch.as_str()) {
                        project.default_branch.clone_from(branch);
                    }
                }
                let from_template = || {
                    let templates = stanza.templates.iter().filter_map(|name| self.layout.templates.get(name));
                    templates.flatten().find_map(|template| template.queue.clone())
                };
                if project.queue.is_none() {
                    project.queue = stanza.queue.clone().or_else(from_template);
                }
            }
            if let Some(queue) = project.queue.as_ref().filter(|queue| !self.layout.queues.contains_key(*queue)) {
                implicit.insert(queue.clone());
            }
        }
        for name in implicit {
            self.layout.queues.insert(name.clone(), Shared::new(Queue::implicit(&name)));
        }
    }
}

fn branch_of(file: &ParsedFile) -> (&str, &str) {
    (&file.context.project, &file.context.branch)
}

/// The problem of a project that cannot be found.
pub(crate) fn project_problem(layout: &Layout, error: &ProjectLookupError, place: Place) -> Problem {
    match error {
        ProjectLookupError::Unknown(name) => {
            let names = layout.projects.values().map(|project| project.name.as_str());
            let cure = match did_you_mean(name, names) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => "add the project to the tenant file first".to_owned(),
            };
            Problem::error("project-not-found", "Project Not Found", place, error.to_string()).cure(cure)
        }
        ProjectLookupError::Ambiguous { .. } => {
            Problem::error("project-ambiguous", UNKNOWN, place, error.to_string()).cure("use the canonical name")
        }
    }
}
