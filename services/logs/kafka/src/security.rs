//! How gatelog and the brokers know each other: TLS and SASL, checked before anything is asked of anybody.
//!
//! The settings are librdkafka's own. What is gatelog's: a secret is never written among them but named with the file it
//! is in (`file:PATH`), which only its owner may read; and what cannot work together is said at once, with its cure.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Settings whose values are secrets: they name a file.
const SECRETS: &[&str] = &["sasl.password", "ssl.key.password", "ssl.key.pem", "ssl.keystore.password"];

/// Settings whose values are files, and whether what is in them is secret.
const FILES: &[(&str, bool)] = &[
    ("ssl.ca.location", false),
    ("ssl.certificate.location", false),
    ("ssl.crl.location", false),
    ("ssl.key.location", true),
    ("ssl.keystore.location", true),
];

/// What begins a secret's value.
const IN_FILE: &str = "file:";

/// No secret is longer, in bytes: a private key may be one.
const LONGEST: u64 = 64 << 10;

/// The mechanisms of SASL that need no further library.
const MECHANISMS: &[&str] = &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];

/// Makes paths absolute that are meant relative to this directory, as all paths of a configuration are.
pub fn relative_to(root: &Path, properties: &mut BTreeMap<String, String>) {
    for (name, value) in properties {
        if SECRETS.contains(&name.as_str()) {
            if let Some(path) = value.strip_prefix(IN_FILE) {
                *value = format!("{IN_FILE}{}", root.join(path).display());
            }
        } else if FILES.iter().any(|(file, _)| file == name) && value != "probe" {
            *value = root.join(&*value).display().to_string();
        }
    }
}

/// Whether what this setting says must not be shown.
pub(crate) fn is_secret(name: &str) -> bool {
    SECRETS.contains(&name)
}

/// What is wrong, and its cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) what: String,
    pub(crate) cure: String,
}

impl Wrong {
    pub(crate) fn new(what: impl Into<String>, cure: impl Into<String>) -> Wrong {
        Wrong { what: what.into(), cure: cure.into() }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.cure)
    }
}

/// Secrets as they were read, by setting. Never printed.
#[derive(Clone, Default)]
pub(crate) struct Secrets(BTreeMap<String, String>);

impl Secrets {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &String)> {
        self.0.iter()
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secrets)")
    }
}

/// How the brokers are spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Security {
    /// Whether what is said is encrypted, and the brokers show who they are.
    pub tls: bool,
    /// The mechanism of SASL.
    pub mechanism: Option<String>,
    /// The user, to SASL.
    pub user: Option<String>,
    /// Where the password is.
    pub(crate) password: Option<PathBuf>,
    /// By whom the brokers' certificates must be signed: a file or directory; `None` leaves it to the system's.
    pub ca: Option<PathBuf>,
    /// The certificate gatelog shows.
    pub certificate: Option<PathBuf>,
    /// Whether the brokers' certificates are looked at.
    pub verifies: bool,
    /// Whether they must name the host.
    pub names: bool,
}

impl Security {
    /// Kafka's name for it: what `security.protocol` says.
    pub fn protocol(&self) -> &'static str {
        match (self.tls, self.mechanism.is_some()) {
            (false, false) => "PLAINTEXT",
            (true, false) => "SSL",
            (false, true) => "SASL_PLAINTEXT",
            (true, true) => "SASL_SSL",
        }
    }

    /// Whether the brokers know who comes, and may have an opinion of what that one may see.
    pub(crate) fn is_somebody(&self) -> bool {
        self.user.is_some() || self.certificate.is_some()
    }

    /// What these settings mean, and the secrets they name.
    pub(crate) fn of(properties: &BTreeMap<String, String>) -> Result<(Security, Secrets), Wrong> {
        let set = |name: &str| properties.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
        let protocol = set("security.protocol").unwrap_or("plaintext").to_ascii_lowercase();
        let (tls, sasl) = match protocol.as_str() {
            "plaintext" => (false, false),
            "ssl" => (true, false),
            "sasl_plaintext" => (false, true),
            "sasl_ssl" => (true, true),
            other => {
                return Err(Wrong::new(
                    format!("security.protocol = {other:?} is none"),
                    "set it to PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
                ));
            }
        };
        let unused = |family: &str| {
            let name = properties.keys().find(|name| name.starts_with(family) && set(name).is_some())?;
            let upper = protocol.to_ascii_uppercase();
            let other = match (family, tls) {
                ("ssl.", _) if sasl => "SASL_SSL",
                ("ssl.", _) => "SSL",
                (_, true) => "SASL_SSL",
                (_, false) => "SASL_PLAINTEXT or, with TLS, SASL_SSL",
            };
            let what = format!("{name} is set, but with security.protocol = {upper} it means nothing");
            Some(Wrong::new(what, format!("set security.protocol to {other}, or leave {name} out")))
        };
        if let Some(wrong) = (!tls).then(|| unused("ssl.")).flatten().or((!sasl).then(|| unused("sasl.")).flatten()) {
            return Err(wrong);
        }
        let secrets = secrets(properties)?;
        for (name, secret) in FILES {
            if let Some(value) = set(name).filter(|value| *value != "probe") {
                look(name, Path::new(value), *secret)?;
            }
        }
        for (one, other) in
            [("ssl.certificate.location", "ssl.key.location"), ("ssl.key.location", "ssl.certificate.location")]
        {
            if set(one).is_some() && set(other).is_none() && set("ssl.key.pem").is_none() {
                return Err(Wrong::new(
                    format!("{one} is set without {other}"),
                    format!("set {other} too: a certificate and its private key, both in PEM"),
                ));
            }
        }
        let (mechanism, user) = if sasl { who(&set)? } else { (None, None) };
        let path = |name: &str| set(name).map(PathBuf::from);
        let security = Security {
            tls,
            mechanism,
            user,
            password: set("sasl.password").and_then(|value| value.strip_prefix(IN_FILE)).map(PathBuf::from),
            ca: path("ssl.ca.location"),
            certificate: path("ssl.certificate.location"),
            verifies: set("enable.ssl.certificate.verification") != Some("false"),
            names: set("ssl.endpoint.identification.algorithm") != Some("none"),
        };
        Ok((security, secrets))
    }
}

