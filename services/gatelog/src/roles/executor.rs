//! The role `executor`: this process is a worker of the site. It announces itself, gives signs, runs what it is
//! granted, and serves the consoles of its builds.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gatelog_capacity_state::{Capacity, LeaseRow, LeaseState};
use gatelog_cloud_contract::{Cloud, Opening};
use gatelog_effects::connection::chain;
use gatelog_effects::git::Repositories;
use gatelog_effects::worker::{Incarnation, LeaseSource, Worker};
use gatelog_executing::Executor;
use gatelog_record::draft::capacity::{WorkerSeen, WorkerSilent};
use gatelog_record::input::CapacityInput;
use gatelog_record::{InputId, InputRecord, Stream, Timestamp};
use gatelog_store::SharedProjection;
use gatelog_tables::{Table, TableExt};
use tokio::sync::Semaphore;

use super::{CAPACITY, Process};
use crate::clouds;
use crate::governors::{Governors, Held, Measured};
use crate::presence::{MUTE_AFTER, SIGN_EVERY, Signer};
use crate::server::{StartError, draw, part};
use gatelog_effects::sources::WorkerLeases;
use gatelog_effects::tokens::{TokenSettings, issuer};

/// How long an announcement may take before it is left for the next round.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a worker looks whether it has been mute for too long.
const LOOK: Duration = Duration::from_millis(200);

/// What a worker has been given and has not done with.
pub struct Work {
    name: String,
    capacity: SharedProjection<Capacity>,
    signer: Arc<Signer>,
    executor: Executor,
}

impl Work {
    /// That of this process.
    pub fn of(process: &Process, executor: Executor) -> Work {
        let (name, capacity) = (process.name.clone(), process.capacity.projection.clone());
        Work { name, capacity, signer: Arc::clone(&process.signer), executor }
    }

    /// How many builds: those it runs, those it has leases for, and, while capacity still counts its slots, those it may
    /// be given any moment. Nodes that are kept outlast it.
    pub fn left(&self) -> usize {
        let start = self.signer.own().incarnation;
        let view = self.capacity.view();
        let own = &view.live().own;
        let offers = match own.workers.get(&self.name) {
            Ok(row) => row.filter(|row| row.offer.incarnation == start).map_or(0, |row| row.offer.slots),
            Err(_) => 1,
        };
        let of_this = |row: &LeaseRow| {
            let held = row.grant.as_ref().is_some_and(|grant| grant.worker == self.name && grant.incarnation == start);
            held && !row.released && row.state != LeaseState::Held
        };
        let leases = own
            .leases
            .all()
            .map_or(1, |rows| rows.filter(|row| row.as_ref().map_or(true, |(_, row)| of_this(row))).count());
        leases.max(self.executor.running().len()).max(usize::from(offers > 0))
    }
}

/// Checks what the settings name on this host, finds Ansible and bubblewrap, and sweeps what an earlier process left behind.
pub async fn open(process: &Process) -> Result<Executor, StartError> {
    let section = &process.config.executor;
    let private = [process.site.clone(), process.paths.keys(), process.paths.blobs()];
    if let Some((message, cure)) = section.unusable_path(&process.site, &private) {
        return Err(StartError::Part { part: "executor", message: format!("{message}; {cure}") });
    }
    if let Some(zone) = &section.zone {
        tracing::warn!(%zone, "the zone is told to the site's processes, but builds are not yet given out by zone");
    }
    let mut settings = section.settings(&process.site);
    settings.log_store = process.job_logs.clone();
    settings.keep_limits = process.config.job_logs.limits();
    let executor = Executor::open(settings).await.map_err(part("executor"))?;
    let swept = executor.sweep().await.map_err(part("executor"))?;
    if !swept.removed.is_empty() || swept.stray_processes > 0 {
        tracing::warn!(
            builds = swept.removed.len(),
            processes = swept.stray_processes,
            "leftovers of an earlier process were removed"
        );
    }
    Ok(executor)
}

