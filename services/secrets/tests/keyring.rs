//! What a keyring promises.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot set itself up shall fail")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use gatelog_record::{ActorId, BuildsetId, Sealed, Timestamp};
use gatelog_secrets::{Keyring, KeyringError, MAX_PLAINTEXT, Scope, Unsealed};

const CANARY: &[u8] = b"Canary Person <canary@example.org>";

fn person() -> Scope {
    Scope::Person(ActorId([9; 16]))
}

fn opened(unsealed: Unsealed) -> Vec<u8> {
    match unsealed {
        Unsealed::Opened(plaintext) => plaintext.to_vec(),
        other => panic!("not opened: {other:?}"),
    }
}

/// Every file under a directory.
fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn what_is_sealed_opens_again_also_after_a_restart() {
    let site = tempfile::tempdir().unwrap();
    let keyring = Keyring::open_dir(site.path().join("keys")).unwrap();
    let sealed = keyring.seal(&person(), CANARY, b"gate/owner").unwrap();
    let empty = keyring.seal(&Scope::Project("git.example/lib".into()), b"", b"").unwrap();
    assert!(sealed.key_id.starts_with("person/09090909"), "{}", sealed.key_id);
    assert_eq!(opened(keyring.open(&sealed, b"gate/owner").unwrap()), CANARY);
    drop(keyring);
    let keyring = Keyring::open_dir(site.path().join("keys")).unwrap();
    assert_eq!(opened(keyring.open(&sealed, b"gate/owner").unwrap()), CANARY);
    assert_eq!(opened(keyring.open(&empty, b"").unwrap()), b"");
}

#[test]
fn the_same_text_sealed_twice_shows_nothing_in_common() {
    let site = tempfile::tempdir().unwrap();
    let keyring = Keyring::open_dir(site.path()).unwrap();
    let one = keyring.seal(&person(), CANARY, b"").unwrap();
    let two = keyring.seal(&person(), CANARY, b"").unwrap();
    assert_eq!(one.key_id, two.key_id);
    assert_ne!(one.nonce, two.nonce);
    assert_ne!(one.ciphertext, two.ciphertext);
}

#[test]
fn every_altered_byte_and_another_place_are_noticed() {
    let site = tempfile::tempdir().unwrap();
    let keyring = Keyring::open_dir(site.path()).unwrap();
    let sealed = keyring.seal(&person(), CANARY, b"here").unwrap();
    assert_eq!(keyring.open(&sealed, b"elsewhere").unwrap(), Unsealed::Damaged);
    for at in 0..sealed.ciphertext.len() {
        let mut altered = sealed.clone();
        altered.ciphertext[at] ^= 1;
        assert_eq!(keyring.open(&altered, b"here").unwrap(), Unsealed::Damaged, "byte {at}");
    }
    for at in 0..sealed.nonce.len() {
        let mut altered = sealed.clone();
        altered.nonce[at] ^= 1;
        assert_eq!(keyring.open(&altered, b"here").unwrap(), Unsealed::Damaged, "nonce byte {at}");
    }
    for length in 0..sealed.ciphertext.len() {
        let short = Sealed { ciphertext: sealed.ciphertext[..length].to_vec(), ..sealed.clone() };
        assert_eq!(keyring.open(&short, b"here").unwrap(), Unsealed::Damaged, "cut at {length}");
    }
    let other = keyring.seal(&Scope::Project("git.example/lib".into()), b"x", b"here").unwrap();
    let moved = Sealed { key_id: other.key_id, ..sealed.clone() };
    assert_eq!(keyring.open(&moved, b"here").unwrap(), Unsealed::Damaged);
    let nameless = Sealed { key_id: "nobody".into(), nonce: vec![1, 2], ciphertext: vec![] };
    assert_eq!(keyring.open(&nameless, b"").unwrap(), Unsealed::Damaged);
}

#[test]
fn a_forgotten_person_cannot_be_read_again_but_all_others_can() {
    let site = tempfile::tempdir().unwrap();
    let keyring = Keyring::open_dir(site.path()).unwrap();
    let sealed = keyring.seal(&person(), CANARY, b"").unwrap();
    let buildset = Scope::Buildset(BuildsetId([1; 16]));
    let other = keyring.seal(&buildset, b"secret_data", b"").unwrap();
    assert!(keyring.forget(&person()).unwrap());
    assert_eq!(keyring.open(&sealed, b"").unwrap(), Unsealed::KeyGone);
    assert!(!keyring.forget(&person()).unwrap(), "there was nothing left to forget");
    // A new key for the same person opens what is new and does not make the old look damaged.
    let again = keyring.seal(&person(), b"again", b"").unwrap();
    assert_ne!(again.key_id, sealed.key_id);
    assert_eq!(opened(keyring.open(&again, b"").unwrap()), b"again");
    assert_eq!(keyring.open(&sealed, b"").unwrap(), Unsealed::KeyGone);
    let restarted = Keyring::open_dir(site.path()).unwrap();
    assert_eq!(restarted.open(&sealed, b"").unwrap(), Unsealed::KeyGone);
    assert_eq!(opened(restarted.open(&other, b"").unwrap()), b"secret_data");
}

