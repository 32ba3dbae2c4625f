//! `gatelog audit checkpoint|export|verify`: proof of what is on the log, for those who do not have it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use gatelog_audit::checkpoint::LONGEST;
use gatelog_audit::verify::LONGEST_LINE;
use gatelog_audit::{
    Bound, ExportError, Found, KeyId, Section, Selection, SignedCheckpoint, Signing, Verified, Verifier, Wrong, export,
};
use gatelog_effects::connection::chain;
use gatelog_event_log::{HistoryReader, Log, Offset, ReadLimit, Step};
use gatelog_record::draft::gate::AccessTold;
use gatelog_record::event::GateEvent;
use gatelog_record::{ActorId, Domain, Event, Partition, Stream};
use gatelog_secrets::{Keyring, Rs256, SigningKey};
use serde_json::{Value as Json, json};

use super::failure::{Code, Failure};
use super::output::{Output, Reader};
use super::site::Site;
use crate::audit::notary::{self, Notary, NotaryError};
use crate::audit::publisher::{Directory, PublishError, Publisher};
use crate::audit::{check, public, told};
use crate::cli::audit::{CheckpointArgs, ExportArgs, VerifyExportArgs};
use crate::cli::{At, SiteArgs};
use crate::show;

/// So many checkpoints are read from one file.
const MOST_CHECKPOINTS: usize = 10_000;

impl From<ExportError> for Failure {
    fn from(error: ExportError) -> Failure {
        match error {
            ExportError::Log(error) => error.into(),
            ExportError::History(error) => error.into(),
            ExportError::Contradicted { .. } | ExportError::Cut { .. } => {
                Failure::new(Code::Integrity, error.to_string())
            }
            ExportError::Name { .. } => Failure::new(Code::Usage, error.to_string()),
            error => Failure::new(Code::No, chain(&error)),
        }
    }
}

impl From<NotaryError> for Failure {
    fn from(error: NotaryError) -> Failure {
        match error {
            NotaryError::Export(error) => error.into(),
            NotaryError::Publish(PublishError::Changed { .. }) => Failure::new(Code::Integrity, chain(&error)),
            NotaryError::Publish(_) => Failure::new(Code::No, chain(&error)),
        }
    }
}

pub(super) fn file_failure(path: &Path, error: &std::io::Error) -> Failure {
    let code = if error.kind() == std::io::ErrorKind::NotFound { Code::NotFound } else { Code::No };
    Failure::new(code, format!("{}: {error}", path.display()))
}

fn key_of(keyring: &Keyring) -> Result<Arc<SigningKey>, Failure> {
    keyring.signing_key().map_err(|error| Failure::new(Code::No, chain(&error)))
}

pub(super) fn keyring(site: &Site) -> Result<Keyring, Failure> {
    Keyring::open_dir(site.keys()?).map_err(|error| Failure::new(Code::No, chain(&error)))
}

/// Only who has all of a log can sign for it.
fn not_of_a_slice(site: &Site) -> Result<(), Failure> {
    if site.slice()?.is_none() {
        return Ok(());
    }
    Err(Failure::new(
        Code::Usage,
        format!("{} holds a slice of a log, for which nobody can sign", site.dir().display()),
    )
    .hint("ask the site it is of"))
}

/// Where checkpoints of a site go, if anywhere.
fn outside(site: &Site) -> Result<Option<Directory>, Failure> {
    Ok(site.config()?.and_then(|config| config.audit.directory(site.dir())).map(Directory::new))
}

/// A place that only takes.
struct Nowhere;

impl Publisher for Nowhere {
    fn publish(&self, _: &str, _: &[u8]) -> Result<String, PublishError> {
        Ok(String::new())
    }

    fn list(&self, _: &str) -> Result<Vec<String>, PublishError> {
        Ok(Vec::new())
    }

    fn read(&self, _: &str) -> Result<Vec<u8>, PublishError> {
        Ok(Vec::new())
    }
}

