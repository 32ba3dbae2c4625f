//! What is wrong with connections now, for the health of the process: code-review systems that cannot be asked, and
//! repositories of tenants that are not there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gatelog_web::PartHealth;

/// How many projects are named.
const NAMED: usize = 5;

/// The troubles of a process's connections, by connection and project; of the connection itself, by an empty name.
#[derive(Debug, Default)]
pub struct Troubles(Mutex<BTreeMap<String, BTreeMap<String, String>>>);

impl Troubles {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<String, String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A look at a project came to this.
    pub fn looked<T>(&self, connection: &str, project: &str, came: &Result<T, String>) {
        let mut all = self.all();
        match came {
            Err(error) => {
                all.entry(connection.to_owned()).or_default().insert(project.to_owned(), error.clone());
            }
            Ok(_) => {
                if let Some(known) = all.get_mut(connection) {
                    known.remove(project);
                }
            }
        }
    }

    /// These are all the projects that are there, and these those that tenants have.
    pub fn there(&self, connection: &str, there: &BTreeSet<&str>, wanted: &BTreeSet<String>) {
        let mut all = self.all();
        let known = all.entry(connection.to_owned()).or_default();
        known.retain(|project, _| project.is_empty() || there.contains(project.as_str()) || wanted.contains(project));
        for project in wanted.iter().filter(|project| !there.contains(project.as_str())) {
            known.entry(project.clone()).or_insert_with(|| "there is no such repository".to_owned());
        }
        // Back again; whether it can be read, the look at it says.
        known.retain(|project, what| !(there.contains(project.as_str()) && what == "there is no such repository"));
    }

    /// The parts that are not well.
    pub fn parts(&self) -> Vec<PartHealth> {
        let all = self.all();
        let troubled = all.iter().filter(|(_, troubles)| !troubles.is_empty());
        let told = troubled.map(|(connection, troubles)| {
            let mut texts: Vec<String> = troubles
                .iter()
                .take(NAMED)
                .map(|(project, what)| if project.is_empty() { what.clone() } else { format!("{project}: {what}") })
                .collect();
            if troubles.len() > NAMED {
                texts.push(format!("{} more", troubles.len() - NAMED));
            }
            let detail = texts.join("; ");
            PartHealth { part: format!("connection {connection}"), well: false, state: "yellow".to_owned(), detail }
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_fails_is_told_until_it_is_well_again() {
        let troubles = Troubles::default();
        let wanted: BTreeSet<String> = ["app", "lib"].map(str::to_owned).into();
        let said = || troubles.parts().into_iter().map(|part| part.detail).collect::<Vec<_>>();
        troubles.there("forge", &["app", "lib"].into(), &wanted);
        assert_eq!(said(), Vec::<String>::new());
        troubles.there("forge", &["app"].into(), &wanted);
        troubles.looked::<()>("forge", "app", &Err("damaged".into()));
        assert_eq!(said(), ["app: damaged; lib: there is no such repository"]);
        troubles.looked("forge", "app", &Ok(()));
        troubles.there("forge", &["app", "lib"].into(), &wanted);
        troubles.looked::<()>("forge", "", &Err("cannot be listed".into()));
        assert_eq!(said(), ["cannot be listed"]);
        // A project that no tenant has any more, and that is gone, is nobody's trouble.
        troubles.looked::<()>("forge", "old", &Err("damaged".into()));
        troubles.there("forge", &["app", "lib"].into(), &wanted);
        assert_eq!(said(), ["cannot be listed"]);
    }
}
