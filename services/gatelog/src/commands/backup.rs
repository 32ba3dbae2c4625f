//! `gatelog backup`: a site is copied while it runs.
//!
//! What is copied when makes the copy whole. A record names only blobs and keys that were durable before it, so the log goes
//! first, blobs and keys after it: they may be of a later moment, never of an earlier one. Of a segment that is being
//! written a whole prefix is taken; what is torn at its end counts as never written, as after a crash. Projections, mirrors
//! and nodes are made again from the log; what connections have told of is not taken, so that a restored site asks again.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gatelog_effects::connection::chain;
use gatelog_event_log::Log;
use gatelog_log_embedded::{EmbeddedLog, ReaderOptions};
use gatelog_record::SiteId;
use gatelog_record::draft::gate::AccessTold;
use gatelog_rules_config::parse_tenant_file;
use serde_json::json;

use super::audit::{keyring, tell};
use super::failure::{Code, Failure};
use super::output::Output;
use crate::cli::SiteArgs;
use crate::cli::backup::BackupArgs;
use crate::config::FILE;
use crate::logs::SitePaths;

/// Says of a directory what it is a backup of.
const MARK: &str = "BACKUP";
/// Files beside the configuration that are of this moment of this host.
const PASSING: [&str; 3] = ["server.json", "routing.json", "LOCK"];
/// Files of the log's directory that are not history: who holds it, and how far it is known to be durable.
const LOG_HINTS: [&str; 2] = ["LOCK", "durable"];

/// What was done.
#[derive(Debug, Default, PartialEq, Eq)]
struct Done {
    copied: u64,
    bytes: u64,
    there: u64,
    removed: u64,
}

