//! Tokens of secrets with `oidc`: the real binary, a real playbook, and a verifier that is not gatelog's.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value as Json, json};

use crate::harness::projects::PIPELINES;
use crate::harness::{Site, host};

const JOBS: &str = r"
- secret:
    name: upload
    oidc:
      ttl: 600
      claims: {aud: sts.example.org, sub: somebody else}

- job:
    name: publisher
    run: playbooks/publish.yaml
    secrets: [{name: token, secret: upload}]

- project:
    name: project
    check:
      jobs: [publisher]
";

/// Writes the token onto the console, and hands it out backwards, as which nothing finds it.
const PUBLISH: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: {msg: "the token is {{ token }}"}
    - zuul_return: {data: {backwards: "{{ token | reverse }}"}}
"#;

fn site(root: Option<&str>) -> Site {
    let config = format!("{PIPELINES}\n{JOBS}");
    let site = Site::new(&[
        ("config", &[("zuul.yaml", config.as_str()), ("playbooks/publish.yaml", PUBLISH)]),
        ("project", &[("a.txt", "a")]),
    ]);
    if let Some(root) = root {
        let settings = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
        site.write("gatelog.toml", &settings.replace("[web]\n", &format!("[web]\nroot = \"{root}\"\n")));
    }
    site
}

/// Verifies a token against a key set, and prints what it says.
const VERIFY: &str = r#"
import base64, json, sys
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
asked = json.load(sys.stdin)
decode = lambda text: base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
head, claims, signature = asked["token"].split(".")
kid = json.loads(decode(head))["kid"]
key, = [key for key in asked["keys"] if key["kid"] == kid and key["use"] == "sig" and key["alg"] == "RS256"]
number = lambda name: int.from_bytes(decode(key[name]), "big")
public = rsa.RSAPublicNumbers(number("e"), number("n")).public_key()
public.verify(decode(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256())
print(decode(claims).decode())
"#;

/// What a token says, if Python's `cryptography` verifies it; `None` where there is none.
fn verified(token: &str, keys: &Json) -> Option<Json> {
    let has = Command::new("python3").args(["-c", "import cryptography"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED verifying a token: there is no python3 with `cryptography` here");
        return None;
    }
    let mut child =
        Command::new("python3").args(["-c", VERIFY]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let asked = json!({"token": token, "keys": keys["keys"]}).to_string();
    child.stdin.take().unwrap().write_all(asked.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "it does not verify");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Files below a folder in which a text stands.
fn holding(folder: &Path, text: &[u8], found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => holding(&path, text, found),
            Ok(kind) if kind.is_file() => {
                let bytes = std::fs::read(&path).unwrap_or_default();
                if bytes.windows(text.len()).any(|window| window == text) {
                    found.push(path.display().to_string());
                }
            }
            _ => {}
        }
    }
}

#[test]
fn a_playbook_is_given_a_token_that_others_verify_by_what_the_site_serves() {
    if !host::can_build("tokens of secrets") {
        return;
    }
    let site = site(Some("https://ci.example.org/"));
    let server = site.start();
    server.wait_configured();
    site.push("project", "change", "Change", &[("a.txt", "b")]);
    assert_eq!(server.wait_verdict("check", "project", "change"), "SUCCESS", "{}", server.log());
    server.wait_idle();
    let keys = server.json("/oidc/jwks");
    for path in ["/oidc/tenant/test/jwks", "/.well-known/jwks", "/oidc/.well-known/jwks", "/oidc/test/jwks"] {
        assert_eq!(server.json(path), keys, "{path}");
    }
    let told = server.json("/.well-known/openid-configuration");
    assert_eq!(
        (&told["issuer"], &told["jwks_uri"]),
        (&json!("https://ci.example.org"), &json!("https://ci.example.org/oidc/jwks"))
    );
    assert_eq!(server.json("/oidc/.well-known/openid-configuration"), told);
    server.stop();

    let events = site.events("gate.events");
    let of = |kind: &str| events.iter().find(|event| event["kind"] == kind).unwrap().to_string();
    let finished = of("gate.build-finished");
    let backwards = finished.split("backwards").nth(1).and_then(|rest| rest.split('"').find(|part| part.len() > 300));
    let token: String = backwards.unwrap_or_else(|| panic!("no token in {finished}")).chars().rev().collect();
    let given = of("gate.secrets-given");
    assert!(given.contains("upload") && given.contains("config") && !given.contains(&token), "{given}");
    let mut found = Vec::new();
    holding(site.path(), token.as_bytes(), &mut found);
    assert_eq!(found, Vec::<String>::new(), "it is masked on the console, and kept nowhere");
    let Some(claims) = verified(&token, &keys) else { return };
    let build = events.iter().find(|event| event["kind"] == "gate.secrets-given").unwrap();
    let said = |name: &str| claims[name].as_str().unwrap_or_default().to_owned();
    assert!(build.to_string().contains(&said("build-uuid")), "{claims} {build}");
    assert_eq!(said("iss"), "https://ci.example.org");
    let host = crate::harness::HOST;
    assert_eq!(said("sub"), format!("secret:test/{host}/config/upload"), "not what the secret says itself");
    assert_eq!(said("playbook"), format!("{host}/config/playbooks/publish.yaml"));
    assert_eq!(
        (said("job-name"), said("pipeline"), said("tenant")),
        ("publisher".into(), "check".into(), "test".into())
    );
    assert_eq!(
        (said("aud"), claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap()),
        ("sts.example.org".into(), 600)
    );
}

#[test]
fn where_nobody_has_said_how_the_site_is_reached_a_build_that_needs_a_token_ends_with_the_setting() {
    if !host::can_build("a token without an issuer") {
        return;
    }
    let site = site(None);
    let server = site.start();
    server.wait_configured();
    site.push("project", "change", "Change", &[("a.txt", "b")]);
    server.wait_verdict("check", "project", "change");
    server.wait_idle();
    let nothing = server.get("/.well-known/openid-configuration").unwrap();
    assert!(nothing.status == 404 && nothing.body.contains("`root` under [web]"), "{}", nothing.body);
    server.stop();
    let events = site.events("gate.events");
    let finished = events.iter().find(|event| event["kind"] == "gate.build-finished").unwrap().to_string();
    assert!(finished.contains("set `root` under [web] in gatelog.toml") && finished.contains("Error"), "{finished}");
    assert!(!events.iter().any(|event| event["kind"] == "gate.secrets-given"), "it was given nothing");
}
