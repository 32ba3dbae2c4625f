//! Facts about changes in the gate's words.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_driver_contract::{Found, Trouble, Unresolved};
use gatelog_record::Value;
use gatelog_record::draft::gate::{ChangeFacts, ChangesWanted, FactsPurpose, Subject};
use gatelog_secrets::{KeyringError, Scope};

use crate::catchup::seconds;
use crate::change::{Change, ChangeName, SubmitRequirement, Vote};
use crate::closure::InClosure;
use crate::connection::GerritConnection;
use crate::depends::depends_on_lines;
use crate::error::GerritError;
use crate::events::Account;

impl GerritConnection {
    pub(crate) fn closure(&self, wanted: &ChangesWanted) -> Result<Found, Trouble> {
        let mut seeds = Vec::new();
        if let FactsPurpose::ProjectMerged { project } = &wanted.purpose {
            let open = self.gerrit.open_changes(self.local(project)?).map_err(|error| self.trouble(&error))?;
            seeds.extend(open.into_iter().map(|change| change.name));
        }
        for change in &wanted.changes {
            seeds.push(self.named(&change.project, &change.change)?);
        }
        let asked: BTreeSet<ChangeName> = seeds.iter().cloned().collect();
        let needed_by = if wanted.with_needed_by { self.needed_by(&mut seeds, wanted)? } else { BTreeMap::new() };
        let whole_topics = self.whole_topics().map_err(|error| self.trouble(&error))?;
        let closure = self.gerrit.closure(&seeds, whole_topics).map_err(|error| self.trouble(&error))?;
        let none = Vec::new();
        let mut found = Found::default();
        for one in &closure.changes {
            found.changes.push(self.facts(one, needed_by.get(&one.change.name).unwrap_or(&none))?);
            let key = self.key(&one.change.name);
            let elsewhere = one.elsewhere.iter().filter(|text| text.contains("://"));
            found.elsewhere.extend(elsewhere.map(|url| Unresolved { change: key.clone(), url: url.clone() }));
        }
        found.missing = closure.missing.iter().filter(|name| asked.contains(name)).map(|name| self.key(name)).collect();
        Ok(found)
    }

    /// The open changes that need the seeds, over any number of steps; they become seeds themselves.
    fn needed_by(
        &self,
        seeds: &mut Vec<ChangeName>,
        wanted: &ChangesWanted,
    ) -> Result<BTreeMap<ChangeName, Vec<ChangeName>>, Trouble> {
        let among: BTreeSet<&str> = wanted.among.iter().filter_map(|project| self.local(project).ok()).collect();
        let limit = self.gerrit.config().limits.closure;
        let mut found: BTreeMap<ChangeName, Vec<ChangeName>> = BTreeMap::new();
        let mut next = 0;
        while let Some(name) = seeds.get(next).cloned() {
            next += 1;
            let above = match self.directly_above(&name) {
                Ok(above) => above,
                Err(GerritError::Missing { .. }) => continue,
                Err(error) => return Err(self.trouble(&error)),
            };
            let above: Vec<ChangeName> =
                above.into_iter().filter(|other| among.is_empty() || among.contains(other.project.as_str())).collect();
            for other in &above {
                if !seeds.contains(other) {
                    seeds.push(other.clone());
                }
            }
            if seeds.len() > limit {
                let message = format!("more than {limit} changes hang together here");
                return Err(Trouble::new("too-many-changes", message));
            }
            found.insert(name, above);
        }
        Ok(found)
    }

    /// Those whose message names a change, and those that stand on its current commit.
    fn directly_above(&self, name: &ChangeName) -> Result<BTreeSet<ChangeName>, GerritError> {
        let change = self.gerrit.change(name)?;
        let mut above: BTreeSet<ChangeName> =
            self.gerrit.named_by(&change)?.into_iter().map(|other| other.name).collect();
        if change.is_open() {
            let stack = self.gerrit.related(name)?;
            let standing = stack.into_iter().filter(|one| {
                one.name != *name && one.patchset == one.current_patchset && one.parents.contains(&change.commit)
            });
            above.extend(standing.map(|one| one.name));
        }
        Ok(above)
    }

    /// The facts in the gate's words; what names a person or quotes a message is sealed here.
    fn facts(&self, one: &InClosure, needed_by: &[ChangeName]) -> Result<ChangeFacts, Trouble> {
        let change = &one.change;
        let project = self.canonical(&change.name.project);
        let keyring = |error: KeyringError| Trouble::passing("keyring", &error);
        let owner = self.keyring.actor(&self.name, &account_id(&change.owner)).map_err(keyring)?;
        let seal =
            |scope: &Scope, text: &str| self.keyring.seal(scope, text.as_bytes(), project.as_bytes()).map_err(keyring);
        let mut needs: Vec<ChangeName> = one.git_needs.iter().map(|(name, _)| name.clone()).collect();
        needs.extend(one.depends_on.iter().chain(&one.topic).cloned());
        let mut once = BTreeSet::new();
        needs.retain(|name| once.insert(name.clone()));
        let lines = depends_on_lines(&change.message, self.gerrit.config().limits.depends_on);
        Ok(ChangeFacts {
            subject: Subject {
                connection: self.name.clone(),
                project: project.clone(),
                branch: Some(change.branch.clone()),
                git_ref: change.git_ref.clone(),
                change: Some(change.name.number.to_string()),
                patchset: Some(change.patchset.to_string()),
                commit: Some(change.commit.clone()),
                old_commit: None,
                url: change.url.clone(),
            },
            open: change.is_open(),
            merged: change.is_merged(),
            approved: false,
            approvals: Value::List(change.votes.iter().map(vote).collect()),
            cannot_merge: unmet_by_any_vote(change),
            parents: change.parents.clone(),
            depends_on: lines.into_iter().map(str::to_owned).collect(),
            needs: needs.iter().map(|name| self.key(name)).collect(),
            needed_by: needed_by.iter().map(|name| self.key(name)).collect(),
            files: (!change.files_truncated).then(|| change.files.iter().cloned().collect()),
            owner,
            owner_identity: Some(seal(&Scope::Person(owner), &identity(&change.owner))?),
            text: Some(seal(&Scope::Project(project.clone()), &change.message)?),
            attributes: attributes(change),
        })
    }
}

