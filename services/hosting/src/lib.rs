//! The list of domains that processes host.
//!
//! A domain, to a process, is a fold of its events ([`HostedDomain::follow`]), a writer with its rules
//! ([`HostedDomain::host`]), the role whose processes run that writer, and what replay says of it
//! ([`HostedDomain::replay`]). Position, level and health of each come with its fold
//! ([`gatelog_runner::Fold`]) and its writer. [`Hosted`] makes all this of a domain's rules; [`Hosting`] is the list that the
//! composition root hands in, [`domains`] gatelog's own. A new domain is one more entry there.
//!
//! What is particular to a domain (who routes inputs to it, who works for it) is no part of this: roles know that.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use gatelog_deciding::Rules;
use gatelog_event_log::{Blobs, Log, Tail};
use gatelog_partition_state::PartitionState;
use gatelog_record::{Domain, Partition};
use gatelog_replay::domains::{CAPACITY, Domains, GATE, ReplayDomain};
use gatelog_rules_capacity::CapacityRules;
use gatelog_rules_gate::GateRules;
use gatelog_runner::{Fold, Folded, Runner, RunnerConfig, RunnerError};
use gatelog_store::RungDir;
use gatelog_tables::{DomainState, Maps};
use gatelog_writer::{Clock, Directory, Host, Initial, Options, Published, Setup};

/// What a domain is to a process.
pub trait HostedDomain: Send + Sync {
    /// The domain.
    fn domain(&self) -> Domain;

    /// Its partition, while each has one.
    fn partition(&self) -> Partition {
        Partition { domain: self.domain(), index: 0 }
    }

    /// The name of the role whose processes decide in it.
    fn role(&self) -> &'static str;

    /// What it is to replay.
    fn replay(&self) -> &'static dyn ReplayDomain;

    /// Opens its projection and folds its events into it, on a thread of its own.
    ///
    /// # Errors
    /// As [`Runner::start`].
    fn follow(&self, log: Arc<dyn Log>, config: RunnerConfig) -> Result<Box<dyn Following>, RunnerError>;

    /// Starts who decides in it, who forwards its messages and who keeps time for it.
    ///
    /// # Errors
    /// When the system gives no threads.
    fn host(&self, surroundings: Surroundings, directory: &Arc<Directory>) -> std::io::Result<Host>;
}

/// What a writer works with, whatever its domain.
pub struct Surroundings {
    /// The log.
    pub log: Arc<dyn Log>,
    /// The blobs that state and inputs name.
    pub blobs: Arc<dyn Blobs>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Where the rungs are that it may start from.
    pub rungs: RungDir,
    /// How it works.
    pub options: Options,
}

/// A domain that is folded here. Dropping it ends the fold.
pub trait Following: Send {
    /// What is folded, for reading.
    fn fold(&self) -> Arc<dyn Fold>;

    /// Ends the fold after the batch it is at.
    fn stop(self: Box<Self>);
}

impl<S: PartitionState> Following for Runner<S> {
    fn fold(&self) -> Arc<dyn Fold> {
        Arc::new(Folded::of(self))
    }

    fn stop(self: Box<Self>) {
        Runner::stop(*self);
    }
}

/// A domain that decides by some rules.
pub struct Hosted<R> {
    role: &'static str,
    replay: &'static dyn ReplayDomain,
    rules: PhantomData<fn() -> R>,
}

impl<R> Hosted<R> {
    /// The domain of these rules, decided in processes with a role of this name.
    pub const fn new(role: &'static str, replay: &'static dyn ReplayDomain) -> Hosted<R> {
        Hosted { role, replay, rules: PhantomData }
    }
}

impl<R> HostedDomain for Hosted<R>
where
    R: Rules + Default + 'static,
    R::State: PartitionState,
{
    fn domain(&self) -> Domain {
        R::State::DOMAIN
    }

    fn role(&self) -> &'static str {
        self.role
    }

    fn replay(&self) -> &'static dyn ReplayDomain {
        self.replay
    }

    fn follow(&self, log: Arc<dyn Log>, config: RunnerConfig) -> Result<Box<dyn Following>, RunnerError> {
        Ok(Box::new(Runner::<R::State>::start(log, self.partition(), config)?))
    }

    fn host(&self, surroundings: Surroundings, directory: &Arc<Directory>) -> std::io::Result<Host> {
        let partition = self.partition();
        let Surroundings { log, blobs, clock, rungs, options } = surroundings;
        let setup = Setup {
            log,
            blobs,
            clock,
            partition,
            rules: Arc::new(R::default),
            tables: R::State::partition::<Maps>,
            initial: Box::new(move || initial::<R::State>(&rungs, partition)),
            published: Published::new(partition),
            options,
        };
        Host::start::<R>(setup, directory)
    }
}

/// The state to start from: the newest rung, or the beginning.
fn initial<S: DomainState>(rungs: &RungDir, partition: Partition) -> Result<Initial<S>, String> {
    let mut warnings = Vec::new();
    let rung = rungs.nearest::<S>(partition, u64::MAX, &mut warnings).map_err(|error| chain(&error))?;
    for warning in warnings {
        tracing::warn!(%partition, "{warning}");
    }
    match rung {
        Some(rung) => {
            let position = rung.header.position;
            let tail = Tail { sequence: position.sequence, term: position.term, link: position.link };
            Ok(Initial { live: rung.live, tail })
        }
        None => Initial::genesis(),
    }
}

/// An error with those it comes of.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// The gate, whose processes are the schedulers.
pub static HOSTED_GATE: Hosted<GateRules> = Hosted::new("scheduler", &GATE);
/// Capacity, whose processes are the launchers.
pub static HOSTED_CAPACITY: Hosted<CapacityRules> = Hosted::new("launcher", &CAPACITY);

/// A list of domains. Its order is that in which they are started, stopped and told. Clones are the same list.
#[derive(Clone)]
pub struct Hosting(Arc<[&'static dyn HostedDomain]>);

/// gatelog's own.
pub fn domains() -> Hosting {
    Hosting::default()
}

impl Default for Hosting {
    fn default() -> Hosting {
        [&HOSTED_GATE as &'static dyn HostedDomain, &HOSTED_CAPACITY].into_iter().collect()
    }
}

impl FromIterator<&'static dyn HostedDomain> for Hosting {
    fn from_iter<I: IntoIterator<Item = &'static dyn HostedDomain>>(list: I) -> Hosting {
        Hosting(list.into_iter().collect())
    }
}

impl fmt::Debug for Hosting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|domain| domain.domain().name())).finish()
    }
}

impl Hosting {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &'static dyn HostedDomain> {
        self.0.iter().copied()
    }

    /// The same list with one more domain at its end.
    pub fn with(&self, domain: &'static dyn HostedDomain) -> Hosting {
        self.iter().chain([domain]).collect()
    }

    /// Their partitions.
    pub fn partitions(&self) -> Vec<Partition> {
        self.iter().map(HostedDomain::partition).collect()
    }

    /// The list as replay has it.
    pub fn replay(&self) -> Domains {
        self.iter().map(HostedDomain::replay).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gatelog_hosts_the_gate_and_capacity() {
        let told: Vec<String> = domains().iter().map(|one| format!("{} by {}", one.partition(), one.role())).collect();
        assert_eq!(told, ["gate/0 by scheduler", "capacity/0 by launcher"]);
        for one in domains().iter() {
            assert_eq!(one.replay().domain(), one.domain());
        }
        assert_eq!(format!("{:?}", domains().replay()), "[\"gate\", \"capacity\"]");
    }
}
