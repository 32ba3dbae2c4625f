//! Keys of projects were imported, rotated or taken away: the tenants that have the projects are configured anew, for
//! whether a secret deciphers is told with a layout. And something left the site ([`told`]): that goes onto the log.
//!
//! Whoever imports a key may have no way to the log: on one machine a running server alone appends. So a note is left
//! beside the keys, and the process that owns the gate turns it into inputs, now or at its next start. A note is taken
//! away once its inputs are on the log; one that is read twice gives the same input ids.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gatelog_effects::connection::{Connections, chain};
use gatelog_event_log::Log;
use gatelog_record::draft::gate::{ReconfigureAsked, TenantProject};
use gatelog_record::input::GateInput;
use gatelog_record::{ActorId, InputId, InputRecord, Stream, Timestamp};
use gatelog_tables::TableExt;
use gatelog_writer::Published as WriterPublished;
use serde::{Deserialize, Serialize};

use crate::audit::told::{self, Told};
use crate::roles::{Folded, GATE};
use crate::server::draw;

/// Where notes are, below the keys.
const FOLDER: &str = "imported";
/// How often they are looked for.
const LOOK: Duration = Duration::from_secs(1);
/// No note is longer, in bytes.
const LONGEST: u64 = 16 << 20;
/// How many projects one note may name: with the longest names there is room for them.
pub const MOST_PROJECTS: usize = 10_000;
/// So many notes are read in one look.
const AT_ONCE: usize = 256;

/// Keys that were imported, rotated or taken away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// The connection.
    pub connection: String,
    /// The project's name on that connection.
    pub project: String,
    /// Further projects, each behind its connection: a tenant that has several of them is configured once.
    #[serde(default)]
    pub more: Vec<(String, String)>,
    /// Who did it.
    pub actor: ActorId,
    /// When.
    pub at: Timestamp,
    /// Why, in their words.
    pub reason: String,
}

/// Leaves a note, durable when this returns.
pub fn leave(keys: &Path, imported: &Imported) -> Result<(), String> {
    leave_in(keys, FOLDER, imported)
}

/// Leaves a note in a folder below the keys, durable when this returns.
pub fn leave_in(keys: &Path, folder: &str, note: &impl Serialize) -> Result<(), String> {
    let folder = keys.join(folder);
    let name = draw().map_err(|error| error.to_string())?;
    let text = serde_json::to_string(note).map_err(|error| error.to_string())?;
    let (part, whole) = (folder.join(format!("{name}.part")), folder.join(format!("{name}.json")));
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(&folder)?;
        let mut file = std::fs::File::create(&part)?;
        std::io::Write::write_all(&mut file, text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&part, &whole)?;
        std::fs::File::open(&folder)?.sync_all()
    };
    write().map_err(|error| format!("{}: {error}", whole.display()))
}

/// Turns notes into inputs.
pub struct Renewals {
    /// The keys' directory.
    pub keys: PathBuf,
    /// Where inputs go.
    pub log: Arc<dyn Log>,
    /// The gate as this process has folded it.
    pub gate: Folded<gatelog_gate_state::Gate>,
    /// What the gate's owner has on the log.
    pub owner: Arc<WriterPublished>,
    /// The hosts of projects.
    pub connections: Connections,
}

