//! A cloud in memory: shows what a cloud is, and is attached by the list of clouds alone. Its machines take a few looks to
//! be there, and a few to be gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gatelog_cloud_contract::{
    Capabilities, Cloud, CloudDriver, CloudSettings, NodeConnection, NodeFound, NodeReady, NodeState, NodeWanted,
    Opened, Opening, Quota, Refusal, Trouble, Usage,
};
use gatelog_record::{NodeId, Value};
use serde::Deserialize;

/// How often a machine is looked at until it is there, and until it is gone.
const LOOKS: u32 = 2;

/// The cloud in the list of clouds.
pub const DRIVER: CloudDriver = CloudDriver {
    name: "sample",
    read: |section| {
        let settings: SampleSettings = section.try_into()?;
        Ok(Arc::new(settings))
    },
};

/// Its settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SampleSettings {
    /// How many machines there may be.
    pub machines: u64,
    /// The label it has.
    pub label: String,
}

impl CloudSettings for SampleSettings {
    fn open(&self, opening: &Opening<'_>) -> Result<Opened, Trouble> {
        let nodes = SampleCloud { name: opening.name.to_owned(), settings: self.clone(), machines: Mutex::default() };
        Ok(Opened { nodes: Arc::new(nodes) })
    }
}

/// A machine.
struct Machine {
    wanted: NodeWanted,
    /// How often it is still looked at until it is there, or gone.
    looks: u32,
    stopping: bool,
}

struct SampleCloud {
    name: String,
    settings: SampleSettings,
    machines: Mutex<BTreeMap<NodeId, Machine>>,
}

impl SampleCloud {
    fn machines(&self) -> MutexGuard<'_, BTreeMap<NodeId, Machine>> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self, machine: &Machine) -> NodeState {
        if machine.stopping {
            return NodeState::Stopping;
        }
        if machine.looks > 0 {
            return NodeState::Starting { detail: format!("{} more looks", machine.looks) };
        }
        let wanted = &machine.wanted;
        NodeState::Ready(Box::new(NodeReady {
            node: wanted.node,
            label: wanted.label.clone(),
            connection: NodeConnection::Remote {
                plugin: "ssh".into(),
                host: format!("{}.sample", wanted.node),
                port: None,
                user: None,
                host_keys: Vec::new(),
            },
            properties: [("cloud".to_owned(), Value::from(self.name.as_str()))].into(),
        }))
    }
}

impl Cloud for SampleCloud {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { labels: BTreeSet::from([self.settings.label.clone()]), tells_quota: true, ..Default::default() }
    }

    fn start(&self, wanted: &NodeWanted) -> Result<NodeState, Trouble> {
        if wanted.label != self.settings.label {
            let message = format!("cloud {} has no label {}: it has {}", self.name, wanted.label, self.settings.label);
            return Err(Trouble::new(Refusal::Permanent, message));
        }
        let mut machines = self.machines();
        if let Some(machine) = machines.get(&wanted.node) {
            return Ok(self.state(machine));
        }
        if machines.len() as u64 >= self.settings.machines {
            let message = format!("cloud {} is full: it has {} machines", self.name, self.settings.machines);
            return Err(Trouble::new(Refusal::Quota, message));
        }
        let machine = Machine { wanted: wanted.clone(), looks: LOOKS, stopping: false };
        let state = self.state(&machine);
        machines.insert(wanted.node, machine);
        Ok(state)
    }

    fn poll(&self, node: NodeId) -> Result<NodeState, Trouble> {
        let mut machines = self.machines();
        let Some(machine) = machines.get_mut(&node) else { return Ok(NodeState::Absent) };
        machine.looks = machine.looks.saturating_sub(1);
        if machine.stopping && machine.looks == 0 {
            machines.remove(&node);
            return Ok(NodeState::Absent);
        }
        Ok(self.state(machine))
    }

    fn stop(&self, node: NodeId) -> Result<(), Trouble> {
        if let Some(machine) = self.machines().get_mut(&node).filter(|machine| !machine.stopping) {
            (machine.stopping, machine.looks) = (true, LOOKS);
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<NodeFound>, Trouble> {
        let machines = self.machines();
        let found = machines.values().map(|machine| NodeFound {
            node: machine.wanted.node,
            machine: format!("m-{}", machine.wanted.node),
            attempt: Some(machine.wanted.attempt),
            label: Some(machine.wanted.label.clone()),
        });
        Ok(found.collect())
    }

    fn quota(&self) -> Result<Quota, Trouble> {
        let used = self.machines().len() as u64;
        Ok([("machines".to_owned(), Usage { limit: Some(self.settings.machines), used })].into())
    }
}
