//! Key pairs of projects, and secrets encrypted for them.
//!
//! `tests/golden/` holds a key that OpenSSL made (in two spellings, and its public half), one of 4096 bits, and what
//! Python's `cryptography` encrypted for them. They are no site's.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot set itself up shall fail")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use gatelog_secrets::{KeyOwner, Keyring, KeyringError, MAX_CHUNKS, ProjectKey, Undecipherable, encipher};

const KEY: &str = include_str!("golden/key.pem");
const KEY_PKCS1: &str = include_str!("golden/key.pkcs1.pem");
const KEY_4096: &str = include_str!("golden/key-4096.pem");
const PUBLIC: &str = include_str!("golden/key.pub");
const CIPHERTEXTS: &str = include_str!("golden/ciphertexts.txt");

fn owner() -> KeyOwner {
    KeyOwner::new("forge", "org/app")
}

fn golden(title: &str) -> Vec<String> {
    let part = CIPHERTEXTS.split("=== ").find_map(|part| part.strip_prefix(title)?.strip_prefix('\n')).unwrap();
    part.lines().map(str::to_owned).collect()
}

fn site(pem: &str) -> (tempfile::TempDir, Arc<ProjectKey>) {
    let site = tempfile::tempdir().unwrap();
    let key = Keyring::open_dir(site.path()).unwrap().import_project_key(&owner(), pem, false).unwrap();
    (site, key)
}

fn clear(key: &ProjectKey, chunks: &[String]) -> String {
    key.decipher(chunks).unwrap().as_str().unwrap().to_owned()
}

#[test]
fn what_another_implementation_encrypted_is_deciphered() {
    let (_site, key) = site(KEY);
    assert_eq!(clear(&key, &golden("one chunk")), "canary-5d21");
    assert_eq!(clear(&key, &golden("empty")), "");
    assert_eq!(clear(&key, &golden("two chunks")), format!("{}bü", "a".repeat(214)));
    let wrapped: String = golden("one chunk")[0]
        .as_bytes()
        .chunks(60)
        .fold(String::new(), |text, line| text + std::str::from_utf8(line).unwrap() + "\n  ");
    assert_eq!(clear(&key, &[wrapped]), "canary-5d21", "line breaks do not count");
    let (_site, key) = site(KEY_4096);
    assert_eq!(clear(&key, &golden("470 bytes with 4096 bits")), "z".repeat(470), "the most one chunk can hold");
    assert_eq!(key.bits(), 4096);
}

#[test]
fn whatever_is_wrong_is_told_in_the_same_words() {
    let (_site, key) = site(KEY);
    let (_other, stranger) = site(KEY_4096);
    let good = golden("one chunk");
    let mut altered = good.clone();
    let other = if good[0].as_bytes()[10] == b'A' { "B" } else { "A" };
    altered[0].replace_range(10..11, other);
    let cut = vec![good[0][..200].to_owned()];
    let with_more = vec![format!("{}AAAA", good[0].trim_end_matches('='))];
    let cases = [
        ("an altered one", altered),
        ("one that is cut off", cut),
        ("one with more behind it", with_more),
        ("no base64", vec!["!".to_owned()]),
        ("nothing", vec![]),
        ("too many chunks", vec![good[0].clone(); MAX_CHUNKS + 1]),
        ("another hash", golden("another hash")),
        ("another padding", golden("another padding")),
        // Zuul: each chunk is UTF-8 by itself.
        ("a character cut in two", golden("a character cut in two")),
        ("one for another key", golden("470 bytes with 4096 bits")),
    ];
    for (what, chunks) in cases {
        let error = key.decipher(&chunks).unwrap_err();
        assert_eq!(error, Undecipherable, "{what}");
        assert_eq!(error.to_string(), "it was not encrypted for this project, or is damaged");
    }
    assert_eq!(stranger.decipher(&good).unwrap_err(), Undecipherable, "another project's key opens nothing");
}

