//! The plain-git forge as people use it: `gatelog project`, and what a push is told in the pusher's terminal.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::{Site, host, write_files};

/// Runs gatelog where it has to succeed; what it prints.
#[track_caller]
fn run(site: &Site, arguments: &[&str]) -> String {
    let (code, out, err) = site.gatelog(arguments);
    assert_eq!(code, 0, "{arguments:?}: {out}{err}");
    out
}

/// Runs gatelog where it says no; its exit code, and what it says.
#[track_caller]
fn refused(site: &Site, arguments: &[&str]) -> (i32, String) {
    let (code, out, err) = site.gatelog(arguments);
    assert_ne!(code, 0, "{arguments:?}: {out}{err}");
    (code, err)
}

/// Pushes from a clone; whether it went through, and what the pusher reads behind `remote: `.
fn push(site: &Site, clone: &Path, refspecs: &[&str]) -> (bool, String) {
    let arguments: Vec<&str> = ["push", "--force", "origin"].iter().chain(refspecs).copied().collect();
    let (done, _, err) = site.git_said(clone, &arguments);
    let remote = err.lines().filter_map(|line| line.strip_prefix("remote: ")).map(str::trim_end);
    (done, remote.collect::<Vec<_>>().join("\n"))
}

/// A commit in a clone, on what it stands on.
fn commit(site: &Site, clone: &Path, file: &str) -> String {
    write_files(clone, &[(file, file)]);
    site.git(clone, &["add", "--all"]);
    site.git(clone, &["commit", "--quiet", "--message", file]);
    site.git(clone, &["rev-parse", "HEAD"]).trim().to_owned()
}

/// A site with one project, which no tenant need know.
fn with_app() -> (Site, PathBuf, PathBuf) {
    let site = Site::without_projects();
    run(&site, &["project", "add", "app", "--tenant", "test"]);
    site.begin("app", PROJECT);
    let (clone, bare) = (site.clone_of("app"), site.path().join("forge/app.git"));
    (site, clone, bare)
}

fn listed(site: &Site, project: &str) -> Json {
    let all: Json = serde_json::from_str(&run(site, &["project", "list", "--json"])).unwrap();
    all.as_array().unwrap().iter().find(|one| one["name"] == project).cloned().unwrap_or(Json::Null)
}

