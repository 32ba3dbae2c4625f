//! What a gatelog of its own is asked, and its answer.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use gatelog_record::Partition;
use gatelog_replay::Cut;
use gatelog_replay::what_if::{Answer, VERSION};
use serde_json::Value as Json;

use super::{Broken, Limits, Sandbox, Task, run};
use crate::cli::replay::InputPlace;
use crate::commands::failure::{Code, Failure};
use crate::commands::site::Site;
use crate::logs::SitePaths;

/// Where the record stands in a sandbox.
const SITE: &str = "/site";
/// Where what is otherwise stands in a sandbox.
const ASKED: &str = "/asked";

/// What is otherwise, and up to where.
pub struct Question<'a> {
    /// The inputs that never came.
    pub without: &'a [InputPlace],
    /// The inputs that said something else, and the file of what.
    pub change: &'a [(InputPlace, PathBuf)],
    /// The folder of the configuration.
    pub config: Option<&'a Path>,
    /// The tenant file.
    pub tenants: Option<&'a Path>,
    /// The events looked at.
    pub until: &'a Cut,
}

impl Question<'_> {
    /// The command line of whoever is asked: by what this host's files are called, or as they are called in a sandbox;
    /// with what is shown there.
    fn words(&self, site: &Path, sandboxed: bool) -> (Vec<OsString>, Vec<(PathBuf, PathBuf)>) {
        let mut shown = Vec::new();
        let mut seen = |path: &Path, name: String| -> PathBuf {
            match sandboxed {
                true => {
                    let to = Path::new(ASKED).join(name);
                    shown.push((path.to_owned(), to.clone()));
                    to
                }
                false => path.to_owned(),
            }
        };
        let dir: OsString = if sandboxed { SITE.into() } else { site.into() };
        let mut words: Vec<OsString> = ["replay", "what-if", "--json", "--dir"].map(OsString::from).into();
        words.push(dir);
        let until: Vec<String> = self.until.iter().map(|(partition, last)| format!("{partition}:{last}")).collect();
        words.extend(["--until".into(), until.join(",").into()]);
        if !self.without.is_empty() {
            let inputs: Vec<String> = self.without.iter().map(ToString::to_string).collect();
            words.extend(["--without".into(), inputs.join(",").into()]);
        }
        for (number, (input, file)) in self.change.iter().enumerate() {
            let mut word = OsString::from(format!("{input}="));
            word.push(seen(file, format!("change-{number}.json")));
            words.extend(["--change".into(), word]);
        }
        if let Some(config) = self.config {
            words.extend(["--config".into(), seen(config, "config".into()).into()]);
        }
        if let Some(tenants) = self.tenants {
            words.extend(["--tenants".into(), seen(tenants, "tenants.yaml".into()).into()]);
        }
        (words, shown)
    }
}

/// What of a site is to be seen of its record: log, blobs, and the rungs of these partitions.
fn record(site: &Site, partitions: impl Iterator<Item = Partition>) -> Vec<(PathBuf, PathBuf)> {
    let paths = SitePaths::bare(site.dir());
    let there = SitePaths::bare(SITE);
    // The blobs of an embedded log are in its directory.
    let mut shown = vec![(paths.log(), there.log())];
    let rungs = |root: &SitePaths, partition| gatelog_store::Layout::new(&root.projections(), partition).rungs();
    shown.extend(partitions.map(|partition| (rungs(&paths, partition), rungs(&there, partition))));
    shown.retain(|(from, _)| from.exists());
    shown
}

/// Asks a gatelog over a site's record.
///
/// # Errors
/// What kept it from its end, and an answer that cannot be read or is to another question.
pub fn ask(
    site: &Site,
    binary: &Path,
    question: &Question<'_>,
    sandbox: Option<&Sandbox>,
    limits: Limits,
    cancelled: &dyn Fn() -> bool,
) -> Result<Answer, Failure> {
    let name = binary.display();
    let (arguments, mut shown) = question.words(site.dir(), sandbox.is_some());
    if sandbox.is_some() {
        shown.extend(record(site, question.until.keys().copied()));
    }
    let task = Task { program: binary, arguments, shown, limits };
    let said = run(sandbox, &task, cancelled).map_err(|broken| {
        let code = if let Broken::Start { .. } = &broken { Code::NotFound } else { Code::No };
        let message =
            if let Broken::Start { .. } = &broken { String::new() } else { format!("{name} gives no answer: ") };
        Failure::new(code, format!("{message}{broken}"))
    })?;
    let answer: Json = serde_json::from_slice(&said.output).map_err(|_| {
        let failure = Failure::new(Code::No, format!("{name} gives no answer that can be read ({})", said.status));
        failure.detail(said.complaint.clone()).hint("it must know `replay what-if` and be able to read this log")
    })?;
    if answer["version"] != VERSION {
        let message = format!("{name} answers in version {} of the answer's shape", answer["version"]);
        return Err(Failure::new(Code::No, message).hint(format!("this gatelog reads version {VERSION}")));
    }
    let answer: Answer = serde_json::from_value(answer).map_err(anyhow::Error::from)?;
    let looked_at = question.until.iter().map(|(partition, last)| (partition.to_string(), *last)).collect();
    if answer.until != looked_at {
        return Err(Failure::new(Code::No, format!("{name} looked at other events than it was asked about")));
    }
    Ok(answer)
}
