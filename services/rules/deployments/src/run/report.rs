//! How nodes are, as told to those who watch: a node with several roles is one node, and never goes backwards.

use serde_json::{Map, Value, json};

/// What is told of a node.
pub type Report = Map<String, Value>;

/// What was told last.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    nodes: Vec<Report>,
    finished: Vec<(Value, Value)>,
    failed: Vec<(Value, Value)>,
}

/// How far along a status is; a lower one never follows a higher one.
fn rank(status: Option<&Value>) -> i64 {
    match status.and_then(Value::as_str) {
        Some("discover") => 10,
        Some("provisioning") => 30,
        Some("provisioned") => 40,
        Some("deploying") => 50,
        Some("ready") => 60,
        Some("error") => 70,
        _ => 0,
    }
}

fn is_final(report: &Report) -> bool {
    matches!(report.get("status").and_then(Value::as_str), Some("ready" | "error"))
}

fn whole(value: Option<&Value>) -> i64 {
    value.and_then(Value::as_i64).unwrap_or(0)
}

impl Reports {
    /// For nodes in their roles: uid, role, and whether everything ends if it fails.
    pub fn new(turns: impl IntoIterator<Item = (Value, Value, Value)>) -> Reports {
        let known = |(uid, role, critical): (Value, Value, Value)| {
            let mut known = Report::new();
            known.insert("uid".to_owned(), uid);
            known.insert("role".to_owned(), role);
            known.insert("fail_if_error".to_owned(), critical);
            known
        };
        Reports { nodes: turns.into_iter().map(known).collect(), ..Reports::default() }
    }

    /// What is to be told of some nodes: what is new, with progress over all roles of a node.
    pub fn tell(&mut self, reports: Vec<Report>) -> Vec<Report> {
        let told: Vec<Report> = reports.into_iter().filter_map(|report| self.one(report)).collect();
        for report in &told {
            match self.known_mut(report) {
                Some(known) => known.extend(report.clone()),
                None => self.nodes.push(report.clone()),
            }
        }
        told
    }

    /// What is told at the end, if it went to its end: in order, unless a node failed.
    pub fn end(&self) -> Report {
        let failed: Vec<String> = self
            .nodes
            .iter()
            .filter(|node| node.get("status").and_then(Value::as_str) == Some("error"))
            .filter_map(|node| node.get("uid").and_then(Value::as_str))
            .map(str::to_owned)
            .collect();
        let mut end = Report::new();
        end.insert("progress".to_owned(), json!(100));
        if failed.is_empty() {
            end.insert("status".to_owned(), json!("ready"));
        } else {
            end.insert("status".to_owned(), json!("error"));
            let said = format!("Some error occured on nodes {}", super::roles::listed(&failed));
            end.insert("error".to_owned(), json!(said));
        }
        end
    }

    fn known(&self, report: &Report) -> Option<&Report> {
        self.nodes.iter().find(|known| same(known, report))
    }

    fn known_mut(&mut self, report: &Report) -> Option<&mut Report> {
        self.nodes.iter_mut().find(|known| same(known, report))
    }

    fn one(&mut self, mut report: Report) -> Option<Report> {
        if report.get("role").and_then(Value::as_str) != Some("hook") {
            self.over_roles(&mut report);
        }
        if let Some(progress) = report.get("progress").and_then(Value::as_i64) {
            report.insert("progress".to_owned(), json!(progress.clamp(0, 100)));
        }
        let complete = matches!(report.get("status").and_then(Value::as_str), Some("provisioned" | "ready"));
        if complete && whole(report.get("progress")) != 100 {
            report.insert("progress".to_owned(), json!(100));
        }
        let Some(known) = self.known(&report) else { return Some(report) };
        let was = rank(known.get("status"));
        let is = report.get("status").map_or(was, |status| rank(Some(status)));
        let before = whole(known.get("progress"));
        let now = report.get("progress").map_or(before, |progress| whole(Some(progress)));
        let backwards = is < was || (is == was && now < before);
        let nothing_new = report.iter().all(|(field, value)| known.get(field) == Some(value));
        (!backwards && !nothing_new).then_some(report)
    }

    /// Of a node with several roles each is its share of the whole, and an end is told only when the last role has ended;
    /// at once if everything ends with it.
    fn over_roles(&mut self, report: &mut Report) {
        let (Some(uid), Some(role)) = (report.get("uid").cloned(), report.get("role").cloned()) else { return };
        let of_node = |known: &&Report| known.get("uid") == Some(&uid);
        let roles = i64::try_from(self.nodes.iter().filter(of_node).count()).unwrap_or(i64::MAX).max(1);
        let finished =
            i64::try_from(self.finished.iter().filter(|(other, _)| *other == uid).count()).unwrap_or(i64::MAX);
        if roles == 1 || finished == roles {
            return;
        }
        let mut progress = whole(report.get("progress")) / roles + 100 * finished / roles;
        if is_final(report) {
            let end = (uid.clone(), role);
            if report.get("status") == Some(&json!("error")) {
                self.failed.push(end.clone());
            }
            self.finished.push(end);
            progress = 100 * (finished + 1) / roles;
        }
        report.insert("progress".to_owned(), json!(progress));
        let critical = self.known(report).and_then(|known| known.get("fail_if_error")) == Some(&json!(true));
        let at_once = critical && report.get("status") == Some(&json!("error"));
        if roles - finished != 1 && !at_once {
            report.insert("status".to_owned(), json!("deploying"));
            report.remove("error_type");
        } else if is_final(report) {
            let failed = self.failed.iter().any(|(other, _)| *other == uid);
            report.insert("status".to_owned(), json!(if failed { "error" } else { "ready" }));
            report.insert("progress".to_owned(), json!(100));
            if failed {
                report.insert("error_type".to_owned(), json!("deploy"));
            }
        }
    }
}

fn same(a: &Report, b: &Report) -> bool {
    a.get("uid") == b.get("uid") && a.get("role") == b.get("role")
}
