//! The layouts that changes are tested with, as the effect makes them.
#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::sync::Arc;

use gatelog_driver_contract::{
    Branch, CodeReview, Connection, Connections, DriverSchema, Found, Landing, Source, Target, Trouble,
};
use gatelog_effects::git::Repositories;
use gatelog_effects::layout;
use gatelog_event_log::{Blobs, MemoryBlobs};
use gatelog_merging::{Mirrors, MirrorsConfig};
use gatelog_record::draft::gate::{
    ChangeKey, ChangesWanted, ConfigFile, ConfigFileSet, ConfigRemark, LayoutOutcome, LayoutPurpose, LayoutWanted,
    ProjectBranch,
};
use gatelog_record::{BlobHash, BuildsetId, ItemId, WorkId, codec};
use gatelog_rules_config::tenant::default_classes;
use gatelog_rules_config::{Layout, TenantProject, TenantSettings};
use gatelog_secrets::Keyring;

const HOST: &str = "git.test";

/// A forge that nobody asks.
struct Nobody;

const SCHEMA: DriverSchema = DriverSchema::silent("nobody");

impl CodeReview for Nobody {
    fn canonical_hostname(&self) -> &str {
        HOST
    }
    fn source(&self, _: &str) -> Result<Source, Trouble> {
        unreachable!("nothing is read")
    }
    fn find_changes(&self, _: &ChangesWanted) -> Result<Found, Trouble> {
        unreachable!("nobody asks")
    }
    fn change_by_url(&self, _: &str) -> Result<Option<ChangeKey>, Trouble> {
        unreachable!("nobody asks")
    }
    fn changes_by_commit(&self, _: &str, _: &str) -> Result<Vec<ChangeKey>, Trouble> {
        unreachable!("nobody asks")
    }
    fn branches(&self, _: &str) -> Result<Vec<Branch>, Trouble> {
        unreachable!("nobody asks")
    }
    fn default_branch(&self, _: &str) -> Result<Option<String>, Trouble> {
        unreachable!("nobody asks")
    }
    fn submit_all(&self, _: WorkId, _: &[Target<'_>]) -> Result<Vec<Landing>, Trouble> {
        unreachable!("nobody merges")
    }
}

/// A site with a config project and another, whose layouts are made by their files.
struct Site {
    repositories: Repositories,
    keyring: Keyring,
    settings: BlobHash,
    _dir: tempfile::TempDir,
}

/// What was made.
struct Made {
    hash: BlobHash,
    problems: BlobHash,
    layout: Layout,
    introduced: Vec<ConfigRemark>,
    warnings: Vec<ConfigRemark>,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().unwrap();
        let mut connections = Connections::default();
        let forge = Connection::new("forge", &SCHEMA);
        connections.add(forge.with_review(Arc::new(Nobody)));
        let mirrors = Arc::new(Mirrors::open(MirrorsConfig::new(dir.path().join("mirrors"))).unwrap());
        let blobs = Arc::new(MemoryBlobs::new());
        // By itself an untrusted project has no machines; this tenant lets it.
        let app = TenantProject { include: default_classes(true), ..TenantProject::new("forge", "app", false) };
        let tenant = TenantSettings {
            name: "example".into(),
            connections: vec!["forge".into()],
            projects: vec![TenantProject::new("forge", "conf", true), app],
            ..TenantSettings::default()
        };
        let settings = blobs.put(&codec::encode(&tenant).unwrap()).unwrap();
        let keyring = Keyring::open_dir(dir.path().join("keys")).unwrap();
        Site {
            repositories: Repositories { mirrors, connections, blobs, begun: Arc::default() },
            keyring,
            settings,
            _dir: dir,
        }
    }

    fn wanted(&self, conf: &str, app: &str) -> LayoutWanted {
        let set = |project: &str, text: &str| ConfigFileSet {
            at: at(project),
            default: true,
            commit: "c".into(),
            files: vec![ConfigFile {
                path: "zuul.yaml".into(),
                blob: self.repositories.blobs.put(text.as_bytes()).unwrap(),
            }],
        };
        LayoutWanted {
            work: WorkId([1; 16]),
            tenant: "example".into(),
            purpose: LayoutPurpose::Tenant,
            item: None,
            buildset: None,
            settings: self.settings,
            files: vec![set("conf", conf), set("app", app)],
            ahead: None,
            changed: Vec::new(),
            base: None,
        }
    }

    fn made(&self, wanted: &LayoutWanted) -> Made {
        let outcome = layout::make(&self.repositories, &self.keyring, wanted);
        let LayoutOutcome::Made { layout: hash, problems, introduced, warnings, .. } = outcome else {
            panic!("{outcome:?}")
        };
        let layout = codec::decode(&self.repositories.blobs.get(&hash).unwrap()).unwrap();
        Made { hash, problems, layout, introduced, warnings }
    }

    fn of_tenant(&self, conf: &str, app: &str) -> Made {
        self.made(&self.wanted(conf, app))
    }

