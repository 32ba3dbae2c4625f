//! One set of features for every build of the workspace.
//!
//! Cargo compiles a crate once for each set of features, and takes the features of dev-dependencies into account only
//! when it builds tests. So `proptest` would have `num-traits`, and all that stands on it, compiled twice: for the
//! binary and for the tests. This crate has as dependencies what others have as dev-dependencies. `./dev` always names
//! it, or the whole workspace, beside what it builds; nothing of it is compiled into anything.
//!
//! `tests/architecture` (`features.rs`) fails where the two sets differ.
