//! The same configurations through the real Zuul and through us: frozen jobs and problems compared
//! field by field.
//!
//! The documents of the real Zuul are not part of the tree. `GATELOG_PEER` names the folder with
//! `oracle/` in it, `GATELOG_ZUUL_FIXTURES` Zuul's own `tests/fixtures`, `GATELOG_CORPUS` the folder
//! with the `openstack` corpus, `GATELOG_SEEDS` that with the documents whose examples are older
//! spellings; without them the tests say SKIPPED. What may differ stands in
//! `conformance/allow.json`, at most five entries.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "reads the documents and folders it compares from the disk, and says how many it compared"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use gatelog_record::codec;
use gatelog_rules_config::folder::Folder;
use gatelog_rules_config::freeze::fold;
use gatelog_rules_config::oracle::{Question, document};
use gatelog_rules_config::{FreezeOptions, FreezeOutcome, FreezeSubject, FreezeTrace, freeze};
use serde_json::Value as Json;

/// Fields of Zuul's object model that no user sees.
const IGNORED: &[&str] = &["affected_projects", "source_lines"];

fn place(variable: &str, usual: &str) -> Option<PathBuf> {
    let given = std::env::var_os(variable).map(PathBuf::from);
    let path = given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(usual));
    path.is_dir().then_some(path)
}

fn skipped(what: &str, variable: &str) {
    println!("SKIPPED {what}: {variable} names no folder");
}

fn read(path: &Path) -> Json {
    let bytes = if path.extension().is_some_and(|extension| extension == "gz") {
        let unpacked = std::process::Command::new("gzip").arg("-dc").arg(path).output().unwrap();
        assert!(unpacked.status.success(), "{} is no gzip file", path.display());
        unpacked.stdout
    } else {
        std::fs::read(path).unwrap()
    };
    serde_json::from_slice(&bytes).unwrap()
}

fn walk(base: &Path, directory: &Path, files: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(base, &path, files);
            continue;
        }
        let name = path.strip_prefix(base).unwrap().to_string_lossy().into_owned();
        if name.ends_with(".yaml") || name.ends_with(".zuul.ignore") {
            files.insert(name, String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned());
        }
    }
}

fn folder(tenant_file: &Path, conf: &Path, made_branches: Vec<String>) -> Folder {
    let beside = tenant_file.parent().unwrap();
    let mut folder = Folder {
        tenant_file: std::fs::read_to_string(tenant_file).unwrap(),
        conf: std::fs::read_to_string(conf).unwrap(),
        conf_name: conf.file_name().unwrap().to_string_lossy().into_owned(),
        made_branches,
        ..Folder::default()
    };
    if let Ok(text) = std::fs::read_to_string(beside.join("branches.json")) {
        folder.branches = serde_json::from_str(&text).unwrap();
        folder.site = true;
    }
    for entry in std::fs::read_dir(beside.join("git")).into_iter().flatten() {
        let path = entry.unwrap().path();
        let mut files = BTreeMap::new();
        walk(&path, &path, &mut files);
        folder.trees.insert(path.file_name().unwrap().to_string_lossy().into_owned(), files);
    }
    folder
}

fn ours(folder: &Folder, extra_branches: Vec<String>) -> Json {
    let question = Question { extra_branches, ..Question::default() };
    serde_json::from_str(&document(folder, &question)).unwrap()
}

fn strings(json: &Json) -> Vec<String> {
    json.as_array().into_iter().flatten().filter_map(Json::as_str).map(str::to_owned).collect()
}

/// Counts, and what differs.
#[derive(Default)]
struct Comparison {
    graphs: usize,
    errors: usize,
    differences: Vec<(String, String)>,
}

impl Comparison {
    fn differ(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.differences.push((place.into(), what.into()));
    }

    fn documents(&mut self, zuul: &Json, ours: &Json) {
        if zuul.get("load_error").is_some() != ours.get("load_error").is_some() {
            self.differ("load", format!("zuul: {}, ours: {}", zuul["load_error"], ours["load_error"]));
            return;
        }
        for (name, expected) in zuul["tenants"].as_object().into_iter().flatten() {
            let Some(found) = ours["tenants"].get(name) else {
                self.differ(name, "the tenant is absent");
                continue;
            };
            self.tenants(name, expected, found);
        }
    }

