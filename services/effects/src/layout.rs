//! Work: make a layout. The effect fetches blobs; making is the pure function of `rules/config`,
//! and `replay verify` runs it again from the same blobs.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};

use gatelog_event_log::Blobs;
use gatelog_record::draft::gate::{LayoutOutcome, LayoutWanted};
use gatelog_record::{BlobHash, codec};
use gatelog_rules_config::load::{ConfigFile, LoadInput, load};
use gatelog_rules_config::problem::Problem;
use gatelog_rules_config::tenant::{ProjectFacts, TenantSettings, TenantSpec};
use gatelog_rules_config::{ParseCache, Place, load_cached};
use gatelog_rules_gate::config_remarks;

use crate::connection::{Connections, Trouble};

/// The version of the loader: raised when the same files may give another layout.
pub const LOADER: u32 = 2;

/// Files parsed before: layouts of one tenant after the other, and of changes, share nearly all of them.
static PARSED: LazyLock<Mutex<ParseCache>> = LazyLock::new(Mutex::default);

/// Makes a layout; trouble becomes an outcome too.
pub fn make(blobs: &dyn Blobs, connections: &Connections, wanted: &LayoutWanted) -> LayoutOutcome {
    match try_make(blobs, connections, wanted) {
        Ok(outcome) => outcome,
        Err(Trouble { code, message, .. }) => LayoutOutcome::Failed { code, message },
    }
}

/// What the loader is given: fetched, not yet loaded.
pub fn load_input(blobs: &dyn Blobs, connections: &Connections, wanted: &LayoutWanted) -> Result<LoadInput, Trouble> {
    let settings = get(blobs, &wanted.settings)?;
    let settings: TenantSettings =
        codec::decode(&settings).map_err(|error| Trouble::lasting("settings-unreadable", &error))?;
    let mut facts: BTreeMap<(String, String), ProjectFacts> = BTreeMap::new();
    let mut files = Vec::new();
    for set in &wanted.files {
        let local = connections.local_name(&set.at.connection, &set.at.project)?.to_owned();
        let known = facts.entry((set.at.connection.clone(), local)).or_insert_with(|| ProjectFacts {
            canonical_name: set.at.project.clone(),
            default_branch: String::new(),
            branches: Vec::new(),
        });
        known.branches.push(set.at.branch.clone());
        if set.default || known.default_branch.is_empty() {
            known.default_branch.clone_from(&set.at.branch);
        }
        for file in &set.files {
            // What is not UTF-8 is shown to the loader with replacement characters, which it names
            // where it meets them; it is not a reason to do without the rest.
            let text = String::from_utf8_lossy(&get(blobs, &file.blob)?).into_owned();
            files.push(ConfigFile {
                project: set.at.project.clone(),
                branch: set.at.branch.clone(),
                path: file.path.clone(),
                text,
            });
        }
    }
    let spec = TenantSpec { settings, place: Place::default() };
    // A connection that is not configured is the only reason left for a project to be unknown; the
    // tenant file named it when it was read.
    let (tenant, _) = spec.resolve(|connection, name| {
        facts.get(&(connection.to_owned(), name.to_owned())).cloned().or_else(|| {
            // A project that could not be read has a name all the same.
            let host = connections.get(connection).ok()?.canonical_hostname();
            Some(ProjectFacts {
                canonical_name: format!("{host}/{name}"),
                default_branch: "master".into(),
                branches: Vec::new(),
            })
        })
    });
    Ok(LoadInput { tenant, files })
}

fn try_make(blobs: &dyn Blobs, connections: &Connections, wanted: &LayoutWanted) -> Result<LayoutOutcome, Trouble> {
    let input = load_input(blobs, connections, wanted)?;
    let (layout, problems) = match PARSED.lock() {
        Ok(mut cache) => load_cached(&input, &mut cache),
        // Somebody panicked while holding it: it only saves time.
        Err(_) => load(&input),
    };
    let ahead = match &wanted.ahead {
        Some(hash) => read_problems(blobs, hash)?,
        None => Vec::new(),
    };
    let errors = problems.iter().filter(|problem| problem.is_error()).count();
    let introduced =
        if wanted.item.is_some() { config_remarks(&problems, &ahead, &wanted.changed) } else { Vec::new() };
    let put = |bytes: Vec<u8>| blobs.put(&bytes).map_err(|error| Trouble::passing("blob-store", &error));
    let encode_error = |error| Trouble::lasting("layout-too-large", &error);
    Ok(LayoutOutcome::Made {
        layout: put(codec::encode(&layout).map_err(encode_error)?)?,
        problems: put(codec::encode(&problems).map_err(encode_error)?)?,
        errors: u32::try_from(errors).unwrap_or(u32::MAX),
        introduced,
        loader: LOADER,
    })
}

/// Problems from their blob.
pub fn read_problems(blobs: &dyn Blobs, hash: &BlobHash) -> Result<Vec<Problem>, Trouble> {
    codec::decode(&get(blobs, hash)?).map_err(|error| Trouble::lasting("problems-unreadable", &error))
}

/// A blob, or the trouble that there is none.
pub fn get(blobs: &dyn Blobs, hash: &BlobHash) -> Result<Vec<u8>, Trouble> {
    blobs.get(hash).map_err(|error| Trouble::lasting("blob-missing", &error))
}
