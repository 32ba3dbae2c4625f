//! Keys that tokens of jobs are signed with.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot set itself up shall fail")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use gatelog_secrets::{Keyring, KeyringError, Rs256, TokenClock};
use serde_json::{Map, Value, json};

const WEEK: i64 = 604_800;

fn at(now: i64) -> TokenClock {
    TokenClock { now, rotate_every: WEEK }
}

fn claims(sub: &str) -> Map<String, Value> {
    json!({"sub": sub, "n": 1}).as_object().unwrap().clone()
}

fn kids(keyring: &Keyring, now: i64) -> Vec<String> {
    let set = keyring.token_key_set(at(now)).unwrap();
    set["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
}

fn part(token: &str, at: usize) -> Value {
    let part = token.split('.').nth(at).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

/// Whether a token verifies against a key set: its key is found by `kid`.
fn verifies(token: &str, set: &Value) -> bool {
    let kid = part(token, 0)["kid"].clone();
    let Some(key) = set["keys"].as_array().unwrap().iter().find(|key| key["kid"] == kid) else { return false };
    let number = |name: &str| URL_SAFE_NO_PAD.decode(key[name].as_str().unwrap()).unwrap();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    Rs256::from_parts(&number("n"), &number("e"))
        .unwrap()
        .verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap())
}

#[test]
fn a_key_signs_for_a_week_and_is_served_until_what_it_signed_has_expired() {
    let site = tempfile::tempdir().unwrap();
    let keyring = Keyring::open_dir(site.path()).unwrap();
    let token = |now: i64, life: i64| keyring.sign_token(&claims("a"), life, at(now)).unwrap();
    let first = token(1_000, 3_600);
    assert_eq!(part(&first, 0), json!({"alg": "RS256", "kid": "RS256-0", "typ": "JWT"}));
    assert_eq!(part(&first, 1), json!({"sub": "a", "n": 1}));
    let set = keyring.token_key_set(at(1_000)).unwrap();
    let key = &set["keys"][0];
    assert_eq!((&key["kty"], &key["alg"], &key["use"]), (&json!("RSA"), &json!("RS256"), &json!("sig")));
    assert!(key.get("d").is_none() && key.as_object().unwrap().len() == 6, "nothing private");
    assert!(verifies(&first, &set) && !verifies(&first.replace(".ey", ".ez"), &set));

    // A week later another signs, also in another process; both are served.
    let last = token(1_000 + WEEK - 1, 3_600);
    assert_eq!(part(&last, 0)["kid"], "RS256-0");
    let later = 1_000 + WEEK;
    let other = Keyring::open_dir(site.path()).unwrap();
    let next = other.sign_token(&claims("b"), 3_600, at(later)).unwrap();
    assert_eq!(part(&next, 0)["kid"], "RS256-1");
    assert_eq!(kids(&keyring, later), ["RS256-0", "RS256-1"]);
    for token in [&first, &last, &next] {
        assert!(verifies(token, &keyring.token_key_set(at(later)).unwrap()));
    }
    // Zuul: for as long as tokens may live, three hours, and a little more.
    assert_eq!(kids(&keyring, later + 10_800), ["RS256-0", "RS256-1"]);
    assert_eq!(kids(&keyring, later + 10_800 + 601), ["RS256-1"]);
    // Where one was signed that lives longer, for so long.
    let _ = token(later + 20_000, 2 * WEEK);
    let third = later + WEEK;
    assert_eq!(kids(&other, third), ["RS256-1", "RS256-2"]);
    assert_eq!(kids(&other, third + 20_000), ["RS256-1", "RS256-2"]);
}

#[test]
fn they_lie_under_the_master_key_in_one_file_that_only_the_owner_reads() {
    let site = tempfile::tempdir().unwrap();
    let keyring = Keyring::open_dir(site.path()).unwrap();
    let token = keyring.sign_token(&claims("a"), 60, at(0)).unwrap();
    let files: Vec<_> = fs::read_dir(site.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let file = files.iter().find(|file| !file.ends_with("master.key")).unwrap();
    assert_eq!(files.len(), 2, "{files:?}");
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(file).unwrap().starts_with("gatelog token keys 1\n"));
    // Keys of projects are listed and exported without them.
    assert!(keyring.key_pairs().unwrap().is_empty());
    // After one was stolen: others, and nothing that was signed before verifies.
    assert!(keyring.replace_token_keys(at(5)).unwrap());
    let set = keyring.token_key_set(at(6)).unwrap();
    assert_eq!(kids(&keyring, 6), ["RS256-1"]);
    assert!(!verifies(&token, &set));
    fs::write(file, "damaged").unwrap();
    let refused = keyring.sign_token(&claims("a"), 60, at(7)).unwrap_err();
    assert!(matches!(&refused, KeyringError::KeyFile { path, .. } if *path == *file), "{refused}");
    let _ = keyring.replace_token_keys(at(8)).unwrap();
    assert!(keyring.sign_token(&claims("a"), 60, at(9)).is_ok());
}

#[test]
fn however_many_sign_at_once_all_sign_with_the_same_key() {
    let site = tempfile::tempdir().unwrap();
    let keyrings: Vec<Keyring> = (0..2).map(|_| Keyring::open_dir(site.path()).unwrap()).collect();
    let signed: Vec<String> = std::thread::scope(|scope| {
        let sign = |keyring| scope.spawn(move || Keyring::sign_token(keyring, &claims("a"), 60, at(100)).unwrap());
        let all: Vec<_> = keyrings.iter().chain(&keyrings).map(sign).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let set = keyrings[0].token_key_set(at(100)).unwrap();
    assert_eq!(set["keys"].as_array().unwrap().len(), 1);
    assert!(signed.iter().all(|token| verifies(token, &set)));
}

#[test]
fn openssl_verifies_a_token_against_the_key_set() {
    let site = tempfile::tempdir().unwrap();
    let keyring = Keyring::open_dir(site.path()).unwrap();
    let token = keyring.sign_token(&claims("a"), 60, at(0)).unwrap();
    let set = keyring.token_key_set(at(0)).unwrap();
    // The key by its numbers alone, as SubjectPublicKeyInfo.
    let number = |name: &str| URL_SAFE_NO_PAD.decode(set["keys"][0][name].as_str().unwrap()).unwrap();
    let der = Rs256::from_parts(&number("n"), &number("e")).unwrap().to_der().unwrap();
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der));
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("key.pub"), pem).unwrap();
    fs::write(dir.path().join("signed"), signed).unwrap();
    fs::write(dir.path().join("signature"), URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
    let verify = ["dgst", "-sha256", "-verify", "key.pub", "-signature", "signature", "signed"];
    let Ok(output) = Command::new("openssl").args(verify).current_dir(dir.path()).output() else {
        return println!("SKIPPED openssl: there is none here");
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