    fn tenants(&mut self, name: &str, zuul: &Json, ours: &Json) {
        let errors = |document: &Json| {
            let mut counted: BTreeMap<String, usize> = BTreeMap::new();
            for error in document["errors"].as_array().into_iter().flatten() {
                let key =
                    ["project", "branch", "path", "name", "severity", "line"].map(|field| error[field].to_string());
                *counted.entry(key.join("/")).or_default() += 1;
            }
            counted
        };
        let (expected, found) = (errors(zuul), errors(ours));
        for key in expected.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
            let (a, b) = (expected.get(key).unwrap_or(&0), found.get(key).unwrap_or(&0));
            self.errors += a;
            if a != b {
                self.differ(format!("{name}/error/{key}"), format!("zuul {a} times, ours {b} times"));
            }
        }
        let graphs = |document: &Json| document["graphs"].as_object().cloned().unwrap_or_default();
        let (expected, found) = (graphs(zuul), graphs(ours));
        for key in expected.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
            self.graphs += 1;
            let place = format!("{name}/{key}");
            match (expected.get(key), found.get(key)) {
                (Some(a), Some(b)) => self.graph(&place, (a, zuul), (b, ours)),
                (a, _) => self.differ(place, if a.is_some() { "absent" } else { "present" }),
            }
        }
        for (field, value) in zuul.as_object().into_iter().flatten() {
            if !["errors", "graphs", "jobs"].contains(&field.as_str()) && ours.get(field) != Some(value) {
                self.differ(format!("{name}/{field}"), format!("zuul: {value}, ours: {}", ours[field]));
            }
        }
    }

    fn graph(&mut self, place: &str, (zuul, of_zuul): (&Json, &Json), (ours, of_ours): (&Json, &Json)) {
        if zuul.get("error").is_some() || ours.get("error").is_some() {
            let class = |graph: &Json| {
                graph["error"].as_str().map(|text| text.split([':', ' ']).next().unwrap_or("").to_owned())
            };
            if class(zuul) != class(ours) {
                self.differ(place, format!("zuul: {zuul}, ours: {ours}"));
            }
            return;
        }
        let names = |graph: &Json| -> Vec<Json> {
            graph["jobs"].as_array().into_iter().flatten().map(|job| job[0].clone()).collect()
        };
        if names(zuul) != names(ours) {
            self.differ(place, format!("zuul: {:?}, ours: {:?}", names(zuul), names(ours)));
            return;
        }
        let body = |document: &Json, graph: &Json, index: usize| -> Json {
            document["jobs"][graph["jobs"][index][1].as_str().unwrap_or("")].clone()
        };
        for (index, name) in names(zuul).iter().enumerate() {
            let (a, b) = (body(of_zuul, zuul, index), body(of_ours, ours, index));
            let fields = |body: &Json| -> BTreeSet<String> {
                body.as_object().into_iter().flat_map(serde_json::Map::keys).cloned().collect()
            };
            let all: BTreeSet<String> = fields(&a).union(&fields(&b)).cloned().collect();
            for field in all.iter().filter(|field| !IGNORED.contains(&field.as_str()) && a.get(field) != b.get(field)) {
                let place = format!("{place}/{}/{field}", name.as_str().unwrap_or(""));
                self.differ(place, format!("zuul: {}, ours: {}", a[field], b[field]));
            }
        }
    }
}

/// Entries of the list of wanted differences: the document, a pattern for the place.
fn allowed() -> Vec<(String, regex::Regex)> {
    let text = include_str!("conformance/allow.json");
    let list: Vec<BTreeMap<String, String>> = serde_json::from_str(text).unwrap();
    assert!(list.len() <= 5, "{} differences are allowed, and five are the most", list.len());
    list.iter().map(|entry| (entry["document"].clone(), regex::Regex::new(&entry["where"]).unwrap())).collect()
}

