//! `[auth.NAME]`: who can say who somebody is. Zuul: the `[auth NAME]` sections of zuul.conf, with dashes in place of
//! underscores.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use gatelog_web::auth::LOCAL_ISSUER;
use serde::Deserialize;

/// A secret in a configuration file; never printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// How tokens are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum AuthDriver {
    /// By a secret both sides know.
    HS256,
    /// By a key whose public half is in a file.
    RS256,
    /// By one of the keys that the issuer says.
    #[serde(alias = "RS256withJWKS")]
    OpenIDConnect,
}

/// One who knows the tokens of an issuer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AuthConfig {
    /// How tokens are signed.
    pub driver: AuthDriver,
    /// What it is called before people; its name if not set.
    #[serde(default)]
    pub realm: Option<String>,
    /// Whether people log in here where the tenant file names no realm; the only one there is, is.
    #[serde(default)]
    pub default: bool,
    /// The issuer: what stands in a token's `iss`.
    pub issuer_id: String,
    /// What the page logs in as, and for whom tokens must be: what stands in a token's `aud`.
    pub client_id: String,
    /// For whom tokens must be, where that is not `client-id`.
    #[serde(default)]
    pub audience: Option<String>,
    /// The claim that names a person.
    #[serde(default = "default_uid_claim")]
    pub uid_claim: String,
    /// How old a token may be, in seconds, whatever it says itself.
    #[serde(default)]
    pub max_validity_time: Option<u64>,
    /// How far the issuer's clock is behind this one, in seconds; less than 0 where it is ahead.
    #[serde(default)]
    pub skew: i64,
    /// Whether a token may itself say, in `zuul.admin`, of which tenants its bearer is an operator.
    #[serde(default)]
    pub allow_authz_override: bool,
    /// HS256: the secret.
    #[serde(default)]
    pub secret: Option<Secret>,
    /// HS256: a file with the secret, relative to the site's directory; white space at its end does not count.
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// RS256: a file with the public key in PEM, relative to the site's directory.
    #[serde(default)]
    pub public_key: Option<PathBuf>,
    /// OpenIDConnect: where the issuer's keys are: an address, or a file relative to the site's directory; what
    /// `issuer-id` says under `.well-known/openid-configuration` if not set.
    #[serde(default)]
    pub keys_url: Option<String>,
    /// OpenIDConnect: what the page asks for when people log in.
    #[serde(default = "default_scope")]
    pub scope: String,
    /// OpenIDConnect: where people log in; `issuer-id` if not set.
    #[serde(default)]
    pub authority: Option<String>,
    /// OpenIDConnect: whether the page asks the issuer for more about a person.
    #[serde(default = "default_load_user_info")]
    pub load_user_info: bool,
}

fn default_uid_claim() -> String {
    "sub".into()
}

fn default_scope() -> String {
    "openid profile".into()
}

fn default_load_user_info() -> bool {
    true
}

impl AuthConfig {
    /// What it is called before people.
    pub fn realm<'a>(&'a self, name: &'a str) -> &'a str {
        self.realm.as_deref().unwrap_or(name)
    }

    /// For whom tokens must be.
    pub fn audience(&self) -> &str {
        self.audience.as_deref().unwrap_or(&self.client_id)
    }

    fn lacks(&self) -> Option<(&'static str, &'static str)> {
        match self.driver {
            AuthDriver::HS256 if self.secret.is_some() == self.secret_file.is_some() => {
                Some(("needs one of secret and secret-file", "write a secret of 32 characters or more into a file"))
            }
            AuthDriver::RS256 if self.public_key.is_none() => {
                Some(("needs public-key", "name a file with the issuer's public key in PEM"))
            }
            AuthDriver::HS256 if self.public_key.is_some() || self.keys_url.is_some() => {
                Some(("has a key beside its secret", "take public-key and keys-url out, or choose another driver"))
            }
            AuthDriver::RS256 | AuthDriver::OpenIDConnect if self.secret.is_some() || self.secret_file.is_some() => {
                Some(("has a secret that its driver does not use", "take it out, or say driver = \"HS256\""))
            }
            AuthDriver::RS256 if self.keys_url.is_some() => {
                Some(("has a keys-url that its driver does not use", "say driver = \"OpenIDConnect\""))
            }
            AuthDriver::OpenIDConnect if self.keys_url.as_ref().unwrap_or(&self.issuer_id).starts_with("https://") => {
                Some((
                    "has its keys at an https address, which this gatelog cannot fetch",
                    "set keys-url to a file that something else keeps fresh, or to an http address nobody can tamper with",
                ))
            }
            AuthDriver::OpenIDConnect if self.public_key.is_some() => {
                Some(("has a public-key that its driver does not use", "say driver = \"RS256\""))
            }
            _ => None,
        }
    }
}

