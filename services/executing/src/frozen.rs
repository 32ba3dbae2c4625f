//! Frozen variables: what a job's variables come to before any of its playbooks runs.
//!
//! A variable may hold a template, and what it comes to may change while the job runs: an earlier playbook sets a fact,
//! and the template names it. Playbooks that are trusted or hold secrets must not be led astray like that, so they see
//! what each variable was at the start, as text that is never a template; the templates themselves are in their
//! `unsafe_vars`. Zuul does the same. Beyond Zuul, a fact that has the name of one of these variables or of a secret is
//! forgotten before such a playbook: facts that were kept would hide them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use gatelog_record::Value;
use serde_json::json;
use tokio::time::Instant;

use crate::ansible;
use crate::build::Build;
use crate::config::ExecutorError;
use crate::jobdir::{JobDir, make_dir, read_limited, remove_tree, write};
use crate::json_output::{DEEPEST, PlaybookJson, Shape};
use crate::outcome::{BuildResult, PlaybookEnding, RetryCause};
use crate::play::Ended;
use crate::playbooks::PlaybookInPlace;
use crate::process::kill_marked;
use crate::setup::Stopped;
use crate::spec::{BuildSpec, Checkout, Phase, PlaybookSpec, SecretVars};
use crate::variables::{HostVars, squash};
use crate::yaml::Yaml;

/// What begins a template of Ansible's.
const MARKS: [&str; 3] = ["{{", "{%", "{#"];
/// The most hosts whose facts are kept; a job may have made files for more.
const MOST_FACT_FILES: usize = 4096;
/// The longest file of facts that is looked into, in bytes.
const LONGEST_FACTS: u64 = 16 << 20;

/// The variables of each host, as they were before the first playbook.
#[derive(Debug, Default)]
pub(crate) struct Frozen {
    hosts: BTreeMap<String, HostVars>,
}

impl Frozen {
    /// Variables without templates: they are what they come to.
    fn plain(spec: &BuildSpec) -> Frozen {
        let nodes = spec.nodeset.nodes.iter().flat_map(|node| std::iter::once(&node.name).chain(&node.aliases));
        let hosts = nodes.map(String::as_str).chain(["localhost"]);
        let of = |host: &str| {
            let mut variables = squash(&spec.variables, &spec.nodeset, host);
            variables.retain(|_, value| !has_template(value));
            variables
        };
        Frozen { hosts: hosts.map(|host| (host.to_owned(), of(host))).collect() }
    }

    /// The variables of a host.
    pub(crate) fn of(&self, host: &str) -> HostVars {
        self.hosts.get(host).cloned().unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn from_hosts(hosts: BTreeMap<String, HostVars>) -> Frozen {
        Frozen { hosts }
    }
}

/// Whether any text in a value is a template.
fn has_template(value: &Value) -> bool {
    holds(value, &|text| MARKS.iter().any(|mark| text.contains(mark)))
}

fn holds(value: &Value, what: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::Str(text) => what(text),
        Value::List(items) => items.iter().any(|item| holds(item, what)),
        Value::Map(map) => map.iter().any(|(key, item)| what(key) || holds(item, what)),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Number(_) => false,
    }
}

/// What the plugin is asked: of each host, which variables, and the file to write them to.
fn questions(spec: &BuildSpec, frozen: &Frozen) -> BTreeMap<String, (Vec<String>, String)> {
    let mut questions = BTreeMap::new();
    for (place, host) in frozen.hosts.keys().enumerate() {
        let variables = squash(&spec.variables, &spec.nodeset, host);
        let names: Vec<String> =
            variables.into_iter().filter(|(_, value)| has_template(value)).map(|(name, _)| name).collect();
        if !names.is_empty() {
            questions.insert(host.clone(), (names, format!("{place}.json")));
        }
    }
    questions
}

/// Whether a template may name facts. They are gathered for it then, as Zuul does always.
fn wants_facts(spec: &BuildSpec, mut hosts: impl Iterator<Item = impl AsRef<str>>) -> bool {
    let names_facts = |text: &str| text.contains("ansible_");
    hosts.any(|host| {
        let variables = squash(&spec.variables, &spec.nodeset, host.as_ref());
        variables.values().any(|value| has_template(value) && holds(value, &names_facts))
    })
}

