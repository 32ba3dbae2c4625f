//! What tokens of secrets say, and who vouches for them.
#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gatelog_effects::secrets::FrozenSecret;
use gatelog_effects::tokens::{Issuer, Token, TokenBuild, clock, issuer};
use gatelog_record::{Timestamp, Value};
use gatelog_rules_config::objects::secret::SecretSource;
use gatelog_secrets::{Keyring, Rs256};
use serde_json::{Value as Json, json};

const WEEK: i64 = 604_800;
/// Not a whole second.
const NOW: Timestamp = Timestamp(1_795_752_506_999_999);

fn secret(settings: &Json) -> FrozenSecret {
    let source = SecretSource::Oidc(Value::from_json(settings));
    FrozenSecret { connection: "gerrit".into(), project: "org/app".into(), source }
}

fn build() -> TokenBuild {
    TokenBuild { build: "b1".into(), job: "publish".into(), pipeline: "gate".into(), tenant: "acme".into() }
}

fn part(token: &str, at: usize) -> Json {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').nth(at).unwrap()).unwrap()).unwrap()
}

/// A token of a secret with these settings, and the keys of the site that issued it.
fn issued(settings: &Json) -> (String, Json) {
    let site = tempfile::tempdir().unwrap();
    let keyring = Arc::new(Keyring::open_dir(site.path()).unwrap());
    let token =
        Token::of("upload", &secret(settings), "git.example.org", &build(), Some("https://ci.example.org")).unwrap();
    let tokens = BTreeMap::from([("upload".to_owned(), token)]);
    let issuer = Issuer::new(Arc::clone(&keyring), tokens, WEEK, || NOW);
    let token = issuer.issue("upload", "git.example.org/org/config/playbooks/p.yaml").unwrap();
    assert_eq!(issuer.issue("other", "p").unwrap_err(), "the build was not given this secret");
    (token, keyring.token_key_set(clock(NOW, WEEK)).unwrap())
}

#[test]
fn a_token_says_what_zuuls_says_and_verifies_against_the_keys_of_the_site() {
    let (token, keys) = issued(&Json::Null);
    assert_eq!(part(&token, 0), json!({"alg": "RS256", "kid": "RS256-0", "typ": "JWT"}));
    let expected = json!({
        "iss": "https://ci.example.org",
        "sub": "secret:acme/git.example.org/org/app/upload",
        "build-uuid": "b1",
        "job-name": "publish",
        "playbook": "git.example.org/org/config/playbooks/p.yaml",
        "pipeline": "gate",
        "tenant": "acme",
        "iat": 1_795_752_506,
        "exp": 1_795_752_506 + 3_600,
    });
    assert_eq!(part(&token, 1), expected);
    let number = |name: &str| URL_SAFE_NO_PAD.decode(keys["keys"][0][name].as_str().unwrap()).unwrap();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let key = Rs256::from_parts(&number("n"), &number("e")).unwrap();
    assert!(key.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()));
}

#[test]
fn a_secret_chooses_life_issuer_and_claims_of_its_own_which_hide_nothing() {
    let settings = json!({
        "algorithm": "RS256",
        "ttl": 60,
        "iss": "https://elsewhere.example.org",
        "claims": {"aud": ["sts", "vault"], "deep": {"n": 1}, "sub": "me", "exp": 0, "playbook": "x", "tenant": "other"},
    });
    let (token, _) = issued(&settings);
    let claims = part(&token, 1);
    assert_eq!((&claims["iss"], &claims["exp"]), (&json!("https://elsewhere.example.org"), &json!(1_795_752_566)));
    assert_eq!((&claims["aud"], &claims["deep"]), (&json!(["sts", "vault"]), &json!({"n": 1})));
    assert_eq!(claims["sub"], "secret:acme/git.example.org/org/app/upload");
    assert_eq!(
        (&claims["tenant"], &claims["playbook"]),
        (&json!("acme"), &json!("git.example.org/org/config/playbooks/p.yaml"))
    );
}

#[test]
fn without_a_name_to_issue_it_under_there_is_no_token_but_an_error_that_names_the_setting() {
    for missing in [None, Some("")] {
        let refused = Token::of("upload", &secret(&json!({})), "git.example.org", &build(), missing).unwrap_err();
        let said = refused.to_string();
        assert!(said.contains("set `root` under [web] in gatelog.toml") && said.contains("\"upload\""), "{said}");
        assert!(!refused.again(), "another attempt would end in the same way");
    }
    // One that names its issuer needs no other.
    let own = secret(&json!({"iss": "https://elsewhere.example.org"}));
    assert!(Token::of("upload", &own, "git.example.org", &build(), None).is_ok());
    assert_eq!(issuer("https://ci.example.org/"), "https://ci.example.org");
    assert_eq!(issuer("https://ci.example.org/zuul/t/acme"), "https://ci.example.org/zuul", "as Zuul has it");
}
