//! `gatelog explain job`: why a job would run or not, from a configuration folder alone.

use std::process::ExitCode;

use gatelog_rules_config::folder::LoadedTenant;
use gatelog_rules_config::freeze::explain::{Explanation, explain};
use gatelog_rules_config::freeze::{FreezeOptions, FreezeSubject};
use serde_json::Value as Json;

use super::failure::{Code, Failure};
use super::folder;
use super::output::Output;
use crate::cli::ExplainJobArgs;
use crate::show::clean;

/// Reads the folder, freezes and explains; the exit code says whether the job runs.
pub fn run(args: &ExplainJobArgs) -> Result<ExitCode, Failure> {
    let mut folder = folder::read(&args.config, args.conf.as_deref(), &[])?;
    folder.older_spellings = true;
    let tenants = folder.load().map_err(|problems| {
        let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
        said.into_iter().fold(Failure::new(Code::No, "the tenant file is refused"), Failure::detail)
    })?;
    let mut told: Vec<(&str, Explanation)> = Vec::new();
    for tenant in tenants.iter().filter(|tenant| args.tenant.as_ref().is_none_or(|name| *name == tenant.settings.name))
    {
        if let Some(explanation) = of_tenant(tenant, args) {
            told.push((&tenant.settings.name, explanation));
        }
    }
    if told.is_empty() {
        let failure = Failure::new(Code::NotFound, format!("no tenant has a project {}", args.project));
        return Err(failure.hint("name it as the tenant file does, or by its canonical name, host/name"));
    }
    let mut out = Output::new();
    if args.json {
        let document = told.iter().map(|(tenant, explanation)| {
            let mut one = explanation.to_json();
            one["tenant"] = Json::String((*tenant).to_owned());
            one
        });
        let _ = out.json(&document.collect())?;
    } else {
        for (tenant, explanation) in &told {
            if told.len() > 1 {
                let _ = out.line(&clean(&format!("in tenant {tenant}:")))?;
            }
            let lines: Vec<String> = explanation.render().lines().map(clean).collect();
            let _ = out.lines(&lines)?;
        }
    }
    let _ = out.flush()?;
    let runs = told.iter().any(|(_, explanation)| explanation.runs);
    Ok(if runs { ExitCode::SUCCESS } else { Code::No.into() })
}

fn of_tenant(tenant: &LoadedTenant, args: &ExplainJobArgs) -> Option<Explanation> {
    let LoadedTenant { settings, layout, .. } = tenant;
    let project = layout.project(&args.project).ok()?;
    let known = settings.projects.iter().find(|known| known.canonical_name == project.canonical_name)?;
    let usual = known.branches.iter().find(|branch| **branch == project.default_branch);
    let branch = match (&args.branch, &args.reference) {
        (_, Some(_)) => None,
        (Some(branch), None) => Some(branch.clone()),
        (None, None) => Some(usual.or(known.branches.first()).unwrap_or(&project.default_branch).clone()),
    };
    let reference = match (&args.reference, &branch) {
        (Some(reference), _) => reference.clone(),
        (None, Some(branch)) => format!("refs/heads/{branch}"),
        (None, None) => String::new(),
    };
    let subject = FreezeSubject {
        project: project.canonical_name.clone(),
        branch,
        reference,
        files: args.files.clone(),
        ..FreezeSubject::default()
    };
    let options = FreezeOptions { skip_file_matchers: args.files.is_none(), ahead: None };
    Some(explain(layout, &subject, &args.pipeline, &args.job, options))
}
