//! An artificial kind, released twice, that keeps the machinery honest before the first real release.

pub mod v1;
pub mod v2;
