//! Roles with numbers, run.
//!
//! First the hooks before, one after the other, each on all its nodes. Then number by number the nodes, in slices: each
//! node of a slice walks through its own list of tasks, and the slice ends when no node has a task left. A failed task
//! ends the list of its node for this role; other nodes go on, and so does the same node in its next role. If a node that
//! may not fail has failed when its slice ends, everything ends. Then the hooks after.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Next, NotRunning, Outcome, Patience, Verdict};

/// Most nodes of a slice. Fuel: so many at once, and no more.
pub const SLICE: usize = 50;

/// A task to be run on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// Its id.
    pub task: String,
    /// Its type.
    pub kind: String,
    /// How often, and how long.
    pub patience: Patience,
}

/// A task before or after, on all its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// Its number.
    pub number: u64,
    /// What is run.
    pub planned: Planned,
    /// Where.
    pub uids: Vec<String>,
    /// Whether its failure ends everything.
    pub fail_on_error: bool,
}

/// A node in one of its roles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// The node.
    pub uid: String,
    /// The role.
    pub role: String,
    /// Its number: lower ones come first, equal ones run beside each other.
    pub number: u64,
    /// Whether everything ends if this node fails.
    pub critical: bool,
    /// What it runs, in order.
    pub tasks: Vec<Planned>,
}

/// All that is to be run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// Hooks before, in order.
    pub pre: Vec<Hook>,
    /// Nodes in their roles, in any order.
    pub turns: Vec<Turn>,
    /// Hooks after, in order.
    pub post: Vec<Hook>,
}

/// A task that was started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// The node.
    pub uid: String,
    /// The role it runs for; `pre` and `post` for hooks.
    pub role: String,
    /// The task's id.
    pub task: String,
}

/// What is started: which try of what, and how long it may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// What.
    pub key: Key,
    /// Its type.
    pub kind: String,
    /// The number of the try, from 1.
    pub attempt: u32,
    /// Seconds it may take.
    pub timeout: Option<u64>,
}

/// Where a deployment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// At this hook before.
    Pre(usize),
    /// At this slice.
    Slice(usize),
    /// At this hook after.
    Post(usize),
    /// At its end.
    Over,
}

/// How far a node is in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Walk {
    /// At the beginning of this task.
    At(usize),
    /// In this task, in this try.
    In(usize, u32),
    /// At the end of the list.
    Done,
    /// It failed.
    Failed,
}

/// A deployment by roles with numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleRun {
    script: Script,
    slices: Vec<Vec<usize>>,
    phase: Phase,
    walks: Vec<Walk>,
    /// Of the hook at hand: its nodes.
    hook: BTreeMap<String, Walk>,
    /// How each node was last told to be: whether it failed.
    last: BTreeMap<String, bool>,
    failed: BTreeSet<String>,
    gone: BTreeSet<String>,
    done: BTreeSet<Key>,
    broken: Option<String>,
    stopped: bool,
    at_once: usize,
}

/// What runs under a key: what, which try, and of turns which and where.
type Found<'r> = (&'r Planned, u32, Option<(usize, usize)>);

impl RoleRun {
    /// A deployment that has not begun. `offline` are nodes that do not answer: they are left out everywhere, and if one
    /// of them may not fail, nothing begins. At most `at_once` nodes run beside each other.
    pub fn new(mut script: Script, offline: &[String], at_once: usize) -> RoleRun {
        let missing = |turn: &&Turn| turn.critical && offline.contains(&turn.uid);
        let missing: Vec<String> = script.turns.iter().filter(missing).map(|turn| turn.uid.clone()).collect();
        let failed: BTreeSet<String> =
            script.turns.iter().map(|turn| &turn.uid).filter(|uid| offline.contains(uid)).cloned().collect();
        script.turns.retain(|turn| !offline.contains(&turn.uid));
        if !offline.is_empty() {
            for hooks in [&mut script.pre, &mut script.post] {
                for hook in hooks.iter_mut() {
                    hook.uids.retain(|uid| !offline.contains(uid));
                }
                hooks.retain(|hook| !hook.uids.is_empty());
            }
        }
        script.pre.sort_by_key(|hook| hook.number);
        script.post.sort_by_key(|hook| hook.number);
        let broken = (!missing.is_empty())
            .then(|| format!("Critical nodes are not available for deployment: {}", listed(&missing)));
        let at_once = at_once.max(1);
        let mut run = RoleRun {
            slices: slices(&script.turns, at_once),
            walks: vec![Walk::At(0); script.turns.len()],
            script,
            phase: if broken.is_some() { Phase::Over } else { Phase::Pre(0) },
            hook: BTreeMap::new(),
            last: BTreeMap::new(),
            failed,
            gone: offline.iter().cloned().collect(),
            done: BTreeSet::new(),
            broken,
            stopped: false,
            at_once,
        };
        run.enter();
        run
    }

