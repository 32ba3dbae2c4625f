//! A real Gerrit, and what people do there.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gatelog_driver_gerrit::{ChangeName, Gerrit, GerritConfig, Git, Limits, SshConfig, SubmitTarget};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A server that ends with this.
pub struct Server {
    folder: TempDir,
    keeper: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    http: u16,
    ssh: u16,
    client: reqwest::blocking::Client,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Server {
    /// Starts one; the error says why there can be none.
    pub fn start() -> Result<Server, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let (http, ssh) = (free_port(), free_port());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/gerrit.sh");
        let mut keeper = Command::new("bash")
            .arg(script)
            .arg(folder.path())
            .args([http.to_string(), ssh.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("bash cannot be run: {error}"))?;
        let (orders, answers) = (keeper.stdin.take(), BufReader::new(keeper.stdout.take().unwrap()));
        let client = reqwest::blocking::Client::builder().timeout(Duration::from_secs(120)).build().unwrap();
        let mut server = Server { folder, keeper, orders, answers, http, ssh, client };
        let said = server.answer();
        match said.strip_prefix("READY ") {
            Some(version) => {
                println!("Gerrit {version} on loopback");
                Ok(server)
            }
            None => Err(said.trim_start_matches("CANNOT ").to_owned()),
        }
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// `stop`, `kill` or `start`.
    pub fn order(&mut self, order: &str) {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
        let said = self.answer();
        assert!(said.starts_with("STOPPED") || said.starts_with("READY"), "{order}: {said}");
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.http)
    }

    /// A connection as one of the accounts.
    pub fn config(&self, user: &str) -> GerritConfig {
        let password_file = self.folder.path().join(format!("password-{user}"));
        std::fs::write(&password_file, format!("{}\n", password(user))).unwrap();
        GerritConfig {
            base_url: self.url("").parse().unwrap(),
            canonical_hostname: "review.example.com".to_owned(),
            user: user.to_owned(),
            password_file,
            ssh: SshConfig {
                host: "127.0.0.1".to_owned(),
                port: self.ssh,
                key: self.folder.path().join("keys").join(user),
                known_hosts: self.folder.path().join("known_hosts"),
                keepalive_s: 60,
            },
            git_over_ssh: false,
            replication_delay: Duration::ZERO,
            limits: Limits { retry_after: Duration::from_secs(1), ..Limits::default() },
        }
    }

    /// gatelog's own client.
    pub fn gerrit(&self) -> Gerrit {
        Gerrit::new(self.config("ci")).unwrap()
    }

    /// Where keys may be kept.
    pub fn keys(&self) -> PathBuf {
        self.folder.path().join("sealing")
    }

    pub fn git(&self) -> Git {
        Git::new(self.config("ci")).unwrap()
    }

    /// A request by somebody, which must succeed.
    pub fn rest(&self, user: &str, method: &str, path: &str, body: &Value) -> Value {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request =
            self.client.request(method, self.url(&format!("a/{path}"))).basic_auth(user, Some(password(user)));
        if !body.is_null() {
            request = request.json(body);
        }
        let answer = request.send().unwrap();
        let status = answer.status();
        let text = answer.text().unwrap();
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(text.trim_start_matches(")]}'")).unwrap_or(Value::Null)
    }

    pub fn review(&self, user: &str, change: &ChangeName, review: &Value) {
        self.rest(user, "POST", &format!("changes/{}/revisions/current/review", change.number), review);
    }

    /// Everything that the site demands before a submit.
    pub fn approve(&self, change: &ChangeName) {
        self.review("core", change, &json!({"labels": {"Code-Review": 2, "Workflow": 1}}));
        self.review("ci", change, &json!({"labels": {"Verified": 2}}));
    }

    /// A new project with one commit on master.
    pub fn project(&self, name: &str, submit_type: &str) -> Project<'_> {
        let name = format!("acme/{name}");
        let body = json!({"create_empty_commit": true, "branches": ["master"], "submit_type": submit_type});
        self.rest("admin", "PUT", &format!("projects/{}", name.replace('/', "%2F")), &body);
        let folder = self.folder.path().join("work").join(&name);
        let objects = self.folder.path().join("objects").join(&name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(&objects).unwrap();
        let project = Project { server: self, git: Git::new(self.config("dev")).unwrap(), name, folder, objects };
        project.run(&project.folder, &["init", "--quiet"]);
        project.run(&project.objects, &["init", "--quiet", "--bare"]);
        project
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its input ends, and it ends the server.
        drop(self.orders.take());
        let _ = self.keeper.wait();
    }
}

fn password(user: &str) -> String {
    if user == "admin" { "secret".to_owned() } else { format!("{user}-secret") }
}

/// A project, somebody's working copy of it, and gatelog's repository of prepared commits.
pub struct Project<'s> {
    server: &'s Server,
    git: Git,
    pub name: String,
    folder: PathBuf,
    pub objects: PathBuf,
}

