//! Keeps the limits that are a build's as a whole: it looks at each running build every so often
//! and ends one that has gone over.
//!
//! Where a build has a control group the kernel keeps memory and processes, and only what it
//! refused is read here. Elsewhere the processes of each build are looked at.
//! Its threads are ordinary ones: they look also while the async runtime is busy.
//!
//! The watch is weaker than the kernel. A job is over its limit for a moment before it is ended. A bomb that the kernel
//! refuses more (see [`crate::wall`]) collapses after some hundredths of a second: so the host's threads are counted
//! between two looks, and when there are many more the processes of each sandbox are. What no process has mapped is looked
//! for less often (see [`crate::held`]), and not all of it is found: buffers of sockets are not. When that exhausts the
//! host, the kernel ends the job's processes before any other: [`crate::confine`] has put them first.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::cgroup::{Events, Group};
use crate::held::{Held, Ipc, Search, devices};
use crate::outcome::Breach;
use crate::process::kill_handle;
use crate::procfs::{HostThreads, Process, Snapshot, count_inside, proportional_memory};
use crate::usage::measure;

/// How often processes are looked at.
const EVERY: Duration = Duration::from_millis(200);
/// How often the host's threads are counted between two looks.
const COUNTED: Duration = Duration::from_millis(5);
/// A build may be about to go over its limit when the host has more threads than before by this part of the limit.
const JUMP: u64 = 4;
/// How often the disk is looked at, at most.
const DISK_EVERY: Duration = Duration::from_secs(1);
/// How often what processes hold is looked at, at most.
const HELD_EVERY: Duration = Duration::from_millis(500);
/// How often the disk, and what processes hold, is looked at, at least, however long that takes.
const DISK_RARELY: Duration = Duration::from_secs(10);
/// How far the process with which a look at what is held begins moves on each time: no factor of a number of processes.
const STRIDE: usize = 7919;
/// Measuring takes no more than this part of a thread's time.
const SHARE: u32 = 5;

/// What one playbook of a build may use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) memory: Option<u64>,
    pub(crate) processes: Option<u64>,
    pub(crate) disk: Option<u64>,
    /// What is measured for `disk`.
    pub(crate) places: Vec<PathBuf>,
}

/// A playbook that is watched.
struct Watched {
    /// bubblewrap, or the playbook itself; after it, whoever else has processes of the playbook.
    roots: Vec<i32>,
    handle: Arc<OwnedFd>,
    bounds: Bounds,
    group: Option<Arc<Group>>,
    /// The first process of its sandbox, once it has been seen.
    first: Option<i32>,
    /// What the group had refused before this playbook.
    before: Events,
    breach: Option<oneshot::Sender<Breach>>,
    /// When its memory is next measured exactly.
    exact_after: Instant,
    /// What it held at the last look, beside files that have a name and memory that processes have mapped.
    held: Held,
}

#[derive(Default)]
struct Shared {
    watched: Mutex<BTreeMap<u64, Watched>>,
    /// Somebody is watched, or nobody will be any more.
    changed: Condvar,
}

/// The watch. Its threads end when it is dropped.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    next: Mutex<u64>,
}

/// A place in the watch; given up when it is dropped.
pub(crate) struct Post {
    shared: Weak<Shared>,
    id: u64,
    group: Option<Arc<Group>>,
    before: Events,
    bounds: Bounds,
    /// Says once that a limit was broken; the playbook is being killed by then.
    pub(crate) breach: oneshot::Receiver<Breach>,
}

impl Watch {
    /// Starts the threads.
    pub(crate) fn start() -> std::io::Result<Watch> {
        let shared = Arc::new(Shared::default());
        let threads = [
            ("gatelog-watch", look_at_processes as fn(&Weak<Shared>)),
            ("gatelog-disk", look_at_disks),
            ("gatelog-held", look_at_held),
        ];
        for (name, look) in threads {
            let weak = Arc::downgrade(&shared);
            std::thread::Builder::new().name(name.into()).stack_size(256 << 10).spawn(move || look(&weak))?;
        }
        Ok(Watch { shared, next: Mutex::new(0) })
    }

    /// Watches a playbook that is about to begin.
    pub(crate) fn post(
        &self,
        roots: Vec<i32>,
        handle: Arc<OwnedFd>,
        bounds: Bounds,
        group: Option<Arc<Group>>,
    ) -> Post {
        let id = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            *next += 1;
            *next
        };
        let before = group.as_ref().map(|group| group.events()).unwrap_or_default();
        let (sender, breach) = oneshot::channel();
        let watched = Watched {
            roots,
            handle,
            bounds: bounds.clone(),
            group: group.clone(),
            first: None,
            before,
            breach: Some(sender),
            exact_after: Instant::now(),
            held: Held::default(),
        };
        self.shared.lock().insert(id, watched);
        self.shared.changed.notify_all();
        Post { shared: Arc::downgrade(&self.shared), id, group, before, bounds, breach }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.lock().clear();
        self.shared.changed.notify_all();
    }
}

