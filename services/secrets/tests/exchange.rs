//! Keys as Zuul exports and imports them.
//!
//! `golden/zuul-export.json` was made by the key store of a Zuul 14.3 for these tests, with what it said of the keys
//! beside it. The same key store takes part where one is installed: see `zuul_keystore.py`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot set itself up shall fail")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use gatelog_secrets::{
    KeyOf, KeyOwner, Keyring, KeyringError, KeystorePassword, Place, SshOwner, TakenOver, encipher, read_export,
};
use serde_json::{Value, json};

const KEY: &str = include_str!("golden/key.pem");
const KEY_PKCS1: &str = include_str!("golden/key.pkcs1.pem");
const OTHER: &str = include_str!("golden/key-4096.pem");
const PUBLIC: &str = include_str!("golden/key.pub");
const EXPORT: &str = include_str!("golden/zuul-export.json");
const TOLD: &str = include_str!("golden/zuul-export.told.json");
/// What the fixture is under.
const PASSWORD: &str = "the fixtures' own ü";

fn password(text: &str) -> KeystorePassword {
    KeystorePassword::read(text).unwrap()
}

fn site() -> (tempfile::TempDir, Keyring) {
    let site = tempfile::tempdir().unwrap();
    let keyring = Keyring::open_dir(site.path()).unwrap();
    (site, keyring)
}

/// Takes all of an export over.
fn import(keyring: &Keyring, text: &str, password: &KeystorePassword, replace: bool) -> Vec<Result<TakenOver, String>> {
    let take = |place: Place| {
        let (of, pems) = place.keys?;
        keyring.import_place(&of, &pems, password, replace).map_err(|error| error.to_string())
    };
    read_export(text).unwrap().into_iter().map(take).collect()
}

fn project(name: &str) -> KeyOwner {
    KeyOwner::new("gerrit", name)
}

/// What Zuul says of keys, of the keys that are here.
fn compare(keyring: &Keyring, told: &Value) {
    for (name, public) in told["secrets"].as_object().unwrap() {
        let key = keyring.known_project_key(&project(name)).unwrap().unwrap();
        assert_eq!(key.public_pem(), public.as_str().unwrap(), "{name}");
    }
    let projects = told["ssh"].as_object().unwrap().iter().map(|(name, line)| (SshOwner::Project(project(name)), line));
    let tenants =
        told["tenants"].as_object().unwrap().iter().map(|(name, line)| (SshOwner::Tenant(name.clone()), line));
    for (owner, line) in projects.chain(tenants) {
        let key = keyring.known_ssh_key(&owner).unwrap().unwrap();
        assert_eq!(key.public_line(), line.as_str().unwrap(), "{owner}");
    }
}

#[test]
fn all_keys_of_a_zuul_are_taken_over_from_its_export() {
    let (_site, keyring) = site();
    let taken = import(&keyring, EXPORT, &password(PASSWORD), false);
    assert_eq!(taken, vec![Ok(TakenOver::New); 5], "two projects with two keys each, and a tenant");
    compare(&keyring, &serde_json::from_str(TOLD).unwrap());
    assert_eq!(import(&keyring, EXPORT, &password(PASSWORD), false), vec![Ok(TakenOver::There); 5], "twice is once");
}

#[test]
fn a_wrong_password_opens_nothing_and_leaves_no_trace() {
    let (site, keyring) = site();
    for taken in import(&keyring, EXPORT, &password("another"), true) {
        assert_eq!(taken.unwrap_err(), "the key cannot be taken over: the password does not open it, or it is damaged");
    }
    assert_eq!(fs::read_dir(site.path()).unwrap().count(), 1, "the master key");
    for (text, word) in [("", "is empty"), ("\nsecond line", "is empty"), (&"x".repeat(1025), "longer than 1,024")] {
        let refused = KeystorePassword::read(text).unwrap_err().to_string();
        assert!(refused.contains(word), "{refused}");
    }
    assert_eq!(format!("{:?}", password("canary\n")), "KeystorePassword(…)");
}

