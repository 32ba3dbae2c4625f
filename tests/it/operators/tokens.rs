//! Tokens, made without anything of gatelog.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};

pub const SECRET: &str = "a secret that is long enough for everybody";
pub const AUDIENCE: &str = "ci.example.org";

fn base64url(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let number = three.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..=three.len() {
            out.push(char::from(LETTERS[(number >> (18 - 6 * place)) as usize & 63]));
        }
    }
    out
}

fn openssl(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("openssl")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

pub fn hmac(secret: &str, message: &str) -> Vec<u8> {
    let key: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    openssl(&["dgst", "-sha256", "-mac", "HMAC", "-macopt", &format!("hexkey:{key}"), "-binary"], message.as_bytes())
}

/// An RSA key in a file.
pub struct Key(PathBuf);

impl Key {
    pub fn new(dir: &Path, name: &str) -> Key {
        let path = dir.join(format!("{name}.pem"));
        openssl(
            &["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", path.to_str().unwrap()],
            b"",
        );
        Key(path)
    }

    pub fn public(&self) -> String {
        String::from_utf8(openssl(&["pkey", "-in", self.0.to_str().unwrap(), "-pubout"], b"")).unwrap()
    }

    pub fn sign(&self, message: &str) -> Vec<u8> {
        openssl(&["dgst", "-sha256", "-sign", self.0.to_str().unwrap(), "-binary"], message.as_bytes())
    }

    /// As a JSON Web Key.
    pub fn jwk(&self, name: &str) -> Json {
        let said = openssl(&["rsa", "-in", self.0.to_str().unwrap(), "-modulus", "-noout"], b"");
        let said = String::from_utf8(said).unwrap();
        let digits = said.trim().strip_prefix("Modulus=").unwrap().as_bytes();
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
        let modulus: Vec<u8> = digits.chunks(2).map(byte).collect();
        json!({"kty": "RSA", "use": "sig", "alg": "RS256", "kid": name, "n": base64url(&modulus), "e": "AQAB"})
    }
}

pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// Claims of somebody, good for ten minutes.
pub fn claims(issuer: &str, who: &str, group: &str) -> Json {
    json!({"iss": issuer, "aud": AUDIENCE, "sub": who, "groups": [group], "iat": now() - 1, "exp": now() + 600})
}

pub fn token(header: &Json, claims: &Json, sign: impl FnOnce(&str) -> Vec<u8>) -> String {
    let signed = format!("{}.{}", base64url(header.to_string().as_bytes()), base64url(claims.to_string().as_bytes()));
    let signature = base64url(&sign(&signed));
    format!("{signed}.{signature}")
}

pub fn hs256_token(claims: &Json) -> String {
    token(&json!({"alg": "HS256", "typ": "JWT"}), claims, |text| hmac(SECRET, text))
}

pub fn ops() -> String {
    hs256_token(&claims("sso", "olivia", "ops"))
}

pub fn dev() -> String {
    hs256_token(&claims("sso", "dieter", "dev"))
}
