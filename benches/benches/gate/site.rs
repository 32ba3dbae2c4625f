//! A whole site in one process, as `gatelog serve` puts it together: the durable embedded log, both writers with their
//! timers and forwarders, both projections, the intake's router and every effect. Only the code review and the executor
//! are faked.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gatelog_benches::Failure;
use gatelog_capacity_state::Capacity;
use gatelog_deciding::Rules;
use gatelog_driver_contract::{Connection, Connections};
use gatelog_effects::dispatch::Duty;
use gatelog_effects::git::Repositories;
use gatelog_effects::perform::{self, Tools};
use gatelog_effects::share::{Alone, Share};
use gatelog_effects::sources::GateWork;
use gatelog_event_log::{Blobs, Log, Offset, ReadLimit};
use gatelog_executing::environments::DEFAULT_RELEASE;
use gatelog_gate_state::Gate;
use gatelog_log_embedded::{EmbeddedLog, FileBlobs, Options, Stats};
use gatelog_merging::{Mirrors, MirrorsConfig};
use gatelog_record::draft::intake::ForgeEvent;
use gatelog_record::event::GateEvent;
use gatelog_record::input::IntakeInput;
use gatelog_record::{BuildId, Domain, Envelope, Event, InputId, InputRecord, Partition, Stream};
use gatelog_rules_capacity::CapacityRules;
use gatelog_rules_gate::GateRules;
use gatelog_runner::{Runner, RunnerConfig};
use gatelog_secrets::Keyring;
use gatelog_tables::TableExt;
use gatelog_writer::{
    Directory, Host, Initial, Options as WriterOptions, PartitionOf, Published, Receiver, Setup, SystemClock,
};

use super::review::{CONFIG, CONNECTION, PROJECT, Review, SCHEMA};
use super::routing::IntakeRouter;
use super::workers::Workers;
use super::{clock, tenants};

pub const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
pub const CAPACITY: Partition = Partition { domain: Domain::Capacity, index: 0 };
/// How long anything is waited for.
const PATIENCE: Duration = Duration::from_secs(600);

/// The configuration, as `measure_throughput.py` makes it for Zuul.
pub fn configuration(window: usize) -> Vec<(String, String)> {
    let layout = format!(
        "
- pipeline:
    name: check
    manager: independent
    trigger: {{gerrit: [{{event: patchset-created}}]}}
    success: {{gerrit: {{Verified: 1}}}}
    failure: {{gerrit: {{Verified: -1}}}}
- pipeline:
    name: gate
    manager: dependent
    post-review: true
    trigger: {{gerrit: [{{event: comment-added, approval: [{{Approved: 1}}]}}]}}
    start: {{gerrit: {{Verified: 0}}}}
    success: {{gerrit: {{Verified: 2, submit: true}}}}
    failure: {{gerrit: {{Verified: -2}}}}
    window: {window}
    window-floor: {window}
- job: {{name: base, parent: null, run: playbooks/base.yaml, pre-run: playbooks/pre.yaml, post-run: playbooks/post.yaml}}
- job: {{name: job0, run: playbooks/job0.yaml}}
- queue: {{name: integrated}}
- project: {{name: {PROJECT}, queue: integrated, check: {{jobs: [job0]}}, gate: {{jobs: [job0]}}}}
"
    );
    let playbook = |name: &str| (format!("playbooks/{name}.yaml"), "- hosts: all\n  tasks: []\n".to_owned());
    let playbooks = ["base", "pre", "post", "job0"].map(playbook);
    [("zuul.yaml".to_owned(), layout)].into_iter().chain(playbooks).collect()
}

/// The site.
pub struct Site {
    /// The code review.
    pub review: Arc<Review>,
    /// The executor.
    pub workers: Workers,
    embedded: Arc<EmbeddedLog>,
    log: Arc<dyn Log>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    gate: Option<Host>,
    capacity: Option<Host>,
    gate_fold: Runner<Gate>,
    capacity_fold: Runner<Capacity>,
}

/// Repositories of a code review, in mirrors in a folder.
pub fn repositories(mirrors: &Path, review: Arc<Review>, blobs: Arc<dyn Blobs>) -> Result<Repositories, Failure> {
    let mirrors = Arc::new(Mirrors::open(MirrorsConfig::new(mirrors))?);
    let mut connections = Connections::default();
    let connection = Connection::new(CONNECTION, &SCHEMA).with_review(Arc::clone(&review) as _).with_reporter(review);
    connections.add(connection);
    Ok(Repositories { mirrors, connections, blobs, begun: Arc::default() })
}

impl Site {
    /// A site in a folder, with its configuration in force and nothing to do.
    /// Its mirrors are in another.
    pub fn start(dir: &Path, mirrors: &Path, review: Review) -> Result<Site, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let review = Arc::new(review);
        let embedded = Arc::new(EmbeddedLog::open(dir.join("log"), Options::default())?);
        let log: Arc<dyn Log> = Arc::clone(&embedded) as _;
        let blobs: Arc<dyn Blobs> = Arc::new(FileBlobs::open(dir.join("blobs"))?);
        let keyring = Arc::new(Keyring::open_dir(dir.join("keys"))?);
        let fold = RunnerConfig::new(dir.join("projections"));
        let gate_fold = Runner::<Gate>::start(Arc::clone(&log), GATE, fold.clone())?;
        let capacity_fold = Runner::<Capacity>::start(Arc::clone(&log), CAPACITY, fold)?;
        let directory = Arc::new(Directory::default());
        let gate = host(&log, &blobs, GATE, GateRules::default, |live| &live.partition, &directory)?;
        let capacity = host(&log, &blobs, CAPACITY, CapacityRules::default, |live| &live.partition, &directory)?;