#[test]
fn a_new_user_gets_from_an_empty_directory_to_a_merged_change() {
    if !host::can_build("a new user's first change") {
        return;
    }
    let site = Site::without_projects();
    assert!(run(&site, &["project", "list"]).contains("there is no project yet; `gatelog project add NAME"));
    let said = run(&site, &["project", "add", "config", "--tenant", "test", "--config-project"]);
    assert!(said.contains("config: made ") && said.contains("tenant test has it: line 6 of "), "{said}");
    let said = run(&site, &["project", "add", "app", "--branch", "master"]);
    for word in ["branches: master (default: master)", "no tenant has it yet", "untrusted-projects:", "- app"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let text = "- tenant:\n    name: test\n    source:\n      forge:\n        config-projects:\n          - config\n";
    assert_eq!(std::fs::read_to_string(site.path().join("tenants.yaml")).unwrap(), text);

    // The configuration is the first commit of its project; the application's was made with it.
    site.begin("config", CONFIG);
    let clone = site.clone_of("app");
    site.git(site.path(), &["clone", "--quiet", "forge/app.git", clone.to_str().unwrap()]);
    write_files(&clone, PROJECT);
    site.git(&clone, &["add", "--all"]);
    site.git(&clone, &["commit", "--quiet", "--message", "Second"]);
    let (done, told) = push(&site, &clone, &["HEAD:master"]);
    assert!(
        done && told.contains("no tenant has app yet") && told.contains("gatelog project add app --tenant"),
        "{told}"
    );
    run(&site, &["project", "add", "app", "--tenant", "test"]);

    let server = site.start();
    server.wait_configured();
    commit(&site, &clone, "a.txt");
    let (done, told) = push(&site, &clone, &["HEAD:refs/for/master/first"]);
    let page = format!("gatelog: tenant test: http://{}/t/test/status", server.address());
    assert!(done, "{told}");
    assert_eq!(told, format!("gatelog: proposed master/first\n{page}"));
    assert_eq!(server.wait_verdict("check", "app", "first"), "SUCCESS", "{}", server.log());
    let (done, told) = push(&site, &clone, &["HEAD:refs/approved/master/first"]);
    assert!(done && told.starts_with("gatelog: approved master/first\ngatelog: tenant test: "), "{told}");
    assert_eq!(server.wait_verdict("gate", "app", "first"), "SUCCESS", "{}", server.log());
    server.wait_idle();
    assert_eq!(site.merged("app"), ["Begin app", "Second", "a.txt"]);
    let app = listed(&site, "app");
    assert_eq!((&app["open_changes"], &app["hooks"]["well"]), (&0.into(), &true.into()), "{app:#}");
    assert_eq!(app["tenants"], serde_json::json!([{ "name": "test", "type": "untrusted" }]));
    assert!(!server.log().contains("hooks are not well"), "{}", server.log());
    server.stop();
}

#[test]
fn a_push_that_means_nothing_is_refused_with_the_reason_and_the_cure() {
    let (site, clone, bare) = with_app();
    site.git(&clone, &["push", "--quiet", "origin", "master:stable/1.0"]);
    let fix = commit(&site, &clone, "a.txt");
    let tree = site.git(&clone, &["rev-parse", "HEAD^{tree}"]).trim().to_owned();
    let blob = site.git(&clone, &["rev-parse", "HEAD:a.txt"]).trim().to_owned();
    site.git(&clone, &["checkout", "--quiet", "--orphan", "elsewhere"]);
    let orphan = commit(&site, &clone, "b.txt");
    let has = "app has no branch";
    for (refspec, reason, cure) in [
        (format!("{fix}:refs/for/mastre/fix"), has, "did you mean refs/for/master/fix?"),
        (format!("{fix}:refs/for/stable/1.0"), has, "a change has a name of its own: refs/for/stable/1.0/NAME"),
        (format!("{fix}:refs/for/master"), "is not usable", "a change has a name of its own: refs/for/master/NAME"),
        (format!("{fix}:refs/for/unheard/fix"), "it has master, stable/1.0", "push the branch first, or"),
        (format!("{fix}:refs/for/master/{}", "x".repeat(101)), "1 to 100 bytes", "choose another name"),
        (format!("{blob}:refs/for/master/fix"), "this is a file (a blob)", "git push origin HEAD:refs/for/master/fix"),
        (format!("{tree}:refs/for/master/fix"), "this is a directory (a tree)", "push a commit"),
        (
            "origin/master:refs/for/master/fix".to_owned(),
            "is in master already: there is nothing to merge",
            "on top of",
        ),
        (format!("{orphan}:refs/for/master/fix"), "have no commit in common", "git fetch origin master"),
        (format!("{fix}:refs/approved/master/fix"), "there is no change fix for master", "propose it first"),
        (format!("{fix}:refs/fro/master/fix"), "did you mean refs/for/master/fix?", ""),
        (format!("{fix}:refs/approve/master/fix"), "did you mean refs/approved/master/fix?", ""),
        (format!("{fix}:refs/tags/{}x", "d/".repeat(70)), "a ref may have 60 levels at most", "fewer slashes"),
    ] {
        let (done, told) = push(&site, &clone, &[&refspec]);
        assert!(!done && told.starts_with("gatelog: refused: refs/"), "{refspec}: {told}");
        assert!(told.contains(reason) && told.contains(cure), "{refspec}: {told}");
    }
    assert_eq!(site.git(&bare, &["for-each-ref", "--format=%(refname)"]), "refs/heads/master\nrefs/heads/stable/1.0\n");

    // An approval is for the commit that is proposed.
    assert!(push(&site, &clone, &[&format!("{fix}:refs/for/master/fix")]).0);
    let (done, told) = push(&site, &clone, &["origin/master:refs/approved/master/fix"]);
    assert!(!done && told.contains(&format!("and what is proposed is {}", &fix[..10])), "{told}");
    assert!(
        told.contains("git fetch origin refs/for/master/fix && git push origin FETCH_HEAD:refs/approved/master/fix")
    );
    // What gatelog keeps is closed, and its own refs are not shown.
    run(&site, &["project", "list"]);
    for name in ["refs/gatelog/patchsets/master/fix/1", "refs/notes/gatelog"] {
        assert!(!push(&site, &clone, &[&format!("{fix}:{name}")]).0, "{name}");
    }
    site.git(&bare, &["update-ref", "refs/gatelog/patchsets/master/fix/1", &fix]);
    let shown = site.git(&clone, &["ls-remote", "origin"]);
    assert!(shown.contains("refs/for/master/fix") && !shown.contains("refs/gatelog"), "{shown}");
}

#[test]
fn what_means_something_is_taken_whatever_comes_with_it() {
    let (site, clone, bare) = with_app();
    let fix = commit(&site, &clone, "a.txt");
    site.git(&clone, &["tag", "--annotate", "--message", "v", "v1"]);
    for refspecs in [
        // A branch, and a change for it; a change, and its approval; a tag that stands for a commit.
        vec!["origin/master:refs/heads/new".to_owned(), format!("{fix}:refs/for/new/one")],
        vec![format!("{fix}:refs/for/master/two"), format!("{fix}:refs/approved/master/two")],
        vec!["v1:refs/for/master/three".to_owned(), "v1:refs/tags/v1".to_owned()],
        // Two names for one commit, a branch directly, notes and refs of one's own, and all of it away again.
        vec![format!("{fix}:refs/for/master/four")],
        vec![format!("{fix}:refs/heads/master"), format!("{fix}:refs/notes/commits"), format!("{fix}:refs/mine/x")],
        vec![":refs/for/new/one".to_owned(), ":refs/heads/new".to_owned(), ":refs/mine/x".to_owned()],
        vec![":refs/approved/master/two".to_owned(), ":refs/for/master/two".to_owned()],
    ] {
        let names: Vec<&str> = refspecs.iter().map(String::as_str).collect();
        let (done, told) = push(&site, &clone, &names);
        assert!(done && !told.contains("refused"), "{refspecs:?}: {told}");
    }
    // Over SSH, as far as git knows: the same hooks.
    let next = commit(&site, &clone, "b.txt");
    let ssh = site.path().join("ssh");
    std::fs::write(&ssh, "#!/bin/sh\nshift\nexec sh -c \"$1\"\n").unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let by_ssh = |refspec: &str| {
        let (command, url) = (format!("core.sshCommand={}", ssh.display()), format!("ssh://forge{}", bare.display()));
        site.git_said(&clone, &["-c", &command, "-c", "ssh.variant=simple", "push", &url, refspec])
    };
    let (done, _, said) = by_ssh(&format!("{next}:refs/for/none/ssh"));
    assert!(!done && said.contains("remote: gatelog: refused: refs/for/none/ssh"), "{said}");
    let (done, _, said) = by_ssh(&format!("{next}:refs/for/master/ssh"));
    assert!(done && said.contains("remote: gatelog: proposed master/ssh"), "{said}");
    // With something that means nothing, nothing is taken, and that is said.
    let (done, told) =
        push(&site, &clone, &[&format!("{next}:refs/for/master/five"), &format!("{next}:refs/for/none/x")]);
    assert!(!done && told.contains("nothing of this push was taken: push the other refs by themselves"), "{told}");
}

#[test]
fn what_waits_is_told_with_the_push() {
    let site = Site::new(&[("config", CONFIG), ("app", PROJECT)]);
    let clone = site.clone_of("app");
    commit(&site, &clone, "a.txt");
    let mut number = 0;
    let mut told = || {
        number += 1;
        let (done, told) = push(&site, &clone, &[&format!("HEAD:refs/for/master/c{number}")]);
        assert!(done && told.starts_with(&format!("gatelog: proposed master/c{number}\n")), "{told}");
        told
    };
    let has =
        |said: String, words: &[&str]| words.iter().for_each(|word| assert!(said.contains(word), "{word}: {said}"));
    has(told(), &["it waits: no gatelog runs for ", "it is taken up when one starts: gatelog serve --dir"]);
    let tenants = std::fs::read_to_string(site.path().join("tenants.yaml")).unwrap();
    site.write("tenants.yaml", &tenants.replace("- app", "- ap"));
    has(told(), &["no tenant has app yet, so nothing is tested", "gatelog project add app --tenant TENANT"]);
    site.write("tenants.yaml", "- tenant:\n    nam: x\n");
    has(told(), &["it waits: no gatelog runs for", "its tenant file has an error: line 2"]);
    site.write("tenants.yaml", &tenants);
    let settings = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    site.write("gatelog.toml", &settings.replace("poll-ms", "pol-ms"));
    has(told(), &["it waits: no gatelog runs for", "and none can"]);
    site.write("gatelog.toml", &settings);

    let server = site.start();
    server.wait_configured();
    has(told(), &["gatelog: tenant test: http://"]);
    run(&site, &["pause", "--tenant", "test", "--reason", "the weekend"]);
    has(told(), &["it waits: tenant test is paused (the weekend)"]);
    run(&site, &["resume", "--tenant", "test"]);
    // A project that the server does not know of yet.
    run(&site, &["project", "add", "late", "--tenant", "test", "--branch", "master"]);
    let late = site.clone_of("late");
    site.git(site.path(), &["clone", "--quiet", "forge/late.git", late.to_str().unwrap()]);
    commit(&site, &late, "a.txt");
    let (done, said) = push(&site, &late, &["HEAD:refs/for/master/early"]);
    assert!(done && said.contains("does not know yet that tenant test has late; start it again"), "{said}");
    // One that was killed leaves its file behind.
    let mut server = server;
    server.kill_now();
    has(told(), &["it waits: no gatelog runs for "]);
}

#[test]
fn a_repository_that_is_there_is_taken_as_it_is() {
    let site = Site::without_projects();
    let forge = site.path().join("forge");
    std::fs::create_dir_all(&forge).unwrap();
    site.git(&forge, &["init", "--quiet", "--bare", "--initial-branch=trunk", "app.git"]);
    site.git(&forge.join("app.git"), &["config", "core.compression", "7"]);
    let hook = |name: &str| forge.join("app.git/hooks").join(name);
    let own = |name: &str, text: &str| {
        std::fs::write(hook(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(hook(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    own(
        "pre-receive",
        "while read -r old new ref; do echo \"mine saw $ref\"; case $ref in *secret*) exit 1;; esac; done",
    );
    own("update", "echo \"mine, too\"");
    let kept = std::fs::read(hook("pre-receive")).unwrap();
    let app = listed(&site, "app");
    assert_eq!(
        app["hooks"]["troubles"],
        serde_json::json!(["pre-receive is not gatelog's", "no post-receive"]),
        "{app:#}"
    );

    let said = run(&site, &["project", "add", "app", "--tenant", "test"]);
    assert!(said.contains("pre-receive was your own: it is kept as pre-receive.own, and run by the new one"), "{said}");
    assert_eq!(std::fs::read(hook("pre-receive.own")).unwrap(), kept);
    assert_eq!(listed(&site, "app")["hooks"]["well"], true);
    assert!(run(&site, &["project", "add", "app", "--tenant", "test"]).contains("is set up already"), "again: no harm");
    assert_eq!(site.git(&forge.join("app.git"), &["config", "core.compression"]), "7\n");
    assert_eq!(listed(&site, "app")["default_branch"], "trunk");

    let clone = site.clone_of("app");
    std::fs::create_dir_all(&clone).unwrap();
    site.git(&clone, &["init", "--quiet", "--initial-branch=trunk"]);
    site.git(&clone, &["remote", "add", "origin", forge.join("app.git").to_str().unwrap()]);
    commit(&site, &clone, "a.txt");
    let (done, told) = push(&site, &clone, &["HEAD:trunk"]);
    assert!(done && told.contains("mine saw refs/heads/trunk") && told.contains("mine, too"), "{told}");
    let (done, told) = push(&site, &clone, &["HEAD:refs/for/trunk/secret"]);
    assert!(!done && told == "mine saw refs/for/trunk/secret", "{told}");
    let (done, told) = push(&site, &clone, &["HEAD:refs/for/trunk/fix"]);
    assert!(!done && told.contains("mine saw refs/for/trunk/fix\ngatelog: refused"), "{told}");
    // A second one of the same kind has nowhere to go.
    own("pre-receive", "true");
    let (_, said) = refused(&site, &["project", "add", "app"]);
    assert!(said.contains("put what you need of the two into") && said.contains("pre-receive.own"), "{said}");
}

#[test]
fn repositories_that_cannot_be_taken_are_named_with_the_cure() {
    let site = Site::without_projects();
    let forge = site.path().join("forge");
    std::fs::create_dir_all(&forge).unwrap();
    let (code, said) = refused(&site, &["project", "add", "app.git"]);
    assert!(code == 2 && said.contains("call it app"), "{said}");
    site.git(&forge, &["init", "--quiet", "--bare", "bare"]);
    let (_, said) = refused(&site, &["project", "add", "bare"]);
    assert!(said.contains("has no .git") && said.contains("rename it: mv "), "{said}");
    site.git(&forge, &["init", "--quiet", "work.git"]);
    let (_, said) = refused(&site, &["project", "add", "work"]);
    assert!(said.contains("is no bare repository") && said.contains("--import PATH"), "{said}");
    run(&site, &["project", "add", "Library"]);
    let (_, said) = refused(&site, &["project", "add", "library"]);
    assert!(said.contains("differs in upper and lower case only"), "{said}");
    site.git(&forge.join("Library.git"), &["config", "core.hooksPath", "/etc/hooks"]);
    let (_, said) = refused(&site, &["project", "add", "Library"]);
    assert!(said.contains("core.hooksPath") && said.contains("--unset"), "{said}");
    assert!(run(&site, &["project", "list"]).contains("Library: core.hooksPath is /etc/hooks"));
    let (_, said) = refused(&site, &["project", "add", "new", "--import", "/nowhere"]);
    assert!(said.contains("git could not fetch from /nowhere"), "{said}");
    assert!(!forge.join("new.git").exists(), "nothing is left of what did not come to be");
    let (_, said) = refused(&site, &["project", "add", "new", "--connection", "elsewhere"]);
    assert!(said.contains("has no [connection.elsewhere]") && said.contains("it has: forge"), "{said}");
    // A tenant file that cannot be written soundly is left alone, and nothing is made.
    let shared = "- tenant: {name: t, source: {other: {untrusted-projects: [a]}}}\n";
    site.write("tenants.yaml", shared);
    let (_, said) = refused(&site, &["project", "add", "new", "--tenant", "t"]);
    assert!(said.contains("is left as it is: line 1 is written in one line") && said.contains("- new"), "{said}");
    assert_eq!(std::fs::read_to_string(site.path().join("tenants.yaml")).unwrap(), shared);
    assert!(!forge.join("new.git").exists());
}

#[test]
fn a_repository_comes_from_elsewhere_with_branches_and_tags() {
    let site = Site::without_projects();
    let elsewhere = site.path().join("elsewhere");
    std::fs::create_dir_all(&elsewhere).unwrap();
    site.git(&elsewhere, &["init", "--quiet", "--initial-branch=trunk"]);
    commit(&site, &elsewhere, "a.txt");
    site.git(&elsewhere, &["branch", "stable/1.0"]);
    site.git(&elsewhere, &["tag", "v1"]);
    let said = run(&site, &["project", "add", "org/app", "--import", elsewhere.to_str().unwrap()]);
    assert!(said.contains("branches: stable/1.0, trunk (default: trunk)"), "{said}");
    let bare = site.path().join("forge/org/app.git");
    assert_eq!(site.git(&bare, &["tag"]), "v1\n");
    let (_, said) = refused(&site, &["project", "add", "org/app", "--import", elsewhere.to_str().unwrap()]);
    assert!(said.contains("has branches already"), "{said}");
    let table = run(&site, &["project", "list"]);
    let words: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(words, ["org/app", "forge", "stable/1.0", "trunk", "none", "0", "well"], "{table}");
}

#[test]
fn a_project_is_removed_and_can_be_brought_back() {
    let (site, clone, bare) = with_app();
    commit(&site, &clone, "a.txt");
    assert!(push(&site, &clone, &["HEAD:refs/for/master/fix"]).0);
    let (code, said) = refused(&site, &["project", "remove", "app"]);
    assert!(
        code == 5 && said.contains("tenant test has app") && said.contains("take app out of untrusted-projects in"),
        "{said}"
    );
    assert!(bare.exists());
    site.write("tenants.yaml", "- tenant:\n    name: test\n");
    let said = run(&site, &["project", "remove", "app"]);
    assert!(said.contains("all of it is kept in") && said.contains("it had 1 open change\n"), "{said}");
    assert!(!bare.exists() && listed(&site, "app").is_null());
    let back = said.lines().find_map(|line| line.strip_prefix("to bring it back: mv ")).unwrap();
    let (from, to) = back.split_once(' ').unwrap();
    std::fs::rename(from, to).unwrap();
    assert_eq!(listed(&site, "app")["open_changes"], 1);
    run(&site, &["project", "remove", "app", "--delete"]);
    assert_eq!(std::fs::read_dir(site.path().join("forge/.removed")).unwrap().count(), 0);
    assert_eq!(refused(&site, &["project", "remove", "app"]).0, 3);
}

#[test]
fn a_forge_whose_gatelog_is_gone_takes_pushes_and_says_so() {
    let (site, clone, bare) = with_app();
    commit(&site, &clone, "a.txt");
    let name = |program: &str| {
        for hook in ["pre-receive", "post-receive"] {
            let path = bare.join("hooks").join(hook);
            let text = std::fs::read_to_string(&path).unwrap();
            let line = text.lines().find(|line| line.starts_with("program=")).unwrap().to_owned();
            std::fs::write(&path, text.replace(&line, &format!("program='{program}'"))).unwrap();
        }
    };
    name("/gone/gatelog");
    let (done, told) = push(&site, &clone, &["HEAD:refs/for/nowhere/fix"]);
    assert!(done, "{told}");
    for word in ["this push is taken unchecked", "gatelog project add app", "gatelog: proposed nowhere/fix"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    assert!(run(&site, &["project", "list"]).contains("pre-receive asks /gone/gatelog, which is not there"));
    let (_, doctor, _) = site.gatelog(&["doctor", "--role", "connections"]);
    assert!(
        doctor.contains("app: pre-receive asks /gone/gatelog") && doctor.contains("gatelog project add app"),
        "{doctor}"
    );
    // Refs that would hide others are refused in any case.
    let (done, told) = push(&site, &clone, &[&format!("HEAD:refs/for/{}x", "d/".repeat(70))]);
    assert!(!done && told.contains("60 levels at most"), "{told}");
    // One that fails, as one of another release may, refuses nothing either.
    let broken = site.path().join("broken");
    std::fs::write(&broken, "#!/bin/sh\nexit 2\n").unwrap();
    std::fs::set_permissions(&broken, std::fs::Permissions::from_mode(0o755)).unwrap();
    name(broken.to_str().unwrap());
    let (done, told) = push(&site, &clone, &["HEAD:refs/for/nowhere/again"]);
    assert!(done && told.contains("this push is taken unchecked") && told.contains("proposed nowhere/again"), "{told}");
    let said = run(&site, &["project", "add", "app"]);
    assert!(said.contains("added: hook pre-receive\n") && said.contains("added: hook post-receive\n"), "{said}");
    assert!(!push(&site, &clone, &["HEAD:refs/for/nowhere/more"]).0);
}
