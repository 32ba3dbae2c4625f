//! A code review in a directory of files: shows what a driver is, and is attached by the list of drivers alone.
//!
//! | there | is |
//! |---|---|
//! | `PROJECT.git` | a bare repository; change 7 is its ref `refs/changes/7` |
//! | `inbox/NUMBER` | an event: `PROJECT CHANGE ready`, told in the order of the names |
//! | `reports/WORK` | a report |

mod review;
mod watching;

use std::path::PathBuf;
use std::sync::Arc;

use gatelog_driver_contract::{
    Connection, Driver, DriverSchema, Field, Lack, Looked, Opening, Settings, Shape, Trouble, field, needed,
};
use serde::Deserialize;

use review::Shelf;

const TRIGGER: &[Field] = &[needed("event", Shape::Words(&["ready"])), field("branch", Shape::Regexes)];
const REPORTER: &[Field] = &[field("aloud", Shape::Bool), field("merge", Shape::Bool)];

/// What pipelines may say to it.
pub const SCHEMA: DriverSchema = DriverSchema {
    has_projects: true,
    trigger: Some(TRIGGER),
    reporter: Some(&[Shape::Fields(REPORTER)]),
    regexes: &["branch"],
    ..DriverSchema::silent("sample")
};

/// The driver.
pub const DRIVER: Driver = Driver {
    name: "sample",
    schema: &SCHEMA,
    read: |section| {
        let settings: SampleSettings = section.try_into()?;
        Ok(Arc::new(settings))
    },
};

/// Its section of `gatelog.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SampleSettings {
    /// The directory, relative to the site's.
    pub shelf: PathBuf,
    /// The host part of canonical project names.
    pub canonical_hostname: String,
}

impl SampleSettings {
    fn connection(&self, opening: &Opening<'_>) -> Connection {
        let (name, host) = (opening.name.to_owned(), self.canonical_hostname.clone());
        let shelf = Shelf { name, host, root: opening.site.join(&self.shelf), keyring: Arc::clone(&opening.keyring) };
        let shelf = Arc::new(shelf);
        Connection::new(opening.name, &SCHEMA)
            .with_review(Arc::clone(&shelf) as _)
            .with_reporter(Arc::clone(&shelf) as _)
            .with_intake(shelf)
    }
}

impl Settings for SampleSettings {
    fn canonical_hostname(&self) -> Option<&str> {
        Some(&self.canonical_hostname)
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Connection, Trouble> {
        for folder in ["inbox", "reports"] {
            let made = std::fs::create_dir_all(opening.site.join(&self.shelf).join(folder));
            made.map_err(|error| Trouble::lasting("shelf", &error))?;
        }
        Ok(self.connection(opening))
    }

    fn look(&self, opening: &Opening<'_>) -> Looked {
        let place = opening.site.join(&self.shelf);
        let found = match place.is_dir() {
            true => Ok(format!("a shelf in {}", place.display())),
            false => Err(Lack { what: format!("{} is not there", place.display()), cure: "make it".to_owned() }),
        };
        Looked { connection: Some(self.connection(opening)), found }
    }
}