impl Post {
    /// What the kernel refused until now: for a playbook that has ended before anybody looked.
    pub(crate) fn refused(&self) -> Option<Breach> {
        refused(self.group.as_deref()?, self.before, &self.bounds)
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lock().remove(&self.id);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a playbook that broke a limit.
    fn end(&self, id: u64, breach: Breach) {
        if let Some(watched) = self.lock().get_mut(&id)
            && let Some(sender) = watched.breach.take()
        {
            // The word first, or its end may be taken for an accident. The deed by this thread: a
            // fork bomb takes the processors from whoever listens.
            let _ = sender.send(breach);
            watched.kill();
        }
    }
}

impl Watched {
    fn kill(&self) {
        if let Some(group) = &self.group {
            group.kill();
        }
        kill_handle(&self.handle);
    }

    /// The limit on processes that nobody but the watch would tell of.
    fn processes(&self) -> Option<u64> {
        self.bounds.processes.filter(|_| !self.kept().1)
    }

    /// Whether the kernel keeps the limit, so that processes need not be looked at.
    fn kept(&self) -> (bool, bool) {
        let group = self.group.as_ref();
        (group.is_some_and(|group| group.limits_memory()), group.is_some_and(|group| group.limits_processes()))
    }
}

/// What a group refused beyond what it had refused before.
fn refused(group: &Group, before: Events, bounds: &Bounds) -> Option<Breach> {
    let now = group.events();
    if let Some(limit) = bounds.memory.filter(|_| now.oom_kills > before.oom_kills) {
        return Some(Breach::Memory { limit, used: group.peak().unwrap_or(limit).max(limit) });
    }
    let limit = bounds.processes.filter(|_| now.refused_processes > before.refused_processes)?;
    Some(Breach::Processes { limit, used: limit })
}

/// Waits until somebody is watched. `None`: nobody will be any more.
fn somebody(shared: &Weak<Shared>) -> Option<Arc<Shared>> {
    loop {
        let strong = shared.upgrade()?;
        let watched = strong.lock();
        if !watched.is_empty() {
            drop(watched);
            return Some(strong);
        }
        // In bounded steps: the watch may go without anybody to say so.
        drop(strong.changed.wait_timeout(watched, Duration::from_secs(5)));
    }
}

fn look_at_processes(shared: &Weak<Shared>) {
    let host = HostThreads::open();
    while let Some(strong) = somebody(shared) {
        let threads = host.count();
        let scanned = |watched: &&Watched| {
            let memory = watched.bounds.memory.is_some() && !watched.kept().0;
            memory || watched.processes().is_some()
        };
        let roots: Vec<i32> =
            strong.lock().values().filter(scanned).flat_map(|watched| watched.roots.iter().copied()).collect();
        let snapshot = Snapshot::of_trees(&roots);
        let ids: Vec<u64> = strong.lock().keys().copied().collect();
        for id in ids {
            if let Some(breach) = look(&strong, id, &snapshot) {
                strong.end(id, breach);
            }
        }
        let least = strong.lock().values().filter_map(Watched::processes).min();
        drop(strong);
        match threads.zip(least) {
            Some((threads, limit)) => count(shared, &host, threads, (limit / JUMP).max(1)),
            None => std::thread::sleep(EVERY),
        }
    }
}

/// Until the next look: counts the host's threads, and what is in each sandbox once they are more by `jump`.
fn count(shared: &Weak<Shared>, host: &HostThreads, mut fewest: u64, jump: u64) {
    let began = Instant::now();
    let mut jumped = false;
    while began.elapsed() < EVERY {
        std::thread::sleep(COUNTED);
        let Some(threads) = host.count() else { continue };
        jumped |= threads >= fewest.saturating_add(jump);
        fewest = fewest.min(threads);
        let Some(strong) = shared.upgrade().filter(|_| jumped) else { continue };
        let sandboxes: Vec<(u64, i32, u64)> = strong
            .lock()
            .iter()
            .filter_map(|(id, watched)| Some((*id, watched.first?, watched.processes()?)))
            .collect();
        for (id, first, limit) in sandboxes {
            if let Some(used) = count_inside(first).filter(|used| *used > limit) {
                strong.end(id, Breach::Processes { limit, used });
            }
        }
    }
}

/// One playbook, against this picture of the host.
fn look(shared: &Shared, id: u64, snapshot: &Snapshot) -> Option<Breach> {
    let (tree, memory, sum, held) = {
        let mut all = shared.lock();
        let watched = all.get_mut(&id).filter(|watched| watched.breach.is_some())?;
        if let Some(breach) = watched.group.as_deref().and_then(|group| refused(group, watched.before, &watched.bounds))
        {
            return Some(breach);
        }
        let kept = watched.kept();
        let tree: Vec<(i32, Process)> = watched.roots.iter().flat_map(|root| snapshot.tree(*root)).collect();
        watched.first = watched.roots.first().and_then(|root| snapshot.children(*root).first()).copied();
        if let Some(limit) = watched.processes() {
            let used = tree.iter().map(|(_, process)| process.threads).sum();
            if used > limit {
                return Some(Breach::Processes { limit, used });
            }
        }
        let memory = watched.bounds.memory.filter(|_| !kept.0)?;
        let page = rustix::param::page_size() as u64;
        let mapped: u64 = tree.iter().map(|(_, process)| process.pages.saturating_mul(page)).sum();
        let sum = mapped.saturating_add(watched.held.memory);
        if sum <= memory || Instant::now() < watched.exact_after {
            return None;
        }
        (tree, memory, sum, watched.held.memory)
    };
    // What several share was counted for each of them: now exactly, and without the lock.
    let began = Instant::now();
    let page = rustix::param::page_size() as u64;
    let exact = |(pid, process): &(i32, Process)| {
        let pages = if process.dead { 0 } else { process.pages.saturating_mul(page) };
        proportional_memory(*pid).unwrap_or((pages, 0))
    };
    let (mapped, in_files) = tree
        .iter()
        .map(exact)
        .fold((0u64, 0u64), |sum, one| (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1)));
    // What is held and mapped is in both.
    let used = mapped.saturating_add(held.saturating_sub(in_files));
    if used > memory {
        return Some(Breach::Memory { limit: memory, used: used.min(sum) });
    }
    let again = Instant::now() + began.elapsed().saturating_mul(SHARE);
    if let Some(watched) = shared.lock().get_mut(&id) {
        watched.exact_after = again;
    }
    None
}

