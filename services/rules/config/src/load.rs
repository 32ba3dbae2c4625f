//! From files to a layout: parse each file by itself, then put the objects together.
//!
//! [`parse_file`] is a function of one file's text and context alone, so that a cache by content can
//! stand before it; [`assemble`] takes what it made.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::files::select_config_files;
use crate::layout::{Layout, LayoutProject, ProjectLookupError};
use crate::objects::job::{JobAttribute, JobDefinition, Parent};
use crate::objects::job_parts::AttributeValue;
use crate::objects::{
    self, CLASSES, NamedObject, Nodeset, Object, Pipeline, Pragma, ProjectStanza, ProjectTemplate, Queue, Secret,
    Semaphore,
};
use crate::place::{Place, SourceContext};
use crate::problem::{Problem, Severity, did_you_mean, snippet};
use crate::regexes::{Anchor, Pattern};
use crate::schema::Sink;
use crate::shared::Shared;
use crate::tenant::{TenantProject, TenantSettings};
use crate::validate;
use crate::yaml::{self, Mark};

/// One configuration file of a project's branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// Canonical name of the project.
    pub project: String,
    /// The branch.
    pub branch: String,
    /// Path in the repository.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// Everything a layout is made from.
#[derive(Clone, Debug, Default)]
pub struct LoadInput {
    /// The tenant.
    pub tenant: TenantSettings,
    /// Files that may be configuration, in any order; those that are none are passed over. A
    /// `.zuul.ignore` file is given like any other.
    pub files: Vec<ConfigFile>,
}

/// What one file holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParsedFile {
    /// The file.
    pub context: Shared<SourceContext>,
    /// Its objects, in order.
    pub objects: Vec<Object>,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
}

/// Loads a tenant: chooses the files, orders them as Zuul does, parses and assembles.
pub fn load(input: &LoadInput) -> (Layout, Vec<Problem>) {
    let mut by_branch: BTreeMap<(&str, &str), BTreeMap<&str, &str>> = BTreeMap::new();
    for file in &input.files {
        by_branch.entry((&file.project, &file.branch)).or_default().insert(&file.path, &file.text);
    }
    let mut parsed = Vec::new();
    let mut problems = Vec::new();
    for project in &input.tenant.projects {
        if project.include.is_empty() {
            continue;
        }
        for branch in project.config_branches() {
            let Some(files) = by_branch.get(&(project.canonical_name.as_str(), branch)) else { continue };
            let selection = select_config_files(files.keys().copied(), &project.extra_config_paths);
            let context = |path: &str| SourceContext {
                project: project.canonical_name.clone(),
                branch: branch.to_owned(),
                path: path.to_owned(),
                trusted: project.trusted,
            };
            for root in selection.ignored_roots {
                let place = Place { context: Shared::new(context(root)), line: 0, column: 0 };
                let message =
                    format!("the configuration in {root} is not read, because {} is there", first(&selection.files));
                let label = "Multiple Project Configurations";
                let problem = Problem::new(Severity::Warning, "multiple-project-configurations", label, place, message);
                problems.push(problem.cure("keep one of zuul.yaml, zuul.d/, .zuul.yaml and .zuul.d/"));
            }
            for path in &selection.files {
                let text = files.get(path.as_str()).copied().unwrap_or("");
                parsed.push(parse_file(context(path), text));
            }
        }
    }
    let (layout, mut found) = assemble(&input.tenant, &parsed);
    for problem in found.iter_mut().filter(|problem| problem.snippet.is_empty()) {
        let context = &problem.place.context;
        let text = by_branch
            .get(&(context.project.as_str(), context.branch.as_str()))
            .and_then(|files| files.get(context.path.as_str()));
        if let Some(text) = text {
            problem.snippet = snippet(text, problem.place.line, problem.place.column);
        }
    }
    problems.extend(found);
    (layout, problems)
}

fn first(files: &[String]) -> &str {
    files.first().map_or("", |path| path.split_once('/').map_or(path.as_str(), |(root, _)| root))
}

/// Parses one file: a function of its text and its context alone.
pub fn parse_file(context: SourceContext, text: &str) -> ParsedFile {
    let mut sink = Sink { context: Shared::new(context), text, problems: Vec::new() };
    let mut objects = Vec::new();
    match yaml::parse(text) {
        Ok(None) => {}
        Ok(Some(root)) => read_items(&mut sink, &root, &mut objects),
        Err(errors) => {
            for error in errors {
                sink.error(error.code(), yaml_label(error.code()), error.mark(), error.to_string(), error.cure());
            }
        }
    }
    ParsedFile { context: sink.context, objects, problems: sink.problems }
}

fn yaml_label(code: &str) -> &'static str {
    if code == "yaml-duplicate-key" { "YAML Duplicate Key" } else { "YAML Syntax Error" }
}

