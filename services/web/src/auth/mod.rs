//! Who asks: authenticators as Zuul has them, each of which knows the tokens of one issuer.
//!
//! A token is a JSON Web Token in `Authorization: Bearer`. Its `iss` says which authenticator is asked, and that one
//! alone decides by which algorithm and key it must be signed. Nothing in it counts before the signature fits.

pub(crate) mod guard;
mod keys;
mod token;

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use gatelog_rules_config::authorization::claims::UID_CLAIM;
use gatelog_secrets::{Hs256, Rs256};
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value as Json, json};

use crate::answers::{Auth, Realm};

pub use keys::{Fetched, KeySet, KeySource, MAX_KEYS};
pub use token::create as create_token;

/// The issuer of the tokens that operators on the site's own machine make with the key a server leaves there.
pub const LOCAL_ISSUER: &str = "local";
/// The audience of those tokens.
pub const LOCAL_AUDIENCE: &str = "gatelog";
/// The longest value of `uid_claim`, in bytes.
const LONGEST_UID: usize = 200;

/// By what an issuer's tokens are signed.
#[derive(Debug)]
pub enum Signed {
    /// A secret both sides know.
    Hs256(Hs256),
    /// A key whose public half is known.
    Rs256(Rs256),
    /// One of several keys that the issuer says.
    KeySet(KeySet),
}

impl Signed {
    fn algorithm(&self) -> Algorithm {
        match self {
            Signed::Hs256(_) => Algorithm::HS256,
            Signed::Rs256(_) | Signed::KeySet(_) => Algorithm::RS256,
        }
    }
}

/// One who knows the tokens of an issuer. Zuul: an `[auth NAME]` section.
#[derive(Debug)]
pub struct Authenticator {
    /// Zuul's word for the kind: `HS256`, `RS256`, `OpenIDConnect`.
    pub driver: &'static str,
    /// What it is called before people.
    pub realm: String,
    /// The issuer.
    pub issuer: String,
    /// For whom tokens must be.
    pub audience: String,
    /// What the page logs in as.
    pub client_id: String,
    /// Where the page logs in.
    pub authority: String,
    /// The claim that names a person.
    pub uid_claim: String,
    /// How old a token may be, in seconds; none for as old as it says itself.
    pub max_validity: Option<f64>,
    /// How far the issuer's clock is behind, in seconds; less than 0 where ours is.
    pub skew: i64,
    /// Whether a token may itself say of which tenants its bearer is an operator.
    pub allow_authz_override: bool,
    /// What the page needs to know besides, for a browser's login: `scope` and `load_user_info`.
    pub login: Option<(String, bool)>,
    /// By what tokens are signed.
    pub signed: Signed,
}

/// Who asks, by a token that was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Person {
    /// Who vouches.
    pub issuer: String,
    /// Who it is, among those the issuer knows.
    pub uid: String,
    /// What the token says, with the uid under the name that rules ask for.
    pub claims: Json,
}

/// A token does not count. Zuul: the errors of its authenticators.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is none.
    #[error("this takes a token: send one as `Authorization: Bearer TOKEN`")]
    NoToken,
    /// It cannot be read.
    #[error("the token cannot be read: {0}")]
    Undecoded(String),
    /// No authenticator knows its issuer.
    #[error("the token's issuer {0:?} is not known here")]
    UnknownIssuer(String),
    /// It is signed by something else than its issuer signs with.
    #[error("the token is not signed as its issuer signs ({0:?})")]
    Algorithm(Algorithm),
    /// The signature is not its issuer's.
    #[error("the token's signature is not that of its issuer")]
    Signature,
    /// The keys to check it with cannot be had.
    #[error("the token cannot be checked: {0}")]
    Keys(String),
    /// A claim is missing or of the wrong kind.
    #[error("the token's claim `{0}` is missing, or not what it must be")]
    Claim(String),
    /// It is for somebody else.
    #[error("the token is for another audience")]
    Audience,
    /// It was good once.
    #[error("the token has expired")]
    Expired,
    /// It is older than this site takes them.
    #[error("the token is older than this site takes them")]
    TooOld,
    /// It will be good later.
    #[error("the token is not valid yet")]
    Early,
}

impl Refused {
    fn missing(claim: &str) -> Refused {
        Refused::Claim(claim.to_owned())
    }

    /// A word for programs.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Refused::NoToken => "token-required",
            Refused::Undecoded(_) => "token-undecoded",
            Refused::UnknownIssuer(_) => "issuer-unknown",
            Refused::Algorithm(_) => "algorithm-not-allowed",
            Refused::Signature => "invalid-signature",
            Refused::Keys(_) => "keys-unavailable",
            Refused::Claim(_) => "claim-missing",
            Refused::Audience => "incorrect-audience",
            Refused::Expired => "token-expired",
            Refused::TooOld => "token-too-old",
            Refused::Early => "token-not-yet-valid",
        }
    }
}

/// Gives the time in seconds since 1970.
pub type Clock = Arc<dyn Fn() -> f64 + Send + Sync>;

/// Everybody who can say who somebody is.
pub struct Authenticators {
    known: Vec<Authenticator>,
    default_realm: Option<String>,
    local: Option<Hs256>,
    clock: Clock,
}

impl Authenticators {
    /// These, the realm people log in to where nothing else is said, and the key of operators on this machine.
    pub fn new(
        known: Vec<Authenticator>,
        default_realm: Option<String>,
        local: Option<Hs256>,
        clock: Clock,
    ) -> Authenticators {
        Authenticators { known, default_realm, local, clock }
    }