        let repositories = repositories(mirrors, Arc::clone(&review), Arc::clone(&blobs))?;
        let tools = Tools {
            repositories: repositories.clone(),
            keyring,
            log: Arc::clone(&log),
            now: clock::now,
            partition: GATE,
            room: Arc::default(),
        };
        let work = GateWork::new(gate_fold.projection(), gate_fold.published());
        let duties = [Duty::Merge, Duty::Compute, Duty::Submit, Duty::Review];
        let share = Share::new("site", Arc::new(Alone));
        let mut threads = perform::spawn(tools, Arc::new(work), &duties, share, Arc::clone(&stop))?;

        let receiver: Arc<dyn Receiver> = Arc::clone(gate.published()) as _;
        let mut router = IntakeRouter::open(Arc::clone(&log), receiver, dir.join("routing.json"))?;
        let file = dir.join("main.yaml");
        let tenant = format!(
            "- tenant: {{name: tenant-one, source: {{{CONNECTION}: {{config-projects: [{CONFIG}], \
             untrusted-projects: [{PROJECT}]}}}}}}\n"
        );
        std::fs::write(&file, tenant)?;
        let connections = &repositories.connections;
        let web_root = tenants::WebRoot { url: "https://gate.example.com", lasts: true };
        let loaded = tenants::load(&file, DEFAULT_RELEASE, connections, &*blobs, router.newest(), web_root)?;
        if let Some(problem) = loaded.problems.first() {
            return Err(format!("the tenant file: {problem}").into());
        }
        if let Some(fresh) = loaded.fresh {
            fresh.put(&*log, &stop);
        }
        let stopping = Arc::clone(&stop);
        threads.push(std::thread::Builder::new().name("intake-router".into()).spawn(move || router.run(&stopping))?);
        let workers = Workers::start(Arc::clone(&log), CAPACITY, Arc::clone(&stop))?;
        let site = Site {
            review,
            workers,
            embedded,
            log,
            stop,
            threads,
            gate: Some(gate),
            capacity: Some(capacity),
            gate_fold,
            capacity_fold,
        };
        site.wait("the configuration to be in force", || site.is_configured())?;
        Ok(site)
    }

    /// Waits until something is so.
    pub fn wait(&self, what: &str, until: impl Fn() -> bool) -> Result<(), Failure> {
        let began = Instant::now();
        while !until() {
            if began.elapsed() > PATIENCE {
                return Err(format!("{what} was waited for in vain").into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn is_configured(&self) -> bool {
        let view = self.gate_fold.projection();
        let view = view.view();
        view.live().gate.layouts.all().is_ok_and(|mut rows| rows.next().is_some())
    }

    /// Whether no item is in any pipeline.
    pub fn is_empty(&self) -> bool {
        let view = self.gate_fold.projection();
        let view = view.view();
        view.live().gate.items.all().is_ok_and(|mut rows| rows.next().is_none())
    }

    /// The build of a change.
    pub fn build_of(&self, number: usize) -> Result<BuildId, Failure> {
        let (view, number) = (self.gate_fold.projection(), number.to_string());
        let view = view.view();
        let gate = &view.live().gate;
        for row in gate.items.all()? {
            let (item, row) = row?;
            if row.subjects.iter().any(|subject| subject.change.as_ref() == Some(&number)) {
                let of_item = gate.builds.all()?.filter_map(Result::ok).find(|(_, build)| build.item == item);
                return Ok(of_item.ok_or("the item has no build")?.0);
            }
        }
        Err(format!("change {number} is in no pipeline").into())
    }

    /// Puts what happened at the code review onto the intake, all at once.
    pub fn intake(&self, events: Vec<ForgeEvent>) -> Result<(), Failure> {
        let mut told = Vec::new();
        for event in events {
            let id = InputId::new(format!("{CONNECTION}/{}", event.delivery));
            let record = InputRecord::new(id, "", clock::now(), IntakeInput::ForgeEvent(event));
            told.push(self.log.append_inputs(Stream::Intake(0), vec![record.close()?.encode()]));
        }
        for answer in told {
            answer.wait().ok_or("the log is closing")??;
        }
        Ok(())
    }

    /// What the log has done.
    pub fn stats(&self) -> Stats {
        self.embedded.stats()
    }

    /// The gate's events from a place on, and the place after them.
    pub fn events(&self, from: Offset) -> Result<(Vec<GateEvent>, Offset), Failure> {
        let (mut next, mut events) = (from, Vec::new());
        loop {
            let batch = self.log.read(Stream::Events(GATE), next, ReadLimit::default())?;
            if batch.records.is_empty() {
                return Ok((events, next));
            }
            for record in &batch.records {
                if let Event::Gate(event) = Envelope::decode(&record.bytes)?.0.open()?.event {
                    events.push(event);
                }
            }
            next = batch.next;
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // Whatever it died of was printed.
            let _ = thread.join();
        }
        for host in [self.gate.take(), self.capacity.take()].into_iter().flatten() {
            host.stop();
        }
        let _ = &self.capacity_fold;
    }
}

fn host<R: Rules + 'static>(
    log: &Arc<dyn Log>,
    blobs: &Arc<dyn Blobs>,
    partition: Partition,
    rules: fn() -> R,
    tables: PartitionOf<R::State>,
    directory: &Arc<Directory>,
) -> Result<Host, Failure> {
    let setup = Setup {
        log: Arc::clone(log),
        blobs: Arc::clone(blobs),
        clock: Arc::new(SystemClock::default()),
        partition,
        rules: Arc::new(rules),
        tables,
        initial: Box::new(Initial::genesis),
        published: Published::new(partition),
        options: WriterOptions::default(),
    };
    Ok(Host::start(setup, directory)?)
}
