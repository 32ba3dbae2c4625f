//! Answers of the server to what-ifs: by a gatelog of its own, shut in, over the site's record.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gatelog_event_log::Log;
use gatelog_record::EventRef;
use gatelog_replay::what_if::{Answer, InputNear, inputs_near};
use gatelog_replay::{Cut, ReplayError};
use gatelog_web::what_if::{Question, WhatIfs};

use crate::cli::replay::{InputPlace, parse_input};
use crate::commands::failure::Failure;
use crate::commands::site::Site;
use crate::roles::GATE;
use crate::sealed::{self, Limits, Sandbox};

/// How much a what-if may take of a server's machine.
const LIMITS: Limits = Limits { time: Duration::from_secs(300), memory: 2 << 30, answer: 64 << 20 };

/// The what-ifs of a site.
pub struct SiteWhatIfs {
    /// The site's directory.
    pub site: PathBuf,
    /// Its log.
    pub log: Arc<dyn Log>,
    /// Whether the log is in the directory, and so can be shown to what has no network.
    pub local: bool,
    /// What this host has to shut it in.
    pub sandbox: OnceLock<Option<Sandbox>>,
}

impl SiteWhatIfs {
    /// The sandbox, where there is one. Our own gatelog only reads, also where there is none.
    fn sandbox(&self) -> Option<&Sandbox> {
        let find = || match Sandbox::find() {
            Ok(sandbox) => Some(sandbox),
            Err(why) => {
                tracing::warn!("what-ifs run without a sandbox, in a process that only reads: {why}");
                None
            }
        };
        if self.local { self.sandbox.get_or_init(find).as_ref() } else { None }
    }

    fn cut(&self, at: Option<u64>) -> Result<Cut, ReplayError> {
        let place = match at {
            Some(sequence) => gatelog_replay::Place::Event(EventRef { partition: GATE, sequence }),
            None => gatelog_replay::Place::Newest,
        };
        gatelog_replay::diff::cut_of(&*self.log, place)
    }

    fn ask(&self, question: &Question, cancelled: &dyn Fn() -> bool) -> Result<Answer, Failure> {
        let dir = tempfile::tempdir().map_err(anyhow::Error::from)?;
        let without: Vec<InputPlace> =
            question.without.iter().map(|place| place_of(place)).collect::<Result<_, _>>()?;
        let mut change = Vec::new();
        for (number, (place, said)) in question.change.iter().enumerate() {
            let file = dir.path().join(format!("change-{number}.json"));
            std::fs::write(&file, said.to_string()).map_err(anyhow::Error::from)?;
            change.push((place_of(place)?, file));
        }
        let config = dir.path().join("config");
        for (project, files) in &question.config {
            write(&config.join(project.replace('/', "_")), files).map_err(anyhow::Error::from)?;
        }
        let config = Some(config.as_path()).filter(|_| !question.config.is_empty());
        let tenants = dir.path().join("tenants.yaml");
        std::fs::write(&tenants, question.tenants.as_deref().unwrap_or_default()).map_err(anyhow::Error::from)?;
        let tenants = Some(tenants.as_path()).filter(|_| question.tenants.is_some());
        let until = self.cut(question.at)?;
        let question =
            sealed::question::Question { without: &without, change: &change, config, tenants, until: &until };
        let binary = std::env::current_exe().map_err(anyhow::Error::from)?;
        let site = Site::at(self.site.clone());
        sealed::question::ask(&site, &binary, &question, self.sandbox(), LIMITS, cancelled)
    }
}

fn place_of(place: &str) -> Result<InputPlace, Failure> {
    parse_input(place).map_err(|why| Failure::new(crate::commands::failure::Code::Usage, why))
}

fn write(root: &Path, files: &BTreeMap<String, String>) -> std::io::Result<()> {
    for (path, text) in files {
        let file = root.join(path);
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(file, text)?;
    }
    Ok(())
}

impl WhatIfs for SiteWhatIfs {
    fn inputs_near(&self, gate: u64, most: usize) -> Result<Vec<InputNear>, String> {
        inputs_near(&*self.log, EventRef { partition: GATE, sequence: gate }, most).map_err(|error| error.to_string())
    }

    fn answer(&self, question: &Question, cancelled: &dyn Fn() -> bool) -> Result<Answer, String> {
        self.ask(question, cancelled).map_err(|failure| {
            let hint = failure.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
            let detail: String = failure.detail.iter().map(|detail| format!(": {detail}")).collect();
            format!("{}{detail}{hint}", failure.primary)
        })
    }
}
