//! `project add`.

use std::path::Path;
use std::process::{Command, ExitCode};

use gatelog_driver_git::{Forge, SetUp};

use super::tenant_edit::{Edited, Wanted};
use super::{Forges, OneForge, failed, names};
use crate::cli::SiteArgs;
use crate::cli::project::ProjectAddArgs;
use crate::commands::failure::{Code, Failure};
use crate::commands::output::Output;

/// The default branch of a new repository where nobody names one.
const DEFAULT_BRANCH: &str = "main";

/// Runs it.
pub fn run(site: &SiteArgs, args: &ProjectAddArgs) -> Result<ExitCode, Failure> {
    let forges = Forges::of(site, "project add")?;
    let one = forges.one(args.connection.as_deref())?;
    let known = one.forge.projects().map_err(|error| failed(&error))?;
    names::check(&args.name, &known)?;
    let path = one.forge.path(&args.name).map_err(|error| failed(&error))?;
    misplaced(&path)?;
    // What cannot be written is told before anything is made.
    let edited = tenant_file(&forges, &one, args)?;
    let first = args.branch.first().map_or(DEFAULT_BRANCH, String::as_str);
    let done = one.forge.set_up(&args.name, first).map_err(|error| failed(&error))?;
    if let Err(failure) = fill(&one.forge, args) {
        if done.is_new {
            // Nothing is in it yet.
            let _ = std::fs::remove_dir_all(&done.path);
        }
        return Err(failure);
    }
    let written = match &edited {
        Some(Edited::Text { text, line }) => {
            write(&forges.tenant_file(), text)?;
            Some(*line)
        }
        _ => None,
    };
    say(&forges, &one, args, &done, written)
}

/// A repository that is there, and not where the forge looks for it.
fn misplaced(path: &Path) -> Result<(), Failure> {
    if path.join(".git").exists() {
        return Err(Failure::new(Code::Usage, format!("{} is no bare repository: it has a work tree", path.display()))
            .hint("move it elsewhere, and take it in with --import PATH"));
    }
    let bare = path.with_extension("");
    if !path.exists() && bare.join("HEAD").is_file() && bare.join("objects").is_dir() {
        return Err(Failure::new(Code::Usage, format!("{} is a repository whose name has no .git", bare.display()))
            .hint(format!("rename it: mv {} {}", bare.display(), path.display())));
    }
    if path.exists()
        && !path.join("HEAD").is_file()
        && std::fs::read_dir(path).is_ok_and(|mut all| all.next().is_some())
    {
        return Err(Failure::new(Code::Usage, format!("{} is there, and is no git repository", path.display()))
            .hint("move it elsewhere, or choose another name"));
    }
    Ok(())
}

/// What the tenant file is to say; `None`: no tenant was named.
fn tenant_file(forges: &Forges, one: &OneForge, args: &ProjectAddArgs) -> Result<Option<Edited>, Failure> {
    let Some(tenant) = &args.tenant else { return Ok(None) };
    let fine = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    if tenant.is_empty() || tenant.len() > 100 || !tenant.chars().all(fine) {
        return Err(Failure::new(Code::Usage, format!("{tenant:?} cannot name a tenant"))
            .hint("use 1 to 100 letters, digits, and - _ ."));
    }
    let wanted = wanted(one, args, tenant);
    wanted.put_into(&forges.tenant_text()?).map(Some).map_err(|why| {
        let file = forges.tenant_file().display().to_string();
        let mut failure =
            Failure::new(Code::Usage, format!("{file} is left as it is: {why}")).detail("what it has to say is");
        for line in wanted.shown() {
            failure = failure.detail(line);
        }
        failure.hint("write that yourself, and run this without --tenant")
    })
}

fn wanted<'a>(one: &'a OneForge, args: &'a ProjectAddArgs, tenant: &'a str) -> Wanted<'a> {
    Wanted { tenant, connection: &one.connection, project: &args.name, trusted: args.config_project }
}

/// Brings in what was asked for.
fn fill(forge: &Forge, args: &ProjectAddArgs) -> Result<(), Failure> {
    if let Some(source) = &args.import {
        import(forge, args, source)?;
    }
    forge.make_branches(&args.name, &args.branch).map_err(|error| failed(&error))?;
    Ok(())
}

