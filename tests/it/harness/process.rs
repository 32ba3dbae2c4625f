//! The server as a process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value as Json;

use super::{eventually, host};

/// A server process. Killed when dropped.
pub struct Server {
    child: Child,
    site: PathBuf,
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
        let _ = std::fs::remove_file(site.join("server.json"));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(site.join("server.log")).unwrap();
        let child = Command::new(host::binary())
            .args(["serve", "--dir"])
            .arg(site)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let http = reqwest::blocking::Client::builder().timeout(Duration::from_secs(20)).no_proxy().build().unwrap();
        let mut server = Server { child, site: site.to_path_buf(), url: String::new(), http };
        server.url = eventually("the server says where it is", || {
            if let Some(status) = server.child.try_wait().unwrap() {
                panic!("the server ended with {status}:\n{}", server.log());
            }
            let text = std::fs::read_to_string(site.join("server.json")).ok()?;
            Some(serde_json::from_str::<Json>(&text).ok()?["url"].as_str()?.to_owned())
        });
        eventually("the server answers", || server.get("/api/tenants"));
        server
    }

    /// What the server said on standard error.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.site.join("server.log")).unwrap_or_default()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks the API; `None` when nobody answers.
    pub fn get(&self, path: &str) -> Option<Answer> {
        let response = self.http.get(format!("{}{path}", self.url)).send().ok()?;
        let position = response
            .headers()
            .get("gatelog-position")
            .and_then(|value| value.to_str().ok()?.rsplit(':').next()?.parse().ok())
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
        let path =
            format!("/api/tenant/test/buildsets?pipeline={pipeline}&project={project}&change=master/{name}&limit=1");
        let answer = self.get(&path)?;
        answer.json()[0]["result"].as_str().map(str::to_owned)
    }

    /// Waits for the verdict of a pipeline on a change.
    pub fn wait_verdict(&self, pipeline: &str, project: &str, name: &str) -> String {
        eventually(&format!("{pipeline} has a verdict on {project} {name}"), || self.verdict(pipeline, project, name))
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
        eventually("all queues are empty", || {
            let status = self.get("/api/tenant/test/status")?.json();
            let empty = status["pipelines"].as_array()?.iter().all(|pipeline| {
                pipeline["change_queues"].as_array().is_none_or(|queues| {
                    queues.iter().all(|queue| {
                        queue["heads"]
                            .as_array()
                            .is_none_or(|heads| heads.iter().all(|head| head.as_array().is_none_or(Vec::is_empty)))
                    })
                })
            });
            empty.then_some(())
        });
    }

    /// SIGKILL, whatever it is doing.
    pub fn kill(mut self) {
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
