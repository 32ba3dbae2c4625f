//! Facts on demand: single questions to Gerrit's REST interface.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::change::{self, Change, ChangeName, OPTIONS};
use crate::config::{GerritConfig, encode};
use crate::error::GerritError;
use crate::fields::{Fields, objects_of};
use crate::http::Rest;

/// How many changes or branches one answer brings.
const PAGE: usize = 200;

/// A Gerrit, asked as one account. Blocking: not to be called on a thread of an async runtime. It may be used by several
/// threads at once.
#[derive(Debug)]
pub struct Gerrit {
    pub(crate) rest: Rest,
}

/// What the server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Its version, such as `3.13.5`.
    pub version: String,
    /// Whether one submit merges all changes of a topic.
    pub submit_whole_topic: bool,
}

/// A branch or a tag.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ref {
    /// Its whole name.
    pub name: String,
    /// Its commit, or its tag object.
    pub revision: String,
}

/// A change of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelatedChange {
    /// The change.
    pub name: ChangeName,
    /// The patchset that is in the stack.
    pub patchset: u32,
    /// Its newest patchset.
    pub current_patchset: u32,
    /// The commit of the patchset that is in the stack.
    pub commit: String,
    /// That commit's parents.
    pub parents: Vec<String>,
}

/// Whether an account may do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It may.
    Allowed,
    /// It may not.
    Denied,
    /// This account may not ask (global capability View Access).
    CannotAsk,
}

impl Gerrit {
    /// A client, with the password as its file holds it now. Nothing is asked yet.
    ///
    /// # Errors
    /// [`GerritError::BadSetting`], [`GerritError::File`].
    pub fn new(config: GerritConfig) -> Result<Gerrit, GerritError> {
        Ok(Gerrit { rest: Rest::new(config)? })
    }

    /// How it is connected.
    pub fn config(&self) -> &GerritConfig {
        self.rest.config()
    }

    /// What the server says of itself.
    ///
    /// # Errors
    /// See [`GerritError`]; so for all that follow.
    pub fn server(&self) -> Result<ServerInfo, GerritError> {
        let version = self.rest.get("the server's version", "config/server/version")?;
        let info = self.rest.get("the server's settings", "config/server/info")?;
        let change = Fields::of("the server's settings", &info)?.object("change")?;
        Ok(ServerInfo {
            version: version.as_str().unwrap_or_default().to_owned(),
            submit_whole_topic: change.map_or(Ok(false), |change| change.flag("submit_whole_topic"))?,
        })
    }

    /// A change by project and number, which finds it also while the index does not: what is not found so does not
    /// exist, or is hidden from this account ([`GerritError::Missing`]).
    pub fn change(&self, name: &ChangeName) -> Result<Change, GerritError> {
        let what = name.to_string();
        let Some(value) = self.rest.look(&what, &format!("changes/{}?{OPTIONS}", id(name)))? else {
            return Err(GerritError::Missing { what, user: self.config().user.clone() });
        };
        self.complete(change::read_change(&value, self.config())?)
    }

    /// A change by its number alone. [`GerritError::NotFoundNow`] is no proof that there is none: ask again.
    pub fn change_by_number(&self, number: u64) -> Result<Change, GerritError> {
        let value = self.rest.get(&format!("change {number}"), &format!("changes/{number}?{OPTIONS}"))?;
        self.complete(change::read_change(&value, self.config())?)
    }

    /// A merge brings more files than it can be commented on.
    fn complete(&self, mut change: Change) -> Result<Change, GerritError> {
        if change.parents.len() < 2 {
            return Ok(change);
        }
        let what = format!("the files of {}", change.name);
        let path = format!("changes/{}/revisions/{}/files?parent=1", id(&change.name), change.commit);
        let value = self.rest.get(&what, &path)?;
        let files = Fields::of(&what, &value)?;
        let (files, truncated) = change::read_files(Some(&files), self.config().limits.files);
        change.files = files;
        change.files_truncated = truncated;
        for all in [&mut change.files, &mut change.commentable_files] {
            all.insert("/MERGE_LIST".to_owned());
        }
        Ok(change)
    }

    /// Every change that a query finds, each whole but for the files that merges bring.
    pub fn find(&self, query: &str) -> Result<Vec<Change>, GerritError> {
        let pages = self.pages(query, OPTIONS)?;
        pages.iter().map(|value| change::read_change(value, self.config())).collect()
    }

    /// The answers to a query, page by page. An answer that changes while it is read may repeat a change; each is given
    /// once.
    pub(crate) fn pages(&self, query: &str, options: &str) -> Result<Vec<Value>, GerritError> {
        let what = format!("the query {query}");
        let limit = self.config().limits.found;
        let (mut found, mut seen, mut start) = (Vec::new(), BTreeSet::new(), 0);
        loop {
            let path = format!("changes/?n={PAGE}&S={start}&{options}&q={}", encode(query));
            let Value::Array(page) = self.rest.get(&what, &path)? else {
                return Err(GerritError::Unreadable { what, why: "the answer is no list".to_owned() });
            };
            let more = page.last().is_some_and(|last| last["_more_changes"] == Value::Bool(true));
            start += page.len();
            found.extend(page.into_iter().filter(|change| seen.insert(change["_number"].as_u64())));
            if found.len() > limit {
                return Err(GerritError::TooMuch { what: format!("changes found by {what}"), limit });
            }
            if !more {
                return Ok(found);
            }
        }
    }

