//! The role `scheduler`: owns the gate, and brings the intake to it.
//!
//! It reads the tenant file, because exactly one process has this role in force at a time: of two, the later one fences
//! the earlier. Reports link to `[web] root`, which the tenants of the file get with it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gatelog_effects::connection::{Connections, chain};
use gatelog_writer::{Published, Receiver};

use super::Process;
use crate::audit::notary::Notary;
use crate::audit::publisher::Directory;
use crate::renewals::Renewals;
use crate::returned_life::ReturnedLife;
use crate::routing::IntakeRouter;
use crate::server::{StartError, part};
use crate::tenants::{self, WebRoot};
use crate::timers::TimerTicks;

/// Routing goes on where the gate has taken inputs from; then the tenant file.
pub fn route(
    process: &Process,
    gate: &Arc<Published>,
    connections: &Connections,
) -> Result<JoinHandle<()>, StartError> {
    let receiver: Arc<dyn Receiver> = Arc::<Published>::clone(gate);
    let place = process.paths.routing();
    let mut router = IntakeRouter::open(Arc::clone(&process.patient), receiver, place).map_err(part("intake"))?;
    let Some(url) = &process.web_root else {
        return Err(StartError::Part {
            part: "scheduler",
            message: "reports link to pages, and this process has no role web; set root under [web]".into(),
        });
    };
    let web = &process.config.web;
    let web_root = WebRoot { url, lasts: web.root.is_some() || web.listen.port() != 0 };
    let file = process.site.join(&process.config.tenant_file);
    let default_ansible = &process.config.scheduler.default_ansible_version;
    let loaded = tenants::load(&file, default_ansible, connections, &*process.blobs, router.newest(), web_root)?;
    for problem in loaded.problems {
        tracing::warn!("{problem}");
    }
    let (log, stop) = (Arc::clone(&process.log), Arc::clone(&process.stop));
    process.thread("intake-router", move || {
        if let Some(fresh) = loaded.fresh {
            fresh.put(&*log, &stop);
        }
        router.run(&stop);
    })
}

/// Has tenants configured anew whose projects' keys are imported.
pub fn renew(
    process: &Process,
    gate: &Arc<Published>,
    connections: &Connections,
) -> Result<JoinHandle<()>, StartError> {
    let renewals = Renewals {
        keys: process.paths.keys(),
        log: Arc::clone(&process.log),
        gate: process.gate.clone(),
        owner: Arc::clone(gate),
        connections: connections.clone(),
    };
    let stop = Arc::clone(&process.stop);
    process.thread("renewals", move || renewals.run(&stop))
}

/// Tells the gate which timers of pipelines are due.
pub fn tick(process: &Process, gate: &Arc<Published>) -> Result<JoinHandle<()>, StartError> {
    let ticks = TimerTicks {
        gate: process.gate.clone(),
        owner: Arc::clone(gate),
        log: Arc::clone(&process.log),
        calendar: process.config.scheduler.calendar().map_err(part("scheduler"))?,
    };
    let stop = Arc::clone(&process.stop);
    process.thread("timers", move || ticks.run(&stop))
}

/// Ends what builds returned in blobs of their own, by the site's setting.
pub fn end_returned(process: &Process) -> Result<JoinHandle<()>, StartError> {
    let life = ReturnedLife {
        gate: process.gate.clone(),
        blobs: Arc::clone(&process.blobs),
        log: Arc::clone(&process.log),
        keep_days: process.config.job_logs.keep_returned_days,
        steady: Arc::clone(&process.steady),
    };
    let stop = Arc::clone(&process.stop);
    process.thread("returned", move || life.run(&stop))
}

/// Signs where the log stands, at an interval and when the process ends, where the site says where that goes.
pub fn sign(process: &Process) -> Result<Option<JoinHandle<()>>, StartError> {
    let Some(directory) = process.config.audit.directory(&process.site) else { return Ok(None) };
    let (log, keyring) = (Arc::clone(&process.patient), Arc::clone(&process.keyring));
    let (every, stop) = (process.config.audit.every(), Arc::clone(&process.stop));
    let thread = process.thread("notary", move || {
        // Made when there is none, which takes seconds.
        let key = match keyring.signing_key() {
            Ok(key) => key,
            Err(error) => {
                tracing::error!(error = chain(&error), "there is no key to sign checkpoints with: none are made");
                return;
            }
        };
        let mut notary = Notary::new(log, key, Box::new(Directory::new(directory)));
        loop {
            let ending = stop.load(Ordering::Relaxed);
            match notary.look(crate::clock::now()) {
                Ok(made) => made.iter().for_each(|made| tracing::debug!(place = made.place, "a checkpoint was signed")),
                Err(error) => {
                    tracing::error!(error = chain(&error), "no checkpoint could be published; it is tried again");
                }
            }
            if ending {
                return;
            }
            let began = Instant::now();
            while began.elapsed() < every && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    })?;
    Ok(Some(thread))
}
