//! The settings of a connection, and what they come to, without a server.
#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use gatelog_driver_contract::{Connection, Credentials, Opening, Settings, Trouble};
use gatelog_driver_gerrit::DRIVER;
use gatelog_record::Timestamp;
use gatelog_secrets::Keyring;

const SECTION: &str = "server = 'review.example.com'\nbaseurl = 'http://127.0.0.1:9/r'\nuser = 'ci'\npassword_file = 'password'\n\
                       sshkey = 'key'\nknown_hosts = 'known_hosts'\n";

fn read(section: &str) -> Result<Arc<dyn Settings>, String> {
    (DRIVER.read)(section.parse().unwrap()).map_err(|error| error.to_string())
}

fn open(site: &Path, settings: &dyn Settings) -> Result<Connection, Trouble> {
    let keyring = Arc::new(Keyring::open_dir(site.join("keys")).unwrap());
    let now = || Timestamp::ZERO.plus_seconds(1_000);
    settings.open(&Opening { name: "review", site, keyring, now, program: None })
}

#[test]
fn a_section_says_what_is_missing_and_what_is_unknown() {
    assert_eq!(read(SECTION).unwrap().canonical_hostname(), Some("review.example.com"));
    assert!(read("user = 'ci'").unwrap_err().contains("missing field"));
    assert!(read(&format!("{SECTION}passwort = 'x'\n")).unwrap_err().contains("unknown field `passwort`"));
    assert!(read(&format!("{SECTION}submit_by = 'hand'\n")).unwrap_err().contains("gerrit"));
}

#[test]
fn a_connection_opens_while_gerrit_is_away_and_says_so_when_asked() {
    let site = tempfile::tempdir().unwrap();
    let settings = read(SECTION).unwrap();
    for (file, text) in [("", ""), ("key", "k"), ("known_hosts", "h")] {
        if !file.is_empty() {
            fs::write(site.path().join(file), text).unwrap();
        }
        // First the files that are named.
        assert!(open(site.path(), &*settings).is_err(), "without {file}");
    }
    fs::write(site.path().join("password"), "s3cret\n").unwrap();
    let connection = open(site.path(), &*settings).unwrap();
    let review = connection.review.unwrap();
    assert_eq!(review.hosts(), ["review.example.com", "127.0.0.1"]);
    let source = review.source("acme/lib").unwrap();
    assert_eq!(source.url, "http://127.0.0.1:9/r/a/acme/lib");
    assert!(matches!(source.credentials, Some(Credentials::Basic { ref user, .. }) if user == "ci"));
    assert!(!format!("{source:?}").contains("s3cret"));
    assert!(review.source("../etc").is_err());
    assert_eq!(review.change_by_url("https://elsewhere.example.com/7").unwrap(), None);
    let away = review.change_by_url("https://review.example.com/7").unwrap_err();
    assert!(
        away.again && away.code == "unreachable" && away.retry_at > Some(Timestamp::ZERO.plus_seconds(1_005)),
        "{away:?}"
    );
    assert!(!away.to_string().contains("s3cret"));
}
