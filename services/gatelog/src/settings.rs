//! Settings that change between two starts: each counts, or `gatelog serve` says why it cannot and how it can.
//!
//! A process leaves what it was started with in [`FILE`], in its own directory. The next start compares, and so does
//! `gatelog check --site` before it. Secrets are not kept there: of them it keeps a hash.

mod keys;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use gatelog_record::BlobHash;
use serde::{Deserialize, Serialize};

use crate::config::{self, SiteConfig};
use crate::logs::SitePaths;

pub use keys::nearest;
use keys::{Class, class};

/// What the site was started with last.
pub const FILE: &str = "settings.json";
/// Where the log can be, and what to do about one that is elsewhere.
const IN_DIRECTORY: &str = "in the site's directory";
const ON_KAFKA: &str = "on Apache Kafka";
const NEW_SITE: &str =
    "what is on the log cannot move there; begin a new site with [log.kafka] in a directory of its own";
const BACK: &str =
    "the site's history is on Apache Kafka; put [log.kafka] back, or begin a new site in a directory of its own";
/// Keys below this are librdkafka's.
const PROPERTIES: &str = "log.kafka.properties.";
/// A longer one is not read.
const MAX_BYTES: u64 = 4 << 20;

/// Settings as they stand in a file: by key, each value as it is written there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings(BTreeMap<String, String>);

/// A setting that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The key with its sections.
    pub key: String,
    /// What it was; `None`: not set.
    pub from: Option<String>,
    /// What it is; `None`: not set.
    pub to: Option<String>,
    /// Why it cannot be, and what can be done instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// What follows from it, or has to be done by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let told = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".to_owned());
        write!(f, "{}: was {}, is {}", self.key, told(&self.from), told(&self.to))?;
        match (&self.refused, &self.note) {
            (Some(refused), _) => write!(f, "; this cannot change: {refused}"),
            (None, Some(note)) => write!(f, "; {note}"),
            (None, None) => Ok(()),
        }
    }
}

/// Why a site is not served with new settings.
#[derive(Debug, thiserror::Error)]
#[error("some settings of {FILE_OF_SITE} cannot be changed so:\n{}", lines(changes))]
pub struct Refused {
    /// What cannot change.
    changes: Vec<Change>,
}

const FILE_OF_SITE: &str = config::FILE;

fn lines(changes: &[Change]) -> String {
    changes.iter().map(|one| format!("  {one}")).collect::<Vec<_>>().join("\n")
}

impl Settings {
    /// Those of a site's `gatelog.toml`; `None` where it cannot be read, which reading it as a whole says better.
    pub fn of_file(site: &Path) -> Option<Settings> {
        let text = std::fs::read_to_string(site.join(config::FILE)).ok()?;
        let mut found = BTreeMap::new();
        for (key, value) in toml::from_str::<toml::Table>(&text).ok()? {
            flatten(&key, &value, &mut found);
        }
        Some(Settings(found))
    }

    /// Those the site was started with last; `None` where it never was, or by an older gatelog.
    pub fn known(site: &Path) -> Option<Settings> {
        let path = site.join(FILE);
        if std::fs::metadata(&path).ok()?.len() > MAX_BYTES {
            return None;
        }
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }

    /// Leaves them for the next start.
    ///
    /// # Errors
    /// The system's, when the file cannot be written.
    pub fn keep(&self, site: &Path) -> std::io::Result<()> {
        let part = site.join(format!("{FILE}.part"));
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&part)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        drop(file);
        std::fs::rename(part, site.join(FILE))
    }

    /// Whether a section is there.
    fn has(&self, section: &str) -> bool {
        self.0.keys().any(|key| key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.')))
    }
}

fn flatten(path: &str, value: &toml::Value, into: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                flatten(&format!("{path}.{key}"), value, into);
            }
        }
        value => {
            let text = value.to_string();
            into.insert(path.to_owned(), if is_secret(path) { hidden_value(&text) } else { text });
        }
    }
}

/// Whether the value of a key may be a secret. Properties of librdkafka are passed on as they are: passwords, and keys in
/// their text (`ssl.key.pem`), are among them, and every release has more.
fn is_secret(path: &str) -> bool {
    let name = path.rsplit('.').next().unwrap_or(path);
    ["secret", "password"].contains(&name) || path.starts_with(PROPERTIES)
}

/// A secret is known again, and not told.
fn hidden_value(text: &str) -> String {
    let hash = BlobHash::of(text.as_bytes()).to_string();
    format!("(secret {})", hash.get(..8).unwrap_or_default())
}

/// What differs from the last start, and what comes of it.
pub fn changes(site: &Path, now: &Settings, config: &SiteConfig) -> Vec<Change> {
    let Some(before) = Settings::known(site) else { return moved_log(site, config).into_iter().collect() };
    let mut keys: Vec<&String> = before.0.keys().chain(now.0.keys()).collect();
    keys.sort();
    keys.dedup();
    let mut found = Vec::new();
    for key in keys {
        let (from, to) = (before.0.get(key), now.0.get(key));
        if from == to {
            continue;
        }
        let (refused, note) = match class(key) {
            Some(Class::CountsWith(note)) => (None, Some(note.to_owned())),
            // A section that comes or goes as a whole is dealt with below.
            Some(Class::Fixed(how)) if from.is_some() && to.is_some() => (Some(how.to_owned()), None),
            _ => (None, None),
        };
        found.push(Change { key: key.clone(), from: from.cloned(), to: to.cloned(), refused, note });
    }
    let whole = sections(&before, now);
    // What stands in a section that comes or goes as a whole is told with it.
    found.retain(|change| !whole.iter().any(|one| change.key.starts_with(&format!("{}.", one.key))));
    found.extend(whole);
    places(site, &before, config, &mut found);
    if !found.iter().any(|change| change.key == "log.kafka") {
        found.extend(moved_log(site, config));
    }
    found
}