#[test]
fn what_a_site_exports_another_takes_over_with_former_keys_and_every_secret_deciphers_there() {
    let (_one, keyring) = site();
    let owner = project("org/app");
    keyring.import_project_key(&owner, KEY, false).unwrap();
    let old = encipher(PUBLIC, "old").unwrap();
    let new = encipher(keyring.rotate_project_key(&owner).unwrap().current.public_pem(), "new").unwrap();
    let ssh = [SshOwner::Project(owner.clone()), SshOwner::Tenant("acme".into())];
    keyring.import_ssh_key(&ssh[0], OTHER, false).unwrap();
    keyring.import_ssh_key(&ssh[1], KEY, false).unwrap();
    let export = keyring.export_keys(&password("canary")).unwrap();
    assert_eq!((export.secrets, export.former, export.ssh), (1, 1, 2));
    let document: Value = serde_json::from_str(&export.text).unwrap();
    let keys = &document["keys"]["/keystorage/gerrit/org/org%2Fapp/secrets"]["keys"];
    assert_eq!((&keys[0]["version"], &keys[1]["version"]), (&json!(1), &json!(0)), "Zuul uses the first");
    // Nothing of the private halves stands there in clear.
    for line in KEY_PKCS1.lines().chain(OTHER.lines()).filter(|line| !line.starts_with("-----")) {
        assert!(!export.text.contains(line), "{line}");
    }

    let (_two, other) = site();
    assert_eq!(import(&other, &export.text, &password("canary"), false), vec![Ok(TakenOver::New); 3]);
    let keys = other.project_keys(&owner).unwrap();
    for (secret, clear) in [(&old, "old"), (&new, "new")] {
        assert_eq!(keys.decipher(secret).unwrap().as_str(), Some(clear));
    }
    let listed = |keyring: &Keyring| -> Vec<(String, bool, usize, String)> {
        let pairs = keyring.key_pairs().unwrap();
        pairs.into_iter().map(|pair| (pair.of.to_string(), pair.former, pair.bits, pair.fingerprint)).collect()
    };
    assert_eq!(listed(&other), listed(&keyring));
    let told: Vec<(String, bool, usize)> =
        listed(&other).into_iter().map(|(of, former, bits, _)| (of, former, bits)).collect();
    let expected = [
        ("project gerrit/org/app, secrets", false, 4096),
        ("project gerrit/org/app, secrets", true, 2048),
        ("tenant acme, SSH", false, 2048),
        ("project gerrit/org/app, SSH", false, 4096),
    ];
    assert_eq!(told, expected.map(|(of, former, bits)| (of.to_owned(), former, bits)));
}

#[test]
fn a_key_that_is_there_stays_unless_it_is_to_be_replaced() {
    let (_one, keyring) = site();
    let owner = project("org/app");
    keyring.import_project_key(&owner, KEY, false).unwrap();
    let export = keyring.export_keys(&password("canary")).unwrap();
    let (_two, other) = site();
    other.import_project_key(&owner, OTHER, false).unwrap();
    let taken = import(&other, &export.text, &password("canary"), false);
    assert!(taken[0].as_ref().unwrap_err().contains("has a key already"), "{taken:?}");
    assert_eq!(other.project_key(&owner).unwrap().bits(), 4096);
    assert_eq!(import(&other, &export.text, &password("canary"), true), [Ok(TakenOver::Replaced)]);
    assert_eq!(other.project_key(&owner).unwrap().public_pem(), PUBLIC);
}

#[test]
fn what_is_wrong_with_one_place_is_told_there_and_what_is_no_export_is_refused() {
    let key = |pem: &str| json!({"schema": 1, "keys": [{"version": 0, "created": 0, "private_key": pem}]});
    let place = "/keystorage/gerrit/org/org%2Fapp/secrets";
    let said = |place: &str, data: Value| {
        let (_site, keyring) = site();
        let text = json!({"keys": {place: data}}).to_string();
        import(&keyring, &text, &password(PASSWORD), false).remove(0).unwrap_err()
    };
    for (place, data, word) in [
        ("/keystorage/gerrit/org/secrets", key(KEY), "keeps no keys of projects or tenants there"),
        (place, json!({"schema": 2}), "a newer Zuul"),
        (place, json!({"schema": 1}), "no list `keys`"),
        (place, json!({"schema": 1, "keys": []}), "it has 0 keys"),
        (place, json!({"schema": 1, "keys": [{"version": 0}]}), "no text `private_key`"),
        (place, key("canary"), "no RSA private key"),
        (place, key("-----BEGIN ENCRYPTED PRIVATE KEY-----\ncanary"), "openssl pkey"),
        (
            place,
            key("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\ncanary\n-----END RSA PRIVATE KEY-----"),
            "by which cipher",
        ),
        (
            place,
            key(
                "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\ncanary\n-----END RSA PRIVATE KEY-----",
            ),
            "`DEK-Info` is damaged",
        ),
    ] {
        let said = said(place, data);
        assert!(said.contains(word) && !said.contains("canary"), "{word}: {said}");
    }
    for (text, word) in [("{", "no JSON"), ("[]", "no dictionary `keys`"), ("{\"keys\": []}", "no dictionary `keys`")] {
        let refused = read_export(text).unwrap_err();
        assert!(matches!(&refused, KeyringError::Exchange { .. }) && refused.to_string().contains(word), "{refused}");
    }
}

