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

/// The newest level this gatelog reads and may write.
pub const LEVEL: u32 = 1;

/// The newest level that this process reads: [`LEVEL`], but in a test that stands for the release before.
#[cfg(debug_assertions)]
static READ: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(LEVEL);

/// This gatelog's version.
pub const GATELOG: &str = env!("CARGO_PKG_VERSION");

/// The newest level that this process reads and writes.
#[cfg(debug_assertions)]
pub fn newest_read() -> u32 {
    READ.load(std::sync::atomic::Ordering::Relaxed)
}

/// The newest level that this process reads and writes.
#[cfg(not(debug_assertions))]
pub const fn newest_read() -> u32 {
    LEVEL
}

/// Makes of this process one of the release before, to which all kinds of the newest level are unknown. For tests; to be
/// called before the first record is read. A release build has no such function.
#[cfg(debug_assertions)]
pub fn become_the_release_before() {
    READ.store(LEVEL - 1, std::sync::atomic::Ordering::Relaxed);
}

/// Whether this process knows a level.
pub fn known(level: u32) -> bool {
    level <= newest_read()
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
