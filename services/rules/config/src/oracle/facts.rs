//! What a tenant comes to besides its jobs.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::drivers::BUILT_IN;
use crate::layout::Layout;
use crate::objects::Pipeline;
use crate::objects::pipeline::{ACTIONS, Manager, Precedence, Step};
use crate::objects::queue::QueueType;
use crate::tenant::TenantSettings;

pub(super) fn facts(settings: &TenantSettings, layout: &Layout, site: bool) -> Map<String, Json> {
    let mut facts = Map::new();
    let mut put = |name: &str, value: Json| {
        facts.insert(name.to_owned(), value);
    };
    put("default_base_job", json!(layout.default_parent));
    put("default_ansible_version", json!(layout.default_ansible_version));
    put("pipelines", by_name(layout.pipelines_in_order().map(|one| (one.name.clone(), pipeline(settings, one)))));
    let queue = |queue: &crate::objects::Queue| {
        json!({
            "per_branch": null,
            "type": match queue.kind {
                QueueType::AllBranches => "all-branches",
                QueueType::PerBranch => "per-branch",
                QueueType::BranchAssigned => "branch-assigned",
            },
            "allow_circular_dependencies": queue.allow_circular_dependencies,
            "dependencies_by_topic": queue.dependencies_by_topic,
        })
    };
    put("queues", by_name(layout.queues.iter().map(|(name, one)| (name.clone(), queue(one)))));
    put("semaphores", by_name(layout.semaphores.iter().map(|(name, one)| (name.clone(), json!({"max": one.max})))));
    put("nodesets", json!(layout.nodesets.keys().collect::<Vec<_>>()));
    put("secrets", json!(layout.secrets.keys().collect::<Vec<_>>()));
    put("project_templates", by_name(layout.templates.iter().map(|(name, all)| (name.clone(), json!(all.len())))));
    put("job_variants", by_name(layout.jobs.iter().map(|(name, all)| (name.clone(), json!(all.len())))));
    let projects = settings.projects.iter().map(|project| {
        let known = layout.projects.get(&project.canonical_name);
        let stanzas = layout.stanzas.get(&project.canonical_name).map_or(0, Vec::len);
        let mut classes = project.include.clone();
        classes.sort();
        classes.dedup();
        // Zuul knows these of projects with a stanza only.
        let known = known.filter(|_| stanzas > 0);
        let driver = settings.drivers.get(&project.connection).map(String::as_str);
        let fact = json!({
            "trusted": project.trusted,
            "branches": project.branches,
            "merge_mode": known.map(|known| known.merge_mode.clone().unwrap_or_else(|| usual_merge(driver, site).to_owned())),
            "default_branch": known.map(|known| &known.default_branch),
            "queue": known.and_then(|known| known.queue.as_ref()),
            "load_classes": classes,
            "stanzas": stanzas,
        });
        (project.canonical_name.clone(), fact)
    });
    put("projects", by_name(projects));
    facts
}

fn by_name(all: impl Iterator<Item = (String, Json)>) -> Json {
    Json::Object(all.collect())
}

/// How changes are merged when nobody says.
fn usual_merge(driver: Option<&str>, site: bool) -> &'static str {
    match driver {
        // What the host of Zuul's own fixtures offers.
        Some("github") if !site => "merge-ort",
        Some("github" | "gitlab" | "pagure") => "merge",
        _ => "merge-resolve",
    }
}

fn pipeline(settings: &TenantSettings, pipeline: &Pipeline) -> Json {
    let step = |step: Step| match step {
        Step::Linear => "linear",
        Step::Exponential => "exponential",
    };
    let driver = |connection: &String| -> String {
        let built_in = BUILT_IN.contains(&connection.as_str()).then_some(connection);
        built_in.or_else(|| settings.drivers.get(connection)).cloned().unwrap_or_else(|| connection.clone())
    };
    let reporters: BTreeMap<String, Vec<String>> = ACTIONS
        .iter()
        .map(|action| {
            let mut classes: Vec<String> =
                pipeline.reporters(action).keys().map(|connection| reporter_class(&driver(connection))).collect();
            classes.sort();
            (action.replace('-', "_"), classes)
        })
        .collect();
    let mut triggers: Vec<String> = pipeline.triggers.keys().map(driver).collect();
    triggers.sort();
    triggers.dedup();
    json!({
        "manager": match pipeline.manager {
            Manager::Independent => "independent",
            Manager::Dependent => "dependent",
            Manager::Serial => "serial",
            Manager::Supercedent => "supercedent",
        },
        "precedence": match pipeline.precedence {
            Precedence::High => 2,
            Precedence::Normal => 0,
            Precedence::Low => 1,
        },
        "post_review": pipeline.post_review,
        "supercedes": pipeline.supercedes,
        "allow_other_connections": pipeline.allow_other_connections,
        "dequeue_on_new_patchset": pipeline.dequeue_on_new_patchset,
        "ignore_dependencies": pipeline.ignore_dependencies,
        "fail_fast": null,
        "window": pipeline.window.size,
        "window_floor": pipeline.window.floor,
        "window_ceiling": pipeline.window.ceiling.map_or_else(|| json!("inf"), |ceiling| json!(ceiling)),
        "window_increase_type": step(pipeline.window.increase),
        "window_increase_factor": pipeline.window.increase_factor,
        "window_decrease_type": step(pipeline.window.decrease),
        "window_decrease_factor": pipeline.window.decrease_factor,
        "triggers": triggers,
        "reporters": reporters,
    })
}

fn reporter_class(driver: &str) -> String {
    match driver {
        "smtp" => "SMTPReporter".to_owned(),
        "mqtt" => "MQTTReporter".to_owned(),
        "sql" => "SQLReporter".to_owned(),
        other => {
            let mut letters = other.chars();
            let first: String = letters.next().map(|c| c.to_ascii_uppercase()).into_iter().collect();
            format!("{first}{}Reporter", letters.as_str())
        }
    }
}
