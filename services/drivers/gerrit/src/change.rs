//! What Gerrit knows of a change, and whether it may be merged.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::GerritConfig;
use crate::error::GerritError;
use crate::events::Account;
use crate::fields::Fields;

/// A change by its project and number. Asking by both finds it also while Gerrit's index does not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChangeName {
    /// The project.
    pub project: String,
    /// The number.
    pub number: u64,
}

impl std::fmt::Display for ChangeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "change {} of {}", self.number, self.project)
    }
}

/// A vote on the current patchset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The label.
    pub label: String,
    /// Its value; never 0.
    pub value: i64,
    /// Whose it is.
    pub by: Account,
    /// When it was given, as Gerrit writes it (UTC).
    pub given_at: Option<String>,
}

/// A rule that a change must meet before it may be submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitRequirement {
    /// Its name.
    pub name: String,
    /// `SATISFIED`, `UNSATISFIED`, `OVERRIDDEN`, `NOT_APPLICABLE`, `FORCED`, `ERROR`.
    pub status: String,
    /// What it demands, such as `label:Verified=MAX AND -label:Verified=MIN`.
    pub expression: String,
}

/// What is known of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its project and number.
    pub name: ChangeName,
    /// The branch it is for, without `refs/heads/`.
    pub branch: String,
    /// Its Change-Id.
    pub change_id: String,
    /// Its address in the web UI.
    pub url: String,
    /// The current patchset's number.
    pub patchset: u32,
    /// The current patchset's commit.
    pub commit: String,
    /// The current patchset's ref.
    pub git_ref: String,
    /// That commit's parents; more than one for a merge.
    pub parents: Vec<String>,
    /// That commit's message.
    pub message: String,
    /// That commit's files against its first parent (of a merge, what the merge brings), with `/COMMIT_MSG` and, for a
    /// merge, `/MERGE_LIST`.
    pub files: BTreeSet<String>,
    /// Whether there are more files than are listed.
    pub files_truncated: bool,
    /// The files that can be commented on: for a merge only those it resolves.
    pub commentable_files: BTreeSet<String>,
    /// `NEW`, `MERGED` or `ABANDONED`.
    pub status: String,
    /// Whether it is work in progress.
    pub wip: bool,
    /// The topic.
    pub topic: Option<String>,
    /// The hashtags.
    pub hashtags: Vec<String>,
    /// Who owns it.
    pub owner: Account,
    /// When it was last changed, as Gerrit writes it (UTC).
    pub updated: String,
    /// The votes on the current patchset.
    pub votes: Vec<Vote>,
    /// Labels that must be given and are not, where the site still demands by labels themselves.
    pub missing_labels: BTreeSet<String>,
    /// Submit requirements, where the site demands by them; of a merged change, what they were when it merged.
    pub submit_requirements: Vec<SubmitRequirement>,
    /// Whether it merges without conflict, where the site computes it.
    pub mergeable: Option<bool>,
    /// How it would be submitted: `MERGE_IF_NECESSARY` …
    pub submit_type: Option<String>,
    /// The commit of its meta ref: another whenever anything happens to it.
    pub meta: Option<String>,
    /// Which changes were submitted in one go with it.
    pub submission: Option<String>,
}

/// Why a change may not be merged now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotMergeable {
    /// It is abandoned (or of a state unknown here).
    #[error("its status is {0}")]
    Status(String),
    /// It is work in progress.
    #[error("it is work in progress")]
    WorkInProgress,
    /// Votes that are missing and that the pipeline would not give.
    #[error("it has no sufficient vote for {}", .0.join(", "))]
    MissingLabels(Vec<String>),
    /// A requirement that is not met and that the pipeline's votes would not meet.
    #[error("submit requirement {name} is not satisfied ({expression})")]
    Requirement {
        /// Its name.
        name: String,
        /// What it demands.
        expression: String,
    },
}

impl Change {
    /// Whether it is neither merged nor abandoned.
    pub fn is_open(&self) -> bool {
        self.status == "NEW"
    }

    /// Whether it is merged.
    pub fn is_merged(&self) -> bool {
        self.status == "MERGED"
    }

    /// Whether it may be merged, once the pipeline has given its votes for `sets`. As in Zuul, a requirement that is
    /// not met is forgiven when it speaks of such a label: whether the vote is enough is known only once it is given.
    /// Of a merged change, as in Zuul, this says whether it would have been: one that was pushed past its votes would not.
    ///
    /// # Errors
    /// The first reason why not.
    pub fn can_merge(&self, sets: &BTreeSet<String>) -> Result<(), NotMergeable> {
        if !self.is_open() && !self.is_merged() {
            return Err(NotMergeable::Status(self.status.clone()));
        }
        if self.wip {
            return Err(NotMergeable::WorkInProgress);
        }
        let missing: Vec<String> = self.missing_labels.difference(sets).cloned().collect();
        if !missing.is_empty() {
            return Err(NotMergeable::MissingLabels(missing));
        }
        let unmet = self.submit_requirements.iter().find(|requirement| {
            requirement.status == "UNSATISFIED" && !sets.iter().any(|label| speaks_of(&requirement.expression, label))
        });
        match unmet {
            Some(SubmitRequirement { name, expression, .. }) => {
                Err(NotMergeable::Requirement { name: name.clone(), expression: expression.clone() })
            }
            None => Ok(()),
        }
    }

