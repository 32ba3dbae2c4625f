//! What the gate reads of a layout: pipelines, queues, how projects are merged.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_record::draft::gate::{EnqueueAsked, TimerName};
use gatelog_record::{Value, codec};
use gatelog_rules_config::freeze::matchers::{BranchMatcher, stanza_matcher};
use gatelog_rules_config::objects::parameter::{self, Parameter};
use gatelog_rules_config::objects::queue::{Queue, QueueType};
use gatelog_rules_config::{FreezeSubject, Layout, Pipeline, Shared, timers};

/// How changes of a project without a word about it are merged.
const DEFAULT_MERGE_MODE: &str = "merge";

/// The part of a layout the gate decides by. Jobs are left out: they are frozen elsewhere.
#[derive(Clone, Debug, Default)]
pub struct LayoutView {
    pipelines: Vec<Shared<Pipeline>>,
    projects: BTreeMap<String, ProjectView>,
    in_pipeline: BTreeSet<(String, String)>,
    semaphores: BTreeMap<String, u64>,
    max_changes_per_pipeline: Option<u64>,
    max_dependencies: Option<u64>,
    /// By project and pipeline; of one that is declared for several branches in different ways, each.
    parameters: BTreeMap<(String, String), Vec<Parameter>>,
    timers: BTreeSet<TimerName>,
}

#[derive(Clone, Debug, Default)]
struct ProjectView {
    merge_mode: Option<String>,
    queue: Option<QueueView>,
    /// Queues that some of its branches are assigned to, in the order of the stanzas.
    assigned: Vec<(BranchMatcher, QueueView)>,
}

#[derive(Clone, Debug)]
struct QueueView {
    name: String,
    per_branch: bool,
    circular: bool,
    by_topic: bool,
}

impl From<&Queue> for QueueView {
    fn from(queue: &Queue) -> QueueView {
        QueueView {
            name: queue.name.clone(),
            per_branch: queue.kind == QueueType::PerBranch,
            circular: queue.allow_circular_dependencies,
            by_topic: queue.dependencies_by_topic,
        }
    }
}

impl ProjectView {
    /// Zuul: the first stanza, or template of it, that names a queue decides; a `branch-assigned` one takes only the
    /// branches of the stanzas that name it.
    fn of(layout: &Layout, name: &str, merge_mode: Option<String>) -> ProjectView {
        let mut view = ProjectView { merge_mode, ..ProjectView::default() };
        for stanza in layout.stanzas.get(name).map_or(&[][..], Vec::as_slice) {
            let own = || stanza_matcher(layout, &stanza.place, stanza.branches.as_deref(), &stanza.pragma, Some(name));
            view.take(layout, stanza.queue.as_deref(), own);
            let templates = stanza.templates.iter().filter_map(|name| layout.templates.get(name));
            for template in templates.flatten() {
                let of_template = || stanza_matcher(layout, &template.place, None, &template.pragma, None);
                view.take(layout, template.queue.as_deref(), of_template);
            }
        }
        view
    }

    fn take(&mut self, layout: &Layout, queue: Option<&str>, matcher: impl FnOnce() -> BranchMatcher) {
        let Some(name) = queue else { return };
        let defined = layout.queues.get(name);
        if let Some(queue) = defined.filter(|queue| queue.kind == QueueType::BranchAssigned) {
            self.assigned.push((matcher(), QueueView::from(&**queue)));
        } else if self.queue.is_none() {
            let implicit = || QueueView::from(&Queue::implicit(name));
            self.queue = Some(defined.map_or_else(implicit, |queue| QueueView::from(&**queue)));
        }
    }

    fn queue_for(&self, branch: Option<&str>) -> Option<&QueueView> {
        let subject = FreezeSubject { branch: branch.map(str::to_owned), ..FreezeSubject::default() };
        let assigned = self.assigned.iter().find(|(matcher, _)| matcher.matches(&subject, None));
        assigned.map(|(_, queue)| queue).or(self.queue.as_ref())
    }
}

impl LayoutView {
    /// The view of a layout's blob.
    ///
    /// # Errors
    /// When the bytes are not a layout.
    pub fn decode(bytes: &[u8]) -> Result<LayoutView, String> {
        let layout: Layout = codec::decode(bytes).map_err(|error| format!("it is not a layout: {error}"))?;
        Ok(LayoutView::of(&layout))
    }

