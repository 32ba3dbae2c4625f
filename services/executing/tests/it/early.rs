//! What is known of a build before it ends.

use std::time::Duration;

use gatelog_executing::spec::{OutputPattern, Phase};
use gatelog_executing::{BuildOutcome, BuildResult, BuildSpec, FailureCause, RetryCause};

use super::nap;
use super::site::{self, Site, play};

/// A task that ends when it is told to.
const WAIT: &str =
    "command: bash -c 'for i in $(seq 600); do test -e {{ zuul.executor.work_root }}/go && exit; sleep 0.1; done'";

/// Runs a build whose last task waits; what is known of it meanwhile.
async fn known_while_it_runs(site: &Site, spec: BuildSpec) -> (Option<String>, BuildOutcome) {
    let id = (spec.build, spec.attempt);
    let build = site.executor.prepare(spec, site.workspace()).await.unwrap();
    let control = build.control();
    let running = tokio::spawn(build.run());
    let known = tokio::time::timeout(Duration::from_secs(60), control.wait_failing()).await.ok();
    assert_eq!(site.executor.running(), [id]);
    let builds = std::fs::read_dir(site.folder.path().join("executor/builds")).unwrap();
    for build in builds
        .map(|entry| entry.unwrap().path())
        .filter(|build| !build.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')))
    {
        std::fs::write(build.join("work/go"), b"").unwrap();
    }
    (known, running.await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_told_before_the_job_ends_and_counts() {
    let Some(site) = Site::open("early failure", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let rescued = "    - block:\n        - command: test rescue = this\n      rescue:\n        - debug: {msg: rescued}\n    - command: test ignore = this\n      ignore_errors: true\n";
    let broken = format!(
        "    - block:\n        - name: compile\n          shell: echo 'no such symbol'; exit 3\n      always:\n        - {WAIT}\n"
    );
    // Told while the command goes on that wrote the line.
    let shouts = WAIT.replace("for i in", "echo fine; echo SEVERE lost; for i in");
    let output = format!("{rescued}    - {shouts}\n");
    let config = site.commit(
        "config",
        &[("broken.yaml", &play(&broken)), ("output.yaml", &play(&output)), ("ok.yaml", &play(rescued))],
    );

    let spec = site.spec(&config, &app, &[(Phase::Run, "broken.yaml", 0)]);
    let (known, outcome) = known_while_it_runs(&site, spec).await;
    let known = known.unwrap_or_default();
    assert!(known.starts_with("task \"compile\" failed on localhost"), "{known}");
    let text = site::console(&outcome);
    assert_eq!(outcome.result, BuildResult::Failure(FailureCause::Run), "{text}");
    assert!(!text.contains("gatelog: early failure"), "{text}");

    // A line of the output says so, although every task succeeds.
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "output.yaml", 0), (Phase::Post, "ok.yaml", 0)]);
    let pattern = |word: &'static str| OutputPattern::new(word, move |line| line.starts_with(word));
    spec.job.failure_output = vec![pattern("WARN"), pattern("SEVERE ")];
    let (known, outcome) = known_while_it_runs(&site, spec).await;
    assert_eq!(known.as_deref(), Some("a line of localhost matches failure-output \"SEVERE \""));
    let text = site::console(&outcome);
    assert_eq!(outcome.result, BuildResult::Failure(FailureCause::Run), "{text}");
    assert_eq!(outcome.detail, known);

    // What is rescued or ignored is no failure.
    let build = site.executor.prepare(site.spec(&config, &app, &[(Phase::Run, "ok.yaml", 0)]), site.workspace());
    let build = build.await.unwrap();
    let control = build.control();
    let outcome = build.run().await;
    assert_eq!((outcome.result, control.failing()), (BuildResult::Success, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_little_time_before_the_jobs_own_work_is_no_verdict() {
    let Some(site) = Site::open("time-outs", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let slow = play(&format!("    - command: sleep {}\n", nap(33)));
    let config = site.commit("config", &[("slow.yaml", &slow)]);
    let mut early = site.spec(&config, &app, &[(Phase::Pre, "slow.yaml", 0), (Phase::Run, "slow.yaml", 0)]);
    early.job.timeouts.pre = Some(3);
    let (outcome, text) = site.run(early).await;
    assert_eq!(outcome.result, BuildResult::Retry(RetryCause::PreTimedOut), "{text}");
    let mut late = site.spec(&config, &app, &[(Phase::Run, "slow.yaml", 0)]);
    late.job.timeouts.run = Some(3);
    let (outcome, text) = site.run(late).await;
    assert_eq!(outcome.result, BuildResult::TimedOut, "{text}");
}
