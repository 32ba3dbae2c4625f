//! A site that kills itself at every step there is: between an append and its acknowledgement, a batch and the position
//! that is published, an effect and its answer, two refs of a mirror. Each time it is started again and the story goes
//! on, with the witnesses of the other crash tests: nothing acknowledged is lost, nothing done twice.
//!
//! Each day another third of the steps is hit once on each log; with `GATELOG_FAILPOINT_HITS=20` every step so often, at
//! passes drawn by lot.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use gatelog_kafka_broker::Broker;

use crate::crash::witness_of;
use crate::harness::crash::{Covered, Survived, Victim, Witness, survive, tell_all, tell_kills};
use crate::harness::failpoints::{Of, Plan, STEPS, in_sources};
use crate::harness::kafka::{KafkaSite, broker};
use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::{Server, Site, eventually, host, process, test_seed};

/// What a process is told to die at.
const VARIABLE: &str = "GATELOG_FAILPOINTS";
/// How often each site dies at each step in a round of the long form; two sites at a time.
const LONG: usize = 5;
/// In the long form it is one of the first so many passes.
const LATEST: u64 = 6;

/// Into how many days the steps are divided.
const DAYS: u64 = 3;

/// How often each step must be hit; `None` where only those of the day are, once.
fn wanted() -> Option<usize> {
    std::env::var("GATELOG_FAILPOINT_HITS").ok().map(|text| text.parse().unwrap())
}

/// The steps to be hit: all of this kind, or those of the day.
fn steps(of: impl Fn(Of) -> bool) -> Vec<&'static str> {
    let day = wanted().is_none().then(|| test_seed() % DAYS);
    let steps = (0..).zip(STEPS).filter(|(_, (_, step_of, _))| of(*step_of));
    steps.filter(|(number, _)| day.is_none_or(|day| number % DAYS == day)).map(|(_, (name, ..))| *name).collect()
}

/// Segments, rungs and checkpoints end and come often, so that their steps are passed.
fn make_small(site: &Site, file: &str) {
    let text = std::fs::read_to_string(site.path().join(file)).unwrap();
    let small = text.replace("[log]\n", "[log]\nsegment-size = \"8K\"\ncheckpoint-every = 30\n");
    assert_ne!(small, text);
    site.write(file, &small);
}

/// A site that is one process, which dies by itself.
struct Alone<'s> {
    site: &'s Site,
    plan: Plan,
    server: Server,
    ready: bool,
}

impl Alone<'_> {
    fn start_again(&mut self, variable: (&str, &str)) {
        nothing_runs(self.site.path());
        self.server = Server::launch_with(self.site.path(), &[], variable);
        self.ready = false;
    }
}

/// Nothing runs on without its server.
fn nothing_runs(site: &Path) {
    eventually("nothing is left running after the crash", || process::running_of(site).is_empty().then_some(()));
}

impl Victim for Alone<'_> {
    fn kill(&mut self) -> &'static str {
        self.server.kill_now();
        self.start_again((VARIABLE, ""));
        "server"
    }

    fn fell(&mut self) -> Option<(&'static str, String)> {
        let step = self.server.fell()?;
        self.plan.hit(&step);
        let armed = self.plan.arm();
        self.start_again((VARIABLE, &armed));
        Some(("server", format!("at {step}")))
    }

    fn has_fallen_enough(&self) -> bool {
        self.plan.left().is_empty()
    }

    fn api(&mut self) -> Option<&Server> {
        self.ready = self.ready || self.server.answers();
        self.ready.then_some(&self.server)
    }

    fn stop(self) {
        self.server.stop();
        assert_eq!(process::processes_of(self.site.path()), Vec::<String>::new());
        assert_eq!(self.plan.left(), Vec::<&str>::new());
    }
}

/// A site that is two processes, both of which die by themselves.
struct Pair<'s> {
    site: &'s KafkaSite,
    plan: Plan,
    scheduler: Server,
    executor: Server,
    ready: bool,
}

impl Pair<'_> {
    fn start_scheduler(&mut self, armed: &str) {
        self.scheduler = self.site.launch_scheduler_with((VARIABLE, armed));
        self.ready = false;
    }

    fn start_executor(&mut self, armed: &str) {
        nothing_runs(&self.site.executor());
        self.executor = self.site.launch_executor_with((VARIABLE, armed));
    }
}

impl Victim for Pair<'_> {
    fn kill(&mut self) -> &'static str {
        self.scheduler.kill_now();
        self.start_scheduler("");
        "scheduler"
    }

    fn fell(&mut self) -> Option<(&'static str, String)> {
        if let Some(step) = self.scheduler.fell() {
            self.plan.hit(&step);
            let armed = self.plan.arm();
            self.start_scheduler(&armed);
            return Some(("scheduler", format!("at {step}")));
        }
        let step = self.executor.fell()?;
        self.plan.hit(&step);
        let armed = self.plan.arm();
        self.start_executor(&armed);
        Some(("executor", format!("at {step}")))
    }

    fn has_fallen_enough(&self) -> bool {
        self.plan.left().is_empty()
    }

    fn api(&mut self) -> Option<&Server> {
        self.ready = self.ready || self.scheduler.answers();
        self.ready.then_some(&self.scheduler)
    }

    fn stop(self) {
        self.executor.stop();
        self.scheduler.stop();
        assert_eq!(process::processes_of(self.site.site.path()), Vec::<String>::new());
        assert_eq!(self.plan.left(), Vec::<&str>::new());
    }
}