    /// The changes with a Change-Id: the same change may be proposed for several branches and projects.
    pub fn changes_by_id(&self, change_id: &str) -> Result<Vec<Change>, GerritError> {
        if !crate::depends::is_change_id(change_id) {
            return Err(bad_name("Change-Id", change_id, "it must be I and 40 hex digits"));
        }
        self.find(&format!("change:{change_id}"))
    }

    /// The open changes of a topic.
    pub fn changes_by_topic(&self, topic: &str) -> Result<Vec<Change>, GerritError> {
        let found = self.find(&format!("status:open topic:{}", quote("topic", topic)?))?;
        Ok(found.into_iter().filter(|change| change.topic.as_deref() == Some(topic)).collect())
    }

    /// The changes that have this commit as one of their patchsets.
    pub fn changes_by_commit(&self, commit: &str) -> Result<Vec<Change>, GerritError> {
        if !crate::fields::is_object_id(commit) {
            return Err(bad_name("commit id", commit, "it must have 40 hex digits"));
        }
        self.find(&format!("commit:{commit}"))
    }

    /// The open changes of a project.
    pub fn open_changes(&self, project: &str) -> Result<Vec<Change>, GerritError> {
        self.find(&format!("status:open project:{}", quote("project", project)?))
    }

    /// All changes that one submit of this change would merge, itself included, whether this account sees them or not:
    /// what it does not see is counted.
    pub fn submitted_together(&self, name: &ChangeName) -> Result<(Vec<ChangeName>, u64), GerritError> {
        let what = format!("what is submitted together with {name}");
        let value = self.rest.get(&what, &format!("changes/{}/submitted_together?o=NON_VISIBLE_CHANGES", id(name)))?;
        let fields = Fields::of(&what, &value)?;
        let mut names = BTreeSet::from([name.clone()]);
        for change in fields.objects("changes")? {
            names.insert(ChangeName { project: change.the_name("project")?, number: change.the_number("_number")? });
        }
        Ok((names.into_iter().collect(), fields.number("non_visible_changes")?.unwrap_or_default()))
    }

    /// The stack that a change's current patchset is part of, itself included; empty where it stands alone.
    pub fn related(&self, name: &ChangeName) -> Result<Vec<RelatedChange>, GerritError> {
        let what = format!("the stack of {name}");
        let value = self.rest.get(&what, &format!("changes/{}/revisions/current/related", id(name)))?;
        let mut stack = Vec::new();
        for one in Fields::of(&what, &value)?.objects("changes")? {
            // What is no patchset of any change has no number.
            let Some(number) = one.number("_change_number")? else { continue };
            let commit = one.the_object("commit")?;
            stack.push(RelatedChange {
                name: ChangeName { project: one.the_name("project")?, number },
                patchset: one.patchset("_revision_number")?,
                current_patchset: one.patchset("_current_revision_number")?,
                commit: commit.commit("commit")?,
                parents: commit
                    .objects("parents")?
                    .iter()
                    .map(|parent| parent.commit("commit"))
                    .collect::<Result<_, _>>()?,
            });
        }
        Ok(stack)
    }

    /// Whether a change merges without conflict now, computed anew.
    pub fn mergeable(&self, name: &ChangeName) -> Result<bool, GerritError> {
        let what = format!("whether {name} is mergeable");
        let value = self.rest.get(&what, &format!("changes/{}/revisions/current/mergeable", id(name)))?;
        Fields::of(&what, &value)?.flag("mergeable")
    }

    /// How a change would be submitted: `MERGE_IF_NECESSARY` …
    pub fn submit_type(&self, name: &ChangeName) -> Result<String, GerritError> {
        let what = format!("the submit type of {name}");
        let value = self.rest.get(&what, &format!("changes/{}/revisions/current/submit_type", id(name)))?;
        text_of(&what, &value)
    }

    /// How changes of a project are submitted unless a rule says otherwise.
    pub fn project_submit_type(&self, project: &str) -> Result<String, GerritError> {
        let what = format!("the settings of project {project}");
        let value = self.rest.get(&what, &format!("projects/{}/config", encode(project)))?;
        let fields = Fields::of(&what, &value)?;
        match fields.object("default_submit_type")?.map(|by| by.name("value")).transpose()?.flatten() {
            Some(found) => Ok(found),
            None => fields.the_name("submit_type"),
        }
    }

    /// The labels of a change, and which values this account may give to each.
    pub fn permitted_votes(&self, name: &ChangeName) -> Result<BTreeMap<String, Vec<i64>>, GerritError> {
        let what = name.to_string();
        let value = self.rest.get(&what, &format!("changes/{}?o=DETAILED_LABELS", id(name)))?;
        change::read_permitted(&value)
    }

