//! Which logs go, by rules of age and size: planned before, carried out in bounded steps, recorded for each attempt.
//!
//! An attempt's logs go as a whole, oldest first. Its removal is recorded before anything of it is removed, and
//! removing again what was half removed ends it: a process may be killed at any moment. Content that other attempts have
//! too stays.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use gatelog_record::BuildId;
use serde::Serialize;

use crate::manifest::{Digest, Manifest, Removal};
use crate::store::{LogStore, StoreError};

/// Nothing that ended less long ago is removed, whatever the rules say.
pub const YOUNGEST: Duration = Duration::from_secs(3600);
/// Attempts of one step, at most.
pub const STEP: usize = 500;
/// Different files of one step, at most: their digests are in memory.
const MOST_FILES: usize = 500_000;
/// Manifests that are read at once.
const AT_ONCE: usize = 16;
const DAY_MS: i64 = 24 * 3600 * 1000;

/// How long and how much is kept. Both `None`: for ever, everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Days after the end of an attempt.
    pub keep_days: Option<u32>,
    /// Bytes of all attempts together; content that several have is counted for each.
    pub keep_bytes: Option<u64>,
}

impl Rules {
    /// Whether anything ever goes.
    pub fn is_forever(&self) -> bool {
        self.keep_days.is_none() && self.keep_bytes.is_none()
    }

    /// Until when an attempt that ended then is kept by its age, in milliseconds since 1970.
    pub fn until(&self, ended_ms: i64) -> Option<i64> {
        let days = i64::from(self.keep_days?);
        Some(ended_ms.saturating_add(days.saturating_mul(DAY_MS).max(youngest_ms())))
    }
}

fn youngest_ms() -> i64 {
    i64::try_from(YOUNGEST.as_millis()).unwrap_or(i64::MAX)
}

/// Why an attempt's logs go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Days(u32),
    Bytes(u64),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Days(days) => write!(f, "keep-days = {days}"),
            Rule::Bytes(bytes) => write!(f, "keep-bytes = {bytes}"),
        }
    }
}

/// An attempt whose logs are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The build.
    pub build: BuildId,
    /// The attempt.
    pub attempt: u32,
    /// When it ended, in milliseconds since 1970.
    pub ended_ms: i64,
    /// How many files there are.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
}

/// An attempt whose logs go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Planned {
    /// The build, 32 hex digits.
    pub build: String,
    /// The attempt.
    pub attempt: u32,
    /// When it ended, in milliseconds since 1970.
    pub ended_ms: i64,
    /// How many files there are.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// By which rule.
    pub rule: String,
    /// From when on it may go, in milliseconds since 1970; of what goes by size alone, now.
    pub due_ms: i64,
    #[serde(skip)]
    id: BuildId,
}

/// What the rules make of what is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// What goes now, oldest first.
    pub now: Vec<Planned>,
    /// What goes next by its age, if nothing else happens.
    pub next: Option<Planned>,
    /// How many attempts stay.
    pub kept: u64,
    /// The size of their logs in bytes.
    pub kept_bytes: u64,
}

/// What the rules make of these attempts at a moment (milliseconds since 1970).
pub fn plan(mut all: Vec<Kept>, rules: &Rules, now_ms: i64) -> Plan {
    all.sort_by_key(|kept| (kept.ended_ms, kept.build, kept.attempt));
    let mut left = all.iter().fold(0_u64, |sum, kept| sum.saturating_add(kept.bytes));
    let mut plan = Plan::default();
    for kept in all {
        let planned = |rule: Rule, due_ms| Planned {
            build: kept.build.to_string(),
            attempt: kept.attempt,
            ended_ms: kept.ended_ms,
            files: kept.files,
            bytes: kept.bytes,
            rule: rule.to_string(),
            due_ms,
            id: kept.build,
        };
        let by_age = rules.until(kept.ended_ms).zip(rules.keep_days).map(|(until, days)| (Rule::Days(days), until));
        let by_size = rules.keep_bytes.filter(|most| left > *most).map(Rule::Bytes);
        let old_enough = kept.ended_ms.saturating_add(youngest_ms()) <= now_ms;
        match (by_age, by_size) {
            (Some((rule, until)), _) if until <= now_ms => plan.now.push(planned(rule, until)),
            (_, Some(rule)) if old_enough => plan.now.push(planned(rule, now_ms)),
            (by_age, _) => {
                plan.next = plan.next.or_else(|| by_age.map(|(rule, until)| planned(rule, until)));
                plan.kept += 1;
                plan.kept_bytes = plan.kept_bytes.saturating_add(kept.bytes);
                continue;
            }
        }
        left = left.saturating_sub(kept.bytes);
    }
    plan
}