fn read_items(sink: &mut Sink<'_>, root: &yaml::Node, objects: &mut Vec<Object>) {
    if root.is_null() {
        return;
    }
    let Some(items) = root.as_sequence() else {
        let message = format!("a configuration file must be a list of objects, not {}", root.kind_name());
        let cure = "begin each object with a dash, as in `- job:`";
        sink.error("not-a-list", "Config Item Not List", root.start, message, cure);
        return;
    };
    // Pragmas hold for the whole file, wherever they stand.
    let mut pragma = Pragma::default();
    for entry in items.iter().filter_map(|item| item.get("pragma")) {
        objects::pragma::read(sink, &entry.value, entry.mark, &mut pragma);
    }
    for item in items {
        let Some(entries) = item.as_mapping() else {
            let message = format!("an object of a configuration file must be a dictionary, not {}", item.kind_name());
            let cure = "write the kind of object and a colon, as in `- job:`";
            sink.error("not-a-dictionary", "Config Item Not Dict", item.start, message, cure);
            continue;
        };
        let [entry] = entries else {
            let keys: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
            let message = format!("an object must have exactly one key, and this has: {}", keys.join(", "));
            let cure = "indent the attributes one step further than the kind of object";
            sink.error("multiple-keys", "Config Item Multiple Keys", item.start, message, cure);
            continue;
        };
        let (node, mark) = (&entry.value, entry.mark);
        let object = match entry.key.as_str() {
            "pragma" => None,
            "pipeline" => objects::pipeline::read(sink, node, mark).map(|o| Object::Pipeline(Shared::new(o))),
            "job" => objects::job::read(sink, node, mark, &pragma).map(|o| Object::Job(Shared::new(o))),
            "nodeset" => objects::nodeset::read(sink, node, mark, false).map(|o| Object::Nodeset(Shared::new(o))),
            "secret" => objects::secret::read(sink, node, mark).map(|o| Object::Secret(Shared::new(o))),
            "project" => objects::project::read(sink, node, mark, &pragma).map(|o| Object::Project(Shared::new(o))),
            "project-template" => {
                objects::template::read(sink, node, mark, &pragma).map(|o| Object::Template(Shared::new(o)))
            }
            "semaphore" => objects::semaphore::read(sink, node, mark).map(|o| Object::Semaphore(Shared::new(o))),
            "queue" => objects::queue::read(sink, node, mark).map(|o| Object::Queue(Shared::new(o))),
            other => {
                match ["image", "flavor", "label", "section", "provider"].into_iter().find(|name| *name == other) {
                    Some(class) => objects::named::read(sink, class, node, mark).map(|o| Object::Named(Shared::new(o))),
                    None => {
                        unknown_class(sink, other, mark);
                        None
                    }
                }
            }
        };
        objects.extend(object);
    }
}

fn unknown_class(sink: &mut Sink<'_>, class: &str, mark: Mark) {
    let message = format!("`{class}` is no kind of object");
    let cure = match did_you_mean(class, CLASSES.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known are: {}", CLASSES.join(", ")),
    };
    sink.error("unknown-object", "Config Item Unknown", mark, message, cure);
}

/// Puts the objects of all files together, in the order given, and checks what they say about each
/// other.
pub fn assemble(tenant: &TenantSettings, files: &[ParsedFile]) -> (Layout, Vec<Problem>) {
    let mut assembly = Assembly::new(tenant);
    for file in files {
        assembly.problems.extend(file.problems.iter().cloned());
    }
    // Zuul: objects are added kind by kind, so that the later kinds find the earlier ones.
    for stage in 0..STAGES {
        for file in files {
            let Some(settings) = assembly.settings(&file.context.project) else { continue };
            for object in &file.objects {
                if stage_of(object) == stage && settings.include.iter().any(|class| class == object.class()) {
                    assembly.add(settings, object);
                }
            }
        }
    }
    assembly.regex_stanzas();
    assembly.project_settings();
    let Assembly { layout, mut problems, .. } = assembly;
    validate::validate(&layout, tenant, &mut problems);
    (layout, problems)
}

const STAGES: usize = 9;

fn stage_of(object: &Object) -> usize {
    match object {
        Object::Pipeline(_) => 0,
        Object::Nodeset(_) => 1,
        Object::Secret(_) => 2,
        Object::Job(_) => 3,
        Object::Named(_) => 4,
        Object::Semaphore(_) => 5,
        Object::Queue(_) => 6,
        Object::Template(_) => 7,
        Object::Project(_) => 8,
    }
}