/// Compares one document and tells every difference that is not allowed.
fn compare(name: &str, zuul: &Json, ours: &Json, said: &mut String, used: &mut BTreeSet<usize>) -> Comparison {
    let allowed = allowed();
    let mut comparison = Comparison::default();
    comparison.documents(zuul, ours);
    comparison.differences.retain(|(place, _)| {
        let entry = allowed.iter().position(|(document, place_of)| document == name && place_of.is_match(place));
        used.extend(entry);
        entry.is_none()
    });
    for (place, what) in comparison.differences.iter().take(5) {
        let what: String = what.chars().take(600).collect();
        let _ = writeln!(said, "{name}: {place}\n  {what}");
    }
    comparison
}

/// Tenant files below Zuul's fixtures, by the name a document has.
fn configurations(root: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "git") {
                    open.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                let relative = path.strip_prefix(root).unwrap().with_extension("");
                let name = relative.to_string_lossy().replace('/', "__");
                found.insert(name.strip_suffix("__main").unwrap_or(&name).to_owned(), path);
            }
        }
    }
    found
}

#[test]
fn zuuls_own_fixtures_freeze_as_in_zuul() {
    let Some(peer) = place("GATELOG_PEER", "../shared/peer") else { return skipped("fixtures", "GATELOG_PEER") };
    let Some(fixtures) = std::env::var_os("GATELOG_ZUUL_FIXTURES").map(PathBuf::from).filter(|path| path.is_dir())
    else {
        return skipped("fixtures", "GATELOG_ZUUL_FIXTURES");
    };
    let configurations = configurations(&fixtures.join("config"));
    let mut said = String::new();
    let (mut equal, mut documents, mut graphs, mut errors) = (0, 0, 0, 0);
    let mut used = BTreeSet::new();
    for set in ["fixtures", "fixtures-stable"] {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(peer.join("oracle").join(set)).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let zuul = read(&path);
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let conf = fixtures.join(zuul["conf"].as_str().unwrap());
            let folder = folder(&configurations[&name], &conf, strings(&zuul["made_branches"]));
            let ours = ours(&folder, strings(&zuul["extra_branches"]));
            let comparison = compare(&format!("{set}/{name}.json"), &zuul, &ours, &mut said, &mut used);
            documents += 1;
            equal += usize::from(comparison.differences.is_empty());
            graphs += comparison.graphs;
            errors += comparison.errors;
        }
    }
    println!("{equal} of {documents} documents equal; {graphs} graphs, {errors} problems");
    assert!(said.is_empty(), "{equal} of {documents} documents are equal\n{said}");
    assert!(documents > 200, "only {documents} documents were compared");
    let of_fixtures = |(document, _): &&(String, regex::Regex)| document.starts_with("fixtures");
    let expected = (0..allowed().iter().filter(of_fixtures).count()).collect();
    assert_eq!(used, expected, "an allowed difference is none any more");
}

#[test]
fn the_openstack_corpus_freezes_as_in_zuul() {
    let Some(peer) = place("GATELOG_PEER", "../shared/peer") else { return skipped("openstack", "GATELOG_PEER") };
    let Some(corpus) = place("GATELOG_CORPUS", "../shared/corpus") else {
        return skipped("openstack", "GATELOG_CORPUS");
    };
    let corpus = corpus.join("openstack");
    let zuul = read(&peer.join("oracle/openstack.json.gz"));
    let folder = folder(&corpus.join("main.yaml"), &corpus.join("zuul.conf"), Vec::new());
    let ours = ours(&folder, strings(&zuul["extra_branches"]));
    let mut said = String::new();
    let comparison = compare("openstack.json.gz", &zuul, &ours, &mut said, &mut BTreeSet::new());
    println!(
        "{} graphs, {} problems, {} differences",
        comparison.graphs,
        comparison.errors,
        comparison.differences.len()
    );
    assert!(said.is_empty(), "{said}");
    assert!(comparison.graphs > 11_000, "only {} graphs were compared", comparison.graphs);
    let folded = folds_back(&folder, &strings(&zuul["extra_branches"]));
    println!("{folded} jobs folded from their traces alone");
    // Those the file matchers leave: 14,565 at the commits of the corpus.
    assert!(folded > 14_000, "only {folded} jobs were folded");
}

