//! What whoever runs gatelog has configured for git changes nothing: not what merges, not its commits, not the files of a
//! workspace.
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up shall fail")]

mod support;

use std::collections::BTreeMap;
use std::process::Command;

use gatelog_merging::*;
use support::*;

/// Set for the process that plays the story: libgit2 looks for its user's configuration once, when it is first used.
const PLAYS: &str = "GATELOG_TEST_PLAYS";

const LINES: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

/// Not a test of its own: what is played with one home and another.
#[test]
fn story() {
    if std::env::var_os(PLAYS).is_none() {
        return;
    }
    let site = Site::new();
    let (project, ann) = site.project("library", &[("a", LINES), ("b", "b\n")]);
    let base = ann.head();
    ann.change(&base, "one", &[("a", &LINES.replace('1', "one"))]);
    ann.change(&base, "two", &[("a", &LINES.replace('9', "nine"))]);
    ann.change(&base, "other", &[("a", &LINES.replace('1', "uno"))]);
    ann.change(&base, "moved", &[("a", "-"), ("b", "-"), ("x", LINES), ("y", "b\n")]);
    let mut seen = Vec::new();
    for mode in MergeMode::ALL {
        for names in [["one", "two"], ["one", "other"], ["one", "moved"]] {
            let items = names.map(|name| item(&project, name, None, mode)).to_vec();
            let outcome = site.mirrors.prepare(&request("work", items)).unwrap();
            seen.push(match &outcome {
                PrepareOutcome::Merged(done) => format!("{mode:?} {names:?} {}", done.branches[0].commit),
                PrepareOutcome::Conflict(conflict) => format!("{mode:?} {names:?} {}", conflict.message),
            });
        }
    }
    let done = merged(site.mirrors.prepare(&request("work", vec![item(&project, "one", None, MergeMode::Merge)])));
    let destination = site.dir.path().join("workspace");
    let asked = WorkspaceRequest {
        project: project.clone(),
        destination: destination.clone(),
        branch: None,
        commit: done.branches[0].commit.clone(),
        branches: BTreeMap::new(),
        sharing: ObjectSharing::Copy,
        files: true,
    };
    site.mirrors.clone_workspace(&asked).unwrap();
    let files = site.dir.path().join("files");
    site.mirrors.materialize(&project, &done.branches[0].commit, &files).unwrap();
    for place in [destination, files] {
        seen.push(format!("{:?}", std::fs::read_to_string(place.join("a")).unwrap()));
    }
    seen.iter().for_each(|line| println!("SEEN {line}"));
}

fn played(home: &std::path::Path) -> Vec<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "story", "--nocapture"]).env(PLAYS, "1").env("HOME", home).env_remove("XDG_CONFIG_HOME");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().filter_map(|line| line.split_once("SEEN ").map(|(_, seen)| seen.to_owned())).collect()
}

#[test]
fn what_merges_and_what_is_written_is_the_same_whoever_runs_it() {
    let (plain, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let configuration = "[merge]\n\tdefault = union\n\trenameLimit = 1\n[diff]\n\trenameLimit = 1\n\
                         [core]\n\tautocrlf = true\n\teol = crlf\n\tfileMode = false\n[user]\n\tname = Own\n\temail = own@example.org\n";
    std::fs::write(own.path().join(".gitconfig"), configuration).unwrap();
    std::fs::create_dir_all(own.path().join(".config/git")).unwrap();
    std::fs::write(own.path().join(".config/git/attributes"), "* text eol=crlf merge=union\n").unwrap();
    let (one, other) = (played(plain.path()), played(own.path()));
    assert_eq!(one, other);
    for mode in MergeMode::ALL {
        let told = |names: &str| one.iter().find(|line| line.starts_with(&format!("{mode:?} {names}"))).unwrap();
        assert!(!told(r#"["one", "two"]"#).contains("conflict"), "{one:?}");
        assert!(told(r#"["one", "other"]"#).contains("merge conflict in a"), "{one:?}");
    }
    assert_eq!(one.iter().filter(|line| line.contains("one\\n2\\n")).count(), 2, "{one:?}");
}
