//! The lines of `gerrit stream-events`, as typed events.
//!
//! A line is what others wrote: subjects, comments and names are anybody's text. What is read is checked for its shape,
//! and an error names the field. Kinds that are not known here keep their name and are otherwise read alike, so that a
//! newer Gerrit's events still say which change they are about.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::GerritError;
use crate::fields::{Fields, is_object_id};

/// The longest line of the stream that is read, in bytes. Gerrit's own texts (a message has at most 16 KiB, a commit
/// message rarely more) stay far below.
pub const LINE_MAX: usize = 1_000_000;

/// The most votes, hashtags or parents that are taken from one event.
const MANY: usize = 1_000;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum EventKind {
    /// A patchset was pushed. Patchsets that a submit makes (rebase, cherry-pick) are not announced.
    PatchsetCreated,
    /// Somebody commented or voted.
    CommentAdded,
    /// A vote was taken away by somebody.
    VoteDeleted,
    /// A change merged.
    ChangeMerged,
    /// A change was abandoned.
    ChangeAbandoned,
    /// An abandoned change was taken up again.
    ChangeRestored,
    /// A branch, a tag or another ref moved; each thing that happens to a change moves its meta ref.
    RefUpdated,
    /// A change's topic is another.
    TopicChanged,
    /// A change's hashtags are others.
    HashtagsChanged,
    /// A change became work in progress, or ready.
    WipStateChanged,
    /// A change became private, or public.
    PrivateStateChanged,
    /// A project was made.
    ProjectCreated,
    /// A project's default branch is another.
    ProjectHeadUpdated,
    /// The checks plugin waits for somebody.
    PendingCheck,
    /// Gerrit left out events for this listener.
    DroppedOutput,
    /// Any other kind, by its name.
    Other(String),
}

const KINDS: [(&str, EventKind); 15] = [
    ("patchset-created", EventKind::PatchsetCreated),
    ("comment-added", EventKind::CommentAdded),
    ("vote-deleted", EventKind::VoteDeleted),
    ("change-merged", EventKind::ChangeMerged),
    ("change-abandoned", EventKind::ChangeAbandoned),
    ("change-restored", EventKind::ChangeRestored),
    ("ref-updated", EventKind::RefUpdated),
    ("topic-changed", EventKind::TopicChanged),
    ("hashtags-changed", EventKind::HashtagsChanged),
    ("wip-state-changed", EventKind::WipStateChanged),
    ("private-state-changed", EventKind::PrivateStateChanged),
    ("project-created", EventKind::ProjectCreated),
    ("project-head-updated", EventKind::ProjectHeadUpdated),
    ("pending-check", EventKind::PendingCheck),
    ("dropped-output", EventKind::DroppedOutput),
];

impl EventKind {
    /// Gerrit's name of it.
    pub fn as_str(&self) -> &str {
        match self {
            EventKind::Other(name) => name,
            known => KINDS.iter().find(|(_, kind)| kind == known).map_or("", |(name, _)| name),
        }
    }
}

impl From<String> for EventKind {
    fn from(name: String) -> EventKind {
        KINDS.iter().find(|(known, _)| *known == name).map_or(EventKind::Other(name), |(_, kind)| kind.clone())
    }
}

impl From<EventKind> for String {
    fn from(kind: EventKind) -> String {
        kind.as_str().to_owned()
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Somebody with an account. Gerrit knows them; what they call themselves is their own word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The number of the account, which never changes. The stream does not tell it.
    pub number: Option<u64>,
    /// The login name, where there is one.
    pub username: Option<String>,
    /// The preferred address.
    pub email: Option<String>,
    /// The full name, as they wrote it.
    pub name: Option<String>,
}

/// A vote in an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventVote {
    /// The label, such as `Verified`.
    pub label: String,
    /// The label's description in the event, which Zuul compares; always the label's name as far as seen.
    pub description: String,
    /// The vote now, as a text without plus: `-1`, `0`, `2`.
    pub value: String,
    /// The vote before, only where this event changed it.
    pub old_value: Option<String>,
}