    /// The view of a layout.
    pub fn of(layout: &Layout) -> LayoutView {
        let pipelines = layout.pipeline_order.iter().filter_map(|name| layout.pipelines.get(name)).cloned();
        let mut view = LayoutView { pipelines: pipelines.collect(), ..LayoutView::default() };
        view.max_changes_per_pipeline = layout.max_changes_per_pipeline.and_then(|limit| u64::try_from(limit).ok());
        let known = layout.semaphores.keys().chain(layout.global_semaphores.keys());
        let room = |name: &String| u64::try_from(layout.semaphore_max(name)).unwrap_or(1).max(1);
        view.semaphores = known.map(|name| (name.clone(), room(name))).collect();
        view.max_dependencies = layout.max_dependencies.and_then(|limit| u64::try_from(limit).ok());
        for (name, project) in &layout.projects {
            view.projects.insert(name.clone(), ProjectView::of(layout, name, project.merge_mode.clone()));
        }
        for (project, stanzas) in &layout.stanzas {
            for stanza in stanzas {
                let own = stanza.pipelines.keys();
                let templates = stanza.templates.iter().filter_map(|name| layout.templates.get(name));
                let templates = templates.flatten().flat_map(|template| template.pipelines.keys());
                view.in_pipeline.extend(own.chain(templates).map(|pipeline| (project.clone(), pipeline.clone())));
                let templates = stanza.templates.iter().filter_map(|name| layout.templates.get(name)).flatten();
                let templates = templates.flat_map(|template| &template.pipelines);
                for (pipeline, entry) in stanza.pipelines.iter().chain(templates) {
                    let declared: Vec<Parameter> = entry.parameters.iter().filter_map(Parameter::read).collect();
                    if !declared.is_empty() {
                        view.parameters.entry((project.clone(), pipeline.clone())).or_default().extend(declared);
                    }
                }
            }
        }
        let named = |timer: timers::Timer| {
            let timers::Timer { pipeline, project, branch, time, dereference, .. } = timer;
            TimerName { pipeline, project, branch, time, dereference }
        };
        view.timers = timers::of_layout(layout).into_iter().map(named).collect();
        view
    }

    /// The timers: which branches enter which pipelines by the calendar.
    pub fn timers(&self) -> &BTreeSet<TimerName> {
        &self.timers
    }

    /// What somebody who asks for a branch or tag gives for the parameters that its project declares for the pipeline, on
    /// whatever branch, as values of the types declared. Which of them are declared for the branch itself shows when its jobs are frozen.
    ///
    /// # Errors
    /// Why it cannot be taken, for people. Zuul: what is not declared, or none of the values listed, is dropped without
    /// a word.
    pub fn parameters(&self, asked: &EnqueueAsked) -> Result<BTreeMap<String, Value>, String> {
        if asked.parameters.is_empty() {
            return Ok(BTreeMap::new());
        }
        if !asked.takes_parameters() {
            return Err("parameters are for branches and tags: name one with its full ref".to_owned());
        }
        let (project, pipeline) = (&asked.change.project, &asked.pipeline);
        let declared = self.parameters.get(&(project.clone(), pipeline.clone()));
        let declared = declared.map(Vec::as_slice).unwrap_or_default();
        if declared.is_empty() {
            return Err(format!("{project} declares no parameters for {pipeline}"));
        }
        let given = asked.parameters.iter();
        given.map(|(name, value)| Ok((name.clone(), parameter::take(declared, name, value)?))).collect()
    }

    /// The pipelines in the order of their definition.
    pub fn pipelines(&self) -> &[Shared<Pipeline>] {
        &self.pipelines
    }

    /// The pipeline of this name.
    pub fn pipeline(&self, name: &str) -> Option<&Shared<Pipeline>> {
        self.pipelines.iter().find(|pipeline| pipeline.name == name)
    }

    /// How changes of a project are merged, in Zuul's words.
    pub fn merge_mode(&self, project: &str) -> &str {
        let mode = self.projects.get(project).and_then(|project| project.merge_mode.as_deref());
        mode.unwrap_or(DEFAULT_MERGE_MODE)
    }

    fn queue(&self, project: &str, branch: Option<&str>) -> Option<&QueueView> {
        self.projects.get(project)?.queue_for(branch)
    }

    /// The queue changes of a branch share in a pipeline: a named one, or the project's own. Zuul: a project that
    /// takes no part in the pipeline has one to itself, whatever it names.
    pub fn queue_name(&self, pipeline: &str, project: &str, branch: Option<&str>) -> String {
        match self.queue(project, branch).filter(|_| self.in_pipeline(project, pipeline)) {
            Some(queue) if queue.per_branch => format!("{}:{}", queue.name, branch.unwrap_or_default()),
            Some(queue) => queue.name.clone(),
            None => project.to_owned(),
        }
    }

