//! The simulated forge: real repositories whose changes were made beforehand, and pushes that cost next to nothing. A
//! push leaves what a push leaves: a ref, and the hook's word of it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gatelog_benches::Failure;
use gatelog_driver_git::{Forge, ForgeConfig};

pub const HOST: &str = "git.bench.example";
/// Projects whose changes have jobs that last.
pub const LASTING: usize = 10;
/// Jobs of one of their changes.
pub const JOBS: usize = 10;
/// Projects whose changes have one job that is over at once.
pub const QUICK: usize = 40;
/// Changes made beforehand for each of those.
const CHANGES: usize = 400;

const PIPELINES: &str = "
- pipeline:
    name: check
    manager: independent
    trigger: {forge: [{event: change-proposed}]}
    success: {forge: {}}
    failure: {forge: {}}
- job: {name: base, parent: null, timeout: 7200}
- job: {name: quick, run: playbooks/quick.yaml}
";

pub fn lasting(index: usize) -> String {
    format!("lasting-{index:02}")
}

pub fn quick(index: usize) -> String {
    format!("quick-{index:02}")
}

/// A project and the commits of the changes that were not proposed yet.
struct Project {
    name: String,
    repository: PathBuf,
    commits: Vec<String>,
    proposed: usize,
}

/// The forge.
pub struct Simulated {
    notify: PathBuf,
    projects: Vec<Project>,
    turn: usize,
}

fn configuration() -> String {
    let mut text = PIPELINES.to_owned();
    let jobs: Vec<String> = (0..JOBS).map(|job| format!("lasting-{job}")).collect();
    for job in &jobs {
        text.push_str(&format!("- job: {{name: {job}, run: playbooks/lasting.yaml}}\n"));
    }
    for index in 0..LASTING {
        text.push_str(&format!("- project: {{name: {}, check: {{jobs: [{}]}}}}\n", lasting(index), jobs.join(", ")));
    }
    for index in 0..QUICK {
        text.push_str(&format!("- project: {{name: {}, check: {{jobs: [quick]}}}}\n", quick(index)));
    }
    text
}

impl Simulated {
    /// Repositories below `root`; whoever watches them looks for word of pushes in `notify`.
    pub fn make(root: &Path, notify: &Path, lasting_changes: usize) -> Result<Simulated, Failure> {
        let mut config = ForgeConfig::new(root, HOST);
        config.notify = Some(notify.to_owned());
        let forge = Forge::open(config)?;
        let playbook = "- hosts: localhost\n  tasks: []\n";
        let files = [
            ("zuul.yaml", configuration()),
            ("playbooks/quick.yaml", playbook.to_owned()),
            ("playbooks/lasting.yaml", playbook.to_owned()),
        ];
        forge.create("config", "master")?;
        import(&forge.path("config")?, &files, 0)?;
        let mut projects = Vec::new();
        let lastings = (0..LASTING).map(|index| (lasting(index), lasting_changes.div_ceil(LASTING)));
        for (name, changes) in lastings.chain((0..QUICK).map(|index| (quick(index), CHANGES))) {
            forge.create(&name, "master")?;
            let repository = forge.path(&name)?;
            let commits = import(&repository, &[("readme", format!("{name}\n"))], changes)?;
            projects.push(Project { name, repository, commits, proposed: 0 });
        }
        Ok(Simulated { notify: notify.to_owned(), projects, turn: 0 })
    }

    /// Proposes a change of a project with jobs that last.
    pub fn propose_lasting(&mut self) -> Result<(), Failure> {
        let index = self.turn % LASTING;
        self.propose(index)
    }

    /// Proposes a change of a project with a job that is over at once.
    pub fn propose_quick(&mut self) -> Result<(), Failure> {
        let index = LASTING + self.turn % QUICK;
        self.propose(index)
    }

    fn propose(&mut self, index: usize) -> Result<(), Failure> {
        self.turn += 1;
        let project = self.projects.get_mut(index).ok_or("no such project")?;
        let commit = project.commits.get(project.proposed).ok_or("there are no more changes: make more beforehand")?;
        project.proposed += 1;
        let refs = project.repository.join("refs").join("for").join("master");
        std::fs::create_dir_all(&refs)?;
        let name = format!("change-{}", project.proposed);
        // Moved into its place, as git does.
        let staged = refs.join(format!("{name}.lock"));
        std::fs::write(&staged, format!("{commit}\n"))?;
        std::fs::rename(&staged, refs.join(name))?;
        std::fs::write(self.notify.join(&project.name), "")?;
        Ok(())
    }
}

/// A first commit with these files, and so many changes that stand on it. Gives the changes' commits.
fn import(repository: &Path, files: &[(&str, String)], changes: usize) -> Result<Vec<String>, Failure> {
    let marks = repository.join("marks");
    let mut child = Command::new("git")
        .arg("-C")
        .arg(repository)
        .args(["-c", "safe.directory=*", "-c", "core.fsync=none", "fast-import", "--quiet", "--force"])
        .arg(format!("--export-marks={}", marks.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    {
        let mut input = std::io::BufWriter::new(child.stdin.take().ok_or("git takes no input")?);
        let who = "Dana Developer <dana@example.org>";
        write!(input, "commit refs/heads/master\nmark :1\ncommitter {who} 1790000000 +0000\ndata 5\nFirst\n")?;
        for (path, text) in files {
            write!(input, "M 100644 inline {path}\ndata {}\n{text}\n", text.len())?;
        }
        for number in 1..=changes {
            let mark = number + 1;
            // One ref that nobody looks at, moved from each to the next: a ref for each would be a sync for each.
            write!(input, "commit refs/gatelog/bench\nmark :{mark}\ncommitter {who} 1790000001 +0000\n")?;
            let message = format!("Change {number}");
            let text = format!("{number}\n");
            write!(input, "data {}\n{message}\nfrom :1\n", message.len())?;
            write!(input, "M 100644 inline part-{number}\ndata {}\n{text}\n", text.len())?;
        }
        input.flush()?;
    }
    if !child.wait()?.success() {
        return Err(format!("git fast-import fails in {}", repository.display()).into());
    }
    let mut commits = vec![String::new(); changes];
    for line in std::fs::read_to_string(&marks)?.lines() {
        let Some((mark, commit)) = line.strip_prefix(':').and_then(|line| line.split_once(' ')) else { continue };
        if let Some(place) = mark.parse::<usize>()?.checked_sub(2).and_then(|number| commits.get_mut(number)) {
            commit.clone_into(place);
        }
    }
    // The commits stay: the pack that was made of them is not collected.
    std::fs::remove_file(&marks)?;
    if changes > 0 {
        std::fs::remove_file(repository.join("refs").join("gatelog").join("bench"))?;
    }
    Ok(commits)
}