impl fmt::Display for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.protocol())?;
        if let (Some(mechanism), Some(user)) = (&self.mechanism, &self.user) {
            write!(f, ", {mechanism} as {user}")?;
        }
        if let Some(certificate) = &self.certificate {
            write!(f, ", with the certificate in {}", certificate.display())?;
        }
        match (self.tls, self.verifies, &self.ca) {
            (false, ..) if self.mechanism.as_deref() == Some("PLAIN") => {
                f.write_str("; password and records cross the network in the clear")
            }
            (false, ..) => f.write_str("; records cross the network in the clear"),
            (true, false, _) => f.write_str("; anybody could pass for a broker: their certificates are not looked at"),
            (true, true, ca) => {
                match ca {
                    Some(ca) => write!(f, "; brokers are known by the CA in {}", ca.display())?,
                    None => f.write_str("; brokers are known by the CAs of this system")?,
                }
                if self.names { Ok(()) } else { f.write_str(", whatever host they name") }
            }
        }
    }
}

/// Mechanism and user.
fn who<'a>(set: &impl Fn(&str) -> Option<&'a str>) -> Result<(Option<String>, Option<String>), Wrong> {
    let known = MECHANISMS.join(", ");
    let mechanism = set("sasl.mechanisms").or_else(|| set("sasl.mechanism"));
    let mechanism = mechanism.ok_or_else(|| {
        Wrong::new("SASL is asked for and sasl.mechanisms is not set", format!("set it to one of {known}"))
    })?;
    let upper = mechanism.to_ascii_uppercase();
    if !MECHANISMS.contains(&upper.as_str()) {
        let what = format!("sasl.mechanisms = {mechanism:?} is none that this gatelog has");
        return Err(Wrong::new(what, format!("set it to one of {known}")));
    }
    let Some(user) = set("sasl.username") else {
        return Err(Wrong::new(format!("{upper} needs a user and sasl.username is not set"), "set it"));
    };
    if set("sasl.password").is_none() {
        let cure = "write the password into a file that only gatelog's user may read, and set sasl.password to \
                    file:PATH";
        return Err(Wrong::new(format!("{upper} needs a password and sasl.password is not set"), cure));
    }
    Ok((Some(upper), Some(user.to_owned())))
}

fn secrets(properties: &BTreeMap<String, String>) -> Result<Secrets, Wrong> {
    let mut found = BTreeMap::new();
    for name in SECRETS {
        let Some(value) = properties.get(*name).map(|value| value.trim()).filter(|value| !value.is_empty()) else {
            continue;
        };
        let Some(path) = value.strip_prefix(IN_FILE) else {
            let what = format!("{name} stands in the configuration itself, where too many may read it");
            let cure = format!("write it into a file that only gatelog's user may read, and set {name} to file:PATH");
            return Err(Wrong::new(what, cure));
        };
        found.insert((*name).to_owned(), secret(name, Path::new(path))?);
    }
    Ok(Secrets(found))
}

/// A file that a setting names, which must be there; one with secrets must be its owner's alone.
fn look(name: &str, path: &Path, secret: bool) -> Result<(), Wrong> {
    let unreadable = |error: std::io::Error| {
        Wrong::new(format!("{name}: {} cannot be read: {error}", path.display()), format!("correct {name}"))
    };
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if metadata.is_file() {
        let _ = File::open(path).map_err(unreadable)?;
    }
    let mode = metadata.mode() & 0o777;
    if secret && mode & 0o077 != 0 {
        let what = format!("{name}: {} has mode {mode:o}, so others may read it", path.display());
        return Err(Wrong::new(what, format!("run chmod 600 {}, and think about who has read it", path.display())));
    }
    Ok(())
}

