//! What a connection to a Gerrit is made of.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use crate::error::GerritError;

/// The longest password that is read from a file, in bytes.
const PASSWORD_MAX: usize = 4_096;

/// A connection to one Gerrit, as one account.
#[derive(Clone, Debug)]
pub struct GerritConfig {
    /// Where its web server answers, such as `https://review.example.com/` or, with a path, `https://example.com/r/`.
    pub base_url: Url,
    /// The host part of its projects' canonical names; `Depends-On` may name it too.
    pub canonical_hostname: String,
    /// The account.
    pub user: String,
    /// The file with its HTTP password. Read anew for each client that is made, so that it can be changed.
    pub password_file: PathBuf,
    /// How it is reached over SSH, for the stream of events and for git.
    pub ssh: SshConfig,
    /// Whether git goes over SSH rather than HTTP.
    pub git_over_ssh: bool,
    /// How long a submit may take to be seen on every server of the site.
    pub replication_delay: Duration,
    /// Times and sizes.
    pub limits: Limits,
}

/// How Gerrit's SSH server is reached.
#[derive(Clone, Debug)]
pub struct SshConfig {
    /// The host.
    pub host: String,
    /// The port; Gerrit's own is 29418.
    pub port: u16,
    /// The private key, which no other program need know.
    pub key: PathBuf,
    /// The host's key, in the form of `known_hosts`. An unknown host is refused.
    pub known_hosts: PathBuf,
    /// After how many seconds of silence Gerrit is asked for a sign of life. Three without an answer end the stream.
    pub keepalive_s: u64,
}

/// Times and sizes. Each has a default that fits a large site.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How long a connection may take to be made.
    pub connect: Duration,
    /// How long a request may take, from its begin to the end of its answer. A submit of a large topic takes minutes.
    pub request: Duration,
    /// How long git may take for a fetch or a push.
    pub git: Duration,
    /// The wait where Gerrit is busy and does not say how long.
    pub retry_after: Duration,
    /// The largest answer, in bytes.
    pub answer: usize,
    /// How many changes a query may find.
    pub found: usize,
    /// How many changes a closure may have.
    pub closure: usize,
    /// How many files of one change are listed.
    pub files: usize,
    /// How many Depends-On lines of one change are read.
    pub depends_on: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connect: Duration::from_secs(10),
            request: Duration::from_secs(300),
            git: Duration::from_secs(600),
            retry_after: Duration::from_secs(10),
            answer: 64 << 20,
            found: 5_000,
            closure: 500,
            files: 10_000,
            depends_on: 100,
        }
    }
}

impl GerritConfig {
    /// Checks what can be checked without a connection.
    ///
    /// # Errors
    /// [`GerritError::BadSetting`], naming the setting.
    pub fn check(&self) -> Result<(), GerritError> {
        let bad = |setting, why: &str| Err(GerritError::BadSetting { setting, why: why.to_owned() });
        if !matches!(self.base_url.scheme(), "http" | "https") || self.base_url.host_str().is_none() {
            return bad("baseurl", "it must be an address that begins with https:// or http://");
        }
        if self.base_url.password().is_some() || !self.base_url.username().is_empty() {
            return bad("baseurl", "it must not have a name or password in it: use user and a file for the password");
        }
        // These become words of a command: none may look like an option or hold a second word.
        for (setting, text) in [("user", &self.user), ("server", &self.ssh.host)] {
            let usable = |letter: char| letter.is_ascii_alphanumeric() || "._-:@+".contains(letter);
            if text.is_empty() || text.starts_with('-') || !text.chars().all(usable) {
                return bad(setting, "it must have letters, digits and . _ - : @ + only, and not begin with -");
            }
        }
        if self.canonical_hostname.is_empty() {
            return bad("canonical_hostname", "it must not be empty");
        }
        Ok(())
    }

    /// The HTTP password, from its file; a line end behind it is not part of it.
    ///
    /// # Errors
    /// [`GerritError::File`], [`GerritError::BadSetting`] for an empty or too long one.
    pub fn password(&self) -> Result<String, GerritError> {
        let text = fs::read_to_string(&self.password_file).map_err(|why| GerritError::File {
            what: "cannot read the HTTP password in",
            path: self.password_file.clone(),
            why,
        })?;
        let password = text.trim_end_matches(['\r', '\n']);
        if password.is_empty() || password.len() > PASSWORD_MAX || password.contains(['\n', '\r', '\0']) {
            let why = format!("{} must hold the HTTP password in one line", self.password_file.display());
            return Err(GerritError::BadSetting { setting: "password file", why });
        }
        Ok(password.to_owned())
    }

    /// The address of a page or endpoint below the base, without a slash at its begin.
    pub(crate) fn below(&self, path: &str) -> String {
        format!("{}/{path}", self.base_url.as_str().trim_end_matches('/'))
    }
}

/// A part of a path or a query in an address: everything but letters, digits and `-._~` is encoded, also slashes.
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::config;

    #[test]
    fn settings_that_cannot_work_are_named() {
        assert!(config("https://review.example.com").check().is_ok());
        let said = |config: &GerritConfig| config.check().unwrap_err().to_string();
        assert!(said(&config("file:///etc")).contains("baseurl"));
        assert!(said(&config("https://u:p@h/")).contains("must not have a name or password"));
        for user in ["", "-oProxyCommand=x", "a b", "a\nb", "$(x)", "a'b"] {
            let mut bad = config("https://h/");
            bad.user = user.to_owned();
            assert!(said(&bad).contains("connection's user"), "{user:?}");
        }
        let mut bad = config("https://h/");
        bad.ssh.host = "-oX=y".to_owned();
        assert!(said(&bad).contains("connection's server"));
    }

    #[test]
    fn the_password_is_one_line_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config("https://h/r/");
        config.password_file = dir.path().join("password");
        assert!(matches!(config.password(), Err(GerritError::File { .. })));
        fs::write(&config.password_file, "s3cret word\r\n").unwrap();
        assert_eq!(config.password().unwrap(), "s3cret word");
        for text in ["", "\n", "a\nb\n", &"x".repeat(5_000)] {
            fs::write(&config.password_file, text).unwrap();
            let said = config.password().unwrap_err().to_string();
            assert!(said.contains("one line") && !said.contains("xxx"), "{said}");
        }
        assert_eq!(config.below("a/changes/"), "https://h/r/a/changes/");
    }

    #[test]
    fn names_in_addresses_are_encoded() {
        assert_eq!(encode("acme/lib é"), "acme%2Flib%20%C3%A9");
        assert_eq!(encode("a-b._~&=?#"), "a-b._~%26%3D%3F%23");
    }
}