fn import(forge: &Forge, args: &ProjectAddArgs, source: &str) -> Result<(), Failure> {
    let name = &args.name;
    if !forge.branches(name).map_err(|error| failed(&error))?.is_empty() {
        return Err(Failure::new(
            Code::Usage,
            format!("{name} has branches already: only an empty repository is filled"),
        )
        .hint("push what is missing with git, or choose another name"));
    }
    let path = forge.path(name).map_err(|error| failed(&error))?;
    // git runs in the repository: a path is one from here.
    let source = match std::fs::canonicalize(source) {
        Ok(path) => path.to_string_lossy().into_owned(),
        Err(_) => source.to_owned(),
    };
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(&path).args(arguments);
        command
    };
    let start =
        |error: std::io::Error| Failure::new(Code::No, format!("git cannot be started: {error}")).hint("install git");
    let fetch =
        ["fetch", "--quiet", "--no-tags", "--", &source, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"];
    // It asks for passwords, and says what goes wrong, at the terminal.
    if !git(&fetch).status().map_err(start)?.success() {
        return Err(Failure::new(Code::No, format!("git could not fetch from {source}")).hint("see what it says above"));
    }
    let branches = forge.branches(name).map_err(|error| failed(&error))?;
    if branches.is_empty() {
        return Err(Failure::new(Code::NotFound, format!("{source} has no branches")).hint("leave out --import"));
    }
    if args.branch.is_empty() {
        let head = git(&["ls-remote", "--symref", "--", &source, "HEAD"]).output().map_err(start)?;
        let head = String::from_utf8_lossy(&head.stdout).into_owned();
        let named = head.lines().find_map(|line| line.strip_prefix("ref: refs/heads/")?.split('\t').next());
        let named = named.filter(|named| branches.iter().any(|branch| branch == named));
        let default = named.or_else(|| branches.first().map(String::as_str)).unwrap_or(DEFAULT_BRANCH);
        forge.set_default_branch(name, default).map_err(|error| failed(&error))?;
    }
    forge.leave_word(name);
    Ok(())
}

/// Puts a text in the place of a file in one step; its mode stays.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    // A link stays one.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let put = || -> std::io::Result<()> {
        let directory = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory)?;
        let mut file = tempfile::Builder::new().prefix(".tenants-").tempfile_in(directory)?;
        std::io::Write::write_all(&mut file, text.as_bytes())?;
        let mode = match std::fs::metadata(&path) {
            Ok(known) => known.permissions(),
            Err(_) => std::os::unix::fs::PermissionsExt::from_mode(0o644),
        };
        file.as_file().set_permissions(mode)?;
        file.as_file().sync_all()?;
        file.persist(&path).map(drop).map_err(|error| error.error)
    };
    put().map_err(|error| Failure::new(Code::No, format!("{}: {error}", path.display())))
}

fn say(
    forges: &Forges,
    one: &OneForge,
    args: &ProjectAddArgs,
    done: &SetUp,
    written: Option<usize>,
) -> Result<ExitCode, Failure> {
    let (name, path, file) = (&args.name, done.path.display(), forges.tenant_file().display().to_string());
    let mut lines = Vec::new();
    lines.push(match (done.is_new, done.added.is_empty()) {
        (true, _) => format!("{name}: made {path}"),
        (false, true) => format!("{name}: {path} is set up already"),
        (false, false) => format!("{name}: set up {path}"),
    });
    if !done.is_new {
        lines.extend(done.added.iter().map(|added| format!("  added: {added}")));
    }
    let branches = one.forge.branches(name).map_err(|error| failed(&error))?;
    let default = one.forge.default_branch(name).ok().flatten().unwrap_or_else(|| DEFAULT_BRANCH.to_owned());
    if branches.is_empty() {
        lines.push(format!("  it has no branch yet; the first push makes it: git push {path} HEAD:{default}"));
    } else {
        lines.push(format!("  branches: {} (default: {default})", branches.join(", ")));
        lines.push(format!("  propose a change: git push {path} HEAD:refs/for/{default}/NAME"));
    }
    match (&args.tenant, written) {
        (Some(tenant), Some(line)) => {
            lines.push(format!("  tenant {tenant} has it: line {line} of {file}"));
            if forges.site.server().is_some() {
                let dir = forges.dir();
                lines.push(format!(
                    "  the gatelog that runs reads that file at its next start: gatelog stop --dir {dir}"
                ));
            }
        }
        (Some(tenant), None) => lines.push(format!("  tenant {tenant} has it already")),
        (None, _) => {
            let text = forges.tenant_text()?;
            let named = super::in_tenants::of(&text, &one.connection, name).unwrap_or_default();
            if named.is_empty() {
                lines.push(format!("  no tenant has it yet: {file} has to say"));
                lines.extend(wanted(one, args, "TENANT").shown().iter().map(|line| format!("      {line}")));
                lines.push("  --tenant TENANT writes that for you".to_owned());
            } else {
                let names: Vec<&str> = named.iter().map(|named| named.tenant.as_str()).collect();
                lines.push(format!("  in tenant {}", names.join(", ")));
            }
        }
    }
    let mut out = Output::new();
    let _ = out.lines(&lines)?;
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}
