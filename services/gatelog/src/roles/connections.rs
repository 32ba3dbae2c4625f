//! The role `connections`: what happens at code-review systems comes in, questions and reports go out.
//!
//! Every role that needs repositories knows the connections too; only this one listens to them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use gatelog_driver_git::Notifier;
use gatelog_effects::connection::Connections;
use gatelog_effects::dispatch::{self, Duty, Tools};
use gatelog_effects::git::Repositories;
use gatelog_effects::share::{Peers, Share};
use gatelog_tables::TableExt;

use super::{GATE, Process};
use crate::config::ConnectionConfig;
use crate::connections::git::{GitConnection, GitIntake, Wanted};
use crate::forges;
use crate::server::{StartError, notify_dir, part};
use gatelog_effects::sources::GateWork;

/// The connections of a site, as this process uses them.
#[derive(Default)]
pub struct Known {
    /// By name, for effects.
    pub connections: Connections,
    git: Vec<(String, Arc<GitConnection>, Duration)>,
}

/// Opens the connections of the configuration; nothing is listened to yet.
pub fn open(process: &Process) -> Result<Known, StartError> {
    let mut known = Known::default();
    for (name, connection) in &process.config.connection {
        let ConnectionConfig::Git { poll_ms, .. } = connection;
        let forge = forges::open(&process.site, name, connection).map_err(part("forge"))?;
        let adapter = Arc::new(GitConnection::new(name.clone(), forge, Arc::clone(&process.keyring)));
        known.connections.add(name.clone(), Arc::clone(&adapter) as _);
        known.git.push((name.clone(), adapter, Duration::from_millis((*poll_ms).max(50))));
    }
    Ok(known)
}

/// Listens to every connection.
pub fn listen(process: &Process, known: &Known) -> Result<Vec<JoinHandle<()>>, StartError> {
    let mut threads = Vec::new();
    for (name, adapter, every) in &known.git {
        let notifier = Notifier::open(notify_dir(&process.site, name)).map_err(part("forge"))?;
        let snapshots = process.paths.connections().join(name);
        let (log, stop) = (Arc::clone(&process.log), Arc::clone(&process.stop));
        let intake = GitIntake::new(Arc::clone(adapter), log, snapshots, *every, stop)
            .telling(Arc::clone(&process.troubles), wanted(process, name));
        let hooks = Arc::clone(adapter);
        threads.push(process.thread("forge-hooks", move || hooks.tell_of_hooks())?);
        threads.push(process.thread("forge-intake", move || intake.run(&notifier))?);
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
    dispatch::spawn(tools, Arc::new(work), duties, share, Arc::clone(&process.stop)).map_err(part("threads"))
}
