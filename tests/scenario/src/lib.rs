//! Scenario files, played on the gate's own rules: the real decisions and tables, the real configuration
//! loader and freezer, real merges of real contents, and a code-review system, builds and a clock that are
//! made up. What came of it is printed as an *observation*, which can be compared with what another system
//! did with the same file.
//!
//! [`file`] reads a scenario, [`gerrit`] is the code review, [`shell`] the loop around the rules,
//! [`effects`] answers the rules' short work, [`player`] takes the steps, [`observe`] says what was seen,
//! [`standing`] behind whom, [`errors`] names what is wrong in a configuration, [`print`](mod@print) writes it all down.

pub mod effects;
pub mod errors;
pub mod file;
pub mod gerrit;
pub mod observe;
pub mod player;
pub mod print;
pub mod repository;
pub mod rules;
pub mod shell;
pub mod standing;

pub use file::Scenario;
pub use player::play;