/// What tells accounts apart: the number never changes, names do. The stream tells no numbers, so where it is an event's
/// account it is by name.
fn account_id(account: &Account) -> String {
    match (&account.username, &account.email, account.number) {
        (Some(username), _, _) => username.clone(),
        (None, Some(email), _) => email.clone(),
        (None, None, number) => format!("account {}", number.unwrap_or_default()),
    }
}

fn identity(account: &Account) -> String {
    let name = account.name.as_deref().or(account.username.as_deref()).unwrap_or_default();
    format!("{name} <{}>", account.email.as_deref().unwrap_or_default())
}

fn vote(vote: &Vote) -> Value {
    let mut map = BTreeMap::from([
        ("label".to_owned(), Value::Str(vote.label.clone())),
        ("value".to_owned(), Value::Int(vote.value)),
    ]);
    let texts = [("username", &vote.by.username), ("email", &vote.by.email)];
    map.extend(texts.into_iter().filter_map(|(key, text)| Some((key.to_owned(), Value::Str(text.clone()?)))));
    let given = vote.given_at.as_deref().and_then(seconds).and_then(|given| i64::try_from(given).ok());
    map.extend(given.map(|given| ("granted-on".to_owned(), Value::Int(given))));
    Value::Map(map)
}

/// The labels that a requirement's expression speaks of, in its order.
fn labels_of(requirement: &SubmitRequirement) -> Vec<&str> {
    let mut labels = Vec::new();
    for part in requirement.expression.split("label:").skip(1) {
        let part = part.strip_prefix('"').unwrap_or(part);
        let end = part.find(|letter: char| !(letter.is_alphanumeric() || letter == '-' || letter == '_'));
        let label = &part[..end.unwrap_or(part.len())];
        if !label.is_empty() && !labels.contains(&label) {
            labels.push(label);
        }
    }
    labels
}

/// A requirement that is not met and that no vote can meet.
fn unmet_by_any_vote(change: &Change) -> Option<String> {
    let mut unmet = change.submit_requirements.iter().filter(|one| one.status == "UNSATISFIED");
    let first = unmet.find(|one| labels_of(one).is_empty())?;
    Some(format!("submit requirement {} is not satisfied ({})", first.name, first.expression))
}

/// What rules know of Gerrit: labels that are missing, by themselves or because a requirement speaks of them. As in Zuul
/// a pipeline that votes on such a label need not wait for it.
fn attributes(change: &Change) -> Value {
    let mut missing = change.missing_labels.clone();
    for unmet in change.submit_requirements.iter().filter(|one| one.status == "UNSATISFIED") {
        missing.extend(labels_of(unmet).first().map(|label| (*label).to_owned()));
    }
    let texts = |all: &mut dyn Iterator<Item = String>| Value::List(all.map(Value::Str).collect());
    let requirement = |one: &SubmitRequirement| {
        Value::Map(BTreeMap::from([
            ("name".to_owned(), Value::Str(one.name.clone())),
            ("status".to_owned(), Value::Str(one.status.clone())),
            ("expression".to_owned(), Value::Str(one.expression.clone())),
        ]))
    };
    let mut map = BTreeMap::from([
        ("status".to_owned(), Value::Str(change.status.clone())),
        ("wip".to_owned(), Value::Bool(change.wip)),
        ("hashtags".to_owned(), texts(&mut change.hashtags.iter().cloned())),
        ("missing-labels".to_owned(), texts(&mut missing.into_iter())),
        ("submit-requirements".to_owned(), Value::List(change.submit_requirements.iter().map(requirement).collect())),
    ]);
    map.extend(change.topic.clone().map(|topic| ("topic".to_owned(), Value::Str(topic))));
    map.extend(change.submit_type.clone().map(|kind| ("submit-type".to_owned(), Value::Str(kind))));
    map.extend(change.mergeable.map(|mergeable| ("mergeable".to_owned(), Value::Bool(mergeable))));
    Value::Map(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::read_change;
    use crate::testing::{change_json, config};

    #[test]
    fn requirements_reach_the_gate_as_the_labels_they_speak_of() {
        let mut change = read_change(&change_json(), &config("https://h/")).unwrap();
        let told = attributes(&change);
        let missing = told.as_map().unwrap().get("missing-labels").unwrap();
        assert_eq!(missing, &Value::List(vec!["Verified".into(), "Verified-Docs".into()]));
        assert_eq!(unmet_by_any_vote(&change), None);
        change.submit_requirements[2].expression = "-has:unresolved".to_owned();
        assert_eq!(unmet_by_any_vote(&change).unwrap(), "submit requirement Docs is not satisfied (-has:unresolved)");
        let given = vote(&change.votes[0]);
        assert_eq!(given.as_map().unwrap().get("granted-on"), Some(&Value::Int(1_795_804_283)));
    }
}
