//! What git would run of a repository's own: taken out before a playbook that is trusted, or holds secrets.
//!
//! The repositories under test belong to the job: an untrusted playbook may write anything into their `.git`. Much of what
//! may stand there names programs that git runs (hooks, filters, pagers, helpers for passwords, a monitor of files) or
//! sends what it holds elsewhere. So before a guarded playbook
//!
//! - a configuration that is not as gatelog wrote it keeps what is known to name nothing (see [`is_harmless`]), with the
//!   repository's own settings as they were;
//! - hooks, and files by which git finds a configuration in another place, are removed;
//! - a `.git` in a directory above the repositories is removed: git would take it for theirs.
//!
//! What is taken out stays out, and is told. Repositories that a job makes in places of its own are left alone: whoever
//! runs git there runs what the job says, as with `make`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::jobdir::{clear, read_limited};

/// The largest configuration that is read, in bytes.
const LARGEST: u64 = 1 << 20;
/// The most repositories of submodules in one repository, and how deep their directories are looked for.
const MOST_MODULES: usize = 1_000;
const DEEPEST: usize = 16;
/// What is told of one repository, at most.
const TOLD: usize = 5;
/// Beside the configuration, in a repository: its hooks, and what leads git to a configuration elsewhere.
const TRAPS: [&str; 3] = ["hooks", "commondir", "config.worktree"];

/// The repositories under test, and their configurations as gatelog wrote them.
#[derive(Debug, Default)]
pub(crate) struct Repositories {
    own: BTreeMap<PathBuf, Vec<u8>>,
}

/// One setting: section, subsection, name and value. `None` as value: it stands there alone.
type Setting = (String, Option<String>, String, Option<String>);

impl Repositories {
    /// Those at these places, which no job has seen yet. Hooks that whoever made them has put there (git's own examples)
    /// are removed.
    ///
    /// # Errors
    /// They cannot be removed.
    pub(crate) fn learn(&mut self, places: impl Iterator<Item = PathBuf>) -> io::Result<()> {
        for place in places {
            clear(&place.join(".git/hooks"))?;
            let config = read_limited(&place.join(".git/config"), LARGEST).unwrap_or_default();
            self.own.insert(place, config);
        }
        Ok(())
    }

    /// Takes traps out of them; `work` is the directory they are below. Gives what a person is to be told. No process of
    /// the job may run.
    ///
    /// # Errors
    /// One cannot be taken out.
    pub(crate) fn disarm(&self, work: &Path) -> io::Result<Vec<String>> {
        let mut told = Vec::new();
        for (place, own) in &self.own {
            let shown = place.strip_prefix(work).unwrap_or(place).to_owned();
            let mut found = Vec::new();
            above(place, work, &mut found)?;
            let git = place.join(".git");
            match fs::symlink_metadata(&git) {
                Ok(metadata) if metadata.is_dir() => repository(&git, Some(own), 0, &mut found)?,
                Ok(_) => {
                    clear(&git)?;
                    found.push(git);
                }
                // The job has removed it.
                Err(_) => {}
            }
            let more = found.len().saturating_sub(TOLD);
            for path in found.iter().take(TOLD) {
                let path = path.strip_prefix(work).unwrap_or(path);
                told.push(format!("{path:?} was changed by the job: what git would run of it was taken out"));
            }
            if more > 0 {
                told.push(format!("{more} more such files of repository {shown:?} were changed"));
            }
        }
        Ok(told)
    }
}

/// Removes each `.git` between a repository and the work directory, that itself included.
fn above(place: &Path, work: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for folder in place.ancestors().skip(1).take_while(|folder| folder.starts_with(work)) {
        let git = folder.join(".git");
        if fs::symlink_metadata(&git).is_ok() {
            clear(&git)?;
            found.push(git);
        }
    }
    let logs = work.join("logs/.git");
    if fs::symlink_metadata(&logs).is_ok() {
        clear(&logs)?;
        found.push(logs);
    }
    Ok(())
}

/// One repository: a checkout's `.git`, or one of a submodule below it.
fn repository(git: &Path, own: Option<&Vec<u8>>, depth: usize, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for name in TRAPS {
        let path = git.join(name);
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() && fs::read_dir(&path)?.next().is_none() {
            continue;
        }
        clear(&path)?;
        found.push(path);
    }
    let config = git.join("config");
    if fs::symlink_metadata(&config).is_ok() || own.is_some() {
        let now = read_limited(&config, LARGEST).ok();
        if own.is_none() || now.as_ref() != own {
            let text = filtered(now.as_ref().map(|_| config.as_path()), own.map(Vec::as_slice))?;
            if now.as_deref() != Some(text.as_bytes()) {
                clear(&config)?;
                fs::write(&config, text)?;
                found.push(config);
            }
        }
    }
    modules(&git.join("modules"), depth + 1, found)
}

