//! Results as git notes on the change's commit.

use std::path::Path;

use gatelog_event_log::failpoint;
use git2::build::TreeUpdateBuilder;
use git2::{FileMode, Oid, Repository, Signature, Time, Tree};

use crate::change::{bad, commit_id};
use crate::error::ForgeError;
use crate::forge::Forge;
use crate::refs::{self, Swap};

/// Where the notes are.
pub const NOTES_REF: &str = "refs/notes/gatelog";

/// How a section begins: people read it, and reports are told apart by it.
const HEADER: &str = "[gatelog report ";

/// How often an update is tried while others write notes, too.
const ATTEMPTS_MAX: u32 = 200;

/// The most a note may hold; older sections are dropped beyond it.
const NOTE_BYTES_MAX: usize = 4 << 20;

/// A result to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportRequest {
    /// The project.
    pub project: String,
    /// The commit of the patchset the result is about.
    pub commit: String,
    /// The report's id. A report that is repeated replaces itself.
    pub report_id: String,
    /// One word: `SUCCESS`, `FAILURE` ...
    pub verdict: String,
    /// The text.
    pub text: String,
    /// The note's date, in seconds since 1970.
    pub date_s: i64,
}

/// A result as it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The report's id.
    pub report_id: String,
    /// The verdict.
    pub verdict: String,
    /// The text, without empty lines at its end.
    pub text: String,
}

impl Forge {
    /// Adds a section to the note on a commit, or replaces the one with the same report id. Other
    /// text in the note stays. Safe beside other writers.
    ///
    /// # Errors
    /// [`ForgeError::BadName`], [`ForgeError::NoProject`], [`ForgeError::MissingCommit`],
    /// [`ForgeError::Busy`], [`ForgeError::Locked`], [`ForgeError::Git`].
    pub fn report(&self, request: &ReportRequest) -> Result<(), ForgeError> {
        word("report id", &request.report_id)?;
        word("verdict", &request.verdict)?;
        let project = &request.project;
        let repo = self.repository(project)?;
        let commit = find(&repo, project, &request.commit)?;
        let wrap = ForgeError::git(project, "cannot write a note");
        let identity = &self.config.identity;
        let author = Signature::new(&identity.name, &identity.email, &Time::new(request.date_s, 0)).map_err(&wrap)?;
        let who = self.signature(project)?;
        let message = format!("gatelog: report {} {}", request.report_id, request.verdict);
        let section = Report {
            report_id: request.report_id.clone(),
            verdict: request.verdict.clone(),
            text: clean(&request.text, self.config.limits.report_bytes),
        };
        for attempt in 0..ATTEMPTS_MAX {
            let old = refs::read(&repo, project, NOTES_REF)?;
            let new = match add(&repo, old, commit, &section, &author, &message).map_err(&wrap)? {
                Some(new) => new,
                None => return Ok(()),
            };
            failpoint::pass("forge/note-made");
            match refs::compare_and_swap(&repo, project, NOTES_REF, old, Some(new), &who, &message)? {
                Swap::Done => return Ok(()),
                Swap::Moved(_) => std::thread::sleep(std::time::Duration::from_millis(u64::from(attempt % 7))),
            }
        }
        Err(ForgeError::Busy { project: project.clone(), name: NOTES_REF.to_owned(), attempts: ATTEMPTS_MAX })
    }

    /// The reports on a commit, in the order of their first telling.
    ///
    /// # Errors
    /// [`ForgeError::BadName`], [`ForgeError::NoProject`], [`ForgeError::Git`].
    pub fn read_reports(&self, project: &str, commit: &str) -> Result<Vec<Report>, ForgeError> {
        let repo = self.repository(project)?;
        let commit = commit_id(commit)?;
        let wrap = ForgeError::git(project, "cannot read a note");
        let Some(tip) = refs::read(&repo, project, NOTES_REF)? else { return Ok(Vec::new()) };
        let tree = repo.find_commit(tip).and_then(|c| c.tree()).map_err(&wrap)?;
        let Some((_, blob)) = note(&tree, commit) else { return Ok(Vec::new()) };
        let blob = repo.find_blob(blob).map_err(&wrap)?;
        Ok(parse(&String::from_utf8_lossy(blob.content())).1)
    }
}

fn word(what: &'static str, text: &str) -> Result<(), ForgeError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    if text.is_empty() || text.len() > 100 || !text.chars().all(fine) {
        return Err(bad(what, text, "it must have 1 to 100 letters, digits, or - _ . :"));
    }
    Ok(())
}

fn find(repo: &Repository, project: &str, commit: &str) -> Result<Oid, ForgeError> {
    let id = commit_id(commit)?;
    match repo.find_commit(id) {
        Ok(_) => Ok(id),
        Err(_) => Err(ForgeError::MissingCommit { project: project.to_owned(), commit: commit.to_owned() }),
    }
}

/// What a terminal may be shown, and not more than the limit.
fn clean(text: &str, limit: usize) -> String {
    let mut kept: String = text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
    if kept.len() > limit {
        let cut = (0..=limit).rev().find(|at| kept.is_char_boundary(*at)).unwrap_or(0);
        let left_out = kept.len() - cut;
        kept.truncate(cut);
        kept.push_str(&format!("\n({left_out} more bytes were left out)"));
    }
    kept.trim_end().to_owned()
}