    /// Whether changes of this branch may need each other in a circle.
    pub fn allows_cycles(&self, project: &str, branch: Option<&str>) -> bool {
        self.queue(project, branch).is_some_and(|queue| queue.circular)
    }

    /// Whether open changes of one topic need each other on this branch. Zuul: `dependencies-by-topic`.
    pub fn by_topic(&self, project: &str, branch: Option<&str>) -> bool {
        self.queue(project, branch).is_some_and(|queue| queue.by_topic)
    }

    /// How many changes may be in one pipeline; none is without limit.
    pub fn max_changes_per_pipeline(&self) -> Option<u64> {
        self.max_changes_per_pipeline
    }

    /// How many of the changes that one hangs together with may need others; none is without limit.
    pub fn max_dependencies(&self) -> Option<u64> {
        self.max_dependencies
    }

    /// How many builds may hold a semaphore. Zuul: one that nobody defines, one.
    pub fn semaphore_max(&self, name: &str) -> u64 {
        self.semaphores.get(name).copied().unwrap_or(1)
    }

    /// Whether a project names a pipeline, itself or by a template.
    pub fn in_pipeline(&self, project: &str, pipeline: &str) -> bool {
        self.in_pipeline.contains(&(project.to_owned(), pipeline.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatelog_rules_config::{ConfigFile, LoadInput, TenantProject, TenantSettings, load};

    const CONFIG: &str = "
- pipeline: {name: check, manager: independent, trigger: {git: [{event: change-proposed}]}}
- pipeline: {name: gate, manager: dependent, trigger: {git: [{event: change-approved}]}}
- job: {name: base, parent: null, run: run.yaml}
- queue: {name: both, per-branch: true, allow-circular-dependencies: true}
- queue: {name: old, type: branch-assigned, allow-circular-dependencies: true}
- project-template: {name: usual, check: {jobs: [base]}}
- project: {name: few, branches: stable/.*, queue: old, gate: {jobs: [base]}}
- project: {name: few, queue: new, gate: {jobs: [base]}}
- project: {name: lib, queue: both, merge-mode: cherry-pick, gate: {jobs: [base]}}
- project: {name: app, templates: [usual]}
";

    fn view() -> LayoutView {
        let mut tenant = TenantSettings { name: "acme".into(), ..TenantSettings::default() };
        for (name, trusted) in [("config", true), ("lib", false), ("app", false), ("few", false)] {
            let mut project = TenantProject::new("git", name, trusted);
            project.canonical_name = format!("forge/{name}");
            project.branches = vec!["master".into()];
            tenant.projects.push(project);
        }
        let file = ConfigFile {
            project: "forge/config".into(),
            branch: "master".into(),
            path: "zuul.yaml".into(),
            text: CONFIG.into(),
        };
        let (layout, problems) = load(&LoadInput { tenant, files: vec![file] });
        assert!(problems.is_empty(), "{problems:?}");
        LayoutView::decode(&codec::encode(&layout).unwrap()).unwrap()
    }

    #[test]
    fn a_layouts_blob_says_what_the_gate_must_know() {
        let view = view();
        let names: Vec<&str> = view.pipelines().iter().map(|pipeline| pipeline.name.as_str()).collect();
        assert_eq!(names, ["check", "gate"]);
        assert_eq!(view.queue_name("gate", "forge/lib", Some("stable")), "both:stable");
        assert_eq!(view.queue_name("check", "forge/lib", Some("stable")), "forge/lib");
        assert_eq!(view.queue_name("check", "forge/app", Some("master")), "forge/app");
        assert_eq!(view.queue_name("gate", "forge/few", Some("stable/1")), "old");
        assert_eq!(view.queue_name("gate", "forge/few", Some("master")), "new");
        assert_eq!([view.merge_mode("forge/lib"), view.merge_mode("forge/app")], ["cherry-pick", "merge"]);
        let circles = |project: &str, branch: &str| view.allows_cycles(&format!("forge/{project}"), Some(branch));
        assert_eq!([circles("lib", "master"), circles("app", "master")], [true, false]);
        assert_eq!([circles("few", "stable/1"), circles("few", "master")], [true, false]);
        let asked = [("lib", "gate"), ("lib", "check"), ("app", "check"), ("app", "gate")];
        let told = asked.map(|(project, pipeline)| view.in_pipeline(&format!("forge/{project}"), pipeline));
        assert_eq!(told, [true, false, true, false]);
    }

    #[test]
    fn bytes_that_are_no_layout_are_named_so() {
        assert!(LayoutView::decode(b"nonsense").unwrap_err().starts_with("it is not a layout"));
    }
}
