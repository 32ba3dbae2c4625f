//! The layout an item is tested with. Zuul: dynamic (speculative) configuration.
//!
//! Changes of untrusted projects are used at once; changes of config projects are looked through, but
//! nothing is tested with them before they are merged.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::BuildsetRow;
use gatelog_record::draft::gate::{
    ConfigFileSet, ConfigRemark, LayoutMade, LayoutOutcome, LayoutPurpose, LayoutReady, LayoutWanted, ProjectBranch,
};
use gatelog_record::event::GateEvent;
use gatelog_record::{BlobHash, BuildsetId, ItemId};
use gatelog_rules_config::{Problem, relevant};

use crate::decision::Decision;
use crate::queue_pass::Walk;

/// How much of its configuration a chain changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Touched {
    trusted: bool,
    untrusted: bool,
}

/// How many of the errors, and of the warnings, are told to a change.
const MOST_REMARKS: usize = 50;

/// What is said to a change of its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigRemarks {
    /// The errors it brings, and all in the branches it changes itself: it is not tested with them.
    pub errors: Vec<ConfigRemark>,
    /// The same of warnings, and the older spellings it brings: told with its report, whatever that is.
    pub warnings: Vec<ConfigRemark>,
}

/// What a change is told whose configuration is wrong because of one that it needs.
pub const AHEAD_INVALID: &str = "It needs a change whose configuration is wrong, and can not be tested before that is \
                                 mended.";

/// What is said to a change whose layout has these `problems`, the one ahead those, and which changes these branches.
pub fn config_remarks(problems: &[Problem], ahead: &[Problem], changed: &[ProjectBranch]) -> ConfigRemarks {
    let changed: BTreeSet<(String, String)> =
        changed.iter().map(|at| (at.project.clone(), at.branch.clone())).collect();
    let found = relevant(problems, ahead, &changed);
    ConfigRemarks {
        errors: remarks(&found.errors, "errors: mend these first"),
        warnings: remarks(&found.warnings, "warnings"),
    }
}

fn remarks(problems: &[&Problem], rest: &str) -> Vec<ConfigRemark> {
    let remark = |problem: &&Problem| ConfigRemark {
        project: problem.place.context.project.clone(),
        branch: problem.place.context.branch.clone(),
        path: problem.place.context.path.clone(),
        line: problem.place.line,
        text: problem.to_string(),
    };
    let mut remarks: Vec<ConfigRemark> = problems.iter().take(MOST_REMARKS).map(remark).collect();
    let more = problems.len().saturating_sub(MOST_REMARKS);
    if more > 0 {
        remarks.push(ConfigRemark { text: format!("and {more} more {rest}"), ..ConfigRemark::default() });
    }
    remarks
}