#[test]
fn forgetting_in_one_process_reaches_the_others_and_leftovers_of_a_crash() {
    let site = tempfile::tempdir().unwrap();
    let one = Keyring::open_dir(site.path()).unwrap();
    let two = Keyring::open_dir(site.path()).unwrap();
    let sealed = one.seal(&person(), CANARY, b"").unwrap();
    assert_eq!(opened(two.open(&sealed, b"").unwrap()), CANARY);
    // As if a process had died between making the key's file and deleting the copy it was made from.
    let key = files(site.path()).into_iter().find(|file| !file.ends_with("master.key")).unwrap();
    fs::hard_link(&key, key.with_extension("1-1.new")).unwrap();
    assert!(one.forget(&person()).unwrap());
    assert_eq!(two.open(&sealed, b"").unwrap(), Unsealed::KeyGone);
    assert_eq!(files(site.path()), [site.path().join("master.key")]);
    let fresh = two.seal(&person(), b"new", b"").unwrap();
    assert_eq!(opened(one.open(&fresh, b"").unwrap()), b"new");
}

#[test]
fn another_sites_keys_open_nothing() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sealed = Keyring::open_dir(here.path()).unwrap().seal(&person(), CANARY, b"").unwrap();
    let stranger = Keyring::open_dir(there.path()).unwrap();
    assert_eq!(stranger.open(&sealed, b"").unwrap(), Unsealed::KeyGone);
    stranger.seal(&person(), b"theirs", b"").unwrap();
    let claimed = Sealed { key_id: stranger.seal(&person(), b"", b"").unwrap().key_id, ..sealed };
    assert_eq!(stranger.open(&claimed, b"").unwrap(), Unsealed::Damaged);
}

#[test]
fn a_wrong_master_key_is_an_error_that_names_the_file_and_the_cure() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sealed = Keyring::open_dir(here.path()).unwrap().seal(&person(), CANARY, b"").unwrap();
    drop(Keyring::open_dir(there.path()).unwrap());
    fs::copy(there.path().join("master.key"), here.path().join("master.key")).unwrap();
    let keyring = Keyring::open_dir(here.path()).unwrap();
    for error in [keyring.open(&sealed, b"").unwrap_err(), keyring.seal(&person(), b"", b"").unwrap_err()] {
        let text = error.to_string();
        assert!(text.contains(".key is damaged (the master key does not open it): restore"), "{text}");
    }
}

#[test]
fn damaged_files_are_named() {
    let site = tempfile::tempdir().unwrap();
    let keyring = Keyring::open_dir(site.path()).unwrap();
    let sealed = keyring.seal(&person(), CANARY, b"").unwrap();
    let key = files(site.path()).into_iter().find(|file| !file.ends_with("master.key")).unwrap();
    let whole = fs::read(&key).unwrap();
    for length in 0..whole.len() - 1 {
        fs::write(&key, &whole[..length]).unwrap();
        let error = Keyring::open_dir(site.path()).unwrap().open(&sealed, b"").unwrap_err();
        assert!(matches!(error, KeyringError::KeyFile { .. }), "cut at {length}: {error}");
    }
    fs::write(&key, [0xff; 10]).unwrap();
    assert!(matches!(keyring.open(&sealed, b"").unwrap_err(), KeyringError::KeyFile { .. }));
    fs::write(site.path().join("master.key"), "gatelog master key 1\nabc\n").unwrap();
    let error = Keyring::open_dir(site.path()).unwrap_err().to_string();
    assert!(error.contains("master.key is damaged (its second line is not 64 hex digits)"), "{error}");
}

