//! What jobs return: what stands in an outcome, what is in blobs of their own, and how jobs that need it get it.
//!
//! An outcome carries up to [`MOST_INLINE`] bytes of `data` and as many of `secret_data`. What is more is put into the blob
//! store before the outcome is appended, whole; the outcome then names the blob, and has of it what decisions read.

use std::collections::BTreeSet;

use gatelog_event_log::{BlobError, Blobs};
use gatelog_gate_state::history::AttemptEntry;
use gatelog_record::codec::CodecError;
use gatelog_record::draft::gate::{Artifact, ReturnedBlob, ReturnedKept, Subject};
use gatelog_record::returned::{MOST_INLINE, NotReturned, ReturnedData, ReturnedSecret};
use gatelog_record::{BlobHash, BuildId, Sealed, Value, codec};

/// Artifacts that an outcome names although all of them are in a blob, in bytes as they are on the log.
const MOST_ARTIFACTS: usize = 8 << 10;

/// What an outcome says of what an attempt returned.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Told {
    pub(crate) data: Value,
    pub(crate) secret_data: Option<Sealed>,
    pub(crate) artifacts: Vec<Artifact>,
    pub(crate) kept: ReturnedKept,
}

/// Why what an attempt returned can be neither told nor kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotKept {
    /// It is more than a blob holds.
    #[error(transparent)]
    TooMuch(#[from] CodecError),
    /// The blob store does not take it.
    #[error(transparent)]
    Blob(#[from] BlobError),
}

impl Told {
    /// Parts what an attempt returned. `put` keeps a blob durably; `jobs` are those of the buildset.
    ///
    /// # Errors
    /// [`NotKept`]; then nothing may be told.
    pub(crate) fn of(
        (build, attempt): (BuildId, u32),
        whole: Told,
        jobs: &BTreeSet<String>,
        put: impl Fn(&[u8]) -> Result<BlobHash, BlobError>,
    ) -> Result<Told, NotKept> {
        let Told { mut data, mut secret_data, mut artifacts, mut kept } = whole;
        if size(&data)? > MOST_INLINE || size(&artifacts)? > MOST_INLINE {
            let told = (decisive(&data, jobs), first(&artifacts)?);
            let bytes = ReturnedData { build, attempt, data, artifacts }.encode()?;
            // What cannot be read again would be found out when it is needed.
            ReturnedData::decode(&bytes, build, attempt).map_err(|error| CodecError::Encode(error.to_string()))?;
            kept.data = Some(ReturnedBlob { blob: put(&bytes)?, size: bytes.len() as u64 });
            (data, artifacts) = told;
        }
        if size(&secret_data)? > MOST_INLINE
            && let Some(sealed) = secret_data.take()
        {
            let bytes = ReturnedSecret { build, attempt, sealed }.encode()?;
            kept.secret_data = Some(ReturnedBlob { blob: put(&bytes)?, size: bytes.len() as u64 });
        }
        Ok(Told { data, secret_data, artifacts, kept })
    }
}

fn size(of: &impl serde::Serialize) -> Result<usize, CodecError> {
    codec::encode(of).map(|bytes| bytes.len())
}

/// What decisions read of returned data: `zuul.child_jobs`, as far as there are such jobs.
fn decisive(data: &Value, jobs: &BTreeSet<String>) -> Value {
    let child_jobs = data.as_map().and_then(|data| data.get("zuul")?.as_map()?.get("child_jobs")?.as_list());
    let Some(child_jobs) = child_jobs else { return Value::Null };
    let wanted: BTreeSet<&str> =
        child_jobs.iter().filter_map(Value::as_str).filter(|name| jobs.contains(*name)).collect();
    let list = Value::List(wanted.into_iter().map(Value::from).collect());
    let map = |name: &str, value| Value::Map([(name.to_owned(), value)].into());
    map("zuul", map("child_jobs", list))
}

/// The first artifacts, as many as an outcome names beside a blob.
fn first(artifacts: &[Artifact]) -> Result<Vec<Artifact>, CodecError> {
    let mut told = Vec::new();
    let mut room = MOST_ARTIFACTS;
    for artifact in artifacts {
        let Some(left) = room.checked_sub(size(artifact)?) else { break };
        room = left;
        told.push(artifact.clone());
    }
    Ok(told)
}

/// What another build returned, as its records say it.
#[derive(Clone, Debug, PartialEq)]
pub struct FromBuild {
    /// The build.
    pub build: BuildId,
    /// Its newest attempt.
    pub attempt: u32,
    /// Its job.
    pub job: String,
    /// What it is for, as far as that is told with its artifacts.
    pub subject: Option<Subject>,
    /// What its records have of it.
    pub data: Value,
    /// What its records have of it under seal.
    pub secret_data: Option<Sealed>,
    /// What its records have of what it left behind.
    pub artifacts: Vec<Artifact>,
    /// Where the rest is.
    pub kept: ReturnedKept,
}

/// Why what a build returned cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what attempt {attempt} of build {build} (job {job}) returned is in a blob of its own: {why}")]
pub struct NotHad {
    build: BuildId,
    attempt: u32,
    job: String,
    why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    Blob(BlobError),
    Other(BlobHash, NotReturned),
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Why::Blob(error) => error.fmt(f),
            Why::Other(blob, what) => {
                write!(f, "blob {blob} cannot be used: {what}; restore it from a backup or export of this log")
            }
        }
    }
}

