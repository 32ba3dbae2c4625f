//! Facts about changes in the gate's words.

use std::collections::BTreeMap;

use gatelog_driver_contract::{Found, Trouble, Unresolved, chain};
use gatelog_record::Value;
use gatelog_record::draft::gate::{ChangeFacts, ChangeKey as RecordKey, ChangesWanted, FactsPurpose, Subject};
use gatelog_secrets::{KeyringError, Scope};

use crate::change::ChangeKey;
use crate::connection::{GitConnection, trouble};
use crate::error::ForgeError;
use crate::query::{ChangeFacts as Facts, Resolution};

/// How many changes one closure may hold.
const MAX_CLOSURE: usize = 500;

impl GitConnection {
    fn forge_key(&self, key: &RecordKey) -> Result<ChangeKey, Trouble> {
        let (branch, name) = key.change.rsplit_once('/').ok_or_else(|| {
            let message = format!("{:?} is not a change of this forge: expected <branch>/<name>", key.change);
            Trouble::new("bad-name", message)
        })?;
        ChangeKey::new(self.local(&key.project)?, branch, name).map_err(|error| trouble(&error))
    }

    /// The facts in the gate's words; what names a person or quotes a message is sealed here.
    fn facts(&self, facts: &Facts, needs: &[ChangeKey], needed_by: &[ChangeKey]) -> Result<ChangeFacts, Trouble> {
        let account = format!("{} <{}>", facts.owner_name, facts.owner_email);
        let keyring = |error: KeyringError| Trouble::passing("keyring", &error);
        let owner = self.keyring.actor(&self.name, &account).map_err(keyring)?;
        let project = self.canonical(&facts.change.project);
        let seal =
            |scope: &Scope, text: &str| self.keyring.seal(scope, text.as_bytes(), project.as_bytes()).map_err(keyring);
        let approved = facts.approved.as_ref().is_some_and(|approval| approval.current);
        let branch_gone =
            facts.base_tip.is_none().then(|| format!("there is no branch {} to merge into", facts.change.branch));
        Ok(ChangeFacts {
            subject: Subject {
                connection: self.name.clone(),
                project: project.clone(),
                branch: Some(facts.change.branch.clone()),
                git_ref: facts.patchset_ref.clone(),
                change: Some(format!("{}/{}", facts.change.branch, facts.change.name)),
                patchset: Some(facts.patchset.to_string()),
                commit: Some(facts.commit.clone()),
                old_commit: None,
                url: facts.url.clone(),
            },
            open: facts.open,
            merged: facts.merged,
            approved,
            approvals: Value::Map(BTreeMap::from([("approved".to_owned(), Value::Bool(approved))])),
            cannot_merge: branch_gone,
            parents: facts.parents.clone(),
            depends_on: facts.depends_on.clone(),
            needs: needs.iter().map(|key| self.record_key(key)).collect(),
            needed_by: needed_by.iter().map(|key| self.record_key(key)).collect(),
            files: (!facts.files_truncated).then(|| facts.files.clone()),
            owner,
            owner_identity: Some(seal(&Scope::Person(owner), &account)?),
            text: Some(seal(&Scope::Project(project.clone()), &facts.message)?),
            attributes: Value::Null,
        })
    }

    /// The open changes that need one. A repository that has vanished or is damaged has none to tell
    /// of, and must not keep the others' changes waiting.
    fn needed_by(&self, key: &ChangeKey, among: &[String]) -> Result<Vec<ChangeKey>, Trouble> {
        let mut found = Vec::new();
        for project in among {
            match self.forge.needed_by(key, std::slice::from_ref(project)) {
                Ok(changes) => found.extend(changes),
                Err(error @ (ForgeError::NoProject { .. } | ForgeError::Git { .. })) => {
                    tracing::warn!(project, error = %chain(&error), "a project is left out of a search");
                }
                Err(error) => return Err(trouble(&error)),
            }
        }
        Ok(found)
    }

    /// The open changes of a project.
    fn open_changes(&self, project: &str) -> Result<Vec<ChangeKey>, Trouble> {
        let proposed = self.forge.proposed_changes(self.local(project)?).map_err(|error| trouble(&error))?;
        let mut open = Vec::new();
        for key in proposed {
            match self.forge.query(&key) {
                Ok(facts) if facts.open => open.push(key),
                // Merged, or gone since.
                Ok(_) | Err(ForgeError::NoChange { .. }) => {}
                Err(error) => return Err(trouble(&error)),
            }
        }
        Ok(open)
    }

    pub(crate) fn closure(&self, wanted: &ChangesWanted) -> Result<Found, Trouble> {
        let mut missing = Vec::new();
        let mut keys = Vec::new();
        if let FactsPurpose::ProjectMerged { project } = &wanted.purpose {
            keys = self.open_changes(project)?;
        }
        for change in &wanted.changes {
            let key = self.forge_key(change)?;
            match self.forge.query(&key) {
                Ok(_) => keys.push(key),
                Err(ForgeError::NoChange { .. } | ForgeError::NoProject { .. }) => missing.push(change.clone()),
                Err(error) => return Err(trouble(&error)),
            }
        }
        let among: Vec<String> =
            wanted.among.iter().filter_map(|project| self.local(project).ok().map(str::to_owned)).collect();
        // Those that need the changes asked for belong to the closure with all that they need
        // themselves; each is asked for once.
        let mut needed_by: BTreeMap<ChangeKey, Vec<ChangeKey>> = BTreeMap::new();
        let mut seeds = keys;
        let mut next = 0;
        while wanted.with_needed_by && next < seeds.len() && seeds.len() <= MAX_CLOSURE {
            let Some(key) = seeds.get(next).cloned() else { break };
            next += 1;
            let above = self.needed_by(&key, &among)?;
            for other in &above {
                if !seeds.contains(other) {
                    seeds.push(other.clone());
                }
            }
            needed_by.insert(key, above);
        }
        let closure = self.forge.closure(&seeds).map_err(|error| trouble(&error))?;
        if closure.truncated || seeds.len() > MAX_CLOSURE {
            let message = format!("more than {MAX_CLOSURE} changes hang together here");
            return Err(Trouble::new("too-many-changes", message));
        }
        let none = Vec::new();
        let changes = closure
            .changes
            .iter()
            .map(|(key, facts)| {
                let needs = closure.needs.get(key).unwrap_or(&none);
                self.facts(facts, needs, needed_by.get(key).unwrap_or(&none))
            })
            .collect::<Result<_, _>>()?;
        let foreign = closure.unresolved.iter().filter(|one| one.resolution == Resolution::Foreign);
        let elsewhere = foreign
            // A name without a host, and an address of this very host, can be nobody else's.
            .filter(|one| one.text.contains("://") && ChangeKey::from_url(&one.text, &self.host).is_none())
            .map(|one| Unresolved { change: self.record_key(&one.change), url: one.text.clone() })
            .collect();
        Ok(Found { changes, missing, elsewhere })
    }
}