/// What a file says; white space at its end does not count.
fn secret(name: &str, path: &Path) -> Result<String, Wrong> {
    look(name, path, true)?;
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_string(&mut text));
    read.map_err(|error| {
        Wrong::new(format!("{name}: {} cannot be read: {error}", path.display()), format!("correct {name}"))
    })?;
    let trimmed = text.trim_end();
    if trimmed.is_empty() {
        return Err(Wrong::new(format!("{name}: {} is empty", path.display()), "write the secret into it"));
    }
    Ok(trimmed.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Dir(tempfile::TempDir);

    impl Dir {
        fn new() -> Dir {
            Dir(tempfile::tempdir().unwrap())
        }

        fn write(&self, name: &str, text: &str, mode: u32) {
            let path = self.0.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }

        fn of(&self, settings: &[(&str, &str)]) -> Result<(Security, Secrets), Wrong> {
            let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let mut properties = settings.iter().map(own).collect();
            relative_to(self.0.path(), &mut properties);
            Security::of(&properties)
        }
    }

    #[test]
    fn what_is_spoken_is_told_and_secrets_come_from_files() {
        let dir = Dir::new();
        dir.write("ca.pem", "ca", 0o644);
        dir.write("password", "geheim \n", 0o600);
        dir.write("own.pem", "own", 0o644);
        dir.write("own.key", "key", 0o400);
        assert_eq!(dir.of(&[]).unwrap().0.to_string(), "PLAINTEXT; records cross the network in the clear");
        let (security, secrets) = dir
            .of(&[
                ("security.protocol", "sasl_ssl"),
                ("ssl.ca.location", "ca.pem"),
                ("sasl.mechanism", "scram-sha-512"),
                ("sasl.username", "ci"),
                ("sasl.password", "file:password"),
            ])
            .unwrap();
        let ca = dir.0.path().join("ca.pem");
        assert_eq!(
            security.to_string(),
            format!("SASL_SSL, SCRAM-SHA-512 as ci; brokers are known by the CA in {}", ca.display())
        );
        assert_eq!(secrets.iter().collect::<Vec<_>>(), [(&"sasl.password".to_owned(), &"geheim".to_owned())]);
        assert!(!format!("{security:?} {secrets:?}").contains("geheim"));
        let (mutual, _) = dir
            .of(&[
                ("security.protocol", "SSL"),
                ("ssl.certificate.location", "own.pem"),
                ("ssl.key.location", "own.key"),
                ("ssl.endpoint.identification.algorithm", "none"),
            ])
            .unwrap();
        let own = dir.0.path().join("own.pem");
        assert_eq!(
            mutual.to_string(),
            format!(
                "SSL, with the certificate in {}; brokers are known by the CAs of this system, whatever host they name",
                own.display()
            )
        );
    }

    #[test]
    fn what_cannot_be_is_named_with_its_cure_and_never_a_secret() {
        let dir = Dir::new();
        dir.write("open", "geheim", 0o644);
        dir.write("empty", "\n", 0o600);
        dir.write("password", "geheim", 0o600);
        dir.write("own.key", "key", 0o600);
        let sasl = [("security.protocol", "SASL_SSL"), ("sasl.mechanisms", "PLAIN"), ("sasl.username", "ci")];
        let with = |more: &[(&'static str, &'static str)]| [&sasl[..], more].concat();
        let cases = [
            (vec![("security.protocol", "tls")], "security.protocol = \"tls\" is none; set it to PLAINTEXT, SSL"),
            (vec![("ssl.ca.location", "x")], "means nothing; set security.protocol to SSL"),
            (vec![("sasl.username", "x")], "set security.protocol to SASL_PLAINTEXT or, with TLS, SASL_SSL"),
            (vec![("security.protocol", "ssl"), ("sasl.username", "x")], "set security.protocol to SASL_SSL"),
            (vec![("security.protocol", "ssl"), ("ssl.ca.location", "none.pem")], "none.pem cannot be read"),
            (vec![("security.protocol", "ssl"), ("ssl.key.location", "own.key")], "without ssl.certificate.location"),
            (vec![("security.protocol", "sasl_ssl")], "sasl.mechanisms is not set; set it to one of PLAIN, SCRAM"),
            (vec![("security.protocol", "sasl_ssl"), ("sasl.mechanisms", "GSSAPI")], "is none that this gatelog has"),
            (with(&[]), "PLAIN needs a password and sasl.password is not set; write the password into a file"),
            (with(&[("sasl.password", "geheim")]), "set sasl.password to file:PATH"),
            (with(&[("sasl.password", "file:nowhere")]), "nowhere cannot be read"),
            (with(&[("sasl.password", "file:open")]), "has mode 644, so others may read it; run chmod 600"),
            (with(&[("sasl.password", "file:empty")]), "is empty; write the secret into it"),
        ];
        for (settings, expected) in cases {
            let wrong = dir.of(&settings).unwrap_err().to_string();
            assert!(wrong.contains(expected), "{settings:?}: {wrong}");
            assert!(!wrong.contains("geheim"), "{wrong}");
        }
    }
}
