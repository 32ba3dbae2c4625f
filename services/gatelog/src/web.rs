//! The API's view of this process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gatelog_capacity_state::Capacity;
use gatelog_event_log::{Blobs, Log};
use gatelog_executing::{ConsoleReader, Executor};
use gatelog_gate_state::Gate;
use gatelog_record::BuildId;
use gatelog_replay::Timeline;
use gatelog_runner::Published as FoldPublished;
use gatelog_store::{Layout as StoreLayout, RungDir, SharedProjection};
use gatelog_web::site::ConsoleRead;
use gatelog_web::{ConsoleChunk, ConsoleSource, Consoles, PartHealth, Site, TimelinePast};
use gatelog_writer::{Published, WriterState};

use crate::server::{GATE, SitePaths};

/// What the API is made of.
pub struct Parts {
    /// The gate's tables.
    pub gate: SharedProjection<Gate>,
    /// Where their fold stands.
    pub gate_fold: FoldPublished,
    /// Capacity's tables.
    pub capacity: SharedProjection<Capacity>,
    /// Where their fold stands.
    pub capacity_fold: FoldPublished,
    /// The log.
    pub log: Arc<dyn Log>,
    /// Its blobs.
    pub blobs: Arc<dyn Blobs>,
    /// Where things are.
    pub paths: SitePaths,
    /// Where consoles are.
    pub executor: Executor,
    /// Those who decide.
    pub writers: Vec<Arc<Published>>,
    /// The driver of each connection.
    pub drivers: BTreeMap<String, String>,
}

/// The site as the API reads it.
pub fn site(parts: Parts) -> Site {
    let rungs = RungDir::new(StoreLayout::new(&parts.paths.projections(), GATE).rungs());
    let writers = parts.writers;
    Site {
        gate: parts.gate,
        gate_fold: parts.gate_fold,
        capacity: parts.capacity,
        capacity_fold: parts.capacity_fold,
        blobs: parts.blobs,
        past: Arc::new(TimelinePast::new(Timeline::new(parts.log, GATE, Some(rungs)))),
        consoles: Arc::new(LocalConsoles { executor: parts.executor }),
        health: Arc::new(move || writers.iter().map(|writer| health(writer)).collect::<Vec<_>>()),
        drivers: parts.drivers,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn health(writer: &Published) -> PartHealth {
    let health = writer.health();
    let (well, state, detail) = match &health.state {
        WriterState::Starting { after } => (true, "starting", after.clone().unwrap_or_default()),
        WriterState::Running => (true, "running", String::new()),
        WriterState::Yellow { reasons } => {
            let texts: Vec<String> =
                reasons.iter().map(|reason| format!("{}: {}", reason.code, reason.message)).collect();
            (false, "yellow", texts.join("; "))
        }
        WriterState::Stopped { error, fenced } => {
            let why = if *fenced { "another server has taken over" } else { "it was asked to stop" };
            (false, "stopped", error.clone().unwrap_or_else(|| why.to_owned()))
        }
    };
    PartHealth { part: format!("writer {}", health.partition), well, state: state.to_owned(), detail }
}

/// Consoles of builds that run or ran on this host.
struct LocalConsoles {
    executor: Executor,
}

impl Consoles for LocalConsoles {
    fn open(&self, build: BuildId, attempt: u32) -> Option<Box<dyn ConsoleSource>> {
        Some(Box::new(LocalConsole(self.executor.console(build, attempt)?)))
    }
}

struct LocalConsole(ConsoleReader);

impl ConsoleSource for LocalConsole {
    fn read_from(&self, offset: u64, max: usize, patience: Duration) -> ConsoleRead<'_> {
        Box::pin(async move {
            let chunk = self.0.wait_from(offset, max, patience).await?;
            Ok(ConsoleChunk { bytes: chunk.bytes, next: chunk.next, ended: chunk.ended })
        })
    }
}
