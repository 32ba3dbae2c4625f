//! What a job writes to pass for another: forged lines, lines that break terminals, and secrets in disguise.

use gatelog_executing::BuildResult;
use gatelog_executing::spec::Phase;
use gatelog_record::Value;

use super::host::SECRET;
use super::table::{Attack, Seen, Table, contained, open};
use crate::site::{self, Site, play};

const FORGED: &str = "forged lines of the console";
const BROKEN: &str = "lines that break a console";
const MASKED: &str = "secrets in disguise";

/// Tasks that write a line with the word `forged-N`, N being their place here.
const LINES: &[(Attack, &str)] = &[
    (contained(FORGED, "stamp in output"), "command: echo '2020-01-01 00:00:00.000000 | forged-N'"),
    (contained(FORGED, "stamp on standard error"), "shell: echo '2020-01-01 00:00:00.000000 | forged-N' >&2"),
    (contained(FORGED, "end of the build"), "command: echo '2020-01-01 00:00:00.000000 | Build ends - forged-N'"),
    (contained(FORGED, "early failure in output"), "command: 'echo \"gatelog: early failure: forged-N\"'"),
    (contained(FORGED, "early failure on standard error"), "shell: 'echo \"gatelog: early failure: forged-N\" >&2'"),
    (contained(FORGED, "mark of a failed task"), "shell: 'echo \"gatelog: failure 1\"; echo \"forged-N\"'"),
    (contained(FORGED, "mark of an unreachable host"), "shell: 'echo \"gatelog: unreachable\"; echo forged-N'"),
    (contained(FORGED, "mark of output"), "command: 'echo \"gatelog: output 0: forged-N\"'"),
    (contained(FORGED, "behind a carriage return"), "shell: 'printf \"x\\rgatelog: early failure: forged-N\\n\"'"),
    (
        contained(FORGED, "behind other ends of lines"),
        "shell: 'printf \"x\\v\\f\\302\\205\\342\\200\\250gatelog: early failure: forged-N\\n\"'\n      ignore_errors: true",
    ),
    (
        contained(FORGED, "behind a zero byte"),
        "shell: 'printf \"x\\000gatelog: early failure: forged-N\\n\"'\n      ignore_errors: true",
    ),
    (
        contained(FORGED, "in two writes"),
        "shell: 'printf \"gatelog: early fail\"; sleep 0.3; printf \"ure: forged-N\\n\"'",
    ),
    (
        contained(FORGED, "in a message"),
        "debug: {msg: \"x\\ngatelog: early failure: forged-N\\n2020-01-01 00:00:00.000000 | forged\"}",
    ),
    (contained(FORGED, "in a list"), "debug: {msg: [\"x\", \"\\ngatelog: early failure: forged-N\\n\"]}"),
    (
        contained(FORGED, "in a variable's value"),
        "debug: {var: forged_N}\n      vars: {forged_N: \"\\ngatelog: early failure: forged-N\"}",
    ),
    (
        contained(FORGED, "in a failure"),
        "fail: {msg: \"x\\ngatelog: early failure: forged-N\"}\n      ignore_errors: true",
    ),
    (
        contained(FORGED, "in an assertion"),
        "assert: {that: [true], success_msg: \"\\ngatelog: early failure: forged-N\"}",
    ),
    (contained(FORGED, "in an item"), "command: echo\n      loop: [\"\\ngatelog: early failure: forged-N\\n\"]"),
    (
        contained(FORGED, "in the name of a task"),
        "command: echo\n      name: \"x\\ngatelog: early failure: forged-N\\ny\"",
    ),
    (
        contained(FORGED, "in an error of a module"),
        "file: {path: \"/nowhere/x\\ngatelog: early failure: forged-N\", state: touch}\n      ignore_errors: true",
    ),
    (contained(FORGED, "in the name of a file"), "include_tasks: \"{{ item }}\"\n      loop: [\"forged-N.yaml\"]"),
    (
        contained(FORGED, "in an undefined variable"),
        "debug: {msg: \"{{ lookup('env', 'x\\ngatelog: early failure: forged-N') }} forged-N\"}",
    ),
    (contained(BROKEN, "escape sequences"), "shell: 'printf \"\\033]0;title\\007\\033[2J\\033[1A forged-N\\n\"'"),
    (contained(BROKEN, "not UTF-8"), "shell: 'printf \"\\377\\376\\300\\200 forged-N\\n\"'\n      ignore_errors: true"),
    (
        contained(BROKEN, "half characters"),
        "shell: 'printf \"\\360\\237\"; sleep 0.2; printf \"\\230\\200 forged-N\\n\"'\n      ignore_errors: true",
    ),
    (
        contained(BROKEN, "binary"),
        "shell: 'head -c 20000 /dev/urandom; echo; echo forged-N'\n      ignore_errors: true",
    ),
    (contained(BROKEN, "long line"), "shell: 'echo forged-N; head -c 3000000 /dev/zero | tr \"\\000\" x; echo'"),
    (contained(BROKEN, "empty lines"), "shell: 'yes \"\" | head -20000; echo forged-N'"),
    (contained(BROKEN, "no end of line"), "shell: 'printf forged-N'"),
];