/// Freezes everything, and folds each trace as it would be written: the same jobs, byte for byte.
fn folds_back(folder: &Folder, extra_branches: &[String]) -> usize {
    let mut jobs = 0;
    for tenant in folder.load().unwrap() {
        let projects = &tenant.settings.projects;
        for project in projects.iter().filter(|p| tenant.layout.stanzas.contains_key(&p.canonical_name)) {
            let branches: BTreeSet<&String> = project.branches.iter().chain(extra_branches).collect();
            for (branch, pipeline) in
                branches.iter().flat_map(|b| tenant.layout.pipeline_order.iter().map(move |p| (b, p)))
            {
                let subject = FreezeSubject {
                    project: project.canonical_name.clone(),
                    branch: Some((*branch).clone()),
                    files: Some(vec!["README".to_owned()]),
                    ..FreezeSubject::default()
                };
                let outcome = freeze(&tenant.layout, &subject, pipeline, FreezeOptions::default());
                let Some(graph) = outcome.graph() else { continue };
                let trace = codec::encode(outcome.trace()).unwrap();
                let trace: FreezeTrace = codec::decode(&trace).unwrap();
                for job in &graph.jobs {
                    let folded = codec::encode(&fold::job(&trace, &job.name)).unwrap();
                    let frozen = codec::encode(&Some(job)).unwrap();
                    assert!(folded == frozen, "{} {branch} {pipeline} {}", project.name, job.name);
                    jobs += 1;
                }
            }
        }
    }
    jobs
}

/// The second entry of `conformance/allow.json`: `implied-branch-matchers: true` without `implied-branches` is what
/// Zuul's reference shows, and means the branch of the file. Zuul 14.3 cannot freeze any job whose first ancestor stands
/// in such a file: it asks the one matcher for its list (`Job.getBranches`, `AttributeError`). That is a fault; here the
/// job is frozen. The document holds what Zuul answered for a site with that pragma put before its base job.
#[test]
fn the_allowed_difference_is_that_the_usual_pragma_does_not_stop_every_job() {
    let config = "
- pragma: {implied-branch-matchers: true}
- pipeline: {name: check, manager: independent}
- job: {name: base, parent: null, run: r.yaml}
- project: {name: app, check: {jobs: [base]}}
";
    let folder = Folder {
        tenant_file: "- tenant: {name: implied-pragma, source: {forge: {config-projects: [conf], \
                      untrusted-projects: [app]}}}"
            .into(),
        conf: "[connection forge]\ndriver=gerrit\nserver=example.com\n".into(),
        branches: BTreeMap::from([("app".to_owned(), vec!["master".to_owned(), "stable".to_owned()])]),
        site: true,
        trees: BTreeMap::from([("conf".to_owned(), BTreeMap::from([("zuul.yaml".to_owned(), config.to_owned())]))]),
        ..Folder::default()
    };
    let ours = ours(&folder, Vec::new());
    let graphs = &ours["tenants"]["implied-pragma"]["graphs"];
    assert_eq!(graphs["example.com/app|master|check"]["jobs"][0][0], "base", "{ours:#}");
    // And the matcher means what it says: the project stanza is for the branch of its file alone.
    assert!(graphs["example.com/app|stable|check"]["jobs"].as_array().is_none_or(Vec::is_empty), "{ours:#}");

    let zuul: Json = serde_json::from_str(include_str!("conformance/implied-pragma.json")).unwrap();
    assert!(zuul.to_string().contains("AttributeError"));
    let (mut said, mut used) = (String::new(), BTreeSet::new());
    compare("implied-pragma.json", &zuul, &ours, &mut said, &mut used);
    assert_eq!((said.as_str(), used), ("", BTreeSet::from([1])), "{ours:#}");
}

