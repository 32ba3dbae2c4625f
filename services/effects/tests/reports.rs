//! Who is told of results: each reporter that a pipeline names.
#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::sync::{Arc, Mutex};

use gatelog_driver_contract::{Connection, Connections, DriverSchema, Report, Reporter, Trouble};
use gatelog_effects::review::report;
use gatelog_record::draft::gate::{ReportAction, ReportRequested, Subject};
use gatelog_record::{Timestamp, Value, WorkId};

const SCHEMA: DriverSchema = DriverSchema::silent("told");

/// Somebody who notes what was told: the changes of each report.
#[derive(Default)]
struct Told {
    only_own: bool,
    trouble: Option<Trouble>,
    reports: Mutex<Vec<Vec<String>>>,
}

impl Reporter for Told {
    fn only_own(&self) -> bool {
        self.only_own
    }
    fn report(&self, report: &Report<'_>) -> Result<(), Trouble> {
        let changes = report.subjects.iter().map(|subject| subject.url.clone()).collect();
        self.reports.lock().unwrap().push(changes);
        self.trouble.clone().map_or(Ok(()), Err)
    }
}

impl Told {
    fn review() -> Told {
        Told { only_own: true, ..Told::default() }
    }
    fn all(&self) -> Vec<Vec<String>> {
        self.reports.lock().unwrap().clone()
    }
}

/// A site with reporters by name.
fn site(reporters: &[(&str, &Arc<Told>)]) -> Connections {
    let mut connections = Connections::default();
    for (name, told) in reporters {
        connections.add(Connection::new(*name, &SCHEMA).with_reporter(Arc::clone(told) as _));
    }
    connections
}

/// A report to these about a change of each of these connections.
fn asked(reporters: &[&str], of: &[&str]) -> ReportRequested {
    let subject = |connection: &&str| Subject {
        connection: (*connection).to_owned(),
        project: format!("{connection}.test/app"),
        branch: Some("master".into()),
        git_ref: "refs/changes/1".into(),
        change: Some("1".into()),
        patchset: Some("1".into()),
        commit: Some("c".repeat(40)),
        old_commit: None,
        url: format!("{connection}/1"),
    };
    ReportRequested {
        work: WorkId([1; 16]),
        tenant: "example".into(),
        item: None,
        pipeline: "check".into(),
        action: ReportAction::Success,
        reporters: reporters.iter().map(|name| ((*name).to_owned(), Value::Null)).collect(),
        subjects: of.iter().map(subject).collect(),
        message: "Build succeeded.".into(),
        remarks: Vec::new(),
        requested_at: Timestamp(0),
    }
}

#[test]
fn a_mail_goes_out_for_a_change_of_another_connection() {
    let (gerrit, mail) = (Arc::new(Told::review()), Arc::new(Told::default()));
    let site = site(&[("gerrit", &gerrit), ("mail", &mail)]);
    assert_eq!(report(&site, &asked(&["gerrit", "mail"], &["gerrit"])), None);
    assert_eq!((gerrit.all(), mail.all()), (vec![vec!["gerrit/1".to_owned()]], vec![vec!["gerrit/1".to_owned()]]));
    // A cycle over two systems: each is told of its own, the mail names all.
    let github = Arc::new(Told::review());
    let site = self::site(&[("gerrit", &gerrit), ("github", &github), ("mail", &mail)]);
    assert_eq!(report(&site, &asked(&["gerrit", "github", "mail"], &["gerrit", "github"])), None);
    assert_eq!(github.all(), [["github/1"]]);
    assert_eq!(gerrit.all().last().unwrap(), &["gerrit/1"]);
    assert_eq!(mail.all().last().unwrap(), &["gerrit/1", "github/1"]);
}

#[test]
fn a_report_that_reached_nobody_is_not_delivered() {
    let (gerrit, github) = (Arc::new(Told::review()), Arc::new(Told::review()));
    let site = site(&[("gerrit", &gerrit), ("github", &github)]);
    let (code, message, again) = report(&site, &asked(&["gerrit"], &["github"])).unwrap();
    assert_eq!((code.as_str(), again), ("nobody-told", false));
    assert!(message.contains("gerrit"), "{message}");
    assert!(gerrit.all().is_empty());
    // A pipeline of two systems names both: one of them has the change.
    assert_eq!(report(&site, &asked(&["gerrit", "github"], &["github"])), None);
    assert_eq!(github.all().len(), 1);
    let (code, message, _) = report(&site, &asked(&["bugzilla"], &["github"])).unwrap();
    assert!(code == "unknown-connection" && message.contains("\"bugzilla\""), "{code}: {message}");
    assert_eq!(report(&site, &asked(&["zuul"], &["github"])), None, "what concerns gatelog itself goes nowhere");
}

#[test]
fn one_reporter_in_trouble_keeps_no_other_from_being_told() {
    let lasting = Arc::new(Told { trouble: Some(Trouble::new("refused", "no such label")), ..Told::review() });
    let passing = Trouble::new("away", "the server is away").again(true);
    let passing = Arc::new(Told { trouble: Some(passing), ..Told::default() });
    let mail = Arc::new(Told::default());
    let site = site(&[("a", &lasting), ("b", &passing), ("mail", &mail)]);
    let failed = report(&site, &asked(&["a", "b", "mail"], &["a"])).unwrap();
    assert_eq!(failed, ("away".into(), "the server is away; no such label".into(), true));
    assert_eq!(mail.all(), [["a/1"]]);
}
