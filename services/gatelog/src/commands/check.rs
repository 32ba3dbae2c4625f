//! `gatelog check`: what is wrong with a configuration, before it is pushed.

mod site;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use gatelog_rules_config::load::{ConfigFile, LoadInput, load};
use gatelog_rules_config::{Problem, Severity, TenantProject, TenantSettings, hints};
use serde_json::{Value as Json, json};

use super::failure::{Code, Failure};
use super::folder;
use super::output::Output;
use crate::cli::{CheckArgs, CheckFormat, SiteArgs};

/// Reads, loads and tells. Exit code 1 when there is an error, or a warning with `--strict`.
pub fn run(of: &SiteArgs, args: &CheckArgs) -> Result<ExitCode, Failure> {
    if args.site {
        return site::run(of, args);
    }
    let tenant = args.conf.is_some() || folder::tenant_file(&args.path).is_file();
    let mut problems = if tenant { check_folder(args)? } else { check_repository(args)? };
    if !args.hints {
        problems.retain(|problem| problem.severity != Severity::Notice);
    }
    let mut out = Output::new();
    match args.format {
        CheckFormat::Text => {
            for problem in &problems {
                let _ = out.line(&format!("{problem}\n"))?;
            }
            let _ = out.line(&summary(&problems))?;
        }
        CheckFormat::Json => {
            let _ = out.json(&Json::Array(problems.iter().map(Problem::to_json).collect()))?;
        }
        CheckFormat::Sarif => {
            let _ = out.json(&sarif(&problems))?;
        }
    }
    let _ = out.flush()?;
    let bad = problems.iter().any(|problem| match problem.severity {
        Severity::Error => true,
        Severity::Warning => args.strict,
        Severity::Notice => false,
    });
    Ok(if bad { Code::No.into() } else { ExitCode::SUCCESS })
}

fn summary(problems: &[Problem]) -> String {
    let count = |severity| problems.iter().filter(|problem| problem.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    format!("{errors} error(s), {warnings} warning(s), {} hint(s)", count(Severity::Notice))
}

fn check_folder(args: &CheckArgs) -> Result<Vec<Problem>, Failure> {
    let mut folder = folder::read(&args.path, args.conf.as_deref(), &[])?;
    folder.older_spellings = true;
    let tenants = match folder.load() {
        Err(problems) => return Ok(problems),
        Ok(tenants) => tenants,
    };
    let mut seen = BTreeSet::new();
    let mut problems = Vec::new();
    for tenant in tenants {
        let found = gatelog_rules_config::findings::problems(tenant.findings);
        let hints = if args.hints { hints::unused(&tenant.layout) } else { Vec::new() };
        // Tenants share repositories; what is wrong in one place is told once.
        problems.extend(found.into_iter().chain(hints).filter(|problem| seen.insert(problem.clone())));
    }
    Ok(problems)
}

/// A repository by itself: what it takes from other repositories cannot be looked for.
fn check_repository(args: &CheckArgs) -> Result<Vec<Problem>, Failure> {
    if !args.path.is_dir() {
        let message = format!("{} is neither a tenant file nor a directory", args.path.display());
        return Err(Failure::new(Code::NotFound, message));
    }
    let name = repository_name(&args.path);
    let branch = args.branch.clone();
    let project = TenantProject {
        canonical_name: name.clone(),
        default_branch: branch.clone(),
        branches: vec![branch.clone()],
        load_branch: Some(branch.clone()),
        extra_config_paths: args.extra_config_path.clone(),
        ..TenantProject::new("", &name, args.trusted)
    };
    let files = folder::read_repository(&args.path)?.into_iter().map(|(path, text)| ConfigFile {
        project: name.clone(),
        branch: branch.clone(),
        path,
        text,
    });
    let tenant = TenantSettings { projects: vec![project], ..TenantSettings::default() };
    let (_, problems) = load(&LoadInput { tenant, files: files.collect() });
    // What is defined elsewhere is not there, and no fault.
    Ok(problems.into_iter().filter(|problem| !problem.code.ends_with("-not-found")).collect())
}

fn repository_name(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole.file_name().map_or_else(|| "repository".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// SARIF 2.1.0, as code-scanning tools read it.
fn sarif(problems: &[Problem]) -> Json {
    let rules: BTreeSet<&str> = problems.iter().map(|problem| problem.code.as_str()).collect();
    let results: Vec<Json> = problems
        .iter()
        .map(|problem| {
            let level = match problem.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Notice => "note",
            };
            let text = match problem.cure.is_empty() {
                true => problem.message.clone(),
                false => format!("{} ({})", problem.message, problem.cure),
            };
            let mut location = json!({"artifactLocation": {"uri": problem.place.context.path}});
            if problem.place.line > 0 {
                location["region"] =
                    json!({"startLine": problem.place.line, "startColumn": problem.place.column.max(1)});
            }
            json!({
                "ruleId": problem.code, "level": level, "message": {"text": text},
                "locations": [{
                    "physicalLocation": location,
                    "logicalLocations": [{
                        "fullyQualifiedName":
                            format!("{}@{}", problem.place.context.project, problem.place.context.branch),
                    }],
                }],
            })
        })
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "gatelog", "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.iter().map(|code| json!({"id": code})).collect::<Vec<_>>(),
            }},
            "results": results,
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(path: &Path) -> CheckArgs {
        CheckArgs {
            site: false,
            path: path.to_owned(),
            conf: None,
            trusted: false,
            branch: "master".to_owned(),
            extra_config_path: Vec::new(),
            hints: false,
            strict: false,
            format: CheckFormat::Text,
        }
    }

    #[test]
    fn a_repository_is_checked_for_what_can_be_seen_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let text = "- job: {name: a, parent: elsewhere, timeot: 5}\n- job: {name: b, parent: elsewhere}\n";
        std::fs::write(dir.path().join(".zuul.yaml"), text).unwrap();
        let problems = check_repository(&args(dir.path())).unwrap();
        let codes: Vec<&str> = problems.iter().map(|problem| problem.code.as_str()).collect();
        assert_eq!(codes, ["unknown-attribute"], "a parent in another repository is no fault");
        let log = sarif(&problems);
        let result = &log["runs"][0]["results"][0];
        assert_eq!(result["ruleId"], "unknown-attribute");
        assert_eq!(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], ".zuul.yaml");
        assert_eq!(result["locations"][0]["physicalLocation"]["region"]["startLine"], 1);
    }

    #[test]
    fn a_folder_is_checked_with_all_its_projects() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("main.yaml", "- tenant:\n    name: t\n    source:\n      g:\n        untrusted-projects: [org/app]\n");
        write("zuul.conf", "[connection g]\ndriver=gerrit\nserver=example.com\n");
        write("git/org_app/zuul.yaml", "- job: {name: a, parent: elsewhere}\n");
        let problems = check_folder(&args(dir.path())).unwrap();
        let codes: Vec<&str> = problems.iter().map(|problem| problem.code.as_str()).collect();
        assert_eq!(codes, ["parent-not-found"]);
    }
}