/// The first entry of `conformance/allow.json`: Zuul negates the matcher of a branch in both sets of
/// documents, as we do, but its second set was made before its maker told so.
#[test]
fn the_allowed_difference_is_that_negate_is_told() {
    let config = "
- pipeline: {name: check, manager: independent}
- job: {name: base, parent: null, run: r.yaml}
- project: {name: app, check: {jobs: [base: {branches: {regex: stable, negate: true}}]}}
";
    let folder = Folder {
        tenant_file: "- tenant: {name: t, source: {forge: {config-projects: [conf], untrusted-projects: [app]}}}"
            .into(),
        conf: "[connection forge]\ndriver=gerrit\nserver=example.com\n".into(),
        branches: BTreeMap::from([("app".to_owned(), vec!["master".to_owned(), "stable".to_owned()])]),
        site: true,
        trees: BTreeMap::from([("conf".to_owned(), BTreeMap::from([("zuul.yaml".to_owned(), config.to_owned())]))]),
        ..Folder::default()
    };
    let told = ours(&folder, Vec::new());
    let graphs = &told["tenants"]["t"]["graphs"];
    assert_eq!(graphs["example.com/app|master|check"]["jobs"][0][0], "base");
    assert_eq!(graphs["example.com/app|stable|check"]["jobs"], serde_json::json!([]));
    assert!(told.to_string().contains("\"negate\":true"), "{told}");

    let Some(peer) = place("GATELOG_PEER", "../shared/peer") else { return skipped("what Zuul says", "GATELOG_PEER") };
    let (entry, _) = allowed().remove(0);
    let older = read(&peer.join("oracle").join(&entry));
    let newer = read(&peer.join("oracle").join(entry.replace("-stable", "")));
    assert!(newer.to_string().contains("\"negate\":true"));
    assert!(!older.to_string().contains("negate"));
    let jobs = |document: &Json| {
        let graph = &document["tenants"]["tenant-one"]["graphs"]["review.example.com/org/project2|master|check"];
        graph["jobs"][0][0].clone()
    };
    assert_eq!(jobs(&older), jobs(&newer), "and the matcher does the same in both");
}

/// The examples of a document: indented blocks that begin with a list item or a heading of a file.
fn examples(document: &str) -> Vec<String> {
    let mut blocks: Vec<Vec<&str>> = vec![Vec::new()];
    for line in document.lines() {
        let indented =
            line.starts_with(' ') || (line.is_empty() && blocks.last().is_some_and(|block| !block.is_empty()));
        match indented {
            true => blocks.last_mut().unwrap().push(line),
            false => blocks.push(Vec::new()),
        }
    }
    let dedent = |block: Vec<&str>| {
        let least = block.iter().filter(|line| !line.trim().is_empty()).map(|l| l.len() - l.trim_start().len()).min();
        let lines = block.iter().map(|line| line.get(least.unwrap_or(0)..).unwrap_or("").to_owned());
        lines.collect::<Vec<_>>().join("\n")
    };
    let wanted = |block: &String| {
        let first = block.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#')).unwrap_or("");
        let key = first.strip_prefix("- ").and_then(|rest| rest.strip_suffix(':'));
        key.is_some_and(|key| key == "tenant" || key == "meta" || gatelog_rules_config::objects::CLASSES.contains(&key))
    };
    blocks.into_iter().map(dedent).filter(wanted).collect()
}

/// What the documents take for granted.
const TAKEN_FOR_GRANTED: &str = "
- pipeline: {name: check, manager: independent}
- pipeline: {name: gate, manager: dependent, allow-secrets: true}
- pipeline: {name: post, manager: independent, allow-secrets: true}
- secret: {name: shade-cloud-credentials, data: {password: x}}
- job: {name: pep8, run: pep8.yaml}
- job: {name: devstack, run: devstack.yaml}
- job: {name: devstack-deprecated-feature, run: devstack.yaml}
- job: {name: tarball, run: tarball.yaml}
";