/// Runs OpenSSL in a folder where the password lies in `password`.
fn openssl(dir: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new("openssl").args(arguments).current_dir(dir).output().ok()?;
    output.status.success().then_some(output.stdout)
}

#[test]
fn openssl_and_gatelog_read_each_others_keys_under_a_password() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("password"), "canary ü\n").unwrap();
    fs::write(dir.path().join("key.pem"), KEY).unwrap();
    if openssl(dir.path(), &["version"]).is_none() {
        return println!("SKIPPED openssl: there is none here");
    }
    let of = KeyOf::Secrets(project("org/app"));
    for (cipher, word) in [("-aes256", ""), ("-aes192", ""), ("-aes128", ""), ("-des3", "openssl rsa -aes256")] {
        let seal = ["rsa", "-traditional", cipher, "-in", "key.pem", "-passout", "file:password"];
        let pem = String::from_utf8(openssl(dir.path(), &seal).unwrap()).unwrap();
        let (_site, keyring) = site();
        match keyring.import_place(&of, &[pem], &password("canary ü"), false) {
            Ok(_) => assert_eq!(keyring.project_key(&project("org/app")).unwrap().public_pem(), PUBLIC, "{cipher}"),
            Err(error) => assert!(!word.is_empty() && error.to_string().contains(word), "{cipher}: {error}"),
        }
    }
    let (_site, keyring) = site();
    keyring.import_project_key(&project("org/app"), KEY, false).unwrap();
    let export: Value = serde_json::from_str(&keyring.export_keys(&password("canary ü")).unwrap().text).unwrap();
    let pem = export["keys"][of.place()]["keys"][0]["private_key"].as_str().unwrap().to_owned();
    fs::write(dir.path().join("ours.pem"), pem).unwrap();
    let open = ["rsa", "-in", "ours.pem", "-passin", "file:password", "-traditional"];
    assert_eq!(String::from_utf8(openssl(dir.path(), &open).unwrap()).unwrap(), KEY_PKCS1);
}

/// Asks the key store of an installed Zuul; `None` where there is none.
fn zuul(what: &str, file: &Path, asked: &Value) -> Option<Value> {
    let Some(python) = std::env::var_os("GATELOG_ZUUL_PYTHON") else {
        println!("SKIPPED the key store of Zuul: GATELOG_ZUUL_PYTHON names no Python that has `zuul` installed");
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zuul_keystore.py");
    let mut command = Command::new(python);
    command.arg(script).arg(what).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(asked.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn a_zuul_takes_over_what_gatelog_exports_and_the_other_way_round() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["org/app", "a b/ü", "lib"];
    let asked = json!({
        "password": PASSWORD,
        "projects": names.map(|name| ["gerrit", name]),
        "tenants": ["acme", "x/y z"],
    });
    let file = dir.path().join("zuuls.json");
    let Some(told) = zuul("make", &file, &asked) else { return };
    assert!(told["made"].as_u64().unwrap() > 0);
    let (_site, keyring) = site();
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(import(&keyring, &text, &password(PASSWORD), false), vec![Ok(TakenOver::New); 8]);
    compare(&keyring, &told);

    // And back, after one key was rotated here: Zuul goes on with the new one.
    let rotated = keyring.rotate_project_key(&project("lib")).unwrap();
    let secrets: Vec<Value> = names
        .iter()
        .map(|name| {
            let key = keyring.project_key(&project(name)).unwrap();
            json!(["gerrit", name, encipher(key.public_pem(), &"canary ü".repeat(90)).unwrap()])
        })
        .chain([json!(["gerrit", "lib", encipher(rotated.former.public_pem(), "former").unwrap()])])
        .collect();
    let mut asked = asked;
    asked["secrets"] = json!(secrets);
    let file = dir.path().join("ours.json");
    fs::write(&file, keyring.export_keys(&password(PASSWORD)).unwrap().text).unwrap();
    let told = zuul("take", &file, &asked).unwrap();
    assert_eq!(told["made"], 0, "it had to make no key of its own");
    compare(&keyring, &told);
    let clear = json!("canary ü".repeat(90));
    assert_eq!(told["clear"], json!([clear, clear, clear, null]), "a former key is of no use to Zuul");
}
