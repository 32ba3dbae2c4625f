//! Many keys at once: in the form of Zuul's `export-keys`, and from a directory of them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gatelog_record::draft::gate::AccessTold;
use gatelog_rules_config::parse_tenant_file;
use gatelog_secrets::{KeyOf, KeyOwner, Keyring, KeyringError, KeystorePassword, SshOwner, TakenOver, read_export};

use super::{failure, open, renew};
use crate::cli::SiteArgs;
use crate::cli::keys::{KeysExportArgs, KeysImportAllArgs, KeysImportDirArgs};
use crate::commands::audit::{NewFile, file_failure, tell};
use crate::commands::encrypt::read;
use crate::commands::failure::{Code, Failure};
use crate::commands::output::Output;
use crate::commands::site::Site;

/// No export is longer, in bytes: it holds the keys of some ten thousand projects.
const LONGEST_EXPORT: u64 = 256 << 20;
/// How many files of a directory are looked at.
const MOST_FILES: usize = 100_000;
/// How deep it may be.
const DEEPEST: usize = 32;

/// Takes over what Zuul or another gatelog exported.
pub(super) fn import_all(site: &SiteArgs, args: &KeysImportAllArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("keys import-all")?;
    let password = password(&args.password_file)?;
    let file = fs::File::open(&args.file).map_err(|error| file_failure(&args.file, &error))?;
    let mut text = String::new();
    let _ =
        file.take(LONGEST_EXPORT + 1).read_to_string(&mut text).map_err(|error| file_failure(&args.file, &error))?;
    if text.len() as u64 > LONGEST_EXPORT {
        return Err(Failure::new(
            Code::Usage,
            format!("{} is longer than {LONGEST_EXPORT} bytes", args.file.display()),
        ));
    }
    let places = read_export(&text).map_err(|error| {
        Failure::new(Code::Usage, format!("{}: {error}", args.file.display()))
            .hint("it is what `zuul-admin export-keys` or `gatelog keys export` wrote")
    })?;
    let mut taking = Taking::new(&site)?;
    for place in places {
        match place.keys {
            Ok((of, pems)) => {
                let done = taking.known.refuses(&of).map_or_else(
                    || {
                        taking
                            .keyring
                            .import_place(&of, &pems, &password, args.taking.replace)
                            .map_err(|error| told(&error))
                    },
                    Err,
                );
                taking.tell(&of.to_string(), Some(&of), done)?;
            }
            Err(why) => taking.tell(&place.name, None, Err(why))?,
        }
    }
    taking.end(&site, "an export of keys was imported", args.taking.reason.as_deref())
}

/// Takes over a directory of keys.
pub(super) fn import_dir(site: &SiteArgs, args: &KeysImportDirArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("keys import-dir")?;
    let mut taking = Taking::new(&site)?;
    for file in files(&args.directory)? {
        let name = file.strip_prefix(&args.directory).unwrap_or(&file);
        let (of, done) = match owner(name) {
            Ok(owner) => {
                let of = KeyOf::Secrets(owner.clone());
                let done = taking
                    .known
                    .refuses(&of)
                    .map_or_else(|| take(&taking.keyring, &owner, &file, args.taking.replace), Err);
                (Some(of), done)
            }
            Err(why) => (None, Err(why)),
        };
        taking.tell(&name.display().to_string(), of.as_ref(), done)?;
    }
    taking.end(&site, "a directory of keys was imported", args.taking.reason.as_deref())
}

/// Takes one file over.
fn take(keyring: &Keyring, owner: &KeyOwner, file: &Path, replace: bool) -> Result<TakenOver, String> {
    let pem = read(file, fs::File::open(file)).map_err(|failure| format!("it cannot be read: {}", failure.primary))?;
    keyring.take_project_key(owner, &pem, replace).map_err(|error| told(&error))
}

/// Whose key a file is, by its path below the directory: `CONNECTION/PROJECT.pem`.
fn owner(name: &Path) -> Result<KeyOwner, String> {
    let name = name.to_str().ok_or("its name is not UTF-8: rename it")?;
    let whole = name.strip_suffix(".pem").ok_or("its name does not end in .pem: it is taken for no key")?;
    let (connection, project) = whole
        .split_once('/')
        .ok_or("it lies beside the directories of connections: move it to CONNECTION/PROJECT.pem")?;
    Ok(KeyOwner::new(connection, project))
}

/// The files below a directory, in the order of their names. Links to directories are not followed.
fn files(directory: &Path) -> Result<BTreeSet<PathBuf>, Failure> {
    let mut found = BTreeSet::new();
    let mut left = vec![(directory.to_path_buf(), 0_usize)];
    while let Some((at, depth)) = left.pop() {
        let failed = |error: std::io::Error| file_failure(&at, &error);
        for entry in fs::read_dir(&at).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                if depth >= DEEPEST {
                    let deep = format!("{} is more than {DEEPEST} directories deep", entry.path().display());
                    return Err(Failure::new(Code::Usage, deep));
                }
                left.push((entry.path(), depth + 1));
            } else if found.len() < MOST_FILES {
                let _ = found.insert(entry.path());
            } else {
                let many = format!("{} has more than {MOST_FILES} files", directory.display());
                return Err(Failure::new(Code::Usage, many).hint("import it connection by connection"));
            }
        }
    }
    Ok(found)
}

