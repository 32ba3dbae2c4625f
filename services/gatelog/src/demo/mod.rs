//! `gatelog demo`: a whole site, three projects, four changes, and the story they make.

pub mod kafka;
pub mod outcome;
pub mod projects;
pub mod screen;
pub mod story;

use std::path::PathBuf;

/// How the demo is run.
#[derive(Clone, Debug, Default)]
pub struct DemoOptions {
    /// Leave the site running when the story is over.
    pub keep: bool,
    /// Keep the site's data here; a temporary directory otherwise.
    pub dir: Option<PathBuf>,
    /// No live screen.
    pub headless: bool,
    /// Print the outcome as one JSON document.
    pub json: bool,
    /// The port of the API; 0 takes a free one.
    pub port: u16,
    /// Have the log on Kafka at these brokers, and two processes.
    pub kafka: Option<String>,
}
