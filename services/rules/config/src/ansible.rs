//! Which versions of Ansible there are.

/// Versions a job may ask for.
pub const SUPPORTED: &[&str] = &["9", "11"];

/// Whether a job may ask for a version.
pub fn is_supported(version: &str) -> bool {
    SUPPORTED.contains(&version)
}
