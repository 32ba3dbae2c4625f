//! Which Ansible a build runs with, and what an operator gives to all builds: variables, a key.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use gatelog_executing::environments::{self, Environment, FORMAT, MARKER, Marker, RELEASES, Release};
use gatelog_executing::spec::Phase;
use gatelog_executing::{BuildResult, BuildSpec, Executor, ExecutorConfig, Served, Toolchain, probe};
use gatelog_record::Value;

use crate::site::{Site, console, play, workspace};

/// The release whose ansible-core this host's `ansible-playbook` is, and another one.
async fn releases(what: &str) -> Option<(Toolchain, &'static Release, &'static Release)> {
    let named =
        PathBuf::from(std::env::var_os("GATELOG_ANSIBLE_PLAYBOOK").unwrap_or_else(|| "ansible-playbook".into()));
    let toolchain = match Toolchain::at(&named).await {
        Ok(toolchain) => toolchain,
        Err(error) => {
            println!("SKIPPED {what}: {error}");
            return None;
        }
    };
    let own = RELEASES.iter().find(|release| release.has_core(&toolchain.version));
    let other = RELEASES.iter().find(|release| !release.has_core(&toolchain.version));
    match (own, other) {
        (Some(own), Some(other)) => Some((toolchain, own, other)),
        _ => {
            println!("SKIPPED {what}: ansible-core {} is that of no release jobs may ask for", toolchain.version);
            None
        }
    }
}

