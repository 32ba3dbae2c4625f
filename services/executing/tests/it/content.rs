//! What a job is given beside its playbooks: roles of projects, files of variables, its workspace, and what it is told.

use gatelog_executing::spec::{Phase, RoleSpec, VarsFile, WorkspaceCheckout};
use gatelog_executing::{AbortReason, BuildResult, PlaybookEnding};
use gatelog_record::Value;

use super::site::{self, Site, checkout, is_running, play, until};
use super::{mark, marks, nap, phases};

fn role(project: &str, commit: &str, target: &str) -> RoleSpec {
    RoleSpec {
        checkout: checkout(project, commit),
        checkout_description: "zuul branch".into(),
        target_name: target.into(),
        implicit: false,
    }
}

/// The tasks of a role that says its name.
fn tasks(name: &str) -> String {
    format!("- command: echo role {name}\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_playbook_uses_roles_of_other_projects_in_zuuls_order() {
    let Some(site) = Site::open("roles of projects", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let greet = tasks("greet of jobs");
    let jobs = site.commit("org/zuul-jobs", &[("roles/greet/tasks/main.yaml", &greet)]);
    let (here, there) = (tasks("greet of more"), tasks("only in more"));
    let more =
        site.commit("org/more-jobs", &[("roles/greet/tasks/main.yaml", &here), ("roles/only/tasks/main.yaml", &there)]);
    let bare = tasks("bare");
    let bare = site.commit("org/ansible-role-thing", &[("tasks/main.yaml", &bare), ("roles/trap/tasks/main.yaml", "")]);
    let own = tasks("own");
    let run = "- hosts: localhost\n  gather_facts: false\n  roles: [greet, only, renamed, own]\n  tasks:\n    - shell: echo context {{ zuul.playbook_context | to_json | quote }}\n";
    let config = site.commit(
        "config",
        &[("run.yaml", run), ("roles/own/tasks/main.yaml", &own), ("write.yaml", &play("    - command: touch {{ zuul.executor.work_root }}/../trusted/x {{ zuul.executor.work_root }}/../ansible/playbook_0/role_0/x\n      register: r\n      failed_when: r.rc == 0\n"))],
    );
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0), (Phase::Run, "write.yaml", 0)]);
    let implicit = RoleSpec { implicit: true, ..role("config", &config, "config") };
    // The project of the change has no roles, and nobody said it had.
    let nothing = RoleSpec { implicit: true, ..role("org/app", &app, "app") };
    let roles = vec![
        role("org/zuul-jobs", &jobs, "zuul-jobs"),
        role("org/more-jobs", &more, "more-jobs"),
        role("org/ansible-role-thing", &bare, "renamed"),
        nothing,
        implicit,
    ];
    spec.playbooks.iter_mut().for_each(|playbook| playbook.roles.clone_from(&roles));
    let (outcome, text) = site.run(spec.clone()).await;
    assert_eq!(outcome.result, BuildResult::Success, "{:?} {text}", outcome.detail);
    let said: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("| localhost | role ")).map(|(_, name)| name).collect();
    assert_eq!(said, ["greet of jobs", "only in more", "bare", "own"], "{text}");
    let line = text.lines().find_map(|line| line.split_once("| context ")).unwrap().1;
    let context: serde_json::Value = serde_json::from_str(line).unwrap();
    let playbook = &context["playbooks"][0];
    assert_eq!(playbook["path"], "trusted/project_0/git.example.org/config/run.yaml");
    let third = serde_json::json!({
        "link_name": "ansible/playbook_0/role_2/renamed",
        "link_target": "trusted/project_3/git.example.org/org/ansible-role-thing",
        "role_path": "ansible/playbook_0/role_2",
        "checkout": "main",
        "checkout_description": "zuul branch",
    });
    assert_eq!(playbook["roles"][2], third);
    assert_eq!(playbook["roles"][0]["role_path"], "ansible/playbook_0/role_0/zuul-jobs/roles");
    assert_eq!(playbook["roles"].as_array().unwrap().len(), 4, "without the one that has none: {playbook}");
    let projects = context["playbook_projects"].as_object().unwrap();
    assert_eq!(projects.len(), 5, "each once for both playbooks: {projects:?}");
    assert_eq!(projects["trusted/project_1/git.example.org/org/zuul-jobs"]["commit"], jobs.as_str());

    // What nobody can mean.
    let cases = [
        (
            role("org/app", &app, "app"),
            "project git.example.org/org/app on branch main has no roles for playbook run.yaml",
        ),
        (role("org/zuul-jobs", &jobs, "../out"), "role \"../out\" of project git.example.org/org/zuul-jobs"),
        (role("org/gone", &jobs, "gone"), "repository git.example.org/org/gone at"),
    ];
    for (number, (wrong, expected)) in cases.into_iter().enumerate() {
        let mut spec = spec.clone();
        spec.build.0 = [90 + u8::try_from(number).unwrap(); 16];
        spec.playbooks[0].roles = vec![wrong];
        let (outcome, text) = site.run(spec).await;
        let BuildResult::Error(reason) = &outcome.result else { panic!("{:?} {text}", outcome.result) };
        assert!(reason.contains(expected) && text.contains(expected), "{reason}");
        assert_eq!(outcome.playbooks, []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variables_of_files_and_parents_are_merged_below_those_of_the_job() {
    let Some(site) = Site::open("include-vars", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let vars = site.commit(
        "org/vars",
        &[
            ("one.yaml", r#"{"m": {"file": "one", "shared": "one"}, "only": "one"}"#),
            ("two.yaml", r#"{"m": {"shared": "two"}, "job": "two"}"#),
            ("bad.yaml", r#"{"ansible_user": "root"}"#),
        ],
    );
    let run = play(
        "    - shell: echo vars {{ m | to_json | quote }} {{ only }} {{ job }} {{ zuul.include_vars | length }}\n",
    );
    let config = site.commit("config", &[("run.yaml", &run)]);
    let file = |path: &str, required: bool| VarsFile {
        path: path.into(),
        checkout: checkout("org/vars", &vars),
        required,
        ..VarsFile::default()
    };
    let with = |files: Vec<VarsFile>| {
        let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
        let map = |json: serde_json::Value| Value::from_json(&json).as_map().cloned().unwrap();
        spec.variables.parent_data = map(serde_json::json!({"m": {"parent": "parent", "file": "parent"}}));
        spec.variables.vars = map(serde_json::json!({"m": {"vars": "vars"}, "job": "job"}));
        spec.include_vars = files;
        spec
    };
    let (outcome, text) =
        site.run(with(vec![file("one.yaml", true), file("two.yaml", true), file("gone.yaml", false)])).await;
    assert_eq!(outcome.result, BuildResult::Success, "{:?} {text}", outcome.detail);
    let said = text.lines().find_map(|line| line.split_once("| vars ")).unwrap().1;
    let (merged, rest) = said.split_once('}').unwrap();
    let merged: serde_json::Value = serde_json::from_str(&format!("{merged}}}")).unwrap();
    let expected = serde_json::json!({"parent": "parent", "file": "one", "shared": "two", "vars": "vars"});
    assert_eq!((merged, rest), (expected, " one job 3"), "{text}");
    for (files, expected) in [
        (vec![file("gone.yaml", true)], "gone.yaml of project git.example.org/org/vars on branch main does not exist"),
        (vec![file("bad.yaml", true)], "variable \"ansible_user\" in include-vars"),
    ] {
        let (outcome, text) = site.run(with(files)).await;
        let BuildResult::Error(reason) = &outcome.result else { panic!("{:?} {text}", outcome.result) };
        assert!(reason.contains(expected) && text.contains(expected), "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cleanup_playbooks_of_post_run_run_whatever_happened() {
    let Some(site) = Site::open("cleanup of post-run", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let told = "    - command: 'echo \"\\\"msg-mark {{ zuul_success }} {{ zuul_success is string }} {{ zuul_execution_trusted }}\\\"\"'\n";
    let config = site.commit(
        "config",
        &[
            ("ok.yaml", &play(&mark("ok"))),
            ("fail.yaml", &play("    - command: test fail = this\n")),
            ("told.yaml", &play(told)),
            ("hang.yaml", &play(&format!("    - command: sleep {}\n", nap(71)))),
            ("cleanup.yaml", &play(&mark("cleanup"))),
        ],
    );
    // Once a post-run playbook failed, those that follow are told; texts, as Zuul gives them.
    let steps = [
        (Phase::Run, "ok.yaml", 0),
        (Phase::Post, "told.yaml", 0),
        (Phase::Post, "fail.yaml", 0),
        (Phase::Post, "told.yaml", 0),
    ];
    let (outcome, text) = site.run(site.spec(&config, &app, &steps)).await;
    assert_eq!(outcome.result, BuildResult::PostFailure, "{text}");
    assert_eq!(marks(&text), ["ok", "True True True", "False True True"], "{text}");

    // Stopped in the middle: of post-run only what tidies up.
    let steps = [(Phase::Run, "hang.yaml", 0), (Phase::Post, "ok.yaml", 0), (Phase::Post, "cleanup.yaml", 0)];
    let mut spec = site.spec(&config, &app, &steps);
    spec.playbooks[2].cleanup = true;
    let build = site.executor.prepare(spec.clone(), site.workspace()).await.unwrap();
    let running = tokio::spawn(build.run());
    until("the job is in its task", || is_running(&nap(71))).await;
    assert!(site.executor.abort(spec.build, 1, AbortReason::Cancelled));
    let outcome = running.await.unwrap();
    let text = site::console(&outcome);
    assert_eq!(outcome.result, BuildResult::Aborted, "{text}");
    assert_eq!(marks(&text), ["cleanup"], "{text}");
    assert_eq!(phases(&outcome), [(Phase::Run, PlaybookEnding::Aborted), (Phase::Post, PlaybookEnding::Ok)]);

    // The same when post-run itself is stopped.
    let steps = [(Phase::Run, "ok.yaml", 0), (Phase::Post, "hang.yaml", 0), (Phase::Post, "cleanup.yaml", 0)];
    let mut spec = site.spec(&config, &app, &steps);
    spec.playbooks[2].cleanup = true;
    let build = site.executor.prepare(spec.clone(), site.workspace()).await.unwrap();
    let running = tokio::spawn(build.run());
    until("the job is in its task", || is_running(&nap(71))).await;
    assert!(site.executor.abort(spec.build, 1, AbortReason::Cancelled));
    let outcome = running.await.unwrap();
    let text = site::console(&outcome);
    assert_eq!((outcome.result, marks(&text)), (BuildResult::Aborted, vec!["ok", "cleanup"]), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_is_without_files_where_the_job_says_so_and_homes_are_watched() {
    let Some(site) = Site::open("workspace-checkout", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let look = play(
        "    - shell: 'cd {{ zuul.executor.work_root }}/{{ zuul.project.src_dir }} && echo \"has $(ls | wc -l) $(git show HEAD:app.txt) $(git status --porcelain | wc -l) {{ zuul.workspace_checkout }}\"'\n    - shell: mkdir -p ~/.config ~/kept && echo x > ~/.config/tool && echo x > ~/kept/file\n",
    );
    let config = site.commit("config", &[("look.yaml", &look), ("ok.yaml", &play(&mark("ok")))]);
    for (wanted, expected) in [
        (WorkspaceCheckout::Always, "has 1 app 0 True"),
        (WorkspaceCheckout::Never, "has 0 app 0 False"),
        // Without nodes the job works on this host.
        (WorkspaceCheckout::Auto, "has 1 app 0 auto"),
    ] {
        let mut spec = site.spec(&config, &app, &[(Phase::Run, "look.yaml", 0), (Phase::Post, "ok.yaml", 0)]);
        spec.job.workspace_checkout = wanted;
        spec.job.preserve_home_paths = ["kept/file".to_owned()].into();
        let (outcome, text) = site.run(spec).await;
        assert_eq!(outcome.result, BuildResult::Success, "{:?} {text}", outcome.detail);
        assert!(text.contains(expected), "{expected}: {text}");
        let [warning] = outcome.warnings.as_slice() else { panic!("{:?}", outcome.warnings) };
        assert!(
            warning.starts_with("\".config/tool\" lies in the home directory before playbook ok.yaml"),
            "{warning}"
        );
        assert!(text.contains(&format!("WARNING: {warning}")), "{text}");
    }
}
