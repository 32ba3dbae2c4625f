//! Runs the specification in `tests/cases/*.txt`; `tests/cases/README.md` explains its form.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot set itself up shall fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use gatelog_driver_schema::Schemas;
use gatelog_record::{Value, codec};
use gatelog_rules_config::authorization::{Asked as Asking, Authorization, Granted};
use gatelog_rules_config::folder::Folder;
use gatelog_rules_config::freeze::explain::explain;
use gatelog_rules_config::freeze::fold;
use gatelog_rules_config::freeze::trace::JobFate;
use gatelog_rules_config::hints;
use gatelog_rules_config::objects::JobAttribute;
use gatelog_rules_config::objects::job_parts::Dependency;
use gatelog_rules_config::objects::queue::QueueType;
use gatelog_rules_config::providers::merge::Serving;
use gatelog_rules_config::regexes::Pattern;
use gatelog_rules_config::tenant::{IncludedFile, default_classes};
use gatelog_rules_config::timers::{self, cron::Civil};
use gatelog_rules_config::{
    ConfigFile, FreezeOptions, FreezeOutcome, FreezeSubject, FreezeTrace, FrozenJob, Layout, LoadInput, Pipeline,
    Problem, Severity, TenantProject, TenantSettings, freeze, load, parse_authorization, relevant,
};
use serde_json::Value as Json;

#[path = "cases/coverage.rs"]
mod coverage;

const PRELUDE: &str = include_str!("cases/prelude.yaml");

#[derive(Default)]
struct Case {
    title: String,
    projects: Vec<TenantProject>,
    files: Vec<ConfigFile>,
    included: Vec<IncludedFile>,
    /// Files of the layout ahead, each in place of that of the same place.
    ahead: Vec<ConfigFile>,
    /// A tenant file, where the case is about one.
    tenants: String,
    conf: String,
    bare: bool,
    /// Whether the files are a change's, and those ahead what is merged.
    proposed: bool,
    questions: Vec<(Vec<String>, String)>,
}

fn project(name: &str, trusted: bool, branches: &[&str]) -> TenantProject {
    TenantProject {
        canonical_name: format!("example.com/{name}"),
        branches: branches.iter().map(|name| (*name).to_owned()).collect(),
        ..TenantProject::new("forge", name, trusted)
    }
}

fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("=== ") {
            let projects = vec![
                project("prelude", true, &["master"]),
                project("conf", true, &["master"]),
                project("app", false, &["master"]),
                project("lib", false, &["master", "stable"]),
            ];
            cases.push(Case { title: title.to_owned(), projects, ..Case::default() });
            continue;
        }
        let Some(case) = cases.last_mut() else { continue };
        let Some(head) = line.strip_prefix("--- ") else {
            if let Some((words, body)) = case.questions.last_mut() {
                let target = match words.first().map_or("", String::as_str) {
                    "file" => &mut case.files.last_mut().unwrap().text,
                    "ahead" => &mut case.ahead.last_mut().unwrap().text,
                    "beside" => case.included.last_mut().and_then(|file| file.text.as_mut()).unwrap_or(body),
                    "tenants" => &mut case.tenants,
                    "conf" => &mut case.conf,
                    _ => body,
                };
                target.push_str(line);
                target.push('\n');
            }
            continue;
        };
        let words: Vec<String> = head.split_whitespace().map(str::to_owned).collect();
        match words[0].as_str() {
            "bare" => case.bare = true,
            "proposed" => case.proposed = true,
            "beside" => case.included.push(IncludedFile {
                path: words[1].clone(),
                text: (words.get(2).map(String::as_str) != Some("missing")).then(String::new),
            }),
            "project" => {
                let branches: Vec<&str> = words[2..].iter().map(String::as_str).filter(|w| !w.contains('=')).collect();
                let mut added = project(&words[1], false, &branches);
                for option in words[2..].iter().filter_map(|word| word.split_once('=')) {
                    match option {
                        ("shadow", name) => added.shadow.push(name.to_owned()),
                        ("trusted", _) => {
                            added.trusted = true;
                            added.include = default_classes(true);
                        }
                        ("implied", truth) => added.implied_branch_matchers = Some(truth == "true"),
                        ("configure", regex) => added.configure_projects.push(Pattern::new(
                            regex,
                            false,
                            gatelog_rules_config::regexes::Anchor::Whole,
                        )),
                        other => panic!("unknown option {other:?}"),
                    }
                }
                case.projects.retain(|known| known.name != added.name);
                case.projects.push(added);
            }
            "file" | "ahead" => {
                let (name, branch) = words[1].split_once('@').unwrap_or((&words[1], "master"));
                let project = format!("example.com/{name}");
                let path = words.get(2).map_or(".zuul.yaml", String::as_str).to_owned();
                let file = ConfigFile { project, branch: branch.to_owned(), path, text: String::new() };
                if words[0] == "ahead" { case.ahead.push(file) } else { case.files.push(file) }
            }
            _ => {}
        }
        case.questions.push((words, String::new()));
    }
    cases
}