/// A build that says which ansible-core runs it.
fn asks_for(site: &Site, version: &str) -> BuildSpec {
    let config =
        site.commit("config", &[("run.yaml", &play("    - debug: msg=\"runs {{ ansible_version.full }}\"\n"))]);
    let app = site.commit("org/app", &[("readme", version)]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
    spec.job.ansible_version = version.into();
    spec
}

/// An environment as `gatelog ansible install` leaves it, around an Ansible that is there.
fn environment(root: &Path, release: &Release, toolchain: &Toolchain, number: u32) {
    let name = format!("{}-{number}", release.version);
    let directory = root.join(&name);
    fs::create_dir_all(directory.join("bin")).unwrap();
    fs::copy(&toolchain.ansible_playbook, directory.join("bin/ansible-playbook")).unwrap();
    let marker = Marker {
        format: FORMAT,
        release: release.version.into(),
        ansible: format!("{}.99.{number}", release.version),
        ansible_core: toolchain.version.clone(),
        python: "3.0.0".into(),
        requirements: Vec::new(),
        packages: std::collections::BTreeMap::new(),
    };
    fs::write(directory.join(MARKER), serde_json::to_vec(&marker).unwrap()).unwrap();
    let link = environments::link(root, release.version);
    let _ = fs::remove_file(&link);
    symlink(&name, &link).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_with_the_ansible_it_asks_for_or_ends_with_the_cure() {
    let what = "versions of Ansible";
    let Some((toolchain, own, other)) = releases(what).await else { return };
    let root = tempfile::tempdir().unwrap();
    let settings = |config: &mut ExecutorConfig| {
        config.ansible_any_version = false;
        config.ansible_root = Some(root.path().to_owned());
    };
    let Some(site) = Site::open(what, settings).await else { return };

    let (outcome, text) = site.run(asks_for(&site, own.version)).await;
    assert_eq!(outcome.result, BuildResult::Success, "{text}");
    assert!(text.contains(&format!("runs {}", toolchain.version)), "{text}");
    assert!(text.contains(&format!("ansible-core {}", toolchain.version)), "the console names it: {text}");
    assert_eq!(outcome.warnings, Vec::<String>::new());

    let (outcome, text) = site.run(asks_for(&site, other.version)).await;
    let BuildResult::Error(reason) = &outcome.result else { panic!("{:?}: {text}", outcome.result) };
    for words in [
        format!("asks for Ansible {}, which is not installed", other.version),
        format!("ansible-core {}", toolchain.version),
        format!("`gatelog ansible install {}`", other.version),
    ] {
        assert!(reason.contains(&words) && text.contains(&words), "{words}: {reason}\n{text}");
    }
    assert!(outcome.playbooks.is_empty() && !text.contains("runs 2."), "{text}");

    // One that is installed while the executor runs counts for the next build.
    environment(root.path(), other, &toolchain, 1);
    let (outcome, text) = site.run(asks_for(&site, other.version)).await;
    assert_eq!(outcome.result, BuildResult::Success, "{text}");
    assert!(text.contains(&format!("Ansible {}.99.1 (ansible-core {})", other.version, toolchain.version)), "{text}");

    // And one that is no longer what its marker says is not used.
    environment(root.path(), other, &Toolchain { version: "2.99.0".into(), ..toolchain.clone() }, 2);
    let (outcome, text) = site.run(asks_for(&site, other.version)).await;
    let BuildResult::Error(reason) = &outcome.result else { panic!("{:?}: {text}", outcome.result) };
    assert!(reason.contains("ansible-core 2.99.0 was installed") && reason.contains("ansible install"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_ansible_runs_a_job_only_where_the_operator_says_so_and_the_result_tells_it() {
    let what = "another version of Ansible";
    let Some((toolchain, _, other)) = releases(what).await else { return };
    let Some(site) = Site::open(what, |config| config.ansible_any_version = true).await else { return };
    let (outcome, text) = site.run(asks_for(&site, other.version)).await;
    assert_eq!(outcome.result, BuildResult::Success, "{text}");
    let told = format!("asks for Ansible {}, and ansible-core {} ran it", other.version, toolchain.version);
    assert!(outcome.warnings.iter().any(|warning| warning.contains(&told)), "{:?}", outcome.warnings);
    assert!(text.contains(&format!("WARNING: the job {told}")), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_says_what_serves_each_version() {
    let Some((toolchain, own, other)) = releases("what serves each version").await else { return };
    let root = tempfile::tempdir().unwrap();
    let mut config = ExecutorConfig::new(root.path().join("x"), root.path().join("y"));
    config.ansible_playbook = Some(toolchain.ansible_playbook.clone());
    config.ansible_root = Some(root.path().to_owned());
    let served = |all: &[(&'static Release, Served)], release: &Release| {
        all.iter().find(|(one, _)| *one == release).map(|(_, served)| served.clone()).unwrap()
    };
    let all = probe(&config).await.versions;
    assert_eq!((served(&all, own), served(&all, other)), (Served::Named, Served::Nothing(None)));
    config.ansible_any_version = true;
    assert_eq!(served(&probe(&config).await.versions, other), Served::Substitute);
    environment(root.path(), other, &toolchain, 1);
    let found = served(&probe(&config).await.versions, other);
    assert!(matches!(&found, Served::Environment(ansible, _) if ansible.ends_with(".99.1")), "{found:?}");
    // A Python that was taken away: the script's first line names what is not there.
    let directory = root.path().join(format!("{}-1", other.version));
    fs::write(directory.join("bin/ansible-playbook"), "#!/nowhere/python3\n").unwrap();
    let Served::Nothing(Some(reason)) = served(&probe(&config).await.versions, other) else { panic!() };
    assert!(reason.contains("it was made with Python 3.0.0"), "{reason}");
    assert_eq!(
        environments::find(root.path(), own.version).map(|found| found.map(|one: Environment| one.marker)),
        Ok(None)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_variables_of_the_site_are_stronger_than_a_jobs_and_weaker_than_zuuls() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.yaml");
    fs::write(&file, "mirror: http://mirror.site\nzuul: forged\nnested: {a: [1, 2]}\n").unwrap();
    let named = file.clone();
    let Some(site) = Site::open("variables of the site", move |config| config.variables = Some(named)).await else {
        return;
    };
    let tasks = "    - debug: msg=\"saw {{ mirror }} {{ zuul.job }} {{ nested.a }} {{ own }}\"\n";
    let config = site.commit("config", &[("run.yaml", &play(tasks))]);
    let app = site.commit("org/app", &[("run.yaml", &play(tasks))]);
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0), (Phase::Run, "run.yaml", 0)]);
    spec.playbooks[1].trusted = false;
    for (name, value) in [("mirror", "http://job"), ("own", "kept")] {
        spec.variables.vars.insert(name.into(), Value::from(value));
        spec.variables.extra_vars.insert(name.into(), Value::from(value));
    }
    let (outcome, text) = site.run(spec).await;
    assert_eq!(outcome.result, BuildResult::Success, "{text}");
    assert_eq!(text.matches("saw http://mirror.site unit-tests [1, 2] kept").count(), 2, "{text}");
}

/// What an executor with these settings says instead of starting.
async fn refusal(change: impl FnOnce(&mut ExecutorConfig)) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut config = ExecutorConfig::new(folder.path().join("executor"), folder.path().join("logs"));
    config.ansible_playbook = std::env::var_os("GATELOG_ANSIBLE_PLAYBOOK").map(PathBuf::from);
    change(&mut config);
    Executor::open(config).await.err().map(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_variables_that_cannot_be_used_stops_the_executor_with_key_and_cure() {
    if releases("a bad file of variables").await.is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (content, reason) in [
        (None, "No such file"),
        (Some("a: [1\n"), "expected"),
        (Some("- a\n"), "it holds no mapping"),
        (Some("'not a name': 1\n"), "'not a name' is no name of a variable"),
    ] {
        let file = folder.path().join("site.yaml");
        let _ = fs::remove_file(&file);
        if let Some(content) = content {
            fs::write(&file, content).unwrap();
        }
        let said = refusal(|config| config.variables = Some(file.clone())).await.unwrap();
        assert!(said.contains("variables = ") && said.contains("site.yaml") && said.contains(reason), "{said}");
        assert!(said.contains("name a YAML or JSON file"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_build_holds_the_executors_own_key() {
    let what = "the executor's own key";
    let folder = tempfile::tempdir().unwrap();
    let made = |name: &str, passphrase: &str| {
        let file = folder.path().join(name);
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-C", "the executor's own", "-N", passphrase, "-f"]).arg(&file);
        command.status().is_ok_and(|status| status.success()).then_some(file)
    };
    let Some(key) = made("key", "") else {
        println!("SKIPPED {what}: there is no ssh-keygen on PATH");
        return;
    };
    let locked = made("locked", "a passphrase").unwrap();
    let said = refusal(|config| config.private_key_file = Some(locked)).await.unwrap_or_default();
    if said.contains("No such") || said.contains("no ansible-playbook") {
        println!("SKIPPED {what}: {said}");
        return;
    }
    assert!(said.contains("private-key-file = ") && said.contains("without a passphrase"), "{said}");
    let Some(site) = Site::open(what, |config| config.private_key_file = Some(key.clone())).await else { return };
    let config = site.commit("config", &[("run.yaml", &play("    - command: ssh-add -l\n"))]);
    let app = site.commit("org/app", &[("readme", "1")]);
    let spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
    let build = site.executor.prepare(spec, workspace(site.folder.path())).await.unwrap();
    let outcome = build.run().await;
    let text = console(&outcome);
    assert_eq!(outcome.result, BuildResult::Success, "{text}");
    assert!(text.contains("the executor's own"), "{text}");
    assert!(!text.contains(key.to_str().unwrap()), "only the key is given, not its file: {text}");
}