impl Renewals {
    /// Looks for notes until it is told to stop.
    pub fn run(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            if let Err(message) = self.look() {
                tracing::warn!(message, "what was left beside the keys is not on the log yet; it is tried again");
            }
            let mut waited = Duration::ZERO;
            while waited < LOOK && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK / 10);
                waited += LOOK / 10;
            }
        }
    }

    fn look(&self) -> Result<(), String> {
        for note in self.notes(told::FOLDER)? {
            self.tell(&note)?;
        }
        let notes = self.notes(FOLDER)?;
        // Which tenants there are is known once all that is on the log is folded.
        if notes.is_empty() || self.owner.mark(GATE).is_none() {
            return Ok(());
        }
        let newest = self.owner.sequence();
        if self.gate.published.wait_at_most(newest, LOOK).sequence < newest {
            return Ok(());
        }
        notes.iter().try_for_each(|note| self.renew(note))
    }

    fn notes(&self, folder: &str) -> Result<Vec<PathBuf>, String> {
        let entries = match std::fs::read_dir(self.keys.join(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.to_string()),
        };
        Ok(entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
            .take(AT_ONCE)
            .collect())
    }

    /// Puts what left the site onto the log.
    fn tell(&self, note: &Path) -> Result<(), String> {
        let failed = |error: &dyn std::error::Error| format!("{}: {}", note.display(), chain(error));
        match serde_json::from_slice::<Told>(&read(note).map_err(|error| failed(&error))?) {
            Ok(told) => {
                let frame = told.input(&note.file_stem().unwrap_or_default().to_string_lossy())?;
                let taken = self.log.append_inputs(Stream::Inputs(GATE), vec![frame]).wait();
                taken.ok_or("the log is closing")?.map_err(|error| failed(&error))?;
            }
            Err(error) => tracing::warn!(note = %note.display(), %error, "a note of what left the site cannot be read"),
        }
        std::fs::remove_file(note).map_err(|error| failed(&error))
    }

    fn renew(&self, note: &Path) -> Result<(), String> {
        let failed = |error: &dyn std::error::Error| format!("{}: {}", note.display(), chain(error));
        match serde_json::from_slice::<Imported>(&read(note).map_err(|error| failed(&error))?) {
            Ok(imported) => {
                let name = note.file_stem().unwrap_or_default().to_string_lossy();
                let frames = self.inputs(&name, &imported)?;
                tracing::info!(
                    connection = imported.connection,
                    project = imported.project,
                    tenants = frames.len(),
                    more = imported.more.len(),
                    "keys of projects are others than before: the tenants that have these projects are configured anew"
                );
                if !frames.is_empty() {
                    let told = self.log.append_inputs(Stream::Inputs(GATE), frames).wait();
                    told.ok_or("the log is closing")?.map_err(|error| failed(&error))?;
                }
            }
            Err(error) => tracing::warn!(note = %note.display(), %error, "what a `keys` command left cannot be read"),
        }
        std::fs::remove_file(note).map_err(|error| failed(&error))
    }

    /// An input for each tenant that has one of the projects.
    fn inputs(&self, note: &str, imported: &Imported) -> Result<Vec<Vec<u8>>, String> {
        let Imported { connection, project, more, actor, at, reason } = imported;
        let first = (connection.clone(), project.clone());
        // By connection and canonical name; a connection that this site does not have has no projects here.
        let changed: BTreeSet<(&str, String)> = std::iter::once(&first)
            .chain(more)
            .filter_map(|(connection, project)| {
                let known = self.connections.review(connection).ok()?;
                Some((connection.as_str(), format!("{}/{project}", known.canonical_hostname())))
            })
            .collect();
        let view = self.gate.projection.view();
        let rows = view.live().gate.tenants.all().map_err(|error| chain(&error))?;
        let mut frames = Vec::new();
        for row in rows {
            let (tenant, row) = row.map_err(|error| chain(&error))?;
            let has = |one: &TenantProject| changed.contains(&(one.connection.as_str(), one.project.clone()));
            if !row.loaded.projects.iter().any(has) {
                continue;
            }
            let asked = ReconfigureAsked { tenant: tenant.clone(), reason: reason.clone() };
            let id = InputId::new(format!("imported/{note}/{tenant}"));
            let mut record = InputRecord::new(id, tenant, *at, GateInput::ReconfigureAsked(asked));
            record.actor = *actor;
            frames.push(record.close().map_err(|error| chain(&error))?.encode());
        }
        Ok(frames)
    }
}

/// A note's text; of one that is longer than any, nothing.
fn read(note: &Path) -> std::io::Result<Vec<u8>> {
    if std::fs::metadata(note)?.len() <= LONGEST { std::fs::read(note) } else { Ok(Vec::new()) }
}
