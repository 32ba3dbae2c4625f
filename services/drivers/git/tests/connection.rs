//! The forge in the words of the contract of drivers.
#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gatelog_driver_contract::{
    Batch, CodeReview, Connection, Heard, Intake, Landing, Opening, Settings, Sink, Target, Trouble,
};
use gatelog_driver_git::{DRIVER, GitSettings};
use gatelog_record::draft::gate::{ChangeKey, ChangesWanted, FactsPurpose, ProjectBranch, Subject, SubmitTarget};
use gatelog_record::{Timestamp, WorkId};
use gatelog_secrets::Keyring;
use support::{HOST, Person, Site, git};

/// The connection of a site whose forge this is.
fn connection(site: &Site) -> Connection {
    let keyring = Arc::new(Keyring::open_dir(site.dir.path().join("keys")).unwrap());
    let settings = GitSettings { root: "forge".into(), canonical_hostname: HOST.into(), poll_ms: 50 };
    let opening = Opening { name: "forge", site: site.dir.path(), keyring, now: || Timestamp(0), program: None };
    settings.open(&opening).unwrap()
}

fn review(connection: &Connection) -> &dyn CodeReview {
    &**connection.review.as_ref().unwrap()
}

fn key(project: &str, name: &str) -> ChangeKey {
    ChangeKey { project: format!("{HOST}/{project}"), change: format!("master/{name}") }
}

fn target(person: &Person, base: &str, commit: &str) -> SubmitTarget {
    let project = format!("{HOST}/{}", person.project);
    let tree = git(&person.work, &["rev-parse", &format!("{commit}^{{tree}}")]);
    SubmitTarget {
        subject: Subject {
            connection: "forge".into(),
            project: project.clone(),
            branch: Some("master".into()),
            git_ref: "refs/for/master/fix".into(),
            change: Some("master/fix".into()),
            patchset: Some("1".into()),
            commit: Some(commit.into()),
            old_commit: None,
            url: String::new(),
        },
        at: ProjectBranch { connection: "forge".into(), project, branch: "master".into() },
        tested_base: base.into(),
        tested_commit: commit.into(),
        tested_tree: tree,
    }
}

#[test]
fn what_a_change_names_elsewhere_is_told_as_such() {
    let site = Site::new();
    let (ann, lib) = (site.project("app"), site.project("lib"));
    lib.propose(&lib.head(), "base", "the base");
    let here = format!("https://{HOST}/lib/+/master/base");
    let named = [&here, "https://review.example.com/c/p/+/7", &format!("https://{HOST}/lib/+/master/none"), "nothing"];
    let message = named.iter().fold("fix\n".to_owned(), |message, one| format!("{message}\nDepends-On: {one}"));
    let commit = ann.propose(&ann.head(), "fix", &message);
    let connection = connection(&site);
    let review = review(&connection);
    let wanted = ChangesWanted {
        work: WorkId([1; 16]),
        tenant: "example".into(),
        connection: "forge".into(),
        changes: vec![key("app", "fix"), key("app", "gone")],
        with_needed_by: false,
        among: Vec::new(),
        purpose: FactsPurpose::Refresh,
    };
    let found = review.find_changes(&wanted).unwrap();
    assert_eq!(found.missing, [key("app", "gone")]);
    let urls: Vec<&str> = found.elsewhere.iter().map(|one| one.url.as_str()).collect();
    assert_eq!(urls, ["https://review.example.com/c/p/+/7"], "what this host does not have, nobody has");
    assert_eq!(found.elsewhere[0].change, key("app", "fix"));
    let facts = found.changes.iter().find(|facts| facts.subject.change_key() == Some(key("app", "fix"))).unwrap();
    assert_eq!(facts.needs, [key("lib", "base")]);
    assert_eq!(review.change_by_url(&here).unwrap(), Some(key("lib", "base")));
    assert_eq!(review.change_by_url("https://review.example.com/c/p/+/7").unwrap(), None);
    assert_eq!(review.changes_by_commit("app", &commit).unwrap(), [key("app", "fix")]);
    assert_eq!(review.changes_by_topic("t").unwrap(), []);
    let branches = review.branches("app").unwrap();
    assert_eq!((branches.len(), branches[0].name.as_str(), &branches[0].commit), (1, "master", &ann.tip()));
    assert_eq!(review.default_branch("app").unwrap().as_deref(), Some("master"));
    assert_eq!(review.branches("none").unwrap_err().code, "repository-vanished");
}

