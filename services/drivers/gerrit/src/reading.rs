//! What Zuul reads from an event.
//!
//! Triggers are written for Zuul: their filters must see what Zuul's own driver would show them. Where that is a gap
//! (no account of two kinds of event), it is kept here and said so; the true account is [`Event::actor`].

use serde::{Deserialize, Serialize};

use crate::events::{Account, Event, EventKind, EventVote};
use crate::fields::is_zero;

/// An event as triggers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The event's name, which `event:` of a trigger names.
    pub kind: String,
    /// The project.
    pub project: Option<String>,
    /// The branch of the change, or the one that moved.
    pub branch: Option<String>,
    /// The ref: of the patchset, or the one that moved.
    pub git_ref: Option<String>,
    /// What the ref was.
    pub old: Option<String>,
    /// What the ref is.
    pub new: Option<String>,
    /// The change's number.
    pub change: Option<u64>,
    /// The patchset's number.
    pub patchset: Option<u32>,
    /// The change's address.
    pub url: Option<String>,
    /// Who did it. None where Zuul sees nobody, and `username` and `email` of a trigger then let the event pass.
    pub account: Option<Account>,
    /// The message, with Gerrit's header.
    pub comment: Option<String>,
    /// The votes.
    pub votes: Vec<EventVote>,
    /// Hashtags that were added; none where the event is not about hashtags.
    pub added: Option<Vec<String>>,
    /// Hashtags that were removed.
    pub removed: Option<Vec<String>>,
    /// The topic the change has now.
    pub topic: Option<String>,
    /// Whether a branch moved, came or went.
    pub branch_moved: bool,
    /// Whether the project's default branch is another.
    pub default_branch_changed: bool,
    /// The check that somebody waits for.
    pub check: Option<String>,
}

impl Event {
    /// An event of a kind, with nothing told of it.
    pub(crate) fn of(kind: EventKind) -> Event {
        Event {
            kind,
            created: None,
            project: None,
            change: None,
            patchset: None,
            ref_update: None,
            actor: None,
            reviewer: None,
            votes: Vec::new(),
            comment: None,
            added: Vec::new(),
            removed: Vec::new(),
            old_topic: None,
            reason: None,
            new_rev: None,
            new_head: None,
            check: None,
        }
    }

    /// What Zuul reads from it.
    pub fn reading(&self) -> Reading {
        let mut read = Reading {
            kind: self.kind.as_str().to_owned(),
            project: self.project.clone(),
            branch: None,
            git_ref: None,
            old: None,
            new: None,
            change: None,
            patchset: None,
            url: None,
            account: self.account_zuul_sees().cloned(),
            comment: None,
            votes: Vec::new(),
            added: None,
            removed: None,
            topic: None,
            branch_moved: false,
            default_branch_changed: false,
            check: self.check.clone(),
        };
        if let Some(change) = &self.change {
            read.branch = Some(change.branch.clone());
            read.change = Some(change.number);
            read.url = change.url.clone();
            read.topic = change.topic.clone();
            read.votes = self.votes.clone();
            read.comment = self.comment.clone();
            if self.kind == EventKind::HashtagsChanged {
                read.added = Some(self.added.clone()).filter(|tags| !tags.is_empty());
                read.removed = Some(self.removed.clone()).filter(|tags| !tags.is_empty());
            }
        }
        if let Some(patchset) = &self.patchset {
            read.patchset = Some(patchset.number);
            read.git_ref = Some(patchset.git_ref.clone());
        }
        if let Some(update) = &self.ref_update {
            read.old = Some(update.old.clone());
            read.new = Some(update.new.clone());
            // Releases before 2.12 leave out what all branches begin with.
            let whole = if update.name.starts_with("refs/") {
                update.name.clone()
            } else {
                format!("refs/heads/{}", update.name)
            };
            read.branch = whole.strip_prefix("refs/heads/").map(str::to_owned);
            read.branch_moved = read.branch.is_some();
            read.git_ref = Some(whole);
        }
        if self.kind == EventKind::ProjectHeadUpdated {
            read.default_branch_changed = true;
            read.branch =
                self.new_head.as_deref().map(|head| head.strip_prefix("refs/heads/").unwrap_or(head).to_owned());
            read.git_ref = self.new_head.clone();
        }
        read
    }

    /// Zuul looks for `deleter` where Gerrit writes `remover`, and does not know who changes the state of work in
    /// progress: nobody, to its filters.
    fn account_zuul_sees(&self) -> Option<&Account> {
        match self.kind {
            EventKind::VoteDeleted | EventKind::WipStateChanged | EventKind::PrivateStateChanged => None,
            _ => self.actor.as_ref(),
        }
    }

    /// Whether it is about a meta ref alone, which no trigger wants; its commit is what tells events apart.
    pub fn is_meta(&self) -> bool {
        self.ref_update.as_ref().is_some_and(|update| update.change_of_meta().is_some())
    }
}

impl Reading {
    /// Whether a ref was deleted, which triggers ignore unless they say `ignore-deletes: false`.
    pub fn deletes(&self) -> bool {
        self.new.as_deref().is_some_and(is_zero)
    }
}