    /// These ended well before: they are not run again. To be said before anything is started.
    pub fn resume(&mut self, done: impl IntoIterator<Item = Key>) {
        self.done.extend(done);
        // Who is to run the hook at hand is said anew.
        self.hook.clear();
        self.enter();
    }

    /// Where it is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// What is to be run.
    pub fn script(&self) -> &Script {
        &self.script
    }

    /// The turns of the slice at hand.
    pub fn slice(&self) -> &[usize] {
        match self.phase {
            Phase::Slice(at) => self.slices.get(at).map_or(&[], Vec::as_slice),
            _ => &[],
        }
    }

    /// The hook at hand.
    pub fn hook(&self) -> Option<&Hook> {
        match self.phase {
            Phase::Pre(at) => self.script.pre.get(at),
            Phase::Post(at) => self.script.post.get(at),
            _ => None,
        }
    }

    /// Starts whatever may start.
    pub fn start(&mut self) -> Vec<Started> {
        if self.stopped {
            return Vec::new();
        }
        if let Some(hook) = self.hook() {
            let (role, planned) = (self.stage(), hook.planned.clone());
            let busy = self.hook.values().filter(|walk| matches!(walk, Walk::In(..))).count();
            let idle = |(uid, walk): (&String, &Walk)| matches!(walk, Walk::At(_)).then(|| uid.clone());
            let room = self.at_once.saturating_sub(busy);
            let uids: Vec<String> = self.hook.iter().filter_map(idle).take(room).collect();
            return uids
                .into_iter()
                .map(|uid| {
                    self.hook.insert(uid.clone(), Walk::In(0, 1));
                    started(&uid, role, &planned, 1)
                })
                .collect();
        }
        let mut begun = Vec::new();
        for turn in self.slice().to_vec() {
            if let Walk::At(at) = self.walks[turn]
                && let Some(planned) = self.script.turns[turn].tasks.get(at)
            {
                begun.push(started(&self.script.turns[turn].uid, &self.script.turns[turn].role, planned, 1));
                self.walks[turn] = Walk::In(at, 1);
            }
        }
        begun
    }

