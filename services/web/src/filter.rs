//! Filters of lists, with Zuul's meaning.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use gatelog_gate_state::history::{ItemEntry, List};
use gatelog_record::ItemId;
use gatelog_record::draft::gate::Subject;

use crate::error::ApiError;
use crate::query::Query;
use crate::reading::Reading;
use crate::shape::short;

/// The most rows one answer lists.
pub(crate) const MAX_LIMIT: u64 = 1_000;
/// The furthest an answer may begin.
pub(crate) const MAX_SKIP: u64 = 100_000;
/// The most rows looked at for one answer: the tables are held meanwhile.
pub(crate) const MAX_LOOKED_AT: usize = 20_000;
/// The largest row number: what JavaScript can still count.
pub(crate) const MAX_INDEX: u64 = 1 << 53;

/// Whether a text is what a filter asks for. Zuul: `*` stands for anything in project, branch, pipeline
/// and job.
pub(crate) fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(first) = parts.next() else { return text.is_empty() };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    true
}

/// Values of which one must fit; none fits all.
pub(crate) fn any(values: &[&str], fit: impl Fn(&str) -> bool) -> bool {
    values.is_empty() || values.iter().any(|value| fit(value))
}

/// What part of a list is wanted.
pub(crate) struct Page {
    pub(crate) limit: usize,
    pub(crate) skip: usize,
    pub(crate) index_min: u64,
    pub(crate) index_max: u64,
}

impl Page {
    pub(crate) fn read(query: &Query) -> Result<Page, ApiError> {
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Page {
            limit: size(query.number("limit", MAX_LIMIT)?.unwrap_or(50)),
            skip: size(query.number("skip", MAX_SKIP)?.unwrap_or(0)),
            index_min: query.number("idx_min", MAX_INDEX)?.unwrap_or(0),
            index_max: query.number("idx_max", MAX_INDEX)?.unwrap_or(u64::MAX),
        })
    }

    pub(crate) fn holds(&self, index: u64) -> bool {
        (self.index_min..=self.index_max).contains(&index)
    }
}

/// Filters on what an item holds: one of its changes must fit all of them.
pub(crate) struct SubjectFilter<'q> {
    projects: Vec<&'q str>,
    branches: Vec<&'q str>,
    changes: Vec<&'q str>,
    patchsets: Vec<&'q str>,
    refs: Vec<&'q str>,
    revisions: Vec<&'q str>,
}

impl<'q> SubjectFilter<'q> {
    pub(crate) fn read(query: &'q Query) -> SubjectFilter<'q> {
        SubjectFilter {
            projects: query.all("project"),
            branches: query.all("branch"),
            changes: query.all("change"),
            patchsets: query.all("patchset"),
            refs: query.all("ref"),
            revisions: query.all("newrev"),
        }
    }

    fn fits(&self, subject: &Subject) -> bool {
        let same = |values: &[&str], text: &Option<String>| any(values, |value| text.as_deref() == Some(value));
        any(&self.projects, |value| fits(value, short(&subject.project)) || fits(value, &subject.project))
            && any(&self.branches, |value| subject.branch.as_deref().is_some_and(|branch| fits(value, branch)))
            && same(&self.changes, &subject.change)
            && same(&self.patchsets, &subject.patchset)
            && any(&self.refs, |value| subject.git_ref == value)
            && same(&self.revisions, &subject.commit)
    }

    /// Whether an item holds something that fits.
    pub(crate) fn item(&self, item: &ItemEntry) -> bool {
        item.subjects.iter().any(|subject| self.fits(subject))
    }

    /// The narrowest list that holds everything that fits: of a change, or of a project. `projects` are
    /// the canonical names of the tenant's projects.
    pub(crate) fn list<'a>(&'a self, projects: &'a [String]) -> Option<List<'a>> {
        if let [change] = self.changes.as_slice() {
            return Some(List::Change(change));
        }
        let [project] = self.projects.as_slice() else { return None };
        if project.contains('*') {
            return None;
        }
        let mut named = projects.iter().filter(|canonical| canonical == project || short(canonical) == *project);
        match (named.next(), named.next()) {
            (Some(one), None) => Some(List::Project(one)),
            _ => None,
        }
    }
}

/// Items looked at for one answer, each read once.
#[derive(Default)]
pub(crate) struct Items {
    known: BTreeMap<ItemId, Option<ItemEntry>>,
}

impl Items {
    /// An item as of the moment asked about.
    pub(crate) fn get(&mut self, reading: &Reading<'_>, item: ItemId) -> Result<Option<&ItemEntry>, ApiError> {
        Ok(match self.known.entry(item) {
            Entry::Occupied(known) => known.into_mut().as_ref(),
            Entry::Vacant(place) => place.insert(reading.history().item(item, reading.at)?).as_ref(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_star_stands_for_anything_and_without_one_texts_must_be_equal() {
        for (pattern, text, expected) in [
            ("library", "library", true),
            ("library", "library2", false),
            ("lib*", "library", true),
            ("*ary", "library", true),
            ("*", "", true),
            ("a*b*c", "a--b--c", true),
            ("a*b*c", "a--c--b", false),
            ("a*a", "a", false),
            ("", "x", false),
            ("*ü*", "grün", true),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }
}
