//! Tokens: secrets with `oidc`, which are signed for each playbook that is given one.
//!
//! Zuul: JSON Web Tokens (RS256) that say for which secret, build, job and playbook they are. Others let a playbook in by
//! them: they fetch the public halves of the site's keys from where the token says that it comes from.

use std::collections::BTreeMap;
use std::sync::Arc;

use gatelog_record::{Timestamp, Value};
use gatelog_rules_config::TenantSettings;
use gatelog_rules_config::objects::secret::SecretSource;
use gatelog_secrets::{Keyring, TokenClock};
use serde_json::{Map, Value as Json, json};

use crate::connection::chain;
use crate::secrets::{FrozenSecret, SecretRefused};

/// How a site issues tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSettings {
    /// The name it issues them under; see [`issuer`]. `None`: nobody has said.
    pub issuer: Option<String>,
    /// After how many seconds the key that signs is followed by another.
    pub rotate_every: i64,
}

/// The name a site issues tokens under, from how people reach its pages. Zuul: what `web-root` says before `/t/`.
pub fn issuer(web_root: &str) -> String {
    web_root.split("/t/").next().unwrap_or_default().trim_end_matches('/').to_owned()
}

/// A moment for the keys of tokens.
pub fn clock(now: Timestamp, rotate_every: i64) -> TokenClock {
    TokenClock { now: now.0.div_euclid(1_000_000), rotate_every }
}

/// What a token says of the build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBuild {
    /// The build, as its job knows it (`zuul.build`).
    pub build: String,
    /// The job.
    pub job: String,
    /// The pipeline.
    pub pipeline: String,
    /// The tenant.
    pub tenant: String,
}

/// What the tokens of one secret say in one build, but for playbook and time.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    claims: Map<String, Json>,
    custom: Map<String, Json>,
    /// How long one lives, in seconds.
    life: i64,
}

impl Token {
    /// Of a secret: its name where it is defined, what stands there, and the host of its project's canonical name.
    ///
    /// # Errors
    /// The secret is no token, or there is no name to issue it under.
    pub fn of(
        name: &str,
        secret: &FrozenSecret,
        host: &str,
        build: &TokenBuild,
        issuer: Option<&str>,
    ) -> Result<Token, SecretRefused> {
        let project = || format!("{}/{}", secret.connection, secret.project);
        let SecretSource::Oidc(settings) = &secret.source else {
            return Err(SecretRefused::Token { secret: name.to_owned(), project: project() });
        };
        let setting = |name: &str| settings.as_map().and_then(|map| map.get(name));
        let own = setting("iss").and_then(Value::as_str);
        // Zuul: without a web root there are no tokens, and nobody is told.
        let none = || SecretRefused::NoIssuer { secret: name.to_owned(), project: project() };
        let issuer = own.or(issuer).filter(|issuer| !issuer.is_empty()).ok_or_else(none)?;
        let life = match setting("ttl") {
            Some(Value::Int(seconds)) => *seconds,
            // As Python counts.
            Some(Value::Bool(yes)) => i64::from(*yes),
            // No tenant has another: Zuul refuses `default-oidc-ttl`.
            _ => TenantSettings::default().default_oidc_ttl,
        };
        let custom = match setting("claims").map(Value::to_json) {
            Some(Json::Object(custom)) => custom,
            _ => Map::new(),
        };
        let TokenBuild { build, job, pipeline, tenant } = build;
        let claims = json!({
            "iss": issuer,
            "sub": format!("secret:{tenant}/{host}/{}/{name}", secret.project),
            "build-uuid": build,
            "job-name": job,
            "pipeline": pipeline,
            "tenant": tenant,
        });
        let Json::Object(claims) = claims else { return Err(none()) };
        Ok(Token { claims, custom, life })
    }

    /// All claims of one, for a playbook that begins now (in seconds since 1970).
    fn claims(&self, playbook: &str, now: i64) -> Map<String, Json> {
        let mut claims = self.claims.clone();
        let _ = claims.insert("playbook".to_owned(), json!(playbook));
        let _ = claims.insert("iat".to_owned(), json!(now));
        let _ = claims.insert("exp".to_owned(), json!(now.saturating_add(self.life)));
        for (name, value) in &self.custom {
            // Zuul: what a secret says itself may not hide what the site says.
            if !claims.contains_key(name) {
                let _ = claims.insert(name.clone(), value.clone());
            }
        }
        claims
    }
}

/// Issues the tokens of one build.
#[derive(Debug)]
pub struct Issuer {
    keyring: Arc<Keyring>,
    tokens: BTreeMap<String, Token>,
    rotate_every: i64,
    now: fn() -> Timestamp,
}

impl Issuer {
    /// For a build whose playbooks may be given these, by the names of their secrets.
    pub fn new(
        keyring: Arc<Keyring>,
        tokens: BTreeMap<String, Token>,
        rotate_every: i64,
        now: fn() -> Timestamp,
    ) -> Issuer {
        Issuer { keyring, tokens, rotate_every, now }
    }

    /// A token of this secret's for a playbook that begins, by the canonical name of its project and its path there.
    ///
    /// # Errors
    /// A sentence: why there is none.
    pub fn issue(&self, secret: &str, playbook: &str) -> Result<String, String> {
        let token = self.tokens.get(secret).ok_or("the build was not given this secret")?;
        let clock = clock((self.now)(), self.rotate_every);
        let claims = token.claims(playbook, clock.now);
        self.keyring.sign_token(&claims, token.life, clock).map_err(|error| chain(&error))
    }
}
