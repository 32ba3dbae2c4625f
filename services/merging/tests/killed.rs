//! Mirrors under several processes with several threads each, some of which are killed in the midst
//! of whatever they do.
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up shall fail")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gatelog_merging::*;
use support::histories::Dice;
use support::*;

const PROJECT: &str = "library";
/// What a process of its own is told: the directory of mirrors, the forge's repository, its number.
const TOLD: [&str; 3] = ["GATELOG_TEST_MIRRORS", "GATELOG_TEST_FORGE", "GATELOG_TEST_NUMBER"];

fn mirrors(root: &Path, forge: &Path) -> (Mirrors, ProjectKey) {
    let mut config = MirrorsConfig::new(root);
    config.limits.lock_timeout = Duration::from_secs(120);
    let (mirrors, project) = (Mirrors::open(config).unwrap(), ProjectKey::new("forge", PROJECT));
    mirrors.set_source(&project, forge.to_str().unwrap()).unwrap();
    (mirrors, project)
}

/// Not a test of its own: what the other processes do, until they are killed.
#[test]
fn child() {
    let told: Vec<_> = TOLD.iter().filter_map(std::env::var_os).collect();
    let [root, forge, number] = &told[..] else { return };
    let (root, number) = (PathBuf::from(root), number.to_str().unwrap());
    std::fs::write(root.join(format!("{number}.begun")), "").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (root, forge) = (&root, Path::new(forge));
            scope.spawn(move || {
                let (mirrors, project) = mirrors(root, forge);
                for round in 0.. {
                    mirrors.fetch(&project, &["refs/for/master/one"]).unwrap();
                    let items = vec![item(&project, "one", None, MergeMode::CherryPick)];
                    let id = format!("w{number}-{thread}-{}", round % 3);
                    let done = merged(mirrors.prepare(&request(&id, items)));
                    let place = root.join(format!("src-{number}-{thread}"));
                    let _ = std::fs::remove_dir_all(&place);
                    let asked = WorkspaceRequest {
                        project: project.clone(),
                        destination: place,
                        branch: None,
                        commit: done.branches[0].commit.clone(),
                        branches: BTreeMap::new(),
                        sharing: ObjectSharing::Link,
                        files: true,
                    };
                    mirrors.clone_workspace(&asked).unwrap();
                    mirrors.release(&project, &id).unwrap();
                }
            });
        }
    });
}

/// A process that does not outlive the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL: nothing of it runs any more.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn runs(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

fn start(root: &Path, forge: &Path, number: usize) -> Process {
    let begun = root.join(format!("{number}.begun"));
    let _ = std::fs::remove_file(&begun);
    let values = [root.as_os_str(), forge.as_os_str(), number.to_string().as_ref()].map(ToOwned::to_owned);
    let errors = std::fs::File::options().create(true).append(true).open(root.join("errors")).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads", "1"])
        .envs(TOLD.iter().zip(values))
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .unwrap();
    let mut child = Process(child);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !begun.exists() {
        assert!(child.runs(), "{}", said(root));
        assert!(Instant::now() < deadline, "a process did not begin");
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

fn said(root: &Path) -> String {
    std::fs::read_to_string(root.join("errors")).unwrap_or_default()
}

fn refs(repository: &Path) -> BTreeMap<String, String> {
    let text = git(repository, &["for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags"]);
    text.lines().filter_map(|line| line.split_once(' ')).map(|(name, id)| (name.into(), id.into())).collect()
}

fn locks(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(locks(&entry));
        } else if entry.extension().is_some_and(|ending| ending == "lock") {
            found.push(entry);
        }
    }
    found
}

#[test]
fn whoever_is_killed_at_whatever_point_every_ref_is_old_or_new_and_the_next_goes_on() {
    /// At least so many kills, and more while there is time.
    const KILLS_MIN: usize = 16;
    let seconds = std::env::var("GATELOG_KILLS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let site = Site::new();
    let (_, ann) = site.project(PROJECT, &[("a", "1\n")]);
    let root = site.dir.path().join("shared");
    std::fs::create_dir(&root).unwrap();
    let first = ann.head();
    ann.change(&first, "one", &[("one", "1\n")]);
    ann.checkout(&first);
    let (mirrors, project) = mirrors(&root, &ann.bare);
    let mirror = mirrors.path(&project).unwrap();
    // Every value that a ref ever had.
    let mut ever: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let remember = |ever: &mut BTreeMap<String, BTreeSet<String>>| {
        for (name, id) in refs(&ann.bare) {
            ever.entry(name).or_default().insert(id);
        }
    };
    remember(&mut ever);
    let mut dice = Dice::new(7);
    let begun = Instant::now();
    let mut children: Vec<Process> = (0..3).map(|number| start(&root, &ann.bare, number)).collect();
    let mut kills = 0;
    while kills < KILLS_MIN || begun.elapsed() < Duration::from_secs(seconds) {
        // Somebody pushes: branches move, come and go, tags come.
        ann.commit(&[("a", &format!("{kills}\n")), (&format!("files/{kills}"), "x\n")], "pushed");
        ann.push("refs/heads/master");
        ann.push(&format!("refs/heads/branch/{}", kills % 3));
        git(&ann.work, &["push", "-q", "origin", &format!("HEAD:refs/tags/v{kills}")]);
        remember(&mut ever);
        if kills % 4 == 3 {
            git(&ann.work, &["push", "-q", "origin", ":refs/heads/branch/0"]);
        }
        std::thread::sleep(Duration::from_millis(u64::try_from(dice.roll(60)).unwrap()));
        let at = dice.roll(children.len());
        assert!(children[at].runs(), "{}", said(&root));
        kills += 1;
        let is_all = kills % 4 == 0;
        if is_all {
            for child in &mut children {
                child.0.kill().unwrap();
            }
            for child in &mut children {
                child.0.wait().unwrap();
            }
            kills += 2;
            // Nobody is there any more: what they left has to be whole as it is.
            if mirror.join("gatelog-mirror").exists() {
                for (name, id) in refs(&mirror) {
                    assert!(ever.get(&name).is_some_and(|values| values.contains(&id)), "{name} is at {id}");
                }
                git(&mirror, &["fsck", "--full", "--no-dangling"]);
            }
            // The next process, which finds all they left.
            assert_eq!(mirrors.fetch(&project, &[]).unwrap().branches["master"], ann.head());
            assert_eq!(refs(&mirror), refs(&ann.bare));
            assert_eq!(locks(&mirror), Vec::<PathBuf>::new());
            git(&mirror, &["fsck", "--full", "--no-dangling"]);
            if kills % 3 == 0 {
                // From the beginning, so that some are killed while they make the mirror.
                mirrors.discard(&project).unwrap();
            }
            for (number, child) in children.iter_mut().enumerate() {
                *child = start(&root, &ann.bare, number);
            }
        } else {
            children[at].0.kill().unwrap();
            children[at].0.wait().unwrap();
            children[at] = start(&root, &ann.bare, at);
        }
    }
    let all_run = children.iter_mut().all(Process::runs);
    drop(children);
    assert!(all_run, "{}", said(&root));
    println!("{kills} processes were killed");
    assert_eq!(said(&root), "", "no process may trip over what another left");
    mirrors.fetch(&project, &[]).unwrap();
    assert_eq!(refs(&mirror), refs(&ann.bare));
    git(&mirror, &["fsck", "--full", "--no-dangling"]);
}
