//! One token: a JSON Web Signature in its short form, and the claims in it. `jsonwebtoken` reads and makes them.
//!
//! What it leaves to us: a limit, extensions that a header calls critical (it reads them and goes on), and everything
//! about times, since its clock is the machine's own, knows no skew into the future and no greatest age (see `taken`).

use gatelog_secrets::Hs256;
use jsonwebtoken::dangerous::insecure_decode_claims;
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header, encode};
use serde_json::{Map, Value as Json};

use super::Refused;

/// The longest token that is looked at, in bytes.
const LONGEST: usize = 16 << 10;

/// Who a token says made it. A claim that only says which authenticator is asked: nothing of the token counts before
/// [`checked`].
pub(super) fn issuer(text: &str) -> Result<String, Refused> {
    if text.len() > LONGEST {
        return Err(Refused::Undecoded(format!("it is longer than {LONGEST} bytes")));
    }
    let claims: Map<String, Json> = insecure_decode_claims(text).map_err(|error| unread(&error, "claims"))?;
    claims.get("iss").and_then(Json::as_str).map(str::to_owned).ok_or_else(|| Refused::missing("iss"))
}

/// By which key a token says it is signed, where it is signed by the algorithm that its issuer signs with.
pub(super) fn key_name(text: &str, algorithm: Algorithm) -> Result<Option<String>, Refused> {
    head(text, algorithm).map(|head| head.kid)
}

/// What a token's header says, where its algorithm is the one that its issuer signs with.
fn head(text: &str, algorithm: Algorithm) -> Result<Header, Refused> {
    let head = decode_header(text).map_err(|error| match error.kind() {
        // JSON that says something else than a header may: `none`, and whatever else the library does not know.
        ErrorKind::Json(json) if json.is_data() => Refused::Algorithm(algorithm),
        _ => unread(&error, "header"),
    })?;
    if head.crit.is_some() {
        return Err(Refused::Undecoded("its header asks for extensions that are not known here".into()));
    }
    if head.alg == algorithm { Ok(head) } else { Err(Refused::Algorithm(algorithm)) }
}

/// What a token says, where it is signed by this key and for this audience.
pub(super) fn checked(
    text: &str,
    key: &DecodingKey,
    algorithm: Algorithm,
    issuer: &str,
    audience: &str,
) -> Result<Map<String, Json>, Refused> {
    head(text, algorithm)?;
    let mut wanted = Validation::new(algorithm);
    wanted.set_issuer(&[issuer]);
    wanted.set_audience(&[audience]);
    wanted.set_required_spec_claims(&["aud"]);
    wanted.validate_exp = false;
    let token = decode(text, key, &wanted).map_err(|error| match error.kind() {
        ErrorKind::InvalidAlgorithm => Refused::Algorithm(algorithm),
        ErrorKind::InvalidSignature => Refused::Signature,
        ErrorKind::InvalidAudience => Refused::Audience,
        ErrorKind::MissingRequiredClaim(name) => Refused::missing(name),
        ErrorKind::Json(_) => unread(&error, "claims"),
        _ => unread(&error, "signature"),
    })?;
    Ok(token.claims)
}

fn unread(error: &Error, part: &str) -> Refused {
    Refused::Undecoded(match error.kind() {
        ErrorKind::InvalidToken => "it has not three parts with dots between them".into(),
        ErrorKind::Base64(_) => format!("its {part} is not base64url"),
        ErrorKind::Json(error) => format!("its {part}: {error}"),
        other => format!("its {part}: {other:?}"),
    })
}

/// A token with these claims, signed by a shared secret.
///
/// # Errors
/// What `jsonwebtoken` says; with such a key there is nothing it could say.
pub fn create(key: &Hs256, claims: &Json) -> Result<String, Error> {
    encode(&Header::new(Algorithm::HS256), claims, key.encoding_key())
}

#[cfg(test)]
mod tests {
    use gatelog_secrets::Rs256;
    use jsonwebtoken::EncodingKey;
    use serde_json::json;