/// What does not go together, and the cure.
pub(super) fn contradiction(all: &BTreeMap<String, AuthConfig>) -> Option<(String, String)> {
    for (name, one) in all {
        if let Some((what, cure)) = one.lacks() {
            return Some((format!("[auth.{name}] {what}"), cure.to_owned()));
        }
        for (key, value) in
            [("issuer-id", &one.issuer_id), ("client-id", &one.client_id), ("uid-claim", &one.uid_claim)]
        {
            if value.trim().is_empty() {
                return Some((format!("{key} of [auth.{name}] is empty"), "say what stands in tokens".to_owned()));
            }
        }
        if one.issuer_id == LOCAL_ISSUER {
            let cure = "give the issuer another name".to_owned();
            return Some((format!("issuer-id = {LOCAL_ISSUER:?} of [auth.{name}] is gatelog's own"), cure));
        }
        let twice = |same: &dyn Fn(&str, &AuthConfig) -> bool| {
            all.iter().find(|(other, two)| *other > name && same(other.as_str(), two)).map(|(other, _)| other)
        };
        if let Some(other) = twice(&|_, two| two.issuer_id == one.issuer_id) {
            let what = format!("[auth.{name}] and [auth.{other}] have the same issuer-id");
            return Some((what, "a token's issuer says which of them is asked: keep one".to_owned()));
        }
        if let Some(other) = twice(&|other, two| two.realm(other) == one.realm(name)) {
            let what = format!("[auth.{name}] and [auth.{other}] have the same realm");
            return Some((what, "give each a realm of its own".to_owned()));
        }
        if let Some(other) = twice(&|_, two| two.default && one.default) {
            let what = format!("[auth.{name}] and [auth.{other}] are both the default");
            return Some((what, "say default = true in one of them".to_owned()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::config::tests::said;

    #[test]
    fn authenticators_are_read_with_their_defaults_and_what_cannot_be_is_named_with_its_cure() {
        let hs256 = "[auth.ops]\ndriver = \"HS256\"\nissuer-id = \"sso\"\nclient-id = \"ci\"\nsecret = \"hush hush\"\n";
        let whole = said(hs256);
        for word in ["HS256", "\"sub\"", "allow_authz_override: false", "skew: 0"] {
            assert!(whole.contains(word), "{word}: {whole}");
        }
        assert!(!whole.contains("hush"), "{whole}");
        let oidc = "[auth.sso]\ndriver = \"RS256withJWKS\"\nissuer-id = \"https://sso\"\nclient-id = \"ci\"\nkeys-url = \"keys.json\"\n";
        assert!(said(&format!("{hs256}{oidc}")).contains("OpenIDConnect"));
        for (text, words) in [
            (hs256.replace("secret = \"hush hush\"\n", ""), "[auth.ops] needs one of secret and secret-file; write"),
            (hs256.replace("HS256", "RS256"), "[auth.ops] needs public-key; name a file"),
            (hs256.replace("HS256", "OpenIDConnect"), "has a secret that its driver does not use"),
            (oidc.replace("keys.json", "https://sso/keys"), "which this gatelog cannot fetch; set keys-url to a file"),
            (oidc.replace("keys-url = \"keys.json\"\n", ""), "which this gatelog cannot fetch"),
            (hs256.replace("HS256", "Basic"), "unknown variant `Basic`"),
            (hs256.replace("\"sso\"", "\"local\""), "is gatelog's own"),
            (hs256.replace("\"ci\"", "\" \""), "client-id of [auth.ops] is empty"),
            (format!("{hs256}uid_claim = \"email\"\n"), "unknown field `uid_claim`"),
            (format!("{hs256}{}", hs256.replace("ops", "two")), "[auth.ops] and [auth.two] have the same issuer-id"),
            (format!("{hs256}default = true\n{oidc}default = true\n"), "are both the default"),
            (format!("{hs256}{oidc}realm = \"ops\"\n"), "have the same realm"),
        ] {
            assert!(said(&text).contains(words), "{words}: {}", said(&text));
        }
    }
}
