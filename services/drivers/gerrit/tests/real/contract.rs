//! The same in the words of the contract of drivers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gatelog_driver_contract::{
    Batch, CodeReview, Intake as _, Landing, Listening, Report as Told, Reporter, Sink, Target, Trouble,
};
use gatelog_driver_gerrit::{ChangeName, GerritConnection, Mode};
use gatelog_record::draft::gate::{
    ChangeKey, ChangesWanted, ConfigRemark, FactsPurpose, ProjectBranch, ReportAction, ReportRequested, Subject,
    SubmitTarget,
};
use gatelog_record::draft::intake::ForgeEvent;
use gatelog_record::{Timestamp, Value, WorkId};
use gatelog_secrets::Keyring;
use serde_json::json;

use crate::server::{Prepared, Server, until};

/// The log and what is kept beside it.
#[derive(Default)]
struct Log {
    events: Vec<ForgeEvent>,
    places: BTreeMap<String, Vec<u8>>,
    troubles: Vec<Trouble>,
    /// Whether nothing can be kept.
    full: bool,
}

impl Sink for Log {
    fn place(&mut self, part: &str) -> Option<Vec<u8>> {
        self.places.get(part).cloned()
    }

    fn take(&mut self, part: &str, found: Result<Batch, Trouble>) -> Result<(), Trouble> {
        if self.full {
            return Err(Trouble::new("full", "the disk is full"));
        }
        match found {
            Ok(Batch { events, place }) => {
                self.events.extend(events);
                self.places.extend(place.map(|place| (part.to_owned(), place)));
            }
            Err(trouble) => self.troubles.push(trouble),
        }
        Ok(())
    }

    fn stopping(&self) -> bool {
        false
    }
}

impl Log {
    fn hear(&mut self, listening: &mut dyn Listening, event: &str, change: &ChangeName) -> ForgeEvent {
        until(&format!("{event} of {change}"), || {
            let number = change.number.to_string();
            let found = self.events.iter().find(|one| one.event == event && one.change.as_deref() == Some(&number));
            let found = found.cloned();
            if found.is_none() {
                let _ = listening.next(Duration::from_millis(100), self);
            }
            found
        })
    }
}

fn connection(server: &Server) -> GerritConnection {
    let keyring = Arc::new(Keyring::open_dir(server.keys()).unwrap());
    let now = || Timestamp(1_795_000_000_000_000);
    GerritConnection::new("review", server.gerrit(), server.git(), Mode::ByGerrit, keyring, now)
}

fn wanted(key: &ChangeKey, with_needed_by: bool) -> ChangesWanted {
    ChangesWanted {
        work: WorkId([1; 16]),
        tenant: "acme".into(),
        connection: "review".into(),
        changes: vec![key.clone()],
        with_needed_by,
        among: Vec::new(),
        purpose: FactsPurpose::Refresh,
    }
}

fn report(subject: &Subject, work: u8, remarks: Vec<ConfigRemark>) -> ReportRequested {
    ReportRequested {
        work: WorkId([work; 16]),
        tenant: "acme".into(),
        item: None,
        pipeline: "gate".into(),
        action: ReportAction::Success,
        reporters: Vec::new(),
        subjects: vec![subject.clone()],
        message: "Build succeeded.".into(),
        remarks,
        requested_at: Timestamp::ZERO,
    }
}