    /// Nobody.
    pub fn none() -> Authenticators {
        Authenticators::new(Vec::new(), None, None, Arc::new(|| 0.0))
    }

    /// Whether nobody is configured. Zuul: then there are no paths for operators.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The realm named where nobody says which.
    pub(crate) fn realm(&self) -> &str {
        self.default_realm.as_deref().unwrap_or("gatelog")
    }

    /// What the page needs to let people log in. Zuul: `capabilities.auth`.
    pub(crate) fn capabilities(&self, realm: Option<&str>, read_protected: bool) -> Auth {
        let told = |one: &Authenticator| {
            let realm = Realm {
                authority: one.authority.clone(),
                client_id: one.client_id.clone(),
                kind: "JWT".to_owned(),
                driver: one.driver.to_owned(),
                scope: one.login.as_ref().map(|(scope, _)| scope.clone()),
                load_user_info: one.login.as_ref().map(|(_, load)| *load),
            };
            (one.realm.clone(), json!(realm))
        };
        Auth {
            realms: self.known.iter().map(told).collect(),
            default_realm: realm.or(self.default_realm.as_deref()).map(str::to_owned),
            read_protected,
            auth_log_file_requests: false,
        }
    }

    /// Whether a request bears a token of an operator on this machine; whether it is good is another question.
    pub(crate) fn claims_to_be_local(&self, headers: &HeaderMap) -> bool {
        let issuer = bearer(headers).and_then(token::issuer);
        self.local.is_some() && issuer.is_ok_and(|issuer| issuer == LOCAL_ISSUER)
    }

    /// Who bears the token of a request.
    pub(crate) async fn person(&self, headers: &HeaderMap) -> Result<Person, Refused> {
        let text = bearer(headers)?;
        let issuer = token::issuer(text)?;
        if let Some(key) = self.local.as_ref().filter(|_| issuer == LOCAL_ISSUER) {
            let claims = token::checked(text, &key.decoding_key(), Algorithm::HS256, &issuer, LOCAL_AUDIENCE)?;
            let uid = taken(&claims, "sub", Some(120.0), (self.clock)())?;
            return Ok(person(issuer, uid, claims));
        }
        let known = self.known.iter().find(|one| one.issuer == issuer);
        let known = known.ok_or_else(|| Refused::UnknownIssuer(issuer.clone()))?;
        let algorithm = known.signed.algorithm();
        let key = match &known.signed {
            Signed::Hs256(key) => key.decoding_key(),
            Signed::Rs256(key) => key.decoding_key(),
            Signed::KeySet(keys) => {
                let name = token::key_name(text, algorithm)?;
                keys.key(name.as_deref()).await.map_err(Refused::Keys)?.decoding_key()
            }
        };
        let mut claims = token::checked(text, &key, algorithm, &issuer, &known.audience)?;
        let now = (self.clock)() - known.skew as f64;
        let uid = taken(&claims, &known.uid_claim, known.max_validity, now)?;
        if !known.allow_authz_override && claims.remove("zuul").is_some() {
            tracing::info!(
                issuer,
                uid,
                "a token says of what its bearer is an operator; its authenticator does not allow that"
            );
        }
        Ok(person(issuer, uid, claims))
    }
}

fn person(issuer: String, uid: String, mut claims: Map<String, Json>) -> Person {
    claims.insert(UID_CLAIM.to_owned(), json!(uid));
    Person { issuer, uid, claims: Json::Object(claims) }
}

fn bearer(headers: &HeaderMap) -> Result<&str, Refused> {
    let text = headers.get(AUTHORIZATION).ok_or(Refused::NoToken)?;
    let text = text.to_str().map_err(|_| Refused::Undecoded("it is no text".into()))?;
    let (scheme, token) = text.trim().split_once(' ').ok_or(Refused::NoToken)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(token.trim()) } else { Err(Refused::NoToken) }
}

/// Who the bearer is, if these claims are good at this moment of the issuer's clock.
fn taken(claims: &Map<String, Json>, uid_claim: &str, max_validity: Option<f64>, now: f64) -> Result<String, Refused> {
    let number = |name: &str| match claims.get(name) {
        None => Ok(None),
        Some(value) => {
            value.as_f64().filter(|number| number.is_finite()).map(Some).ok_or_else(|| Refused::missing(name))
        }
    };
    if claims.get("sub").and_then(Json::as_str).is_none() {
        return Err(Refused::missing("sub"));
    }
    let expires = number("exp")?.ok_or_else(|| Refused::missing("exp"))?;
    let issued = number("iat")?;
    if expires <= now {
        return Err(Refused::Expired);
    }
    if issued.is_some_and(|issued| issued > now) || number("nbf")?.is_some_and(|from| from > now) {
        return Err(Refused::Early);
    }
    if let Some(most) = max_validity {
        let issued = issued.ok_or_else(|| Refused::missing("iat"))?;
        if now - issued > most {
            return Err(Refused::TooOld);
        }
    }
    let uid = claims.get(uid_claim).and_then(Json::as_str);
    let fine = |uid: &&str| !uid.is_empty() && uid.len() <= LONGEST_UID && !uid.contains(char::is_control);
    uid.filter(fine).map(str::to_owned).ok_or_else(|| Refused::missing(uid_claim))
}
