//! From files to a layout: parse each file by itself, then put the objects together.
//!
//! [`parse_file`] is a function of one file's text and context alone, so that a cache by content can
//! stand before it; [`assemble`](fn@crate::assemble) takes what it made.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::assemble::assemble_with;
use crate::cache::{ParseCache, Patterns};
use crate::dialect::{self, Spelling};
use crate::files::{IGNORE, select_config_files};
use crate::findings::{self, Finding, Findings};
use crate::layout::Layout;
use crate::objects::{self, CLASSES, JobDefinition, Object, Pragma};
use crate::place::{Place, SourceContext};
use crate::problem::{MULTIPLE_CONFIGURATIONS, Problem, Severity, UNKNOWN, did_you_mean, snippet};
use crate::schema::{MOST_SNIPPETS, Sink};
use crate::shared::Shared;
use crate::tenant::{IncludedFile, PROVIDER_CLASSES, TenantSettings};
use crate::yaml::{self, Entry, Mark};

/// One configuration file of a project's branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// Canonical name of the project.
    pub project: String,
    /// The branch.
    pub branch: String,
    /// Path in the repository.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// Everything a layout is made from.
#[derive(Clone, Debug, Default)]
pub struct LoadInput {
    /// The tenant.
    pub tenant: TenantSettings,
    /// Files that may be configuration, in any order; those that are none are passed over. A
    /// `.zuul.ignore` file is given like any other.
    pub files: Vec<ConfigFile>,
}

/// One object of a file, or what is wrong with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParsedStanza {
    /// What kind of object it is meant to be.
    pub class: String,
    /// The object; none when it has an error, and for a pragma.
    pub object: Option<Object>,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
}

/// What one file holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParsedFile {
    /// The file.
    pub context: Shared<SourceContext>,
    /// Its objects, in order.
    pub stanzas: Vec<ParsedStanza>,
    /// What is wrong with the file as a whole.
    pub problems: Vec<Problem>,
}

/// Loads a tenant: chooses the files, orders them as Zuul does, parses and assembles.
pub fn load(input: &LoadInput) -> (Layout, Vec<Problem>) {
    let (layout, findings) = load_findings(input);
    (layout, findings::problems(findings))
}

/// The same, with files parsed before.
pub fn load_cached(input: &LoadInput, cache: &mut ParseCache) -> (Layout, Vec<Problem>) {
    let (layout, findings) = load_all(input, cache);
    (layout, findings::problems(findings))
}

/// The same with every finding, repeated as often as it was met.
pub fn load_findings(input: &LoadInput) -> (Layout, Vec<Finding>) {
    load_all(input, &mut ParseCache::default())
}

fn load_all(input: &LoadInput, cache: &mut ParseCache) -> (Layout, Vec<Finding>) {
    // By project, branch and path.
    let mut texts: BTreeMap<&str, BTreeMap<&str, BTreeMap<&str, &str>>> = BTreeMap::new();
    for file in &input.files {
        let of_project = texts.entry(&file.project).or_default();
        of_project.entry(&file.branch).or_default().insert(&file.path, &file.text);
    }
    for file in &input.tenant.included {
        let of_nobody = texts.entry("").or_default();
        of_nobody.entry("").or_default().insert(&file.path, file.text.as_deref().unwrap_or_default());
    }
    let mut parsed = Vec::new();
    let mut findings = Findings::default();
    for file in &input.tenant.included {
        findings.begin();
        parsed.extend(included(file, input.tenant.spelling(), cache, &mut findings));
    }
    for project in &input.tenant.projects {
        if project.include.is_empty() {
            continue;
        }
        let Some(by_branch) = texts.get(project.canonical_name.as_str()) else { continue };
        let config = project.config_branches();
        // Zuul: a config project is loaded from one branch, but the files of the others are read.
        let others = project.branches.iter().map(String::as_str).filter(|branch| !config.contains(branch));
        for branch in config.iter().copied().chain(others.filter(|_| project.trusted)) {
            let Some(files) = by_branch.get(branch) else { continue };
            // Zuul: a file without a byte is not there, and does not keep the next place from counting.
            let filled = files.iter().filter(|(path, text)| !text.is_empty() || path.ends_with(IGNORE));
            let selection = select_config_files(filled.map(|(path, _)| *path), &project.extra_config_paths);
            let context = |path: &str| SourceContext {
                project: project.canonical_name.clone(),
                branch: branch.to_owned(),
                path: path.to_owned(),
                trusted: project.trusted,
            };
            for root in selection.ignored_roots {
                let place = Place { context: Shared::new(context(root)), line: 0, column: 0 };
                let message =
                    format!("the configuration in {root} is not read, because {} is there", first(&selection.files));
                let label = "Multiple Project Configurations";
                let problem = Problem::new(Severity::Warning, MULTIPLE_CONFIGURATIONS, label, place, message);
                findings.begin();
                findings.push_of_file(problem.cure("keep one of zuul.yaml, zuul.d/, .zuul.yaml and .zuul.d/"));
            }
            for path in &selection.files {
                let text = files.get(path.as_str()).copied().unwrap_or("");
                let file = cache.parse(context(path), text, input.tenant.spelling());
                findings.begin();
                for problem in &file.problems {
                    findings.push_of_file(problem.clone());
                }
                if config.contains(&branch) {
                    parsed.push(file);
                }
            }
        }
    }
    let mut known = findings.into_vec();
    let parsed: Vec<&ParsedFile> = parsed.iter().map(|file: &Shared<ParsedFile>| &**file).collect();
    let (layout, mut found) = assemble_with(&input.tenant, &parsed, cache.patterns());
    let last = known.last().map_or(0, |finding| finding.attempt);
    let mut shown = BTreeMap::new();
    for finding in &mut found {
        finding.attempt = finding.attempt.saturating_add(last);
        let problem = &mut finding.problem;
        if !problem.snippet.is_empty() {
            continue;
        }
        let context = &problem.place.context;
        let of_project = texts.get(context.project.as_str());
        let of_branch = of_project.and_then(|by_branch| by_branch.get(context.branch.as_str()));
        let text = of_branch.and_then(|files| files.get(context.path.as_str()));
        if let Some(text) = text {
            // Finding a line means reading up to it: a file that is wrong all over is not read over and over.
            let shown = shown.entry(context.clone()).or_insert(0_usize);
            *shown += 1;
            if *shown <= MOST_SNIPPETS {
                problem.snippet = snippet(text, problem.place.line, problem.place.column);
            }
        }
    }
    known.extend(found);
    (layout, known)
}