/// What an event says of its change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventChange {
    /// The project.
    pub project: String,
    /// The branch, without `refs/heads/`.
    pub branch: String,
    /// The number, unique on its server.
    pub number: u64,
    /// The Change-Id, which the same change has on other branches too.
    pub id: String,
    /// The address in the web UI.
    pub url: Option<String>,
    /// The topic.
    pub topic: Option<String>,
    /// The hashtags.
    pub hashtags: Vec<String>,
    /// `NEW`, `MERGED` or `ABANDONED`.
    pub status: Option<String>,
    /// Whether it is work in progress.
    pub wip: bool,
    /// The first line of the commit message.
    pub subject: Option<String>,
    /// The commit message of the current patchset.
    pub message: Option<String>,
    /// Who owns it.
    pub owner: Option<Account>,
}

/// What an event says of its patchset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventPatchset {
    /// Its number, from 1.
    pub number: u32,
    /// Its commit.
    pub revision: String,
    /// Its ref, `refs/changes/NN/NUMBER/PATCHSET`.
    pub git_ref: String,
    /// Its commit's parents.
    pub parents: Vec<String>,
    /// What it is to the one before: `REWORK`, `TRIVIAL_REBASE`, `NO_CODE_CHANGE` …
    pub kind: Option<String>,
    /// Who pushed it.
    pub uploader: Option<Account>,
}

/// A ref that moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefUpdate {
    /// The project.
    pub project: String,
    /// The whole name of the ref. Events of releases before 2.12 leave out `refs/heads/`.
    pub name: String,
    /// What it was; zeros where it was made.
    pub old: String,
    /// What it is; zeros where it was deleted.
    pub new: String,
}

impl RefUpdate {
    /// The number of the change whose meta ref this is.
    pub fn change_of_meta(&self) -> Option<u64> {
        let (number, rest) = self.of_change()?;
        (rest == "meta").then_some(number)
    }

    /// The number of the change and the last part of the ref, for `refs/changes/NN/NUMBER/REST`.
    pub fn of_change(&self) -> Option<(u64, &str)> {
        let mut parts = self.name.strip_prefix("refs/changes/")?.splitn(3, '/');
        let (_, number, rest) = (parts.next()?, parts.next()?, parts.next()?);
        Some((number.parse().ok()?, rest))
    }
}

/// One line of the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// When, by Gerrit's clock, in seconds since 1970.
    pub created: Option<u64>,
    /// The project, by whichever field tells it.
    pub project: Option<String>,
    /// The change it is about.
    pub change: Option<EventChange>,
    /// The patchset it is about.
    pub patchset: Option<EventPatchset>,
    /// The ref that moved.
    pub ref_update: Option<RefUpdate>,
    /// Who did it.
    pub actor: Option<Account>,
    /// Whose vote was deleted, or who was added or removed as reviewer.
    pub reviewer: Option<Account>,
    /// All votes of the actor (of the reviewer, where a vote was deleted).
    pub votes: Vec<EventVote>,
    /// The message with Gerrit's header (`Patch Set 1: Verified+1`).
    pub comment: Option<String>,
    /// Hashtags that were added.
    pub added: Vec<String>,
    /// Hashtags that were removed.
    pub removed: Vec<String>,
    /// The topic before.
    pub old_topic: Option<String>,
    /// Why a change was abandoned or restored.
    pub reason: Option<String>,
    /// The branch's commit after a merge.
    pub new_rev: Option<String>,
    /// The ref that is the default branch now.
    pub new_head: Option<String>,
    /// The scheme and id of a check that somebody waits for.
    pub check: Option<String>,
}

/// Which field names the one who did it.
const ACTORS: [&str; 12] = [
    "uploader",
    "author",
    "remover",
    "deleter",
    "submitter",
    "abandoner",
    "restorer",
    "changer",
    "editor",
    "adder",
    "user",
    "account",
];

const LINE: &str = "an event of the stream";

/// Reads a line of the stream.
///
/// # Errors
/// [`GerritError::TooMuch`] for a line of more than [`LINE_MAX`] bytes, [`GerritError::Unreadable`] for one that is no
/// JSON, and [`GerritError::BadField`], naming the field, for one of another shape.
pub fn read_line(line: &[u8]) -> Result<Event, GerritError> {
    if line.len() > LINE_MAX {
        return Err(GerritError::TooMuch { what: format!("bytes of {LINE}"), limit: LINE_MAX });
    }
    let value: Value = serde_json::from_slice(line)
        .map_err(|error| GerritError::Unreadable { what: LINE.to_owned(), why: error.to_string() })?;
    read(&value)
}