/// Starts the worker: the thread that follows leases, and the one that sees to it that others know of it.
/// `address` is where its consoles are.
pub fn start(
    process: &Process,
    executor: Executor,
    repositories: &Repositories,
    address: String,
) -> Result<Vec<JoinHandle<()>>, StartError> {
    let section = &process.config.executor;
    let own = process.signer.own();
    let incarnation = Incarnation::new(own.incarnation, started_after(process, Timestamp(own.started_at)));
    let slots = section.slots;
    process.signer.change(|own| {
        own.address = Some(address.clone());
        own.slots = slots;
        own.zone.clone_from(&section.zone);
        own.allow_unzoned = section.zone.is_none() || section.allow_unzoned;
    });
    let worker = Worker {
        name: process.name.clone(),
        incarnation: incarnation.clone(),
        executor,
        cloud: cloud(process)?,
        repositories: repositories.clone(),
        keyring: Arc::clone(&process.keyring),
        log: Arc::clone(&process.log),
        capacity: CAPACITY,
        stop: Arc::clone(&process.stop),
        now: crate::clock::site_now,
        wall: crate::clock::now,
        labels: section.labels.clone(),
        tokens: TokenSettings {
            issuer: process.config.web.root.as_deref().map(issuer),
            rotate_every: process.config.oidc.rotate_every(),
        },
        room: Arc::clone(&process.room),
        starting: Arc::new(Semaphore::new(section.starting_builds())),
    };
    let leases: Arc<dyn LeaseSource> = Arc::new(WorkerLeases {
        capacity: process.capacity.projection.clone(),
        published: process.capacity.published.clone(),
        gate: process.gate.projection.clone(),
    });
    let announcing = announcing(process, &incarnation, address)?;
    let muteness = muteness(process, incarnation)?;
    let runtime = process.runtime.clone();
    let following = process.thread("worker", move || {
        worker.follow(&leases, &runtime);
        leave(&worker);
    })?;
    Ok(vec![following, announcing, muteness])
}

/// The worker has stopped all it ran and begins nothing more: its builds need not wait until its silence is noticed. If
/// one would not stop in time, that silence is waited for, so that no build runs twice at once.
fn leave(worker: &Worker) {
    if !worker.executor.running().is_empty() {
        tracing::warn!("a build would not stop in time: nobody is told that the worker stops, until it is missed");
        return;
    }
    let (name, (incarnation, _)) = (worker.name.clone(), worker.incarnation.get());
    let id = InputId::new(format!("worker/{name}/{incarnation}/left"));
    let input = CapacityInput::WorkerSilent(WorkerSilent { worker: name, incarnation, silent_ms: 0 });
    match InputRecord::new(id, "main", (worker.now)(), input).close() {
        Ok(frame) => {
            let told = worker.log.append_inputs(Stream::Inputs(worker.capacity), vec![frame.encode()]);
            if !matches!(told.wait_for(PATIENCE), Ok(Some(Ok(_)))) {
                tracing::warn!("nobody could be told that the worker stops: its builds begin again once it is missed");
            }
        }
        Err(error) => tracing::error!(error = %chain(&error), "the worker's end cannot be told"),
    }
}

fn cloud(process: &Process) -> Result<Arc<dyn Cloud>, StartError> {
    let section = &process.config.executor;
    let mut settings = toml::Table::new();
    // A build may have several nodes: slots are counted by capacity, the cloud only holds room.
    settings.insert("slots".to_owned(), i64::from(section.slots.saturating_mul(64).max(64)).into());
    settings.insert("labels".to_owned(), section.labels.clone().into());
    let opening = Opening { name: clouds::USUAL, site: &process.site, site_id: None, now: crate::clock::now };
    let opened = clouds::open(clouds::USUAL, settings, &opening).map_err(part("local cloud"))?;
    Ok(opened.nodes)
}

/// When this start of the worker was, as capacity is told: later than that of the start it knows, also where the clock
/// went back since, or capacity would take this start for the older one until nothing was heard of the other for long.
fn started_after(process: &Process, started_at: Timestamp) -> Timestamp {
    let view = process.capacity.projection.view();
    let known = view.live().own.workers.get(&process.name).ok().flatten();
    known.map_or(started_at, |row| started_at.max(crate::clock::later(row.offer.started_at, 1)))
}