/// A file beside the tenant file.
fn included(
    file: &IncludedFile,
    spelling: Spelling,
    cache: &mut ParseCache,
    findings: &mut Findings,
) -> Option<Shared<ParsedFile>> {
    let context = SourceContext { path: file.path.clone(), trusted: true, ..SourceContext::default() };
    let Some(text) = &file.text else {
        let message = format!("the file {} that the tenant includes is not there", file.path);
        let place = Place { context: Shared::new(context), line: 0, column: 0 };
        let problem = Problem::error("included-file-missing", UNKNOWN, place, message);
        findings.push_of_file(problem.cure("put it beside the tenant file, or remove it from `include`"));
        return None;
    };
    let parsed = cache.parse(context, text, spelling);
    for problem in &parsed.problems {
        findings.push_of_file(problem.clone());
    }
    Some(parsed)
}

fn first(files: &[String]) -> &str {
    files.first().map_or("", |path| path.split_once('/').map_or(path.as_str(), |(root, _)| root))
}

/// Parses one file: a function of its text and its context alone.
///
/// Zuul: a file that is no YAML, or has a repeated key, counts for nothing; after an item that is no
/// object the rest of the file is not looked at.
pub fn parse_file(context: SourceContext, text: &str, spelling: Spelling) -> ParsedFile {
    parse_part(context, text, text, spelling, &mut Patterns::default()).0
}

/// The same of a part of a text, with empty lines in place of what stands before it, and with patterns that were met
/// before. Says, too, whether the part has anchors, and how many nodes it has.
pub(crate) fn parse_part(
    context: SourceContext,
    text: &str,
    part: &str,
    spelling: Spelling,
    known: &mut Patterns,
) -> (ParsedFile, bool, usize) {
    let patterns = std::mem::take(known);
    let mut sink = Sink { context: Shared::new(context), text, spelling, problems: Vec::new(), patterns };
    let (mut stanzas, mut anchors, mut nodes) = (Vec::new(), false, 0);
    match yaml::parse_as(part, spelling) {
        Ok(parsed) => {
            (anchors, nodes) = (parsed.anchors, parsed.nodes);
            dialect::of_text(&mut sink, &parsed);
            if let Some(root) = parsed.root {
                read_items(&mut sink, &root, spelling, &mut stanzas);
            }
        }
        Err(errors) => {
            for error in errors {
                sink.error(error.code(), yaml_label(error.code()), error.mark(), error.to_string(), error.cure());
                if let Some(problem) = sink.problems.last_mut() {
                    problem.stanza_line = error.stanza_line();
                }
            }
        }
    }
    *known = sink.patterns;
    (ParsedFile { context: sink.context, stanzas, problems: sink.problems }, anchors, nodes)
}

fn yaml_label(code: &str) -> &'static str {
    if code == "yaml-duplicate-key" { "Unknown Configuration Error" } else { UNKNOWN }
}

