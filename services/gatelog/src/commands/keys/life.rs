//! What becomes of a project's keys in the course of time: they are listed, rotated, retired, copied and deleted.

use std::process::ExitCode;

use gatelog_secrets::{KeyOf, KeyOwner, KnownPair, TakenOver};
use serde_json::json;

use super::{failure, know_connection, open, print, renew};
use crate::cli::SiteArgs;
use crate::cli::keys::{KeysCopyArgs, KeysDeleteArgs, KeysListArgs, KeysRetireArgs, KeysRotateArgs};
use crate::commands::failure::Failure;
use crate::commands::output::Output;

/// The key pairs there are.
pub(super) fn list(site: &SiteArgs, args: &KeysListArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("keys list")?;
    let pairs = open(&site)?.key_pairs().map_err(|error| failure(&error))?;
    let mut out = Output::new();
    if args.json {
        let _ = out.json(&json!(pairs.iter().map(document).collect::<Vec<_>>()))?;
    } else {
        for pair in &pairs {
            let former = if pair.former { ", former" } else { "" };
            let _ = out.line(&format!("{}  {}{former} ({} bits)", pair.fingerprint, pair.of, pair.bits))?;
        }
    }
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn document(pair: &KnownPair) -> serde_json::Value {
    use gatelog_secrets::SshOwner;
    let (kind, connection, project, tenant) = match &pair.of {
        KeyOf::Secrets(owner) => ("secrets", Some(&owner.connection), Some(&owner.project), None),
        KeyOf::Ssh(SshOwner::Project(owner)) => ("ssh", Some(&owner.connection), Some(&owner.project), None),
        KeyOf::Ssh(SshOwner::Tenant(tenant)) => ("ssh", None, None, Some(tenant)),
    };
    json!({ "kind": kind, "connection": connection, "project": project, "tenant": tenant, "former": pair.former,
        "bits": pair.bits, "fingerprint": pair.fingerprint, "written": pair.written })
}

/// Gives a project a new key; the one it had becomes a former one.
pub(super) fn rotate(site: &SiteArgs, args: &KeysRotateArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("keys rotate")?;
    know_connection(&site, &args.connection)?;
    let keyring = open(&site)?;
    let owner = KeyOwner::new(&args.connection, &args.project);
    let rotated = keyring.rotate_project_key(&owner).map_err(|error| failure(&error))?;
    let usual = format!("the key of {} on {} was rotated", args.project, args.connection);
    renew(&site, &keyring, std::slice::from_ref(&owner), args.reason.as_deref().unwrap_or(&usual))?;
    print(&format!(
        "{owner} has a new key of {} bits, {}; the former one, {}, deciphers until it is retired",
        rotated.current.bits(),
        rotated.current.fingerprint(),
        rotated.former.fingerprint()
    ))
}

/// Deletes former keys.
pub(super) fn retire(site: &SiteArgs, args: &KeysRetireArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("keys retire")?;
    let keyring = open(&site)?;
    let owner = KeyOwner::new(&args.connection, &args.project);
    let retired = keyring.retire_project_key(&owner, args.fingerprint.as_deref()).map_err(|error| {
        failure(&error).hint("`gatelog keys list` shows which there are; the key in use is rotated first")
    })?;
    let usual = format!("former keys of {} on {} were retired", args.project, args.connection);
    renew(&site, &keyring, std::slice::from_ref(&owner), args.reason.as_deref().unwrap_or(&usual))?;
    print(&format!(
        "{owner}: {} retired; secrets that still need it are told as errors of the configuration",
        retired.join(", ")
    ))
}

/// Gives a project the keys of another.
pub(super) fn copy(site: &SiteArgs, args: &KeysCopyArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("keys copy")?;
    // The source may be of a connection that is gone.
    know_connection(&site, &args.connection)?;
    let keyring = open(&site)?;
    let from = KeyOwner::new(&args.source_connection, &args.source_project);
    let to = KeyOwner::new(&args.connection, &args.project);
    let copied = keyring.copy_project_keys(&from, &to, args.replace).map_err(|error| failure(&error))?;
    let usual = format!("the keys of {from} were copied to {to}");
    renew(&site, &keyring, std::slice::from_ref(&to), args.reason.as_deref().unwrap_or(&usual))?;
    let mut told = Vec::new();
    if let Some(secrets) = copied.secrets {
        told.push(format!("its key for secrets{}", what(secrets)));
    }
    if copied.former > 0 {
        told.push(format!("{} former", copied.former));
    }
    if let Some(ssh) = copied.ssh {
        told.push(format!("its SSH key{}", what(ssh)));
    }
    print(&format!("{to} has of {from}: {}", told.join(", ")))
}

fn what(taken: TakenOver) -> &'static str {
    match taken {
        TakenOver::New => "",
        TakenOver::There => " (which was there)",
        TakenOver::Replaced => " (in the place of another)",
    }
}

/// Deletes a project's keys.
pub(super) fn delete(site: &SiteArgs, args: &KeysDeleteArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("keys delete")?;
    let keyring = open(&site)?;
    let owner = KeyOwner::new(&args.connection, &args.project);
    let count = keyring.delete_project_keys(&owner).map_err(|error| failure(&error))?;
    let usual = format!("the keys of {} on {} were deleted", args.project, args.connection);
    renew(&site, &keyring, std::slice::from_ref(&owner), args.reason.as_deref().unwrap_or(&usual))?;
    print(&format!("{owner}: {count} key pairs deleted; backups still hold them"))
}

/// Replaces the keys of tokens. Zuul: `delete-oidc-signing-keys`.
pub(super) fn replace_token_keys(site: &SiteArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("keys replace-token-keys")?;
    let rotate_every = site.config()?.map(|config| config.oidc).unwrap_or_default().rotate_every();
    let clock = gatelog_effects::tokens::clock(crate::clock::now(), rotate_every);
    let there = open(&site)?.replace_token_keys(clock).map_err(|error| failure(&error))?;
    print(if there {
        "tokens are signed with a new key; former ones are deleted"
    } else {
        "there is a key for tokens now"
    })
}
