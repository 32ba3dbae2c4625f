//! `[oidc]`: tokens of secrets with `oidc`.

use std::num::NonZeroU32;

use serde::Deserialize;

/// How the site signs tokens. Under which name it issues them says `root` under `[web]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OidcSection {
    /// After how many seconds the key that signs is followed by another; a week if not set. Zuul:
    /// `signing_key_rotation_interval`. The same in all processes of the site.
    #[serde(default = "default_interval")]
    pub signing_key_rotation_interval: NonZeroU32,
}

fn default_interval() -> NonZeroU32 {
    NonZeroU32::MIN.saturating_add(604_799)
}

impl Default for OidcSection {
    fn default() -> Self {
        OidcSection { signing_key_rotation_interval: default_interval() }
    }
}

impl OidcSection {
    /// The interval, in seconds.
    pub fn rotate_every(&self) -> i64 {
        i64::from(self.signing_key_rotation_interval.get())
    }
}