fn look_at_disks(shared: &Weak<Shared>) {
    while let Some(strong) = somebody(shared) {
        let began = Instant::now();
        let all: Vec<(u64, u64, Vec<PathBuf>, u64)> = strong
            .lock()
            .iter()
            .filter_map(|(id, watched)| {
                Some((*id, watched.bounds.disk?, watched.bounds.places.clone(), watched.held.disk))
            })
            .collect();
        for (id, limit, places, held) in all {
            match measure(&places, limit) {
                Ok(usage) if usage.too_deep => strong.end(id, Breach::Depth),
                Ok(usage) => {
                    let used = usage.bytes.saturating_add(held);
                    if used > limit {
                        strong.end(id, Breach::Disk { limit, used });
                    }
                }
                Err(error) => tracing::warn!(%error, "what a build keeps on disk could not be measured"),
            }
        }
        drop(strong);
        std::thread::sleep(began.elapsed().saturating_mul(SHARE).clamp(DISK_EVERY, DISK_RARELY));
    }
}

/// Looks at what processes hold; the other threads add it to what they find.
fn look_at_held(shared: &Weak<Shared>) {
    let ipc = Ipc::open();
    let mut turn = 0usize;
    while let Some(strong) = somebody(shared) {
        let began = Instant::now();
        let all: Vec<(u64, Vec<i32>, Bounds, bool)> = strong
            .lock()
            .iter()
            .map(|(id, watched)| {
                let memory = watched.bounds.memory.is_some() && !watched.kept().0;
                (*id, watched.roots.clone(), watched.bounds.clone(), memory)
            })
            .filter(|(_, _, bounds, memory)| *memory || bounds.disk.is_some())
            .collect();
        let roots: Vec<i32> = all.iter().flat_map(|(_, roots, _, _)| roots.iter().copied()).collect();
        let snapshot = Snapshot::of_trees(&roots);
        for (id, roots, bounds, memory) in all {
            let mut search = Search::new(&devices(&bounds.places));
            let first = roots.first().and_then(|root| snapshot.children(*root).first());
            if let Some(first) = first.filter(|_| memory) {
                search.sandbox(*first);
                search.memory(ipc.measure(*first).unwrap_or_default());
            }
            let pids: Vec<i32> = roots.iter().flat_map(|root| snapshot.tree(*root)).map(|(pid, _)| pid).collect();
            let held = search.processes(&pids, turn);
            if let Some(watched) = strong.lock().get_mut(&id) {
                watched.held = held;
            }
        }
        drop(strong);
        // Somewhere else in each build.
        turn = turn.wrapping_add(STRIDE);
        std::thread::sleep(began.elapsed().saturating_mul(SHARE).clamp(HELD_EVERY, DISK_RARELY));
    }
}
