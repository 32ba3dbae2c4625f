//! How long jobs are thought to take, by how long they took.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::answers::Estimated;
use crate::error::ApiError;
use crate::page::took;
use crate::reading::Reading;

/// By how many of its newest successful builds a job is judged.
const BY: usize = 10;
/// How often jobs are gone through for the longest way: more than any real graph is deep.
const ROUNDS: usize = 200;

/// How long a job is thought to take, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) mean_ms: i64,
    pub(crate) least_ms: i64,
    pub(crate) most_ms: i64,
    /// By how many builds.
    pub(crate) runs: usize,
}

impl Estimate {
    fn by(took: &[u64]) -> Option<Estimate> {
        let ms = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let mean = took.iter().fold(0_u64, |sum, one| sum.saturating_add(*one)).checked_div(took.len() as u64)?;
        Some(Estimate {
            mean_ms: ms(mean),
            least_ms: ms(took.iter().copied().min()?),
            most_ms: ms(took.iter().copied().max()?),
            runs: took.len(),
        })
    }

    /// From what a document tells.
    pub(crate) fn read(json: &Json) -> Option<Estimate> {
        Some(Estimate {
            mean_ms: json["mean_ms"].as_i64()?,
            least_ms: json["least_ms"].as_i64()?,
            most_ms: json["most_ms"].as_i64()?,
            runs: usize::try_from(json["runs"].as_u64()?).ok()?,
        })
    }

    /// From the shortest to the longest run, in words.
    pub(crate) fn range(self) -> String {
        match (took(self.least_ms), took(self.most_ms)) {
            (least, most) if least == most => most,
            (least, most) => format!("{least} to {most}"),
        }
    }

    /// What it is judged by, in words.
    pub(crate) fn basis(self) -> String {
        if self.runs == 1 { "its last success".to_owned() } else { format!("its last {} successes", self.runs) }
    }

    /// All of it, in a sentence.
    pub(crate) fn says(self) -> String {
        format!("usually {}, by {}", self.range(), self.basis())
    }

    /// For an answer.
    pub(crate) fn told(self) -> Estimated {
        Estimated { mean_ms: self.mean_ms, least_ms: self.least_ms, most_ms: self.most_ms, runs: self.runs }
    }
}

/// Estimates for one answer, each made once.
#[derive(Default)]
pub(crate) struct Estimates(BTreeMap<String, Option<Estimate>>);

impl Estimates {
    /// How long a job of a tenant takes, as far as was known at the moment asked about.
    pub(crate) fn of(&mut self, reading: &Reading<'_>, tenant: &str, job: &str) -> Result<Option<Estimate>, ApiError> {
        if let Some(known) = self.0.get(job) {
            return Ok(*known);
        }
        let estimate = Estimate::by(&reading.history().durations(tenant, job, reading.at, BY)?);
        self.0.insert(job.to_owned(), estimate);
        Ok(estimate)
    }
}

/// A job on the way to the end of a buildset.
#[derive(Clone, Debug)]
pub(crate) struct Ahead {
    pub(crate) name: String,
    /// The jobs it waits for.
    pub(crate) after: Vec<String>,
    /// How much longer it takes itself, in milliseconds; `None` where nobody knows.
    pub(crate) left: Option<i64>,
}

/// How long until the last job is over, in milliseconds: jobs wait for others. `None` where nothing is
/// known.
pub(crate) fn longest(jobs: &[Ahead]) -> Option<i64> {
    if jobs.iter().all(|job| job.left.is_none()) {
        return None;
    }
    let place: BTreeMap<&str, usize> = jobs.iter().enumerate().map(|(place, job)| (job.name.as_str(), place)).collect();
    let mut ends: Vec<i64> = jobs.iter().map(|job| job.left.unwrap_or(0)).collect();
    for _ in 0..jobs.len().min(ROUNDS) {
        let mut moved = false;
        for (own, job) in jobs.iter().enumerate() {
            let left = job.left.unwrap_or(0);
            // What is over waits for nothing any more.
            if job.left == Some(0) {
                continue;
            }
            let before = job.after.iter().filter_map(|name| ends.get(*place.get(name.as_str())?)).max();
            let end = before.copied().unwrap_or(0).saturating_add(left);
            if let Some(known) = ends.get_mut(own)
                && *known < end
            {
                *known = end;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    ends.into_iter().max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(name: &str, after: &[&str], left: Option<i64>) -> Ahead {
        Ahead { name: name.into(), after: after.iter().map(|name| (*name).to_owned()).collect(), left }
    }

    #[test]
    fn jobs_that_wait_for_others_end_after_them() {
        let jobs = [
            ahead("publish", &["package"], Some(5)),
            ahead("package", &["unit", "lint"], Some(20)),
            ahead("unit", &[], Some(100)),
            ahead("lint", &[], Some(30)),
        ];
        assert_eq!(longest(&jobs), Some(125));
        assert_eq!(longest(&[ahead("unit", &[], None)]), None);
        assert_eq!(longest(&[ahead("unit", &[], None), ahead("lint", &["unit"], Some(7))]), Some(7));
        assert_eq!(longest(&[]), None);
        // What is over does not wait, and a ring ends too.
        assert_eq!(longest(&[ahead("a", &["b"], Some(0)), ahead("b", &[], Some(4))]), Some(4));
        assert!(longest(&[ahead("a", &["b"], Some(1)), ahead("b", &["a"], Some(1))]).is_some());
    }

    #[test]
    fn an_estimate_tells_its_range_and_its_base() {
        let estimate = Estimate::by(&[1_000, 3_000, 2_000]).unwrap();
        assert_eq!(estimate, Estimate { mean_ms: 2_000, least_ms: 1_000, most_ms: 3_000, runs: 3 });
        assert_eq!(estimate.says(), "usually 1.0 s to 3.0 s, by its last 3 successes");
        assert_eq!(Estimate::read(&serde_json::json!(estimate.told())), Some(estimate));
        assert_eq!(Estimate::by(&[5_000]).unwrap().says(), "usually 5.0 s, by its last success");
        assert_eq!((Estimate::by(&[]), Estimate::read(&Json::Null)), (None, None));
    }
}
