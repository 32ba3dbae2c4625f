//! Conditions: whether a task is wanted.
//!
//! One language in two ways of reading. [`Reading::Fuel`] is what Fuel does: characters it does not know are passed
//! over, and a misspelt word may vanish with them. [`Reading::Strict`] refuses them, and knows two things more: what the
//! design of granular deployment wanted to ask (`api.nodes_count() > 10`, `api.role_in_cluster('zabbix-server')`), and
//! comparisons of numbers.
//!
//! In both, `not` binds tighter than `==` and as tight as `in`: `not a == b` is `(not a) == b`.

mod evaluate;
mod lexer;
mod parser;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cluster::{Cluster, Node};
use crate::fault::Fault;

pub use lexer::Reading;

/// Longest condition read, in bytes.
pub const MAX_LENGTH: usize = 16 << 10;

/// A condition that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition(parser::Expression);

/// What a condition may ask for.
#[derive(Clone, Debug, Default)]
pub struct Models {
    models: BTreeMap<String, Value>,
    api: Option<Api>,
    strict: bool,
}

/// What `api.…` answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Api {
    /// `api.cluster_status`.
    pub cluster_status: String,
    /// `api.nodes_count()`: how many nodes are deployed.
    pub nodes_count: u64,
    /// Roles of the deployed nodes, for `api.role_in_deployment(…)`.
    pub roles_deployed: Vec<String>,
    /// Roles of all nodes, for `api.role_in_cluster(…)`.
    pub roles: Vec<String>,
}

impl Models {
    /// These models. Strict: to ask for what nobody set is an error; else it is nothing.
    pub fn new(models: impl IntoIterator<Item = (String, Value)>, strict: bool) -> Models {
        Models { models: models.into_iter().collect(), api: None, strict }
    }

    /// What the tasks of a cluster may ask for: `cluster:`, `settings:`, `api.`.
    pub fn of(cluster: &Cluster) -> Models {
        let roles = |nodes: &[&Node]| {
            nodes.iter().flat_map(|node| node.all_roles().into_iter().chain(node.roles.iter().cloned())).collect()
        };
        let deployed = cluster.deployed();
        let all: Vec<&Node> = cluster.nodes.iter().collect();
        let api = Api {
            cluster_status: cluster.status.clone(),
            nodes_count: deployed.len() as u64,
            roles_deployed: roles(&deployed),
            roles: roles(&all),
        };
        let models = [("cluster".to_owned(), cluster.model()), ("settings".to_owned(), cluster.settings.clone())];
        Models { api: Some(api), ..Models::new(models, true) }
    }

    /// The same, where what nobody set is nothing.
    #[must_use]
    pub fn lax(self) -> Models {
        Models { strict: false, ..self }
    }
}

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    /// [`Fault::Syntax`].
    pub fn read(text: &str, reading: Reading) -> Result<Condition, Fault> {
        if text.len() > MAX_LENGTH {
            return Err(Fault::Invalid(format!("a condition is longer than {MAX_LENGTH} bytes")));
        }
        parser::parse(&lexer::tokens(text, reading)?, text).map(Condition)
    }

    /// What it comes to. What is not reached is not asked for.
    ///
    /// # Errors
    /// [`Fault::Unknown`] for a model nobody has, [`Fault::Undefined`], [`Fault::Kind`].
    pub fn evaluate(&self, models: &Models) -> Result<Value, Fault> {
        evaluate::evaluate(&self.0, models)
    }

    /// Whether it holds.
    ///
    /// # Errors
    /// As [`Condition::evaluate`].
    pub fn holds(&self, models: &Models) -> Result<bool, Fault> {
        Ok(crate::values::is_true(&self.evaluate(models)?))
    }
}