/// Reads an event.
///
/// # Errors
/// [`GerritError::BadField`], naming the field.
pub fn read(value: &Value) -> Result<Event, GerritError> {
    let fields = Fields::of(LINE, value)?;
    let kind = EventKind::from(fields.the_name("type")?);
    let change = fields.object("change")?.map(|change| event_change(&change)).transpose()?;
    let ref_update = fields.object("refUpdate")?.map(|update| event_ref(&update)).transpose()?;
    let mut actor = None;
    for name in ACTORS {
        if actor.is_none() {
            actor = fields.object(name)?.map(|account| event_account(&account)).transpose()?;
        }
    }
    let project = match (&change, &ref_update) {
        (Some(change), _) => Some(change.project.clone()),
        (None, Some(update)) => Some(update.project.clone()),
        (None, None) => match fields.name("project")? {
            Some(project) => Some(project),
            None => fields.name("projectName")?,
        },
    };
    Ok(Event {
        kind,
        created: fields.number("eventCreatedOn")?,
        project,
        patchset: fields.object("patchSet")?.map(|patchset| event_patchset(&patchset)).transpose()?,
        change,
        ref_update,
        actor,
        reviewer: fields.object("reviewer")?.map(|account| event_account(&account)).transpose()?,
        votes: votes(&fields)?,
        comment: fields.text("comment")?.map(str::to_owned),
        added: few(&fields, "added")?,
        removed: few(&fields, "removed")?,
        old_topic: fields.name("oldTopic")?,
        reason: fields.text("reason")?.map(str::to_owned),
        new_rev: object_id(&fields, "newRev")?,
        new_head: fields.name("newHead")?,
        check: fields.name("uuid")?,
    })
}

fn event_account(fields: &Fields<'_>) -> Result<Account, GerritError> {
    Ok(Account {
        number: fields.number("_account_id")?,
        username: fields.name("username")?,
        email: fields.name("email")?,
        name: fields.text("name")?.map(str::to_owned),
    })
}

fn event_change(fields: &Fields<'_>) -> Result<EventChange, GerritError> {
    Ok(EventChange {
        project: fields.the_name("project")?,
        branch: fields.the_name("branch")?,
        number: fields.the_number("number")?,
        id: fields.the_name("id")?,
        url: fields.name("url")?,
        topic: fields.name("topic")?.filter(|topic| !topic.is_empty()),
        hashtags: few(fields, "hashtags")?,
        status: fields.name("status")?,
        wip: fields.flag("wip")?,
        subject: fields.text("subject")?.map(str::to_owned),
        message: fields.text("commitMessage")?.map(str::to_owned),
        owner: fields.object("owner")?.map(|account| event_account(&account)).transpose()?,
    })
}

fn event_patchset(fields: &Fields<'_>) -> Result<EventPatchset, GerritError> {
    let parents = few(fields, "parents")?;
    if let Some(at) = parents.iter().position(|parent| !is_object_id(parent)) {
        return Err(fields.wrong(&format!("parents[{at}]"), "is not an object id of git"));
    }
    Ok(EventPatchset {
        number: fields.patchset("number")?,
        revision: fields.commit("revision")?,
        git_ref: fields.the_name("ref")?,
        parents,
        kind: fields.name("kind")?,
        uploader: fields.object("uploader")?.map(|account| event_account(&account)).transpose()?,
    })
}

fn event_ref(fields: &Fields<'_>) -> Result<RefUpdate, GerritError> {
    Ok(RefUpdate {
        project: fields.the_name("project")?,
        name: fields.the_name("refName")?,
        old: fields.commit("oldRev")?,
        new: fields.commit("newRev")?,
    })
}

fn votes(fields: &Fields<'_>) -> Result<Vec<EventVote>, GerritError> {
    let votes = fields.objects("approvals")?;
    if votes.len() > MANY {
        return Err(fields.wrong("approvals", "has more than 1000 entries"));
    }
    votes
        .iter()
        .map(|vote| {
            let label = vote.the_name("type")?;
            Ok(EventVote {
                description: vote.name("description")?.unwrap_or_else(|| label.clone()),
                label,
                value: vote.the_name("value")?,
                old_value: vote.name("oldValue")?,
            })
        })
        .collect()
}