/// The play that freezes.
fn play(spec: &BuildSpec, facts: bool, names: &str, into: &str) -> Yaml {
    let truth = |truth: bool| Yaml::Value(Value::Bool(truth));
    let hosts = if spec.nodeset.nodes.is_empty() { &["localhost"][..] } else { &["all", "localhost"] };
    let play = |hosts: &&str| {
        let arguments = vec![("names".into(), Yaml::text(names)), ("into".into(), Yaml::text(into))];
        let task = vec![
            ("name".into(), Yaml::text("Write down what they come to")),
            ("gatelog_freeze".into(), Yaml::Map(arguments)),
        ];
        Yaml::Map(vec![
            ("name".into(), Yaml::text("Freeze variables")),
            ("hosts".into(), Yaml::text(*hosts)),
            ("gather_facts".into(), truth(facts)),
            ("tasks".into(), Yaml::List(vec![Yaml::Map(task)])),
        ])
    };
    Yaml::List(hosts.iter().map(play).collect())
}

impl Build {
    /// Whether a playbook gets frozen variables. Zuul: one that is trusted, and any that holds secrets.
    pub(crate) fn is_guarded(&self, playbook: &PlaybookInPlace) -> bool {
        playbook.spec.trusted || self.has_secrets(playbook)
    }

    /// Freezes the variables, if any playbook needs that. Only templates cost the time of a run of Ansible.
    pub(crate) async fn freeze(&self, zuul: &Yaml, playbooks: &[PlaybookInPlace]) -> Result<Frozen, Box<Stopped>> {
        if !playbooks.iter().any(|playbook| self.is_guarded(playbook)) {
            return Ok(Frozen::default());
        }
        let mut frozen = Frozen::plain(&self.spec);
        let questions = questions(&self.spec, &frozen);
        if questions.is_empty() {
            return Ok(frozen);
        }
        self.console.say("Variables with templates are frozen, for playbooks that are trusted or hold secrets");
        let directory = self.job_dir.ansible().join("freeze");
        let into = self.job_dir.ansible_state().join("frozen");
        let playbook = self.prepare_freezing(zuul, &questions, &directory, &into)?;
        let results = ansible::results_file(&self.job_dir);
        let deadline = Instant::now() + self.executor.config.limits.setup;
        let inventory = directory.join("inventory.yaml");
        let ended = Box::pin(self.start(&playbook, &inventory, None, None, deadline)).await;
        let empty = ended.as_ref().is_ok_and(|ended| ended.empty);
        let left = if empty { 0 } else { kill_marked(self.job_dir.root(), crate::play::HUNT).await };
        if left > 0 {
            let why = format!("{left} processes that templates of variables had started could not be killed");
            return Err(Box::new((BuildResult::Retry(RetryCause::SetupFailed), why)));
        }
        let tidied = self.job_dir.tidy(false);
        tidied.map_err(ExecutorError::io("tidy", self.job_dir.root()))?;
        let limits = &self.executor.config.limits;
        let document = PlaybookJson::read(&results, limits.json_bytes, &self.mask).unwrap_or_default();
        stop_if_it_failed(ended?, &document)?;
        for (host, (names, file)) in questions {
            let values = read_frozen(&into.join(file), limits.json_bytes, limits.returned_values);
            let values = values.map_err(|reason| {
                let why = format!("the frozen variables of {host} cannot be read: {reason}");
                Box::new((BuildResult::Retry(RetryCause::SetupFailed), why))
            })?;
            let known = frozen.hosts.entry(host).or_default();
            known.extend(values.into_iter().filter(|(name, _)| names.contains(name)));
        }
        remove_tree(&into).map_err(ExecutorError::io("remove", &into))?;
        Ok(frozen)
    }