fn short(place: &gatelog_rules_config::Place) -> String {
    let context = &place.context;
    let name = context.project.trim_start_matches("example.com/");
    format!("{name}@{} {}:{}", context.branch, context.path, place.line)
}

fn problem_line(problem: &Problem) -> String {
    let attribute = problem.attribute.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    format!("{} {} at {}{attribute}", problem.severity, problem.code, short(&problem.place))
}

/// Whom a question is about, and in which pipeline.
fn question(words: &[String]) -> (FreezeSubject, String) {
    let mut subject = FreezeSubject {
        project: format!("example.com/{}", words[0]),
        branch: Some(words[1].clone()),
        reference: "refs/changes/1".to_owned(),
        ..FreezeSubject::default()
    };
    for word in &words[3..] {
        match word.split_once('=') {
            Some(("files", list)) => subject.files = Some(list.split(',').map(str::to_owned).collect()),
            Some(("tag", name)) => {
                subject.branch = None;
                subject.reference = format!("refs/tags/{name}");
            }
            None if word == "changes-config" => subject.updates_config = true,
            Some((given, value)) if given.starts_with("given.") => {
                let name = given.trim_start_matches("given.").to_owned();
                subject.parameters.insert(name, Value::from(value));
            }
            Some(("in", list)) => subject.containing_branches = list.split(',').map(str::to_owned).collect(),
            other => panic!("unknown option {other:?}"),
        }
    }
    (subject, words[2].clone())
}

fn ask(layout: &Layout, ahead: Option<&Layout>, words: &[String]) -> FreezeOutcome {
    let (subject, pipeline) = question(words);
    let outcome = freeze(layout, &subject, &pipeline, FreezeOptions { ahead, skip_file_matchers: false });
    // In every case there is: the trace alone gives the frozen jobs again, byte for byte.
    folds_back(&outcome);
    outcome
}

fn folds_back(outcome: &FreezeOutcome) {
    let trace = codec::encode(outcome.trace()).unwrap();
    let trace: FreezeTrace = codec::decode(&trace).unwrap();
    let jobs = outcome.graph().map_or(&[][..], |graph| &graph.jobs);
    for job in jobs {
        let folded = fold::job(&trace, &job.name).unwrap();
        assert_eq!(codec::encode(&folded).unwrap(), codec::encode(job).unwrap(), "{}", job.name);
    }
    assert_eq!(trace.jobs.iter().filter(|job| job.fate == JobFate::Runs).count(), jobs.len());
}

fn dependencies(all: &[Dependency]) -> String {
    all.iter().map(|d| format!("{}{}", d.name, if d.soft { " (soft)" } else { "" })).collect::<Vec<_>>().join(", ")
}