/// `audit checkpoint`
pub fn checkpoint(site: &SiteArgs, args: &CheckpointArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("audit checkpoint")?;
    not_of_a_slice(&site)?;
    let (log, _) = site.history()?;
    let key = key_of(&keyring(&site)?)?;
    let outside = outside(&site)?;
    let published = outside.is_some();
    let publisher: Box<dyn Publisher> = match outside {
        Some(directory) => Box::new(directory),
        None => Box::new(Nowhere),
    };
    let made = Notary::new(log, key, publisher).look(crate::clock::now())?;
    let mut out = Output::new();
    if args.json {
        let documents: Vec<Json> = made
            .iter()
            .map(|made| {
                let checkpoint = &made.signed.checkpoint;
                json!({ "partition": checkpoint.partition.to_string(), "sequence": checkpoint.sequence(),
                    "link": checkpoint.link.to_string(), "key": checkpoint.key.to_string(),
                    "place": Some(&made.place).filter(|place| !place.is_empty()),
                    "text": String::from_utf8_lossy(&made.signed.encode()) })
            })
            .collect();
        let _ = out.json(&Json::Array(documents))?;
    } else if !published {
        for made in &made {
            let _ = out.line(String::from_utf8_lossy(&made.signed.encode()).trim_end())?;
        }
    } else {
        for made in &made {
            let checkpoint = &made.signed.checkpoint;
            let _ = out.line(&format!("{} event {}: {}", checkpoint.partition, checkpoint.sequence(), made.place))?;
        }
        if made.is_empty() {
            let _ = out.line("nothing has happened since the last checkpoint")?;
        }
    }
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a file of checkpoints, one after the other.
fn read_checkpoints(path: &Path) -> Result<Vec<SignedCheckpoint>, Failure> {
    let mut text = String::new();
    let most = (LONGEST * MOST_CHECKPOINTS.min(100)) as u64;
    let file = File::open(path).map_err(|error| file_failure(path, &error))?;
    let read = file.take(most).read_to_string(&mut text);
    let wrong = |what: String| {
        Failure::new(Code::Integrity, format!("{} holds no checkpoint of gatelog", path.display())).detail(what)
    };
    let _ = read.map_err(|error| wrong(error.to_string()))?;
    let mut found = Vec::new();
    let mut rest = text.as_str();
    while !rest.trim().is_empty() && found.len() < MOST_CHECKPOINTS {
        let end = rest.find("\nsignature ").and_then(|at| Some(at + 1 + rest.get(at + 1..)?.find('\n')? + 1));
        let (one, more) = rest.split_at(end.unwrap_or(rest.len()));
        found.push(SignedCheckpoint::decode(one.as_bytes()).map_err(|error| wrong(error.to_string()))?);
        rest = more;
    }
    if found.is_empty() { Err(wrong("it is empty".to_owned())) } else { Ok(found) }
}

pub(super) fn all_checkpoints(paths: &[PathBuf]) -> Result<Vec<SignedCheckpoint>, Failure> {
    let mut all = Vec::new();
    for path in paths {
        all.extend(read_checkpoints(path)?);
    }
    Ok(all)
}

fn bound(at: Option<At>) -> Bound {
    match at {
        None => Bound::Open,
        Some(At::Sequence(sequence)) => Bound::Sequence(sequence),
        Some(At::Time(time)) => Bound::Time(time),
    }
}

/// `audit export`
pub fn make_export(site: &SiteArgs, args: &ExportArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("audit export")?;
    not_of_a_slice(&site)?;
    let (log, _) = site.history()?;
    let keyring = keyring(&site)?;
    let key = key_of(&keyring)?;
    let project = args.project.as_deref().map(|name| canonical(&*log, name)).transpose()?;
    let actor = match &args.actor {
        None => None,
        Some(id) => Some(id.parse::<ActorId>().map_err(|error| Failure::new(Code::Usage, error.to_string()))?),
    };
    let selection =
        Selection { from: bound(args.from), to: bound(args.to), tenant: args.tenant.clone(), actor, project };
    let description = log.describe();
    let public = public(&key);
    let mut published = all_checkpoints(&args.checkpoint)?;
    if let Some(outside) = outside(&site)? {
        let identity = (description.site, description.generation);
        for partition in gatelog_audit::export::partitions(&*log)? {
            let mut strange = |what: String| tracing::warn!("{what}");
            let found = notary::published(&outside, identity, partition, &public, &mut strange);
            let found = found.map_err(|error| Failure::from(NotaryError::from(error)))?;
            published.extend(found.into_iter().map(|found| found.signed));
        }
    }
    published.retain(|signed| selection.concerns(signed.checkpoint.partition));
    published.dedup();
    let sign = |message: &[u8]| key.sign(message).map_err(|error| chain(&error));
    let id = public.id();
    let signing = Signing { site: description.site, generation: description.generation, key: public, sign: &sign };

    let output = NewFile::create(&args.output)?;
    let mut file = BufWriter::new(&output.file);
    let exported = export(&*log, &signing, &selection, &published, &mut |text| {
        file.write_all(text.as_bytes()).map_err(|error| error.to_string())
    })?;
    file.flush().map_err(|error| file_failure(&args.output, &error))?;
    drop(file);
    let digest: String = exported.digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let what = AccessTold {
        what: "audit-exported".to_owned(),
        subject: subject(&selection),
        detail: format!("from {} to {}, sha256 {digest}", selection.from, selection.to),
    };
    tell(&site, &keyring, selection.tenant.as_deref().unwrap_or_default(), what)?;
    output.keep()?;

    let mut out = Output::new();
    let _ = if args.json {
        let partitions: Vec<Json> = exported
            .partitions
            .iter()
            .map(|(partition, events, of)| json!({ "partition": partition.to_string(), "events": events, "of": of }))
            .collect();
        out.json(&json!({ "file": args.output.display().to_string(), "key": id.to_string(), "digest": digest,
                          "partitions": partitions, "checkpoints": published.len() }))?
    } else {
        let mut lines: Vec<String> = exported
            .partitions
            .iter()
            .map(|(partition, events, of)| format!("{partition}: {events} of {of} events"))
            .collect();
        lines.push(format!("signed with the key {id}, sha256 {digest}"));
        lines.push(format!("written to {}", args.output.display()));
        out.lines(&lines)?
    };
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// What was asked for, in words.
fn subject(selection: &Selection) -> String {
    let tenant = selection.tenant.as_ref().map(|tenant| format!("tenant {tenant}"));
    let project = selection.project.as_ref().map(|project| format!("project {project}"));
    let actor = selection.actor.map(|actor| format!("actor {actor}"));
    [tenant, project, actor].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Leaves a note of what left the site; without it nothing leaves.
pub(super) fn tell(site: &Site, keyring: &Keyring, tenant: &str, what: AccessTold) -> Result<(), Failure> {
    told::leave(&site.keys()?, keyring, tenant, what).map_err(|message| {
        Failure::new(Code::No, format!("what tells the log of it cannot be left: {message}"))
            .hint("nothing was handed out; see to it that the site's keys directory can be written")
    })
}

/// A file that is there once it is whole, and never in the place of another.
pub(super) struct NewFile {
    pub(super) file: File,
    part: PathBuf,
    path: PathBuf,
    kept: bool,
}

impl NewFile {
    pub(super) fn create(path: &Path) -> Result<NewFile, Failure> {
        if path.exists() {
            return Err(Failure::new(Code::No, format!("{} is there already", path.display()))
                .hint("name another file with --output, or take that one away"));
        }
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = File::create(&part).map_err(|error| file_failure(&part, &error))?;
        Ok(NewFile { file, part, path: path.to_owned(), kept: false })
    }

    pub(super) fn keep(mut self) -> Result<(), Failure> {
        let kept = self.file.sync_all().and_then(|()| std::fs::rename(&self.part, &self.path));
        self.kept = true;
        kept.map_err(|error| file_failure(&self.path, &error))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.kept {
            // What is only begun is of no use to anybody.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}

/// A project's canonical name, from what tenants were ever configured with.
fn canonical(log: &dyn Log, name: &str) -> Result<String, Failure> {
    let mut found = BTreeSet::new();
    let partition = Partition { domain: Domain::Gate, index: 0 };
    let mut reader = HistoryReader::from_the_beginning(log, partition);
    let mut from = Offset::default();
    loop {
        let batch = log.read(Stream::Events(partition), from, ReadLimit::default())?;
        if batch.records.is_empty() {
            break;
        }
        for record in &batch.records {
            if let Step::Event(event, _) = reader.next(record)?
                && let Event::Gate(GateEvent::TenantConfigured(configured)) = &event.event
            {
                let projects = configured.tenant.projects.iter().map(|project| &project.project);
                let short = |project: &str| project.split_once('/').is_some_and(|(_, short)| short == name);
                found.extend(projects.filter(|project| *project == name || short(project)).cloned());
            }
        }
        from = batch.next;
    }
    match (found.len(), found.pop_first()) {
        (1, Some(project)) => Ok(project),
        (0, _) | (_, None) => Err(Failure::new(Code::NotFound, format!("no tenant ever had a project {name:?}"))),
        (_, Some(first)) => {
            let all: Vec<String> = std::iter::once(first).chain(found).collect();
            Err(Failure::new(Code::Usage, format!("{name:?} could be several projects"))
                .hint(format!("name one of: {}", all.join(", "))))
        }
    }
}

/// `audit verify`
pub fn verify(args: &VerifyExportArgs) -> Result<ExitCode, Failure> {
    let key = args.key.as_deref().map(expected_key).transpose()?;
    let outside = all_checkpoints(&args.checkpoint)?;
    let mut file = File::open(&args.file).map_err(|error| file_failure(&args.file, &error))?;
    let mut verifier = Verifier::new(&check, key, outside);
    let wrong = |wrong: Wrong| failure(&args.file, &wrong);
    each_line(&args.file, &file, |line| verifier.feed(line).map(|_| true).map_err(wrong))?;
    let verified = verifier.finish().map_err(wrong)?;
    let mut out = Output::new();
    if args.events {
        // All of it was in order; now it may be believed.
        let _ = file.seek(SeekFrom::Start(0)).map_err(|error| file_failure(&args.file, &error))?;
        print_events(args, &file, &mut out)?;
    } else if args.json {
        let _ = out.json(&to_json(&verified, args))?;
    } else {
        let _ = out.lines(&render(&verified, args))?;
    }
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn failure(path: &Path, wrong: &Wrong) -> Failure {
    let place = match wrong.line {
        0 => String::new(),
        line => format!(" line {line}"),
    };
    let at = wrong.place.map(|place| format!("{place}: ")).unwrap_or_default();
    let detail = format!("{at}{}", wrong.fault);
    if wrong.fault.undecided() {
        return Failure::new(Code::No, format!("{}{place} cannot be held against the checkpoint", path.display()))
            .detail(detail);
    }
    Failure::new(Code::Integrity, format!("{}{place} is not what a gatelog site signed", path.display())).detail(detail)
}

/// The key that is expected: a PEM file, or an id.
fn expected_key(text: &str) -> Result<KeyId, Failure> {
    let path = Path::new(text);
    if !path.exists() {
        return text.parse::<ActorId>().map(|id| KeyId(id.0)).map_err(|_| {
            Failure::new(Code::Usage, format!("{text:?} is neither a file nor the id of a key"))
                .hint("the id is what `audit export` prints; the site's key lies beside its checkpoints as KEY.pem")
        });
    }
    let mut pem = String::new();
    let read = File::open(path).and_then(|file| file.take(64 << 10).read_to_string(&mut pem));
    let _ = read.map_err(|error| file_failure(path, &error))?;
    let key = Rs256::from_pem(&pem).map_err(|error| Failure::new(Code::Usage, error.to_string()))?;
    let der = key.to_der().ok_or_else(|| Failure::new(Code::Usage, "this key cannot be used"))?;
    Ok(gatelog_audit::PublicKey(der).id())
}

/// Gives every line with its line end, until told to stop. One that is longer than any comes in parts.
fn each_line(path: &Path, file: &File, mut each: impl FnMut(&[u8]) -> Result<bool, Failure>) -> Result<(), Failure> {
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(LONGEST_LINE + 1).read_until(b'\n', &mut line);
        if read.map_err(|error| file_failure(path, &error))? == 0 || !each(&line)? {
            return Ok(());
        }
    }
}

fn print_events(args: &VerifyExportArgs, file: &File, out: &mut Output) -> Result<(), Failure> {
    let mut verifier = Verifier::new(&check, None, Vec::new());
    let mut partition = None;
    each_line(&args.file, file, |line| {
        match verifier.feed(line).map_err(|wrong| failure(&args.file, &wrong))? {
            Found::Partition(found) => partition = Some(found),
            Found::Event(envelope) => {
                let sequence = envelope.sequence;
                let opened = envelope.open().map_err(|error| {
                    Failure::new(Code::No, format!("event {sequence} is of a kind this gatelog does not know"))
                        .detail(error.to_string())
                        .hint("it is on the log as signed; read it with a newer gatelog")
                })?;
                let mut json = json!({ "partition": partition.map(|partition| partition.to_string()) });
                if let (Json::Object(all), Json::Object(of_record)) = (&mut json, opened.to_json()) {
                    all.extend(of_record);
                }
                return Ok(out.line(&show::json(&json, false))? == Reader::There);
            }
            Found::Proof => {}
        }
        Ok(true)
    })
}

/// Whether the export shows that nothing of what was asked for is missing.
fn complete(verified: &Verified) -> bool {
    verified.selection.shows_all()
}

fn to_json(verified: &Verified, args: &VerifyExportArgs) -> Json {
    let section = |section: &Section| {
        json!({ "partition": section.partition.to_string(), "events": section.events, "in_range": section.in_range,
                "of": section.of, "link": section.link.to_string(), "checkpoints": section.checkpoints,
                "signed_at": section.time.to_string() })
    };
    let selection = &verified.selection;
    json!({ "ok": true, "site": verified.site.to_string(), "generation": verified.generation,
        "key": verified.key.id().to_string(), "key_expected": args.key.is_some(),
        "from": selection.from.to_string(), "to": selection.to.to_string(), "tenant": selection.tenant,
        "project": selection.project, "actor": selection.actor.map(|actor| actor.to_string()),
        "complete": complete(verified), "outside_checkpoints": verified.outside,
        "partitions": verified.sections.iter().map(section).collect::<Vec<_>>() })
}

fn render(verified: &Verified, args: &VerifyExportArgs) -> Vec<String> {
    let selection = &verified.selection;
    let of = Some(subject(selection)).filter(|subject| !subject.is_empty()).unwrap_or("everything".to_owned());
    let mut lines = vec![
        format!("site {}, generation {}", verified.site, verified.generation),
        format!("{of}, from {} to {}", selection.from, selection.to),
    ];
    for section in &verified.sections {
        lines.push(format!(
            "{}: {} events, of {} in the range and {} in all; {} checkpoints, the newest of {}",
            section.partition, section.events, section.in_range, section.of, section.checkpoints, section.time
        ));
    }
    lines.push(match complete(verified) {
        true => "nothing that was asked for is missing".to_owned(),
        false => "that this is all of the project is the site's word: events left out do not show theirs".to_owned(),
    });
    lines.push(match (verified.outside, args.key.is_some()) {
        (0, true) => format!("signed with the key that was expected, {}", verified.key.id()),
        (0, false) => format!(
            "signed with the key {}: whose that is must be known by other ways (--key), or shown by a checkpoint that \
             was published before (--checkpoint)",
            verified.key.id()
        ),
        (outside, _) => {
            format!("signed with the key {}, and in agreement with {outside} outside checkpoints", verified.key.id())
        }
    });
    lines
}