    /// Puts the play that freezes in its place, as an untrusted playbook without secrets.
    fn prepare_freezing(
        &self,
        zuul: &Yaml,
        questions: &BTreeMap<String, (Vec<String>, String)>,
        directory: &std::path::Path,
        into: &std::path::Path,
    ) -> Result<PlaybookInPlace, ExecutorError> {
        make_dir(directory)?;
        make_dir(into)?;
        let names = directory.join("names.json");
        let asked: serde_json::Map<String, serde_json::Value> = questions
            .iter()
            .map(|(host, (names, file))| (host.clone(), json!({ "names": names, "file": file })))
            .collect();
        write(&names, serde_json::Value::Object(asked).to_string().as_bytes())?;
        let facts = wants_facts(&self.spec, questions.keys());
        let play = play(&self.spec, facts, &names.to_string_lossy(), &into.to_string_lossy());
        self.prepare_own(zuul, directory, "freeze.yaml", &play.document())
    }

    /// Puts a playbook of gatelog's own in its place, as an untrusted one without secrets.
    pub(crate) fn prepare_own(
        &self,
        zuul: &Yaml,
        directory: &std::path::Path,
        name: &str,
        text: &str,
    ) -> Result<PlaybookInPlace, ExecutorError> {
        make_dir(directory)?;
        let spec = PlaybookSpec {
            phase: Phase::Pre,
            checkout: Checkout::default(),
            path: name.to_owned(),
            trusted: false,
            nesting_level: 0,
            secrets: SecretVars::default(),
            tokens: Default::default(),
            roles: Vec::new(),
            cleanup: false,
        };
        let file = directory.join(name);
        write(&file, text.as_bytes())?;
        let inventory = directory.join("inventory.yaml");
        write(&inventory, self.inventory(zuul, &BTreeSet::new(), None).document().as_bytes())?;
        let (repository, directory) = (directory.to_owned(), directory.to_owned());
        let playbook = PlaybookInPlace { spec, repository, file, directory, index: 0, roles: Vec::new() };
        let (plugins, sandboxed) = (&self.executor.plugins, self.executor.bwrap.is_some());
        let configuration = ansible::configuration(plugins, &self.job_dir, &inventory, &playbook, sandboxed);
        write(&playbook.directory.join("ansible.cfg"), configuration.as_bytes())?;
        Ok(playbook)
    }

    /// Forgets kept facts that would hide what a guarded playbook is given.
    pub(crate) fn forget_facts(&self, playbook: &PlaybookInPlace, frozen: &Frozen) -> std::io::Result<()> {
        let mut names: BTreeSet<&str> = frozen.hosts.values().flatten().map(|(name, _)| name.as_str()).collect();
        let secrets = self.secrets(playbook);
        names.extend(secrets.keys().chain(playbook.spec.tokens.keys()).map(String::as_str));
        names.extend(["nodepool", "unsafe_vars", "zuul", "zuul_node", "zuul_user_dir"]);
        self.job_dir.forget_facts(&names, self.executor.config.limits.returned_values)
    }
}

impl JobDir {
    /// Takes these names out of the facts that Ansible keeps between playbooks. What cannot be read is removed: Ansible
    /// gathers it again. No process of the job may run.
    fn forget_facts(&self, names: &BTreeSet<&str>, most_values: usize) -> std::io::Result<()> {
        let folder = self.ansible_state().join("fact-cache");
        for (count, entry) in fs::read_dir(&folder)?.enumerate() {
            let place = entry?.path();
            let kept = read_limited(&place, LONGEST_FACTS).ok().filter(|text| {
                let Shape { depth, values } = Shape::of(text);
                count < MOST_FACT_FILES && depth <= DEEPEST && values <= most_values.max(100_000)
            });
            let facts: Option<serde_json::Map<String, serde_json::Value>> =
                kept.and_then(|text| serde_json::from_slice(&text).ok());
            let Some(mut facts) = facts else {
                crate::jobdir::clear(&place)?;
                continue;
            };
            let before = facts.len();
            facts.retain(|name, _| !names.contains(name.as_str()));
            if facts.len() < before {
                write(&place, serde_json::Value::Object(facts).to_string().as_bytes())
                    .map_err(|error| std::io::Error::other(error.to_string()))?;
            }
        }
        Ok(())
    }
}

