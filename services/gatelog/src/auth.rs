//! Who can say who somebody is, as `gatelog.toml` has it, and the key of operators on the site's own machine.
//!
//! Whoever can read a site's directory as its server does may do everything there anyway: a server that starts leaves a
//! key in [`KEY_FILE`], readable by its own user alone, and commands that are given that directory sign with it.

use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gatelog_effects::connection::chain;
use gatelog_secrets::{Hs256, Rs256};
use gatelog_web::auth::{
    Authenticator, Authenticators, Fetched, KeySet, KeySource, LOCAL_AUDIENCE, LOCAL_ISSUER, MAX_KEYS, Signed,
    create_token,
};
use serde_json::{Value as Json, json};

use crate::config::{AuthConfig, AuthDriver, SiteConfig};
use crate::server::{StartError, part};

/// The key of operators on the site's own machine.
pub const KEY_FILE: &str = "operator.key";
/// The longest file with a key or a secret, in bytes.
const LONGEST: u64 = 64 << 10;
/// A secret that is shorter can be guessed.
const SHORT: usize = 32;
/// How long an issuer may take to answer.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long a token of this machine's operators is good, in seconds.
const LOCAL_SPAN: i64 = 60;

fn trouble(message: String) -> StartError {
    StartError::Part { part: "auth", message }
}

/// Everybody `gatelog.toml` names. `local` is the key of this machine's operators.
///
/// # Errors
/// A secret or key that cannot be had.
pub fn authenticators(site: &Path, config: &SiteConfig, local: Hs256) -> Result<Authenticators, StartError> {
    let mut known = Vec::with_capacity(config.auth.len());
    for (name, one) in &config.auth {
        known.push(authenticator(site, name, one)?);
    }
    let marked = config.auth.iter().find(|(_, one)| one.default);
    let only = config.auth.iter().next().filter(|_| config.auth.len() == 1);
    let default = marked.or(only).map(|(name, one)| one.realm(name).to_owned());
    let clock = || crate::clock::now().0 as f64 / 1_000_000.0;
    Ok(Authenticators::new(known, default, Some(local), Arc::new(clock)))
}

/// Whether the files are there and right that `[auth]` names.
///
/// # Errors
/// The first that is not.
pub fn check(site: &Path, config: &SiteConfig) -> Result<(), StartError> {
    config.auth.iter().try_for_each(|(name, one)| authenticator(site, name, one).map(|_| ()))
}

fn authenticator(site: &Path, name: &str, config: &AuthConfig) -> Result<Authenticator, StartError> {
    let (driver, signed) = match config.driver {
        AuthDriver::HS256 => ("HS256", Signed::Hs256(shared_secret(site, name, config).map_err(trouble)?)),
        AuthDriver::RS256 => {
            let path = site.join(config.public_key.as_deref().unwrap_or(Path::new("")));
            let key = text_of(&path).and_then(|text| {
                Rs256::from_pem(&text)
                    .map_err(|error| format!("public-key of [auth.{name}], {}: {error}", path.display()))
            });
            ("RS256", Signed::Rs256(key.map_err(trouble)?))
        }
        AuthDriver::OpenIDConnect => {
            let source = source(site, config)?;
            ("OpenIDConnect", Signed::KeySet(KeySet::new(source)))
        }
    };
    let login = (config.driver == AuthDriver::OpenIDConnect).then(|| (config.scope.clone(), config.load_user_info));
    Ok(Authenticator {
        driver,
        realm: config.realm(name).to_owned(),
        issuer: config.issuer_id.clone(),
        audience: config.audience().to_owned(),
        client_id: config.client_id.clone(),
        authority: config.authority.clone().unwrap_or_else(|| config.issuer_id.clone()),
        uid_claim: config.uid_claim.clone(),
        max_validity: config.max_validity_time.map(|seconds| seconds as f64),
        skew: config.skew,
        allow_authz_override: config.allow_authz_override,
        login,
        signed,
    })
}

/// The secret of an authenticator whose tokens are signed by one; what is wrong with it otherwise.
pub fn shared_secret(site: &Path, name: &str, config: &AuthConfig) -> Result<Hs256, String> {
    let text = match (&config.secret, &config.secret_file) {
        (Some(secret), _) => secret.0.clone(),
        (None, Some(path)) => text_of(&site.join(path))?.trim_end().to_owned(),
        (None, None) => return Err(format!("[auth.{name}] has no secret")),
    };
    if text.len() < SHORT {
        tracing::warn!(auth = name, "a secret of less than {SHORT} characters can be guessed by whoever has a token");
    }
    Hs256::new(text.as_bytes()).ok_or_else(|| format!("the secret of [auth.{name}] is empty"))
}

fn text_of(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(LONGEST).read_to_string(&mut text));
    read.map(|_| text).map_err(|error| format!("{}: {error}", path.display()))
}

