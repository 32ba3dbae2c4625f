//! `project remove`.

use std::path::Path;
use std::process::ExitCode;

use super::{Forges, failed, in_tenants};
use crate::cli::SiteArgs;
use crate::cli::project::ProjectRemoveArgs;
use crate::commands::failure::{Code, Failure};
use crate::commands::output::Output;

/// Where repositories are that were removed, below the forge's directory: no project can be called that.
const REMOVED: &str = ".removed";

/// Runs it.
pub fn run(site: &SiteArgs, args: &ProjectRemoveArgs) -> Result<ExitCode, Failure> {
    let forges = Forges::of(site, "project remove")?;
    let one = forges.one(args.connection.as_deref())?;
    let (name, file) = (&args.name, forges.tenant_file());
    let path = one.forge.path(name).map_err(|error| failed(&error))?;
    if path.symlink_metadata().is_err() {
        return Err(Failure::new(
            Code::NotFound,
            format!("there is no project {name}: {} is not there", path.display()),
        )
        .hint(format!("`gatelog project list --dir {}` names those there are", forges.dir())));
    }
    let tenants = match in_tenants::of(&forges.tenant_text()?, &one.connection, name) {
        Ok(tenants) => tenants,
        Err(error) if !args.force => {
            return Err(Failure::new(
                Code::Usage,
                format!("whether a tenant has {name} is not known: {} has an error", file.display()),
            )
            .detail(error)
            .hint("correct it, or remove the project with --force"));
        }
        Err(_) => Vec::new(),
    };
    if let (Some(first), false) = (tenants.first(), args.force) {
        let kind = if first.trusted { "config-projects" } else { "untrusted-projects" };
        let names: Vec<&str> = tenants.iter().map(|named| named.tenant.as_str()).collect();
        return Err(Failure::new(Code::InUse, format!("tenant {} has {name}", names.join(", ")))
            .detail("its configuration and changes would be looked for in vain")
            .hint(format!(
                "take {name} out of {kind} in {}, start gatelog again, and remove it then; --force removes it at once",
                file.display()
            )));
    }
    let open = one.forge.open_changes(name).map(|open| open.len()).unwrap_or_default();
    let mut out = Output::new();
    if args.delete {
        delete(&one.root, &path)?;
        let _ = out.line(&format!("{name} is deleted"))?;
    } else {
        let stamp = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        let aside = one.root.join(REMOVED).join(format!("{}-{stamp}.git", name.replace('/', "%2F")));
        move_to(&path, &aside)?;
        let _ = out.line(&format!("{name} is removed; all of it is kept in {}", aside.display()))?;
        let _ = out.line(&format!("to bring it back: mv {} {}", aside.display(), path.display()))?;
    }
    if open > 0 {
        let _ = out.line(&format!("it had {open} open change{}", if open == 1 { "" } else { "s" }))?;
    }
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn move_to(path: &Path, aside: &Path) -> Result<(), Failure> {
    let no = |what: &Path| {
        let what = what.display().to_string();
        move |error: std::io::Error| Failure::new(Code::No, format!("{what}: {error}"))
    };
    if let Some(above) = aside.parent() {
        std::fs::create_dir_all(above).map_err(no(above))?;
    }
    if aside.symlink_metadata().is_ok() {
        return Err(
            Failure::new(Code::InUse, format!("{} is there already", aside.display())).hint("try again in a second")
        );
    }
    std::fs::rename(path, aside).map_err(no(path))
}

/// Out of the way first, so that nobody meets half of it.
fn delete(root: &Path, path: &Path) -> Result<(), Failure> {
    let aside = root.join(REMOVED).join(format!("deleted-{}", std::process::id()));
    move_to(path, &aside)?;
    // A link is removed, and not what it leads to.
    let removed = match aside.symlink_metadata() {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(&aside),
        _ => std::fs::remove_file(&aside),
    };
    removed.map_err(|error| Failure::new(Code::No, format!("{} is left of it: {error}", aside.display())))
}