/// What a host's variables came to.
fn read_frozen(place: &std::path::Path, most_bytes: u64, most_values: usize) -> Result<HostVars, String> {
    let text = match read_limited(place, most_bytes) {
        Ok(text) => text,
        // The play had no task for this host: nothing of it could be had.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(HostVars::new()),
        Err(error) => return Err(error.to_string()),
    };
    let Shape { depth, values } = Shape::of(&text);
    if depth > DEEPEST || values > most_values {
        return Err(format!("they are nested more than {DEEPEST} deep, or are more than {most_values} values"));
    }
    let values: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&text).map_err(|_| "they are no JSON document".to_owned())?;
    Ok(values.into_iter().map(|(name, value)| (name, Value::from_json(&value))).collect())
}

/// What it means for the build that the freezing did not end well.
fn stop_if_it_failed(ended: Ended, document: &PlaybookJson) -> Result<(), Box<Stopped>> {
    let name = "the freezing of variables";
    let result = match ended.ending {
        PlaybookEnding::Ok | PlaybookEnding::Failed(_) if !document.unreachable.is_empty() => {
            let why = format!("cannot reach {}", document.unreachable.join(", "));
            return Err(Box::new((BuildResult::Retry(RetryCause::Unreachable), why)));
        }
        PlaybookEnding::Ok => return Ok(()),
        ending => ending.result().unwrap_or(BuildResult::Retry(RetryCause::SetupFailed)),
    };
    let why = match (ended.breach, ended.ending) {
        (Some(breach), _) => breach.text(name),
        (None, PlaybookEnding::TimedOut) => format!("{name} took too long: mend the templates in the job's variables"),
        (None, PlaybookEnding::Aborted) => format!("stopped during {name}"),
        (None, _) => match ended.said {
            Some(said) => format!("{name} failed: {said}"),
            None => format!("{name} failed: see the console"),
        },
    };
    Err(Box::new((result, why)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data::spec;

    #[test]
    fn only_templates_are_asked_for_and_of_each_host_its_own() {
        let spec = spec();
        let frozen = Frozen::plain(&spec);
        let names: Vec<(String, Vec<String>)> =
            questions(&spec, &frozen).into_iter().map(|(host, (names, _))| (host, names)).collect();
        // `far` is in a group whose value of `a` is no template.
        assert_eq!(names, [("localhost".into(), vec!["a".into()]), ("near".into(), vec!["a".to_owned()])]);
        assert_eq!(frozen.of("far").keys().collect::<Vec<_>>(), ["a", "secret"]);
        assert_eq!(frozen.of("near").keys().collect::<Vec<_>>(), ["secret"], "a template is not what it comes to");
        assert!(!wants_facts(&spec, ["near"].iter()));
        let mut asking = spec;
        asking.variables.vars.insert("os".into(), Value::from("{{ ansible_distribution }}"));
        assert!(wants_facts(&asking, ["near"].iter()));
    }

    #[test]
    fn a_template_is_found_however_deep() {
        let value = |json: serde_json::Value| Value::from_json(&json);
        for yes in [json!("{{ a }}"), json!(["x", {"k": "{% if a %}"}]), json!({"{{ k }}": 1}), json!("{# no #}")] {
            assert!(has_template(&value(yes.clone())), "{yes}");
        }
        for no in [json!("{ a }"), json!([1, null, true, 0.5]), json!({"k": ["}}"]})] {
            assert!(!has_template(&value(no.clone())), "{no}");
        }
    }

    #[test]
    fn kept_facts_of_these_names_are_forgotten_and_what_is_none_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let job_dir = JobDir::at(folder.path(), spec().build, 1);
        let facts = job_dir.ansible_state().join("fact-cache");
        make_dir(&facts).unwrap();
        fs::write(facts.join("near"), r#"{"who": "attacker", "ansible_distribution": "Debian"}"#).unwrap();
        fs::write(facts.join("far"), "[".repeat(500)).unwrap();
        fs::create_dir(facts.join("folder")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", facts.join("link")).unwrap();
        job_dir.forget_facts(&BTreeSet::from(["who"]), 1000).unwrap();
        let left: Vec<String> =
            fs::read_dir(&facts).unwrap().map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(left, ["near"]);
        assert_eq!(fs::read_to_string(facts.join("near")).unwrap(), r#"{"ansible_distribution":"Debian"}"#);
    }
}
