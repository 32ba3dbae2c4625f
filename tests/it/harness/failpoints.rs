//! The steps at which a site may be told to die, and how often it still shall.

use std::collections::BTreeMap;
use std::path::Path;

/// Which log a step is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Any.
    Both,
    /// The embedded log alone.
    Embedded,
}

/// How often a process comes by a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// Again and again: any pass of it will do.
    Often,
    /// Once or twice in the life of a site or of a process: the first pass it is.
    Seldom,
}

use Of::{Both, Embedded};
use Passed::{Often, Seldom};

/// Every step of the house. [`in_sources`] says the same of the sources.
pub const STEPS: &[(&str, Of, Passed)] = &[
    // The embedded log: a commit, a segment's end, a blob.
    ("log/before-write", Embedded, Often),
    ("log/written", Embedded, Often),
    ("log/durable", Embedded, Often),
    ("log/hinted", Embedded, Often),
    ("log/room-made", Embedded, Seldom),
    ("log/footer-written", Embedded, Often),
    ("log/room-cut", Embedded, Often),
    ("log/footer-durable", Embedded, Often),
    ("log/sealed", Embedded, Often),
    ("log/segment-written", Embedded, Often),
    ("log/segment-made", Embedded, Often),
    ("blob/written", Both, Often),
    ("blob/durable", Both, Often),
    // What comes in from code-review systems.
    ("intake/found", Both, Often),
    ("intake/appended", Both, Often),
    ("intake/routed", Both, Often),
    ("intake/route-told", Both, Often),
    // Deciding.
    ("writer/claimed", Both, Seldom),
    ("writer/start-appended", Both, Seldom),
    ("writer/input-read", Both, Often),
    ("writer/decided", Both, Often),
    ("writer/appended", Both, Often),
    ("writer/acknowledged", Both, Often),
    ("writer/published", Both, Often),
    ("outbox/found", Both, Often),
    ("outbox/sent", Both, Often),
    ("outbox/taken", Both, Often),
    ("outbox/told", Both, Often),
    ("timer/due", Both, Seldom),
    ("timer/told", Both, Seldom),
    // Folding.
    ("fold/read", Both, Often),
    ("fold/stored", Both, Often),
    ("fold/published", Both, Often),
    ("rung/made", Both, Seldom),
    ("rung/written", Both, Seldom),
    ("checkpoint/due", Both, Seldom),
    ("checkpoint/written", Both, Seldom),
    // Effects: before each, before its outcome is appended, after it.
    ("effect/config-read", Both, Seldom),
    ("effect/config-read-done", Both, Seldom),
    ("effect/config-read-told", Both, Seldom),
    ("effect/layout", Both, Seldom),
    ("effect/layout-done", Both, Seldom),
    ("effect/layout-told", Both, Seldom),
    ("effect/changes", Both, Often),
    ("effect/changes-done", Both, Often),
    ("effect/changes-told", Both, Often),
    ("effect/prepare", Both, Often),
    ("effect/prepare-done", Both, Often),
    ("effect/prepare-told", Both, Often),
    ("effect/freeze", Both, Often),
    ("effect/freeze-done", Both, Often),
    ("effect/freeze-told", Both, Often),
    ("effect/submit", Both, Often),
    ("effect/submit-done", Both, Often),
    ("effect/submit-told", Both, Often),
    ("effect/report", Both, Often),
    ("effect/report-done", Both, Often),
    ("effect/report-told", Both, Often),
    // Merging.
    ("mirror/objects-cloned", Both, Seldom),
    ("mirror/filled", Both, Seldom),
    ("mirror/marked", Both, Seldom),
    ("mirror/objects-copied", Both, Often),
    ("mirror/ref-updated", Both, Often),
    ("mirror/refs-updated", Both, Often),
    ("merge/merged", Both, Often),
    ("merge/kept", Both, Often),
    // Builds.
    ("build/leased", Both, Often),
    ("build/start-told", Both, Often),
    ("build/set-up", Both, Often),
    ("build/prepared", Both, Often),
    ("build/over", Both, Often),
    ("build/finish-told", Both, Often),
    ("build/released", Both, Often),
    // Merging for real, and saying so.
    ("forge/objects-copied", Both, Often),
    ("forge/branch-moved", Both, Often),
    ("forge/marked-merged", Both, Often),
    ("forge/note-made", Both, Often),
];

/// Every step that the sources below these folders pass, and how often its name stands there.
pub fn in_sources() -> BTreeMap<String, usize> {
    fn walk(dir: &Path, found: &mut BTreeMap<String, usize>) {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                if path.file_name().is_none_or(|name| name != "tests") {
                    walk(&path, found);
                }
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let calls = text.split("failpoint::pass(\"").skip(1);
                // The table of effects names its steps itself.
                let table = text.split("\"effect/").skip(1).map(|rest| ("effect/", rest));
                for (area, rest) in calls.map(|rest| ("", rest)).chain(table) {
                    let name = rest.split('"').next().unwrap();
                    *found.entry(format!("{area}{name}")).or_insert(0) += 1;
                }
            }
        }
    }
    let mut found = BTreeMap::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    for folder in ["log-schema", "projectors", "services", "replay"] {
        walk(&root.join(folder), &mut found);
    }
    found
}

/// How often a site shall still die at each step.
pub struct Plan {
    left: BTreeMap<&'static str, usize>,
    lot: u64,
    /// At a pass up to this one, where a step is passed often.
    latest: u64,
}

impl Plan {
    /// At each of these steps so often; at a pass drawn by lot up to `latest`, where there are many.
    pub fn new(steps: &[&'static str], hits: usize, latest: u64, seed: u64) -> Plan {
        Plan { left: steps.iter().map(|name| (*name, hits)).collect(), lot: seed, latest }
    }

    /// Divided among two sites.
    pub fn halves(self) -> [Plan; 2] {
        [0, 1].map(|half| {
            let left = self.left.iter().enumerate().filter(|(number, _)| number % 2 == half);
            let left = left.map(|(_, (name, hits))| (*name, *hits)).collect();
            Plan { left, lot: self.lot + half as u64, latest: self.latest }
        })
    }

    /// The variable a process is started with: everything that is left, and whichever comes first.
    pub fn arm(&mut self) -> String {
        let mut armed = Vec::new();
        for (name, _, passed) in STEPS.iter().filter(|(name, ..)| self.left.contains_key(name)) {
            // An LCG of Knuth's, as for the kills by lot.
            self.lot = self.lot.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let pass = if *passed == Often { 1 + (self.lot >> 33) % self.latest } else { 1 };
            armed.push(format!("{name}={pass}"));
        }
        armed.join(",")
    }

    /// It died there.
    pub fn hit(&mut self, step: &str) {
        let (name, ..) = STEPS.iter().find(|(name, ..)| *name == step).unwrap();
        // Of two processes armed with the same, both may die there.
        let Some(left) = self.left.get_mut(name) else { return };
        *left -= 1;
        if *left == 0 {
            self.left.remove(name);
        }
    }

    /// The steps at which it shall still die.
    pub fn left(&self) -> Vec<&'static str> {
        self.left.keys().copied().collect()
    }
}
