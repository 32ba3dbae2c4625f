//! Mirrors of repositories on other hosts: a real git server over HTTP that asks for a password.
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up shall fail")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use gatelog_merging::*;
use support::*;

/// `Basic` and base64 of `gate:s3cret`.
const RIGHT: &str = "Basic Z2F0ZTpzM2NyZXQ=";

/// A server over HTTP; it ends with this.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(root: &Path) -> Server {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/remote/server.py");
        let mut child = Command::new("python3")
            .arg(script)
            .arg(root)
            .arg("gate:s3cret")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Server { child, port: line.trim().parse().unwrap() }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A site with a project that is reached over HTTP.
fn site() -> (Site, ProjectKey, Person, Server) {
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", "1\n")]);
    let server = Server::start(&site.dir.path().join("forge"));
    site.mirrors.set_source(&project, &server.url("library.git")).unwrap();
    site.mirrors.set_access(&project, Some(Access::Header(RIGHT.into())));
    (site, project, ann, server)
}

#[test]
fn a_mirror_follows_a_repository_of_another_host() {
    let (site, project, ann, _server) = site();
    let change = ann.change("HEAD", "one", &[("b", "b\n")]);
    ann.checkout("master");
    let name = "refs/for/master/one";
    let fetched = site.mirrors.fetch(&project, &[name]).unwrap();
    assert_eq!(fetched.default_branch.as_deref(), Some("master"));
    assert_eq!(fetched.branches.keys().collect::<Vec<_>>(), ["master"]);
    assert_eq!(fetched.refs[name], change);

    // A branch comes and goes, a tag comes, and a branch needs the name of the one that went as a directory.
    ann.commit(&[("a", "2\n")], "second");
    ann.push("refs/heads/master");
    ann.push("refs/heads/stable");
    git(&ann.work, &["tag", "-a", "-m", "tag", "v1"]);
    git(&ann.work, &["push", "-q", "origin", "v1"]);
    let fetched = site.mirrors.fetch(&project, &[]).unwrap();
    assert_eq!(fetched.branches.keys().collect::<Vec<_>>(), ["master", "stable"]);
    assert_eq!(fetched.branches["master"], ann.head());
    git(&ann.work, &["push", "-q", "origin", ":stable"]);
    ann.push("refs/heads/stable/1.0");
    let fetched = site.mirrors.fetch(&project, &[]).unwrap();
    assert_eq!(fetched.branches.keys().collect::<Vec<_>>(), ["master", "stable/1.0"]);
    assert_eq!(site.mirrors.tags(&project).unwrap().keys().collect::<Vec<_>>(), ["v1"]);

    // The default branch is another once the one it was is gone.
    git(&ann.bare, &["symbolic-ref", "HEAD", "refs/heads/stable/1.0"]);
    git(&ann.work, &["push", "-q", "origin", ":master"]);
    let fetched = site.mirrors.fetch(&project, &[]).unwrap();
    assert_eq!(fetched.default_branch.as_deref(), Some("stable/1.0"));
    git(&site.mirrors.path(&project).unwrap(), &["fsck", "--strict"]);
}

#[test]
fn what_is_not_there_is_named() {
    let (site, project, _ann, server) = site();
    let missing = |refs: &[&str]| match site.mirrors.fetch(&project, refs) {
        Err(MergeError::MissingRef { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(missing(&["refs/changes/01/1/1"]), "refs/changes/01/1/1");
    site.mirrors.fetch(&project, &[]).unwrap();
    assert_eq!(missing(&["refs/changes/01/1/1"]), "refs/changes/01/1/1");
    assert_eq!(missing(&["refs/heads/none"]), "refs/heads/none");
    let other = ProjectKey::new("forge", "none");
    site.mirrors.set_source(&other, &server.url("none.git")).unwrap();
    site.mirrors.set_access(&other, Some(Access::Header(RIGHT.into())));
    let error = site.mirrors.fetch(&other, &[]).unwrap_err();
    assert!(matches!(error, MergeError::Vanished { .. }), "{error:?}");
}

#[test]
fn a_password_is_needed_goes_nowhere_else_and_is_never_written() {
    let (site, project, _ann, server) = site();
    for access in [None, Some(Access::Header("Basic d3Jvbmc6d3Jvbmc=".into()))] {
        site.mirrors.set_access(&project, access);
        let error = site.mirrors.fetch(&project, &[]).unwrap_err();
        assert!(matches!(error, MergeError::Git { .. }), "{error:?}");
    }
    site.mirrors.set_access(&project, Some(Access::Header(RIGHT.into())));
    // Who answers with another address does not get it there.
    site.mirrors.set_source(&project, &server.url("elsewhere/library.git")).unwrap();
    site.mirrors.fetch(&project, &[]).unwrap_err();
    site.mirrors.set_source(&project, &server.url("library.git")).unwrap();
    site.mirrors.fetch(&project, &[]).unwrap();
    let words = ["-r", "-l", "-a", "-e", "s3cret", "-e", "Z2F0ZTpzM2NyZXQ"];
    let found = Command::new("grep").args(words).arg(site.mirrors.root()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}
