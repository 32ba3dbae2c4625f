//! What jobs hand each other: a worker gives a job what others returned, and tells what the job returned itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use gatelog_event_log::BlobError;
use gatelog_executing::{Returned, deep_merge};
use gatelog_record::draft::gate::Artifact;
use gatelog_record::{BlobHash, BuildsetId, Sealed, Value};
use gatelog_secrets::Scope;

use crate::artifacts::{self, Found};
use crate::connection::chain;
use crate::returned::{FromBuild, NotHad, Told};
use crate::spec::JobSpec;
use crate::worker::{Failed, Held, Worker};

/// What seals of `secret_data` belong to.
const SECRET_DATA: &[u8] = b"secret_data";

/// What a worker must know to tell how an attempt went.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// The buildset.
    pub(crate) buildset: BuildsetId,
    /// The jobs of the buildset.
    pub(crate) jobs: BTreeSet<String>,
    /// How people reach the API, as the tenant has it; empty where nobody said.
    pub(crate) web_root: String,
}

/// What a job is given of what others returned.
#[derive(Debug, Default)]
pub(crate) struct FromParents {
    pub(crate) data: BTreeMap<String, Value>,
    pub(crate) secret_data: BTreeMap<String, Value>,
    /// As they are told to the job.
    pub(crate) artifacts: Vec<Value>,
}

impl Worker {
    /// What the job is given of what others returned: those it waits for in the order of the graph, and what it requires.
    ///
    /// # Errors
    /// What one of them returned cannot be had; another attempt may have it.
    pub(crate) fn handed_on(
        &self,
        spec: &JobSpec,
        parents: Vec<FromBuild>,
        required: Vec<Found>,
    ) -> Result<FromParents, Failed> {
        let blobs = &*self.repositories.blobs;
        let mut given = FromParents { artifacts: self.artifacts(spec, required)?, ..FromParents::default() };
        for parent in parents {
            let not_had = |error: NotHad| Failed::again(error.to_string());
            if let Some(sealed) = parent.read_secret(blobs).map_err(not_had)? {
                let opened = self.keyring.open(&sealed, SECRET_DATA).map_err(|error| Failed::again(chain(&error)))?;
                if let gatelog_secrets::Unsealed::Opened(plaintext) = opened
                    && let Some(text) = plaintext.as_str()
                    && let Ok(json) = serde_json::from_str::<serde_json::Value>(text)
                    && let Value::Map(mut merged) = Value::from_json(&json)
                {
                    // Zuul: of secrets the job that stands first in the graph has the last word.
                    merged.remove("zuul");
                    deep_merge(&mut merged, &given.secret_data);
                    given.secret_data = merged;
                }
            }
            let (job, subject) = (parent.job.clone(), parent.subject.clone());
            let (data, artifacts) = parent.read(blobs).map_err(not_had)?;
            if let Value::Map(mut map) = data {
                // Zuul: for data the later job wins.
                map.retain(|name, _| !["zuul", "nodepool", "unsafe_vars"].contains(&name.as_str()));
                deep_merge(&mut given.data, &map);
            }
            for artifact in artifacts {
                let told = artifacts::told(&artifact, &job, subject.as_ref());
                // What it requires may be its own parent's.
                if !given.artifacts.contains(&told) {
                    given.artifacts.push(told);
                }
            }
        }
        Ok(given)
    }

    /// The artifacts that the job is told of: of builds that are over, those of jobs that provide what it requires.
    ///
    /// # Errors
    /// A build whose item is there has them in a blob that cannot be had.
    fn artifacts(&self, spec: &JobSpec, found: Vec<Found>) -> Result<Vec<Value>, Failed> {
        let provides = |other: &BlobHash| {
            let bytes = self.repositories.blobs.get(other).ok()?;
            let other = JobSpec::read(&bytes).ok()?;
            Some(!other.job.provides.is_disjoint(&spec.job.requires))
        };
        let mut told = Vec::new();
        for Found { from, spec: other } in found {
            if other.is_some_and(|other| provides(&other) != Some(true)) {
                continue;
            }
            let (job, subject, first) = (from.job.clone(), from.subject.clone(), from.artifacts.clone());
            let all = match from.read(&*self.repositories.blobs) {
                Ok((_, all)) => all,
                // Its item may have left long ago, and what it returned with it.
                Err(error) if other.is_some() => {
                    tracing::warn!(%error, "of a required build only the artifacts in its record are told");
                    first
                }
                Err(error) => return Err(Failed::again(error.to_string())),
            };
            told.extend(all.iter().map(|artifact| artifacts::told(artifact, &job, subject.as_ref())));
        }
        Ok(told)
    }

    /// What an outcome says of what the attempt returned. What is too much for it is in the blob store when this returns.
    pub(crate) fn told(
        &self,
        lease: &Held,
        place: &Place,
        returned: Returned,
        secret_data: Option<Sealed>,
    ) -> Result<Told, String> {
        let artifacts = returned.artifacts().iter().filter_map(artifact).collect();
        let whole = Told { data: returned.data, secret_data, artifacts, ..Told::default() };
        let told = Told::of((lease.build, lease.attempt), whole, &place.jobs, |bytes| self.put(bytes));
        told.map_err(|error| error.to_string())
    }

    /// Keeps a blob. A store that fails is asked again, as a log is that an outcome is appended to: nobody else has this.
    fn put(&self, bytes: &[u8]) -> Result<BlobHash, BlobError> {
        let mut pause = Duration::from_millis(10);
        loop {
            match self.repositories.blobs.put(bytes) {
                Err(error @ BlobError::Store { .. }) if !self.stop.load(Ordering::Relaxed) => {
                    tracing::warn!(%error, "what a job returned could not be kept; it is tried again");
                    std::thread::sleep(pause);
                    pause = (pause * 3).min(Duration::from_secs(5));
                }
                done => return done,
            }
        }
    }

    /// What a job returned in secret, under the seal of its buildset.
    pub(crate) fn sealed(&self, buildset: BuildsetId, returned: &Returned) -> Result<Option<Sealed>, String> {
        if returned.secret_data == Value::Null {
            return Ok(None);
        }
        let text = returned.secret_data.to_json().to_string();
        let sealed = self.keyring.seal(&Scope::Buildset(buildset), text.as_bytes(), SECRET_DATA);
        sealed.map(Some).map_err(|error| chain(&error))
    }
}

fn artifact(value: &Value) -> Option<Artifact> {
    let map = value.as_map()?;
    Some(Artifact {
        name: map.get("name")?.as_str()?.to_owned(),
        url: map.get("url")?.as_str()?.to_owned(),
        metadata: map.get("metadata").cloned().unwrap_or_default(),
    })
}