/// How changes are put together before they are tested.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Prepared {
    /// A merge commit.
    Merged,
    /// The change's own tree on the branch: where the branch contains its parent, this is a fast-forward.
    AsItIs,
}

impl Project<'_> {
    fn run(&self, place: &Path, words: &[&str]) -> String {
        // Gerrit takes only commits of the account's own address: gatelog's are made in its repository.
        let who = if place == self.objects { "ci" } else { "dev" };
        let done = self
            .git
            .command()
            .args(["-c", &format!("user.name={who}"), "-c", &format!("user.email={who}@example.com"), "-C"])
            .arg(place)
            .args(words)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "git {words:?}: {said}");
        said.trim().to_owned()
    }

    fn address(&self) -> String {
        self.git.address(&self.name).unwrap()
    }

    /// What a branch is.
    pub fn tip(&self, branch: &str) -> String {
        self.server.gerrit().branch(&self.name, branch).unwrap().unwrap()
    }

    /// Proposes a change of one file on top of a commit (`master` where none is named); a Change-Id is added.
    pub fn propose(&self, base: Option<&str>, file: &str, text: &str, message: &str, options: &str) -> ChangeName {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let id = format!("I{:08x}{:032x}", std::process::id(), id);
        self.push(base, file, text, &format!("{message}\n\nChange-Id: {id}\n"), options)
    }

    /// Pushes a commit for review.
    pub fn push(&self, base: Option<&str>, file: &str, text: &str, message: &str, options: &str) -> ChangeName {
        self.run(&self.folder, &["fetch", "--quiet", &self.address(), "refs/heads/master"]);
        self.run(&self.folder, &["checkout", "--quiet", "--detach", base.unwrap_or("FETCH_HEAD")]);
        std::fs::write(self.folder.join(file), text).unwrap();
        self.run(&self.folder, &["add", "."]);
        self.run(&self.folder, &["commit", "--quiet", "--allow-empty", "-m", message]);
        let said = self.run(&self.folder, &["push", &self.address(), &format!("HEAD:refs/for/master{options}")]);
        let (_, rest) = said.rsplit_once("/+/").unwrap_or_else(|| panic!("no change was made: {said}"));
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        ChangeName { project: self.name.clone(), number: digits.parse().unwrap() }
    }

    /// The commit that was pushed last.
    pub fn head(&self) -> String {
        self.run(&self.folder, &["rev-parse", "HEAD"])
    }

    /// Makes a commit on a branch without review, as an administrator.
    pub fn move_branch(&self, file: &str) -> String {
        let git = Git::new(self.server.config("admin")).unwrap();
        self.run(&self.folder, &["fetch", "--quiet", &self.address(), "refs/heads/master"]);
        self.run(&self.folder, &["checkout", "--quiet", "--detach", "FETCH_HEAD"]);
        std::fs::write(self.folder.join(file), "outside").unwrap();
        self.run(&self.folder, &["add", "."]);
        self.run(&self.folder, &["commit", "--quiet", "-m", "From outside"]);
        let pushed = git
            .command()
            .arg("-C")
            .arg(&self.folder)
            .args(["push", "--quiet", &self.address(), "HEAD:refs/heads/master"])
            .output();
        assert!(pushed.unwrap().status.success());
        self.head()
    }

    /// What gatelog does before it tests a change: puts it onto a base, in a repository of its own.
    pub fn prepare(&self, change: &ChangeName, base: &str, how: Prepared) -> SubmitTarget {
        let known = self.server.gerrit().change(change).unwrap();
        self.run(&self.objects, &["fetch", "--quiet", &self.address(), "refs/heads/master", &known.git_ref]);
        let tree = self.run(&self.objects, &["merge-tree", "--write-tree", base, &known.commit]);
        let tested_commit = match how {
            Prepared::Merged => {
                self.run(&self.objects, &["commit-tree", &tree, "-p", base, "-p", &known.commit, "-m", "Prepared"])
            }
            Prepared::AsItIs => known.commit.clone(),
        };
        SubmitTarget {
            change: change.clone(),
            branch: known.branch,
            patchset_commit: known.commit,
            tested_base: base.to_owned(),
            tested_commit,
            tested_tree: tree,
        }
    }

    pub fn places(projects: &[&Project<'_>]) -> BTreeMap<String, PathBuf> {
        projects.iter().map(|project| (project.name.clone(), project.objects.clone())).collect()
    }
}

/// Waits until something is so, and says what it was waited for.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "waited 90 s for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
