//! Pragmas: how the rest of one file on one branch is to be read.

use serde::{Deserialize, Serialize};

use crate::regexes::{Anchor, Pattern};
use crate::schema::{Attribute, Kind, Sink, Stanza, attribute};
use crate::yaml::{Mark, Node};

/// Attributes of a pragma.
pub const TABLE: &[Attribute] = &[
    attribute("implied-branch-matchers", Kind::Bool).default("as the tenant says, or by the number of branches"),
    attribute("implied-branches", Kind::Patterns(Anchor::Start)).default("the branch of the file"),
];

/// What the pragmas of a file say.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pragma {
    /// Whether definitions get a branch matcher they do not spell out.
    pub implied_branch_matchers: Option<bool>,
    /// What that matcher is, instead of exactly the branch of the file.
    pub implied_branches: Option<Vec<Pattern>>,
}

/// Reads a pragma into what earlier ones of the file said.
pub fn read(sink: &mut Sink<'_>, node: &Node, mark: Mark, pragma: &mut Pragma) {
    let Some(mut stanza) = Stanza::open(sink, "pragma", node, mark, &[TABLE]) else { return };
    if stanza.failed() {
        return;
    }
    if let Some(truth) = stanza.bool("implied-branch-matchers") {
        pragma.implied_branch_matchers = Some(truth);
    }
    let patterns = stanza.patterns("implied-branches", Anchor::Start);
    // Zuul: of a pragma with a broken expression the rest counts.
    if patterns.is_some() && !stanza.failed() {
        pragma.implied_branches = patterns;
    }
}