struct Assembly<'a> {
    tenant: &'a TenantSettings,
    by_name: BTreeMap<&'a str, &'a TenantProject>,
    layout: Layout,
    problems: Vec<Problem>,
    /// Branches on which a singleton was defined: (class, name) to its branches.
    seen: BTreeMap<(String, String), BTreeSet<String>>,
    /// Stanzas whose name is a regular expression, for after all others.
    by_regex: Vec<Shared<ProjectStanza>>,
}

/// An object of which there is one, though every branch may hold a copy.
trait Singleton: Clone + PartialEq {
    fn place(&self) -> &Place;
    fn without_place(&self) -> Self;
}

macro_rules! singletons {
    ($($kind:ty),*) => {$(
        impl Singleton for $kind {
            fn place(&self) -> &Place {
                &self.place
            }

            fn without_place(&self) -> Self {
                Self { place: Place::default(), ..self.clone() }
            }
        }
    )*};
}

singletons!(Nodeset, Secret, Semaphore, Queue, NamedObject);

impl<'a> Assembly<'a> {
    fn new(tenant: &'a TenantSettings) -> Self {
        let projects = tenant.projects.iter();
        let mut short_names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for project in projects.clone() {
            short_names.entry(project.name.clone()).or_default().push(project.canonical_name.clone());
        }
        Assembly {
            tenant,
            by_name: projects.clone().map(|project| (project.canonical_name.as_str(), project)).collect(),
            layout: Layout {
                tenant: tenant.name.clone(),
                default_parent: tenant.default_parent.clone(),
                default_ansible_version: tenant.default_ansible_version.clone(),
                max_job_timeout: tenant.max_job_timeout,
                max_nodes_per_job: tenant.max_nodes_per_job,
                projects: projects
                    .map(|project| (project.canonical_name.clone(), LayoutProject::from(project)))
                    .collect(),
                short_names,
                jobs: BTreeMap::from([(JobDefinition::NOOP.to_owned(), vec![Shared::new(JobDefinition::noop())])]),
                ..Layout::default()
            },
            problems: Vec::new(),
            seen: BTreeMap::new(),
            by_regex: Vec::new(),
        }
    }