fn jobs(outcome: &FreezeOutcome) -> String {
    match outcome {
        FreezeOutcome::NotInPipeline { .. } => "not in the pipeline\n".to_owned(),
        FreezeOutcome::NoJobs { .. } => "no jobs\n".to_owned(),
        FreezeOutcome::Refused { problem, .. } => format!("refused {}: {}\n", problem.code, problem.message),
        FreezeOutcome::Frozen { graph, .. } => graph.jobs.iter().fold(String::new(), |mut out, job| {
            let waits = dependencies(&job.dependencies);
            let _ = match waits.is_empty() {
                true => writeln!(out, "{}", job.name),
                false => writeln!(out, "{} after {waits}", job.name),
            };
            out
        }),
    }
}

fn attribute(job: &FrozenJob, name: &str) -> String {
    let told = match (name, JobAttribute::ALL.iter().find(|known| known.row().name == name)) {
        ("description", _) => job.description.clone(),
        ("waits-for", _) => Some(dependencies(&job.dependencies)),
        ("nodes", _) => job.tell(JobAttribute::Nodeset),
        (_, Some(attribute)) => job.tell(*attribute),
        (_, None) => panic!("unknown attribute {name}"),
    };
    told.unwrap_or_else(|| "none".to_owned()).replace("example.com/", "")
}

/// What a case is about.
struct Asked {
    layout: Layout,
    ahead: Option<Layout>,
    problems: Vec<Problem>,
    problems_ahead: Vec<Problem>,
    authorization: Authorization,
}

/// What somebody may, in words.
fn granted(granted: Granted) -> String {
    match (granted.access, granted.admin) {
        (true, true) => "looks and operates\n",
        (true, false) => "looks\n",
        (false, true) => "operates\n",
        (false, false) => "nothing\n",
    }
    .to_owned()
}

/// `may PERMISSION TENANT [project=NAME] [ref=REF]`, of somebody with claims or, without, of nobody in particular.
fn may(authorization: &Authorization, claims: Option<&Json>, words: &[String]) -> String {
    let option = |name: &str| words.iter().find_map(|word| word.split_once('=').filter(|(key, _)| *key == name));
    let asked = Asking {
        permission: (words[0] != "look").then_some(words[0].as_str()),
        project: option("project").map(|(_, name)| name),
        reference: option("ref").map(|(_, name)| name),
    };
    let tenant = (words[1] != "root").then_some(words[1].as_str());
    match claims {
        Some(claims) => granted(authorization.decide(tenant, claims, &asked)),
        None => granted(Granted { access: authorization.is_open(tenant), admin: false }),
    }
}

/// When a pipeline's timers are due after a moment, one after the other.
fn fires(layout: &Layout, words: &[String], times: usize) -> String {
    const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    let timers = timers::of_layout(layout);
    let timer = timers.iter().find(|timer| timer.pipeline == words[0]).unwrap();
    let numbers: Vec<u32> = words[2].split(['-', 'T', ':']).map(|part| part.parse().unwrap()).collect();
    let [year, month, day, hour, minute, second] = numbers[..] else { panic!("{}", words[2]) };
    let mut now = Civil { year: i32::try_from(year).unwrap(), month, day, hour, minute, second };
    let mut out = String::new();
    for _ in 0..times {
        let Some(due) = timer.spec.next_after(now) else { return out + "never\n" };
        let late = if timer.spec.jitter > 0 { format!(", up to {} s later", timer.spec.jitter) } else { String::new() };
        let _ = writeln!(out, "{due} {}{late}", DAYS[due.weekday() as usize]);
        now = due;
    }
    out
}

fn provider(layout: &Layout, name: &str) -> String {
    let Some(merged) = layout.merged_provider(name) else { return "no such provider\n".to_owned() };
    let mut out = format!("connection: {}\n", merged.connection.as_deref().unwrap_or("none"));
    let lines = |out: &mut String, attributes: &BTreeMap<String, Value>, indent: &str| {
        for (key, value) in attributes.iter().filter(|(key, _)| *key != "name") {
            let _ = writeln!(out, "{indent}{key}: {value}");
        }
    };
    lines(&mut out, &merged.attributes, "");
    for (class, entries) in [("image", &merged.images), ("flavor", &merged.flavors), ("label", &merged.labels)] {
        for entry in entries {
            let _ = writeln!(out, "{class} {}", entry["name"].as_str().unwrap());
            lines(&mut out, entry, "  ");
        }
    }
    out
}