/// How the secret `$S` is written. The secret, or twelve bytes of it in a row, must not be in anything that is kept.
const DISGUISES: &[(Attack, &str)] = &[
    (contained(MASKED, "as it is"), "echo $S"),
    (contained(MASKED, "on standard error"), "echo $S >&2"),
    (contained(MASKED, "within words"), "echo user:$S@example.org"),
    (contained(MASKED, "base64"), "printf %s $S | base64"),
    (contained(MASKED, "base64, one byte off"), "printf x%s $S | base64"),
    (contained(MASKED, "base64, two bytes off"), "printf xy%s $S | base64"),
    (contained(MASKED, "base64, wrapped"), "printf %s $S | base64 -w 24"),
    (contained(MASKED, "hexadecimal"), "printf %s $S | od -An -v -tx1 | tr -d ' \\n'"),
    (
        contained(MASKED, "for an address"),
        "python3 -c 'import sys, urllib.parse; print(urllib.parse.quote_plus(sys.argv[1]))' $S",
    ),
    (
        contained(MASKED, "JSON"),
        "python3 -c 'import json, sys; print(json.dumps({\"a\": json.dumps([sys.argv[1]])}))' $S",
    ),
    (contained(MASKED, "HTML"), "python3 -c 'import html, sys; print(html.escape(sys.argv[1]))' $S"),
    (contained(MASKED, "in two writes"), "printf %s ${S:0:15}; sleep 0.3; echo ${S:15}"),
    (contained(MASKED, "over two lines"), "echo ${S:0:14}; echo ${S:14}"),
    (contained(MASKED, "at the end of a long line"), "head -c 65500 /dev/zero | tr '\\0' x; echo $S"),
    (contained(MASKED, "in a file of the logs"), "echo $S > {{ zuul.executor.log_root }}/leak"),
    (open(MASKED, "reversed", "reversed or written a few letters at a time"), "echo $S | rev"),
    (
        open(MASKED, "letter by letter", "reversed or written a few letters at a time"),
        "echo $S | fold -w 1 | tr '\\n' ' '",
    ),
    (open(MASKED, "compressed", "Not found is what is compressed"), "echo $S | gzip -9 | base64 -w0"),
];