fn read_items(sink: &mut Sink<'_>, root: &yaml::Node, spelling: Spelling, stanzas: &mut Vec<ParsedStanza>) {
    if root.is_null() {
        return;
    }
    let Some(items) = root.as_sequence() else {
        let message = format!("a configuration file must be a list of objects, not {}", root.kind_name());
        let cure = "begin each object with a dash, as in `- job:`";
        sink.error_of_file("not-a-list", root.start, message, cure);
        return;
    };
    let mut modern = |item| match spelling {
        Spelling::Older => dialect::item(sink, item).map_or(Cow::Borrowed(item), Cow::Owned),
        Spelling::Zuul => Cow::Borrowed(item),
    };
    let items: Vec<Cow<'_, yaml::Node>> = items.iter().map(&mut modern).collect();
    let mut objects: Vec<&Entry> = Vec::new();
    let mut broken = false;
    for item in &items {
        match object_of(sink, item) {
            Some(entry) if !broken => objects.push(entry),
            Some(_) => {}
            None => broken = true,
        }
    }
    // Pragmas hold for the whole file, wherever they stand.
    let mut pragma = Pragma::default();
    for entry in objects.iter().filter(|entry| entry.key == "pragma") {
        let problems = std::mem::take(&mut sink.problems);
        objects::pragma::read(sink, &entry.value, entry.mark, &mut pragma);
        let problems = in_stanza(std::mem::replace(&mut sink.problems, problems), entry.mark);
        stanzas.push(ParsedStanza { class: entry.key.clone(), object: None, problems });
    }
    for entry in objects.iter().filter(|entry| entry.key != "pragma") {
        let problems = std::mem::take(&mut sink.problems);
        let modern = match spelling {
            Spelling::Older => dialect::modernise(sink, &entry.key, &entry.value),
            Spelling::Zuul => None,
        };
        let object = read_object(sink, entry, modern.as_ref().unwrap_or(&entry.value), &pragma);
        let problems = in_stanza(std::mem::replace(&mut sink.problems, problems), entry.mark);
        stanzas.push(ParsedStanza { class: entry.key.clone(), object, problems });
    }
}

fn in_stanza(mut problems: Vec<Problem>, mark: Mark) -> Vec<Problem> {
    for problem in &mut problems {
        problem.stanza_line = mark.line;
    }
    problems
}

/// The one key of an item, if it is an object of a known kind.
fn object_of<'a>(sink: &mut Sink<'_>, item: &'a yaml::Node) -> Option<&'a Entry> {
    let Some(entries) = item.as_mapping().filter(|_| item.tag.is_none()) else {
        let message = format!("an object of a configuration file must be a dictionary, not {}", item.kind_name());
        let cure = "write the kind of object and a colon, as in `- job:`; the rest of the file is not read until then";
        sink.error_of_file("not-a-dictionary", item.start, message, cure);
        return None;
    };
    let [entry] = entries else {
        let keys: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
        let message = format!("an object must have exactly one key, and this has: {}", keys.join(", "));
        let cure = "indent the attributes one step further than the kind of object; the rest of the file is not read \
                    until then";
        sink.error_of_file("multiple-keys", item.start, message, cure);
        return None;
    };
    if entry.value.as_mapping().is_none() || entry.value.tag.is_some() {
        let message = format!("a {} must be a dictionary of attributes, not {}", entry.key, entry.value.kind_name());
        let cure = format!("indent the attributes below `{}:`; the rest of the file is not read until then", entry.key);
        sink.error_of_file("not-a-dictionary", entry.value.start, message, cure);
        return None;
    }
    if !CLASSES.contains(&entry.key.as_str()) {
        unknown_class(sink, &entry.key, entry.mark);
        return None;
    }
    Some(entry)
}

fn read_object(sink: &mut Sink<'_>, entry: &Entry, node: &yaml::Node, pragma: &Pragma) -> Option<Object> {
    let mark = entry.mark;
    match entry.key.as_str() {
        "pipeline" => objects::pipeline::read(sink, node, mark).map(|o| Object::Pipeline(Shared::new(o))),
        "job" => {
            let older = sink.spelling == Spelling::Older && dialect::is_old_job(&entry.value);
            let job = objects::job::read(sink, node, mark, pragma);
            job.map(|job| Object::Job(Shared::new(JobDefinition { older, ..job })))
        }
        "nodeset" => objects::nodeset::read(sink, node, mark, false).map(|o| Object::Nodeset(Shared::new(o))),
        "secret" => objects::secret::read(sink, node, mark).map(|o| Object::Secret(Shared::new(o))),
        "project" => objects::project::read(sink, node, mark, pragma).map(|o| Object::Project(Shared::new(o))),
        "project-template" => {
            objects::template::read(sink, node, mark, pragma).map(|o| Object::Template(Shared::new(o)))
        }
        "semaphore" => objects::semaphore::read(sink, node, mark).map(|o| Object::Semaphore(Shared::new(o))),
        "queue" => objects::queue::read(sink, node, mark).map(|o| Object::Queue(Shared::new(o))),
        other => {
            let class = PROVIDER_CLASSES.iter().find(|class| **class == other)?;
            objects::named::read(sink, class, node, mark).map(|o| Object::Named(Shared::new(o)))
        }
    }
}

fn unknown_class(sink: &mut Sink<'_>, class: &str, mark: Mark) {
    let message = format!("`{class}` is no kind of object");
    let cure = match did_you_mean(class, CLASSES.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known are: {}", CLASSES.join(", ")),
    };
    sink.error_of_file("unknown-object", mark, message, cure);
}