/// Announces this start of the worker, and again whenever capacity knows another or none: it may have been taken for
/// dead meanwhile, or its announcement may have been lost.
fn announcing(process: &Process, incarnation: &Incarnation, address: String) -> Result<JoinHandle<()>, StartError> {
    let (log, stop, incarnation) = (Arc::clone(&process.log), Arc::clone(&process.stop), incarnation.clone());
    let (capacity, signer) = (process.capacity.projection.clone(), Arc::clone(&process.signer));
    let (name, section, site) = (process.name.clone(), process.config.executor.clone(), process.site.clone());
    let mut governors = Governors::new(section.bounds());
    process.thread("announcing", move || {
        let mut count = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            let (start, started_at) = incarnation.get();
            // Who drains, or whose host has too little, offers nothing: what it has goes on.
            let draining = signer.own().draining;
            let held = governors.look(&Measured::here(&site));
            let is_held = !held.is_empty();
            tell_held(&signer, held);
            let offer = WorkerSeen {
                worker: name.clone(),
                incarnation: start.clone(),
                started_at,
                address: address.clone(),
                slots: if draining || is_held { 0 } else { section.slots },
                labels: section.labels.clone(),
            };
            let view = capacity.view();
            let row = view.live().own.workers.get(&name);
            let known = row.is_ok_and(|row| row.is_some_and(|row| row.offer == offer));
            drop(view);
            // Who cannot be heard must not be given anything to do.
            if !known && signer.mute_for() < MUTE_AFTER {
                count += 1;
                let id = InputId::new(format!("worker/{name}/{start}/{count}"));
                let record = InputRecord::new(id, "main", crate::clock::now(), CapacityInput::WorkerSeen(offer));
                match record.close() {
                    Ok(frame) => {
                        let told = log.append_inputs(Stream::Inputs(CAPACITY), vec![frame.encode()]);
                        if let Ok(Some(Err(error))) = told.wait_for(PATIENCE) {
                            tracing::warn!(error = %chain(&error), "the worker could not be announced; it is tried again");
                        }
                    }
                    Err(error) => tracing::error!(error = %chain(&error), "the worker cannot be announced"),
                }
            }
            let began = Instant::now();
            let news = || incarnation.get().0 != start || signer.own().draining != draining;
            while began.elapsed() < SIGN_EVERY && !stop.load(Ordering::Relaxed) && !news() {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    })
}

/// Says why no builds are taken, if that has changed.
fn tell_held(signer: &Signer, held: Vec<Held>) {
    let codes = |held: &[Held]| held.iter().map(|one| one.code.clone()).collect::<Vec<_>>();
    let before = codes(&signer.own().held);
    if before != codes(&held) {
        match held.is_empty() {
            true => tracing::info!("builds are taken again"),
            false => held.iter().for_each(|one| {
                tracing::warn!(reason = one.code, "no builds are taken: {}", one.detail);
            }),
        }
    }
    signer.change(|own| own.held = held);
}

/// Takes the worker for dead when it cannot give a sign for too long, before capacity does and has its builds run
/// elsewhere: another incarnation begins, and what the one before ran is stopped.
fn muteness(process: &Process, incarnation: Incarnation) -> Result<JoinHandle<()>, StartError> {
    let (signer, stop) = (Arc::clone(&process.signer), Arc::clone(&process.stop));
    process.thread("muteness", move || {
        let mut over = false;
        while !stop.load(Ordering::Relaxed) {
            let mute = signer.mute_for() >= MUTE_AFTER;
            if mute && !over {
                let now = crate::clock::later(incarnation.get().1, 1).max(crate::clock::now());
                // Without chance, the time makes another name of it.
                let next = draw().unwrap_or_else(|_| format!("{:016x}", now.0));
                tracing::warn!("no sign could be given for {} s: builds are stopped", MUTE_AFTER.as_secs());
                signer.change(|own| own.incarnation.clone_from(&next));
                incarnation.renew(next, now);
            }
            over = mute;
            std::thread::sleep(LOOK);
        }
    })
}
