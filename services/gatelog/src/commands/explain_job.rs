//! `gatelog explain job`: why a job would run or not, with the configuration a site has or had, or that of a folder.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gatelog_rules_config::Layout;
use gatelog_rules_config::freeze::explain::{Explanation, explain};
use gatelog_rules_config::freeze::{FreezeOptions, FreezeSubject};
use gatelog_rules_config::layout::ProjectLookupError;
use gatelog_rules_config::problem::did_you_mean;
use serde_json::Value as Json;

use super::explain::moment;
use super::failure::{Code, Failure};
use super::output::Output;
use super::{folder, queues, replay};
use crate::cli::{ExplainJobArgs, SiteArgs};
use crate::config;
use crate::show::{Paint, Style, clean};

/// Configurations to ask.
struct Known {
    /// Where they come from, as of when; none for a folder.
    as_of: Option<String>,
    /// The layout of each tenant.
    tenants: Vec<(String, Layout)>,
}

/// Finds the configuration, freezes and explains; the exit code says whether the job runs.
pub fn run(site: &SiteArgs, args: &ExplainJobArgs) -> Result<ExitCode, Failure> {
    let mut known = match folder_of(site, args) {
        Some(config) => of_folder(&config, args)?,
        None => of_site(site, args)?,
    };
    if let Some(tenant) = &args.tenant {
        known.tenants.retain(|(name, _)| name == tenant);
        if known.tenants.is_empty() {
            return Err(Failure::new(Code::NotFound, format!("there is no tenant {tenant:?} with a configuration")));
        }
    }
    let mut told: Vec<(&str, Explanation)> = Vec::new();
    for (tenant, layout) in &known.tenants {
        if let Some(explanation) = of_tenant(layout, args) {
            told.push((tenant, explanation));
        }
    }
    if told.is_empty() {
        return Err(no_project(&known, &args.project));
    }
    let mut out = Output::new();
    if args.json {
        let document = told.iter().map(|(tenant, explanation)| {
            let mut one = explanation.to_json();
            one["tenant"] = Json::String((*tenant).to_owned());
            if let Some(as_of) = &known.as_of {
                one["as_of"] = Json::String(as_of.clone());
            }
            one
        });
        let _ = out.json(&document.collect())?;
    } else {
        let style = Style::of_stdout();
        if let Some(as_of) = &known.as_of {
            let _ = out.line(&style.paint(Paint::Faint, &clean(as_of)))?;
        }
        for (place, (tenant, explanation)) in told.iter().enumerate() {
            if told.len() > 1 {
                let gap = if place > 0 { "\n" } else { "" };
                let _ = out.line(&format!("{gap}{}", style.paint(Paint::Bold, &clean(&format!("tenant {tenant}")))))?;
            }
            let lines: Vec<String> = explanation.render().lines().map(clean).collect();
            let _ = out.lines(&lines)?;
        }
    }
    let _ = out.flush()?;
    let runs = told.iter().any(|(_, explanation)| explanation.runs);
    Ok(if runs { ExitCode::SUCCESS } else { Code::No.into() })
}

/// The folder that is meant; none when it is a site.
fn folder_of(site: &SiteArgs, args: &ExplainJobArgs) -> Option<PathBuf> {
    if args.config.is_some() {
        return args.config.clone();
    }
    let environment = std::env::var_os("GATELOG_DIR").is_some_and(|dir| !dir.is_empty());
    let named = site.dir.is_some() || site.url.is_some() || args.at.is_some() || environment;
    let here = Path::new(".");
    let folder = !Path::new(config::FILE).exists() && folder::tenant_file(here).is_file();
    (!named && (folder || args.conf.is_some())).then(|| here.to_owned())
}

fn of_folder(config: &Path, args: &ExplainJobArgs) -> Result<Known, Failure> {
    let mut folder = folder::read(config, args.conf.as_deref(), &[])?;
    folder.older_spellings = true;
    let tenants = folder.load().map_err(|problems| {
        let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
        said.into_iter().fold(Failure::new(Code::No, "the tenant file is refused"), Failure::detail)
    })?;
    let tenants = tenants.into_iter().map(|tenant| (tenant.settings.name, tenant.layout));
    Ok(Known { as_of: None, tenants: tenants.collect() })
}

fn of_site(site: &SiteArgs, args: &ExplainJobArgs) -> Result<Known, Failure> {
    let site = site.directory("explain job").map_err(|failure| match failure.code {
        Code::Usage => failure.hint("name the site's directory with --dir, or a folder of configuration with --config"),
        _ => failure,
    })?;
    let mut tenants = Vec::new();
    let as_of = replay::gates_at(&site, moment(args.at), |live, blobs, _| {
        for name in queues::tenants(live)? {
            if args.tenant.as_ref().is_none_or(|only| *only == name)
                && let Some(layout) = queues::layout(live, blobs, &name)?
            {
                tenants.push((name, layout));
            }
        }
        Ok(())
    })?;
    if tenants.is_empty() && args.tenant.is_none() {
        let failure = Failure::new(Code::NotFound, format!("no tenant had a configuration ({as_of})"));
        return Err(failure.hint("`gatelog status` says what a tenant waits for"));
    }
    Ok(Known { as_of: Some(as_of), tenants })
}

/// Nobody has the project: which one may be meant.
fn no_project(known: &Known, project: &str) -> Failure {
    let mut layouts = known.tenants.iter().map(|(_, layout)| layout);
    let ambiguous = layouts.find_map(|layout| match layout.project(project) {
        Err(error @ ProjectLookupError::Ambiguous { .. }) => Some(error),
        _ => None,
    });
    if let Some(error) = ambiguous {
        return Failure::new(Code::NotFound, error.to_string()).hint("use one of these canonical names");
    }
    let failure = Failure::new(Code::NotFound, format!("no tenant has a project {project}"));
    let names = known.tenants.iter().flat_map(|(_, layout)| layout.projects.values());
    let near = did_you_mean(project, names.flat_map(|known| [known.name.as_str(), known.canonical_name.as_str()]));
    failure.hint(match near {
        Some(near) => format!("did you mean {near}?"),
        None => "name it as the tenant file does, or by its canonical name, host/name".to_owned(),
    })
}

fn of_tenant(layout: &Layout, args: &ExplainJobArgs) -> Option<Explanation> {
    let project = layout.project(&args.project).ok()?;
    let usual = project.branches.iter().find(|branch| **branch == project.default_branch);
    let branch = match (&args.branch, &args.reference) {
        (_, Some(_)) => None,
        (Some(branch), None) => Some(branch.clone()),
        (None, None) => Some(usual.or(project.branches.first()).unwrap_or(&project.default_branch).clone()),
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