    /// The addresses by which a `Depends-On` may name it.
    pub fn addresses(&self, config: &GerritConfig) -> [String; 3] {
        addresses(config, &self.name)
    }
}

/// The three forms of a change's address, the one of the web UI last.
pub(crate) fn addresses(config: &GerritConfig, name: &ChangeName) -> [String; 3] {
    [
        config.below(&name.number.to_string()),
        config.below(&format!("#/c/{}", name.number)),
        config.below(&format!("c/{}/+/{}", name.project, name.number)),
    ]
}

/// Whether an expression names a label: `label:Verified` and what no letter of a longer name follows. (Zuul takes
/// `label:Verified-Doc` for it as well.)
fn speaks_of(expression: &str, label: &str) -> bool {
    expression.match_indices("label:").any(|(at, found)| {
        let rest = &expression[at + found.len()..];
        let rest = rest.strip_prefix('"').unwrap_or(rest);
        rest.strip_prefix(label)
            .is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '-' || next == '_'))
    })
}

/// What has to be asked for, so that an answer holds what [`read_change`] wants.
pub(crate) const OPTIONS: &str = "o=DETAILED_ACCOUNTS&o=CURRENT_REVISION&o=CURRENT_COMMIT&o=CURRENT_FILES&o=LABELS\
                                  &o=DETAILED_LABELS&o=SUBMIT_REQUIREMENTS&o=SKIP_DIFFSTAT";

/// Reads a change as Gerrit's REST interface tells it.
///
/// # Errors
/// [`GerritError::BadField`], naming the field.
pub(crate) fn read_change(value: &Value, config: &GerritConfig) -> Result<Change, GerritError> {
    let fields = Fields::of("a change", value)?;
    read_change_fields(&fields, config)
}

pub(crate) fn read_change_fields(fields: &Fields<'_>, config: &GerritConfig) -> Result<Change, GerritError> {
    let name = ChangeName { project: fields.the_name("project")?, number: fields.the_number("_number")? };
    let commit = fields.commit("current_revision")?;
    let revisions = fields.the_object("revisions")?;
    let revision = revisions.the_object(&commit)?;
    let git_commit = revision.the_object("commit")?;
    let parents =
        git_commit.objects("parents")?.iter().map(|parent| parent.commit("commit")).collect::<Result<_, _>>()?;
    let (files, files_truncated) = read_files(revision.object("files")?.as_ref(), config.limits.files);
    let (votes, missing_labels) = read_labels(fields)?;
    let [_, _, url] = addresses(config, &name);
    Ok(Change {
        branch: fields.the_name("branch")?,
        change_id: fields.the_name("change_id")?,
        url,
        patchset: revision.patchset("_number")?,
        git_ref: revision.the_name("ref")?,
        commit,
        parents,
        message: git_commit.text("message")?.unwrap_or_default().to_owned(),
        commentable_files: files.clone(),
        files,
        files_truncated,
        status: fields.the_name("status")?,
        wip: fields.flag("work_in_progress")?,
        topic: fields.name("topic")?.filter(|topic| !topic.is_empty()),
        hashtags: fields.texts("hashtags")?,
        owner: read_account(&fields.the_object("owner")?)?,
        updated: fields.the_name("updated")?,
        votes,
        missing_labels,
        submit_requirements: read_requirements(fields)?,
        mergeable: fields.get("mergeable").map(|_| fields.flag("mergeable")).transpose()?,
        submit_type: fields.name("submit_type")?,
        meta: fields.name("meta_rev_id")?,
        submission: fields.name("submission_id")?,
        name,
    })
}

/// A list of files, with the commit message, which Gerrit's answers about a change leave out.
pub(crate) fn read_files(files: Option<&Fields<'_>>, limit: usize) -> (BTreeSet<String>, bool) {
    let mut paths: BTreeSet<String> = BTreeSet::from(["/COMMIT_MSG".to_owned()]);
    let mut truncated = false;
    for (path, file) in files.into_iter().flat_map(Fields::entries) {
        // A renamed file is there under both names: rules about either must see it.
        let old = file.get("old_path").and_then(Value::as_str);
        for path in [Some(path.as_str()), old].into_iter().flatten() {
            if paths.len() >= limit {
                truncated = true;
            } else {
                paths.insert(path.to_owned());
            }
        }
    }
    (paths, truncated)
}