    /// Of a change to `app`, with what the tenant has.
    fn of_change(&self, tenant: &Made, conf: &str, app: &str) -> LayoutWanted {
        LayoutWanted {
            purpose: LayoutPurpose::Use,
            item: Some(ItemId([2; 16])),
            buildset: Some(BuildsetId([3; 16])),
            ahead: Some(tenant.problems),
            changed: vec![at("app")],
            base: Some(tenant.hash),
            ..self.wanted(conf, app)
        }
    }
}

fn at(project: &str) -> ProjectBranch {
    ProjectBranch { connection: "forge".into(), project: format!("{HOST}/{project}"), branch: "master".into() }
}

const CONF: &str = "
- pipeline: {name: gate, manager: dependent, trigger: {}}
- job: {name: base, parent: null, run: run.yaml}
";

const APP: &str = "
- image: {name: i, type: cloud}
- flavor: {name: f}
- label: {name: l, image: i, flavor: f}
- section: {name: s, connection: forge, region: old, flavors: [f], images: [i]}
- provider: {name: p, section: s, labels: [l]}
- semaphore: {name: rig, max: 1}
- queue: {name: shared}
- job: {name: held, semaphores: [rig]}
- project: {queue: shared, gate: {jobs: [held]}}
";

/// The same with everything that is static another.
const CHANGED: &str = "
- image: {name: i, type: cloud}
- flavor: {name: f}
- label: {name: l, image: i, flavor: f}
- label: {name: l2, image: i, flavor: f}
- section: {name: s, connection: forge, region: new, flavors: [f], images: [i]}
- section: {name: s2, connection: forge}
- provider: {name: p, section: s, labels: [l, l2]}
- provider: {name: p2, section: s2}
- semaphore: {name: rig, max: 5}
- semaphore: {name: rig2, max: 5}
- queue: {name: shared, per-branch: true}
- queue: {name: other}
- job: {name: held, semaphores: [rig, rig2], timeout: 60}
- project: {queue: other, gate: {jobs: [held]}}
";

#[test]
fn what_is_static_in_a_changes_layout_is_the_tenants_own() {
    let site = Site::new();
    let tenant = site.of_tenant(CONF, APP);
    // Even a pipeline, which only a config project has, and which is meanwhile another than the one in force.
    let conf = CONF.replace("gate, manager: dependent", "later, manager: independent");
    let app = CHANGED.replace("gate:", "later:");
    let made = site.made(&site.of_change(&tenant, &conf, &app)).layout;
    let (own, known) = (&made, &tenant.layout);
    assert_eq!(own.pipelines, known.pipelines);
    assert_eq!(own.pipeline_order, known.pipeline_order);
    assert_eq!(own.semaphores, known.semaphores);
    assert_eq!(own.named["section"], known.named["section"]);
    assert_eq!(own.named["provider"], known.named["provider"]);
    let app = format!("{HOST}/app");
    assert_eq!(own.projects[&app].queue.as_deref(), Some("shared"));
    assert_eq!(own.queues["shared"], known.queues["shared"]);
    // What is not static is the change's.
    assert_ne!(own.jobs["held"], known.jobs["held"]);
    assert!(own.named["label"].contains_key("l2"));
    // Without the tenant's layout it is all its own.
    let alone = site.made(&LayoutWanted { base: None, ..site.of_change(&tenant, CONF, CHANGED) }).layout;
    assert_eq!(alone.semaphores["rig"].max, 5);
    assert_eq!(alone.projects[&app].queue.as_deref(), Some("other"));
    assert!(alone.named["provider"].contains_key("p2"));
}

#[test]
fn what_is_wrong_with_it_is_told_though_it_does_not_count() {
    let site = Site::new();
    let tenant = site.of_tenant(CONF, APP);
    let app = CHANGED.to_owned() + "- semaphore: {name: rig, max: 6}\n- job: {name: old, files: ['^(?!doc/)']}\n";
    let made = site.made(&site.of_change(&tenant, CONF, &app));
    assert_eq!(made.layout.semaphores, tenant.layout.semaphores);
    let told = |remarks: &[ConfigRemark], code: &str| {
        let remarks = remarks.iter().filter(|remark| remark.text.contains(code));
        remarks.map(|remark| (remark.path.clone(), remark.line)).collect::<Vec<_>>()
    };
    assert_eq!(made.introduced.len(), 1, "{:?}", made.introduced);
    assert_eq!(told(&made.introduced, "error[defined-twice]"), [("zuul.yaml".to_owned(), 16)]);
    assert_eq!(made.warnings.len(), 1, "{:?}", made.warnings);
    assert_eq!(told(&made.warnings, "warning[regex-deprecation]"), [("zuul.yaml".to_owned(), 17)]);
    // To the tenant nobody brought anything.
    let again = site.of_tenant(CONF, &app);
    assert!(again.introduced.is_empty() && again.warnings.is_empty());
}

#[test]
fn a_change_without_the_layout_it_is_tested_beside_gets_none() {
    let site = Site::new();
    let tenant = site.of_tenant(CONF, APP);
    let wanted = LayoutWanted { base: Some(BlobHash([7; 32])), ..site.of_change(&tenant, CONF, CHANGED) };
    let outcome = layout::make(&site.repositories, &site.keyring, &wanted);
    assert!(matches!(&outcome, LayoutOutcome::Failed { code, .. } if code == "blob-missing"), "{outcome:?}");
}
