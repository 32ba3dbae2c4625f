//! The gate's leases: what capacity takes for an owner's own counting is an attempt of a build here.

use super::builds::BuildLeaseLost;
use crate::draft::capacity::{self, LeaseDescription, LeaseOwner, LeaseSubject};
use crate::id::{BuildId, SubjectId};
use crate::topic::{Domain, Partition};

/// What the subject of a build's lease is.
pub const BUILD: &str = "build";

/// The owner of the lease of an attempt of a build, which is in this partition under this key.
pub fn owner_of(partition: Partition, key: &str, build: BuildId, attempt: u32) -> LeaseOwner {
    LeaseOwner { partition, key: key.to_owned(), subject: subject_of(build, attempt) }
}

/// The owner of the lease of an attempt of a build of a tenant.
pub fn build_owner(tenant: &str, build: BuildId, attempt: u32) -> LeaseOwner {
    owner_of(Partition::of_key(Domain::Gate, tenant, 1), tenant, build, attempt)
}

/// What the lease of an attempt of a build is for.
pub fn subject_of(build: BuildId, attempt: u32) -> LeaseSubject {
    LeaseSubject { kind: BUILD.to_owned(), id: SubjectId(build.0), attempt }
}

/// What people read of the lease of a build.
pub fn described(tenant: &str, pipeline: &str, job: &str) -> LeaseDescription {
    let facts = [("tenant", tenant), ("pipeline", pipeline), ("job", job)];
    let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    LeaseDescription { title: format!("{job} of tenant {tenant}"), facts }
}

impl From<BuildLeaseLost> for capacity::LeaseLost {
    fn from(old: BuildLeaseLost) -> capacity::LeaseLost {
        let BuildLeaseLost { tenant, build, attempt, refused, code, message } = old;
        capacity::LeaseLost { owner: build_owner(&tenant, build, attempt), refused, code, message }
    }
}

impl LeaseSubject {
    /// The attempt of a build that it is. `None` where another owner counts something else.
    pub fn build(&self) -> Option<(BuildId, u32)> {
        (self.kind == BUILD).then_some((BuildId(self.id.0), self.attempt))
    }
}

impl LeaseOwner {
    /// The attempt of a build it is for. `None` where it is for something else.
    pub fn build(&self) -> Option<(BuildId, u32)> {
        self.subject.build()
    }
}
