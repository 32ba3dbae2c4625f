//! Runs the specification in `tests/cases/*.txt`; `tests/cases/README.md` explains its form.

use std::fmt::Write as _;
use std::path::Path;

use gatelog_record::codec;
use gatelog_rules_config::freeze::explain::explain;
use gatelog_rules_config::freeze::fold;
use gatelog_rules_config::freeze::trace::JobFate;
use gatelog_rules_config::objects::JobAttribute;
use gatelog_rules_config::objects::job_parts::Dependency;
use gatelog_rules_config::regexes::Pattern;
use gatelog_rules_config::{
    ConfigFile, FreezeOptions, FreezeOutcome, FreezeSubject, FreezeTrace, FrozenJob, Layout, LoadInput, Problem,
    Severity, TenantProject, TenantSettings, freeze, load,
};

const PRELUDE: &str = include_str!("cases/prelude.yaml");

#[derive(Default)]
struct Case {
    title: String,
    projects: Vec<TenantProject>,
    files: Vec<ConfigFile>,
    bare: bool,
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
                let target = match (words.first().map(String::as_str), case.files.last_mut()) {
                    (Some("file"), Some(file)) => &mut file.text,
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
            "project" => {
                let branches: Vec<&str> = words[2..].iter().map(String::as_str).filter(|w| !w.contains('=')).collect();
                let mut added = project(&words[1], false, &branches);
                for option in words[2..].iter().filter_map(|word| word.split_once('=')) {
                    match option {
                        ("shadow", name) => added.shadow.push(name.to_owned()),
                        ("trusted", _) => added.trusted = true,
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
            "file" => {
                let (name, branch) = words[1].split_once('@').unwrap_or((&words[1], "master"));
                let project = format!("example.com/{name}");
                let path = words.get(2).map_or(".zuul.yaml", String::as_str).to_owned();
                case.files.push(ConfigFile { project, branch: branch.to_owned(), path, text: String::new() });
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
            Some(("in", list)) => subject.containing_branches = list.split(',').map(str::to_owned).collect(),
            other => panic!("unknown option {other:?}"),
        }
    }
    (subject, words[2].clone())
}

fn ask(layout: &Layout, words: &[String]) -> FreezeOutcome {
    let (subject, pipeline) = question(words);
    let outcome = freeze(layout, &subject, &pipeline, FreezeOptions::default());
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

/// Answers a question; `expected` is only looked at for the names of attributes.
fn answer(case: &Case, layout: &Layout, problems: &[Problem], words: &[String], expected: &str) -> String {
    match words[0].as_str() {
        "problems" => problems.iter().fold(String::new(), |out, p| out + &problem_line(p) + "\n"),
        "report" => problems.iter().fold(String::new(), |out, p| out + &p.to_string() + "\n"),
        "jobs" => jobs(&ask(layout, &words[1..])),
        "job" => {
            let outcome = ask(layout, &words[2..]);
            let Some(job) = outcome.graph().and_then(|graph| graph.job(&words[1])) else {
                return format!("absent; {}", jobs(&outcome));
            };
            expected.lines().fold(String::new(), |out, line| {
                let name = line.split_once(':').map_or(line, |(name, _)| name);
                out + format!("{name}: {}", attribute(job, name)).trim_end() + "\n"
            })
        }
        "path" => {
            let outcome = ask(layout, &words[2..]);
            let job = outcome.trace().story(&words[1]);
            job.map_or("nobody asked\n".into(), |job| {
                job.applied
                    .iter()
                    .fold(String::new(), |out, look| out + &look.what + " at " + &short(&look.place) + "\n")
            })
        }
        "why" => {
            let outcome = ask(layout, &words[2..]);
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
        "queue" => {
            let queue = layout.queue_of(&format!("example.com/{}", words[1]));
            queue.map_or("none\n".to_owned(), |queue| format!("{}\n", queue.name))
        }
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
    let tenant = TenantSettings {
        name: "example".into(),
        connections: vec!["forge".into()],
        projects: case.projects.clone(),
        ..TenantSettings::default()
    };
    let (layout, problems) = load(&LoadInput { tenant, files });
    let mut asked = 0;
    let expects_problems = case.questions.iter().any(|(words, _)| words[0] == "problems" || words[0] == "report");
    if let Some(problem) = problems.iter().find(|problem| problem.severity == Severity::Error)
        && !expects_problems
    {
        return Err(format!("{}: an unexpected problem\n{problem}", case.title));
    }
    for (words, expected) in &case.questions {
        if matches!(words[0].as_str(), "file" | "project" | "bare") {
            continue;
        }
        asked += 1;
        let expected = expected.trim_end();
        let found = answer(case, &layout, &problems, words, expected);
        if found.trim_end() != expected {
            return Err(format!(
                "{}\n--- {}\nexpected:\n{expected}\nfound:\n{}\n",
                case.title,
                words.join(" "),
                found.trim_end()
            ));
        }
    }
    if asked == 0 {
        return Err(format!("{}: the case asks nothing", case.title));
    }
    Ok(asked)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the cases are files, so that people can read and add to them")]
fn every_case_of_the_specification_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut failures = String::new();
    let mut asked = 0;
    for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "txt")) {
        for case in parse(&std::fs::read_to_string(path).unwrap()) {
            match run(&case) {
                Ok(questions) => asked += questions,
                Err(why) => {
                    let _ = writeln!(failures, "{}: {why}", path.file_name().unwrap().to_string_lossy());
                }
            }
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
    assert!(asked > 60, "only {asked} questions were asked");
}
