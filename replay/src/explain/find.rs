//! What people mean by a name.

use gatelog_record::{BuildId, BuildsetId, Domain, EventRef, ItemId, LeaseId, NodeId, Partition};

use super::ExplainError;
use super::index::{ChangeName, Index};

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// An item of a pipeline's queue.
    Item(ItemId),
    /// A buildset.
    Buildset(BuildsetId),
    /// A build.
    Build(BuildId),
    /// A change, through all pipelines.
    Change {
        /// The tenant.
        tenant: String,
        /// The project's canonical name.
        project: String,
        /// The change.
        change: String,
    },
    /// A lease: what one attempt of a build was given.
    Lease(LeaseId),
    /// A node.
    Node(NodeId),
    /// A worker, by its whole name.
    Worker(String),
    /// An event.
    Event(EventRef),
}

/// Whether a change, with its URL, is what was said.
type Grade<'g> = &'g dyn Fn(&ChangeName, &str) -> bool;

/// The fewest digits of a uuid that are taken for one.
const MIN_PREFIX: usize = 4;
/// How many names a message lists.
const SHOWN: usize = 8;

impl Index {
    /// What a name stands for: an event's position, a change, or the beginning of a uuid, in this order.
    pub fn find(&self, what: &str, tenant: Option<&str>) -> Result<Found, ExplainError> {
        if let Some(tenant) = tenant
            && !self.tenants.contains(tenant)
        {
            let tenants: Vec<&str> = self.tenants.iter().map(String::as_str).collect();
            return Err(ExplainError::NoTenant {
                tenant: tenant.to_owned(),
                did_you_mean: nearest(tenant, tenants.iter().copied()),
            });
        }
        if let Some(event) = position(what)? {
            let newest = self.newest.get(&event.partition).copied().unwrap_or_default();
            if (1..=newest).contains(&event.sequence) {
                return Ok(Found::Event(event));
            }
            if what.contains(':') || what.len() < MIN_PREFIX {
                return Err(ExplainError::NoEvent { event, newest });
            }
        }
        if let Some(change) = self.change(what, tenant)? {
            let ChangeName { tenant, project, change } = change.clone();
            return Ok(Found::Change { tenant, project, change });
        }
        match self.by_prefix(what, tenant) {
            Err(ExplainError::Unknown { .. }) if tenant.is_none() && self.workers.contains_key(what) => {
                Ok(Found::Worker(what.to_owned()))
            }
            other => other,
        }
    }

    fn change(&self, what: &str, tenant: Option<&str>) -> Result<Option<&ChangeName>, ExplainError> {
        // A patchset is no part of a change's name.
        let bare = match what.rsplit_once(',') {
            Some((bare, patchset)) if patchset.chars().all(|c| c.is_ascii_digit()) => bare,
            _ => what,
        };
        let in_tenant = |name: &ChangeName| tenant.is_none_or(|tenant| name.tenant == tenant);
        // The closest meaning first; only where nothing has it does the next count.
        let grades: [Grade<'_>; 3] = [
            &|name, url| url == bare || format!("{} {}", name.project, name.change) == bare,
            &|name, _| name.change == bare,
            &|name, _| {
                name.change.rsplit('/').next() == Some(bare) || format!("{}/{}", name.project, name.change) == bare
            },
        ];
        for grade in grades {
            let hits: Vec<&ChangeName> = self
                .changes
                .iter()
                .filter(|(name, note)| in_tenant(name) && grade(name, &note.url))
                .map(|(name, _)| name)
                .collect();
            match hits.as_slice() {
                [] => {}
                [one] => return Ok(Some(one)),
                many => {
                    let candidates = many.iter().take(SHOWN);
                    let candidates = candidates.map(|name| match tenant {
                        Some(_) => format!("{} {}", name.project, name.change),
                        None => format!("{} {} (tenant {})", name.project, name.change, name.tenant),
                    });
                    return Err(ExplainError::Ambiguous {
                        what: what.to_owned(),
                        candidates: candidates.collect(),
                        count: many.len(),
                    });
                }
            }
        }
        Ok(None)
    }

