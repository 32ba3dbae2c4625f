//! What stands in a queue only because something behind it needs it: whether its configuration is right.
//!
//! Zuul: an item that is not live is merged and given a layout where it changes configuration, and nothing is tested
//! on top of one whose configuration is wrong: not even what would mend it.

use gatelog_deciding::Refusal;
use gatelog_gate_state::live::{BuildsetRow, ItemRow, Phase, ProblemKind};
use gatelog_record::ItemId;
use gatelog_record::draft::gate::{BuildsetOpened, ItemResult, LayoutPurpose};
use gatelog_record::event::GateEvent;
use gatelog_rules_config::is_config_path;

use crate::decision::Decision;
use crate::ground::Ground;
use crate::item_layout::AHEAD_INVALID;
use crate::queue_pass::Walk;

impl Decision<'_> {
    /// Brings what is not live as far as its own configuration asks for.
    pub(crate) fn look_through(&mut self, walk: &Walk<'_>, index: usize, item: ItemId) -> Result<(), Refusal> {
        let Some((buildset, set)) = self.buildset_of(item) else {
            let wanted = self.item(item).is_some_and(|row| self.may_change_configuration(row));
            // What already stands on it stands on it as it is.
            let behind = walk.items.get(index + 1..).unwrap_or_default();
            let stood_on = behind.iter().any(|other| self.buildset_of(*other).is_some());
            let settled = wanted && !stood_on && walk.ground(self, Ground::is_settled);
            return match settled && self.wrong_ahead(walk).is_none() {
                true => self.open_buildset(walk, item),
                false => Ok(()),
            };
        };
        match self.layout_to_look_through(walk.tenant, set) {
            Some(purpose) if !self.awaits_config(walk.tenant) => self.want_layout(walk, item, buildset, purpose),
            _ => Ok(()),
        }
    }

    /// Whether all is known of what is not live that those behind it wait for.
    pub(crate) fn is_looked_through(&self, row: &ItemRow) -> bool {
        let Some(set) = row.buildset.and_then(|buildset| self.buildset(buildset)) else { return true };
        match set.phase {
            Phase::Opened | Phase::Preparing | Phase::Layout => false,
            _ => self.layout_to_look_through(&row.tenant, set).is_none(),
        }
    }

    /// What is wrong with the configuration of one of those ahead that are only there because they are needed.
    pub(crate) fn wrong_ahead(&self, walk: &Walk<'_>) -> Option<&str> {
        let needed = walk.chain.iter().filter(|ahead| self.item(**ahead).is_some_and(|row| !row.live));
        let mut problems = needed.filter_map(|ahead| self.buildset_of(*ahead)?.1.problem.as_ref());
        problems.find(|problem| problem.kind == ProblemKind::Config).map(|problem| problem.message.as_str())
    }

    /// An item leaves, untested, because what it needs has a wrong configuration: that is told, too.
    pub(crate) fn leave_behind_wrong(&mut self, walk: &Walk<'_>, item: ItemId, wrong: &str) -> Result<(), Refusal> {
        let buildset = self.deciding.id();
        self.emit(GateEvent::BuildsetOpened(BuildsetOpened { buildset, item, ahead: walk.chain.clone() }))?;
        let detail = format!("{AHEAD_INVALID}\n\n{wrong}");
        self.leave_failing(item, ItemResult::ConfigError, "config-error", &detail, true)
    }

    /// The layout that must be made next to know whether what is not live is right.
    fn layout_to_look_through(&self, tenant: &str, set: &BuildsetRow) -> Option<LayoutPurpose> {
        let own = set.state.as_ref().is_some_and(|state| state.item_touches_config);
        if set.phase != Phase::Prepared || !own {
            return None;
        }
        self.own_layout(tenant, set)
    }

    /// Whether an item may change configuration, as far as it is known without merging it.
    pub(crate) fn may_change_configuration(&self, row: &ItemRow) -> bool {
        row.subjects.iter().any(|subject| {
            let reads = self.tenant(&row.tenant).and_then(|tenant| tenant.project(&subject.project));
            if reads.is_none_or(|project| !project.reads_config) {
                return false;
            }
            let facts = subject.change_key().and_then(|key| self.change(&row.tenant, &key));
            let Some(files) = facts.and_then(|change| change.facts.files.as_ref()) else { return true };
            let known = self.config_files(&row.tenant, Some(&subject.project));
            let is_read = |path: &str| known.iter().any(|set| set.files.iter().any(|file| beside(&file.path, path)));
            files.iter().any(|path| is_config_path(path, &[]) || is_read(path))
        })
    }
}

/// Whether two paths are the same or in the same directory below the root: what a tenant's `extra-config-paths` are
/// is not known here, but what was found there is.
fn beside(known: &str, path: &str) -> bool {
    known == path
        || matches!((known.rsplit_once('/'), path.rsplit_once('/')), (Some(one), Some(other)) if one.0 == other.0)
}
