//! `gatelog ansible`: the versions of Ansible that jobs may ask for. Zuul: `zuul-manage-ansible`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use gatelog_executing::environments::{self, Environment, MARKER, RELEASES, Release};
use gatelog_executing::versions;
use serde_json::{Value as Json, json};

use super::failure::{Code, Failure};
use super::output::Output;
use crate::cli::SiteArgs;
use crate::cli::ansible::{AnsibleCommand, AnsibleListArgs, AnsibleValidateArgs};
use crate::config::SiteConfig;
use crate::show::{self, Style, clean};

mod install;

/// Asks the Python of an environment for packages that are not as the marker says: name, wanted, found; a line each.
const PACKAGES: &str = "import json, sys\n\
    from importlib import metadata\n\
    for name, package in json.load(open(sys.argv[1], encoding='utf-8'))['packages'].items():\n\
    \x20   try: found = metadata.version(name)\n\
    \x20   except metadata.PackageNotFoundError: found = ''\n\
    \x20   if found != package['version']: print(name, package['version'], found, sep='\\t')\n";

/// The most packages that are named one by one.
const NAMED: usize = 5;

/// Where a site keeps them, and what its jobs get by default.
struct Place {
    root: PathBuf,
    default: String,
}

impl Place {
    fn of(site: &SiteArgs, command: &str) -> Result<Place, Failure> {
        if site.url.is_some() {
            return Err(Failure::new(Code::Usage, format!("{command} works on this machine and does not take --url"))
                .hint("run it on the executor's host, and name its directory with --dir"));
        }
        let site = site.directory(command)?;
        let config = site.config()?;
        let config = config.map_or_else(|| SiteConfig::read(site.dir()).map_err(anyhow::Error::from), Ok)?;
        let root = config.executor.ansible_root(site.dir());
        Ok(Place { root, default: config.scheduler.default_ansible_version })
    }
}

/// Runs it.
pub fn run(site: &SiteArgs, command: &AnsibleCommand) -> Result<ExitCode, Failure> {
    match command {
        AnsibleCommand::Install(args) => install::run(&Place::of(site, "ansible install")?, args),
        AnsibleCommand::List(args) => list(&Place::of(site, "ansible list")?, args),
        AnsibleCommand::Validate(args) => validate(&Place::of(site, "ansible validate")?, args),
    }
}

/// The releases that are named; `None`: none is.
fn releases(versions: &[String]) -> Result<Option<Vec<&'static Release>>, Failure> {
    if versions.is_empty() {
        return Ok(None);
    }
    let known = || RELEASES.map(|release| release.version).join(", ");
    let find = |version: &String| {
        Release::named(version).ok_or_else(|| {
            Failure::new(Code::Usage, format!("{version:?} is no version of Ansible that jobs may ask for"))
                .hint(format!("name one of: {}", known()))
        })
    };
    versions.iter().map(find).collect::<Result<Vec<_>, _>>().map(Some)
}

