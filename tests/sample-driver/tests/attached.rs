//! A driver that no file of the house names, in a real server: an event comes in, a change is gated, a report goes out.
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up shall fail")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use gatelog::{Server, ServerOptions};

const CONFIG: &str = r#"
- pipeline:
    name: gate
    manager: dependent
    trigger: {shelf: [{event: ready, branch: ^master$}]}
    success: {shelf: {aloud: true, merge: true}}
    failure: {shelf: {}}
- job: {name: base, parent: null}
- project: {name: app, gate: {jobs: [noop]}}
"#;

const SITE: &str = r#"
[web]
listen = "127.0.0.1:0"
[executor]
ansible-any-version = true
min-avail-hdd = 0
min-avail-inodes = 0
min-avail-mem = 0
load-multiplier = 0
[connection.shelf]
driver = "sample"
shelf = "shelf"
canonical-hostname = "shelf.test"
"#;

const TENANTS: &str = "
- tenant:
    name: example
    source: {shelf: {config-projects: [config], untrusted-projects: [app]}}
";

fn git(place: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(place)
        .args(["-c", "user.name=Dana", "-c", "user.email=dana@example.org"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A repository of the shelf with one file on its branch, and the work tree it was pushed from.
fn project(root: &Path, name: &str, file: &str, text: &str) -> std::path::PathBuf {
    let (bare, work) = (root.join(format!("shelf/{name}.git")), root.join(format!("work/{name}")));
    for place in [&bare, &work] {
        std::fs::create_dir_all(place).unwrap();
    }
    git(&bare, &["init", "--quiet", "--bare", "--initial-branch=master"]);
    git(&work, &["init", "--quiet", "--initial-branch=master"]);
    git(&work, &["remote", "add", "origin", &bare.to_string_lossy()]);
    std::fs::write(work.join(file), text).unwrap();
    git(&work, &["add", "--all"]);
    git(&work, &["commit", "--quiet", "--message", "first"]);
    git(&work, &["push", "--quiet", "origin", "master"]);
    work
}

/// What is there once it is there; the deadline only ends a test that fails.
fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{what} did not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The reports that were delivered.
fn reports(root: &Path) -> Vec<String> {
    let all = std::fs::read_dir(root.join("shelf/reports")).into_iter().flatten();
    all.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok())
        .filter(|text| text.ends_with('\n'))
        .collect()
}

fn tell(root: &Path, number: &str, text: &str) {
    let new = root.join(format!("shelf/{number}.new"));
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, root.join("shelf/inbox").join(number)).unwrap();
}

#[test]
fn a_change_of_an_unknown_driver_is_gated_merged_and_reported() {
    gatelog::drivers::add(vec![gatelog_sample_driver::DRIVER]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    std::fs::write(root.join("gatelog.toml"), SITE).unwrap();
    std::fs::write(root.join("tenants.yaml"), TENANTS).unwrap();
    project(root, "config", "zuul.yaml", CONFIG);
    let app = project(root, "app", "a.txt", "a\n");
    std::fs::write(app.join("b.txt"), "b\n").unwrap();
    git(&app, &["add", "--all"]);
    git(&app, &["commit", "--quiet", "--message", "second"]);
    let change = git(&app, &["rev-parse", "HEAD"]);
    git(&app, &["push", "--quiet", "origin", "HEAD:refs/changes/7"]);

    // One event before the server runs, which is caught up, and one while it listens.
    std::fs::create_dir_all(root.join("shelf/inbox")).unwrap();
    tell(root, "001", "app 7 ready");
    let server = Server::start(root, ServerOptions::default()).unwrap();
    let report = until("a report", || reports(root).into_iter().find(|text| text.starts_with("gate success")));
    assert!(report.contains("BUILD SUCCEEDED"), "the reporter's settings were heeded: {report}");
    let bare = root.join("shelf/app.git");
    assert!(git(&bare, &["log", "--format=%H", "master"]).contains(&change), "it is merged");

    git(&app, &["fetch", "--quiet", "origin", "master"]);
    git(&app, &["checkout", "--quiet", "--detach", "FETCH_HEAD"]);
    std::fs::write(app.join("c.txt"), "c\n").unwrap();
    git(&app, &["add", "--all"]);
    git(&app, &["commit", "--quiet", "--message", "third"]);
    git(&app, &["push", "--quiet", "origin", "HEAD:refs/changes/8"]);
    tell(root, "002", "app 8 ready");
    until("a second report", || (reports(root).len() >= 2).then_some(()));
    assert!(git(&bare, &["ls-tree", "--name-only", "master"]).contains("c.txt"));
    server.stop();
}