/// Every attempt of the store.
///
/// # Errors
/// The store cannot be read.
pub async fn kept(store: &LogStore) -> Result<Vec<Kept>, StoreError> {
    let read = |(build, attempt, ended_ms)| async move {
        let manifest = store.manifest(build, attempt).await?;
        Ok(manifest.map(|manifest| {
            let (files, bytes) = (manifest.files.len() as u64, manifest.bytes());
            Kept { build, attempt, ended_ms, files, bytes }
        }))
    };
    store
        .attempts()
        .map_ok(read)
        .try_buffer_unordered(AT_ONCE)
        .try_filter_map(|kept| async move { Ok(kept) })
        .try_collect()
        .await
}

/// Removes what is planned, at most [`STEP`] attempts, and records each. `also` removes what a process has of an attempt
/// besides the store. Gives what was removed; what could not be is told in the log, and tried again the next time.
///
/// # Errors
/// The store cannot be read or written.
pub async fn apply(
    store: &LogStore,
    planned: &[Planned],
    now_ms: i64,
    mut also: impl FnMut(BuildId, u32) -> std::io::Result<()>,
) -> Result<Vec<Removal>, StoreError> {
    let mut step: BTreeMap<(BuildId, u32), Removal> = BTreeMap::new();
    let mut content: BTreeSet<Digest> = BTreeSet::new();
    for one in planned.iter().take(STEP) {
        if content.len() >= MOST_FILES {
            break;
        }
        let removal = Removal {
            build: one.build.clone(),
            attempt: one.attempt,
            removed_ms: now_ms,
            ended_ms: one.ended_ms,
            rule: one.rule.clone(),
            files: one.files,
            bytes: one.bytes,
        };
        store.put_removal(one.id, one.attempt, &removal).await?;
        let manifest = store.manifest(one.id, one.attempt).await?.unwrap_or_default();
        content.extend(manifest.files.iter().filter_map(|file| file.digest));
        step.insert((one.id, one.attempt), removal);
    }
    if !content.is_empty() {
        forget_shared(store, &step, &mut content).await?;
    }
    for digest in content {
        store.delete_file(digest, YOUNGEST).await?;
    }
    let mut removed = Vec::new();
    for ((build, attempt), removal) in step {
        if let Err(error) = also(build, attempt) {
            tracing::warn!(%build, attempt, %error, "the logs of a build cannot be removed; it is tried again");
            continue;
        }
        store.delete_manifest(build, attempt).await?;
        tracing::info!(%build, attempt, rule = removal.rule, bytes = removal.bytes, "the logs of a build were removed");
        removed.push(removal);
    }
    Ok(removed)
}

/// Takes away what attempts have that stay.
async fn forget_shared(
    store: &LogStore,
    step: &BTreeMap<(BuildId, u32), Removal>,
    content: &mut BTreeSet<Digest>,
) -> Result<(), StoreError> {
    let staying = store.attempts().try_filter(|(build, attempt, _)| {
        let stays = !step.contains_key(&(*build, *attempt));
        async move { stays }
    });
    let read = |(build, attempt, _)| store.manifest(build, attempt);
    let mut manifests = std::pin::pin!(staying.map_ok(read).try_buffer_unordered(AT_ONCE));
    while let Some(manifest) = manifests.next().await {
        let manifest: Option<Manifest> = manifest?;
        for file in manifest.into_iter().flat_map(|manifest| manifest.files) {
            if let Some(digest) = file.digest {
                content.remove(&digest);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600 * 1000;

    fn kept(number: u8, ended_ms: i64, bytes: u64) -> Kept {
        Kept { build: BuildId([number; 16]), attempt: 1, ended_ms, files: 2, bytes }
    }

    fn told(plan: &Plan) -> Vec<(u8, &str)> {
        plan.now.iter().map(|one| (one.id.0[0], one.rule.as_str())).collect()
    }

    #[test]
    fn the_oldest_goes_first_by_age_and_then_by_size_and_what_is_young_stays() {
        let now = 100 * DAY_MS;
        let all = vec![
            kept(3, now - 2 * DAY_MS, 50),
            kept(1, now - 31 * DAY_MS, 10),
            kept(2, now - 29 * DAY_MS, 60),
            kept(4, now - HOUR / 2, 100),
        ];
        let none = plan(all.clone(), &Rules::default(), now);
        assert_eq!((none.now.len(), none.kept, none.kept_bytes, none.next), (0, 4, 220, None));
        let days = Rules { keep_days: Some(30), keep_bytes: None };
        let by_age = plan(all.clone(), &days, now);
        assert_eq!(told(&by_age), [(1, "keep-days = 30")]);
        let next = by_age.next.unwrap();
        assert_eq!((next.id.0[0], next.due_ms), (2, now + DAY_MS));
        let both = plan(all.clone(), &Rules { keep_bytes: Some(155), ..days }, now);
        assert_eq!(told(&both), [(1, "keep-days = 30"), (2, "keep-bytes = 155")]);
        assert_eq!((both.kept, both.kept_bytes), (2, 150));
        // The last hour stays, however little may be kept.
        let little = plan(all.clone(), &Rules { keep_days: Some(0), keep_bytes: Some(1) }, now);
        assert_eq!((told(&little).len(), little.kept), (3, 1));
    }
}
