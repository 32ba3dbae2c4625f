//! What git lets through, and what somebody with a hex editor gets past git.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{PROJECT_OTHER, contains};
use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::{Server, Site, host};

/// Feeds `git fast-import` in a clone.
fn fast_import(clone: &Path, feed: impl FnOnce(&mut dyn Write)) {
    let mut child = Command::new("git")
        .arg("-C")
        .arg(clone)
        .args(["fast-import", "--quiet", "--force"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufWriter::new(child.stdin.take().unwrap());
    feed(&mut out);
    drop(out);
    assert!(child.wait().unwrap().success());
}

fn head_of(site: &Site, project: &str) -> String {
    let bare = site.forge().path(project).unwrap();
    site.git(&bare, &["rev-parse", "master"]).trim().to_owned()
}

/// A server of two projects, where what happens to `project` must not stop `other`; a clone of `project`, and the tip of
/// its branch.
fn begun() -> (Site, Server, PathBuf, String) {
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT), ("other", PROJECT_OTHER)]);
    let server = site.start();
    server.wait_configured();
    let (clone, head) = (site.clone_of("project"), head_of(&site, "project"));
    (site, server, clone, head)
}

/// Everything works afterwards, in the project that was attacked too.
fn works_on(site: &Site, server: &Server, round: &str) {
    for project in ["other", "project"] {
        let name = format!("after-{round}");
        site.push(project, &name, &name, &[(&format!("{round}.txt"), "a")]);
        assert_eq!(server.wait_verdict("check", project, &name), "SUCCESS", "{project}: {}", server.log());
    }
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[test]
fn hostile_ref_names_are_passed_over_and_recorded_with_the_reason() {
    if !host::can_build("hostile ref names") {
        return;
    }
    let site = Site::new(&[
        ("config", CONFIG),
        ("project", PROJECT),
        ("other", PROJECT_OTHER),
        ("damaged", &[("zuul.yaml", "- project:\n    check:\n      jobs: [other]\n")]),
    ]);
    let server = site.start();
    server.wait_configured();
    let clone = site.clone_of("project");
    let bare = site.forge().path("project").unwrap();
    let head = head_of(&site, "project");
    // What git takes: long names, names in any bytes but control characters. Who pushes what means nothing is told so.
    let long = "x".repeat(200);
    let deep = "d/".repeat(100);
    site.git(&clone, &["push", "--quiet", "origin", &format!("{head}:refs/heads/{long}")]);
    let nameless = (format!("refs/for/master/{long}"), "1 to 100 bytes");
    for (name, why) in [nameless, ("refs/for/master/\u{202e}evil".to_owned(), "is in master already")] {
        let said = site.try_git(&clone, &["push", "--quiet", "origin", &format!("{head}:{name}")]).unwrap_err();
        contains(&said, &["gatelog: refused: refs/for/master/", why]);
        // What git itself says of it is git's.
        let ours = said.lines().filter(|line| line.starts_with("remote: ")).collect::<String>();
        assert!(!ours.contains('\u{202e}'), "{said}");
    }
    let (long_change, evil) = (format!("refs/for/master/{long}"), "refs/for/master/\u{202e}evil");
    // Nested too deep, they would hide others from whoever lists refs: such a push is refused.
    for name in [format!("refs/for/{deep}name"), format!("refs/tags/{deep}tag")] {
        let mut push = std::process::Command::new("git");
        let pushed = push.arg("-C").arg(&clone).args(["push", "--quiet", "origin", &format!("{head}:{name}")]);
        let pushed = pushed.output().unwrap();
        assert!(!pushed.status.success());
        contains(&String::from_utf8_lossy(&pushed.stderr), &["60 levels at most"]);
    }
    // What got past the hook is passed over.
    let bad: [&[u8]; 6] = [
        long_change.as_bytes(),
        evil.as_bytes(),
        b"refs/for/master/not-utf8-\xff\xfe",
        b"refs/heads/not-utf8-\xc3\x28",
        b"refs/tags/\x80\x81",
        b"refs/approved/master/\xff",
    ];
    fast_import(&bare, |out| {
        for name in bad {
            out.write_all(&[b"reset ", name, b"\nfrom ", head.as_bytes(), b"\n\n"].concat()).unwrap();
        }
    });
    // What git would not take, written into another repository by hand, to its damage.
    let damaged = site.forge().path("damaged").unwrap();
    for name in ["evil\u{1b}[2J", "evil\u{7}bell", "tab\there"] {
        for kind in ["for/master", "heads", "tags"] {
            std::fs::create_dir_all(damaged.join("refs").join(kind)).unwrap();
            std::fs::write(damaged.join("refs").join(kind).join(name), format!("{head}\n")).unwrap();
        }
    }
    works_on(&site, &server, "names");
    let log = server.log();
    server.stop();
    // Each is on the record, with what is wrong with it.
    let intake = site.events("intake");
    let ignored: Vec<String> =
        intake.iter().filter(|event| event["body"]["event"] == "ref-ignored").map(ToString::to_string).collect();
    for words in [&long[..80], "not-utf8"] {
        assert!(ignored.iter().any(|event| event.contains(words)), "{words}: {ignored:#?}\n{log}");
    }
    contains(&ignored.join("\n"), &["1 to 100 bytes", "git does not allow such a ref name"]);
    let (code, out, err) = site.gatelog(&["log", "verify"]);
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn large_commits_are_taken_in_or_refused_by_name() {
    if !host::can_build("large commits") {
        return;
    }
    let (site, server, clone, head) = begun();
    let before = server.most_memory();
    let who = "Dana <dana@example.org> 1700000000 +0000";
    fast_import(&clone, |out| {
        // A message of 10 MB: ten megabytes of lines that look like trailers.
        let message = "subject\n\n".to_owned() + &"Depends-On: https://git.test/nothing/+/master/x\n".repeat(218_000);
        writeln!(out, "commit refs/heads/message\ncommitter {who}\ndata {}\n{message}", message.len()).unwrap();
        writeln!(out, "from {head}\nM 644 inline message.txt\ndata 1\na").unwrap();
        // A hundred thousand files.
        writeln!(out, "blob\nmark :1\ndata 1\na").unwrap();
        writeln!(out, "commit refs/heads/files\ncommitter {who}\ndata 5\nfiles\nfrom {head}").unwrap();
        for number in 0..100_000 {
            writeln!(out, "M 644 :1 many/{}/{number}", number % 1_000).unwrap();
        }
        // Names that are no UTF-8, that are control characters, that are long.
        writeln!(out, "commit refs/heads/names\ncommitter {who}\ndata 5\nnames\nfrom {head}").unwrap();
        for name in [&b"not-utf8-\xff\xfe.txt"[..], b"zuul.d/\xff.yaml", b"roles/\xc3\x28/tasks/main.yml"] {
            out.write_all(&[b"M 644 :1 ", name, b"\n"].concat()).unwrap();
        }
        writeln!(out, "M 644 :1 \"esc\\033[2J.txt\"\nM 644 :1 \"new\\nline\"\nM 644 :1 {}", "l".repeat(255)).unwrap();
    });
    for name in ["message", "files", "names"] {
        site.git(&clone, &["push", "--quiet", "origin", &format!("refs/heads/{name}:refs/for/master/{name}")]);
    }
    for name in ["message", "files"] {
        assert_eq!(server.wait_verdict("check", "project", name), "SUCCESS", "{name}: {}", server.log());
    }
    // `zuul.yaml` is there, so `zuul.d` is not read; names that are no UTF-8 are but files.
    assert_eq!(server.wait_verdict("check", "project", "names"), "SUCCESS", "{}", server.log());
    works_on(&site, &server, "commits");
    // They merge, too.
    site.git(&clone, &["push", "--quiet", "origin", "refs/heads/files:refs/approved/master/files"]);
    assert_eq!(server.wait_verdict("gate", "project", "files"), "SUCCESS", "{}", server.log());
    assert!(server.most_memory() < before + (600 << 20), "{} bytes were used", server.most_memory());
    server.stop();
    let (code, out, err) = site.gatelog(&["replay", "verify"]);
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn ten_thousand_refs_in_one_push_are_taken_in() {
    if !host::can_build("ten thousand refs") {
        return;
    }
    let (site, server, clone, head) = begun();
    let before = server.most_memory();
    // Tags, and proposals for branches that are not there.
    let refs = |out: &mut dyn Write| {
        for number in 0..10_000 {
            let kind = if number % 2 == 0 { "refs/tags/t" } else { "refs/for/nowhere/c" };
            writeln!(out, "reset {kind}{number}\nfrom {head}\n").unwrap();
        }
    };
    fast_import(&clone, refs);
    let push = ["push", "--quiet", "origin", "refs/tags/*:refs/tags/*", "refs/for/nowhere/*:refs/for/nowhere/*"];
    let said = site.try_git(&clone, &push).unwrap_err();
    contains(
        &said,
        &["project has no branch nowhere; it has master", "and 4990 more refs", "push the other refs by themselves"],
    );
    // The same past the hook.
    fast_import(&site.forge().path("project").unwrap(), refs);
    works_on(&site, &server, "refs");
    assert!(server.most_memory() < before + (400 << 20), "{} bytes were used", server.most_memory());
    server.stop();
    let intake = site.events("intake");
    let of = |event: &str, start: &str| {
        let fits = |body: &serde_json::Value| {
            body["event"] == event && body["git_ref"].as_str().is_some_and(|name| name.starts_with(start))
        };
        intake.iter().filter(|record| fits(&record["body"])).count()
    };
    assert_eq!(of("ref-updated", "refs/tags/t"), 5_000);
    assert_eq!(of("ref-ignored", "refs/for/nowhere/c"), 5_000, "each is told that the branch is missing");
}