fn option(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| "none".to_owned(), ToString::to_string)
}

/// An attribute of a pipeline.
fn of_pipeline(pipeline: &Pipeline, name: &str) -> String {
    let (messages, window) = (&pipeline.messages, &pipeline.window);
    let connections = |map: &BTreeMap<String, Value>| map.keys().cloned().collect::<Vec<_>>().join(", ");
    match name {
        "manager" => format!("{:?}", pipeline.manager).to_lowercase(),
        "description" => pipeline.description.clone(),
        "post-review" => pipeline.post_review.to_string(),
        "precedence" => format!("{:?}", pipeline.precedence).to_lowercase(),
        "supercedes" => pipeline.supercedes.join(", "),
        "allow-other-connections" => pipeline.allow_other_connections.to_string(),
        "allow-parameters" => pipeline.allow_parameters.to_string(),
        "dequeue-on-new-patchset" => pipeline.dequeue_on_new_patchset.to_string(),
        "ignore-dependencies" => pipeline.ignore_dependencies.to_string(),
        "disable-after-consecutive-failures" => option(pipeline.disable_after_consecutive_failures.as_ref()),
        "success-message" => messages.success.clone(),
        "failure-message" => messages.failure.clone(),
        "start-message" => messages.start.clone(),
        "enqueue-message" => messages.enqueue.clone(),
        "merge-conflict-message" => messages.merge_conflict.clone(),
        "no-jobs-message" => messages.no_jobs.clone(),
        "dequeue-message" => messages.dequeue.clone(),
        "footer-message" => messages.footer.clone(),
        "window" => window.size.to_string(),
        "window-floor" => window.floor.to_string(),
        "window-ceiling" => option(window.ceiling.as_ref()),
        "window-increase-type" => format!("{:?}", window.increase).to_lowercase(),
        "window-increase-factor" => window.increase_factor.to_string(),
        "window-decrease-type" => format!("{:?}", window.decrease).to_lowercase(),
        "window-decrease-factor" => window.decrease_factor.to_string(),
        "trigger" => pipeline.triggers.keys().cloned().collect::<Vec<_>>().join(", "),
        "require" => connections(&pipeline.require),
        "reject" => connections(&pipeline.reject),
        one => match one.split_once('.') {
            Some((action, connection)) => option(pipeline.reporters(action).get(connection)),
            None => connections(pipeline.reporters(one)),
        },
    }
}