/// Heard, asked, told, merged: and what could not be kept is told again.
pub fn the_words_of_the_contract(server: &mut Server) {
    let (project, other) =
        (server.project("contract", "MERGE_IF_NECESSARY"), server.project("contract-b", "MERGE_ALWAYS"));
    let connection = connection(server);
    let mut log = Log::default();
    let mut listening = connection.listen().unwrap();
    connection.recover(&mut log).unwrap();
    assert!(log.events.is_empty(), "of the past nothing is told: {:?}", log.events);
    assert!(log.places.contains_key("") && log.places.contains_key(&project.name), "{:?}", log.places.keys());
    let change = project.propose(None, "a", "a", "A", "");
    let created = log.hear(&mut *listening, "patchset-created", &change);
    assert_eq!(
        (created.project.as_str(), created.patchset.as_deref()),
        ("review.example.com/acme/contract", Some("1"))
    );
    assert_eq!(created.attributes.as_map().unwrap()["username"], Value::Str("dev".into()));

    // What is told while nothing can be kept is told again.
    log.full = true;
    server.approve(&change);
    until("a batch that cannot be kept", || listening.next(Duration::from_millis(100), &mut log).err());
    log.full = false;
    let heard = log.hear(&mut *listening, "comment-added", &change);
    assert!(heard.attributes.as_map().unwrap().contains_key("approvals"));
    until("both reviews", || {
        let _ = listening.next(Duration::from_millis(100), &mut log);
        (log.events.iter().filter(|one| one.event == "comment-added").count() >= 2).then_some(())
    });

    let needing =
        other.propose(None, "b", "b", &format!("B\n\nDepends-On: {}", server.url(&change.number.to_string())), "");
    let key =
        connection.change_by_url(&server.url(&format!("c/{}/+/{}", project.name, change.number))).unwrap().unwrap();
    assert_eq!(
        key,
        ChangeKey { project: "review.example.com/acme/contract".into(), change: change.number.to_string() }
    );
    let found = connection.find_changes(&wanted(&key, true)).unwrap();
    assert_eq!(found.changes.len(), 2, "{found:?}");
    let facts = found.changes.iter().find(|one| one.subject.change.as_ref() == Some(&key.change)).unwrap();
    let above = ChangeKey { project: "review.example.com/acme/contract-b".into(), change: needing.number.to_string() };
    assert_eq!(facts.needed_by, [above]);
    assert!(facts.open && facts.cannot_merge.is_none() && facts.text.is_some());
    assert_eq!(facts.attributes.as_map().unwrap()["missing-labels"], Value::List(Vec::new()));
    let gone = ChangeKey { change: "9999999".into(), ..key.clone() };
    assert_eq!(connection.find_changes(&wanted(&gone, false)).unwrap().missing, [gone]);

    let subject = facts.subject.clone();
    let remark = |path: &str| ConfigRemark {
        project: subject.project.clone(),
        branch: "master".into(),
        path: path.into(),
        line: 1,
        text: "look here".into(),
    };
    let request = report(&subject, 2, vec![remark("a"), remark("elsewhere")]);
    let settings =
        Value::Map(BTreeMap::from([("Verified".to_owned(), Value::Int(1)), ("submit".to_owned(), Value::Bool(true))]));
    let count = || {
        server.rest("ci", "GET", &format!("changes/{}/messages", change.number), &json!(null)).as_array().unwrap().len()
    };
    let tell = |request: &ReportRequested, settings: &Value| {
        connection.report(&Told { request, subjects: &[&subject], settings })
    };
    let before = count();
    tell(&request, &settings).unwrap();
    tell(&request, &settings).unwrap();
    assert_eq!(count(), before + 1, "told once");
    let unknown = Value::Map(BTreeMap::from([("Nonsense".to_owned(), Value::Int(1))]));
    assert_eq!(tell(&report(&subject, 3, Vec::new()), &unknown).unwrap_err().code, "vote-not-given");
    server.approve(&change);

    let prepared = project.prepare(&change, &project.tip("master"), Prepared::Merged);
    let target = SubmitTarget {
        at: ProjectBranch { connection: "review".into(), project: subject.project.clone(), branch: "master".into() },
        subject: subject.clone(),
        tested_base: prepared.tested_base,
        tested_commit: prepared.tested_commit,
        tested_tree: prepared.tested_tree.clone(),
    };
    let targets = [Target { wanted: &target, objects: project.objects.clone() }];
    for _ in 0..2 {
        let landings = connection.submit_all(WorkId([4; 16]), &targets).unwrap();
        assert!(matches!(&landings[0], Landing::Merged(now) if now.tree == prepared.tested_tree), "{landings:?}");
    }
    log.hear(&mut *listening, "change-merged", &change);
    let mut ids: Vec<&str> = log.events.iter().map(|event| event.delivery.as_str()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert!(all - ids.len() <= 1, "at most what was in the batch that was not kept comes twice");
}
