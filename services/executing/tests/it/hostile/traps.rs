//! What an untrusted playbook leaves behind for a trusted one with a secret, and in the executor's way.

use std::path::Path;

use gatelog_executing::BuildResult;
use gatelog_executing::spec::Phase;
use gatelog_record::Value;

use super::host::SECRET;
use super::table::{Attack, Seen, Table, contained, open};
use crate::site::{Site, play};

const LOADED: &str = "code that Ansible would load";
const FOUND: &str = "files that programs of a trusted playbook look for";
const FACTS: &str = "facts for a trusted playbook";
const OURS: &str = "leftovers in the executor's way";

const BESIDE: &str = "in a directory of the job import its files";
const DEFAULTS: &str = "takes the place of a default of a trusted role";

/// An attack, and the script that sets the trap. What springs says `SPRUNG-$T`. `$W` is the work tree, `$H` the home,
/// `$J` the job's directory, `$S` a checkout, `$V` a directory of the host; the other words are in [`TOOLS`].
type Trap = (Attack, &'static str);

const TRAPS: &[Trap] = &[
    (
        contained(LOADED, "ansible.cfg in the work tree"),
        "printf '[defaults]\\ncallback_plugins=%s/a\\nlibrary=%s/a\\nvars_plugins=%s/a\\n' $W $W $W > $W/ansible.cfg; plugin $W/a/command.py",
    ),
    (
        contained(LOADED, "ansible.cfg in the home"),
        "printf '[defaults]\\nvars_plugins=%s/b\\nlibrary=%s/b\\n' $W $W > $H/.ansible.cfg; plugin $W/b/command.py",
    ),
    (contained(LOADED, "vars plugin in the work tree"), "plugin $W/vars_plugins/vars.py"),
    (contained(LOADED, "callback plugin in the work tree"), "plugin $W/callback_plugins/callback.py"),
    (contained(LOADED, "action plugin in the work tree"), "plugin $W/action_plugins/command.py"),
    (contained(LOADED, "filter plugin in the work tree"), "plugin $W/filter_plugins/filter.py"),
    (contained(LOADED, "lookup plugin in the work tree"), "plugin $W/lookup_plugins/env.py"),
    (contained(LOADED, "module in the work tree"), "plugin $W/library/command.py"),
    (contained(LOADED, "module_utils in the work tree"), "plugin $W/module_utils/basic.py"),
    (
        contained(LOADED, "group_vars in the work tree"),
        "mkdir -p $W/group_vars; echo swayed: SPRUNG-$T > $W/group_vars/all.yaml",
    ),
    (
        contained(LOADED, "host_vars in the work tree"),
        "mkdir -p $W/host_vars; echo swayed: SPRUNG-$T > $W/host_vars/localhost.yaml",
    ),
    (
        contained(LOADED, "role in the work tree"),
        "mkdir -p $W/roles/plain/tasks; echo \"[{debug: {msg: SPRUNG-$T}}]\" > $W/roles/plain/tasks/main.yaml",
    ),
    (
        contained(LOADED, "plugins in the state directory"),
        "for kind in vars callback action filter lookup connection cache; do plugin $J/.ansible/plugins/$kind/mine.py; done",
    ),
    (contained(LOADED, "modules in the state directory"), "plugin $J/.ansible/plugins/modules/command.py"),
    (
        contained(LOADED, "collection in the state directory"),
        "plugin $J/.ansible/collections/ansible_collections/evil/evil/plugins/vars/evil.py",
    ),
    (
        contained(LOADED, "plugins in the home"),
        "for kind in vars callback action filter lookup; do plugin $H/.ansible/plugins/$kind/mine.py; done; plugin $H/.ansible/plugins/modules/command.py",
    ),
    (
        contained(LOADED, "start of Ansible's Python"),
        "mkdir -p $P; echo \"import sys; any('nsib' in word for word in sys.orig_argv) and open('$W/sprung', 'a').write('SPRUNG-$T ')\" > $P/trap.pth",
    ),
    (
        contained(LOADED, "modules with the names of Ansible's"),
        "for name in ansible yaml jinja2 packaging cryptography; do plugin $W/$name.py; plugin $H/$name.py; done",
    ),
    (contained(FOUND, "ssh configuration"), "mkdir -p $H/.ssh; echo \"ProxyCommand SPRUNG-$T\" > $H/.ssh/config"),
    (contained(FOUND, "kubectl configuration"), "mkdir -p $H/.kube; echo \"users: SPRUNG-$T\" > $H/.kube/config"),
    (
        contained(FOUND, "programs where a path might lead"),
        "for name in git cat env sh touch sleep; do program $H/bin/$name; program $H/.local/bin/$name; program $W/$name; done",
    ),
    (
        contained(FACTS, "facts that say how a host is reached"),
        "for name in ansible_python_interpreter ansible_shell_executable ansible_become_exe; do fact $name $W/evil; done; fact ansible_connection evil; fact ansible_host SPRUNG-$T.example.org; program $W/evil",
    ),
    (
        contained(FACTS, "facts under names of variables and secrets"),
        "fact jobvar SPRUNG-$T; fact password SPRUNG-$T; fact nothing SPRUNG-$T",
    ),
    (contained(FACTS, "facts with templates"), "fact friendly \"{{ 'SPRUNG' ~ '-$T' }}\""),
    (open(FACTS, "facts under names of a role's defaults", DEFAULTS), "fact role_default SPRUNG-$T"),
    (
        contained(FACTS, "daemon that waits for the next playbook"),
        "T=$T setsid nohup sh -c 'while sleep 0.1; do test -e $0/later && echo SPRUNG-$T >> $0/sprung; done' $W >/dev/null 2>&1 &",
    ),
    (
        contained(FOUND, "git configuration in the home"),
        "printf '[core]\\n\\tfsmonitor = %s\\n' $(hook) > $H/.gitconfig",
    ),
    (
        contained(FOUND, "git configuration of a checkout"),
        "git -C $S config filter.evil.clean $(hook); echo '* filter=evil' > $S/.gitattributes; git -C $S add .; touch $S/app.txt",
    ),
    (contained(FOUND, "git hook of a checkout"), "mkdir -p $S/.git/hooks; cp $(hook) $S/.git/hooks/post-checkout"),
    (contained(FOUND, "bash profile in the home"), "hook > $H/.bash_profile"),
    (contained(FOUND, "bash start file in the home"), "hook > $H/.bashrc"),
    (open(FOUND, "Python module beside", BESIDE), "printf 'import os\\nos.system(\"%s\")\\n' $(hook) > $W/colorsys.py"),
    (
        contained(FOUND, "Python start file in the home"),
        "mkdir -p $Q; echo \"import os; os.environ.get('PASSWORD') and os.system('$(hook)')\" > $Q/usercustomize.py",
    ),
    (contained(FOUND, "curl configuration in the home"), "echo \"write-out = SPRUNG-$T\" > $H/.curlrc"),
];

/// These do not go together with those above.
const LINKS: &[Trap] = &[
    (
        contained(OURS, "results of the playbook led elsewhere"),
        "rm -f $J/.ansible/playbook.json; ln -s $V/precious $J/.ansible/playbook.json; ln -s $V/precious $J/.ansible/playbook.json.new",
    ),
    (contained(OURS, "log directory led elsewhere"), "mv $W/logs $W/moved; ln -s $V $W/logs"),
    (
        contained(OURS, "fact cache led elsewhere"),
        "mv $J/.ansible/fact-cache $W/facts; ln -s $V $J/.ansible/fact-cache",
    ),
    (contained(OURS, "home directories led elsewhere"), "rm -rf $H/.kube $H/.ssh; ln -s $V $H/.kube; ln -s $V $H/.ssh"),
    (
        contained(OURS, "temporary directories led elsewhere"),
        "rm -rf $J/.ansible/cp $W/tmp; ln -s $V $J/.ansible/cp; ln -s $V $W/tmp",
    ),
    (contained(OURS, "source directory led elsewhere"), "mv $W/src $W/source; ln -s $V $W/src"),
    (contained(OURS, "returned data led elsewhere"), "rm -f $W/results.json; ln -s $V/precious $W/results.json"),
];

pub fn attacks() -> Vec<Attack> {
    TRAPS.iter().chain(LINKS).map(|(attack, _)| *attack).collect()
}

/// The words of the traps. One that catches the secret says that, too.
const TOOLS: &str = r#"W={{ zuul.executor.work_root }}; J=$(dirname $W); H=$J/home; V={{ victim }}; S=$W/src/git.example.org/org/app
site() { $1 -c 'import sys; print(sys.argv[1] + "/.local/lib/python%d.%d/site-packages" % sys.version_info[:2])' $H; }
Q=$(site python3); P=$(site {{ ansible_playbook_python }})
plugin() { mkdir -p $(dirname $1); printf 'open("%s/sprung", "a").write("SPRUNG-%s ")\n' $W $T > $1; }
program() { mkdir -p $(dirname $1); printf '#!/bin/sh\necho SPRUNG-%s >> %s/sprung\n' $T $W > $1; chmod +x $1; }
hook() { printf '#!/bin/sh\ncat >/dev/null </dev/null; echo SPRUNG-%s: $PASSWORD >> %s/sprung\n' $T $W > $W/hook-$T; chmod +x $W/hook-$T; echo $W/hook-$T; }
fact() { /usr/bin/env python3 -I - "$J/.ansible/fact-cache/localhost" "$1" "$2" <<'PYTHON'
import json, os, sys
place, name, value = sys.argv[1:]
facts = json.load(open(place)) if os.path.exists(place) else {}
facts[name] = value
json.dump(facts, open(place, "w"))
PYTHON
}
"#;

/// An honest playbook, which starts programs with the secret in their environment.
const HONEST: &str = r#"    - debug: {msg: "{{ swayed | default('no') }} {{ jobvar }} {{ password[:10] }} {{ friendly | default('') }}"}
    - include_role: {name: plain}
    - shell: |
        cd {{ zuul.executor.work_root }}/src/git.example.org/org/app && { git status --short; git checkout -q main; git diff; }
        cd {{ zuul.executor.work_root }}
        cat ~/.kube/config
        ssh -G host.example.org | grep -i SPRUNG
        bash -l -c true
        bash -i -c true
        python3 -c 'import colorsys'
        python3 -c 'import json'
        curl -s file:///dev/null
        touch later; sleep 0.5
        true
      args: {executable: /bin/bash}
      environment: {PASSWORD: "{{ password }}"}
    - shell: cat {{ zuul.executor.work_root }}/sprung | sed 's/{{ password }}/with the secret/'; echo looked
"#;

/// The task that sets traps, each of which says that it is set.
fn setting(traps: &[Trap], first: usize) -> String {
    let mut script = TOOLS.to_owned();
    for (number, (_, trap)) in traps.iter().enumerate() {
        let number = first + number;
        script.push_str(&format!("T={number}\n{trap}\ntest $? = 0 && echo set {number} .\n"));
    }
    script.push_str("rm -f $W/sprung\n");
    let script = script.replace("{{ 'SPRUNG' ~ '-$T' }}", "{''{ 'SPRUNG' ~ '-$T' }''}");
    let lines: String = script.lines().map(|line| format!("        {line}\n")).collect();
    play(&format!("    - shell: |\n{lines}      args: {{executable: /bin/bash}}\n"))
}

/// A build of both playbooks, and what is on the console.
async fn spring(site: &Site, traps: &[Trap], first: usize, victim: &Path) -> (BuildResult, String) {
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let config = site.commit(
        "config",
        &[
            ("run.yaml", &setting(traps, first)),
            ("post.yaml", &play(HONEST)),
            ("roles/plain/defaults/main.yaml", "role_default: honest\n"),
            ("roles/plain/tasks/main.yaml", "- debug: {msg: \"role_default is {{ role_default }}\"}\n"),
        ],
    );
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0), (Phase::Post, "post.yaml", 0)]);
    spec.playbooks[0].trusted = false;
    spec.playbooks[1].secrets = [("password".to_owned(), Value::from(SECRET))].into_iter().collect();
    let vars = [("jobvar", "honest"), ("victim", victim.to_str().unwrap())];
    spec.variables.vars = vars.map(|(name, value)| (name.to_owned(), Value::from(value))).into();
    let (outcome, text) = site.run(spec).await;
    (outcome.result, text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trusted_playbook_steps_into_no_trap_of_an_untrusted_one() {
    let Some(site) = Site::open("traps for a trusted playbook", |_| {}).await else { return };
    let victim = site.folder.path().join("victim");
    std::fs::create_dir(&victim).unwrap();
    let files = ["precious", "config", "localhost", "job-output.json", "job-output.txt", "known_hosts"];
    for name in files {
        std::fs::write(victim.join(name), "precious").unwrap();
    }
    let mut table = Table::new("traps", attacks());
    let (result, text) = spring(&site, TRAPS, 0, &victim).await;
    assert_eq!(result, BuildResult::Success, "{text}");
    assert!(text.contains("role_default is") && text.contains("| looked"), "{text}");
    let is_set = |text: &str, number: usize| text.contains(&format!("| localhost | set {number} .\n"));
    let after = text.split_once("POST-RUN START").unwrap().1;
    for (number, (attack, _)) in TRAPS.iter().enumerate() {
        let mut words =
            after.split_whitespace().filter(|word| word.trim_end_matches(':') == format!("SPRUNG-{number}"));
        let line = words.next().and_then(|word| after.lines().find(|line| line.contains(word)));
        let seen = match line {
            Some(line) if line.contains("with the secret") => Seen::Through("it had the secret".into()),
            Some(_) => Seen::Through("it sprang".into()),
            None => Seen::Held("it did not spring".into()),
        };
        table.saw(attack.name, seen.if_tried(is_set(&text, number)));
    }
    let (result, text) = spring(&site, LINKS, TRAPS.len(), &victim).await;
    let harmed: Vec<_> = std::fs::read_dir(&victim)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| {
            !files.contains(&&*entry.file_name().to_string_lossy())
                || std::fs::read_to_string(entry.path()).unwrap() != "precious"
        })
        .collect();
    println!("with links everywhere the build is {result:?}");
    for (number, (attack, _)) in LINKS.iter().enumerate() {
        let seen = Seen::stands(
            harmed.is_empty()
                && text.contains("Build ends: ")
                && std::fs::read_dir(&victim).unwrap().count() == files.len(),
            format!("the host's directory is as it was; {}", result.as_str()),
        );
        table.saw(attack.name, seen.if_tried(is_set(&text, TRAPS.len() + number)));
    }
    table.close();
}
