//! Routing: which tenants an outside event concerns. A pure fold over `intake`.

use std::collections::BTreeMap;

use gatelog_record::draft::gate::{NotRouted, TenantLoaded, TriggerReceived};
use gatelog_record::draft::intake::{ForgeEvent, TenantFile};
use gatelog_record::input::{GateInput, IntakeInput};

/// An input for the gate, made of a record of the intake.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutedInput {
    /// The tenant, or empty for what concerns none.
    pub key: String,
    /// What the gate is told.
    pub input: GateInput,
    /// Which of the record's inputs this is, from 0: with the record's offset it is the input's
    /// source, by which repeats are known.
    pub ordinal: u32,
}

/// The routing table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Router {
    /// The tenant file it was made of; 0 before the first.
    pub version: u64,
    /// Tenants by connection and project, in the order of the tenant file.
    pub routes: BTreeMap<(String, String), Vec<String>>,
    /// The tenants of the newest tenant file.
    pub tenants: BTreeMap<String, TenantLoaded>,
    /// The offset of the newest record taken.
    pub taken: Option<u64>,
}

impl Router {
    /// A table that routes nothing.
    pub fn new() -> Router {
        Router::default()
    }

    /// Takes in one record of the intake and says what the gate is told. Every routed input names the
    /// version of the table.
    pub fn route(&mut self, offset: u64, input: &IntakeInput) -> Vec<RoutedInput> {
        self.taken = Some(offset);
        match input {
            IntakeInput::TenantFile(file) => self.load(file),
            IntakeInput::ForgeEvent(event) => self.event(event),
        }
    }

    fn load(&mut self, file: &TenantFile) -> Vec<RoutedInput> {
        self.version = file.version;
        self.routes.clear();
        let before = std::mem::take(&mut self.tenants);
        self.tenants = file.tenants.iter().map(|tenant| (tenant.tenant.clone(), tenant.clone())).collect();
        // A tenant that is no longer in the file has no projects from here on.
        let gone = before.into_values().filter(|tenant| !self.tenants.contains_key(&tenant.tenant));
        let gone = gone.map(|tenant| TenantLoaded { projects: Vec::new(), ..tenant });
        let mut told = Vec::with_capacity(file.tenants.len());
        for (ordinal, tenant) in (0u32..).zip(file.tenants.iter().cloned().chain(gone)) {
            for project in &tenant.projects {
                let route = self.routes.entry((project.connection.clone(), project.project.clone())).or_default();
                if !route.contains(&tenant.tenant) {
                    route.push(tenant.tenant.clone());
                }
            }
            let key = tenant.tenant.clone();
            let input = GateInput::TenantLoaded(TenantLoaded { version: file.version, ..tenant });
            told.push(RoutedInput { key, input, ordinal });
        }
        told
    }

    fn event(&self, event: &ForgeEvent) -> Vec<RoutedInput> {
        let tenants = self.routes.get(&(event.connection.clone(), event.project.clone()));
        match tenants {
            Some(tenants) if !tenants.is_empty() => (0u32..)
                .zip(tenants)
                .map(|(ordinal, tenant)| RoutedInput {
                    key: tenant.clone(),
                    input: GateInput::TriggerReceived(TriggerReceived {
                        tenant: tenant.clone(),
                        table_version: self.version,
                        event: event.clone(),
                    }),
                    ordinal,
                })
                .collect(),
            _ => vec![RoutedInput {
                key: String::new(),
                input: GateInput::NotRouted(NotRouted {
                    connection: event.connection.clone(),
                    project: event.project.clone(),
                    event: event.event.clone(),
                    table_version: self.version,
                }),
                ordinal: 0,
            }],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatelog_record::draft::gate::TenantProject;
    use gatelog_record::{BlobHash, Value};

    fn tenant(name: &str, projects: &[&str]) -> TenantLoaded {
        let project = |project: &&str| TenantProject {
            connection: "git".into(),
            project: format!("forge/{project}"),
            trusted: false,
            reads_config: true,
        };
        TenantLoaded {
            tenant: name.into(),
            version: 0,
            settings: BlobHash::default(),
            web_root: String::new(),
            projects: projects.iter().map(project).collect(),
        }
    }

    fn file(version: u64, tenants: Vec<TenantLoaded>) -> IntakeInput {
        IntakeInput::TenantFile(TenantFile { version, file: BlobHash::default(), tenants })
    }

    fn event(connection: &str, project: &str) -> IntakeInput {
        IntakeInput::ForgeEvent(ForgeEvent {
            connection: connection.into(),
            project: format!("forge/{project}"),
            event: "change-proposed".into(),
            branch: None,
            git_ref: String::new(),
            change: None,
            patchset: None,
            commit: None,
            old_commit: None,
            attributes: Value::Null,
            delivery: "1".into(),
            raw: None,
        })
    }

    fn told(routed: &[RoutedInput]) -> Vec<(String, u32, String)> {
        let what = |input: &GateInput| match input {
            GateInput::TriggerReceived(received) => format!("trigger by {}", received.table_version),
            GateInput::NotRouted(what) => format!("unrouted by {}", what.table_version),
            GateInput::TenantLoaded(loaded) => format!("{} projects by {}", loaded.projects.len(), loaded.version),
            other => other.name().to_owned(),
        };
        routed.iter().map(|one| (one.key.clone(), one.ordinal, what(&one.input))).collect()
    }

    #[test]
    fn each_tenant_that_has_the_project_is_told_by_the_newest_tenant_file() {
        let mut router = Router::new();
        assert_eq!(told(&router.route(0, &event("git", "lib"))), [(String::new(), 0, "unrouted by 0".into())]);
        let loaded = router.route(1, &file(1, vec![tenant("one", &["lib", "app"]), tenant("two", &["lib"])]));
        assert_eq!(
            told(&loaded),
            [("one".into(), 0, "2 projects by 1".into()), ("two".into(), 1, "1 projects by 1".into())]
        );
        let lib = router.route(2, &event("git", "lib"));
        assert_eq!(told(&lib), [("one".into(), 0, "trigger by 1".into()), ("two".into(), 1, "trigger by 1".into())]);
        assert_eq!(told(&router.route(3, &event("git", "app"))), [("one".into(), 0, "trigger by 1".into())]);
        // The same project on another connection is another project.
        assert_eq!(told(&router.route(4, &event("other", "lib"))), [(String::new(), 0, "unrouted by 1".into())]);
        assert_eq!(router.taken, Some(4));
    }

    #[test]
    fn a_tenant_that_is_no_longer_in_the_file_is_told_that_it_has_no_projects() {
        let mut router = Router::new();
        router.route(0, &file(1, vec![tenant("one", &["lib"]), tenant("two", &["lib"])]));
        let loaded = router.route(1, &file(2, vec![tenant("two", &["lib"])]));
        assert_eq!(
            told(&loaded),
            [("two".into(), 0, "1 projects by 2".into()), ("one".into(), 1, "0 projects by 2".into())]
        );
        assert_eq!(told(&router.route(2, &event("git", "lib"))), [("two".into(), 0, "trigger by 2".into())]);
        assert_eq!(router.route(3, &file(3, Vec::new())).len(), 1);
        assert_eq!(told(&router.route(4, &event("git", "lib"))), [(String::new(), 0, "unrouted by 3".into())]);
    }
}
