//! Tests of the house itself.

mod dependencies;
mod manifests;
mod purity;
mod tidy;