/// `backup`
pub fn run(site: &SiteArgs, args: &BackupArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("backup")?;
    let Some(config) = site.config()? else {
        return Err(Failure::new(Code::Usage, format!("there is no {FILE} in {}", site.dir().display()))
            .hint("a backup is of a whole site; for a log alone there is `gatelog log export`"));
    };
    let paths = SitePaths::new(site.dir(), &config);
    let kafka = config.log.kafka.is_some();
    let identity = if kafka { None } else { EmbeddedLog::identity(paths.log())? };
    if !kafka && identity.is_none() {
        let _ = site.embedded()?;
    }
    let to = place(site.dir(), &args.to, identity)?;
    // Who can read the copy can read what the site's secrets protect: the log is told, first.
    tell(
        &site,
        &keyring(&site)?,
        "",
        AccessTold { what: "site-backed-up".to_owned(), subject: String::new(), detail: to.display().to_string() },
    )?;

    let mut done = Done::default();
    let copying = |error: io::Error| Failure::new(Code::No, format!("the backup is not whole: {error}"));
    // For who reads the directory, and so that the next backup knows it for one.
    let mark = match identity {
        Some((id, generation)) => format!("site {id} generation {generation}\n"),
        None => "site on Kafka\n".to_owned(),
    };
    fs::write(to.join(MARK), mark).map_err(copying)?;
    for file in configuration(site.dir(), &config.tenant_file).map_err(copying)? {
        let name = file.strip_prefix(site.dir()).unwrap_or(&file);
        done.file(&file, &to.join(name), Again::Always).map_err(copying)?;
    }
    // What several hosts share may lie anywhere; in the copy it lies with the rest.
    let (blobs, keys) = match &config.shared {
        Some(_) => (to.join("shared/blobs"), to.join("shared/keys")),
        None => (to.join("log/blobs"), to.join("keys")),
    };
    if !kafka {
        log(&paths.log(), &to.join("log"), &mut done).map_err(copying)?;
    }
    done.tree(&paths.blobs(), &blobs, Again::Never).map_err(copying)?;
    // A key and the one it took the place of are copied as of one moment: nobody rotates keys meanwhile.
    let still = keyring(&site)?.still().map_err(|error| Failure::new(Code::No, chain(&error)))?;
    done.tree(&paths.keys(), &keys, Again::Always).map_err(copying)?;
    // A key that was forgotten is forgotten here, too.
    done.prune(&paths.keys(), &keys).map_err(copying)?;
    drop(still);
    done.tree(&site.dir().join("logs"), &to.join("logs"), Again::UnlessAsLong).map_err(copying)?;
    sync(&to).map_err(copying)?;

    let ends = if kafka { Vec::new() } else { ends(&to.join("log"))? };
    let Done { copied, bytes, there, removed } = done;
    let mut out = Output::new();
    if args.json {
        let ends: serde_json::Map<_, _> = ends.iter().map(|(stream, end)| (stream.clone(), json!(end))).collect();
        let _ = out.json(&json!({ "to": to, "copied": copied, "bytes": bytes, "there": there, "removed": removed,
            "streams": ends, "log": if kafka { "kafka" } else { "copied" } }))?;
    } else {
        let _ = out.line(&format!(
            "{}: {copied} files copied ({} kB), {there} were there, {removed} removed",
            to.display(),
            bytes.div_ceil(1024)
        ))?;
        for (stream, end) in ends {
            let _ = out.line(&format!("  {stream:<20} {end} records"))?;
        }
        if kafka {
            let _ = out.line("  the log is on Kafka: copy its topics BEFORE this, with what you copy topics with")?;
        } else if config.shared.is_none() {
            let _ = out.line(&format!("see that it is whole: gatelog log verify --dir {}", to.display()))?;
        }
    }
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The directory to copy into, made if it is not there.
fn place(from: &Path, to: &Path, identity: Option<(SiteId, u32)>) -> Result<PathBuf, Failure> {
    let failed = |error: io::Error| Failure::new(Code::No, format!("{}: {error}", to.display()));
    let there = to.exists();
    let empty = !there || fs::read_dir(to).map_err(failed)?.next().is_none();
    if !empty && !to.join(MARK).exists() {
        return Err(Failure::new(Code::No, format!("{} is neither empty nor a backup", to.display()))
            .hint("name a new directory with --to"));
    }
    fs::create_dir_all(to).map_err(failed)?;
    let (inside, outside) = (to.canonicalize().map_err(failed)?, from.canonicalize().map_err(failed)?);
    if inside.starts_with(&outside) || outside.starts_with(&inside) {
        return Err(Failure::new(Code::Usage, format!("{} and the site are one inside the other", to.display()))
            .hint("name a directory outside the site's, best on another disk"));
    }
    if let Some((site, generation)) = identity
        && let Some((other, of)) = EmbeddedLog::identity(to.join("log"))?
        && (other, of) != (site, generation)
    {
        return Err(Failure::new(
            Code::No,
            format!(
                "{} is a backup of site {other} generation {of}, this is {site} generation {generation}",
                to.display()
            ),
        )
        .hint("begin a new backup in another directory: one history is never written over another"));
    }
    Ok(inside)
}

/// The files of a site's configuration: what lies beside `gatelog.toml`, and what its tenants include.
fn configuration(dir: &Path, tenant_file: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let passing = entry.file_name().to_str().is_some_and(|name| PASSING.contains(&name));
        if entry.file_type()?.is_file() && !passing {
            files.insert(entry.path());
        }
    }
    let tenants = dir.join(tenant_file);
    if let Ok(text) = fs::read_to_string(&tenants) {
        let beside = tenants.parent().unwrap_or(dir);
        let (specs, _) = parse_tenant_file(&text);
        let included = specs.iter().flat_map(|spec| &spec.settings.included).map(|file| beside.join(&file.path));
        files.extend(included.chain([tenants.clone()]).filter(|file| file.is_file() && file.starts_with(dir)));
    }
    Ok(files)
}

/// The log: its segments in order, then its header.
fn log(from: &Path, to: &Path, done: &mut Done) -> io::Result<()> {
    let segments = "segments";
    // What is listed now is sealed but for the last; one that begins meanwhile is for the next backup.
    let names = names(&from.join(segments))?;
    for (index, name) in names.iter().enumerate() {
        let again = if index + 1 == names.len() { Again::Always } else { Again::UnlessAsLong };
        done.file(&from.join(segments).join(name), &to.join(segments).join(name), again)?;
    }
    for name in names_of_files(from)?.iter().filter(|name| !LOG_HINTS.contains(&name.as_str())) {
        done.file(&from.join(name), &to.join(name), Again::Always)?;
    }
    sync(&to.join(segments))
}