impl FromBuild {
    pub(crate) fn new(build: BuildId, job: &str, attempt: &AttemptEntry, subject: Option<&Subject>) -> FromBuild {
        FromBuild {
            build,
            attempt: attempt.attempt,
            job: job.to_owned(),
            subject: subject.cloned(),
            data: attempt.data.clone(),
            secret_data: attempt.secret_data.clone(),
            artifacts: attempt.artifacts.clone(),
            kept: attempt.kept,
        }
    }

    /// Its data and artifacts, whole.
    ///
    /// # Errors
    /// The blob with them is missing, damaged, or another.
    pub fn read(self, blobs: &dyn Blobs) -> Result<(Value, Vec<Artifact>), NotHad> {
        let Some(ReturnedBlob { blob, .. }) = self.kept.data else { return Ok((self.data, self.artifacts)) };
        let bytes = blobs.get(&blob).map_err(|error| self.not_had(Why::Blob(error)))?;
        let read = ReturnedData::decode(&bytes, self.build, self.attempt);
        read.map(|read| (read.data, read.artifacts)).map_err(|what| self.not_had(Why::Other(blob, what)))
    }

    /// What it returned under seal.
    ///
    /// # Errors
    /// The blob with it is missing, damaged, or another.
    pub fn read_secret(&self, blobs: &dyn Blobs) -> Result<Option<Sealed>, NotHad> {
        let Some(ReturnedBlob { blob, .. }) = self.kept.secret_data else { return Ok(self.secret_data.clone()) };
        let bytes = blobs.get(&blob).map_err(|error| self.not_had(Why::Blob(error)))?;
        let read = ReturnedSecret::decode(&bytes, self.build, self.attempt);
        read.map(|read| Some(read.sealed)).map_err(|what| self.not_had(Why::Other(blob, what)))
    }

    fn not_had(&self, why: Why) -> NotHad {
        NotHad { build: self.build, attempt: self.attempt, job: self.job.clone(), why }
    }
}

#[cfg(test)]
mod tests {
    use gatelog_event_log::MemoryBlobs;

    use super::*;

    const BUILD: BuildId = BuildId([7; 16]);

    fn text(bytes: usize) -> Value {
        Value::Map([("text".to_owned(), Value::Str("x".repeat(bytes)))].into())
    }

    /// Data whose encoded form has exactly this many bytes.
    fn data_of(bytes: usize) -> Value {
        let mut fitting = (0..bytes).rev().map(text).filter(|data| size(data) == Ok(bytes));
        fitting.next().unwrap()
    }

    fn parted(blobs: &MemoryBlobs, whole: Told, jobs: &[&str]) -> Told {
        let jobs = jobs.iter().map(|&name| name.to_owned()).collect();
        Told::of((BUILD, 1), whole, &jobs, |bytes| blobs.put(bytes)).unwrap()
    }

    fn from(told: &Told) -> FromBuild {
        let Told { data, secret_data, artifacts, kept } = told.clone();
        FromBuild { build: BUILD, attempt: 1, job: "parent".into(), subject: None, data, secret_data, artifacts, kept }
    }

    #[test]
    fn up_to_64_kib_stand_in_the_outcome_and_one_byte_more_in_a_blob() {
        let blobs = MemoryBlobs::new();
        for bytes in [MOST_INLINE - 1, MOST_INLINE] {
            let whole = Told { data: data_of(bytes), ..Told::default() };
            assert_eq!(parted(&blobs, whole.clone(), &[]), whole);
        }
        assert_eq!(blobs.list(), Ok(vec![]));
        let whole = Told { data: data_of(MOST_INLINE + 1), ..Told::default() };
        let told = parted(&blobs, whole.clone(), &[]);
        assert_eq!((told.data.clone(), blobs.list().unwrap().len()), (Value::Null, 1));
        assert!(told.kept.data.is_some_and(|kept| kept.size > MOST_INLINE as u64));
        assert_eq!(from(&told).read(&blobs).unwrap().0, whole.data);
    }