fn list(place: &Place, args: &AnsibleListArgs) -> Result<ExitCode, Failure> {
    let mut table = vec![["version", "", "ansible", "ansible-core", "Python", "where"].map(str::to_owned)];
    let mut documents = Vec::new();
    for release in &RELEASES {
        let found = environments::find(&place.root, release.version);
        let mut notes = vec![match &found {
            Ok(Some(_)) => "installed",
            Ok(None) => "not installed",
            Err(_) => "broken",
        }];
        notes.extend((release.version == place.default).then_some("default"));
        notes.extend(release.deprecated.then_some("deprecated"));
        let told = |of: fn(&Environment) -> String| match &found {
            Ok(Some(environment)) => clean(&of(environment)),
            _ => String::new(),
        };
        table.push([
            release.version.to_owned(),
            notes.join(", "),
            told(|one| one.marker.ansible.clone()),
            told(|one| one.marker.ansible_core.clone()),
            told(|one| one.marker.python.clone()),
            told(|one| one.directory.display().to_string()),
        ]);
        documents.push(json!({
            "version": release.version,
            "default": release.version == place.default,
            "deprecated": release.deprecated,
            "installed": matches!(found, Ok(Some(_))),
            "problem": found.as_ref().err().map(ToString::to_string),
            "directory": found.as_ref().ok().and_then(Option::as_ref).map(|one| one.directory.display().to_string()),
            "marker": found.as_ref().ok().and_then(Option::as_ref).map(|one| json!(one.marker)),
        }));
    }
    let mut out = Output::new();
    let _ = if args.json {
        out.json(&json!({ "root": place.root.display().to_string(), "versions": documents }))?
    } else {
        out.lines(&show::table(&table, Style::of_stdout()))?
    };
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn validate(place: &Place, args: &AnsibleValidateArgs) -> Result<ExitCode, Failure> {
    let wanted = releases(&args.versions)?.unwrap_or_else(|| {
        RELEASES
            .iter()
            .filter(|release| !matches!(environments::find(&place.root, release.version), Ok(None)))
            .collect()
    });
    let runtime = install::runtime()?;
    let mut lines = Vec::new();
    let mut documents: Vec<Json> = Vec::new();
    for release in &wanted {
        let checked = runtime.block_on(check(&place.root, release));
        let cure = |upgrade: bool| {
            let more = if upgrade { " --upgrade" } else { "" };
            format!("gatelog ansible install {}{more}", release.version)
        };
        let (problems, cure) = match &checked {
            Ok(said) => {
                lines.push(format!("Ansible {}: {said}", release.version));
                (Vec::new(), None)
            }
            Err((installed, problems)) => (problems.clone(), Some(cure(*installed))),
        };
        lines.extend(problems.iter().map(|problem| format!("Ansible {}: {}", release.version, clean(problem))));
        lines.extend(cure.iter().map(|cure| format!("  cure: {cure}")));
        documents.push(json!({ "version": release.version, "problems": problems, "cure": cure }));
    }
    if wanted.is_empty() {
        lines.push(format!("no version of Ansible is installed in {}", place.root.display()));
        lines.push("  cure: gatelog ansible install".into());
    }
    let well = !wanted.is_empty() && documents.iter().all(|one| one["cure"].is_null());
    let mut out = Output::new();
    let _ = if args.json {
        out.json(&json!({ "ok": well, "root": place.root.display().to_string(), "versions": documents }))?
    } else {
        out.lines(&lines)?
    };
    let _ = out.flush()?;
    Ok(if well { Code::Ok } else { Code::No }.into())
}

/// What an installed version says when it is started; else whether one is installed, and what is wrong.
async fn check(root: &Path, release: &Release) -> Result<String, (bool, Vec<String>)> {
    let environment = match environments::find(root, release.version) {
        Ok(Some(environment)) => environment,
        Ok(None) => return Err((false, vec![format!("not installed in {}", root.display())])),
        Err(broken) => return Err((true, vec![broken.to_string()])),
    };
    let toolchain = versions::start(&environment).await.map_err(|reason| (true, vec![reason]))?;
    let problems = packages(&environment).map_err(|reason| (true, vec![reason]))?;
    if !problems.is_empty() {
        return Err((true, problems));
    }
    let marker = &environment.marker;
    let count = marker.packages.len();
    Ok(format!("{}, ansible-core {}, {count} packages, all there", marker.ansible, toolchain.version))
}

/// Packages that are not as they were installed.
fn packages(environment: &Environment) -> Result<Vec<String>, String> {
    let mut command = Command::new(environment.program("python"));
    command.args(["-I", "-c", PACKAGES]).arg(environment.directory.join(MARKER)).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("its Python does not start: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("its packages cannot be listed: {}", said.lines().last().unwrap_or("it said nothing")));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut problems: Vec<String> = Vec::new();
    for line in text.lines() {
        let mut parts = line.split('\t').map(str::to_owned);
        let (name, wanted) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        problems.push(match parts.next().filter(|found| !found.is_empty()) {
            Some(found) => format!("{name} {wanted} was installed, and {found} is there"),
            None => format!("{name} {wanted} is missing"),
        });
    }
    if problems.len() > NAMED {
        let more = problems.len() - NAMED;
        problems.truncate(NAMED);
        problems.push(format!("{more} more packages are not as they were installed"));
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_installed_is_what_jobs_may_ask_for() {
        for release in &RELEASES {
            let text = format!("- tenant:\n    name: a\n    default-ansible-version: '{}'\n", release.version);
            let (tenants, problems) = gatelog_rules_config::parse_tenant_file(&text);
            assert_eq!((tenants.len(), problems.len()), (1, 0), "{problems:?}");
        }
        let (tenants, problems) =
            gatelog_rules_config::parse_tenant_file("- tenant:\n    name: a\n    default-ansible-version: '8'\n");
        assert!(tenants.is_empty());
        let known = RELEASES.map(|release| release.version).join(", ");
        assert!(problems[0].to_string().contains(&format!("choose one of: {known}")), "{}", problems[0]);
        let (tenants, _) = gatelog_rules_config::parse_tenant_file("- tenant:\n    name: a\n");
        assert_eq!(tenants[0].settings.default_ansible_version, environments::DEFAULT_RELEASE);
        let (tenants, _) = gatelog_rules_config::parse_tenant_file_with("- tenant:\n    name: a\n", "9");
        assert_eq!(tenants[0].settings.default_ansible_version, "9");
    }

    #[test]
    fn a_version_that_jobs_cannot_ask_for_is_not_installed() {
        let failure = releases(&["11".into(), "2.9".into()]).unwrap_err();
        assert_eq!(failure.code, Code::Usage);
        assert_eq!(releases(&[]).unwrap(), None);
        let found = releases(&["9".into()]).unwrap().unwrap();
        assert_eq!(found.iter().map(|release| release.version).collect::<Vec<_>>(), ["9"]);
    }
}
