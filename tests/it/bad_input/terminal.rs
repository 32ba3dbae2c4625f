//! Text from outside does not take over the terminal of whoever looks: no command prints a control
//! character, an escape sequence, or a sign that turns the direction of text, that came from outside.

use crate::harness::projects::{CONFIG, JOBS, PLAYBOOK};
use crate::harness::{Site, host};

/// An escape sequence, its one-byte form, a bell, a delete, a carriage return, and a sign that makes
/// what follows read from right to left.
const EVIL: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{7f}\r\u{202e}txt";
/// The same, as YAML writes it in double quotes.
const EVIL_YAML: &str = r"\e[2J\e]0;owned\a\x9b31m\x7f\r\u202etxt";

/// What must not be in a text for a terminal.
fn raw(text: &str) -> Vec<char> {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
    text.chars().filter(|c| (c.is_control() && *c != '\n') || turns(*c)).collect()
}

#[test]
fn hostile_text_never_reaches_a_terminal_as_it_is() {
    if !host::can_build("hostile text on the terminal") {
        return;
    }
    let jobs = format!(
        "{JOBS}\n- job:\n    name: evil\n    description: \"{EVIL_YAML}\"\n    run: playbooks/evil.yaml\n\
         \x20   failure-message: \"{EVIL_YAML}\"\n    vars:\n      evil: \"{EVIL_YAML}\"\n"
    )
    .replace("jobs: [verdict]", "jobs: [evil]");
    let playbook = format!("{PLAYBOOK}    - fail:\n        msg: \"{EVIL_YAML}\"\n");
    let site = Site::new(&[
        ("config", CONFIG),
        ("project", &[("zuul.yaml", &jobs), ("playbooks/evil.yaml", &playbook), ("verdict", "good\n")]),
    ])
    .with_author(&format!("Mallory {}", EVIL.replace('\r', "")), "mallory@example.org");
    let server = site.start();
    server.wait_configured();
    let message = format!("{EVIL}\n\nDepends-On: https://git.test/{EVIL}\nDepends-On: {EVIL}\n");
    site.push("project", "evil-\u{202e}txt", &message, &[("a.txt", "a")]);
    assert_eq!(server.wait_verdict("check", "project", "evil-%E2%80%AEtxt"), "FAILURE", "{}", server.log());
    // Configuration that is wrong, and quoted in what is said of it.
    let wrong = format!("- job:\n    name: \"{EVIL_YAML}\"\n    \"{EVIL_YAML}\": 1\n    parent: \"{EVIL_YAML}\"\n");
    site.push("project", "wrong", EVIL, &[("zuul.yaml", &wrong)]);
    assert_eq!(server.wait_verdict("check", "project", "wrong"), "CONFIG_ERROR", "{}", server.log());
    // Refs that are no changes are refused; past the hook they are passed over, with a reason that names them.
    let clone = site.clone_of("project");
    let bare = site.forge().path("project").unwrap();
    for name in ["refs/for/nowhere/\u{202e}txt", "refs/for/master/\u{9b}31m"] {
        let said = site.try_git(&clone, &["push", "--quiet", "origin", &format!("HEAD:{name}")]).unwrap_err();
        let hook = said.lines().filter(|line| line.contains("gatelog: refused")).collect::<String>();
        assert!(!hook.is_empty() && !hook.contains(['\u{202e}', '\u{9b}']), "{said}");
        site.git(&bare, &["update-ref", name, "master"]);
    }
    site.git(&clone, &["push", "--quiet", "origin", "HEAD:refs/tags/\u{9b}31m"]);
    site.push("project", "last", "last", &[("b.txt", "b")]);
    server.wait_verdict("check", "project", "last");

    let commands: Vec<Vec<&str>> = vec![
        vec!["status"],
        vec!["status", "--json"],
        vec!["explain", "wrong"],
        vec!["explain", "wrong", "--json"],
        vec!["explain", "evil-\u{202e}txt"],
        vec!["explain", "evil-\u{202e}txt", "--json"],
        vec!["explain", "evil-\u{202e}txt", "--job", "evil"],
        vec!["explain", EVIL],
        vec!["status", "--tenant", EVIL],
        vec!["log", "cat", "intake"],
        vec!["log", "cat", "intake", "--json"],
        vec!["log", "cat", "gate.inputs"],
        vec!["log", "cat", "gate.inputs", "--json"],
        vec!["log", "cat", "gate.events"],
        vec!["log", "cat", "gate.events", "--json"],
        vec!["log", "cat", "capacity.events", "--json"],
        vec!["log", "verify"],
        vec!["replay", "state", "--at", "20"],
        vec!["replay", "state", "--at", "20", "--json"],
        vec!["replay", "verify"],
    ];
    let ask = |round: &str| {
        for command in &commands {
            let (_, out, err) = site.gatelog(command);
            for (what, text) in [("stdout", &out), ("stderr", &err)] {
                let found = raw(text);
                let line = text.lines().find(|line| !raw(line).is_empty()).unwrap_or_default();
                assert!(found.is_empty(), "{round}: {command:?} printed {found:?} on {what}: {line:?}");
            }
            assert!(!out.is_empty() || !err.is_empty(), "{command:?} said nothing");
        }
    };
    ask("beside a server");
    let log = server.log();
    assert!(raw(&log).is_empty(), "the server's own log holds {:?}:\n{log:?}", raw(&log));
    server.stop();
    ask("without a server");
}