    #[test]
    fn what_is_under_seal_is_told_apart_by_its_own_size() {
        let blobs = MemoryBlobs::new();
        let sealed = |bytes| Sealed { key_id: "buildset/1".into(), nonce: vec![1; 24], ciphertext: vec![2; bytes] };
        let small = Told { secret_data: Some(sealed(1000)), data: Value::from("x"), ..Told::default() };
        assert_eq!(parted(&blobs, small.clone(), &[]), small);
        let large = Told { secret_data: Some(sealed(MOST_INLINE)), ..small };
        let told = parted(&blobs, large.clone(), &[]);
        assert_eq!((&told.data, &told.secret_data, told.kept.data), (&Value::from("x"), &None, None));
        assert_eq!(from(&told).read_secret(&blobs).unwrap(), large.secret_data);
    }

    #[test]
    fn the_outcome_has_the_jobs_that_decisions_read_and_the_first_artifacts() {
        let blobs = MemoryBlobs::new();
        let mut child_jobs = vec![Value::from("b"), Value::from("b"), Value::Int(1)];
        child_jobs.extend((0..9000).map(|n| Value::Str(format!("no-such-job-{n}"))));
        child_jobs.push(Value::from("a"));
        let zuul = Value::Map([("child_jobs".to_owned(), Value::List(child_jobs))].into());
        let data = Value::Map([("zuul".to_owned(), zuul)].into());
        let artifact = |n| Artifact { name: format!("n{n}"), url: "docker://i".into(), metadata: Value::Null };
        let whole = Told { data, artifacts: (0..5000).map(artifact).collect(), ..Told::default() };
        let told = parted(&blobs, whole.clone(), &["a", "b", "c"]);
        let expected = serde_json::json!({"zuul": {"child_jobs": ["a", "b"]}});
        assert_eq!(told.data, Value::from_json(&expected));
        assert!(told.artifacts.len() > 100 && whole.artifacts.starts_with(&told.artifacts));
        assert!(size(&told.artifacts).unwrap() <= MOST_ARTIFACTS + 8);
        assert_eq!(from(&told).read(&blobs), Ok((whole.data, whole.artifacts)));
    }

    #[test]
    fn artifacts_that_are_too_large_by_themselves_are_kept_too() {
        let blobs = MemoryBlobs::new();
        let artifact = Artifact { name: "n".into(), url: "u".into(), metadata: text(MOST_INLINE) };
        let whole = Told { artifacts: vec![artifact.clone()], ..Told::default() };
        let told = parted(&blobs, whole, &[]);
        assert_eq!((told.artifacts.len(), from(&told).read(&blobs).unwrap().1), (0, vec![artifact]));
    }

    #[test]
    fn as_many_values_as_a_job_may_return_are_read_again_and_too_many_are_refused_before_they_are_told() {
        let blobs = MemoryBlobs::new();
        let values = gatelog_executing::Limits::default().returned_values;
        let data = Value::List(vec![Value::Int(0); values]);
        let told = parted(&blobs, Told { data: data.clone(), ..Told::default() }, &[]);
        assert_eq!(from(&told).read(&blobs).unwrap().0, data);
        let whole = Told { data: Value::List(vec![Value::Int(0); 2 << 20]), ..Told::default() };
        let refused = Told::of((BUILD, 2), whole, &BTreeSet::new(), |bytes| blobs.put(bytes)).unwrap_err();
        assert_eq!(
            (refused.to_string().contains("LimitExceeded"), blobs.list().unwrap().len()),
            (true, 1),
            "{refused}"
        );
    }

    #[test]
    fn a_blob_that_is_missing_or_another_is_named_with_its_build_and_the_cure() {
        let blobs = MemoryBlobs::new();
        let told = parted(&blobs, Told { data: data_of(MOST_INLINE + 1), ..Told::default() }, &[]);
        let blob = told.kept.data.unwrap().blob;
        let other = FromBuild { attempt: 2, ..from(&told) };
        let said = other.read(&blobs).unwrap_err().to_string();
        assert!(
            said.contains(&format!("blob {blob} cannot be used: it holds what attempt 1 of build {BUILD}")),
            "{said}"
        );
        blobs.remove(&blob).unwrap();
        let said = from(&told).read(&blobs).unwrap_err().to_string();
        let expected = format!(
            "what attempt 1 of build {BUILD} (job parent) returned is in a blob of its own: blob {blob} is missing: \
             restore it from a backup or export of this log"
        );
        assert_eq!(said, expected);
    }
}
