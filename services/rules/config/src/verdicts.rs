//! What those who have the keys say of a layout's secrets, and what that means for the jobs that use them.
//!
//! Whether a secret deciphers cannot be known here: it is asked of the keys when a layout is made, and enters the log as
//! a [`SecretVerdict`]. Everything around that answer is a pure function of layout, verdicts and files.

use std::collections::{BTreeMap, BTreeSet};

use gatelog_record::draft::gate::SecretVerdict;

use crate::layout::Layout;
use crate::load::ConfigFile;
use crate::objects::job_parts::SecretUse;
use crate::objects::{JobAttribute, JobDefinition};
use crate::problem::{Problem, UNKNOWN, snippet};

/// A verdict's code: it does not decipher with its project's key.
pub const UNDECIPHERABLE: &str = "secret-undecipherable";
/// A verdict's code: that key cannot be read.
pub const KEY_UNREADABLE: &str = "secret-key-unreadable";
/// A verdict's code: nobody tried, for there is too much to decipher.
pub const TOO_MANY: &str = "secrets-too-many";

/// The most encrypted chunks in all secrets of one project that its jobs use. Each takes a processor some milliseconds,
/// for every change that brings other ones.
pub const MAX_CHUNKS: usize = 1_024;

/// The uses of secrets by definitions of jobs. Zuul: those without playbooks are not looked at; here those that pass
/// a secret to their parents' playbooks are.
fn uses(layout: &Layout) -> impl Iterator<Item = (&JobDefinition, &SecretUse)> {
    let own = layout.jobs.values().flatten();
    let of_projects = layout.stanzas.values().flatten().flat_map(|stanza| stanza.in_order());
    let of_templates = layout.templates.values().flatten().flat_map(|template| template.in_order());
    let listed = of_projects.chain(of_templates).flat_map(|(_, pipeline)| &pipeline.jobs);
    own.chain(listed).map(|definition| &**definition).flat_map(|definition| {
        let runs = definition.has_playbooks();
        definition.secrets().iter().filter(move |used| runs || used.pass_to_parent).map(move |used| (definition, used))
    })
}

/// The names of the secrets on which there is to be a verdict: those that a job gives to a playbook.
pub fn asked(layout: &Layout) -> BTreeSet<&str> {
    uses(layout).map(|(_, used)| used.secret.as_str()).collect()
}

/// The secrets of which nobody is to decipher anything: in the order of their names, those with which their project
/// would have more than [`MAX_CHUNKS`].
pub fn too_many<'l>(layout: &'l Layout, asked: &BTreeSet<&'l str>) -> BTreeSet<&'l str> {
    let mut chunks: BTreeMap<&str, usize> = BTreeMap::new();
    let mut refused = BTreeSet::new();
    for name in asked {
        let Some(secret) = layout.secrets.get(*name) else { continue };
        let so_far = chunks.entry(&secret.place.context.project).or_default();
        let with = so_far.saturating_add(secret.source.chunks());
        if with > MAX_CHUNKS {
            refused.insert(*name);
        } else {
            *so_far = with;
        }
    }
    refused
}

/// What the verdicts mean for the jobs that use these secrets. Zuul: an error of each such job, which stays in the
/// layout.
pub fn problems(layout: &Layout, verdicts: &[SecretVerdict], files: &[ConfigFile]) -> Vec<Problem> {
    let by_name: BTreeMap<&str, &SecretVerdict> =
        verdicts.iter().map(|verdict| (verdict.secret.as_str(), verdict)).collect();
    let mut found = Vec::new();
    if by_name.is_empty() {
        return found;
    }
    for (definition, used) in uses(layout) {
        let Some(verdict) = by_name.get(used.secret.as_str()) else { continue };
        // One of another project is refused for that.
        if verdict.project != definition.place.context.project {
            continue;
        }
        found.push(problem(layout, definition, verdict, files));
    }
    found
}

fn problem(layout: &Layout, definition: &JobDefinition, verdict: &SecretVerdict, files: &[ConfigFile]) -> Problem {
    let SecretVerdict { secret, project, code } = verdict;
    let job = &definition.name;
    // No line: what makes an error the same may not move with what is written above it.
    let defined = layout.secrets.get(secret).map_or_else(String::new, |secret| {
        let context = &secret.place.context;
        format!(", defined in {} on branch {},", context.path, context.branch)
    });
    let again = match project.is_empty() {
        true => "what lies in no repository has no key: define it in the project of the job that uses it".to_owned(),
        false => format!("encrypt it again for {project}, as `gatelog encrypt` does, and take all of the output"),
    };
    let (message, cure) = match code.as_str() {
        KEY_UNREADABLE => (
            format!(
                "the secret \"{secret}\" of job \"{job}\"{defined} cannot be had: the key of {project} cannot be read"
            ),
            "nothing here can mend it: those who operate this site find the reason in the server's log".to_owned(),
        ),
        TOO_MANY => (
            format!(
                "the secret \"{secret}\" of job \"{job}\"{defined} is too much: secrets that jobs of {project} use may have \
                 at most {MAX_CHUNKS} encrypted chunks together"
            ),
            "encrypt less: one value rather than several, or a key to what is kept elsewhere".to_owned(),
        ),
        // The same words for every reason: more would help to guess.
        _ => (
            format!(
                "the secret \"{secret}\" of job \"{job}\"{defined} does not decipher: it was not encrypted for this \
                 project, or is damaged"
            ),
            again,
        ),
    };
    let place = definition.place_of(JobAttribute::Secrets);
    let context = place.context.clone();
    let text = files
        .iter()
        .find(|file| file.project == context.project && file.branch == context.branch && file.path == context.path);
    let (line, column) = (place.line, place.column);
    let mut problem = Problem::error(code, UNKNOWN, place, message).about("secrets").cure(cure);
    problem.stanza_line = definition.stanza_line;
    problem.snippet = text.map(|file| snippet(&file.text, line, column)).unwrap_or_default();
    problem
}