#[test]
fn the_examples_of_zuul_v3_load() {
    let Some(seeds) = place("GATELOG_SEEDS", "../shared/seeds") else { return skipped("zuul-v3", "GATELOG_SEEDS") };
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let examples = examples(&std::fs::read_to_string(seeds.join("zuul-v3.rst")).unwrap());
    for example in &examples {
        let head = example.lines().find_map(|line| line.strip_prefix("### ")).unwrap_or("global_config.yaml");
        let name = head.split_whitespace().next().unwrap();
        *files.entry(name.to_owned()).or_default() += &format!("{example}\n");
    }
    assert!(examples.len() >= 14, "only {} examples were found", examples.len());
    let in_repo = files.remove("stackforge/random/.zuul.yaml").unwrap();
    let shade = files.remove("shade.yaml").unwrap();
    files.insert("infra.yaml".to_owned(), shade);
    files.get_mut("global_config.yaml").unwrap().push_str(TAKEN_FOR_GRANTED);
    let folder = Folder {
        tenant_file: files.remove("main.yaml").unwrap(),
        conf: "[connection my-gerrit]\ndriver=gerrit\nserver=review.example.com\n".to_owned(),
        site: true,
        older_spellings: true,
        branches: BTreeMap::from([("openstack/nova".to_owned(), vec!["master".into(), "stable/juno".into()])]),
        beside: files,
        trees: BTreeMap::from([("stackforge_random".to_owned(), BTreeMap::from([(".zuul.yaml".to_owned(), in_repo)]))]),
        ..Folder::default()
    };
    let tenants = folder.load().unwrap();
    for tenant in &tenants {
        let errors: Vec<String> = tenant
            .findings
            .iter()
            .map(|found| &found.problem)
            .filter(|p| p.is_error())
            .map(ToString::to_string)
            .collect();
        assert!(errors.is_empty(), "{}: {}", tenant.settings.name, errors.join("\n"));
    }
    let jobs = |tenant: &str, project: &str, branch: &str, pipeline: &str| {
        let tenant = tenants.iter().find(|loaded| loaded.settings.name == tenant).unwrap();
        let subject = FreezeSubject {
            project: format!("review.example.com/{project}"),
            branch: Some(branch.to_owned()),
            ..FreezeSubject::default()
        };
        match freeze(&tenant.layout, &subject, pipeline, FreezeOptions::default()) {
            FreezeOutcome::Frozen { graph, .. } => graph.jobs.into_iter().map(|job| job.name).collect::<Vec<_>>(),
            other => vec![format!("{:?}", other.trace().jobs.iter().map(|job| &job.reason).collect::<Vec<_>>())],
        }
    };
    let none = "Job python27 stands beside the tenant file, and no repository has its playbooks";
    assert!(jobs("openstack", "openstack/nova", "master", "gate")[0].contains(none));
    assert_eq!(tenants.len(), 3);
}

#[test]
fn the_examples_of_nodepool_in_zuul_load() {
    let Some(seeds) = place("GATELOG_SEEDS", "../shared/seeds") else { return skipped("nodepool", "GATELOG_SEEDS") };
    let examples = examples(&std::fs::read_to_string(seeds.join("nodepool-in-zuul.rst")).unwrap());
    assert!(examples.len() >= 5, "only {} examples were found", examples.len());
    let text = examples.join("\n");
    let folder = Folder {
        tenant_file: "- tenant: {name: t, source: {rackspace: {config-projects: [conf]}}}".to_owned(),
        conf: "[connection rackspace]\ndriver=git\nbaseurl=https://git.example.com\n".to_owned(),
        site: true,
        older_spellings: true,
        trees: BTreeMap::from([("conf".to_owned(), BTreeMap::from([("zuul.yaml".to_owned(), text)]))]),
        ..Folder::default()
    };
    let tenants = folder.load().unwrap();
    let errors: Vec<String> = tenants[0]
        .findings
        .iter()
        .map(|found| &found.problem)
        .filter(|p| p.is_error())
        .map(ToString::to_string)
        .collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    for (provider, labels) in [("rax-dfw-main", 2), ("rax-dfw-devstack", 1), ("static-provider", 1)] {
        let machines = gatelog_rules_config::machines::of_provider(&tenants[0].layout, provider).unwrap();
        assert_eq!(machines.len(), labels, "{provider}");
    }
}

#[test]
fn the_example_of_the_letter_loads() {
    let Some(seeds) = place("GATELOG_SEEDS", "../shared/seeds") else { return skipped("letter", "GATELOG_SEEDS") };
    let text = std::fs::read_to_string(seeds.join("late-binding-inheritance.html")).unwrap();
    // A page: its blanks are hard ones.
    let examples = examples(&text.replace('\u{a0}', " ").replace("<br>", ""));
    assert_eq!(examples.len(), 1);
    let context = gatelog_rules_config::SourceContext::default();
    let parsed =
        gatelog_rules_config::parse_file(context, &examples[0], gatelog_rules_config::dialect::Spelling::Older);
    assert!(parsed.problems.iter().all(|problem| !problem.is_error()), "{:?}", parsed.problems);
}