/// The repositories of submodules: directories with a `HEAD`, anywhere below.
fn modules(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(folder) else { return Ok(()) };
    if !metadata.is_dir() || depth > DEEPEST || fs::read_dir(folder)?.count() > MOST_MODULES {
        clear(folder)?;
        found.push(folder.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_symlink() {
            clear(&path)?;
            found.push(path);
        } else if metadata.is_dir() && fs::symlink_metadata(path.join("HEAD")).is_ok() {
            repository(&path, None, depth, found)?;
        } else if metadata.is_dir() {
            modules(&path, depth + 1, found)?;
        }
    }
    Ok(())
}

/// The harmless settings of a configuration, with those gatelog wrote as they were; as text.
fn filtered(config: Option<&Path>, own: Option<&[u8]>) -> io::Result<String> {
    let own_text = own.map(|own| String::from_utf8_lossy(own).into_owned()).unwrap_or_default();
    let settings = config.map_or_else(|| Ok(Vec::new()), settings)?;
    let mut text = own_text;
    let (mut section, known) = (None, own_sections(&text));
    for (name, sub, key, value) in settings {
        let title = (name.clone(), sub.clone());
        if known.contains(&title) || !is_harmless(&name, &key, value.as_deref(), own.is_none()) {
            continue;
        }
        if section.as_ref() != Some(&title) {
            match &sub {
                Some(sub) => text.push_str(&format!("[{name} \"{}\"]\n", escaped(sub))),
                None => text.push_str(&format!("[{name}]\n")),
            }
            section = Some(title);
        }
        match value {
            Some(value) => text.push_str(&format!("\t{key} = \"{}\"\n", escaped(&value).replace('\n', "\\n"))),
            None => text.push_str(&format!("\t{key}\n")),
        }
    }
    Ok(text)
}

/// The sections that gatelog wrote itself: a job adds nothing to them.
fn own_sections(text: &str) -> Vec<(String, Option<String>)> {
    let titles = text.lines().filter_map(|line| line.trim().strip_prefix('[')?.strip_suffix(']'));
    titles
        .map(|title| match title.split_once(" \"") {
            Some((name, sub)) => (name.to_lowercase(), Some(sub.trim_end_matches('"').to_owned())),
            None => (title.to_lowercase(), None),
        })
        .collect()
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Whether a setting names no program, and sends nothing anywhere git would not without it. What is not known is not.
fn is_harmless(section: &str, key: &str, value: Option<&str>, submodule: bool) -> bool {
    match section {
        "user" | "author" | "committer" => matches!(key, "name" | "email"),
        "branch" => matches!(key, "remote" | "merge" | "rebase"),
        // An address with two colons names a program, `git-remote-…`.
        "remote" => key == "fetch" || (key == "url" && value.is_some_and(|url| !url.contains("::"))),
        "submodule" => key == "active" || (key == "url" && value.is_some_and(|url| !url.contains("::"))),
        "init" => key == "defaultbranch",
        "gc" => key == "auto",
        "extensions" => matches!(key, "objectformat" | "partialclone"),
        "core" => {
            let plain = [
                "repositoryformatversion",
                "filemode",
                "bare",
                "logallrefupdates",
                "ignorecase",
                "precomposeunicode",
                "symlinks",
                "autocrlf",
                "eol",
                "safecrlf",
                "quotepath",
                "abbrev",
            ];
            plain.contains(&key) || (key == "worktree" && submodule)
        }
        _ => false,
    }
}

/// The settings of a file, as git reads them; nothing that is named there is run. One that git cannot read has none.
fn settings(config: &Path) -> io::Result<Vec<Setting>> {
    let mut command = Command::new("git");
    command.args(["config", "--no-includes", "--null", "--list", "--file"]).arg(config);
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", "/nonexistent");
    command.env("GIT_CONFIG_NOSYSTEM", "1").current_dir("/").stdin(Stdio::null());
    let output = match command.output() {
        // Without git nobody runs what stands there, either.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(if output.status.success() { text.split('\0').filter_map(setting).collect() } else { Vec::new() })
}

/// One entry of that list: a name with dots, and its value in the next line.
fn setting(entry: &str) -> Option<Setting> {
    let (name, value) = match entry.split_once('\n') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (entry, None),
    };
    let (section, rest) = name.split_once('.')?;
    let (sub, key) = match rest.rsplit_once('.') {
        Some((sub, key)) => (Some(sub.to_owned()), key),
        None => (None, rest),
    };
    Some((section.to_owned(), sub, key.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(folder: &Path, arguments: &[&str]) -> String {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(folder).env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1");
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }

    /// A work directory with one repository, as gatelog has made it.
    fn work() -> (tempfile::TempDir, PathBuf, Repositories) {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("src/example.org/app");
        fs::create_dir_all(&place).unwrap();
        fs::create_dir_all(folder.path().join("logs")).unwrap();
        git(&place, &["init", "-q", "-b", "main"]);
        git(&place, &["remote", "add", "origin", "file:///dev/null"]);
        let mut repositories = Repositories::default();
        repositories.learn([place.clone()].into_iter()).unwrap();
        (folder, place, repositories)
    }

    #[test]
    fn what_a_job_has_not_changed_is_left_as_it_is() {
        let (folder, place, repositories) = work();
        let before = fs::read(place.join(".git/config")).unwrap();
        assert_eq!(repositories.disarm(folder.path()).unwrap(), Vec::<String>::new());
        assert_eq!(fs::read(place.join(".git/config")).unwrap(), before);
        fs::remove_dir_all(place.join(".git")).unwrap();
        assert_eq!(repositories.disarm(folder.path()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn no_program_that_a_job_names_is_run_and_what_is_harmless_stays() {
        let (folder, place, repositories) = work();
        let witness = folder.path().join("witness");
        let trap = format!("touch {}; cat", witness.display());
        for (key, value) in [
            ("core.fsmonitor", &*trap),
            ("core.pager", &trap),
            ("core.sshCommand", &trap),
            ("filter.x.clean", &trap),
            ("diff.external", &trap),
            ("credential.helper", &format!("!{trap}")),
            ("remote.origin.uploadpack", &trap),
            ("remote.other.url", "https://example.org/other"),
            ("remote.evil.url", &format!("ext::sh -c '{trap}'")),
            ("include.path", "/tmp/elsewhere"),
            ("url.https://evil.example.org/.insteadOf", "https://example.org/"),
            ("user.name", "A \"quoted\" \\ name"),
            ("branch.main.remote", "other"),
        ] {
            git(&place, &["config", key, value]);
        }
        fs::create_dir_all(place.join(".git/hooks")).unwrap();
        fs::write(place.join(".git/hooks/post-checkout"), &trap).unwrap();
        fs::write(place.join(".gitattributes"), "* filter=x\n").unwrap();
        fs::write(place.join("file"), "text").unwrap();
        git(&place, &["status"]);
        assert!(witness.exists(), "the traps spring without what is tested here");
        fs::remove_file(&witness).unwrap();
        let told = repositories.disarm(folder.path()).unwrap().join("\n");
        assert!(told.contains(".git/config") && told.contains(".git/hooks"), "{told}");
        for arguments in [&["status"][..], &["add", "file"], &["diff"], &["checkout", "-b", "x"], &["fetch", "evil"]] {
            git(&place, arguments);
        }
        assert!(!witness.exists());
        let kept = git(&place, &["config", "--local", "--list"]);
        for line in
            ["remote.other.url=https://example.org/other", "user.name=A \"quoted\" \\ name", "branch.main.remote=other"]
        {
            assert!(kept.lines().any(|kept| kept == line), "{line:?} is not in {kept}");
        }
        let gone =
            ["fsmonitor", "pager", "sshcommand", "filter", "external", "helper", "uploadpack", "evil", "include"];
        assert!(!gone.iter().any(|word| kept.contains(word)), "{kept}");
        assert_eq!(repositories.disarm(folder.path()).unwrap(), Vec::<String>::new(), "nothing is found twice");
    }

    #[test]
    fn a_configuration_in_another_place_is_not_found() {
        let (folder, place, repositories) = work();
        let other = folder.path().join("other");
        fs::create_dir_all(&other).unwrap();
        git(&other, &["init", "-q"]);
        fs::write(place.join(".git/commondir"), other.join(".git").display().to_string()).unwrap();
        fs::write(place.join(".git/config.worktree"), "[core]\n\tfsmonitor = touch /tmp/x\n").unwrap();
        // Above the repository, and where logs are.
        for above in ["", "src", "src/example.org", "logs"] {
            git(&folder.path().join(above), &["init", "-q"]);
        }
        let module = place.join(".git/modules/deep/sub");
        fs::create_dir_all(&module).unwrap();
        fs::write(module.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(module.join("config"), "[core]\n\tworktree = ../../../../sub\n\tfsmonitor = touch /tmp/x\n").unwrap();
        std::os::unix::fs::symlink("/", place.join(".git/modules/link")).unwrap();
        repositories.disarm(folder.path()).unwrap();
        for gone in [
            "src/example.org/app/.git/commondir",
            "src/example.org/app/.git/config.worktree",
            "src/example.org/app/.git/modules/link",
            ".git",
            "src/.git",
            "src/example.org/.git",
            "logs/.git",
        ] {
            assert!(fs::symlink_metadata(folder.path().join(gone)).is_err(), "{gone}");
        }
        let config = fs::read_to_string(module.join("config")).unwrap();
        assert!(config.contains("worktree = \"../../../../sub\"") && !config.contains("fsmonitor"), "{config}");
        // A link, or a file that names another directory, in place of the repository itself.
        fs::remove_dir_all(place.join(".git")).unwrap();
        fs::write(place.join(".git"), format!("gitdir: {}", other.join(".git").display())).unwrap();
        repositories.disarm(folder.path()).unwrap();
        assert!(fs::symlink_metadata(place.join(".git")).is_err());
    }
}
