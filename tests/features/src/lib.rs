//! One set of features for every build of the workspace.
//!
//! Cargo compiles a crate once for each set of features that somebody asks for: for the binary, for the tests, and for
//! each crate that is built by itself. So this crate names every crate from outside with all features that any crate of
//! the workspace asks for, and `./dev` always names it, or the whole workspace, beside what it builds. Nothing of it is
//! compiled into anything.
//!
//! `tests/architecture` (`features.rs`) fails where one is missing.
