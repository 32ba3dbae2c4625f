//! Levels: what may be written, so that the gatelog before this one can still read it.
//!
//! Every kind belongs to a level, the one from which on it may be written. A gatelog knows the levels up to its own
//! [`LEVEL`]; a log has one, too, for each partition: the newest `level-raised` in it, or 0. Writers write kinds up to the
//! log's level and no further, so two releases can run side by side, and going back is possible, until the level is
//! raised. That is refused while anybody who is there does not know the level, and it names the gatelog that does: a
//! reader that does not know it stops at that event and says which gatelog to read on with.
//!
//! A new version of a kind is a new shape under an old name: give it a level in the same way, and write the old kind until
//! the log is there.

use serde::{Deserialize, Serialize};

/// The newest level this gatelog reads and may write. With the feature `older-reader` it is the one before: then all kinds
/// of the newest level are as unknown as to the release that came before them.
pub const LEVEL: u32 = if cfg!(feature = "older-reader") { NEWEST - 1 } else { NEWEST };

const NEWEST: u32 = 1;

/// This gatelog's version.
pub const GATELOG: &str = env!("CARGO_PKG_VERSION");

/// Whether this gatelog knows a level.
pub const fn known(level: u32) -> bool {
    level <= LEVEL
}

/// A component and the newest level that it knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knows {
    /// Its name.
    pub component: String,
    /// Its gatelog.
    pub gatelog: String,
    /// The level.
    pub level: u32,
}

/// Why a log's level is not raised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LevelError {
    /// The one who would write it does not know it.
    #[error(
        "the log's level cannot be raised to {wanted}: its writer, gatelog {GATELOG}, knows levels up to {LEVEL}; \
         upgrade it first"
    )]
    Writer {
        /// The level asked for.
        wanted: u32,
    },
    /// Somebody who is there does not know it.
    #[error(
        "the log's level cannot be raised to {wanted} while {} runs: upgrade or stop {}, then ask again",
        named(without), if without.len() == 1 { "it" } else { "them" }
    )]
    Present {
        /// The level asked for.
        wanted: u32,
        /// Those who do not know it.
        without: Vec<Knows>,
    },
    /// Nobody is said to be there.
    #[error("the log's level cannot be raised to {wanted}: who is there is not known; ask again once it is")]
    Unknown {
        /// The level asked for.
        wanted: u32,
    },
}

fn named(components: &[Knows]) -> String {
    let name = |of: &Knows| format!("{} (gatelog {}, level {})", of.component, of.gatelog, of.level);
    components.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Whether a level may be raised while these components are there.
///
/// # Errors
/// [`LevelError`]
pub fn may_raise(wanted: u32, present: &[Knows]) -> Result<(), LevelError> {
    if !known(wanted) {
        return Err(LevelError::Writer { wanted });
    }
    if present.is_empty() {
        return Err(LevelError::Unknown { wanted });
    }
    let without: Vec<Knows> = present.iter().filter(|one| one.level < wanted).cloned().collect();
    if without.is_empty() { Ok(()) } else { Err(LevelError::Present { wanted, without }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knows(component: &str, level: u32) -> Knows {
        Knows { component: component.to_owned(), gatelog: format!("0.{level}.0"), level }
    }

    #[test]
    fn a_level_is_raised_only_when_all_who_are_there_know_it() {
        assert_eq!(may_raise(LEVEL, &[knows("a", LEVEL), knows("b", LEVEL + 1)]), Ok(()));
        assert_eq!(may_raise(LEVEL, &[]), Err(LevelError::Unknown { wanted: LEVEL }));
        let beyond = may_raise(LEVEL + 1, &[knows("a", LEVEL + 1)]).unwrap_err().to_string();
        assert!(beyond.contains(&format!("gatelog {GATELOG}, knows levels up to {LEVEL}; upgrade it")), "{beyond}");
    }

    #[cfg(not(feature = "older-reader"))]
    #[test]
    fn whoever_does_not_know_it_is_named() {
        let refused = may_raise(1, &[knows("a", 1), knows("b", 0)]).unwrap_err().to_string();
        let one = "the log's level cannot be raised to 1 while b (gatelog 0.0.0, level 0) runs: upgrade or stop it, then \
                   ask again";
        assert_eq!(refused, one);
        let refused = may_raise(1, &[knows("c", 0), knows("b", 0)]).unwrap_err().to_string();
        assert!(refused.contains("c (gatelog 0.0.0, level 0), b (gatelog 0.0.0, level 0) runs: upgrade or stop them"));
    }
}
