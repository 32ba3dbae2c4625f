//! Work: make a layout. The effect fetches blobs; making is the pure function of `rules/config`,
//! and `replay verify` runs it again from the same blobs. Blobs of configuration files are copies of what repositories
//! have: one that is lost is put back from there.

use std::sync::{LazyLock, Mutex, PoisonError};

use gatelog_event_log::{BlobError, Blobs};
use gatelog_merging::State;
use gatelog_record::draft::gate::{ConfigFile as KeptFile, ConfigFileSet, LayoutOutcome, LayoutWanted};
use gatelog_record::{BlobHash, codec};
use gatelog_rules_config::load::{LoadInput, load};
use gatelog_rules_config::problem::Problem;
use gatelog_rules_config::tenant::TenantSettings;
use gatelog_rules_config::{Layout, ParseCache, Shared, load_cached};
use gatelog_rules_gate::{ConfigRemarks, config_remarks, layout_input};
use gatelog_secrets::Keyring;

use crate::connection::{Connections, Trouble};
use crate::git::{Repositories, config_filter, trouble};
use crate::secrets;

/// The version of the loader: raised when the same files may give another layout.
pub const LOADER: u32 = 4;

/// Files parsed before: layouts of one tenant after the other, and of changes, share nearly all of them.
static PARSED: LazyLock<Mutex<ParseCache>> = LazyLock::new(Mutex::default);

/// The layouts that were read last, newest last: the changes of a tenant are nearly all laid out beside the same one, and
/// frozen with it.
static READ: LazyLock<Mutex<Vec<Read>>> = LazyLock::new(Mutex::default);

/// A layout, by its blob.
type Read = (BlobHash, Shared<Layout>);

/// How many of them are kept.
const MAX_READ: usize = 4;

/// What is wrong where a blob is missing or damaged.
const BLOB_MISSING: &str = "blob-missing";

/// Makes a layout; trouble becomes an outcome too. A file of the configuration that the blob store has lost is put back
/// as the repository has it. Whether its secrets decipher is asked of the keys, and told with it.
pub fn make(repositories: &Repositories, keyring: &Keyring, wanted: &LayoutWanted) -> LayoutOutcome {
    let made = || try_make(&*repositories.blobs, &repositories.connections, keyring, wanted);
    let made = made().or_else(|trouble| match trouble.code == BLOB_MISSING && restore(repositories, wanted) {
        true => made(),
        false => Err(trouble),
    });
    match made {
        Ok(outcome) => outcome,
        Err(Trouble { code, message, .. }) => LayoutOutcome::Failed { code, message },
    }
}

/// Puts files that are missing or damaged in the blob store back as the repositories have them; says whether there was
/// one. What is put goes under its own hash: nothing else can take a file's place.
fn restore(repositories: &Repositories, wanted: &LayoutWanted) -> bool {
    let mut restored = false;
    for set in &wanted.files {
        let lost: Vec<&KeptFile> = set.files.iter().filter(|file| is_lost(repositories, &file.blob)).collect();
        if lost.is_empty() {
            continue;
        }
        let (project, branch) = (set.at.project.as_str(), set.at.branch.as_str());
        if let Err(trouble) = keep_again(repositories, set) {
            tracing::warn!(project, branch, %trouble, "a configuration file that the blob store has lost cannot be read");
        }
        for file in lost {
            let back = !is_lost(repositories, &file.blob);
            restored |= back;
            if back {
                tracing::warn!(
                    project, branch, file = file.path, blob = %file.blob,
                    "a configuration file was missing or damaged in the blob store; it was put back from the repository"
                );
            }
        }
    }
    restored
}

fn is_lost(repositories: &Repositories, hash: &BlobHash) -> bool {
    matches!(repositories.blobs.get(hash), Err(BlobError::Missing(_) | BlobError::Damaged { .. }))
}

/// Reads the files of a commit again, and keeps them.
fn keep_again(repositories: &Repositories, set: &ConfigFileSet) -> Result<(), Trouble> {
    let key = repositories.key(&set.at.connection, &set.at.project)?;
    let (mirrors, filter) = (&repositories.mirrors, config_filter(&[]));
    let read = || mirrors.read_files(&key, &State::Commit(set.commit.clone()), &filter);
    // It is in the mirror that it was read from first; whoever has none of it yet gets one.
    let files = read().or_else(|_| mirrors.fetch(&key, &[]).and_then(|_| read()));
    repositories.keep(files.map_err(|error| trouble(&error))?)?;
    Ok(())
}