    use super::*;

    /// A token with this header, whose signature is an HMAC by this key.
    fn forged(header: &Json, key: &[u8]) -> String {
        // The library makes only headers that it knows; their place is taken, and the whole is signed again.
        let part = |json: &Json| {
            let made = encode(&Header::new(Algorithm::HS256), json, Hs256::new(b"x").unwrap().encoding_key()).unwrap();
            made.split('.').nth(1).unwrap().to_owned()
        };
        let claims = json!({"iss": "signer", "aud": "us", "sub": "mallory"});
        let signed = format!("{}.{}", part(header), part(&claims));
        let signature = jsonwebtoken::crypto::sign(signed.as_bytes(), &EncodingKey::from_secret(key), Algorithm::HS256);
        format!("{signed}.{}", signature.unwrap())
    }

    #[test]
    fn the_authenticator_says_by_which_algorithm_a_token_is_signed_and_the_token_never_does() {
        let modulus = [0xff; 256];
        let key = Rs256::from_parts(&modulus, &[1, 0, 1]).unwrap().decoding_key();
        let rs256 = |text: &str| checked(text, &key, Algorithm::RS256, "signer", "us").unwrap_err();
        let secret = Hs256::new(b"a secret").unwrap().decoding_key();
        let hs256 = |text: &str| checked(text, &secret, Algorithm::HS256, "signer", "us");

        assert_eq!(hs256(&forged(&json!({"alg": "HS256"}), b"a secret")).unwrap()["sub"], "mallory");
        for algorithm in ["none", "None", "", "HS384", "HS512", "RS256", "RS512", "PS256", "ES256", "ES256K"] {
            let token = forged(&json!({"alg": algorithm}), b"a secret");
            assert_eq!(hs256(&token).unwrap_err(), Refused::Algorithm(Algorithm::HS256), "{algorithm}");
            let (unsigned, _) = token.rsplit_once('.').unwrap();
            let unsigned = hs256(&format!("{unsigned}.")).unwrap_err();
            assert_eq!(unsigned, Refused::Algorithm(Algorithm::HS256), "{algorithm}");
        }
        // What everybody knows of a key is no secret.
        for known in [&modulus[..], &[1, 0, 1], b"a secret"] {
            for algorithm in ["HS256", "none", "HS512"] {
                let token = forged(&json!({"alg": algorithm}), known);
                assert_eq!(rs256(&token), Refused::Algorithm(Algorithm::RS256), "{algorithm}");
            }
            assert_eq!(rs256(&forged(&json!({"alg": "RS256"}), known)), Refused::Signature);
        }
        // Keys of the one kind are of no use where the other is asked for.
        for (key, algorithm) in [(&key, Algorithm::HS256), (&secret, Algorithm::RS256)] {
            let token = forged(&json!({"alg": algorithm}), b"a secret");
            assert_eq!(checked(&token, key, algorithm, "signer", "us").unwrap_err(), Refused::Algorithm(algorithm));
        }
        assert_eq!(hs256(&forged(&json!({"alg": "HS256"}), b"another")).unwrap_err(), Refused::Signature);
        let asking = forged(&json!({"alg": "HS256", "crit": ["exp"], "exp": 1}), b"a secret");
        assert!(matches!(hs256(&asking).unwrap_err(), Refused::Undecoded(why) if why.contains("extensions")));
    }

    #[test]
    fn what_is_no_token_is_refused_with_the_reason() {
        for (text, why) in [
            ("hello", "three parts"),
            ("a.b", "three parts"),
            ("a.*.c", "its claims is not base64url"),
            ("a.W10.c", "its claims: invalid type"),
            (&"a".repeat(LONGEST + 1), "longer than"),
        ] {
            assert!(matches!(issuer(text).unwrap_err(), Refused::Undecoded(said) if said.contains(why)), "{text:.20}");
        }
        assert_eq!(issuer("e30.e30.").unwrap_err(), Refused::missing("iss"));
    }
}
