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
        let mut told = Vec::with_capacity(file.tenants.len());
        for (ordinal, tenant) in (0u32..).zip(&file.tenants) {
            for project in &tenant.projects {
                let route = self.routes.entry((project.connection.clone(), project.project.clone())).or_default();
                if !route.contains(&tenant.tenant) {
                    route.push(tenant.tenant.clone());
                }
            }
            let input = GateInput::TenantLoaded(TenantLoaded { version: file.version, ..tenant.clone() });
            told.push(RoutedInput { key: tenant.tenant.clone(), input, ordinal });
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
