//! What a job hands over: results, returned data and its log directory, in every shape but the right one.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gatelog_executing::BuildResult;
use gatelog_executing::spec::Phase;
use gatelog_log_files::LogStore;
use gatelog_record::Value;

use super::host::CANARY;
use super::shell;
use super::table::{Attack, Seen, Table, contained};
use crate::site::Site;

const RETURNED: &str = "data that a job returns";
const KEPT: &str = "files in the log directory";
const RESULTS: &str = "results of a playbook";

/// Scripts that leave something in the place of `$R`, the returned data, and what the build says of it. `$V` is a file of
/// the host with the canary.
const RETURNS: &[(Attack, &str, &str)] = &[
    (contained(RETURNED, "link to a file of the host"), "ln -s $V $R", "no plain file|symbolic|ymlink|loop"),
    (contained(RETURNED, "link to the users' passwords"), "ln -s /etc/shadow $R", "no plain file|ymlink|symbolic"),
    (contained(RETURNED, "link to itself"), "ln -s results.json $R", "ymlink|symbolic"),
    (contained(RETURNED, "pipe"), "mkfifo $R", "not a plain file"),
    (contained(RETURNED, "directory"), "mkdir -p $R/deep", "not a plain file"),
    (
        contained(RETURNED, "socket"),
        "python3 -c 'import os, socket, sys; os.chdir(os.path.dirname(sys.argv[1])); socket.socket(socket.AF_UNIX).bind(os.path.basename(sys.argv[1]))' $R",
        "No such device|not a plain file",
    ),
    (contained(RETURNED, "file that cannot be read"), "echo '{}' > $R; chmod 0 $R", ""),
    (contained(RETURNED, "file of a terabyte"), "truncate -s 9G $R", "larger than"),
    (contained(RETURNED, "not UTF-8"), "printf '{\"data\": {\"a\": \"\\377\\376\"}}' > $R", "no valid JSON"),
    (
        contained(RETURNED, "nested without end"),
        "python3 -c 'print(\"{\\\"data\\\": \" + \"[\" * 90000 + \"]\" * 90000 + \"}\")' > $R",
        "values|JSON",
    ),
    (
        contained(RETURNED, "numbers without end"),
        "python3 -c 'print(\"{\\\"data\\\": {\\\"a\\\": \" + \"9\" * 3000000 + \"}}\")' > $R",
        "",
    ),
    (contained(RETURNED, "half a surrogate"), "echo '{\"data\": {\"a\": \"\\ud800\"}}' > $R", "no valid JSON"),
    (contained(RETURNED, "no map"), "echo '[1, 2]' > $R", ""),
    (
        contained(RETURNED, "variables that say how a node is reached"),
        "echo '{\"data\": {\"ansible_connection\": \"local\", \"ansible_python_interpreter\": \"/evil\", \"zuul\": {\"artifacts\": 7, \"log_url\": [1]}}, \"secret_data\": {\"ansible_ssh_executable\": \"/evil\"}}' > $R",
        "cannot all be variables of other jobs",
    ),
];

/// Scripts that leave something in the log directory, where they run.
const LOGS: &[(Attack, &str)] = &[
    (contained(KEPT, "link to a file"), "ln -s $V link"),
    (contained(KEPT, "link to a directory"), "ln -s $(dirname $V) folder; ln -s / root"),
    (contained(KEPT, "pipe in the logs"), "mkfifo pipe"),
    (
        contained(KEPT, "socket in the logs"),
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'",
    ),
    (contained(KEPT, "sparse file"), "truncate -s 1T sparse || truncate -s 9G sparse"),
    (contained(KEPT, "setuid program"), "cp /bin/sh setuid; chmod 6755 setuid"),
    (contained(KEPT, "hard links"), "echo x > one; for n in $(seq 50); do ln one other-$n; done"),
    (
        contained(KEPT, "names that are no names"),
        "touch -- \"$(printf 'new\\nline')\" \"$(printf 'bad\\377name')\" '..%2f..' ' ' '-rf' \"$(printf 'esc\\033]0;x')\" 'a?b=c#d' '<script>' \"$(printf '%0250d' 0)\"",
    ),
    (
        contained(KEPT, "directories without end"),
        "echo handed over 0; python3 -c '\nimport os\nfor _ in range(3000):\n    os.mkdir(\"d\"); os.chdir(\"d\")\nopen(\"end\", \"w\").write(\"x\")'",
    ),
    (contained(KEPT, "directory that cannot be read"), "mkdir closed; touch closed/file; chmod 0 closed"),
    (contained(KEPT, "console of its own"), "rm -f job-output.txt; ln -s $V job-output.txt"),
    (
        contained(KEPT, "results of its own"),
        "rm -f job-output.json; echo '[{\"forged\": true}]' > job-output.json; mkdir -p zuul-info; ln -s $V zuul-info/inventory.yaml",
    ),
    (
        contained(KEPT, "web page with the site's paths"),
        "mkdir -p .well-known; echo '<script src=//evil.example.org>' > index.html; touch .htaccess",
    ),
];

/// What is left in the place of the results that Ansible writes for the executor.
const OWN: &[(Attack, &str)] = &[
    (contained(RESULTS, "results are a link"), "rm -f $P; ln -s $V $P; kill -9 -1"),
    (contained(RESULTS, "results are a pipe"), "rm -f $P; mkfifo $P; kill -9 -1"),
    (contained(RESULTS, "results are a directory"), "rm -f $P; mkdir $P; kill -9 -1"),
    (contained(RESULTS, "results are large"), "truncate -s 9G $P; kill -9 -1"),
    (
        contained(RESULTS, "results are nested"),
        "python3 -c 'print(\"{\\\"plays\\\": \" + \"[\" * 100000)' > $P; kill -9 -1",
    ),
    (
        contained(RESULTS, "results are of another playbook"),
        "printf '{\"stats\": {\"localhost\": {\"failures\": 0}}, \"end\": \"x\"}\\n' > $P; kill -9 -1",
    ),
];

