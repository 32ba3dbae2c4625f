//! `gatelog deploy graph|order|oracle`: deployment graphs, from files alone.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gatelog_rules_deployments::files::{self, Problem, Written};
use gatelog_rules_deployments::oracle::{self, World};
use gatelog_rules_deployments::plan::{self, Options, check};
use gatelog_rules_deployments::{Cluster, Fault, Node, Selection, render};
use serde_json::Value as Json;

use super::failure::{Code, Failure};
use super::output::Output;
use crate::cli::deploy::{DeployCommand, GraphArgs, GraphFormat, OracleArgs, OrderArgs};

/// Most files of tasks below a directory.
const MAX_FILES: usize = 10_000;
/// Deepest directory that is looked into.
const MAX_DEPTH: usize = 32;

/// Does what is said.
pub fn run(command: &DeployCommand) -> Result<ExitCode, Failure> {
    match command {
        DeployCommand::Graph(args) => graph(args),
        DeployCommand::Order(args) => order(args),
        DeployCommand::Oracle(args) => answer(args),
    }
}

fn graph(args: &GraphArgs) -> Result<ExitCode, Failure> {
    let checked = check::check(&read(&args.path)?).map_err(|problems| refused(&problems))?;
    let mut out = Output::new();
    let _ = match args.format {
        GraphFormat::Dot => out.line(render::dot(&checked.graph, &args.without).trim_end())?,
        GraphFormat::Json => out.json(&render::json(&checked.graph, &args.without))?,
        GraphFormat::Svg => out.line(render::svg(&checked.graph, &args.without).map_err(fault)?.trim_end())?,
    };
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn order(args: &OrderArgs) -> Result<ExitCode, Failure> {
    let checked = check::check(&read(&args.path)?).map_err(|problems| refused(&problems))?;
    let cluster = match &args.cluster {
        Some(path) => cluster(path)?,
        None if args.node.is_empty() => plan::stand_ins(&checked.graph),
        None => Cluster::of(args.node.iter().map(|said| node(said)).collect::<Result<_, _>>()?),
    };
    let selection = Selection {
        tasks: args.tasks.clone(),
        skip: args.skip.clone(),
        start: args.start.clone(),
        end: args.end.clone(),
        include: args.include.clone(),
    };
    let options = Options { cluster: &cluster, selection: &selection, conditions: args.cluster.is_some() };
    let plan = plan::make(&checked, options).map_err(fault)?;
    let mut out = Output::new();
    if args.json {
        let document = serde_json::to_value(&plan).map_err(|error| Failure::new(Code::No, error.to_string()))?;
        let _ = out.json(&document)?;
    } else {
        let _ = out.lines(&plan.lines())?;
    }
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn answer(args: &OracleArgs) -> Result<ExitCode, Failure> {
    let text = text(&args.case)?;
    let case: Json = serde_json::from_str(&text)
        .map_err(|error| Failure::new(Code::Usage, format!("{}: {error}", args.case.display())))?;
    let corpus = Corpus(args.corpus.clone().map_or_else(|| folders(&args.case), |given| vec![given]));
    let answer = oracle::answer(&case, &corpus)
        .map_err(|error| Failure::new(Code::No, error).hint("--corpus says where files of tasks lie"))?;
    let mut out = Output::new();
    let _ = out.line(&answer.to_string())?;
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Where files of tasks may lie: `corpus/fuel` in a folder above the case, or above or beside one above this directory.
fn folders(case: &Path) -> Vec<PathBuf> {
    let case = std::path::absolute(case).unwrap_or_else(|_| case.to_owned());
    let here = std::env::current_dir().unwrap_or_default();
    let of = |folder: &Path| [folder.join("corpus/fuel"), folder.join("shared/corpus/fuel")];
    case.ancestors().skip(1).chain(here.ancestors()).flat_map(of).collect()
}

/// The folders in which files of tasks are looked for.
struct Corpus(Vec<PathBuf>);

impl World for Corpus {
    fn tasks_file(&self, name: &str) -> Result<String, String> {
        let found = self.0.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        let path = found.ok_or_else(|| format!("the file of tasks {name} is not found"))?;
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn is_file(&self, path: &str) -> bool {
        std::fs::File::open(path).is_ok_and(|file| file.metadata().is_ok_and(|found| found.is_file()))
    }
}

/// All tasks of files and directories, directories in order of their paths.
fn read(paths: &[PathBuf]) -> Result<Vec<Written>, Failure> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            let before = found.len();
            walk(path, MAX_DEPTH, &mut found)?;
            if found.len() == before {
                let failure = Failure::new(Code::NotFound, format!("no *tasks.yaml below {}", path.display()));
                return Err(failure.hint("files of other names are read if they are named"));
            }
        } else {
            found.push(path.clone());
        }
    }
    let (mut written, mut problems) = (Vec::new(), Vec::new());
    for path in found {
        match files::read(&path.display().to_string(), &text(&path)?) {
            Ok(tasks) => written.extend(tasks),
            Err(wrong) => problems.extend(wrong),
        }
    }
    if problems.is_empty() { Ok(written) } else { Err(refused(&problems)) }
}

fn walk(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(Code::No, format!("{}: {error}", directory.display()));
    let mut entries = std::fs::read_dir(directory).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    entries.sort_by_key(std::fs::DirEntry::path);
    for entry in entries {
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() && depth > 0 {
            walk(&entry.path(), depth - 1, found)?;
        } else if files::is_tasks_file(&entry.file_name().to_string_lossy()) && !kind.is_dir() {
            if found.len() >= MAX_FILES {
                return Err(Failure::new(Code::No, format!("more than {MAX_FILES} files of tasks")));
            }
            found.push(entry.path());
        }
    }
    Ok(())
}

fn text(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        let code = if error.kind() == std::io::ErrorKind::NotFound { Code::NotFound } else { Code::No };
        Failure::new(code, format!("{}: {error}", path.display()))
    })
}

fn node(said: &str) -> Result<Node, Failure> {
    let (uid, roles) =
        said.split_once('=').filter(|(uid, roles)| !uid.is_empty() && !roles.is_empty()).ok_or_else(|| {
            Failure::new(Code::Usage, format!("--node {said}: a node and its roles are wanted"))
                .hint("such as 1=controller,cinder")
        })?;
    Ok(Node::new(uid, &roles.split(',').collect::<Vec<_>>()))
}

fn cluster(path: &Path) -> Result<Cluster, Failure> {
    let name = path.display().to_string();
    let usage = |error: String| Failure::new(Code::Usage, format!("{name}: {error}"));
    files::read_cluster(&text(path)?).map_err(usage)
}

fn refused(problems: &[Problem]) -> Failure {
    let failure = Failure::new(Code::No, format!("the tasks are refused: {} problems", problems.len()));
    problems.iter().map(ToString::to_string).fold(failure, Failure::detail)
}

fn fault(fault: Fault) -> Failure {
    let code = if matches!(fault, Fault::Unknown(_)) { Code::NotFound } else { Code::No };
    Failure::new(code, fault.to_string())
}
