//! `gatelog keys`: the key pairs of projects, in a site's keys directory. Safe beside running servers.

use std::process::ExitCode;

use gatelog_secrets::{KeyOwner, Keyring, KeyringError};

use super::encrypt::read;
use super::failure::{Code, Failure};
use super::output::Output;
use crate::cli::{KeysImportArgs, KeysShowArgs, SiteArgs};

/// Takes a key over.
pub fn import(site: &SiteArgs, args: &KeysImportArgs) -> Result<ExitCode, Failure> {
    let keyring = open(site, "keys import", &args.connection)?;
    let pem = read(&args.file, std::fs::File::open(&args.file))?;
    let owner = KeyOwner::new(&args.connection, &args.project);
    let key = keyring.import_project_key(&owner, &pem, args.replace).map_err(|error| failure(&error))?;
    let mut out = Output::new();
    let _ = out.line(&format!("{owner} has the key of {} bits from {}", key.bits(), args.file.display()))?;
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the public half.
pub fn show(site: &SiteArgs, args: &KeysShowArgs) -> Result<ExitCode, Failure> {
    let keyring = open(site, "keys show", &args.connection)?;
    let owner = KeyOwner::new(&args.connection, &args.project);
    let key = keyring.project_key(&owner).map_err(|error| failure(&error))?;
    let mut out = Output::new();
    let _ = out.line(key.public_pem().trim_end())?;
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The site's keys. A key for a connection it does not have would be of no use to anybody.
fn open(site: &SiteArgs, command: &str, connection: &str) -> Result<Keyring, Failure> {
    let site = site.directory(command)?;
    let config = site.config()?;
    if let Some(config) = config.filter(|config| !config.connection.contains_key(connection)) {
        let known: Vec<&str> = config.connection.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "it has none".to_owned() } else { format!("it has: {}", known.join(", ")) };
        return Err(Failure::new(Code::NotFound, format!("the site has no connection {connection:?}")).hint(known));
    }
    Keyring::open_dir(site.keys()?).map_err(|error| failure(&error))
}

fn failure(error: &KeyringError) -> Failure {
    let failure = Failure::new(
        match error {
            KeyringError::Import { .. } | KeyringError::Owner { .. } => Code::Usage,
            KeyringError::Taken { .. } => Code::NotAllowed,
            KeyringError::KeyFile { .. } => Code::Integrity,
            _ => Code::No,
        },
        gatelog_effects::connection::chain(error),
    );
    match error {
        KeyringError::Taken { .. } => failure.hint("with --replace it takes the place of the one there is"),
        _ => failure,
    }
}