/// Answers a question; `expected` is only looked at for the names of attributes.
fn answer(case: &Case, asked: &Asked, claims: Option<&Json>, words: &[String], expected: &str) -> String {
    let Asked { layout, ahead, problems, problems_ahead, authorization } = asked;
    let ask = |words: &[String]| ask(layout, ahead.as_ref(), words);
    match words[0].as_str() {
        "problems" => problems.iter().fold(String::new(), |out, p| out + &problem_line(p) + "\n"),
        "hints" => hints::unused(layout).iter().fold(String::new(), |out, p| out + &problem_line(p) + "\n"),
        "report" => problems.iter().fold(String::new(), |out, p| out + &p.to_string() + "\n"),
        "told" => {
            let changed = words[1..].iter().filter_map(|at| at.split_once('@'));
            let changed = changed.map(|(project, branch)| (format!("example.com/{project}"), branch.to_owned()));
            let found = relevant(problems, problems_ahead, &changed.collect());
            let told = found.errors.iter().chain(&found.warnings);
            told.fold(String::new(), |out, p| out + &problem_line(p) + "\n")
        }
        "may" => may(authorization, claims, &words[1..]),
        "permissions" => {
            let tenant = (words[1] != "root").then_some(words[1].as_str());
            let found = authorization.permissions(tenant, claims.unwrap_or(&Json::Null));
            found.into_iter().collect::<Vec<_>>().join(", ")
        }
        "timers" => timers::of_layout(layout).iter().fold(String::new(), |out, timer| {
            let project = timer.project.trim_start_matches("example.com/");
            out + &format!("{} {project} {} {}\n", timer.pipeline, timer.branch, timer.time)
        }),
        "fires" => fires(layout, &words[1..], expected.lines().count()),
        "provider" => provider(layout, &words[1]),
        "serving" => {
            let labels: Vec<&str> = words[1..].iter().map(String::as_str).collect();
            match layout.serving(&labels) {
                Serving::OneOf(names) => format!("one of {}\n", names.join(", ")),
                Serving::Each(each) => each.iter().fold(String::new(), |out, (label, names)| {
                    let names = if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
                    out + &format!("{label} from {names}\n")
                }),
            }
        }
        "jobs" => jobs(&ask(&words[1..])),
        "job" => {
            let outcome = ask(&words[2..]);
            let Some(job) = outcome.graph().and_then(|graph| graph.job(&words[1])) else {
                return format!("absent; {}", jobs(&outcome));
            };
            expected.lines().fold(String::new(), |out, line| {
                let name = line.split_once(':').map_or(line, |(name, _)| name);
                out + format!("{name}: {}", attribute(job, name)).trim_end() + "\n"
            })
        }
        "path" => {
            let outcome = ask(&words[2..]);
            let job = outcome.trace().story(&words[1]);
            job.map_or("nobody asked\n".into(), |job| {
                job.applied
                    .iter()
                    .fold(String::new(), |out, look| out + &look.what + " at " + &short(&look.place) + "\n")
            })
        }
        "why" => {
            let outcome = ask(&words[2..]);
            outcome.trace().job(&words[1]).map_or("nobody asked\n".into(), |job| {
                let fate = match job.fate {
                    JobFate::Runs => "runs",
                    JobFate::Absent => "absent",
                    JobFate::Refused => "refused",
                };
                format!("{fate}, {}: {}\n", job.code, job.reason)
            })
        }
        "explain" => {
            let (subject, pipeline) = question(&words[2..]);
            explain(layout, &subject, &pipeline, &words[1], FreezeOptions::default()).render()
        }
        "machines" => {
            let machines = gatelog_rules_config::machines::of_provider(layout, &words[1]).unwrap_or_default();
            machines.iter().fold(String::new(), |out, machine| {
                let option = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
                let (image, flavor) = (option(&machine.image), option(&machine.flavor));
                let on = option(&machine.connection);
                let attributes = machine.attributes.iter().map(|(key, value)| format!("  {key}: {value}\n"));
                out + &format!("{} of {image} {flavor} on {on} ({:?})\n", machine.label, machine.order)
                    + &attributes.collect::<String>()
                    + &machine.nodes.iter().map(|node| format!("  node {node}\n")).collect::<String>()
            })
        }
        "queue" => {
            let queue = layout.queue_of(&format!("example.com/{}", words[1]));
            queue.map_or("none\n".to_owned(), |queue| format!("{}\n", queue.name))
        }
        "pipeline" => expected.lines().fold(String::new(), |out, line| {
            let name = line.split_once(':').map_or(line, |(name, _)| name);
            out + format!("{name}: {}", of_pipeline(&layout.pipelines[&words[1]], name)).trim_end() + "\n"
        }),
        "shared" => {
            let queue = &layout.queues[&words[1]];
            let kind = match queue.kind {
                QueueType::AllBranches => "all-branches",
                QueueType::PerBranch => "per-branch",
                QueueType::BranchAssigned => "branch-assigned",
            };
            let circles = if queue.allow_circular_dependencies { ", circles" } else { "" };
            let topics = if queue.dependencies_by_topic { ", topics" } else { "" };
            format!("{kind}{circles}{topics}\n")
        }
        "settings" => {
            let project = &layout.projects[&format!("example.com/{}", words[1])];
            let (mode, queue) = (option(project.merge_mode.as_ref()), option(project.queue.as_ref()));
            format!("merge-mode: {mode}\ndefault-branch: {}\nqueue: {queue}\n", project.default_branch)
        }
        "graph" => ask(&words[1..]).graph().map_or("none\n".to_owned(), |graph| {
            format!("debug: {}\nfail-fast: {}\n", graph.debug, option(graph.fail_fast.as_ref()))
        }),
        "semaphore" => format!("room for {}\n", layout.semaphore_max(&words[1])),
        "branches" => format!("{}\n", layout.projects[&format!("example.com/{}", words[1])].branches.join(", ")),
        other => panic!("{}: unknown question {other}", case.title),
    }
}

