//! `gatelog freeze`: which jobs a change would get, from a configuration folder alone.

use std::process::ExitCode;

use gatelog_rules_config::folder::LoadedTenant;
use gatelog_rules_config::freeze::{FreezeOptions, FreezeOutcome, FreezeSubject, freeze};
use gatelog_rules_config::oracle::{self, Question};
use serde_json::{Value as Json, json};

use super::failure::{Code, Failure};
use super::folder;
use super::output::Output;
use crate::cli::FreezeArgs;

/// Reads the folder, freezes and prints.
pub fn run(args: &FreezeArgs) -> Result<ExitCode, Failure> {
    let mut folder = folder::read(&args.config, args.conf.as_deref(), &args.make_branch)?;
    // Zuul knows no older spellings.
    folder.older_spellings = !args.oracle_format;
    let mut out = Output::new();
    if args.oracle_format {
        let question =
            Question { extra_branches: args.branch.clone(), files: args.files.clone(), tenants: args.tenant.clone() };
        let _ = out.line(oracle::document(&folder, &question).trim_end())?;
        let _ = out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let tenants = folder.load().map_err(|problems| {
        let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let failure = Failure::new(Code::No, "the tenant file is refused");
        said.into_iter().fold(failure, Failure::detail)
    })?;
    let asked = tenants.iter().filter(|tenant| args.tenant.is_empty() || args.tenant.contains(&tenant.settings.name));
    let mut graphs = Vec::new();
    for tenant in asked {
        graphs.extend(of_tenant(tenant, args));
    }
    if graphs.is_empty() {
        let failure = Failure::new(Code::NotFound, "no project, branch and pipeline fits");
        return Err(failure.hint("--project, --branch and --pipeline name them; --all takes every one"));
    }
    if args.json {
        let _ = out.json(&Json::Array(graphs.iter().map(Graph::to_json).collect()))?;
    } else {
        for graph in &graphs {
            let _ = out.lines(&graph.lines())?;
        }
    }
    let _ = out.flush()?;
    let refused = graphs.iter().any(|graph| matches!(graph.outcome, FreezeOutcome::Refused { .. }));
    Ok(if refused && !args.all { Code::No.into() } else { ExitCode::SUCCESS })
}

/// One project, branch and pipeline.
struct Graph {
    tenant: String,
    project: String,
    branch: String,
    pipeline: String,
    outcome: FreezeOutcome,
}

fn of_tenant(tenant: &LoadedTenant, args: &FreezeArgs) -> Vec<Graph> {
    let LoadedTenant { settings, layout, .. } = tenant;
    let fits = |asked: &Option<String>, names: &[&str]| match asked {
        Some(asked) => names.contains(&asked.as_str()),
        None => args.all,
    };
    let mut graphs = Vec::new();
    let projects =
        settings.projects.iter().filter(|project| fits(&args.project, &[&project.canonical_name, &project.name]));
    for project in projects {
        let mut branches: Vec<&String> = args.branch.iter().collect();
        if branches.is_empty() || args.all {
            branches.extend(project.branches.iter().filter(|branch| !args.branch.contains(branch)));
        }
        for branch in branches {
            for pipeline in layout.pipeline_order.iter().filter(|pipeline| fits(&args.pipeline, &[pipeline])) {
                let subject = FreezeSubject {
                    project: project.canonical_name.clone(),
                    branch: Some(branch.clone()),
                    reference: format!("refs/heads/{branch}"),
                    files: args.files.clone(),
                    ..FreezeSubject::default()
                };
                let options = FreezeOptions { skip_file_matchers: args.files.is_none(), ahead: None };
                let outcome = freeze(layout, &subject, pipeline, options);
                if args.all && matches!(outcome, FreezeOutcome::NotInPipeline { .. }) {
                    continue;
                }
                graphs.push(Graph {
                    tenant: settings.name.clone(),
                    project: project.canonical_name.clone(),
                    branch: branch.clone(),
                    pipeline: pipeline.clone(),
                    outcome,
                });
            }
        }
    }
    graphs
}

impl Graph {
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{}: {} {} in {}", self.tenant, self.project, self.branch, self.pipeline)];
        match &self.outcome {
            FreezeOutcome::NotInPipeline { .. } => lines.push("  not in this pipeline".to_owned()),
            FreezeOutcome::NoJobs { .. } => lines.push("  no jobs".to_owned()),
            FreezeOutcome::Refused { problem, .. } => {
                lines.extend(problem.to_string().lines().map(|line| format!("  {line}")));
            }
            FreezeOutcome::Frozen { graph, .. } => {
                for job in &graph.jobs {
                    let after: Vec<&str> = job.dependencies.iter().map(|one| one.name.as_str()).collect();
                    let after = if after.is_empty() { String::new() } else { format!(" after {}", after.join(", ")) };
                    let voting = if job.voting { "" } else { " (non-voting)" };
                    lines.push(format!("  {}{voting}{after}", job.name));
                }
            }
        }
        lines
    }

    fn to_json(&self) -> Json {
        let mut document = json!({
            "tenant": self.tenant, "project": self.project, "branch": self.branch, "pipeline": self.pipeline,
            "trace": self.outcome.trace().to_json(),
        });
        let state = match &self.outcome {
            FreezeOutcome::NotInPipeline { .. } => "not-in-pipeline",
            FreezeOutcome::NoJobs { .. } => "no-jobs",
            FreezeOutcome::Refused { problem, .. } => {
                document["problem"] = problem.to_json();
                "refused"
            }
            FreezeOutcome::Frozen { graph, .. } => {
                document["jobs"] = json!(graph.jobs);
                document["fail_fast"] = json!(graph.fail_fast);
                "frozen"
            }
        };
        document["state"] = json!(state);
        document
    }
}