fn few(fields: &Fields<'_>, name: &str) -> Result<Vec<String>, GerritError> {
    let texts = fields.texts(name)?;
    if texts.len() > MANY { Err(fields.wrong(name, "has more than 1000 entries")) } else { Ok(texts) }
}

fn object_id(fields: &Fields<'_>, name: &str) -> Result<Option<String>, GerritError> {
    fields.get(name).map(|_| fields.commit(name)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(line: &str) -> String {
        read_line(line.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn hostile_lines_are_errors_that_name_the_field() {
        assert_eq!(wrong("{}"), "an event of the stream: field type is missing");
        assert_eq!(wrong("[1]"), "an event of the stream: field (all) is a list, not an object");
        assert_eq!(wrong(r#"{"type":7}"#), "an event of the stream: field type is a number, not a text");
        assert_eq!(
            wrong(r#"{"type":"change-merged","change":{"project":"p","branch":"b","id":"I","number":-1}}"#),
            "an event of the stream: field change.number is not a whole number from 0"
        );
        assert_eq!(
            wrong(r#"{"type":"x","change":{"project":"p\u0000q","branch":"b","id":"I","number":1}}"#),
            "an event of the stream: field change.project has control characters"
        );
        assert_eq!(
            wrong(
                r#"{"type":"ref-updated","refUpdate":{"project":"p","refName":"r","oldRev":"--upload-pack","newRev":"0"}}"#
            ),
            "an event of the stream: field refUpdate.oldRev is not an object id of git"
        );
        assert_eq!(
            wrong(r#"{"type":"comment-added","approvals":[{"type":"V","value":"1"},{"type":"W"}]}"#),
            "an event of the stream: field approvals[1].value is missing"
        );
        assert_eq!(
            wrong(r#"{"type":"x","author":"core"}"#),
            "an event of the stream: field author is a text, not an object"
        );
        let long = format!(r#"{{"type":"{}"}}"#, "x".repeat(3_000));
        assert!(wrong(&long).contains("field type has 3000 bytes"), "{}", wrong(&long));
        let many = format!(r#"{{"type":"x","approvals":[{}]}}"#, vec![r#"{"type":"a","value":"1"}"#; 1_001].join(","));
        assert!(wrong(&many).contains("field approvals has more than 1000 entries"));
        for cut in ["", "{", "\"type", "{\"type\":\"x\"", "\u{feff}{}", &"[".repeat(5_000)] {
            assert!(matches!(read_line(cut.as_bytes()), Err(GerritError::Unreadable { .. })), "{cut:?}");
        }
        assert!(matches!(read_line(&[0xff, 0xfe]), Err(GerritError::Unreadable { .. })));
        let line = format!(r#"{{"type":"x","comment":"{}"}}"#, "x".repeat(LINE_MAX));
        assert!(matches!(read_line(line.as_bytes()), Err(GerritError::TooMuch { limit: LINE_MAX, .. })));
    }

    #[test]
    fn an_unknown_kind_keeps_its_name_and_its_project() {
        let event =
            read_line(br#"{"type":"ref-replicated","project":"acme/lib","eventCreatedOn":5,"new":{"a":[1]}}"#).unwrap();
        assert_eq!(event.kind, EventKind::Other("ref-replicated".to_owned()));
        assert_eq!((event.project.as_deref(), event.created), (Some("acme/lib"), Some(5)));
        let text = serde_json::to_string(&event).unwrap();
        assert!(text.contains(r#""kind":"ref-replicated""#), "{text}");
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
    }

    #[test]
    fn the_ref_of_a_change_says_which() {
        let update = |name: &str| RefUpdate {
            project: "p".to_owned(),
            name: name.to_owned(),
            old: "0".repeat(40),
            new: "1".repeat(40),
        };
        assert_eq!(update("refs/changes/07/107/meta").change_of_meta(), Some(107));
        assert_eq!(update("refs/changes/07/107/2").change_of_meta(), None);
        assert_eq!(update("refs/changes/07/107/2").of_change(), Some((107, "2")));
        assert_eq!(update("refs/changes/07/x/meta").change_of_meta(), None);
        assert_eq!(update("refs/heads/changes/07/1/meta").change_of_meta(), None);
    }
}