#[test]
fn what_is_encrypted_here_is_deciphered_here_in_chunks_that_zuul_can_read() {
    let (_site, key) = site(KEY);
    assert_eq!(key.public_pem(), PUBLIC, "as OpenSSL writes it");
    for text in ["", "canary", &"x".repeat(215), &"é".repeat(300)] {
        let chunks = encipher(key.public_pem(), text).unwrap();
        assert_eq!(clear(&key, &chunks), text);
        assert_eq!(chunks.len(), text.len().div_ceil(214).max(1));
        for chunk in &chunks {
            assert!(key.decipher(std::slice::from_ref(chunk)).is_ok(), "each chunk is UTF-8 by itself");
        }
    }
    let twice = (encipher(PUBLIC, "canary").unwrap(), encipher(PUBLIC, "canary").unwrap());
    assert_ne!(twice.0, twice.1, "nothing shows that two are the same");
    let long = encipher(PUBLIC, &"x".repeat(214 * MAX_CHUNKS + 1)).unwrap_err().to_string();
    assert!(long.contains("at most 54784"), "{long}");
    assert!(encipher("nothing", "canary").unwrap_err().to_string().contains("key/PROJECT.pub"));
    assert!(encipher(KEY, "canary").is_err(), "a private key is not for encrypting");
}

/// OpenSSL, told to do as `zuul-client encrypt` does.
fn openssl(dir: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new("openssl").args(arguments).current_dir(dir).output().ok()?;
    output.status.success().then_some(output.stdout)
}

#[test]
fn openssl_and_gatelog_read_each_other() {
    use base64::Engine;
    let base64 = base64::engine::general_purpose::STANDARD;
    let (site, key) = site(KEY_4096);
    let dir = site.path();
    fs::write(dir.join("key.pub"), key.public_pem()).unwrap();
    fs::write(dir.join("key.pem"), KEY_4096).unwrap();
    fs::write(dir.join("clear"), "canary-ü").unwrap();
    let padding = ["-pkeyopt", "rsa_padding_mode:oaep"];
    let encrypt = ["pkeyutl", "-encrypt", "-pubin", "-inkey", "key.pub", "-in", "clear", padding[0], padding[1]];
    let Some(theirs) = openssl(dir, &encrypt) else { return println!("SKIPPED openssl: there is none here") };
    assert_eq!(clear(&key, &[base64.encode(theirs)]), "canary-ü");
    let ours = encipher(key.public_pem(), &"ü".repeat(400)).unwrap();
    assert_eq!(ours.len(), 2);
    let mut read = Vec::new();
    for chunk in &ours {
        fs::write(dir.join("ours"), base64.decode(chunk).unwrap()).unwrap();
        let decrypt = ["pkeyutl", "-decrypt", "-inkey", "key.pem", "-in", "ours", padding[0], padding[1]];
        read.extend(openssl(dir, &decrypt).unwrap());
    }
    assert_eq!(String::from_utf8(read).unwrap(), "ü".repeat(400));
}