#[test]
fn targets_are_merged_in_one_call_and_one_that_moved_holds_back_the_rest() {
    let site = Site::new();
    let people = [site.project("a"), site.project("b"), site.project("c")];
    let targets: Vec<SubmitTarget> = people
        .iter()
        .map(|person| {
            let base = person.head();
            let commit = person.propose(&base, "fix", "fix");
            target(person, &base, &commit)
        })
        .collect();
    let [a, b, c] = &people;
    b.checkout("refs/remotes/origin/master");
    let moved = b.commit("other", "x", "in between");
    b.push("HEAD:refs/heads/master");
    let connection = connection(&site);
    let targets: Vec<Target<'_>> =
        targets.iter().zip(&people).map(|(wanted, person)| Target { wanted, objects: person.work.clone() }).collect();
    let landings = review(&connection).submit_all(WorkId([7; 16]), &targets).unwrap();
    let [Landing::Merged(now), Landing::BaseMoved { found }, Landing::HeldBack] = landings.as_slice() else {
        panic!("{landings:?}")
    };
    assert_eq!((&now.commit, &now.tree), (&a.tip(), &targets[0].wanted.tested_tree));
    assert_eq!(found.as_ref(), Some(&moved));
    assert_ne!(c.tip(), targets[2].wanted.tested_commit);
    // Asked again, what is merged is so, wherever the branch went since.
    a.checkout(&targets[0].wanted.tested_commit);
    let newer = a.commit("more", "x", "more");
    a.push("HEAD:refs/heads/master");
    let landings = review(&connection).submit_all(WorkId([7; 16]), &targets[..1]).unwrap();
    assert!(matches!(landings.as_slice(), [Landing::Merged(now)] if now.commit == newer), "{landings:?}");
    // What was tested is nowhere: nothing is touched, and it is said so.
    let mut lost = targets[2].wanted.clone();
    lost.tested_commit = "1".repeat(40);
    let lost = Target { wanted: &lost, objects: c.work.clone() };
    let trouble = review(&connection).submit_all(WorkId([8; 16]), &[lost]).unwrap_err();
    assert_eq!((trouble.code.as_str(), trouble.again), (gatelog_driver_contract::COMMIT_MISSING, true));
}

/// Keeps places and what was told.
#[derive(Default)]
struct Kept {
    places: BTreeMap<String, Vec<u8>>,
    told: Vec<String>,
    troubles: Vec<String>,
    full: bool,
}

impl Sink for Kept {
    fn place(&mut self, part: &str) -> Option<Vec<u8>> {
        self.places.get(part).cloned()
    }
    fn take(&mut self, part: &str, found: Result<Batch, Trouble>) -> Result<(), Trouble> {
        match found {
            Ok(_) if self.full => return Err(Trouble::new("full", "no room").again(true)),
            Ok(batch) => {
                self.told.extend(batch.events.into_iter().map(|event| format!("{} {}", event.event, event.delivery)));
                self.places.extend(batch.place.map(|place| (part.to_owned(), place)));
            }
            Err(trouble) => self.troubles.push(format!("{part}: {}", trouble.code)),
        }
        Ok(())
    }
    fn stopping(&self) -> bool {
        false
    }
}

#[test]
fn what_could_not_be_kept_is_told_again_under_the_same_id() {
    let site = Site::new();
    let ann = site.project("app");
    let connection = connection(&site);
    let intake: &dyn Intake = &**connection.intake.as_ref().unwrap();
    let mut kept = Kept::default();
    intake.recover(&mut kept).unwrap();
    assert_eq!(kept.told.len(), 1, "the branch: {:?}", kept.told);
    let mut listening = intake.listen().unwrap();
    ann.propose(&ann.head(), "fix", "fix");
    kept.full = true;
    intake.recover(&mut kept).unwrap();
    assert_eq!(kept.told.len(), 1);
    let mut other = Kept { places: kept.places.clone(), ..Kept::default() };
    kept.full = false;
    intake.recover(&mut kept).unwrap();
    intake.recover(&mut other).unwrap();
    assert!(kept.told[1].starts_with("change-proposed "), "{:?}", kept.told);
    assert_eq!(kept.told[1..], other.told, "another process has the same ids");
    intake.recover(&mut kept).unwrap();
    assert_eq!(kept.told.len(), 2, "nothing new");
    // Word of a push, as a hook leaves it.
    ann.propose(&ann.head(), "more", "more");
    std::fs::write(site.dir.path().join("notify/forge/app"), []).unwrap();
    assert_eq!(listening.next(Duration::from_secs(60), &mut kept).unwrap(), Heard::Everything);
    assert_eq!(kept.told.len(), 3, "{:?}", kept.told);
    assert_eq!(intake.projects().unwrap().unwrap().into_iter().collect::<Vec<_>>(), ["app"]);
    // A project in trouble keeps no other waiting.
    std::fs::create_dir_all(site.dir.path().join("forge/broken.git")).unwrap();
    ann.propose(&ann.head(), "third", "third");
    intake.recover(&mut kept).unwrap();
    assert_eq!((kept.told.len(), kept.troubles.len()), (4, 1), "{:?}", kept.troubles);
}

#[test]
fn its_section_is_read_and_what_is_no_key_is_named() {
    let read = |text: &str| (DRIVER.read)(toml::from_str(text).unwrap()).map_err(|error| error.to_string());
    let settings = read("canonical-hostname = \"h\"\n").unwrap();
    assert_eq!(settings.canonical_hostname(), Some("h"));
    let wrong = read("canonical_hostname = \"h\"\n").unwrap_err();
    assert!(wrong.contains("unknown field `canonical_hostname`") && wrong.contains("`canonical-hostname`"), "{wrong}");
    let dir = tempfile::tempdir().unwrap();
    let keyring = Arc::new(Keyring::open_dir(dir.path().join("keys")).unwrap());
    let site = dir.path().join("site");
    let opening = Opening { name: "forge", site: &site, keyring, now: || Timestamp(0), program: None };
    let lack = settings.look(&opening).found.unwrap_err();
    assert!(lack.what.contains("is not there") && lack.cure.contains("[connection.forge]"), "{lack}");
    assert!(!site.exists(), "to look makes nothing");
}
