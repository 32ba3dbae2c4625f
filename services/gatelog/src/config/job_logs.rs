//! `[job-logs]`: where what jobs leave in their log directories is kept, and for how long.

use std::path::{Path, PathBuf};

use gatelog_executing::ByteSize;
use gatelog_log_files::{KeepLimits, LogStore, Rules, S3Config, StoreError};
use serde::Deserialize;

/// Where it is kept if nothing is said: below the site's directory.
const DIR: &str = "job-logs";

/// What jobs leave in their log directories.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct JobLogsSection {
    /// A directory that all processes of the site see, relative to the site's. If neither this nor `s3` is set, each
    /// executor keeps those of its builds in `job-logs`, and others ask it.
    #[serde(default)]
    pub dir: Option<PathBuf>,
    /// A bucket instead of a directory.
    #[serde(default)]
    pub s3: Option<S3Section>,
    /// Days after its end that consoles and logs of an attempt are kept; for ever if not set.
    #[serde(default)]
    pub keep_days: Option<u32>,
    /// Size of all consoles and logs together, such as `"200G"`: the oldest go first; no limit if not set.
    #[serde(default)]
    pub keep_bytes: Option<ByteSize>,
    /// Days that what a build returned is kept, where it is in a blob of its own (more than 64 KiB), after its item has
    /// left or its buildset was given up. As long as the build is there it is kept in any case.
    #[serde(default = "default_returned")]
    pub keep_returned_days: u32,
    /// Files that are kept of one attempt.
    #[serde(default = "default_files")]
    pub job_files: usize,
    /// Bytes that are kept of one attempt, its console not counted.
    #[serde(default = "default_size")]
    pub job_size: ByteSize,
}

/// A bucket of S3.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct S3Section {
    /// Its name.
    pub bucket: String,
    /// Where S3 answers: `http://host:port`. gatelog has no TLS of its own yet.
    pub endpoint: String,
    /// The region.
    #[serde(default = "default_region")]
    pub region: String,
    /// What the name of every object begins with.
    #[serde(default)]
    pub prefix: String,
    /// The access key's name.
    pub access_key_id: String,
    /// A file with the access key's secret, relative to the site's directory.
    pub secret_access_key_file: PathBuf,
}

fn default_region() -> String {
    "us-east-1".to_owned()
}

/// A change that waits for another may need artifacts of builds of the other's last buildset; that is long over by then.
fn default_returned() -> u32 {
    90
}

fn default_files() -> usize {
    KeepLimits::default().files
}

fn default_size() -> ByteSize {
    ByteSize(KeepLimits::default().bytes)
}

impl Default for JobLogsSection {
    fn default() -> Self {
        JobLogsSection {
            dir: None,
            s3: None,
            keep_days: None,
            keep_bytes: None,
            keep_returned_days: default_returned(),
            job_files: default_files(),
            job_size: default_size(),
        }
    }
}

impl JobLogsSection {
    /// The store of a site in this directory; what is not shared is made by whoever runs builds (`here`), and is `None`
    /// to others.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn store(&self, site: &Path, here: bool) -> Result<Option<LogStore>, StoreError> {
        match (&self.s3, &self.dir) {
            (Some(s3), _) => {
                let file = site.join(&s3.secret_access_key_file);
                let secret = std::fs::read_to_string(&file).map_err(|error| {
                    StoreError::Setting(format!("secret-access-key-file {}: {error}", file.display()))
                })?;
                LogStore::s3(&S3Config {
                    bucket: s3.bucket.clone(),
                    endpoint: s3.endpoint.clone(),
                    region: s3.region.clone(),
                    prefix: s3.prefix.trim_matches('/').to_owned(),
                    access_key_id: s3.access_key_id.clone(),
                    secret_access_key: secret.trim().to_owned(),
                })
                .map(Some)
            }
            (None, Some(dir)) => LogStore::directory(&site.join(dir), true).map(Some),
            (None, None) if here => LogStore::directory(&site.join(DIR), false).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// How long it is kept.
    pub fn rules(&self) -> Rules {
        Rules { keep_days: self.keep_days, keep_bytes: self.keep_bytes.map(|size| size.0) }
    }

    /// What is kept of one attempt.
    pub fn limits(&self) -> KeepLimits {
        KeepLimits { files: self.job_files, bytes: self.job_size.0, ..KeepLimits::default() }
    }

    /// What does not go together, and the cure.
    pub(super) fn contradiction(&self) -> Option<(String, String)> {
        let both = self.dir.is_some() && self.s3.is_some();
        both.then(|| {
            let message = "dir and s3 under [job-logs] are both set".to_owned();
            (message, "leave one of them out: files are kept in one place".to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::SiteConfig;
    use super::super::tests::said;
    use super::*;

    #[test]
    fn logs_are_kept_for_ever_below_the_site_unless_something_else_is_said() {
        let usual: SiteConfig = toml::from_str("").unwrap();
        assert!(usual.job_logs.rules().is_forever());
        assert_eq!(usual.job_logs.keep_returned_days, 90);
        let site = tempfile::tempdir().unwrap();
        assert!(usual.job_logs.store(site.path(), false).unwrap().is_none());
        let store = usual.job_logs.store(site.path(), true).unwrap().unwrap();
        assert!(store.place().ends_with("/job-logs") && !store.is_shared());
        let text = "[job-logs]\nkeep-days = 30\nkeep-bytes = \"2G\"\njob-size = \"1M\"\ndir = \"../all\"\n";
        let set: SiteConfig = toml::from_str(text).unwrap();
        assert_eq!(set.job_logs.rules(), Rules { keep_days: Some(30), keep_bytes: Some(2 << 30) });
        assert_eq!(set.job_logs.limits().bytes, 1 << 20);
    }

    #[test]
    fn what_cannot_be_is_named_with_its_cure() {
        let s3 = "[job-logs.s3]\nbucket = \"b\"\nendpoint = \"https://s3.example\"\naccess-key-id = \"k\"\n\
                  secret-access-key-file = \"s3.secret\"\n";
        let both = said(&format!("[job-logs]\ndir = \"x\"\n{s3}"));
        assert!(both.contains("both set; leave one of them out"), "{both}");
        let set: SiteConfig = toml::from_str(s3).unwrap();
        let site = tempfile::tempdir().unwrap();
        let missing = set.job_logs.store(site.path(), true).unwrap_err().to_string();
        assert!(missing.contains("secret-access-key-file") && missing.contains("s3.secret"), "{missing}");
        std::fs::write(site.path().join("s3.secret"), "hidden\n").unwrap();
        let tls = set.job_logs.store(site.path(), true).unwrap_err().to_string();
        assert!(tls.contains("no TLS") && tls.contains("http://") && !tls.contains("hidden"), "{tls}");
        assert!(said("[job-logs]\nkeep-day = 3\n").contains("keep-day"));
    }
}
