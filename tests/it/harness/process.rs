//! The server as a process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value as Json;

use super::{PATIENCE, eventually, host};

/// A server process. Killed when dropped.
pub struct Server {
    child: Child,
    site: PathBuf,
    /// Where in the site's `server.log` what this process says begins.
    said_from: u64,
    url: String,
    http: reqwest::blocking::Client,
}

/// An answer of the API.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The gate's position it stands for, from `Gatelog-Position`.
    pub position: u64,
    /// Its body.
    pub body: String,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl Server {
    /// Starts a server on a site and waits until it answers.
    pub fn start(site: &Path) -> Server {
        let mut server = Server::launch(site, &[]);
        eventually("the server answers", || server.is_ready().then_some(()));
        server
    }

    /// Starts a server with these arguments more, and does not wait for anything.
    pub fn launch(site: &Path, arguments: &[&str]) -> Server {
        Server::launch_by(Command::new(host::binary()), site, arguments)
    }

    /// The same with this in its environment.
    pub fn launch_with(site: &Path, arguments: &[&str], (name, value): (&str, &str)) -> Server {
        let mut command = Command::new(host::binary());
        command.env(name, value);
        Server::launch_by(command, site, arguments)
    }

    /// The same by a command that becomes gatelog with the arguments behind its own.
    pub fn launch_by(mut command: Command, site: &Path, arguments: &[&str]) -> Server {
        let _ = std::fs::remove_file(site.join("server.json"));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(site.join("server.log")).unwrap();
        let said_from = log.metadata().unwrap().len();
        let child = command
            .args(["serve", "--dir"])
            .arg(site)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let http = reqwest::blocking::Client::builder().timeout(Duration::from_secs(20)).no_proxy().build().unwrap();
        Server { child, site: site.to_path_buf(), said_from, url: String::new(), http }
    }

    /// Whether it answers by now. A server that has ended is a test that has failed.
    pub fn is_ready(&mut self) -> bool {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("the server ended with {status}:\n{}", self.log());
        }
        self.answers()
    }

    /// Whether it answers by now, and has not ended.
    pub fn answers(&mut self) -> bool {
        let Ok(text) = std::fs::read_to_string(self.site.join("server.json")) else { return false };
        let Ok(said) = serde_json::from_str::<Json>(&text) else { return false };
        self.url = said["url"].as_str().unwrap_or_default().to_owned();
        self.get("/api/tenants").is_some()
    }

    /// Where a server died that was told to die at a failpoint; `None` while it lives. One that ended in another way is
    /// a test that has failed.
    pub fn fell(&mut self) -> Option<String> {
        let status = self.child.try_wait().unwrap()?;
        let log = std::fs::read(self.site.join("server.log")).unwrap_or_default();
        let said = String::from_utf8_lossy(&log[(self.said_from as usize).min(log.len())..]).into_owned();
        let step = said.lines().rev().find_map(|line| line.strip_prefix("dies at ")).map(str::to_owned);
        let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
        assert!(killed && step.is_some(), "the server ended with {status}:\n{said}");
        step
    }

    /// Waits until a server that cannot go on has ended: its exit code.
    pub fn ends(mut self) -> i32 {
        eventually("the server ends by itself", || self.child.try_wait().unwrap()).code().unwrap_or(-1)
    }

    /// What the server said on standard error.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.site.join("server.log")).unwrap_or_default()
    }

    /// Where it listens, `host:port`.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// The directory it serves.
    pub fn site(&self) -> &Path {
        &self.site
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The most memory it ever had, in bytes.
    pub fn most_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Asks the API; `None` when nobody answers.
    pub fn get(&self, path: &str) -> Option<Answer> {
        let response = self.http.get(format!("{}{path}", self.url)).send().ok()?;
        let position = response
            .headers()
            .get("gatelog-position")
            .and_then(|value| value.to_str().ok()?.split(',').next()?.rsplit(':').next()?.parse().ok())
            .unwrap_or(0);
        Some(Answer { status: response.status().as_u16(), position, body: response.text().ok()? })
    }

    /// The JSON of a path that must be there.
    pub fn json(&self, path: &str) -> Json {
        let answer = self.get(path).unwrap_or_else(|| panic!("{path}: no answer\n{}", self.log()));
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    }

    /// The newest verdict of a pipeline on a change.
    pub fn verdict(&self, pipeline: &str, project: &str, name: &str) -> Option<String> {
        self.verdict_of("test", pipeline, project, name)
    }

    fn verdict_of(&self, tenant: &str, pipeline: &str, project: &str, name: &str) -> Option<String> {
        let path = format!(
            "/api/tenant/{tenant}/buildsets?pipeline={pipeline}&project={project}&change=master/{name}&limit=1"
        );
        let answer = self.get(&path)?;
        answer.json()[0]["result"].as_str().map(str::to_owned)
    }

    /// Waits for the verdict of a pipeline on a change.
    pub fn wait_verdict(&self, pipeline: &str, project: &str, name: &str) -> String {
        self.verdict_in("test", pipeline, project, name)
    }

    /// Waits for the verdict of a tenant's pipeline on a change.
    pub fn verdict_in(&self, tenant: &str, pipeline: &str, project: &str, name: &str) -> String {
        let began = std::time::Instant::now();
        loop {
            if let Some(verdict) = self.verdict_of(tenant, pipeline, project, name) {
                return verdict;
            }
            if began.elapsed() > PATIENCE {
                let status = self.get(&format!("/api/tenant/{tenant}/status")).map(|answer| answer.body);
                panic!("no verdict of {tenant} {pipeline} on {project} {name}: {status:?}\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the tenant's configuration is in force.
    pub fn wait_configured(&self) {
        eventually("the configuration is in force", || {
            let status = self.get("/api/tenant/test/status")?;
            let configured = status.json()["pipelines"].as_array().is_some_and(|pipelines| !pipelines.is_empty());
            (status.status == 200 && configured).then_some(())
        });
    }

    /// Waits until no item is in any pipeline.
    pub fn wait_idle(&self) {
        eventually("all queues are empty", || self.is_idle().then_some(()));
    }

    /// Whether it says that no item is in any pipeline.
    pub fn is_idle(&self) -> bool {
        let Some(answer) = self.get("/api/tenant/test/status") else { return false };
        let status = answer.json();
        let Some(pipelines) = status["pipelines"].as_array() else { return false };
        pipelines.iter().all(|pipeline| {
            pipeline["change_queues"].as_array().is_none_or(|queues| {
                queues.iter().all(|queue| {
                    queue["heads"]
                        .as_array()
                        .is_none_or(|heads| heads.iter().all(|head| head.as_array().is_none_or(Vec::is_empty)))
                })
            })
        })
    }

    /// SIGKILL, whatever it is doing.
    pub fn kill_now(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop and waits until it has.
    pub fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        eventually("the server stops when it is asked to", || self.child.try_wait().unwrap());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processes whose command line or environment names a path: what a site left running.
pub fn processes_of(site: &Path) -> Vec<String> {
    let needle = site.to_string_lossy().into_owned();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        if pid == std::process::id() {
            continue;
        }
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let command = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        let environment = String::from_utf8_lossy(&read("environ")).into_owned();
        if command.contains(&needle) || environment.contains(&needle) {
            found.push(format!("{pid} {command}"));
        }
    }
    found
}

/// What of a site still does anything: [`processes_of`] without a sandbox that was never finished. Bubblewrap's inner
/// process waits for its maker before it asks to die with it, so one whose maker is killed in that moment waits for
/// ever, alone; the next start of the executor ends it.
pub fn running_of(site: &Path) -> Vec<String> {
    let unfinished = |pid: &str| {
        let read = |name: String| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
        read("comm".to_owned()).is_ok_and(|name| name.trim() == "bwrap")
            && read(format!("task/{pid}/children")).is_ok_and(|children| children.trim().is_empty())
    };
    processes_of(site).into_iter().filter(|one| !unfinished(one.split(' ').next().unwrap_or_default())).collect()
}
