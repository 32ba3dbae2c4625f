//! SSH key pairs of projects and tenants. The key is no site's but the tests'.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use gatelog_secrets::{KeyOwner, Keyring, KeyringError, SshOwner};

const KEY: &str = include_str!("golden/key.pem");
const KEY_PKCS1: &str = include_str!("golden/key.pkcs1.pem");
const OTHER: &str = include_str!("golden/key-4096.pem");

fn tenant() -> SshOwner {
    SshOwner::Tenant("acme".into())
}

fn project() -> SshOwner {
    SshOwner::Project(KeyOwner::new("forge", "org/app"))
}

#[test]
fn a_key_is_taken_over_from_zuul_and_its_line_is_the_one_openssh_writes() {
    let site = tempfile::tempdir().unwrap();
    let keyring = Keyring::open_dir(site.path()).unwrap();
    assert!(keyring.known_ssh_key(&project()).unwrap().is_none(), "none is made by asking whether there is one");
    // Zuul's exports have the traditional spelling.
    let key = keyring.import_ssh_key(&project(), KEY_PKCS1, false).unwrap();
    assert_eq!(key.bits(), 2048);
    let again = Keyring::open_dir(site.path()).unwrap().known_ssh_key(&project()).unwrap().unwrap();
    assert_eq!(again.public_line(), key.public_line());
    // The project's key for secrets, another project's and the tenant's are other keys.
    assert!(keyring.known_project_key(&KeyOwner::new("forge", "org/app")).unwrap().is_none());
    assert!(keyring.known_ssh_key(&SshOwner::Project(KeyOwner::new("forge", "org/lib"))).unwrap().is_none());
    assert!(keyring.known_ssh_key(&tenant()).unwrap().is_none());
    let taken = keyring.import_ssh_key(&project(), OTHER, false).unwrap_err();
    assert!(matches!(&taken, KeyringError::Taken { owner } if owner == "project forge/org/app"), "{taken}");
    assert_eq!(keyring.import_ssh_key(&project(), OTHER, true).unwrap().bits(), 4096);
    keyring.import_ssh_key(&tenant(), KEY, false).unwrap();
    assert_eq!(keyring.ssh_key(&tenant()).unwrap().public_line(), key.public_line(), "one that is there is not made");
    assert_eq!(format!("{:?}", keyring.ssh_key(&tenant()).unwrap()), "SshKey { bits: 2048, .. }");

    let file = site.path().join("id_rsa");
    fs::write(&file, KEY_PKCS1).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let Ok(openssh) = Command::new("ssh-keygen").args(["-y", "-f"]).arg(&file).output() else {
        return println!("SKIPPED ssh-keygen: there is none here");
    };
    assert_eq!(String::from_utf8(openssh.stdout).unwrap().trim(), key.public_line());
}

#[test]
fn a_key_that_is_made_has_zuuls_size_and_stays() {
    let site = tempfile::tempdir().unwrap();
    let made = Keyring::open_dir(site.path()).unwrap().ssh_key(&tenant()).unwrap();
    assert_eq!(made.bits(), 2048);
    assert!(made.public_line().starts_with("ssh-rsa AAAAB3NzaC1yc2E"), "{}", made.public_line());
    let again = Keyring::open_dir(site.path()).unwrap().ssh_key(&tenant()).unwrap();
    assert_eq!(again.public_line(), made.public_line());
}

#[test]
fn what_an_agent_is_told_holds_the_key_and_its_comment() {
    let site = tempfile::tempdir().unwrap();
    let key = Keyring::open_dir(site.path()).unwrap().import_ssh_key(&tenant(), KEY, false).unwrap();
    let message = key.agent_message("tenant acme").unwrap();
    assert_eq!(message[..12], [17, 0, 0, 0, 7, b's', b's', b'h', b'-', b'r', b's', b'a']);
    assert!(message.ends_with(b"\0\0\0\x0btenant acme"));
    assert_eq!(format!("{message:?}"), format!("Plaintext({} bytes)", message.len()));
}

#[test]
fn what_is_no_key_or_has_no_name_is_refused_with_the_cure() {
    let site = tempfile::tempdir().unwrap();
    let keyring = Keyring::open_dir(site.path()).unwrap();
    let openssh = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbg==\n-----END OPENSSH PRIVATE KEY-----\n";
    for (pem, words) in [(openssh, "ssh-keygen -p -m PEM -f FILE"), ("", "no RSA private key")] {
        let error = keyring.import_ssh_key(&tenant(), pem, false).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    for name in ["", "a\nb", &"x".repeat(600)] {
        let error = keyring.ssh_key(&SshOwner::Tenant(name.into())).unwrap_err();
        assert!(matches!(error, KeyringError::Tenant { .. }), "{error}");
    }
}