fn files(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_key_is_taken_over_in_either_spelling_and_kept_under_the_master_key() {
    let (site, key) = site(KEY_PKCS1);
    assert_eq!((key.public_pem(), key.bits()), (PUBLIC, 2048));
    let keyring = Keyring::open_dir(site.path()).unwrap();
    assert_eq!(keyring.known_project_key(&owner()).unwrap().unwrap().public_pem(), PUBLIC);
    assert_eq!(keyring.project_key(&owner()).unwrap().public_pem(), PUBLIC, "one that is there is not made");
    // The same once more changes nothing; another is refused, unless it is to take its place.
    keyring.import_project_key(&owner(), KEY, false).unwrap();
    let taken = keyring.import_project_key(&owner(), KEY_4096, false).unwrap_err();
    assert!(matches!(&taken, KeyringError::Taken { owner } if owner == "forge/org/app"), "{taken}");
    let other = Keyring::open_dir(site.path()).unwrap();
    assert_eq!(other.project_key(&owner()).unwrap().bits(), 2048);
    keyring.import_project_key(&owner(), KEY_4096, true).unwrap();
    assert_eq!(other.project_key(&owner()).unwrap().bits(), 4096, "another process sees the new one");
    // Projects of one name on two connections have two keys, and neither the other's.
    assert!(keyring.known_project_key(&KeyOwner::new("elsewhere", "org/app")).unwrap().is_none());
    let body: Vec<&str> = KEY_4096.lines().filter(|line| !line.starts_with("-----")).collect();
    assert_eq!(files(site.path()).len(), 2);
    for file in files(site.path()) {
        let text = fs::read_to_string(&file).unwrap();
        assert!(body.iter().all(|line| !text.contains(line)), "{} holds it in clear", file.display());
    }
    assert_eq!(format!("{:?}", keyring.project_key(&owner()).unwrap()), "ProjectKey { bits: 4096, .. }");
}

#[test]
fn what_is_no_key_is_refused_with_the_cure() {
    let site = tempfile::tempdir().unwrap();
    let keyring = Keyring::open_dir(site.path()).unwrap();
    let under_password = KEY.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let traditional = KEY_PKCS1.replacen('\n', "\nProc-Type: 4,ENCRYPTED\n", 1);
    let cut = KEY.replacen("\nM", "\nN", 1);
    for (pem, word) in [
        (under_password.as_str(), "openssl pkey -in FILE"),
        (traditional.as_str(), "openssl pkey -in FILE"),
        (PUBLIC, "no RSA private key"),
        (cut.as_str(), "no RSA private key"),
        ("", "no RSA private key"),
        (&"x".repeat(100_000), "longer than any key"),
    ] {
        let error = keyring.import_project_key(&owner(), pem, false).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        assert!(!error.contains("MII"), "nothing of the key is told: {error}");
    }
    for (connection, project) in [("", "a"), ("a", ""), ("a/b", "c"), ("a", "b\nc"), ("a", &"x".repeat(600))] {
        let error = keyring.project_key(&KeyOwner::new(connection, project)).unwrap_err();
        assert!(matches!(error, KeyringError::Owner { .. }), "{error}");
    }
    assert_eq!(files(site.path()).len(), 1, "nothing was made");
}

#[test]
fn a_damaged_file_is_named_and_a_key_of_another_project_does_not_pass_for_it() {
    let (site, _) = site(KEY);
    let file = files(site.path()).into_iter().find(|file| !file.ends_with("master.key")).unwrap();
    let whole = fs::read_to_string(&file).unwrap();
    let open = || Keyring::open_dir(site.path()).unwrap().known_project_key(&owner());
    let renamed = whole.replace("forge/org/app@", "forge/org/lib@");
    for damaged in [&whole[..whole.len() / 2], "", &whole.replace("gatelog project key 1", "gatelog key 1"), &renamed] {
        fs::write(&file, damaged).unwrap();
        let error = open().unwrap_err();
        assert!(matches!(&error, KeyringError::KeyFile { path, .. } if *path == file), "{error}");
    }
    fs::write(&file, &whole).unwrap();
    assert!(open().unwrap().is_some());
}

#[test]
fn while_a_key_is_replaced_there_is_always_one_and_what_a_process_that_died_left_is_in_nobodys_way() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (site, _) = site(KEY);
    let file = files(site.path()).into_iter().find(|file| !file.ends_with("master.key")).unwrap();
    // It died between writing the new key and putting it in its place.
    let left = file.with_extension("1-0.new");
    fs::write(&left, "gatelog project key 1\nhalf of").unwrap();
    let (writer, reader) = (Keyring::open_dir(site.path()).unwrap(), Keyring::open_dir(site.path()).unwrap());
    assert_eq!(reader.project_key(&owner()).unwrap().bits(), 2048, "the old one is there, whole");
    let done = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut seen = std::collections::BTreeSet::new();
            while !done.load(Ordering::Relaxed) {
                let key = reader.known_project_key(&owner()).unwrap();
                seen.insert(key.expect("there is a key at every moment").bits());
            }
            seen
        });
        for pem in [KEY_4096, KEY].into_iter().cycle().take(40) {
            writer.import_project_key(&owner(), pem, true).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        looking.join().unwrap()
    });
    assert!(seen.iter().all(|bits| [2048, 4096].contains(bits)) && !seen.is_empty(), "{seen:?}");
    assert_eq!(reader.project_key(&owner()).unwrap().bits(), 2048, "the last one");
    let here: Vec<PathBuf> = files(site.path()).into_iter().filter(|path| *path != left && *path != file).collect();
    assert_eq!(here.len(), 1, "nothing is left over but the master key: {here:?}");
    // One whose place cannot be taken stays, and nothing of the new one does.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    fs::write(file.join("in the way"), "").unwrap();
    writer.import_project_key(&owner(), KEY_4096, true).unwrap_err();
    assert_eq!(files(site.path()).len(), 3, "{:?}", files(site.path()));
}