    fn by_prefix(&self, what: &str, tenant: Option<&str>) -> Result<Found, ExplainError> {
        let prefix = what.replace('-', "").to_lowercase();
        let digits = prefix.len() >= MIN_PREFIX && prefix.len() <= 32 && prefix.chars().all(|c| c.is_ascii_hexdigit());
        let unknown = || {
            let names = self.changes.keys().filter(|name| tenant.is_none_or(|tenant| name.tenant == tenant));
            let all: Vec<&str> = names.flat_map(|name| [name.change.as_str(), last(&name.change)]).collect();
            ExplainError::Unknown { what: what.to_owned(), did_you_mean: nearest(what, all.into_iter()) }
        };
        if !digits {
            return Err(unknown());
        }
        let fits = |id: String| id.starts_with(&prefix);
        let of_tenant =
            |item: &ItemId| tenant.is_none_or(|tenant| self.items.get(item).is_some_and(|note| note.tenant == tenant));
        let mut hits: Vec<(Found, String)> = Vec::new();
        for (item, note) in &self.items {
            if fits(item.to_string()) && of_tenant(item) {
                let say = format!("{item}: item {} in {}", self.say_item(*item), note.pipeline);
                hits.push((Found::Item(*item), say));
            }
        }
        for (buildset, item) in &self.buildsets {
            if fits(buildset.to_string()) && of_tenant(item) {
                hits.push((Found::Buildset(*buildset), format!("{buildset}: buildset of {}", self.say_item(*item))));
            }
        }
        for (build, note) in &self.builds {
            if fits(build.to_string()) && of_tenant(&note.item) {
                let say = format!("{build}: build {} of {}", note.job, self.say_item(note.item));
                hits.push((Found::Build(*build), say));
            }
        }
        for (lease, build) in &self.leases {
            if fits(lease.to_string()) && self.builds.get(build).is_none_or(|note| of_tenant(&note.item)) {
                hits.push((Found::Lease(*lease), format!("{lease}: lease of {}", self.names.build(*build))));
            }
        }
        for (node, lease) in &self.nodes {
            let build = self.leases.get(lease);
            let note = build.and_then(|build| self.builds.get(build));
            if fits(node.to_string()) && note.is_none_or(|note| of_tenant(&note.item)) {
                let of = build.map(|build| self.names.build(*build)).unwrap_or_default();
                hits.push((Found::Node(*node), format!("{node}: node of {of}")));
            }
        }
        match hits.len() {
            0 => Err(unknown()),
            1 => hits.pop().map(|(found, _)| found).ok_or_else(unknown),
            count => Err(ExplainError::Ambiguous {
                what: what.to_owned(),
                candidates: hits.into_iter().take(SHOWN).map(|(_, say)| say).collect(),
                count,
            }),
        }
    }
}

fn last(change: &str) -> &str {
    change.rsplit('/').next().unwrap_or(change)
}

/// An event's position: `117`, `gate/0:117`, `capacity:3`.
pub fn position(what: &str) -> Result<Option<EventRef>, ExplainError> {
    let gate = Partition { domain: Domain::Gate, index: 0 };
    if !what.is_empty() && what.chars().all(|c| c.is_ascii_digit()) {
        return Ok(what.parse().ok().map(|sequence| EventRef { partition: gate, sequence }));
    }
    let Some((place, sequence)) = what.rsplit_once(':') else { return Ok(None) };
    let (domain, index) = place.split_once('/').unwrap_or((place, "0"));
    let Some(domain) = Domain::from_name(domain) else { return Ok(None) };
    match (index.parse(), sequence.parse()) {
        (Ok(index), Ok(sequence)) => Ok(Some(EventRef { partition: Partition { domain, index }, sequence })),
        _ => Err(ExplainError::NotAPosition(what.to_owned())),
    }
}

/// The name most like what was said, if any is like it at all.
pub(crate) fn nearest<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let allowed = (what.chars().count() / 3).max(1);
    names
        .map(|name| (distance(what, name), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, name)| name.to_owned())
}

/// How many letters must be put in, taken out, changed or swapped with their neighbour.
fn distance(one: &str, other: &str) -> usize {
    // Names longer than this are not compared letter by letter.
    const LONGEST: usize = 128;
    let (one, other): (Vec<char>, Vec<char>) =
        (one.chars().take(LONGEST).collect(), other.chars().take(LONGEST).collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let at = |row: &[usize], j: usize| row.get(j).copied().unwrap_or(usize::MAX / 2);
            let mut best = (at(&above, j + 1) + 1).min(at(&row, j) + 1).min(at(&above, j) + usize::from(a != b));
            let swapped = i > 0 && j > 0 && one.get(i - 1) == Some(b) && other.get(j - 1) == Some(a);
            if swapped {
                best = best.min(at(&before, j - 1) + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above.last().copied().unwrap_or(one.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_fingers_is_understood_and_another_word_is_not() {
        let names = ["show-miles", "add-miles", "patch-release"];
        assert_eq!(nearest("show-mlies", names.into_iter()).as_deref(), Some("show-miles"));
        assert_eq!(nearest("show-mile", names.into_iter()).as_deref(), Some("show-miles"));
        assert_eq!(nearest("weather", names.into_iter()), None);
        assert_eq!((distance("", "abc"), distance("abc", "abc"), distance("ab", "ba")), (3, 0, 1));
    }

    #[test]
    fn positions_are_numbers_or_name_their_partition() {
        let at = |domain, index, sequence| Some(EventRef { partition: Partition { domain, index }, sequence });
        assert_eq!(position("117").unwrap(), at(Domain::Gate, 0, 117));
        assert_eq!(position("capacity/2:31").unwrap(), at(Domain::Capacity, 2, 31));
        assert_eq!(position("capacity:31").unwrap(), at(Domain::Capacity, 0, 31));
        assert_eq!(position("https://git.demo/library").unwrap(), None);
        assert_eq!(
            position("gate/0:x").unwrap_err().to_string(),
            "\"gate/0:x\" is no event: expected a sequence, such as 117 or capacity/0:31"
        );
    }
}