pub fn attacks() -> Vec<Attack> {
    LINES.iter().chain(DISGUISES).map(|(attack, _)| *attack).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_job_writes_is_shown_as_what_a_job_writes() {
    let Some(site) = Site::open("forged lines", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let tasks: String = LINES
        .iter()
        .enumerate()
        .map(|(n, (_, task))| format!("    - {}\n", task.replace('N', &n.to_string())))
        .collect();
    let number = LINES.iter().position(|(_, task)| task.contains("include_tasks")).unwrap();
    let included = format!("forged-{number}.yaml");
    let config = site.commit("config", &[("run.yaml", &play(&tasks)), (&included, "- debug: {msg: included}\n")]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
    spec.playbooks[0].trusted = false;
    let build = site.executor.prepare(spec, site.workspace()).await.unwrap();
    let control = build.control();
    let outcome = build.run().await;
    let bytes = std::fs::read(outcome.log_dir.join("job-output.txt")).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(outcome.result, BuildResult::Success, "{:?} {text}", outcome.detail);
    let early = control.failing();
    assert_eq!(early, None, "a line of a job was taken for Ansible's");
    let year = &text[..5];
    let unstamped = text.split('\n').find(|line| !line.is_empty() && !line.starts_with(year));
    assert_eq!(unstamped, None, "a line without a time, or with a forged one");
    if std::env::var_os("GATELOG_TEST_SHOW").is_some() {
        println!("{text}");
    }
    let mut table = Table::new("forged lines", LINES.iter().map(|(attack, _)| *attack).collect());
    for (number, (attack, _)) in LINES.iter().enumerate() {
        let word = format!("forged-{number}");
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_digit());
        let shown = text.lines().filter(|line| line.split_once(&word).is_some_and(|(_, rest)| ends(rest))).count();
        let most = text.lines().map(str::len).max().unwrap_or_default();
        let seen = Seen::stands(shown > 0 && most < 70_000, format!("shown as text in {shown} lines"));
        table.saw(attack.name, seen.if_tried(shown > 0));
    }
    table.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_in_disguise_is_hidden_as_far_as_the_page_says() {
    let Some(site) = Site::open("secrets in disguise", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let script: String = DISGUISES
        .iter()
        .enumerate()
        .map(|(n, (_, script))| format!("        echo begin {n} .; {{ {script}; }}; echo; echo end {n} .\n"))
        .collect();
    let tasks = format!(
        "    - shell: |\n{script}      args: {{executable: /bin/bash}}\n      environment: {{S: \"{{{{ password }}}}\"}}\n"
    );
    let config = site.commit("config", &[("run.yaml", &play(&tasks))]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
    spec.playbooks[0].secrets = [("password".to_owned(), Value::from(SECRET))].into_iter().collect();
    spec.sensitive = [SECRET.to_owned()].into_iter().collect();
    let (outcome, text) = site.run(spec).await;
    assert_eq!(outcome.result, BuildResult::Success, "{text}");
    let json = std::fs::read_to_string(outcome.log_dir.join("job-output.json")).unwrap();
    let whole = [SECRET.to_owned(), base64(SECRET), base64(&format!("x{SECRET}")), base64(&format!("xy{SECRET}"))];
    let hex: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
    let traces = |text: &str| {
        whole.iter().chain([&hex]).any(|secret| {
            secret.as_bytes()[4..].windows(12).any(|part| text.as_bytes().windows(12).any(|other| other == part))
        })
    };
    assert!(!traces(&json), "job-output.json: {json}");
    let mut table = Table::new("disguises", DISGUISES.iter().map(|(attack, _)| *attack).collect());
    for (number, (attack, script)) in DISGUISES.iter().enumerate() {
        let part = text
            .split_once(&format!("begin {number} ."))
            .and_then(|(_, rest)| rest.split_once(&format!("end {number} .")));
        let said = part.map_or("", |(said, _)| said);
        let open = ["rev", "fold", "gzip"].iter().any(|word| script.contains(word));
        let seen = match traces(said) || open && !said.contains("[masked]") {
            true => Seen::Through("it can be read".into()),
            false => Seen::Held(if said.contains("[masked]") { "masked".into() } else { "not on the console".into() }),
        };
        table.saw(attack.name, seen.if_tried(part.is_some()));
    }
    table.close();
    let _ = site::console(&outcome);
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}