impl Decision<'_> {
    /// The item's state is there: finds out which layout it is tested with.
    pub(crate) fn choose_layout(&mut self, walk: &Walk<'_>, item: ItemId, buildset: BuildsetId) -> Result<(), Refusal> {
        if self.awaits_config(walk.tenant) {
            return Ok(());
        }
        let Some(set) = self.buildset(buildset) else { return Ok(()) };
        let purpose = match self.own_layout(walk.tenant, set) {
            Some(LayoutPurpose::Use) => LayoutPurpose::Use,
            Some(purpose) => return self.want_layout(walk, item, buildset, purpose),
            None => return self.want_freeze(walk, item, buildset),
        };
        let own = set.state.as_ref().is_some_and(|state| state.item_touches_config);
        // What the configuration ahead comes to is not known before the item there has its layout.
        if self.nearest(walk).is_some_and(|nearest| nearest.layout.is_none()) {
            return Ok(());
        }
        // What changes nothing itself is tested with what the item ahead is tested with, or with what is in force: what
        // was merged and not announced is not yet. Of a branch that could not be read before, this is the first word.
        let first_word = || self.nearest(walk).is_none() && self.tells_first(walk.tenant, buildset);
        match own || first_word() {
            true => self.want_layout(walk, item, buildset, purpose),
            false => self.want_freeze(walk, item, buildset),
        }
    }

    /// Whether a state holds configuration of a branch of which nothing is known otherwise.
    fn tells_first(&self, tenant: &str, buildset: BuildsetId) -> bool {
        let state = self.buildset(buildset).and_then(|set| set.state.as_ref());
        let unknown = |prepared: &ConfigFileSet| {
            let key = (tenant.to_owned(), prepared.at.project.clone(), prepared.at.branch.clone());
            !prepared.files.is_empty() && self.gate().config_files.row(&key).is_none()
        };
        state.is_some_and(|state| state.config.iter().any(unknown))
    }

    /// The layout that is made next for a state, if what it changes asks for one.
    pub(crate) fn own_layout(&self, tenant: &str, set: &BuildsetRow) -> Option<LayoutPurpose> {
        let touched = self.touched(tenant, set);
        match touched.trusted && !set.validated {
            true => Some(LayoutPurpose::Validate),
            false => touched.untrusted.then_some(LayoutPurpose::Use),
        }
    }

    /// The buildset of the nearest item ahead that is live, or has a layout without being that.
    pub(crate) fn nearest(&self, walk: &Walk<'_>) -> Option<&BuildsetRow> {
        let live = |item: ItemId| self.item(item).is_some_and(|row| row.live);
        let sets = walk.chain.iter().rev().filter_map(|ahead| Some((*ahead, self.buildset_of(*ahead)?.1)));
        sets.filter(|(ahead, set)| set.layout.is_some() || live(*ahead)).map(|(_, set)| set).next()
    }

    fn touched(&self, tenant: &str, set: &BuildsetRow) -> Touched {
        let mut touched = Touched::default();
        let Some(row) = self.tenant(tenant) else { return touched };
        for prepared in set.state.iter().flat_map(|state| &state.config) {
            let Some(project) = row.project(&prepared.at.project).filter(|project| project.reads_config) else {
                continue;
            };
            let key = (tenant.to_owned(), prepared.at.project.clone(), prepared.at.branch.clone());
            if self.gate().config_files.row(&key).is_none_or(|known| known.files != prepared.files) {
                touched.trusted |= project.trusted;
                touched.untrusted |= !project.trusted;
            }
        }
        touched
    }

    pub(crate) fn want_layout(
        &mut self,
        walk: &Walk<'_>,
        item: ItemId,
        buildset: BuildsetId,
        purpose: LayoutPurpose,
    ) -> Result<(), Refusal> {
        let Some(row) = self.tenant(walk.tenant) else { return Ok(()) };
        let settings = row.loaded.settings;
        let mut files: BTreeMap<ProjectBranch, ConfigFileSet> =
            self.config_files(walk.tenant, None).into_iter().map(|set| (set.at.clone(), set.clone())).collect();
        let Some(set) = self.buildset(buildset) else { return Ok(()) };
        for prepared in set.state.iter().flat_map(|state| &state.config) {
            let Some(project) = row.project(&prepared.at.project) else { continue };
            if project.reads_config && (!project.trusted || purpose == LayoutPurpose::Validate) {
                // Whether a branch is the default is what was read, not what a merge may guess.
                let default = files.get(&prepared.at).map_or(prepared.default, |known| known.default);
                files.insert(prepared.at.clone(), ConfigFileSet { default, ..prepared.clone() });
            }
        }
        let of_tenant = self.gate().layouts.row(&walk.tenant.to_owned());
        // Nothing is tested with what is only looked through.
        let base = of_tenant.filter(|_| purpose == LayoutPurpose::Use).map(|layout| layout.layout);
        let chain = self.gate().chains.row(&buildset).map(|steps| &**steps).unwrap_or_default();
        let own = chain.iter().filter(|step| step.item == item).map(|step| &step.subject);
        let changed = own
            .filter_map(|subject| {
                let (connection, project) = (subject.connection.clone(), subject.project.clone());
                Some(ProjectBranch { connection, project, branch: subject.branch.clone()? })
            })
            .collect();
        let ahead = self.nearest(walk).and_then(|set| set.layout_problems).or(of_tenant.map(|layout| layout.problems));
        let work = self.deciding.id();
        self.emit(GateEvent::LayoutWanted(LayoutWanted {
            work,
            tenant: walk.tenant.to_owned(),
            purpose,
            item: Some(item),
            buildset: Some(buildset),
            settings,
            files: files.into_values().collect(),
            ahead,
            changed,
            base,
        }))
    }

    /// A layout was made for an item.
    pub(crate) fn item_layout_made(
        &mut self,
        made: &LayoutMade,
        item: ItemId,
        buildset: BuildsetId,
        purpose: LayoutPurpose,
    ) -> Result<(), Refusal> {
        let problem = match &made.outcome {
            LayoutOutcome::Made { introduced, .. } if introduced.is_empty() => None,
            LayoutOutcome::Made { introduced, .. } => {
                let validated = self.buildset(buildset).is_some_and(|set| set.validated);
                let texts: Vec<&str> = introduced.iter().map(|remark| remark.text.as_str()).collect();
                let mut message = texts.join("\n\n");
                if purpose == LayoutPurpose::Use && validated {
                    // Right together with a change to a config project, wrong without it.
                    message = format!(
                        "The configuration depends on a change to a config project and can not be used until that \
                         is merged.\n\n{message}"
                    );
                }
                Some(message)
            }
            LayoutOutcome::Failed { message, .. } => Some(format!("The configuration could not be loaded: {message}.")),
        };
        self.emit(GateEvent::LayoutReady(LayoutReady { made: made.clone(), item, buildset, purpose, problem }))
    }

    /// The layout an item's jobs are frozen with, and, where its configuration matters, the one ahead.
    pub(crate) fn layouts_for(&self, walk: &Walk<'_>, buildset: BuildsetId) -> Option<(BlobHash, Option<BlobHash>)> {
        let of_tenant = self.gate().layouts.row(&walk.tenant.to_owned())?.layout;
        let set = self.buildset(buildset)?;
        let touched = self.touched(walk.tenant, set);
        let ahead = self.nearest(walk).and_then(|set| set.layout).unwrap_or(of_tenant);
        let layout = match set.layout {
            Some(own) => own,
            // What does not merge would have been tested with what the item ahead is tested with.
            None if touched.untrusted || set.state.is_none() => ahead,
            None => of_tenant,
        };
        let own = set.state.as_ref().is_some_and(|state| state.item_touches_config);
        Some((layout, (own && ahead != layout).then_some(ahead)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatelog_rules_config::{ConfigFile, LoadInput, TenantProject, TenantSettings, load};

    /// What is said to a change whose configuration has as many errors.
    fn told(errors: usize) -> Vec<ConfigRemark> {
        let mut project = TenantProject::new("git", "lib", false);
        project.branches = vec!["master".into()];
        let (at, branch) = (project.canonical_name.clone(), "master".to_owned());
        let changed = [ProjectBranch { connection: "git".into(), project: at.clone(), branch: branch.clone() }];
        let tenant = TenantSettings { name: "acme".into(), projects: vec![project], ..TenantSettings::default() };
        let text = (0..errors).map(|number| format!("- job: {{name: j{number}, weather: fine}}\n")).collect();
        let (_, problems) = load(&LoadInput {
            tenant,
            files: vec![ConfigFile { project: at, branch, path: "zuul.yaml".into(), text }],
        });
        config_remarks(&problems, &[], &changed).errors
    }

    #[test]
    fn the_first_errors_are_told_and_of_the_others_how_many_they_are() {
        let remarks = told(MOST_REMARKS);
        assert_eq!(remarks.len(), MOST_REMARKS);
        assert!(remarks.iter().all(|remark| remark.text.contains("weather") && remark.path == "zuul.yaml"));
        let remarks = told(MOST_REMARKS + 2);
        assert_eq!(remarks.len(), MOST_REMARKS + 1);
        let last = remarks.last().unwrap();
        assert_eq!((last.text.as_str(), last.line), ("and 2 more errors: mend these first", 0));
    }
}
