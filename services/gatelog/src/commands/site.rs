//! Which site a command is about, and how its log is read beside a running server or without one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gatelog_event_log::{Blobs, Log};
use gatelog_log_embedded::{EmbeddedLog, FileBlobs, ReaderOptions, SliceLog};
use gatelog_record::Partition;
use gatelog_store::{Layout, RungDir};
use serde_json::Value as Json;

use super::failure::{Code, Failure};
use crate::cli::SiteArgs;
use crate::client::Client;
use crate::config::{self, KafkaSection, SiteConfig};
use crate::logs::{self, SitePaths};

/// What a running server leaves in its site's directory.
pub const SERVER_FILE: &str = "server.json";

/// A log and its blobs.
pub type History = (Arc<dyn Log>, Arc<dyn Blobs>);

/// Where a command looks.
pub enum Target {
    /// A site's directory.
    Dir(Site),
    /// A running server.
    Url(Client),
}

/// A site's directory.
pub struct Site {
    dir: PathBuf,
}

impl SiteArgs {
    /// What these arguments and the environment mean.
    pub fn target(&self) -> Result<Target, Failure> {
        match &self.url {
            Some(url) => Ok(Target::Url(super::operators::with_given_token(Client::new(url)?, None)?)),
            None => Ok(Target::Dir(self.site()?)),
        }
    }

    /// The site's directory; for commands that need one.
    ///
    /// # Errors
    /// `Usage` with `--url`, and when no directory is named; `NotFound` when there is no site in it.
    pub fn directory(&self, command: &str) -> Result<Site, Failure> {
        if self.url.is_some() {
            return Err(Failure::new(Code::Usage, format!("{command} reads the log itself and does not take --url"))
                .hint("name the site's directory with --dir, on the machine it is on"));
        }
        self.site()
    }

    fn site(&self) -> Result<Site, Failure> {
        let from_environment = || std::env::var_os("GATELOG_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let dir = match self.dir.clone().or_else(from_environment) {
            Some(dir) => dir,
            None if Path::new(config::FILE).exists() => PathBuf::from("."),
            None => {
                return Err(Failure::new(Code::Usage, "which site? There is no gatelog.toml in this directory").hint(
                    "name the site's directory with --dir DIR or GATELOG_DIR, or a running server with --url URL",
                ));
            }
        };
        if !dir.join(config::FILE).exists() && !dir.join("log").exists() {
            return Err(Failure::new(Code::NotFound, format!("there is no site in {}", dir.display()))
                .detail(format!("a site's directory holds a {} and, once it was started, a log/", config::FILE))
                .hint("`gatelog demo --keep --dir DIR` makes one to look around in"));
        }
        Ok(Site { dir })
    }
}

impl Site {
    /// The site in a directory in which there is one.
    pub fn at(dir: PathBuf) -> Site {
        Site { dir }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its configuration; `None` where there is only a log.
    pub fn config(&self) -> Result<Option<SiteConfig>, Failure> {
        if !self.dir.join(config::FILE).exists() {
            return Ok(None);
        }
        Ok(Some(SiteConfig::read(&self.dir).map_err(anyhow::Error::from)?))
    }

    /// What its configuration says of the log on Kafka; `None` when the log is in the directory.
    pub fn kafka(&self) -> Result<Option<KafkaSection>, Failure> {
        Ok(self.config()?.and_then(|config| config.log.kafka))
    }

    /// Where things are in it.
    fn paths(&self, config: Option<&SiteConfig>) -> SitePaths {
        match config {
            Some(config) => SitePaths::new(&self.dir, config),
            None => SitePaths::bare(&self.dir),
        }
    }

    /// The embedded log, for reading beside a running server or without one.
    pub fn embedded(&self) -> Result<Arc<EmbeddedLog>, Failure> {
        let path = self.dir.join("log");
        if !path.exists() {
            return Err(Failure::new(Code::NotFound, format!("the site in {} has no log yet", self.dir.display()))
                .hint(format!("start it once: gatelog serve --dir {}", self.dir.display())));
        }
        Ok(Arc::new(EmbeddedLog::open_reader(&path, ReaderOptions::default())?))
    }

    /// The slice of a log that was imported into this directory, if that is what it holds.
    pub fn slice(&self) -> Result<Option<Arc<SliceLog>>, Failure> {
        Ok(super::log_slice::in_site(&self.dir)?)
    }

    /// The log and its blobs, for reading beside those who serve them or without.
    pub fn history(&self) -> Result<History, Failure> {
        let config = self.config()?;
        let paths = self.paths(config.as_ref());
        let blobs: Arc<dyn Blobs> = Arc::new(FileBlobs::open_reader(paths.blobs()));
        match config.as_ref().and_then(|config| config.log.kafka.as_ref()) {
            None => match self.slice()? {
                Some(slice) => Ok((slice, blobs)),
                None => Ok((self.embedded()?, blobs)),
            },
            Some(section) => Ok((logs::open_kafka_reader(section)?, blobs)),
        }
    }

    /// Where the rungs of its partitions are.
    pub fn rungs(&self) -> impl Fn(Partition) -> Option<RungDir> {
        let projections = self.dir.join("projections");
        move |partition| Some(RungDir::new(Layout::new(&projections, partition).rungs()))
    }

    /// Where its keys are.
    pub fn keys(&self) -> Result<PathBuf, Failure> {
        Ok(self.paths(self.config()?.as_ref()).keys())
    }

    /// A client of the server that runs this site; `None` when none does.
    pub fn server(&self) -> Option<Client> {
        let text = std::fs::read_to_string(self.dir.join(SERVER_FILE)).ok()?;
        let said: Json = serde_json::from_str(&text).ok()?;
        let pid = said.get("pid").and_then(Json::as_u64)?;
        // What a server that was killed has left behind is not asked.
        if !Path::new("/proc").join(pid.to_string()).exists() {
            return None;
        }
        let client = Client::new(said.get("url").and_then(Json::as_str)?).ok()?;
        // Whoever may read the directory may see all of it there.
        Some(super::operators::in_own_name(&self.dir, client))
    }
}
