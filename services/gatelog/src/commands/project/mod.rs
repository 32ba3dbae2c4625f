//! `gatelog project`: the repositories of the plain-git forge.

mod add;
pub mod in_tenants;
mod list;
mod names;
mod remove;
mod tenant_edit;

use std::path::PathBuf;
use std::process::ExitCode;

use gatelog_driver_git::{Forge, ForgeError};

use super::failure::{Code, Failure};
use super::site::Site;
use crate::cli::SiteArgs;
use crate::cli::project::ProjectCommand;
use crate::config::{FILE, SiteConfig};

/// Runs it.
pub fn run(site: &SiteArgs, command: &ProjectCommand) -> Result<ExitCode, Failure> {
    match command {
        ProjectCommand::Add(args) => add::run(site, args),
        ProjectCommand::List(args) => list::run(site, args),
        ProjectCommand::Remove(args) => remove::run(site, args),
    }
}

/// A site with forges.
struct Forges {
    site: Site,
    config: SiteConfig,
}

/// One forge of it.
struct OneForge {
    connection: String,
    root: PathBuf,
    forge: Forge,
}

impl OneForge {
    fn of(name: &str, forge: Forge) -> OneForge {
        OneForge { connection: name.to_owned(), root: forge.config().directory.clone(), forge }
    }
}

impl Forges {
    /// The site that a command is about.
    fn of(site: &SiteArgs, command: &str) -> Result<Forges, Failure> {
        if site.url.is_some() {
            return Err(Failure::new(
                Code::Usage,
                format!("{command} works on the site's directory and does not take --url"),
            )
            .hint("run it on the machine the repositories are on, with --dir DIR"));
        }
        let site = site.directory(command).map_err(|failure| match failure.code {
            Code::Usage | Code::NotFound => {
                failure.detail(format!("a site begins with a {FILE} of three lines: docs/forge.md"))
            }
            _ => failure,
        })?;
        let config = site.config()?.ok_or_else(|| {
            Failure::new(
                Code::NotFound,
                format!("{} is not there: it says where the forge is", site.dir().join(FILE).display()),
            )
        })?;
        Ok(Forges { site, config })
    }

    /// The forge of one connection; of the only one, where none is named.
    fn one(&self, named: Option<&str>) -> Result<OneForge, Failure> {
        let all = &self.config.connection;
        let known = || all.keys().cloned().collect::<Vec<_>>().join(", ");
        let file = self.site.dir().join(FILE);
        let forges: Vec<&String> =
            all.iter().filter(|(_, one)| crate::forges::settings(one).is_some()).map(|(name, _)| name).collect();
        let name = match (named, forges.as_slice()) {
            (Some(name), _) => name,
            (None, [one]) => one.as_str(),
            (None, []) => {
                return Err(Failure::new(Code::Usage, format!("{} has no connection", file.display())).hint(
                    "add [connection.forge] with driver = \"git\" and canonical-hostname = \"git.example.org\"",
                ));
            }
            (None, _) => {
                return Err(Failure::new(Code::Usage, "which connection? There are several")
                    .hint(format!("name one with --connection: {}", known())));
            }
        };
        let connection = all.get(name).ok_or_else(|| {
            let failure = Failure::new(Code::NotFound, format!("{} has no [connection.{name}]", file.display()));
            if all.is_empty() { failure } else { failure.hint(format!("it has: {}", known())) }
        })?;
        let settings = crate::forges::settings(connection).ok_or_else(|| {
            let driver = connection.driver.name;
            Failure::new(Code::Usage, format!("connection {name} is no plain-git forge: its driver is {driver}"))
                .hint("its projects are made and listed where it is")
        })?;
        let forge = crate::forges::open(self.site.dir(), name, settings).map_err(|error| failed(&error))?;
        Ok(OneForge::of(name, forge))
    }

    /// The forges that are there: all, or the one that is named.
    fn existing(&self, named: Option<&str>) -> Result<Vec<OneForge>, Failure> {
        if let Some(name) = named
            && self.config.connection.get(name).and_then(crate::forges::settings).is_none()
        {
            return self.one(named).map(|one| vec![one]);
        }
        let wanted = self.config.connection.iter().filter(|(name, _)| named.is_none_or(|named| named == *name));
        let mut found = Vec::new();
        for (name, connection) in wanted {
            let Some(settings) = crate::forges::settings(connection) else { continue };
            match crate::forges::existing(self.site.dir(), name, settings) {
                Ok(forge) => found.push(OneForge::of(name, forge)),
                // Nobody has made a project yet.
                Err(ForgeError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(found)
    }

    /// The tenant file.
    fn tenant_file(&self) -> PathBuf {
        self.site.dir().join(&self.config.tenant_file)
    }

    /// What stands in it; nothing where there is none.
    fn tenant_text(&self) -> Result<String, Failure> {
        let path = self.tenant_file();
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(Failure::new(Code::No, format!("{}: {error}", path.display()))),
        }
    }

    /// The site's directory, as a command names it.
    fn dir(&self) -> String {
        self.site.dir().display().to_string()
    }
}

/// What the forge says, with its cure as the hint.
fn failed(error: &ForgeError) -> Failure {
    let code = match error {
        ForgeError::BadName { .. } => Code::Usage,
        ForgeError::NoProject { .. } | ForgeError::NoChange { .. } => Code::NotFound,
        _ => Code::No,
    };
    let text = gatelog_effects::connection::chain(error);
    match text.split_once(": ") {
        // The names of these end in what to do.
        Some((what, cure)) if matches!(error, ForgeError::ForeignHook { .. } | ForgeError::HooksElsewhere { .. }) => {
            Failure::new(code, what).hint(cure)
        }
        _ => Failure::new(code, text),
    }
}
