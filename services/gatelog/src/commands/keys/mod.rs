//! `gatelog keys`: the key pairs of projects and tenants, in a site's keys directory. Safe beside running servers.

use std::path::Path;
use std::process::ExitCode;

use gatelog_effects::connection::chain;
use gatelog_record::draft::gate::AccessTold;
use gatelog_rules_config::parse_tenant_file;
use gatelog_secrets::{KeyOwner, Keyring, KeyringError, SshOwner};

mod life;
mod many;

use super::audit::tell;
use super::encrypt::read;
use super::failure::{Code, Failure};
use super::output::Output;
use super::site::Site;
use crate::audit::told::own_actor;
use crate::cli::SiteArgs;
use crate::cli::keys::{KeysCommand, KeysImportArgs, KeysImportTenantArgs, KeysShowArgs, KeysShowTenantArgs};
use crate::renewals::{self, Imported};

/// `keys …`
pub fn run(site: &SiteArgs, command: &KeysCommand) -> Result<ExitCode, Failure> {
    match command {
        KeysCommand::Import(args) => import(site, args),
        KeysCommand::Show(args) => show(site, args),
        KeysCommand::ImportAll(args) => many::import_all(site, args),
        KeysCommand::ImportDir(args) => many::import_dir(site, args),
        KeysCommand::Export(args) => many::export(site, args),
        KeysCommand::List(args) => life::list(site, args),
        KeysCommand::Rotate(args) => life::rotate(site, args),
        KeysCommand::Retire(args) => life::retire(site, args),
        KeysCommand::Copy(args) => life::copy(site, args),
        KeysCommand::Delete(args) => life::delete(site, args),
        KeysCommand::ReplaceTokenKeys(_) => life::replace_token_keys(site),
        KeysCommand::ImportTenant(args) => import_tenant(site, args),
        KeysCommand::ShowTenant(args) => show_tenant(site, args),
    }
}

/// Takes a project's key over.
fn import(site: &SiteArgs, args: &KeysImportArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("keys import")?;
    know_connection(&site, &args.connection)?;
    let keyring = open(&site)?;
    let pem = read(&args.file, std::fs::File::open(&args.file))?;
    let owner = KeyOwner::new(&args.connection, &args.project);
    if args.ssh {
        return import_ssh(&keyring, &SshOwner::Project(owner), &pem, &args.file, args.replace);
    }
    let key = keyring.import_project_key(&owner, &pem, args.replace).map_err(|error| failure(&error))?;
    let usual = format!("the key of {} on {} was imported", args.project, args.connection);
    renew(&site, &keyring, std::slice::from_ref(&owner), args.reason.as_deref().unwrap_or(&usual))?;
    print(&format!("{owner} has the key of {} bits from {}", key.bits(), args.file.display()))
}

/// Prints the public half of a project's key.
fn show(site: &SiteArgs, args: &KeysShowArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("keys show")?;
    know_connection(&site, &args.connection)?;
    let keyring = open(&site)?;
    let owner = KeyOwner::new(&args.connection, &args.project);
    let text = if args.ssh {
        keyring.ssh_key(&SshOwner::Project(owner.clone())).map(|key| key.public_line())
    } else {
        keyring.project_key(&owner).map(|key| key.public_pem().trim_end().to_owned())
    };
    let text = text.map_err(|error| failure(&error))?;
    shown(&site, &keyring, &owner.to_string())?;
    print(&text)
}

/// Whoever was shown a key may let others in by it: that is told to the log.
fn shown(site: &Site, keyring: &Keyring, owner: &str) -> Result<(), Failure> {
    let (what, subject) = ("key-shown".to_owned(), owner.to_owned());
    tell(site, keyring, "", AccessTold { what, subject, detail: "the public half".to_owned() })
}

/// Takes a tenant's SSH key over.
fn import_tenant(site: &SiteArgs, args: &KeysImportTenantArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("keys import-tenant")?;
    know_tenant(&site, &args.tenant)?;
    let keyring = open(&site)?;
    let pem = read(&args.file, std::fs::File::open(&args.file))?;
    import_ssh(&keyring, &SshOwner::Tenant(args.tenant.clone()), &pem, &args.file, args.replace)
}