/// Connections that come and go, and the log that stays where it is.
fn sections(before: &Settings, now: &Settings) -> Vec<Change> {
    let mut found = Vec::new();
    let section = |key: &str, from: &str, to: &str, refused: Option<String>, note: Option<String>| Change {
        key: key.to_owned(),
        from: Some(from.to_owned()),
        to: Some(to.to_owned()),
        refused,
        note,
    };
    match (before.has("log.kafka"), now.has("log.kafka")) {
        (false, true) => found.push(section("log.kafka", IN_DIRECTORY, ON_KAFKA, Some(NEW_SITE.to_owned()), None)),
        (true, false) => found.push(section("log.kafka", ON_KAFKA, IN_DIRECTORY, Some(BACK.to_owned()), None)),
        _ => {}
    }
    let (old, new) = (connections(before), connections(now));
    for (name, was) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
        let renamed = new.iter().find(|(name, is)| !old.contains_key(*name) && *is == was);
        found.push(match renamed {
            Some((other, _)) => section(
                &format!("connection.{name}"),
                name,
                other,
                Some(format!(
                    "keys of projects, what is open and what is known of refs go by the connection's name; call it {name} \
                     again, or leave it and make {other} beside it with another canonical-hostname"
                )),
                None,
            ),
            None => section(
                &format!("connection.{name}"),
                "there",
                "gone",
                None,
                Some("what is open of its projects ends with an error; take them out of the tenant file, too".to_owned()),
            ),
        });
    }
    found
}

/// Connections by name: driver, host and root.
fn connections(settings: &Settings) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut found: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (key, value) in &settings.0 {
        if let Some((name, key)) = key.strip_prefix("connection.").and_then(|rest| rest.split_once('.'))
            && key != "poll-ms"
        {
            found.entry(name.to_owned()).or_default().insert(key.to_owned(), value.clone());
        }
    }
    found
}

/// Directories that were moved in the file, and not on the disk.
fn places(site: &Path, before: &Settings, config: &SiteConfig, found: &mut [Change]) {
    for change in found {
        let plain = |value: &Option<String>| value.as_deref().map(|text| site.join(text.trim_matches('"')));
        let (from, to) = (plain(&change.from), plain(&change.to));
        if change.key == "shared.dir" {
            let was = from.clone().unwrap_or_else(|| site.to_path_buf());
            let keys = SitePaths::new(site, config).keys();
            let there = |dir: &PathBuf| std::fs::read_dir(dir).is_ok_and(|mut all| all.next().is_some());
            if there(&was.join("keys")) && !there(&keys) {
                let blobs = if before.has("shared") { was.join("blobs") } else { site.join("log").join("blobs") };
                let (to, keys) = (SitePaths::new(site, config).blobs(), keys.display());
                change.refused = Some(format!(
                    "the site's keys and blobs are not there; stop every process, move {} to {keys}, {} to {} and \
                     connections/ and routing.json beside them",
                    was.join("keys").display(),
                    blobs.display(),
                    to.display(),
                ));
            }
        }
        let is_root = change.key.starts_with("connection.") && change.key.ends_with(".root");
        let to = to.unwrap_or_else(|| site.join("forge"));
        if is_root
            && let Some(from) = from
            && !to.is_dir()
        {
            change.refused = Some(format!(
                "{} is not there; move the repositories from {} there first",
                to.display(),
                from.display()
            ));
        }
    }
}

/// What the directory itself says of a log that is no longer where it was.
fn moved_log(site: &Path, config: &SiteConfig) -> Option<Change> {
    let paths = SitePaths::new(site, config);
    // A file system of their own has other things in it, too: lost+found.
    let is_one = |name: &str| name.starts_with("gate-") || name.starts_with("capacity-");
    let begun = std::fs::read_dir(paths.projections())
        .is_ok_and(|all| all.filter_map(Result::ok).any(|entry| entry.file_name().to_str().is_some_and(is_one)));
    let here = paths.log().join("HEADER").exists();
    let change = |from: &str, to: &str, how: String| Change {
        key: "log.kafka".to_owned(),
        from: Some(from.to_owned()),
        to: Some(to.to_owned()),
        refused: Some(how),
        note: None,
    };
    match &config.log.kafka {
        Some(_) if begun && here => Some(change(IN_DIRECTORY, ON_KAFKA, NEW_SITE.to_owned())),
        // Why a slice is not served is said when it is opened.
        None if begun && !here && !paths.is_slice() => {
            let (log, projections) = (paths.log(), paths.projections());
            let how = format!(
                "the log that the site's projections were made of is not in {}; put it back there, or take {} away where \
                 the log is to begin anew",
                log.display(),
                projections.display()
            );
            Some(change("a log in the site's directory", "none", how))
        }
        _ => None,
    }
}

/// Compares with the last start: says what counts from now on, and refuses what cannot be.
///
/// # Errors
/// [`Refused`] names each.
pub fn at_start(site: &Path, now: &Settings, config: &SiteConfig) -> Result<(), Refused> {
    let (refused, rest): (Vec<Change>, Vec<Change>) =
        changes(site, now, config).into_iter().partition(|change| change.refused.is_some());
    if !refused.is_empty() {
        return Err(Refused { changes: refused });
    }
    for change in rest {
        match change.note {
            Some(_) => tracing::warn!("a setting counts from now on: {change}"),
            None => tracing::info!("a setting counts from now on: {change}"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