fn run(case: &Case) -> Result<usize, String> {
    let mut files = case.files.clone();
    if !case.bare {
        files.push(ConfigFile {
            project: "example.com/prelude".into(),
            branch: "master".into(),
            path: "zuul.yaml".into(),
            text: PRELUDE.into(),
        });
    }
    let about = if case.tenants.is_empty() { of_projects(case, files) } else { of_tenants(case, files) };
    let problems = &about.problems;
    let mut asked = 0;
    let mut wrong = String::new();
    let expects_problems =
        case.questions.iter().any(|(words, _)| ["problems", "report", "told"].contains(&words[0].as_str()));
    let mut claims: Option<Json> = None;
    if let Some(problem) = problems.iter().find(|problem| problem.severity == Severity::Error)
        && !expects_problems
    {
        return Err(format!("{}: an unexpected problem\n{problem}", case.title));
    }
    for (words, expected) in &case.questions {
        match words[0].as_str() {
            "file" | "ahead" | "beside" | "project" | "bare" | "proposed" | "tenants" | "conf" => continue,
            "claims" => {
                claims = (!expected.trim().is_empty()).then(|| serde_json::from_str(expected).unwrap());
                continue;
            }
            "elsewhere" | "not-yet" => {
                asked += 1;
                continue;
            }
            _ => {}
        }
        asked += 1;
        let expected = expected.trim_end();
        let found = answer(case, &about, claims.as_ref(), words, expected);
        if found.trim_end() != expected {
            let (question, found) = (words.join(" "), found.trim_end());
            let _ = writeln!(wrong, "{}\n--- {question}\nexpected:\n{expected}\nfound:\n{found}\n", case.title);
        }
    }
    if asked == 0 {
        return Err(format!("{}: the case asks nothing", case.title));
    }
    if wrong.is_empty() { Ok(asked) } else { Err(wrong) }
}

/// The case loaded from the projects and files it lists.
fn of_projects(case: &Case, files: Vec<ConfigFile>) -> Asked {
    let tenant = TenantSettings {
        name: "example".into(),
        connections: vec!["forge".into()],
        projects: case.projects.clone(),
        included: case.included.clone(),
        ..TenantSettings::default()
    };
    let ahead = (!case.ahead.is_empty()).then(|| {
        let same =
            |a: &ConfigFile, b: &ConfigFile| (&a.project, &a.branch, &a.path) == (&b.project, &b.branch, &b.path);
        let mut files = files.clone();
        files.retain(|file| !case.ahead.iter().any(|other| same(file, other)));
        files.extend(case.ahead.iter().cloned());
        load(&LoadInput { tenant: tenant.clone(), files })
    });
    let (ahead, problems_ahead) = ahead.map_or((None, Vec::new()), |(layout, problems)| (Some(layout), problems));
    let (mut layout, problems) = load(&LoadInput { tenant, files });
    if case.proposed {
        layout.keep_static(ahead.as_ref().unwrap());
    }
    Asked { layout, ahead, problems, problems_ahead, authorization: Authorization::default() }
}

/// What gatelog has beside Zuul's drivers.
const SCHEMAS: Schemas = Schemas(&[&gatelog_driver_git::SCHEMA]);