/// How many records of each stream the copy holds.
fn ends(log: &Path) -> Result<Vec<(String, u64)>, Failure> {
    let log = EmbeddedLog::open_reader(log, ReaderOptions::default())?;
    let mut streams = log.streams()?;
    streams.sort();
    streams.into_iter().map(|stream| Ok((stream.to_string(), log.end(stream)?.0))).collect()
}

/// Whether a file that is there already is copied again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// It is named for what it holds.
    Never,
    /// It only grows: one that is as long is the same.
    UnlessAsLong,
    /// It may be another.
    Always,
}

impl Done {
    /// Copies a file; its place is made. Under its name there is never half of it.
    fn file(&mut self, from: &Path, to: &Path, again: Again) -> io::Result<()> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", from.display()));
        let skip = match (again, fs::metadata(to)) {
            (Again::Never, Ok(_)) => true,
            (Again::UnlessAsLong, Ok(there)) => there.len() == fs::metadata(from).map_err(named)?.len(),
            _ => false,
        };
        if skip {
            self.there += 1;
            return Ok(());
        }
        let dir = to.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(dir)?;
        let mut source = match File::open(from) {
            Ok(source) => source,
            // It went while we looked.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(named(error)),
        };
        let part = to.with_file_name(format!("{}.part", to.file_name().unwrap_or_default().to_string_lossy()));
        let mut target = File::create(&part)?;
        // Keys stay as private as they are.
        target.set_permissions(source.metadata()?.permissions())?;
        let mut block = vec![0; 1 << 20];
        loop {
            let count = source.read(&mut block).map_err(named)?;
            if count == 0 {
                break;
            }
            target.write_all(block.get(..count).unwrap_or_default())?;
            self.bytes += count as u64;
        }
        target.sync_all()?;
        fs::rename(&part, to)?;
        self.copied += 1;
        Ok(())
    }

    /// Copies what is below a directory; nothing if there is no such directory.
    fn tree(&mut self, from: &Path, to: &Path, again: Again) -> io::Result<()> {
        if !from.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(to)?;
        fs::set_permissions(to, fs::metadata(from)?.permissions())?;
        let mut left = vec![PathBuf::new()];
        while let Some(at) = left.pop() {
            let entries = match fs::read_dir(from.join(&at)) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for entry in entries {
                let entry = entry?;
                let name = at.join(entry.file_name());
                let kind = entry.file_type()?;
                // Blobs and keys that are being written.
                if kind.is_dir() && !(at.as_os_str().is_empty() && entry.file_name() == "new") {
                    fs::create_dir_all(to.join(&name))?;
                    fs::set_permissions(to.join(&name), entry.metadata()?.permissions())?;
                    left.push(name);
                } else if kind.is_file() {
                    self.file(&entry.path(), &to.join(&name), again)?;
                }
            }
            if to.join(&at).is_dir() {
                sync(&to.join(&at))?;
            }
        }
        Ok(())
    }

    /// Removes files of the copy that the directory has no more.
    fn prune(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let mut left = vec![PathBuf::new()];
        while let Some(at) = left.pop() {
            if !to.join(&at).is_dir() {
                continue;
            }
            for entry in fs::read_dir(to.join(&at))? {
                let entry = entry?;
                let name = at.join(entry.file_name());
                if entry.file_type()?.is_dir() {
                    left.push(name);
                } else if !from.join(&name).exists() {
                    fs::remove_file(entry.path())?;
                    self.removed += 1;
                }
            }
            sync(&to.join(&at))?;
        }
        Ok(())
    }
}

fn names(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        names.extend(entry?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

fn names_of_files(dir: &Path) -> io::Result<Vec<String>> {
    Ok(names(dir)?.into_iter().filter(|name| dir.join(name).is_file()).collect())
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