    fn settings(&self, canonical_name: &str) -> Option<&'a TenantProject> {
        self.by_name.get(canonical_name).copied()
    }

    fn error(&mut self, code: &str, label: &str, place: &Place, message: String, cure: impl Into<String>) {
        self.problems.push(Problem::error(code, label, place.clone(), message).cure(cure));
    }

    fn add(&mut self, settings: &'a TenantProject, object: &Object) {
        match object {
            Object::Pipeline(pipeline) => self.add_pipeline(pipeline),
            Object::Job(job) => self.add_job(settings, job),
            Object::Template(template) => self.add_template(template),
            Object::Project(stanza) => self.add_stanza(settings, stanza),
            Object::Nodeset(object) => {
                let known = self.layout.nodesets.get(&object.name).cloned();
                if self.singleton("nodeset", &object.name, &**object, known.as_deref()) {
                    self.layout.nodesets.insert(object.name.clone(), object.clone());
                }
            }
            Object::Secret(object) => {
                let known = self.layout.secrets.get(&object.name).cloned();
                if self.singleton("secret", &object.name, &**object, known.as_deref()) {
                    self.layout.secrets.insert(object.name.clone(), object.clone());
                }
            }
            Object::Semaphore(object) => {
                if self.tenant.semaphores.contains(&object.name) {
                    let message = format!("the semaphore \"{}\" is a global one of this tenant", object.name);
                    self.error("semaphore-is-global", "Unknown", &object.place, message, "choose another name");
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

    /// Zuul: the same name in another project, or twice on one branch, is an error; on another
    /// branch of the same project it must be the same.
    fn singleton<T: Singleton>(&mut self, class: &str, name: &str, object: &T, known: Option<&T>) -> bool {
        let context = object.place().context.clone();
        let branches = self.seen.entry((class.to_owned(), name.to_owned())).or_default();
        let Some(known) = known else {
            branches.insert(context.branch.clone());
            return true;
        };
        let here = known.place().to_string();
        if known.place().context.project != context.project {
            let project = known.place().context.project.clone();
            let message = format!("the {class} \"{name}\" is already defined in project {project}");
            self.error(
                "defined-in-other-project",
                "Unknown",
                object.place(),
                message,
                format!("see {here}; choose another name"),
            );
        } else if !branches.insert(context.branch.clone()) {
            let message = format!("the {class} \"{name}\" is already defined");
            self.error("defined-twice", "Unknown", object.place(), message, format!("see {here}; keep one of the two"));
        } else if known.without_place() != object.without_place() {
            let branch = known.place().context.branch.clone();
            let message = format!("the {class} \"{name}\" does not match its definition in branch {branch}");
            let cure = format!("see {here}; a {class} must be the same on all branches, or have another name on each");
            self.error("differs-between-branches", "Unknown", object.place(), message, cure);
        }
        false
    }

    fn add_pipeline(&mut self, pipeline: &Shared<Pipeline>) {
        if let Some(known) = self.layout.pipelines.get(&pipeline.name) {
            let cure = format!("see {}; keep one of the two", known.place);
            let message = format!("the pipeline \"{}\" is already defined", pipeline.name);
            self.error("defined-twice", "Unknown", &pipeline.place, message, cure);
            return;
        }
        self.layout.pipeline_order.push(pipeline.name.clone());
        self.layout.pipelines.insert(pipeline.name.clone(), pipeline.clone());
    }

    fn add_job(&mut self, settings: &TenantProject, job: &Shared<JobDefinition>) {
        if job.parent == Parent::Base && !(settings.trusted && settings.allow_base_jobs) {
            let message = format!("the job \"{}\" has no parent, and this project may not define base jobs", job.name);
            let cure = "name a parent, or leave `parent` out for the tenant's default parent";
            self.error("base-job-not-permitted", "Base Job Forbidden", &job.place, message, cure);
            return;
        }
        let foreign = self
            .layout
            .definitions(&job.name)
            .iter()
            .find(|other| other.place.context.project != job.place.context.project)
            .map(|other| other.place.clone());
        if let Some(place) = foreign {
            if settings.shadow.iter().any(|name| self.is_project(name, &place.context.project)) {
                return;
            }
            let message = if place.context.project.is_empty() {
                format!("the job \"{}\" is built in", job.name)
            } else {
                format!(
                    "the job \"{}\" is defined in project {} and may not be shadowed",
                    job.name, place.context.project
                )
            };
            let cure = format!("see {place}; choose another name, or let the tenant file say `shadow`");
            self.error("job-shadowed", "Unknown", &job.place, message, cure);
            return;
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
                    let problem = Problem::error("max-timeout", "Max Timeout Exceeded", place, message);
                    self.problems.push(problem.about(name).cure("lower it, or ask for a larger max-job-timeout"));
                    return;
                }
            }
        }
        self.layout.jobs.entry(job.name.clone()).or_default().push(job.clone());
    }

    fn is_project(&self, name: &str, canonical_name: &str) -> bool {
        name == canonical_name || self.layout.projects.get(canonical_name).is_some_and(|project| project.name == name)
    }

    fn add_template(&mut self, template: &Shared<ProjectTemplate>) {
        let variants = self.layout.templates.entry(template.name.clone()).or_default();
        let foreign = variants
            .iter()
            .find(|other| other.place.context.project != template.place.context.project)
            .map(|other| other.place.clone());
        if let Some(place) = foreign {
            let message =
                format!("the template \"{}\" is already defined in project {}", template.name, place.context.project);
            let cure = format!("see {place}; choose another name");
            self.error("defined-in-other-project", "Unknown", &template.place, message, cure);
            return;
        }
        variants.push(template.clone());
    }

    fn add_stanza(&mut self, settings: &TenantProject, stanza: &Shared<ProjectStanza>) {
        match &stanza.name {
            Some(name) if name.starts_with('^') => self.by_regex.push(stanza.clone()),
            Some(name) => match self.layout.project(name).cloned() {
                Ok(project) => {
                    if self.may_configure(settings, stanza, &project) {
                        self.push_stanza(project.canonical_name, stanza);
                    }
                }
                Err(error) => {
                    let problem = project_problem(&self.layout, &error, stanza.place.clone());
                    self.problems.push(problem.about("name"));
                }
            },
            None => self.push_stanza(settings.canonical_name.clone(), stanza),
        }
    }

    fn push_stanza(&mut self, canonical_name: String, stanza: &Shared<ProjectStanza>) {
        self.layout.stanzas.entry(canonical_name).or_default().push(stanza.clone());
    }

    fn may_configure(&mut self, settings: &TenantProject, stanza: &ProjectStanza, project: &LayoutProject) -> bool {
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
        for stanza in std::mem::take(&mut self.by_regex) {
            let Some(settings) = self.settings(&stanza.place.context.project) else { continue };
            let pattern = Pattern::new(stanza.name.clone().unwrap_or_default(), false, Anchor::Whole);
            let matched: Vec<LayoutProject> = self
                .layout
                .projects
                .values()
                .filter(|project| pattern.matches(&project.name) || pattern.matches(&project.canonical_name))
                .cloned()
                .collect();
            for project in matched {
                if !self.may_configure(settings, &stanza, &project) {
                    break;
                }
                self.push_stanza(project.canonical_name, &stanza);
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
            Problem::error("project-ambiguous", "Unknown", place, error.to_string()).cure("use the canonical name")
        }
    }
}
