//! What is known of a build before it ends.

use std::time::Duration;

use gatelog_executing::spec::Phase;
use gatelog_executing::{BuildOutcome, BuildResult, FailureCause, RetryCause};

use super::site::{self, Site, play, until};
use super::{is_running, nap};

/// Runs a build whose last task sleeps; what is known of it while it does.
async fn known_while_it_sleeps(
    site: &Site,
    spec: gatelog_executing::BuildSpec,
    word: &str,
) -> (Option<String>, BuildOutcome) {
    let (build, attempt) = (spec.build, spec.attempt);
    let build_of_it = site.executor.prepare(spec, site.workspace()).await.unwrap();
    let control = build_of_it.control();
    let running = tokio::spawn(build_of_it.run());
    until("the job is in its last task", || is_running(word)).await;
    assert_eq!(site.executor.running(), [(build, attempt)]);
    let known = tokio::time::timeout(Duration::from_secs(20), control.wait_failing()).await.ok();
    let sleeping = std::process::Command::new("pkill").args(["-x", "-f", &format!("sleep {word}")]).status();
    assert!(sleeping.is_ok_and(|status| status.success()), "the sleep could not be ended");
    (known, running.await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_told_before_the_job_ends_and_counts() {
    let Some(site) = Site::open("early failure", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let sleep = |word: &str| format!("    - command: sleep {word}\n      ignore_errors: true\n");
    let rescued = "    - block:\n        - command: test rescue = this\n      rescue:\n        - debug: {msg: rescued}\n    - command: test ignore = this\n      ignore_errors: true\n";
    let broken = format!(
        "    - block:\n        - name: compile\n          shell: echo 'no such symbol'; exit 3\n      always:\n        - command: sleep {}\n          ignore_errors: true\n",
        nap(31)
    );
    let config = site.commit(
        "config",
        &[
            ("broken.yaml", &play(&broken)),
            ("output.yaml", &play(&format!("{rescued}    - shell: echo fine; echo 'SEVERE: lost'\n{}", sleep(&nap(32))))),
            ("ok.yaml", &play(rescued)),
        ],
    );

    let spec = site.spec(&config, &app, &[(Phase::Run, "broken.yaml", 0)]);
    let (known, outcome) = known_while_it_sleeps(&site, spec, &nap(31)).await;
    let known = known.unwrap_or_default();
    assert!(known.starts_with("task \"compile\" failed on localhost"), "{known}");
    let text = site::console(&outcome);
    assert_eq!(outcome.result, BuildResult::Failure(FailureCause::Run), "{text}");
    assert!(!text.contains("gatelog: early failure"), "{text}");

    // A line of the output says so, although every task succeeds.
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "output.yaml", 0), (Phase::Post, "ok.yaml", 0)]);
    spec.job.failure_output = vec![("WARN".into(), false), ("SEVERE: .*".into(), false)];
    let (known, outcome) = known_while_it_sleeps(&site, spec, &nap(32)).await;
    assert_eq!(known.as_deref(), Some("a line of localhost matches failure-output \"SEVERE: .*\""));
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