/// Prints the public half of a tenant's SSH key.
fn show_tenant(site: &SiteArgs, args: &KeysShowTenantArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("keys show-tenant")?;
    know_tenant(&site, &args.tenant)?;
    let keyring = open(&site)?;
    let key = keyring.ssh_key(&SshOwner::Tenant(args.tenant.clone())).map_err(|error| failure(&error))?;
    shown(&site, &keyring, &format!("tenant {}", args.tenant))?;
    print(&key.public_line())
}

fn import_ssh(keyring: &Keyring, owner: &SshOwner, pem: &str, file: &Path, replace: bool) -> Result<ExitCode, Failure> {
    let key = keyring.import_ssh_key(owner, pem, replace).map_err(|error| failure(&error))?;
    print(&format!("{owner} has the SSH key of {} bits from {}", key.bits(), file.display()))
}

fn print(text: &str) -> Result<ExitCode, Failure> {
    let mut out = Output::new();
    let _ = out.line(text)?;
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Whether secrets decipher is said with a layout: the tenants that have one of the projects get new ones.
fn renew(site: &Site, keyring: &Keyring, projects: &[KeyOwner], reason: &str) -> Result<(), Failure> {
    let left = || -> Result<(), String> {
        let (actor, keys) = (own_actor(keyring)?, site.keys().map_err(|failure| failure.primary)?);
        for part in projects.chunks(renewals::MOST_PROJECTS) {
            let Some((KeyOwner { connection, project }, more)) = part.split_first() else { continue };
            let more = more.iter().map(|owner| (owner.connection.clone(), owner.project.clone())).collect();
            let (connection, project) = (connection.clone(), project.clone());
            let (at, reason) = (crate::clock::now(), reason.to_owned());
            renewals::leave(&keys, &Imported { connection, project, more, actor, at, reason })?;
        }
        Ok(())
    };
    left().map_err(|message| {
        Failure::new(
            Code::No,
            format!("the keys are as you asked, but what tells the server of it cannot be left: {message}"),
        )
        .hint(
            "see to it that the site's keys directory can be written, then import any key that is there once more: it \
             changes nothing about the key, and the tenants are configured anew",
        )
    })
}

/// A key for a connection that the site does not have would be of no use to anybody.
fn know_connection(site: &Site, connection: &str) -> Result<(), Failure> {
    let Some(config) = site.config()?.filter(|config| !config.connection.contains_key(connection)) else {
        return Ok(());
    };
    let known: Vec<&str> = config.connection.keys().map(String::as_str).collect();
    let known = if known.is_empty() { "it has none".to_owned() } else { format!("it has: {}", known.join(", ")) };
    Err(Failure::new(Code::NotFound, format!("the site has no connection {connection:?}")).hint(known))
}

/// Nor one for a tenant that is not in its tenant file.
fn know_tenant(site: &Site, tenant: &str) -> Result<(), Failure> {
    let Some(config) = site.config()? else { return Ok(()) };
    let path = site.dir().join(&config.tenant_file);
    let (specs, _) = parse_tenant_file(&read(&path, std::fs::File::open(&path))?);
    if specs.iter().any(|spec| spec.settings.name == tenant) {
        return Ok(());
    }
    let known: Vec<&str> = specs.iter().map(|spec| spec.settings.name.as_str()).collect();
    Err(Failure::new(Code::NotFound, format!("the site has no tenant {tenant:?}"))
        .hint(format!("it has: {}", known.join(", "))))
}

fn open(site: &Site) -> Result<Keyring, Failure> {
    Keyring::open_dir(site.keys()?).map_err(|error| failure(&error))
}

fn failure(error: &KeyringError) -> Failure {
    let failure = Failure::new(
        match error {
            KeyringError::Import { .. } | KeyringError::Owner { .. } | KeyringError::Tenant { .. } => Code::Usage,
            KeyringError::Taken { .. } | KeyringError::Former { .. } => Code::NotAllowed,
            KeyringError::Missing { .. } => Code::NotFound,
            KeyringError::Exchange { .. } => Code::Usage,
            KeyringError::KeyFile { .. } => Code::Integrity,
            _ => Code::No,
        },
        chain(error),
    );
    match error {
        KeyringError::Taken { .. } => failure.hint("with --replace it takes the place of the one there is"),
        _ => failure,
    }
}