    fn stage(&self) -> &'static str {
        if matches!(self.phase, Phase::Post(_)) { "post" } else { "pre" }
    }

    /// A try of a task ended.
    ///
    /// # Errors
    /// [`NotRunning`].
    pub fn ended(&mut self, key: &Key, outcome: &Outcome) -> Result<Next, NotRunning> {
        let not_running = || NotRunning(format!("{} of {} on {}", key.task, key.role, key.uid));
        let (planned, attempt, turn) = self.find(key).ok_or_else(not_running)?;
        let patience = planned.patience;
        let again = matches!(outcome, Outcome::Failed(_) | Outcome::TimedOut) && !self.stopped;
        if again && attempt <= patience.retries {
            let attempt = attempt + 1;
            match turn {
                Some((turn, at)) => self.walks[turn] = Walk::In(at, attempt),
                None => {
                    self.hook.insert(key.uid.clone(), Walk::In(0, attempt));
                }
            }
            return Ok(Next::Again { attempt, after: patience.interval });
        }
        let well = *outcome == Outcome::Done;
        if *outcome == Outcome::Lost {
            self.gone.insert(key.uid.clone());
        }
        match turn {
            Some((turn, at)) if well => self.walks[turn] = Walk::At(at + 1),
            Some((turn, _)) => self.walks[turn] = Walk::Failed,
            None => {
                self.hook.insert(key.uid.clone(), if well { Walk::Done } else { Walk::Failed });
            }
        }
        if well {
            self.done.insert(key.clone());
        }
        self.enter();
        Ok(Next::Settled)
    }

    /// What runs under a key: what, which try, and of turns which and where.
    fn find(&self, key: &Key) -> Option<Found<'_>> {
        if let Some(hook) = self.hook().filter(|hook| hook.planned.task == key.task && self.stage() == key.role) {
            return match self.hook.get(&key.uid)? {
                Walk::In(_, attempt) => Some((&hook.planned, *attempt, None)),
                _ => None,
            };
        }
        self.slice().iter().find_map(|turn| {
            let (found, Walk::In(at, attempt)) = (&self.script.turns[*turn], self.walks[*turn]) else { return None };
            let planned = found.tasks.get(at)?;
            let fits = found.uid == key.uid && found.role == key.role && planned.task == key.task;
            fits.then_some((planned, attempt, Some((*turn, at))))
        })
    }

    /// The hook at hand ended as one thing for all its nodes.
    pub fn hook_ended(&mut self, well: bool) {
        for walk in self.hook.values_mut() {
            *walk = if well { Walk::Done } else { Walk::Failed };
        }
        self.enter();
    }

    /// A node does not answer: what it runs failed, and nothing more is run on it.
    pub fn lost(&mut self, uid: &str) {
        self.gone.insert(uid.to_owned());
        for turn in self.slice().to_vec() {
            if self.script.turns[turn].uid == uid && !matches!(self.walks[turn], Walk::Done) {
                self.walks[turn] = Walk::Failed;
            }
        }
        if let Some(walk) = self.hook.get_mut(uid).filter(|walk| !matches!(walk, Walk::Done)) {
            *walk = Walk::Failed;
        }
        self.enter();
    }

    /// Starts nothing new. What runs goes on to its end.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Goes on as long as there is nothing to wait for.
    fn enter(&mut self) {
        loop {
            match self.phase {
                Phase::Pre(at) | Phase::Post(at) => {
                    let Some(hook) = self.hook().cloned() else {
                        self.phase = match self.phase {
                            Phase::Pre(_) => Phase::Slice(0),
                            _ => Phase::Over,
                        };
                        continue;
                    };
                    if !self.pass_hook(&hook, at) {
                        return;
                    }
                }
                Phase::Slice(at) => {
                    if at >= self.slices.len() {
                        self.phase = Phase::Post(0);
                    } else if !self.pass_slice(at) {
                        return;
                    }
                }
                Phase::Over => return,
            }
        }
    }

    /// Whether the hook at hand is over; then the next is at hand.
    fn pass_hook(&mut self, hook: &Hook, at: usize) -> bool {
        if self.hook.is_empty() {
            let role = self.stage();
            for uid in hook.uids.iter().filter(|uid| !self.gone.contains(*uid)) {
                let key = Key { uid: uid.clone(), role: role.to_owned(), task: hook.planned.task.clone() };
                let walk = if self.done.contains(&key) { Walk::Done } else { Walk::At(0) };
                self.hook.insert(uid.clone(), walk);
            }
        }
        if self.hook.values().any(|walk| matches!(walk, Walk::At(_) | Walk::In(..))) {
            return false;
        }
        let failed: Vec<String> =
            self.hook.iter().filter(|(_, walk)| **walk == Walk::Failed).map(|(uid, _)| uid.clone()).collect();
        self.hook.clear();
        if !failed.is_empty() && hook.fail_on_error {
            self.broken = Some(format!("Failed to execute hook '{}' on {}", hook.planned.task, listed(&failed)));
            self.failed.extend(failed);
            self.phase = Phase::Over;
            return true;
        }
        self.phase = if matches!(self.phase, Phase::Post(_)) { Phase::Post(at + 1) } else { Phase::Pre(at + 1) };
        true
    }

    /// Whether a slice is over; then the next is at hand, or everything is over.
    fn pass_slice(&mut self, at: usize) -> bool {
        for turn in self.slices[at].clone() {
            self.pass_done(turn);
        }
        let open = |turn: &usize| matches!(self.walks[*turn], Walk::At(_) | Walk::In(..));
        if self.slices[at].iter().any(open) {
            return false;
        }
        let critical = |turn: &&usize| {
            let turn = &self.script.turns[**turn];
            turn.critical && self.last.get(&turn.uid) == Some(&true)
        };
        let fatal: Vec<&str> =
            self.slices[at].iter().filter(critical).map(|turn| self.script.turns[*turn].uid.as_str()).collect();
        if fatal.is_empty() {
            self.phase = Phase::Slice(at + 1);
        } else {
            self.broken = Some(format!("Deployment failed on nodes {}", fatal.join(", ")));
            self.phase = Phase::Over;
        }
        true
    }

    /// Passes what was done before, and says how the node is when its list ends.
    fn pass_done(&mut self, turn: usize) {
        let script = &self.script.turns[turn];
        let key =
            |planned: &Planned| Key { uid: script.uid.clone(), role: script.role.clone(), task: planned.task.clone() };
        while let Walk::At(at) = self.walks[turn] {
            match script.tasks.get(at) {
                Some(_) if self.gone.contains(&script.uid) => self.walks[turn] = Walk::Failed,
                Some(planned) if self.done.contains(&key(planned)) => self.walks[turn] = Walk::At(at + 1),
                Some(_) => return,
                None => self.walks[turn] = Walk::Done,
            }
        }
        match self.walks[turn] {
            // Fuel: who has nothing to run is not looked at, so what was said before holds.
            Walk::Done if !script.tasks.is_empty() => {
                self.last.insert(script.uid.clone(), false);
            }
            Walk::Failed => {
                self.last.insert(script.uid.clone(), true);
                self.failed.insert(script.uid.clone());
            }
            _ => {}
        }
    }

    /// What runs now.
    pub fn running(&self) -> Vec<Key> {
        let hook = self.hook().map(|hook| hook.planned.task.clone()).unwrap_or_default();
        let in_hook = self.hook.iter().filter(|(_, walk)| matches!(walk, Walk::In(..)));
        let key = |uid: &String, role: &str, task: &str| Key {
            uid: uid.clone(),
            role: role.to_owned(),
            task: task.to_owned(),
        };
        let mut running: Vec<Key> = in_hook.map(|(uid, _)| key(uid, self.stage(), &hook)).collect();
        for turn in self.slice() {
            let found = &self.script.turns[*turn];
            if let Walk::In(at, _) = self.walks[*turn]
                && let Some(planned) = found.tasks.get(at)
            {
                running.push(key(&found.uid, &found.role, &planned.task));
            }
        }
        running
    }

    /// How many tasks of a turn's list are behind it.
    pub fn place(&self, turn: usize) -> usize {
        match self.walks.get(turn) {
            Some(Walk::At(at) | Walk::In(at, _)) => *at,
            Some(Walk::Done) => self.script.turns[turn].tasks.len(),
            _ => 0,
        }
    }

    /// What ended well, for a later [`RoleRun::resume`].
    pub fn done(&self) -> impl Iterator<Item = &Key> {
        self.done.iter()
    }

    /// How it ended; `None` while something runs or may start.
    pub fn verdict(&self) -> Option<Verdict> {
        let nodes: Vec<String> = self.failed.iter().cloned().collect();
        if self.phase == Phase::Over {
            return Some(match &self.broken {
                Some(why) => Verdict::Failed { why: why.clone(), nodes },
                None if nodes.is_empty() => Verdict::Done,
                None => Verdict::DoneWithFailures(nodes),
            });
        }
        let runs = |walk: &Walk| matches!(walk, Walk::In(..));
        let busy = self.hook.values().any(runs) || self.slice().iter().any(|turn| runs(&self.walks[*turn]));
        (self.stopped && !busy).then_some(Verdict::Stopped)
    }
}

fn started(uid: &str, role: &str, planned: &Planned, attempt: u32) -> Started {
    let key = Key { uid: uid.to_owned(), role: role.to_owned(), task: planned.task.clone() };
    Started { key, kind: planned.kind.clone(), attempt, timeout: planned.patience.timeout }
}

/// Numbers in order; of each number sets of different nodes; of each set so many at once.
fn slices(turns: &[Turn], at_once: usize) -> Vec<Vec<usize>> {
    let mut numbers: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, turn) in turns.iter().enumerate() {
        numbers.entry(turn.number).or_default().push(index);
    }
    let mut slices = Vec::new();
    for (_, mut left) in numbers {
        while !left.is_empty() {
            let mut taken = BTreeSet::new();
            let (now, later): (Vec<usize>, Vec<usize>) =
                left.into_iter().partition(|turn| taken.insert(turns[*turn].uid.as_str()));
            slices.extend(now.chunks(at_once).map(<[usize]>::to_vec));
            left = later;
        }
    }
    slices
}

/// Names as Ruby prints a list of them.
pub(crate) fn listed(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    format!("[{}]", quoted.join(", "))
}
