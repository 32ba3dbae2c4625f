//! One token: a JSON Web Signature in its short form, and the claims in it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value as Json};

use super::Refused;

/// The longest token that is looked at, in bytes.
const LONGEST: usize = 16 << 10;

/// A token whose signature nobody has looked at yet.
#[derive(Debug)]
pub(super) struct Token<'t> {
    /// What is signed.
    signed: &'t str,
    /// By what it says it is signed.
    pub(super) algorithm: String,
    /// By which key it says it is signed.
    pub(super) key: Option<String>,
    signature: Vec<u8>,
    claims: Map<String, Json>,
}

impl<'t> Token<'t> {
    /// Takes a token apart.
    pub(super) fn read(text: &'t str) -> Result<Token<'t>, Refused> {
        if text.len() > LONGEST {
            return Err(Refused::Undecoded(format!("it is longer than {LONGEST} bytes")));
        }
        let parts = text.rsplit_once('.').and_then(|(signed, signature)| {
            let (header, claims) = signed.split_once('.')?;
            Some((signed, header, claims, signature))
        });
        let (signed, header, claims, signature) =
            parts.ok_or_else(|| Refused::Undecoded("it has not three parts with dots between them".into()))?;
        let header = object(header, "header")?;
        let claims = object(claims, "claims")?;
        let signature = bytes(signature, "signature")?;
        if header.contains_key("crit") {
            return Err(Refused::Undecoded("its header asks for extensions that are not known here".into()));
        }
        let text = |name: &str| header.get(name).and_then(Json::as_str).map(str::to_owned);
        let algorithm = text("alg").ok_or_else(|| Refused::Undecoded("its header names no algorithm".into()))?;
        Ok(Token { signed, algorithm, key: text("kid"), signature, claims })
    }

    /// Who says that he made it. A claim like any other until the signature is checked.
    pub(super) fn issuer(&self) -> Result<&str, Refused> {
        self.claims.get("iss").and_then(Json::as_str).ok_or_else(|| Refused::missing("iss"))
    }

    /// What is signed, and by what.
    pub(super) fn signed(&self) -> (&[u8], &[u8]) {
        (self.signed.as_bytes(), &self.signature)
    }

    /// What it says.
    pub(super) fn into_claims(self) -> Map<String, Json> {
        self.claims
    }
}

fn bytes(text: &str, what: &str) -> Result<Vec<u8>, Refused> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| Refused::Undecoded(format!("its {what} is not base64url")))
}

fn object(text: &str, what: &str) -> Result<Map<String, Json>, Refused> {
    match serde_json::from_slice(&bytes(text, what)?) {
        Ok(Json::Object(map)) => Ok(map),
        _ => Err(Refused::Undecoded(format!("its {what} is no JSON object"))),
    }
}

/// A token with these claims, signed by a shared secret.
pub fn create(key: &gatelog_secrets::Hs256, claims: &Json) -> String {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}
