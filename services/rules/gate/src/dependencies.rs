//! What a change needs, in an order in which it can be tested.

use std::collections::BTreeSet;

use gatelog_record::draft::gate::ChangeKey;

use crate::decision::Decision;

/// The most changes one change may need, over any number of steps.
const MAX_NEEDS: usize = 200;

/// Why there is no such order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NeedsError {
    /// Changes need each other.
    Cycle(Vec<ChangeKey>),
    /// A needed change does not exist, or nothing is known of it.
    Missing(ChangeKey),
    /// A needed change was closed without being merged.
    Closed(ChangeKey),
    /// There are too many.
    TooMany,
}

impl NeedsError {
    /// A code, and a sentence for people.
    pub(crate) fn describe(&self) -> (&'static str, String) {
        match self {
            NeedsError::Cycle(members) => {
                let names: Vec<&str> = members.iter().map(|key| key.change.as_str()).collect();
                ("dependency-cycle", format!("These changes depend on each other: {}.", names.join(", ")))
            }
            NeedsError::Missing(key) => {
                ("needs-missing", format!("It depends on {} of {}, which does not exist.", key.change, key.project))
            }
            NeedsError::Closed(key) => {
                ("needs-abandoned", format!("It depends on {} of {}, which was abandoned.", key.change, key.project))
            }
            NeedsError::TooMany => ("needs-limit", format!("It depends on more than {MAX_NEEDS} changes.")),
        }
    }
}

impl Decision<'_> {
    /// What a change needs that is not merged, each behind what it needs itself. Without the change.
    pub(crate) fn needs(&self, tenant: &str, change: &ChangeKey) -> Result<Vec<ChangeKey>, NeedsError> {
        let mut order = Vec::new();
        let mut done = BTreeSet::new();
        // Changes on the way from the one asked for to the one looked at, with what is left of their needs.
        let mut path: Vec<(ChangeKey, std::vec::IntoIter<ChangeKey>)> = Vec::new();
        path.push((change.clone(), self.needs_of(tenant, change).into_iter()));
        while let Some((_, rest)) = path.last_mut() {
            let Some(next) = rest.next() else {
                if let Some((finished, _)) = path.pop()
                    && done.insert(finished.clone())
                    && finished != *change
                {
                    order.push(finished);
                }
                continue;
            };
            if let Some(start) = path.iter().position(|(key, _)| *key == next) {
                return Err(NeedsError::Cycle(path.iter().skip(start).map(|(key, _)| key.clone()).collect()));
            }
            if done.contains(&next) {
                continue;
            }
            let Some(row) = self.change(tenant, &next) else { return Err(NeedsError::Missing(next)) };
            if row.facts.merged {
                continue;
            }
            if !row.facts.open {
                return Err(NeedsError::Closed(next));
            }
            if order.len() + path.len() > MAX_NEEDS {
                return Err(NeedsError::TooMany);
            }
            let needs = self.needs_of(tenant, &next);
            path.push((next, needs.into_iter()));
        }
        Ok(order)
    }

    /// What a change needs directly, as far as it is known.
    pub(crate) fn needs_of(&self, tenant: &str, change: &ChangeKey) -> Vec<ChangeKey> {
        self.change(tenant, change).map(|row| row.facts.needs.clone()).unwrap_or_default()
    }
}