pub fn attacks() -> Vec<Attack> {
    let returns = RETURNS.iter().map(|(attack, ..)| *attack);
    returns.chain(LOGS.iter().chain(OWN).map(|(attack, _)| *attack)).collect()
}

const WORDS: &str = "exec 2>&1; R={{ zuul.executor.result_data_file }}; V={{ victim }}; L={{ zuul.executor.log_root }}\n\
    P=$(dirname {{ zuul.executor.work_root }})/.ansible/playbook.json; cd $L\n";

/// One build of a script that says that it came to its end.
async fn hand_over(site: &Site, script: &str) -> (gatelog_executing::BuildOutcome, String) {
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let script = match script.split_once("; kill") {
        Some((before, _)) => format!("{WORDS}{before}\necho handed over $?; sync; kill -9 -1"),
        None => format!("{WORDS}{script}\necho handed over $?"),
    };
    let config = site.commit("config", &[("run.yaml", &shell(&script))]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
    spec.playbooks[0].trusted = false;
    let victim = site.folder.path().join("victim");
    std::fs::write(&victim, CANARY).unwrap();
    spec.variables.vars = [("victim".to_owned(), Value::from(victim.to_str().unwrap()))].into();
    site.run(spec).await
}

/// Whether a canary or the host's users stand in any plain file below; and what is there beside files and directories.
fn strange(folder: &Path) -> Vec<(PathBuf, &'static str)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_symlink() || kind.is_fifo() || kind.is_socket() || kind.is_block_device() {
                found.push((path, "no plain file"));
            } else if std::fs::metadata(&path).unwrap().permissions().mode() & 0o7000 != 0 {
                found.push((path, "runs as its owner"));
            } else if std::fs::metadata(&path).unwrap().len() < 64 << 20 {
                let bytes = std::fs::read(&path).unwrap();
                let holds = |word: &str| bytes.windows(word.len()).any(|part| part == word.as_bytes());
                if holds(CANARY) || ["root:x:", "root:*:", "root:$"].into_iter().any(holds) {
                    found.push((path, "holds what is the host's"));
                }
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_shape_a_job_s_data_has_it_is_taken_with_care() {
    let Some(site) = Site::open("shapes of returned data", |_| {}).await else { return };
    let returns: Vec<Attack> = RETURNS.iter().map(|(attack, ..)| *attack).collect();
    let mut table =
        Table::new("returned data", returns.into_iter().chain(OWN.iter().map(|(attack, _)| *attack)).collect());
    for (attack, script, words) in RETURNS {
        let (outcome, text) = hand_over(&site, script).await;
        let warnings = outcome.warnings.join("; ");
        let kept = strange(&outcome.log_dir);
        let fine = outcome.result == BuildResult::Success
            && kept.is_empty()
            && (words.is_empty() || words.split('|').any(|word| warnings.contains(word)));
        let how: String = format!("{}; {warnings} {kept:?}", outcome.result.as_str()).chars().take(240).collect();
        table.saw(attack.name, Seen::stands(fine, how).if_tried(text.contains("handed over 0")));
    }
    for (attack, script) in OWN {
        let (outcome, text) = hand_over(&site, script).await;
        let kept = strange(&outcome.log_dir);
        let json = std::fs::read_to_string(outcome.log_dir.join("job-output.json")).unwrap();
        let fine = outcome.result != BuildResult::Success
            && kept.is_empty()
            && serde_json::from_str::<serde_json::Value>(&json).is_ok();
        let how: String = format!("{:?}; {:?} {kept:?}", outcome.result, outcome.warnings).chars().take(240).collect();
        table.saw(attack.name, Seen::stands(fine, how).if_tried(text.contains("handed over 0")));
    }
    table.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_job_leaves_in_its_logs_only_plain_files_of_its_own_are_kept() {
    let place = tempfile::tempdir().unwrap();
    let store = LogStore::directory(place.path(), true).unwrap();
    let with = |config: &mut gatelog_executing::ExecutorConfig| config.log_store = Some(store);
    let Some(site) = Site::open("shapes of logs", with).await else { return };
    let mut table = Table::new("logs", LOGS.iter().map(|(attack, _)| *attack).collect());
    for (attack, script) in LOGS {
        let (outcome, text) = hand_over(&site, script).await;
        let mut kept = strange(place.path());
        kept.extend(strange(&outcome.log_dir));
        let own = std::fs::read_to_string(outcome.log_dir.join("job-output.json")).unwrap();
        let own: serde_json::Value = serde_json::from_str(&own).unwrap();
        let stamped = text.lines().all(|line| line.starts_with("20"));
        // What lies too deep cannot be measured, and ends the build.
        let ended = outcome.result.as_str();
        let deep = attack.name.contains("without end") && ended == "DISK_FULL";
        let fine = (deep || ended == "SUCCESS")
            && kept.is_empty()
            && stamped
            && own[0]["forged"].is_null()
            && text.ends_with(&format!("Build ends: {ended}\n"));
        let how: String =
            format!("{}; {:?} {kept:?}", outcome.result.as_str(), outcome.warnings).chars().take(240).collect();
        table.saw(attack.name, Seen::stands(fine, how).if_tried(text.contains("handed over 0")));
    }
    let builds = site.folder.path().join("executor/builds");
    crate::site::until("the builds' directories are gone", || std::fs::read_dir(&builds).unwrap().count() == 0).await;
    table.close();
}
