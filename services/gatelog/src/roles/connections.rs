//! The role `connections`: what happens at code-review systems comes in, questions and reports go out.
//!
//! Every role that needs repositories knows the connections too; only this one listens to them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;

use gatelog_driver_contract::{Connections, Opening};
use gatelog_effects::dispatch::Duty;
use gatelog_effects::git::Repositories;
use gatelog_effects::perform::{self, Tools};
use gatelog_effects::share::{Peers, Share};
use gatelog_tables::TableExt;

use super::{GATE, Process};
use crate::connections::intake::{Wanted, Watch};
use crate::drivers;
use crate::server::{StartError, part};
use gatelog_effects::sources::GateWork;

/// The connections of a site, as this process uses them.
#[derive(Default)]
pub struct Known {
    /// By name, for effects.
    pub connections: Connections,
}

/// Opens the connections of the configuration; nothing is listened to yet.
pub fn open(process: &Process) -> Result<Known, StartError> {
    let mut connections = Connections::new(drivers::schemas());
    for (name, connection) in &process.config.connection {
        let opening = Opening {
            name,
            site: &process.site,
            keyring: Arc::clone(&process.keyring),
            now: crate::clock::now,
            program: std::env::current_exe().ok(),
        };
        connections.add(connection.settings.open(&opening).map_err(part("connection"))?);
    }
    Ok(Known { connections })
}

/// Listens to every connection at which something happens.
pub fn listen(process: &Process, known: &Known) -> Result<Vec<JoinHandle<()>>, StartError> {
    let mut threads = Vec::new();
    for connection in known.connections.iter() {
        let Some(intake) = &connection.intake else { continue };
        let name = &connection.name;
        let places = process.paths.connections().join(name);
        let (log, stop) = (Arc::clone(&process.log), Arc::clone(&process.stop));
        let telling = (Arc::clone(&process.troubles), wanted(process, name));
        let watch = Watch::new(name, Arc::clone(intake), log, places, telling, stop);
        let (remarks, name) = (Arc::clone(intake), name.clone());
        threads.push(process.thread("remarks", move || {
            for remark in remarks.remarks() {
                tracing::warn!(connection = name, "{remark}");
            }
        })?);
        threads.push(process.thread("intake", move || watch.run())?);
    }
    Ok(threads)
}

/// The projects of a connection that tenants have.
fn wanted(process: &Process, name: &str) -> Wanted {
    let (gate, name) = (process.gate.projection.clone(), name.to_owned());
    Box::new(move || {
        let view = gate.view();
        let Ok(tenants) = view.live().gate.tenants.all() else { return BTreeSet::new() };
        let projects = tenants.flatten().flat_map(|(_, row)| row.into_owned().loaded.projects);
        let of_this = projects.filter(|project| project.connection == name);
        of_this.filter_map(|project| project.project.split_once('/').map(|(_, local)| local.to_owned())).collect()
    })
}

/// Does this process's share of the gate's pending work.
pub fn effects(
    process: &Process,
    repositories: &Repositories,
    duties: &[Duty],
) -> Result<Vec<JoinHandle<()>>, StartError> {
    let tools = Tools {
        repositories: repositories.clone(),
        keyring: Arc::clone(&process.keyring),
        log: Arc::clone(&process.log),
        now: crate::clock::site_now,
        partition: GATE,
        room: Arc::clone(&process.room),
    };
    let work = GateWork::new(process.gate.projection.clone(), process.gate.published.clone());
    let peers: Arc<dyn Peers> = Arc::clone(&process.signer) as _;
    let share = Share::new(process.name.clone(), peers);
    perform::spawn(tools, Arc::new(work), duties, share, Arc::clone(&process.stop)).map_err(part("threads"))
}