/// What the loader is given: fetched, not yet loaded.
pub fn load_input(blobs: &dyn Blobs, connections: &Connections, wanted: &LayoutWanted) -> Result<LoadInput, Trouble> {
    let settings = get(blobs, &wanted.settings)?;
    let mut settings =
        TenantSettings::read(&settings).map_err(|error| Trouble::lasting("settings-unreadable", &error))?;
    settings.schemas = connections.schemas();
    layout_input(
        settings,
        &wanted.files,
        |hash| get(blobs, hash),
        |connection, project| Ok(connections.local_name(connection, project)?.to_owned()),
        |connection| Some(connections.review(connection).ok()?.canonical_hostname().to_owned()),
    )
}

fn try_make(
    blobs: &dyn Blobs,
    connections: &Connections,
    keyring: &Keyring,
    wanted: &LayoutWanted,
) -> Result<LayoutOutcome, Trouble> {
    let input = load_input(blobs, connections, wanted)?;
    let (mut layout, mut problems) = match PARSED.lock() {
        Ok(mut cache) => load_cached(&input, &mut cache),
        // Somebody panicked while holding it: it only saves time.
        Err(_) => load(&input),
    };
    let verdicts = secrets::verdicts(keyring, &layout);
    problems.extend(gatelog_rules_config::verdicts::problems(&layout, &verdicts, &input.files));
    let ahead = match &wanted.ahead {
        Some(hash) => read_problems(blobs, hash)?,
        None => Vec::new(),
    };
    let errors = problems.iter().filter(|problem| problem.is_error()).count();
    let said = match wanted.item {
        Some(_) => config_remarks(&problems, &ahead, &wanted.changed),
        None => ConfigRemarks::default(),
    };
    // Loading has told what is wrong with the change's own.
    if let Some(base) = &wanted.base {
        layout.keep_static(&*read_layout(blobs, base)?);
    }
    let put = |bytes: Vec<u8>| blobs.put(&bytes).map_err(|error| Trouble::passing("blob-store", &error));
    let encode_error = |error| Trouble::lasting("layout-too-large", &error);
    Ok(LayoutOutcome::Made {
        layout: put(codec::encode(&layout).map_err(encode_error)?)?,
        problems: put(codec::encode(&problems).map_err(encode_error)?)?,
        errors: u32::try_from(errors).unwrap_or(u32::MAX),
        introduced: said.errors,
        loader: LOADER,
        secrets: verdicts,
        warnings: said.warnings,
    })
}

/// A layout, from its blob or as it was read before.
pub(crate) fn read_layout(blobs: &dyn Blobs, hash: &BlobHash) -> Result<Shared<Layout>, Trouble> {
    // Whoever panicked while holding them had them in order: there is nothing between their states.
    let read = || READ.lock().unwrap_or_else(PoisonError::into_inner);
    let mut known = read();
    if let Some(at) = known.iter().position(|(known, _)| known == hash) {
        let found = known.remove(at);
        let layout = found.1.clone();
        known.push(found);
        return Ok(layout);
    }
    drop(known);
    let layout: Layout =
        codec::decode(&get(blobs, hash)?).map_err(|error| Trouble::lasting("layout-unreadable", &error))?;
    let layout = Shared::new(layout);
    let mut known = read();
    if known.len() >= MAX_READ {
        known.remove(0);
    }
    known.push((*hash, layout.clone()));
    Ok(layout)
}

/// Problems from their blob.
pub fn read_problems(blobs: &dyn Blobs, hash: &BlobHash) -> Result<Vec<Problem>, Trouble> {
    codec::decode(&get(blobs, hash)?).map_err(|error| Trouble::lasting("problems-unreadable", &error))
}

/// A blob, or the trouble that there is none.
pub fn get(blobs: &dyn Blobs, hash: &BlobHash) -> Result<Vec<u8>, Trouble> {
    blobs.get(hash).map_err(|error| Trouble::lasting(BLOB_MISSING, &error))
}