fn embedded(plan: Plan) -> Survived {
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    make_small(&site, "gatelog.toml");
    let mut plan = plan;
    let server = Server::launch_with(site.path(), &[], (VARIABLE, &plan.arm()));
    // The very first one may die before there is a log.
    let mut victim = Alone { site: &site, plan, server, ready: false };
    let mut early = Vec::new();
    while !site.path().join("log/HEADER").exists() {
        early.extend(victim.fell());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(early, [], "there is a log before the first step");
    survive(&site, victim, witness_of(&site), &Covered::default(), 0, 0)
}

fn on_kafka(broker: &Broker, plan: Plan) -> Survived {
    let site = KafkaSite::new(broker, &[("config", CONFIG), ("project", PROJECT)]);
    make_small(&site.site, "gatelog.toml");
    make_small(&site.site, "executor/gatelog.toml");
    let mut plan = plan;
    let (scheduler, executor) = {
        let (one, other) = (plan.arm(), plan.arm());
        (site.launch_scheduler_with((VARIABLE, &one)), site.launch_executor_with((VARIABLE, &other)))
    };
    let witness = Witness::new(Box::new(site.log()));
    let victim = Pair { site: &site, plan, scheduler, executor, ready: false };
    survive(&site.site, victim, witness, &Covered::default(), 0, 0)
}

/// Tells what came of it, and checks that every step was hit as often as wanted.
fn check(what: &str, began: Instant, survived: &[Survived], steps: &[&str]) {
    let killed = tell_kills(survived);
    let mut hits: BTreeMap<&str, usize> = BTreeMap::new();
    for kill in survived.iter().flat_map(|one| &one.kills) {
        *hits.entry(kill.at.strip_prefix("at ").unwrap()).or_insert(0) += 1;
    }
    tell_all(what, survived);
    println!("{what}: died {killed} in {:.0} s, at {} steps", began.elapsed().as_secs_f64(), hits.len());
    let wanted = wanted().unwrap_or(1);
    for name in steps {
        let hit = hits.get(name).copied().unwrap_or(0);
        assert!(hit >= wanted, "{name} was hit {hit} times, not {wanted}");
    }
}

/// Runs one round of the short form, or as many of the long form as it takes: what each of two sites shall do at once.
fn rounds(steps: &[&'static str], run: impl Fn(Plan) -> Survived + Sync) -> Vec<Survived> {
    let wanted = wanted().unwrap_or(1);
    let mut survived = Vec::new();
    let mut done = 0;
    while done < wanted {
        // The short form divides the steps among both sites; in the long one each dies at all of them.
        let hits = LONG.min((wanted - done).div_ceil(2));
        let plans: Vec<Plan> = if wanted == 1 {
            Plan::new(steps, 1, 1, 1).halves().into()
        } else {
            [1, 2].map(|site| Plan::new(steps, hits, LATEST, test_seed() + done as u64 * 2 + site)).into()
        };
        let run = &run;
        survived.extend(std::thread::scope(|scope| {
            let sites: Vec<_> = plans.into_iter().map(|plan| scope.spawn(move || run(plan))).collect();
            sites.into_iter().map(|site| site.join().unwrap()).collect::<Vec<_>>()
        }));
        done += if wanted == 1 { 1 } else { 2 * hits };
    }
    survived
}

#[test]
fn a_site_that_dies_at_every_step_loses_nothing_and_does_nothing_twice() {
    if !host::can_build("crash at every step") {
        return;
    }
    let began = Instant::now();
    let steps = steps(|_| true);
    let survived = rounds(&steps, embedded);
    check("crash at every step", began, &survived, &steps);
}

#[test]
fn on_kafka_too_a_site_that_dies_at_every_step_loses_nothing_and_does_nothing_twice() {
    const TEST: &str = "crash at every step on Kafka";
    if !host::can_build(TEST) {
        return;
    }
    let Some(broker) = broker(TEST) else { return };
    let began = Instant::now();
    let steps = steps(|of| of == Of::Both);
    let survived = rounds(&steps, |plan| on_kafka(broker, plan));
    check(TEST, began, &survived, &steps);
}

#[test]
fn the_steps_that_are_tested_are_those_of_the_sources() {
    let mut found = in_sources();
    // Those of a command, at which `kafka_generation` has it die.
    found.retain(|name, _| !name.starts_with("repartition/"));
    let tested: BTreeMap<String, usize> = STEPS.iter().map(|(name, ..)| ((*name).to_owned(), 1)).collect();
    assert_eq!(found, tested, "each step has a name of its own, and every one is tested");
}

/// Compiles what stands in the house's crates at every step as a debug build and as a release has it, and lets both run
/// by one.
#[test]
fn a_release_has_no_failpoints() {
    let dir = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let module = root.join("log-schema/event-log/src/failpoint.rs");
    let main = dir.path().join("main.rs");
    let text = format!(
        "#[path = {module:?}]\nmod failpoint;\nfn main() {{\n    #[cfg(debug_assertions)]\n    \
         failpoint::install(|name| {{ println!(\"at {{name}}\"); std::process::exit(9) }});\n    \
         failpoint::pass(\"step/of-a-test\");\n    println!(\"passed\");\n}}\n"
    );
    std::fs::write(&main, text).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let run = |flags: &[&str]| {
        let binary = dir.path().join("binary");
        let made =
            Command::new(&rustc).args(["--edition", "2024"]).args(flags).arg(&main).arg("-o").arg(&binary).output();
        let made = made.unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let output = Command::new(&binary).output().unwrap();
        let named = std::fs::read(&binary).unwrap().windows(14).any(|window| window == b"step/of-a-test");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), named)
    };
    assert_eq!(run(&["-C", "debug-assertions=on"]), (Some(9), "at step/of-a-test\n".into(), true));
    assert_eq!(run(&["-O"]), (Some(0), "passed\n".into(), false));
    // And no release is built with debug assertions.
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    assert!(!manifest.contains("debug-assertions"), "a profile of the workspace switches them on");
}