    /// The projects that this account sees and that hold code, sorted by name.
    pub fn projects(&self) -> Result<BTreeSet<String>, GerritError> {
        let what = "the projects";
        let (mut found, limit) = (BTreeSet::new(), self.config().limits.found.max(50_000));
        loop {
            let path = format!("projects/?type=CODE&state=ACTIVE&n={PAGE}&S={}", found.len());
            let value = self.rest.get(what, &path)?;
            let page = Fields::of(what, &value)?;
            let before = found.len();
            found.extend(page.entries().map(|(name, _)| name.clone()));
            if found.len() > limit {
                return Err(GerritError::TooMuch { what: what.to_owned(), limit });
            }
            if found.len() < before + PAGE {
                return Ok(found);
            }
        }
    }

    /// A project's branches.
    pub fn branches(&self, project: &str) -> Result<Vec<Ref>, GerritError> {
        self.refs(project, "branches")
    }

    /// A project's tags.
    pub fn tags(&self, project: &str) -> Result<Vec<Ref>, GerritError> {
        self.refs(project, "tags")
    }

    fn refs(&self, project: &str, kind: &str) -> Result<Vec<Ref>, GerritError> {
        let what = format!("the {kind} of project {project}");
        let (mut found, mut start, limit) = (BTreeSet::new(), 0, self.config().limits.found.max(50_000));
        loop {
            let path = format!("projects/{}/{kind}/?n={}&S={start}", encode(project), PAGE * 5);
            let value = self.rest.get(&what, &path)?;
            let page = objects_of(&what, &value)?;
            for one in &page {
                let name = one.the_name("ref")?;
                // HEAD is among the branches, and refs/meta/config.
                if name.starts_with("refs/heads/") || name.starts_with("refs/tags/") {
                    found.insert(Ref { name, revision: one.commit("revision")? });
                }
            }
            if found.len() > limit {
                return Err(GerritError::TooMuch { what, limit });
            }
            if page.len() < PAGE * 5 {
                return Ok(found.into_iter().collect());
            }
            start += page.len();
        }
    }

    /// The commit of a branch; `None` where there is no such branch (or no such project).
    pub fn branch(&self, project: &str, branch: &str) -> Result<Option<String>, GerritError> {
        let what = format!("branch {branch} of project {project}");
        let found = self.rest.look(&what, &format!("projects/{}/branches/{}", encode(project), encode(branch)))?;
        found.map(|value| Fields::of(&what, &value)?.commit("revision")).transpose()
    }

    /// The branch that a project's HEAD names, without `refs/heads/`.
    pub fn default_branch(&self, project: &str) -> Result<String, GerritError> {
        let what = format!("the default branch of project {project}");
        let head = text_of(&what, &self.rest.get(&what, &format!("projects/{}/HEAD", encode(project)))?)?;
        Ok(head.strip_prefix("refs/heads/").unwrap_or(&head).to_owned())
    }

    /// The global capabilities of this account, such as `streamEvents`.
    pub fn capabilities(&self) -> Result<BTreeSet<String>, GerritError> {
        let what = "the account's capabilities";
        let value = self.rest.get(what, "accounts/self/capabilities")?;
        let fields = Fields::of(what, &value)?;
        Ok(fields.entries().filter(|(_, has)| **has != Value::Bool(false)).map(|(name, _)| name.clone()).collect())
    }

    /// Whether an account (by username or number) has a permission on a ref, such as `read`, `push` or `create`. Of
    /// votes, see [`Gerrit::permitted_votes`]; whether it may submit shows in a
    /// submit alone.
    pub fn access(&self, project: &str, git_ref: &str, permission: &str, account: &str) -> Result<Access, GerritError> {
        let what = format!("whether {account} has {permission} on {git_ref} of {project}");
        let path = format!(
            "projects/{}/check.access?account={}&ref={}&perm={}",
            encode(project),
            encode(account),
            encode(git_ref),
            encode(permission)
        );
        match self.rest.get(&what, &path) {
            Ok(value) => match Fields::of(&what, &value)?.number("status")? {
                Some(200) => Ok(Access::Allowed),
                _ => Ok(Access::Denied),
            },
            Err(GerritError::Forbidden { .. }) => Ok(Access::CannotAsk),
            Err(error) => Err(error),
        }
    }
}

/// A change in an address: project and number, found also while the index does not know it.
pub(crate) fn id(name: &ChangeName) -> String {
    format!("{}~{}", encode(&name.project), name.number)
}

pub(crate) fn bad_name(what: &'static str, text: &str, why: &'static str) -> GerritError {
    GerritError::BadName { what, text: crate::error::shorten(text, 80), why }
}

/// A text as one word of a query.
fn quote(what: &'static str, text: &str) -> Result<String, GerritError> {
    if text.is_empty() || text.contains(['"', '\\']) || text.chars().any(char::is_control) {
        return Err(bad_name(what, text, "quotation marks, backslashes and control characters cannot be searched for"));
    }
    Ok(format!("\"{text}\""))
}

fn text_of(what: &str, value: &Value) -> Result<String, GerritError> {
    value.as_str().map(str::to_owned).ok_or_else(|| GerritError::Unreadable {
        what: format!("the answer to {what}"),
        why: "it is no text".to_owned(),
    })
}
