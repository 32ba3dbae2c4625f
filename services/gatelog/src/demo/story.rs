//! The story: four changes through check and gate.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use gatelog_driver_git::{Forge, ForgeConfig};
use serde_json::Value as Json;

use super::DemoOptions;
use super::kafka::{self, Directories, Second, Topics};
use super::outcome::{ChangeOutcome, Outcome, ProcessOutcome, TestedAgain};
use super::projects::{CHANGES, Change, Developer, HOST, PROJECTS};
use super::screen::Screen;
use crate::client::Client;
use crate::config::ExecutorSection;
use crate::governors::{Governors, Measured};
use crate::roles::Roles;
use crate::server::{Server, ServerOptions};
use crate::show::Paint;

/// No chapter may take longer than this.
const PATIENCE: Duration = Duration::from_secs(240);

/// Runs the demo. The exit code says whether the story went as told.
pub fn run(options: &DemoOptions, stop: &Arc<AtomicBool>) -> anyhow::Result<bool> {
    let site = Site::make(options)?;
    let mut screen = Screen::new(options.headless, options.json);
    // Dropped in this order: the second process, then what both stood on, then the directories.
    let topics = match &site.kafka {
        None => None,
        Some(both) => {
            let (topics, count) = Topics::make(&both.scheduler, !site.temporary)?;
            let brokers = options.kafka.as_deref().unwrap_or_default();
            screen.say(&format!("The log is on Kafka at {brokers}: {count} topics were made for it."));
            Some(topics)
        }
    };
    let mut story = Story {
        stop,
        site: site.own(),
        second: None,
        kafka: site.kafka.clone(),
        screen: &mut screen,
        began: Instant::now(),
    };
    let (server, outcome) = story.tell()?;
    let second = story.second.take();
    if options.json {
        #[expect(clippy::print_stdout, reason = "the document is what was asked for")]
        {
            println!("{}", serde_json::to_string_pretty(&outcome)?);
        }
    } else {
        epilogue(&mut screen, &outcome, options.keep || options.dir.is_some());
    }
    if options.keep && !stop.load(Ordering::Relaxed) {
        screen.say(&format!("The site runs on at {} until you press Ctrl-C.", outcome.url));
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    drop(second);
    server.stop();
    drop(topics);
    Ok(outcome.ok)
}

/// The site's directory; a temporary one goes with the demo.
struct Site {
    path: PathBuf,
    temporary: bool,
    /// Where its two processes are, when its log is on Kafka.
    kafka: Option<Directories>,
}

impl Site {
    fn make(options: &DemoOptions) -> anyhow::Result<Site> {
        let (path, temporary) = match &options.dir {
            Some(dir) => (dir.clone(), false),
            None => (std::env::temp_dir().join(format!("gatelog-demo-{}", std::process::id())), !options.keep),
        };
        if path.join(crate::config::FILE).exists() || path.join("scheduler").join(crate::config::FILE).exists() {
            anyhow::bail!(
                "{} holds a site already: start it with `gatelog serve --dir {0}`, or name a new directory",
                path.display()
            );
        }
        std::fs::create_dir_all(&path)?;
        let mut site = Site { path: std::fs::canonicalize(&path)?, temporary, kafka: None };
        if let Some(brokers) = &options.kafka {
            site.kafka = Some(Directories::make(&site.path, brokers, options.port)?);
            return Ok(site);
        }
        std::fs::write(site.path.join("tenants.yaml"), include_str!("../../demo/tenants.yaml"))?;
        let toml = include_str!("../../demo/gatelog.toml").replace("@PORT@", &options.port.to_string());
        std::fs::write(site.path.join(crate::config::FILE), toml)?;
        Ok(site)
    }

    /// The directory of this process.
    fn own(&self) -> &Path {
        self.kafka.as_ref().map_or(&self.path, |both| &both.scheduler)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.temporary {
            // Read-only files of the log do not stop this: their directory can be written.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

struct Story<'a> {
    stop: &'a Arc<AtomicBool>,
    site: &'a Path,
    kafka: Option<Directories>,
    second: Option<Second>,
    screen: &'a mut Screen,
    began: Instant,
}

impl Story<'_> {
    fn tell(&mut self) -> anyhow::Result<(Server, Outcome)> {
        for held in Governors::new(ExecutorSection::default().bounds()).look(&Measured::here(self.site)) {
            self.screen
                .say(&format!("This machine has little left: {}. The demo goes on; a site would wait.", held.detail));
        }
        self.screen.chapter("Three projects: a library, an application that uses it, their configuration");
        let developer = self.found_projects()?;
        self.began = Instant::now();
        let roles = if self.kafka.is_some() { Roles::new(kafka::HERE) } else { Roles::default() };
        let server = Server::start(self.site, ServerOptions { roles: roles.clone(), ..ServerOptions::default() })?;
        let client = Client::new(server.url().unwrap_or_default())?;
        match &self.kafka {
            None => self.screen.say(&format!("One process serves it all; the API is at {}", client.base())),
            Some(both) => {
                let second = Second::start(&both.executor)?;
                self.screen.say(&format!(
                    "  process {:<8} {roles}; the API is at {}",
                    std::process::id(),
                    client.base()
                ));
                self.screen.say(&format!("  process {:<8} {}", second.pid(), Roles::new(kafka::THERE)));
                self.second = Some(second);
            }
        }
        self.wait(&client, "the configuration is loaded", |status| {
            !status["pipelines"].as_array().is_none_or(Vec::is_empty)
        })?;

        self.screen.chapter("Four changes are pushed, and check tests each on top of its branch");
        for change in CHANGES {
            developer.propose(change)?;
            self.screen.say(&format!("  pushed  {:<12} {:<18} {}", change.project, change.name, change.role));
        }
        self.until_verdicts(&client, "check")?;

        self.screen.chapter("All four are approved, and gate tests them together, each on top of those ahead");
        for change in CHANGES {
            developer.approve(change)?;
        }
        self.until_verdicts(&client, "gate")?;
        let outcome = self.outcome(&client, &server, &developer)?;
        Ok((server, outcome))
    }

    fn found_projects(&mut self) -> anyhow::Result<Developer> {
        let config = crate::config::SiteConfig::read(self.site)?;
        let connection = config.connection.get("forge").and_then(crate::forges::settings);
        let connection = connection.context("the demo's configuration has no forge")?;
        let forge = crate::forges::open(self.site, "forge", connection)?;
        let developer = Developer::new(self.site.join("developer"), forge.config().directory.clone());
        for project in PROJECTS {
            forge.create(project.name, "master")?;
            developer.found(project)?;
        }
        Ok(developer)
    }

    /// Waits until the status document says so; draws it meanwhile.
    fn wait(&mut self, client: &Client, what: &str, done: impl Fn(&Json) -> bool) -> anyhow::Result<()> {
        self.wait_until(client, what, |_, status| Ok(done(status)))
    }

    fn wait_until(
        &mut self,
        client: &Client,
        what: &str,
        mut done: impl FnMut(&Client, &Json) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                anyhow::bail!("stopped before {what}");
            }
            if let Some(why) = self.second.as_mut().and_then(Second::gone) {
                anyhow::bail!("{why}");
            }
            match client.get("/api/tenant/demo/status") {
                Ok(status) => {
                    self.screen.queues(&status, crate::clock::now().0 / 1000);
                    if done(client, &status)? {
                        self.screen.wipe();
                        return Ok(());
                    }
                }
                // The tenant is known a moment after the server answers.
                Err(crate::client::ClientError::Refused { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            if began.elapsed() > PATIENCE {
                anyhow::bail!("{}s went by and still not: {what}", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(150));
        }
    }

    fn until_verdicts(&mut self, client: &Client, pipeline: &str) -> anyhow::Result<()> {
        self.wait_until(client, &format!("{pipeline} has a verdict on each change"), |client, status| {
            if !queue_empty(status, pipeline) {
                return Ok(false);
            }
            for change in CHANGES {
                if verdict(client, pipeline, change)?.is_none() {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        for change in CHANGES {
            let said = verdict(client, pipeline, change)?.unwrap_or_default();
            let colour = if said == "SUCCESS" { Paint::Green } else { Paint::Red };
            let said = self.screen.style().paint(colour, &said);
            self.screen.say(&format!("  {pipeline:<7} {:<12} {:<18} {said}", change.project, change.name));
        }
        Ok(())
    }

    /// A verdict is known a moment before its report is delivered: waits for the reports, a while.
    fn reports_delivered(&self, forge: &Forge) -> anyhow::Result<()> {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(10) {
            let mut missing = false;
            for change in CHANGES {
                let key = gatelog_driver_git::ChangeKey::new(change.project, "master", change.name)?;
                let commit = forge.query(&key)?.commit;
                missing |= forge.read_reports(change.project, &commit)?.len() < 2;
            }
            if !missing {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn outcome(&mut self, client: &Client, server: &Server, developer: &Developer) -> anyhow::Result<Outcome> {
        let story_ms = millis(self.began.elapsed());
        let mut outcome = Outcome {
            story_ms,
            site: self.site.display().to_string(),
            url: client.base().to_owned(),
            events: server.gate_sequence(),
            ..Outcome::default()
        };
        let builds = client.get("/api/tenant/demo/builds?limit=1000")?;
        let builds = builds.as_array().cloned().unwrap_or_default();
        outcome.first_job_ms = builds
            .iter()
            .filter_map(|build| build["started_ms"].as_i64())
            .min()
            .and_then(|first| u64::try_from(first - server.started_at().0 / 1000).ok());
        let forge = Forge::open(ForgeConfig::new(self.site.join("forge"), HOST))?;
        self.reports_delivered(&forge)?;
        for change in CHANGES {
            let id = format!("master/{}", change.name);
            let merged = developer.merged(change.project)?.iter().any(|subject| subject == change.message);
            let key = gatelog_driver_git::ChangeKey::new(change.project, "master", change.name)?;
            let facts = forge.query(&key)?;
            outcome.changes.push(ChangeOutcome {
                name: change.name,
                project: change.project,
                role: change.role,
                check: verdict(client, "check", change)?,
                gate: verdict(client, "gate", change)?,
                merged,
                gate_builds: builds
                    .iter()
                    .filter(|build| {
                        build["pipeline"] == "gate"
                            && build["ref"]["change"] == id.as_str()
                            && build["ref"]["project"] == change.project
                    })
                    .filter_map(|build| build["result"].as_str().map(str::to_owned))
                    .collect(),
                reports: forge.read_reports(change.project, &facts.commit)?.len(),
            });
        }
        if let Some(second) = &self.second {
            outcome.processes = processes(second, &builds);
        }
        outcome.merge_order = merge_order(client)?;
        outcome.tested_again = tested_again(client)?;
        judge(&mut outcome);
        Ok(outcome)
    }
}

/// What each of the two processes did, by what is recorded of each attempt.
fn processes(second: &Second, builds: &[Json]) -> Vec<ProcessOutcome> {
    let both = [("scheduler", std::process::id(), kafka::HERE), ("executor", second.pid(), kafka::THERE)];
    both.into_iter()
        .map(|(name, pid, roles)| {
            let attempts = builds
                .iter()
                .flat_map(|build| build["attempts"].as_array().map(Vec::as_slice).unwrap_or_default())
                .filter(|attempt| attempt["worker"] == name)
                .count();
            ProcessOutcome { name: name.to_owned(), pid, roles: roles.to_vec(), attempts }
        })
        .collect()
}

/// Compares what happened with what was told.
fn judge(outcome: &mut Outcome) {
    let mut problems = Vec::new();
    for (change, told) in outcome.changes.iter().zip(CHANGES) {
        let mut compare = |pipeline: &str, expected: &str, found: &Option<String>| {
            if found.as_deref() != Some(expected) {
                let found = found.as_deref().unwrap_or("nothing");
                problems.push(format!("{pipeline} of {}: expected {expected}, found {found}", told.name));
            }
        };
        compare("check", told.check, &change.check);
        compare("gate", told.gate, &change.gate);
        let should_merge = told.gate == "SUCCESS";
        if change.merged != should_merge {
            problems.push(format!("{}: merged is {}, expected {should_merge}", told.name, change.merged));
        }
        if change.reports < 2 {
            problems
                .push(format!("{}: {} reports on its commit, expected check's and gate's", told.name, change.reports));
        }
    }
    if !outcome.tested_again.iter().any(|change| change.name == "show-miles") {
        problems.push("show-miles was not tested again without the failing change ahead of it".to_owned());
    }
    if outcome.merge_order != ["add-miles", "show-miles"] {
        problems.push(format!("merged in the order {:?}", outcome.merge_order));
    }
    outcome.ok = problems.is_empty();
    outcome.problems = problems;
}

fn merge_order(client: &Client) -> anyhow::Result<Vec<String>> {
    let buildsets = client.get("/api/tenant/demo/buildsets?pipeline=gate&result=SUCCESS&limit=1000")?;
    let mut merged: Vec<(i64, String)> = buildsets
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .filter_map(|buildset| {
            let at = buildset["finished_ms"].as_i64()?;
            let change = buildset["refs"][0]["change"].as_str()?;
            Some((at, change.rsplit('/').next().unwrap_or(change).to_owned()))
        })
        .collect();
    merged.sort();
    Ok(merged.into_iter().map(|(_, name)| name).collect())
}

/// The buildsets that were given up for another.
fn tested_again(client: &Client) -> anyhow::Result<Vec<TestedAgain>> {
    let buildsets = client.get("/api/tenant/demo/buildsets?pipeline=gate&complete=false&limit=1000")?;
    let all = buildsets.as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(all
        .iter()
        .rev()
        .filter_map(|buildset| {
            let change = buildset["refs"][0]["change"].as_str()?;
            let why = buildset["reset"]["detail"].as_str()?;
            let name = change.rsplit('/').next().unwrap_or(change).to_owned();
            Some(TestedAgain { name, why: crate::show::clean(why) })
        })
        .collect())
}

fn queue_empty(status: &Json, pipeline: &str) -> bool {
    let pipelines = status["pipelines"].as_array().map(Vec::as_slice).unwrap_or_default();
    pipelines.iter().filter(|one| one["name"] == pipeline).all(|one| {
        let queues = one["change_queues"].as_array().map(Vec::as_slice).unwrap_or_default();
        queues.iter().all(|queue| {
            queue["heads"]
                .as_array()
                .is_none_or(|heads| heads.iter().all(|head| head.as_array().is_none_or(Vec::is_empty)))
        })
    })
}

/// The newest verdict of a pipeline on a change.
fn verdict(client: &Client, pipeline: &str, change: &Change) -> anyhow::Result<Option<String>> {
    let path = format!(
        "/api/tenant/demo/buildsets?pipeline={pipeline}&project={}&change=master/{}&limit=1",
        change.project, change.name
    );
    let buildsets = client.get(&path)?;
    Ok(buildsets[0]["result"].as_str().map(str::to_owned))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn epilogue(screen: &mut Screen, outcome: &Outcome, kept: bool) {
    let style = screen.style();
    screen.chapter("What happened");
    for change in &outcome.changes {
        let (colour, end) = if change.merged { (Paint::Green, "merged") } else { (Paint::Red, "not merged") };
        screen.say(&format!(
            "  {:<18} {:<40} check {:<9} gate {:<15} {}",
            change.name,
            change.role,
            change.check.as_deref().unwrap_or("-"),
            change.gate.as_deref().unwrap_or("-"),
            style.paint(colour, end)
        ));
    }
    for change in &outcome.tested_again {
        screen.say(&format!("  {} was tested again in gate: {}", change.name, change.why));
    }
    if let Some(first) = outcome.first_job_ms {
        screen.say(&format!(
            "  The first job ran after {:.1} s, the story took {:.1} s; {} events tell it.",
            first as f64 / 1000.0,
            outcome.story_ms as f64 / 1000.0,
            outcome.events
        ));
    }
    for process in &outcome.processes {
        let roles = Roles::new(&process.roles);
        let did = match process.attempts {
            0 => "decided, received, reported and served the page".to_owned(),
            count => format!("prepared, merged, and ran {count} builds"),
        };
        screen.say(&format!("  Process {} ({roles}) {did}.", process.pid));
    }
    for problem in &outcome.problems {
        screen.say(&style.paint(Paint::Red, &format!("  not as told: {problem}")));
    }
    screen.chapter("What to try");
    let dir = if kept { outcome.site.clone() } else { "DIR".to_owned() };
    if !kept {
        screen.say(
            "  Nothing is left behind. To look around, run it again with --dir DIR (and --keep to leave it running):",
        );
    }
    screen.say(&format!(
        "  gatelog explain --dir {dir} show-miles       why it ran, waited and merged, back to the push"
    ));
    screen.say(&format!("  gatelog replay state --dir {dir} --at 100    the queues as they were at event 100"));
    screen.say(&format!("  gatelog log cat --dir {dir}                  every event, in order"));
    screen.say(&format!("  gatelog log verify --dir {dir}               that nothing was changed since"));
}