fn source(site: &Path, config: &AuthConfig) -> Result<Arc<dyn KeySource>, StartError> {
    let (address, discover) = match &config.keys_url {
        Some(url) => (url.clone(), false),
        None => {
            let issuer = config.issuer_id.trim_end_matches('/');
            (format!("{issuer}/.well-known/openid-configuration"), true)
        }
    };
    if !address.starts_with("http://") && !address.starts_with("https://") {
        let path = address.strip_prefix("file://").unwrap_or(&address);
        return Ok(Arc::new(File(site.join(path))));
    }
    let client = reqwest::Client::builder()
        .timeout(PATIENCE)
        .redirect(reqwest::redirect::Policy::limited(3))
        .build()
        .map_err(part("auth"))?;
    Ok(Arc::new(Web { client, address, discover }))
}

/// Keys in a file.
struct File(PathBuf);

impl KeySource for File {
    fn fetch(&self) -> Fetched<'_> {
        Box::pin(async move { text_of(&self.0).map(String::into_bytes) })
    }
}

/// Keys that an issuer serves.
struct Web {
    client: reqwest::Client,
    address: String,
    /// Whether the address says where the keys are.
    discover: bool,
}

impl Web {
    async fn get(&self, address: &str) -> Result<Vec<u8>, String> {
        let failed = |error: reqwest::Error| format!("{address}: {}", chain(&error.without_url()));
        let mut response = self.client.get(address).send().await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(format!("{address} answers {}", response.status()));
        }
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(failed)? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > MAX_KEYS {
                return Err(format!("{address} answers more than {MAX_KEYS} bytes"));
            }
        }
        Ok(bytes)
    }
}

impl KeySource for Web {
    fn fetch(&self) -> Fetched<'_> {
        Box::pin(async move {
            let bytes = self.get(&self.address).await?;
            if !self.discover {
                return Ok(bytes);
            }
            let said: Json = serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", self.address))?;
            let keys = said.get("jwks_uri").and_then(Json::as_str);
            self.get(keys.ok_or_else(|| format!("{} names no jwks_uri", self.address))?).await
        })
    }
}

/// Leaves a new key for this machine's operators in a site's directory.
///
/// # Errors
/// No random numbers, or the file cannot be written.
pub fn leave_key(site: &Path) -> Result<Hs256, StartError> {
    let mut drawn = [0; 32];
    getrandom::fill(&mut drawn)
        .map_err(|error| StartError::Part { part: "random numbers", message: error.to_string() })?;
    let text = hex::encode(drawn);
    let path = site.join(KEY_FILE);
    let fresh = site.join(format!("{KEY_FILE}.{}.new", std::process::id()));
    // What a process of the same number left behind.
    let _ = std::fs::remove_file(&fresh);
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&fresh, &path));
    written.map_err(|error| trouble(format!("{}: {error}", path.display())))?;
    Hs256::new(text.as_bytes()).ok_or_else(|| trouble("a key could not be made".into()))
}

/// A token for the server of a site on this machine, in the name of whoever runs this; why there is none otherwise.
pub fn local_token(site: &Path) -> Result<String, String> {
    let path = site.join(KEY_FILE);
    let key =
        Hs256::new(text_of(&path)?.trim_end().as_bytes()).ok_or_else(|| format!("{} is empty", path.display()))?;
    let now = crate::clock::now().0.div_euclid(1_000_000);
    let claims = json!({
        "iss": LOCAL_ISSUER, "aud": LOCAL_AUDIENCE, "sub": unix_user(), "iat": now, "exp": now + LOCAL_SPAN,
        "zuul": { "admin": "*" },
    });
    create_token(&key, &claims).map_err(|error| error.to_string())
}

/// Who runs this: the Unix user, or whoever became root by sudo.
fn unix_user() -> String {
    let uid = rustix::process::getuid().as_raw();
    let sudo = std::env::var("SUDO_USER").ok().filter(|name| uid == 0 && !name.is_empty());
    sudo.unwrap_or_else(|| {
        let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        name_of(&known, uid).unwrap_or_else(|| format!("uid {uid}"))
    })
}

fn name_of(passwd: &str, uid: u32) -> Option<String> {
    let of = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    };
    passwd.lines().find_map(of)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_unix_user_is_known_by_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(name_of(passwd, 1000).as_deref(), Some("ann"));
        assert_eq!(name_of(passwd, 1001), None);
    }

    #[test]
    fn the_key_a_server_leaves_is_its_users_alone_and_another_at_each_start() {
        let dir = tempfile::tempdir().unwrap();
        assert!(local_token(dir.path()).unwrap_err().contains(KEY_FILE));
        leave_key(dir.path()).unwrap();
        let path = dir.path().join(KEY_FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let first = std::fs::read_to_string(&path).unwrap();
        assert_eq!(local_token(dir.path()).unwrap().split('.').count(), 3);
        leave_key(dir.path()).unwrap();
        assert_ne!(std::fs::read_to_string(&path).unwrap(), first);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    }
}