fn read_labels(fields: &Fields<'_>) -> Result<(Vec<Vote>, BTreeSet<String>), GerritError> {
    let (mut votes, mut missing) = (Vec::new(), BTreeSet::new());
    for (label, about) in fields.objects_by_name("labels")? {
        for vote in about.objects("all")? {
            let value = vote.get("value").and_then(Value::as_i64).unwrap_or_default();
            if value != 0 {
                let given_at = vote.name("date")?;
                votes.push(Vote { label: label.clone(), value, by: read_account(&vote)?, given_at });
            }
        }
        if about.get("approved").is_none() && !about.flag("optional")? {
            missing.insert(label.clone());
        }
    }
    Ok((votes, missing))
}

fn read_requirements(fields: &Fields<'_>) -> Result<Vec<SubmitRequirement>, GerritError> {
    let mut found = Vec::new();
    for requirement in fields.objects("submit_requirements")? {
        let expression = match requirement.object("submittability_expression_result")? {
            Some(result) => result.text("expression")?.unwrap_or_default().to_owned(),
            None => String::new(),
        };
        found.push(SubmitRequirement {
            name: requirement.the_name("name")?,
            status: requirement.the_name("status")?,
            expression,
        });
    }
    Ok(found)
}

pub(crate) fn read_account(fields: &Fields<'_>) -> Result<Account, GerritError> {
    Ok(Account {
        number: fields.number("_account_id")?,
        username: fields.name("username")?,
        email: fields.name("email")?,
        name: fields.text("name")?.map(str::to_owned),
    })
}

/// The labels and the values of each that the asking account may give, from `permitted_labels`.
pub(crate) fn read_permitted(value: &Value) -> Result<BTreeMap<String, Vec<i64>>, GerritError> {
    let fields = Fields::of("a change", value)?;
    let Some(permitted) = fields.object("permitted_labels")? else { return Ok(BTreeMap::new()) };
    let mut all = BTreeMap::new();
    for (label, _) in permitted.entries() {
        let values = permitted.texts(label)?;
        let values = values.iter().filter_map(|text| text.trim().trim_start_matches('+').parse().ok()).collect();
        all.insert(label.clone(), values);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{change_json, config};

    fn sets(labels: &[&str]) -> BTreeSet<String> {
        labels.iter().map(|label| (*label).to_owned()).collect()
    }

    #[test]
    fn a_change_is_read_whole() {
        let change = read_change(&change_json(), &config("https://review.example.com/r/")).unwrap();
        assert_eq!(change.name.to_string(), "change 7 of acme/lib");
        assert_eq!(change.url, "https://review.example.com/r/c/acme/lib/+/7");
        assert_eq!((change.patchset, change.git_ref.as_str()), (2, "refs/changes/07/7/2"));
        assert_eq!(change.files, sets(&["/COMMIT_MSG", "a.txt", "new.txt", "old.txt"]));
        let votes: Vec<_> =
            change.votes.iter().map(|vote| (vote.label.as_str(), vote.value, vote.by.username.as_deref())).collect();
        assert_eq!(votes, [("Code-Review", 2, Some("core")), ("Verified", -1, Some("ci"))]);
        assert_eq!(change.missing_labels, sets(&["Verified"]));
        assert_eq!(change.submit_requirements.len(), 3);
    }

    #[test]
    fn what_the_pipeline_votes_itself_does_not_hold_it_back() {
        let mut change = read_change(&change_json(), &config("https://h/")).unwrap();
        let why = |change: &Change, labels: &[&str]| change.can_merge(&sets(labels)).map_err(|why| why.to_string());
        assert_eq!(why(&change, &[]), Err("it has no sufficient vote for Verified".to_owned()));
        let unmet = "submit requirement Docs is not satisfied (label:Verified-Docs=MAX)";
        assert_eq!(why(&change, &["Verified"]), Err(unmet.to_owned()), "a longer name is another label");
        assert_eq!(why(&change, &["Verified", "Verified-Docs"]), Ok(()));
        change.wip = true;
        assert_eq!(why(&change, &["Verified", "Verified-Docs"]), Err("it is work in progress".to_owned()));
        change.status = "ABANDONED".to_owned();
        assert_eq!(why(&change, &[]), Err("its status is ABANDONED".to_owned()));
        (change.status, change.wip) = ("MERGED".to_owned(), false);
        assert_eq!(why(&change, &[]), Err("it has no sufficient vote for Verified".to_owned()));
        assert_eq!(why(&change, &["Verified", "Verified-Docs"]), Ok(()));
    }

    #[test]
    fn a_change_that_is_no_such_thing_is_named_by_field() {
        let config = config("https://h/");
        for (field, value, said) in [
            ("_number", Value::from("x"), "field _number is not a whole number"),
            ("current_revision", Value::from("--all"), "field current_revision is not an object id"),
            ("revisions", Value::from(1), "field revisions is a number"),
            ("labels", serde_json::json!({"Verified": 3}), "field labels.Verified is a number"),
            ("project", Value::from("a\nb"), "field project has control characters"),
        ] {
            let mut json = change_json();
            json[field] = value;
            let error = read_change(&json, &config).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