#[test]
fn files_are_for_their_owner_alone_and_an_open_master_key_is_refused() {
    let site = tempfile::tempdir().unwrap();
    let dir = site.path().join("keys");
    let keyring = Keyring::open_dir(&dir).unwrap();
    keyring.seal(&person(), CANARY, b"").unwrap();
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(files(&dir).len(), 2);
    for file in files(&dir) {
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
    fs::set_permissions(dir.join("master.key"), fs::Permissions::from_mode(0o640)).unwrap();
    let error = Keyring::open_dir(&dir).unwrap_err().to_string();
    assert!(error.contains("master.key has mode 640") && error.contains("chmod 600"), "{error}");
}

#[test]
fn nothing_secret_lies_in_the_files_or_is_printed() {
    let site = tempfile::tempdir().unwrap();
    let keyring = Keyring::open_dir(site.path()).unwrap();
    let sealed = keyring.seal(&person(), CANARY, b"").unwrap();
    let actor = keyring.actor("gerrit", "canary@example.org").unwrap();
    let plain = keyring.open(&sealed, b"").unwrap();
    let master = fs::read_to_string(site.path().join("master.key")).unwrap();
    let master = master.lines().nth(1).unwrap();
    let shown = format!("{keyring:?} {sealed:?} {plain:?} {actor:?}");
    assert!(!shown.contains("anary") && !shown.contains(master), "{shown}");
    let holds = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
    for file in files(site.path()) {
        assert!(!holds(&fs::read(&file).unwrap(), b"anary"), "{}", file.display());
    }
    assert!(!holds(&sealed.ciphertext, b"anary"));
}

#[test]
fn an_account_has_one_id_on_a_site_and_another_elsewhere() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let actor = Keyring::open_dir(here.path()).unwrap().actor("gerrit", "1000").unwrap();
    let keyring = Keyring::open_dir(here.path()).unwrap();
    assert_eq!(keyring.actor("gerrit", "1000").unwrap(), actor);
    assert_ne!(keyring.actor("gerrit", "1001").unwrap(), actor);
    assert_ne!(keyring.actor("github", "1000").unwrap(), actor);
    assert_ne!(Keyring::open_dir(there.path()).unwrap().actor("gerrit", "1000").unwrap(), actor);
}

#[test]
fn many_threads_and_keyrings_at_once_agree_on_every_key() {
    let site = tempfile::tempdir().unwrap();
    let dir = site.path().join("keys");
    let scopes: Vec<Scope> = (0..8).map(|number| Scope::Project(format!("git.example/{number}"))).collect();
    let scopes = Arc::new(scopes);
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (dir, scopes) = (dir.clone(), scopes.clone());
            std::thread::spawn(move || {
                let keyring = Keyring::open_dir(dir).unwrap();
                scopes.iter().map(|scope| keyring.seal(scope, CANARY, b"").unwrap()).collect::<Vec<Sealed>>()
            })
        })
        .collect();
    let keyring = Keyring::open_dir(&dir).unwrap();
    for sealed in threads.into_iter().flat_map(|thread| thread.join().unwrap()) {
        assert_eq!(opened(keyring.open(&sealed, b"").unwrap()), CANARY);
    }
    assert_eq!(files(&dir).len(), 1 + scopes.len(), "a key for each scope, the master key, nothing left over");
}

#[test]
fn scopes_have_names_that_cannot_be_mistaken() {
    assert_eq!(Scope::intake("gerrit", Timestamp(1_709_164_800_000_000)).to_string(), "intake/gerrit/2024-02");
    assert_eq!(Scope::Buildset(BuildsetId([0xab; 16])).to_string(), format!("buildset/{}", "ab".repeat(16)));
    let site = tempfile::tempdir().unwrap();
    let keyring = Keyring::open_dir(site.path()).unwrap();
    for name in ["", "a@b", "a\nb", &"x".repeat(600)] {
        let error = keyring.seal(&Scope::Project(name.into()), b"", b"").unwrap_err();
        assert!(matches!(error, KeyringError::Scope { .. }), "{error}");
    }
    let error = keyring.seal(&person(), &vec![0; MAX_PLAINTEXT + 1], b"").unwrap_err().to_string();
    assert!(error.contains("put them into a blob"), "{error}");
}

#[test]
fn scopes_that_have_a_key_are_listed_and_a_forgotten_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let keys = Keyring::open_dir(dir.path().join("keys")).unwrap();
    let ann = keys.actor("https://sso.example.org", "ann").unwrap();
    let scopes = [
        Scope::Person(ann),
        Scope::Project("git.example.org/org/app".into()),
        Scope::Intake { connection: "gerrit".into(), month: "2026-11".into() },
    ];
    assert_eq!(keys.scopes().unwrap(), Vec::<String>::new());
    for scope in &scopes {
        keys.seal(scope, b"text", b"").unwrap();
        assert_eq!(Scope::read(&scope.to_string()).as_ref(), Some(scope));
    }
    keys.introduce(ann, "Ann").unwrap();
    let mut names: Vec<String> = scopes.iter().map(ToString::to_string).collect();
    names.sort();
    assert_eq!(keys.scopes().unwrap(), names);
    assert!(keys.forget(&scopes[1]).unwrap());
    assert_eq!(keys.scopes().unwrap().len(), 2);
    for wrong in ["", "person", "person/ann", "tenant/x", "buildset/1", "intake/gerrit", "project/a@b", "project/"] {
        assert_eq!(Scope::read(wrong), None, "{wrong}");
    }
}