/// Writes all keys in the form of Zuul's exports.
pub(super) fn export(site: &SiteArgs, args: &KeysExportArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("keys export")?;
    let (keyring, password) = (open(&site)?, password(&args.password_file)?);
    let mut file = NewFile::create(&args.file)?;
    let failed = |error: std::io::Error| file_failure(&args.file, &error);
    file.file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let (what, detail) = ("keys-exported".to_owned(), args.file.display().to_string());
    tell(&site, &keyring, "", AccessTold { what, subject: String::new(), detail })?;
    let export = keyring.export_keys(&password).map_err(|error| failure(&error))?;
    file.file.write_all(export.text.as_bytes()).map_err(failed)?;
    file.keep()?;
    let mut out = Output::new();
    let _ = out.line(&format!(
        "{}: keys for secrets of {} projects, {} former ones, {} SSH keys; whoever has it and the password has them all",
        args.file.display(),
        export.secrets,
        export.former,
        export.ssh
    ))?;
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The password in a file, or on standard input. Never an argument: others see those.
fn password(file: &Path) -> Result<KeystorePassword, Failure> {
    let text = if file == Path::new("-") {
        read(Path::new("standard input"), Ok(std::io::stdin()))?
    } else {
        read(file, fs::File::open(file))?
    };
    KeystorePassword::read(&text).map_err(|error| Failure::new(Code::Usage, format!("{}: {error}", file.display())))
}

/// What connections and tenants the site has; a key for another would be of no use to anybody.
struct Known {
    connections: Option<BTreeSet<String>>,
    tenants: Option<BTreeSet<String>>,
}

impl Known {
    fn read(site: &Site) -> Result<Known, Failure> {
        let Some(config) = site.config()? else { return Ok(Known { connections: None, tenants: None }) };
        let path = site.dir().join(&config.tenant_file);
        let (specs, _) = parse_tenant_file(&read(&path, fs::File::open(&path))?);
        let tenants = specs.into_iter().map(|spec| spec.settings.name).collect();
        Ok(Known { connections: Some(config.connection.keys().cloned().collect()), tenants: Some(tenants) })
    }

    /// Why a key is not taken over.
    fn refuses(&self, of: &KeyOf) -> Option<String> {
        let (known, name, what) = match of {
            KeyOf::Secrets(owner) | KeyOf::Ssh(SshOwner::Project(owner)) => {
                (&self.connections, &owner.connection, "connection")
            }
            KeyOf::Ssh(SshOwner::Tenant(tenant)) => (&self.tenants, tenant, "tenant"),
        };
        let known = known.as_ref().filter(|known| !known.contains(name))?;
        let known: Vec<&str> = known.iter().map(String::as_str).take(20).collect();
        Some(format!(
            "the site has no {what} {name:?} (it has: {}): add it, and run this again",
            if known.is_empty() { "none".to_owned() } else { known.join(", ") }
        ))
    }
}

/// A command that takes many keys over.
struct Taking {
    keyring: Keyring,
    known: Known,
    out: Output,
    /// Projects whose secrets may decipher otherwise than before.
    changed: Vec<KeyOwner>,
    taken: usize,
    there: usize,
    refused: usize,
}

impl Taking {
    fn new(site: &Site) -> Result<Taking, Failure> {
        let (keyring, known, out) = (open(site)?, Known::read(site)?, Output::new());
        Ok(Taking { keyring, known, out, changed: Vec::new(), taken: 0, there: 0, refused: 0 })
    }

    /// Says what came of one key.
    fn tell(&mut self, name: &str, of: Option<&KeyOf>, done: Result<TakenOver, String>) -> Result<(), Failure> {
        let came = match &done {
            Ok(TakenOver::New) => "taken over".to_owned(),
            Ok(TakenOver::Replaced) => "taken over, in the place of another".to_owned(),
            Ok(TakenOver::There) => "there already".to_owned(),
            Err(why) => format!("NOT taken over: {why}"),
        };
        match done {
            Ok(TakenOver::There) => self.there += 1,
            Ok(_) => self.taken += 1,
            Err(_) => self.refused += 1,
        }
        // Also where it was there: an earlier run may have died before it left the note.
        if let (Ok(_), Some(KeyOf::Secrets(owner))) = (done, of) {
            self.changed.push(owner.clone());
        }
        let _ = self.out.line(&format!("{name}: {came}"))?;
        Ok(())
    }

    fn end(mut self, site: &Site, usual: &str, reason: Option<&str>) -> Result<ExitCode, Failure> {
        let (taken, there, refused) = (self.taken, self.there, self.refused);
        let _ = self.out.line(&format!("{taken} taken over, {there} there already, {refused} not taken over"))?;
        let _ = self.out.flush()?;
        renew(site, &self.keyring, &self.changed, reason.unwrap_or(usual))?;
        Ok(if refused == 0 { ExitCode::SUCCESS } else { Code::No.into() })
    }
}

fn told(error: &KeyringError) -> String {
    let text = super::chain(error);
    match error {
        KeyringError::Taken { .. } => format!("{text}; with --replace this one takes its place"),
        _ => text,
    }
}