/// Where the note on a commit is. git spreads notes over directories when there are many, in one to
/// several steps of two digits.
fn note(tree: &Tree<'_>, commit: Oid) -> Option<(String, Oid)> {
    let digits = commit.to_string();
    for depth in 0..4 {
        let path = spread(&digits, depth);
        if let Ok(entry) = tree.get_path(Path::new(&path)) {
            return Some((path, entry.id()));
        }
    }
    None
}

fn spread(digits: &str, depth: usize) -> String {
    let mut path = String::with_capacity(digits.len() + depth);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && at % 2 == 0 && at / 2 <= depth {
            path.push('/');
        }
        path.push(digit);
    }
    path
}

/// Makes the commit that has the section in it; none when it is there already, word for word.
fn add(
    repo: &Repository,
    old: Option<Oid>,
    commit: Oid,
    section: &Report,
    author: &Signature<'_>,
    message: &str,
) -> Result<Option<Oid>, git2::Error> {
    let parent = old.map(|id| repo.find_commit(id)).transpose()?;
    let tree = match &parent {
        Some(parent) => parent.tree()?,
        None => repo.find_tree(repo.treebuilder(None)?.write()?)?,
    };
    let found = note(&tree, commit);
    let (path, before) = match found {
        Some((path, blob)) => (path, String::from_utf8_lossy(repo.find_blob(blob)?.content()).into_owned()),
        None => (spread(&commit.to_string(), 1), String::new()),
    };
    let after = merge(&before, section);
    if after == before {
        return Ok(None);
    }
    let blob = repo.blob(after.as_bytes())?;
    let tree = TreeUpdateBuilder::new().upsert(path.as_str(), blob, FileMode::Blob).create_updated(repo, &tree)?;
    let tree = repo.find_tree(tree)?;
    let parents: Vec<_> = parent.iter().collect();
    repo.commit(None, author, author, message, &tree, &parents).map(Some)
}

fn merge(note: &str, section: &Report) -> String {
    let (foreign, mut reports) = parse(note);
    match reports.iter_mut().find(|r| r.report_id == section.report_id) {
        Some(same) => *same = section.clone(),
        None => reports.push(section.clone()),
    }
    let size = |r: &Report| r.text.len() + 200;
    while reports.len() > 1 && reports.iter().map(size).sum::<usize>() > NOTE_BYTES_MAX {
        reports.remove(0);
    }
    let mut out = foreign;
    for report in reports {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&format!("{HEADER}{} {}]\n", report.report_id, report.verdict));
        for line in report.text.lines() {
            // So that no text can pass for a report of its own.
            if line.starts_with(HEADER) || line.starts_with('\\') {
                out.push('\\');
            }
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// The text of others at the beginning of a note, and the reports in it.
fn parse(note: &str) -> (String, Vec<Report>) {
    let mut foreign = String::new();
    let mut reports: Vec<Report> = Vec::new();
    for line in note.lines() {
        let header = line.strip_prefix(HEADER).and_then(|rest| rest.strip_suffix(']'));
        if let Some((id, verdict)) = header.and_then(|header| header.split_once(' ')) {
            let (report_id, verdict) = (id.to_owned(), verdict.to_owned());
            reports.push(Report { report_id, verdict, text: String::new() });
            continue;
        }
        let (text, line) = match reports.last_mut() {
            Some(report) => (&mut report.text, line.strip_prefix('\\').unwrap_or(line)),
            None => (&mut foreign, line),
        };
        text.push_str(line);
        text.push('\n');
    }
    for report in &mut reports {
        report.text.truncate(report.text.trim_end().len());
    }
    let kept = foreign.trim_end().len();
    foreign.truncate(kept);
    if !foreign.is_empty() {
        foreign.push('\n');
    }
    (foreign, reports)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(id: &str, text: &str) -> Report {
        Report { report_id: id.to_owned(), verdict: "SUCCESS".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_repeated_report_replaces_itself_and_nothing_else() {
        let note = merge("by hand\n", &report("one", "first"));
        let note = merge(&note, &report("two", "[gatelog report one FAILURE]\n\\odd\n\nend"));
        let note = merge(&note, &report("one", "first, again"));
        assert_eq!(merge(&note, &report("one", "first, again")), note);
        let (foreign, reports) = parse(&note);
        assert_eq!(foreign, "by hand\n");
        assert_eq!(
            reports,
            [report("one", "first, again"), report("two", "[gatelog report one FAILURE]\n\\odd\n\nend")]
        );
    }

    #[test]
    fn a_text_is_cleaned_and_cut() {
        assert_eq!(clean("a\u{1b}[31mb\r\nc\t\0", 100), "a[31mb\nc");
        let cut = clean(&"é".repeat(100), 11);
        assert!(cut.starts_with("ééééé\n(190 more bytes"), "{cut}");
    }

    #[test]
    fn notes_are_spread_as_git_does() {
        assert_eq!(spread("aabbccdd", 0), "aabbccdd");
        assert_eq!(spread("aabbccdd", 1), "aa/bbccdd");
        assert_eq!(spread("aabbccdd", 2), "aa/bb/ccdd");
    }
}