/// The case loaded by its tenant file; of the files each is that of its project.
fn of_tenants(case: &Case, files: Vec<ConfigFile>) -> Asked {
    let mut folder = Folder { tenant_file: case.tenants.clone(), site: true, schemas: SCHEMAS, ..Folder::default() };
    folder.conf = if case.conf.is_empty() {
        "[connection forge]\ndriver=gerrit\nserver=example.com\n[connection hub]\ndriver=github\n".to_owned()
    } else {
        case.conf.clone()
    };
    for project in &case.projects {
        folder.branches.insert(project.name.clone(), project.branches.clone());
    }
    for ConfigFile { project, branch, path, text } in files {
        let name = project.trim_start_matches("example.com/").replacen('/', "_", 1);
        let tree = if branch == "master" { name } else { format!("{name}@{}", branch.replace('/', "%2F")) };
        folder.trees.entry(tree).or_default().insert(path, text);
    }
    let (authorization, _) = parse_authorization(&case.tenants);
    let (layout, problems) = match folder.load() {
        Err(problems) => (Layout::default(), problems),
        Ok(tenants) => (
            tenants[0].layout.clone(),
            tenants.into_iter().flat_map(|tenant| tenant.findings).map(|finding| finding.problem).collect(),
        ),
    };
    Asked { layout, ahead: None, problems, problems_ahead: Vec::new(), authorization }
}

/// All cases, with the names of their files.
#[expect(clippy::disallowed_methods, reason = "the cases are files, so that people can read and add to them")]
fn all_cases() -> Vec<(String, Case)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut cases = Vec::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "txt")) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        cases.extend(parse(&read(path)).into_iter().map(|case| (name.clone(), case)));
    }
    cases
}

#[expect(clippy::disallowed_methods, reason = "the cases and the sources they cover are files")]
fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_case_of_the_specification_holds() {
    let mut failures = String::new();
    let mut asked = 0;
    for (file, case) in all_cases() {
        match run(&case) {
            Ok(questions) => asked += questions,
            Err(why) => {
                let _ = writeln!(failures, "{file}: {why}");
            }
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
    assert!(asked > 60, "only {asked} questions were asked");
}

/// Cases of `traps.txt`: each trap has one, here or with the test elsewhere that shows it, or says that
/// nothing does yet.
#[test]
fn every_trap_has_a_case() {
    let mut found = BTreeSet::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    for (_, case) in all_cases().into_iter().filter(|(file, _)| file == "traps.txt") {
        let number = case.title.strip_prefix("Trap ").and_then(|rest| rest.split(':').next()).unwrap_or_default();
        let number: usize = number.parse().unwrap_or_else(|_| panic!("no number of a trap: {}", case.title));
        assert!(found.insert(number), "trap {number} has two cases");
        for (words, body) in &case.questions {
            match words[0].as_str() {
                // A test, by its file and name; or a scenario, which is a test of its own.
                "elsewhere" => {
                    let text = read(&root.join(&words[1]));
                    let named = words.get(2).is_none_or(|name| text.contains(&format!("fn {name}(")));
                    assert!(named, "{}: no test {}", case.title, words[1..].join(" "));
                }
                "not-yet" => assert!(!body.trim().is_empty(), "{}: what is missing?", case.title),
                _ => {}
            }
        }
    }
    assert_eq!(found, (1..=55).collect(), "of the 55 traps");
}

#[test]
fn a_chain_of_parents_has_an_end() {
    let mut text = String::from("=== chain\n--- file conf\n- job: {name: job-0, parent: null, run: r.yaml}\n");
    for job in 1..=250 {
        let _ = writeln!(text, "- job: {{name: job-{job}, parent: job-{}}}", job - 1);
    }
    text += "- project: {name: app, check: {jobs: [job-100]}, gate: {jobs: [job-250]}}\n";
    text += "--- jobs app master check\njob-100\n";
    text += "--- jobs app master gate\nrefused job-parent-chain: the job job-50 has more than 200 ancestors\n";
    for case in parse(&text) {
        assert_eq!(run(&case), Ok(2));
    }
}
