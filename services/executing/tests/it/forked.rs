//! Playbooks that a fork server's child runs, beside those that start Ansible themselves.

use std::collections::BTreeMap;

use gatelog_executing::spec::Phase;
use gatelog_executing::{BuildResult, ExecutorConfig};
use gatelog_record::Value;
use serde_json::Value as Json;

use crate::site::{Site, play, until};

/// Code of a job's that says all that could differ between the two ways to run a playbook.
const PROBE: &str = r#"
import json, os, re, resource, signal, sys
import ansible.constants as C
import ansible.plugins.loader as loaders
import ansible.playbook.block, ansible.playbook.play, ansible.playbook.play_context, ansible.playbook.task
from ansible.plugins.lookup import LookupBase
from ansible.utils.display import Display

def shown(value):
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value) if not isinstance(
        value, (list, tuple, dict, set, frozenset)) else sorted(map(str, value))

class LookupModule(LookupBase):
    def run(self, terms, variables=None, **options):
        classes = [ansible.playbook.play.Play, ansible.playbook.task.Task, ansible.playbook.block.Block,
                   ansible.playbook.play_context.PlayContext]
        status = dict(line.split(":\t") for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
        found = {
            "way": open("/proc/self/cmdline").read().split("\0")[-2],
            "constants": {name: shown(value) for name, value in vars(C).items() if name.isupper()},
            "config-file": C.config._config_file,
            "loaders": {name: [str(path) for path in loader.config] for name, loader in vars(loaders).items()
                        if isinstance(loader, loaders.PluginLoader)},
            "defaults": {kind.__name__: {name: shown(getattr(attribute, "default", None)) for name, attribute
                         in kind.fattributes.items()} for kind in classes},
            "display": [Display().verbosity, Display().columns],
            "argv": sys.argv, "path": sys.path, "flags": str(sys.flags), "environment": dict(os.environ),
            "python": sys.executable, "directory": os.getcwd(), "umask": os.umask(0o77), "tty": os.isatty(1),
            "encoding": [sys.__stdout__.encoding, sys.__stdout__.line_buffering, sys.getfilesystemencoding()],
            "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource)
                       if name.startswith("RLIMIT_")},
            "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)],
            "status": {name: status.get(name) for name in ("SigBlk", "SigIgn", "CapInh", "CapPrm", "CapEff", "CapBnd",
                       "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "Uid", "Gid", "Groups")},
            "namespaces": {name: os.readlink("/proc/self/ns/" + name) == os.readlink("/proc/1/ns/" + name)
                           for name in ("net", "uts", "ipc")} if os.access("/proc/1/ns/net", os.R_OK) else None,
            "leaders": [os.getsid(0) == os.getpgid(0)],
            "nice": os.nice(0), "oom": open("/proc/self/oom_score_adj").read(),
            "descriptors": sorted(os.readlink("/proc/self/fd/" + number).split(":")[0] for number
                                  in os.listdir("/proc/self/fd") if os.path.lexists("/proc/self/fd/" + number)),
        }
        return [re.sub(" at 0x[0-9a-f]+", "", json.dumps(found))]
"#;

/// A filter plugin with the name of one of Ansible's own, and a role's lookup with such a name: both must be the job's.
const CORE: &str =
    "class FilterModule:\n    def filters(self):\n        return {'mine': lambda text: 'mine ' + text}\n";
const ENV: &str = "from ansible.plugins.lookup import LookupBase\n\
    class LookupModule(LookupBase):\n    def run(self, terms, variables=None, **options):\n        return ['my env']\n";

async fn probed(way: &str, server: bool) -> Option<(Json, String)> {
    let set = |config: &mut ExecutorConfig| config.fork_server = server;
    let site = Site::open("ways to run a playbook", set).await?;
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let tasks = "    - debug: {msg: \"{{ query('probe') }}\"}\n    \
        - debug: {msg: \"{{ 'filter' | mine }}, {{ lookup('env', 'HOME') }}, {{ password }}\"}\n    \
        - copy: {content: \"{{ query('probe')[0] }}\", dest: \"{{ zuul.executor.log_root }}/probe.json\"}\n";
    let config = site.commit(
        "config",
        &[
            ("run.yaml", &play(tasks)),
            ("lookup_plugins/probe.py", PROBE),
            ("lookup_plugins/env.py", ENV),
            ("filter_plugins/core.py", CORE),
        ],
    );
    let mut spec = site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)]);
    let number = spec.build.to_string();
    spec.playbooks[0].secrets =
        BTreeMap::from([("password".to_owned(), Value::Str("not {{ a }} template".into()))]).into();
    let build = site.executor.prepare(spec, site.workspace()).await.unwrap();
    let (outcome, text) = {
        let outcome = build.run().await;
        let text = crate::site::console(&outcome);
        (outcome, text)
    };
    assert_eq!(outcome.result, BuildResult::Success, "{way}: {text}");
    assert!(text.contains("mine filter, my env, not {{ a }} template"), "{way}: {text}");
    let line =
        text.lines().find_map(|line| line.split_once("\\\"way\\\"").map(|_| line)).unwrap_or_default().to_owned();
    let line = line.trim_start_matches(|c| c != '"').trim_end_matches([',', ' ']);
    let said: String = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {text}"));
    let place = site.folder.path().canonicalize().unwrap().display().to_string();
    let found: Json = serde_json::from_str(&said.replace(&place, "SITE").replace(&number, "BUILD")).unwrap();
    Some((found, text))
}

/// Every value by its path.
fn flat(prefix: &str, value: &Json, all: &mut BTreeMap<String, String>) {
    match value {
        Json::Object(map) => map.iter().for_each(|(name, value)| flat(&format!("{prefix}/{name}"), value, all)),
        other => drop(all.insert(prefix.to_owned(), other.to_string())),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_playbook_cannot_tell_whether_ansible_was_started_for_it() {
    let Some((alone, text)) = probed("alone", false).await else { return };
    let Some((forked, _)) = probed("forked", true).await else { return };
    let (mut one, mut other) = (BTreeMap::new(), BTreeMap::new());
    flat("", &alone, &mut one);
    flat("", &forked, &mut other);
    assert_eq!((one.remove("/way").as_deref(), other.remove("/way").as_deref()), (Some("\"run\""), Some("\"serve\"")));
    assert!(one.len() > 300, "{} values: {text}", one.len());
    let names = one.keys().chain(other.keys()).collect::<std::collections::BTreeSet<_>>();
    let temporary = |value: Option<&String>| value.is_some_and(|value| value.contains("/tmp/ansible-local-"));
    let differ: Vec<String> = names
        .into_iter()
        .filter(|name| one.get(*name) != other.get(*name))
        .filter(|name| !(temporary(one.get(*name)) && temporary(other.get(*name))))
        .map(|name| format!("{name}: alone {:?}, forked {:?}", one.get(name), other.get(name)))
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_server_that_is_killed_is_followed_by_another() {
    let Some(site) = Site::open("a fork server that is killed", |_| {}).await else { return };
    let app = site.commit("org/app", &[("app.txt", "app")]);
    let place = site.folder.path().canonicalize().unwrap().display().to_string();
    let task = "    - debug: {msg: \"way {{ lookup('file', '/proc/self/cmdline').split('\\0')[-2] }}\"}\n";
    let config = site.commit("config", &[("run.yaml", &play(task))]);
    let serves = || -> Vec<i32> {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let line = |pid: &i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        pids.filter(|pid| {
            let line = String::from_utf8_lossy(&line(pid)).into_owned();
            line.contains(&place) && line.contains("serve")
        })
        .collect()
    };
    let mut servers = Vec::new();
    for _ in 0..2 {
        let (outcome, text) = site.run(site.spec(&config, &app, &[(Phase::Run, "run.yaml", 0)])).await;
        assert_eq!(outcome.result, BuildResult::Success, "{text}");
        assert!(text.contains("way serve"), "{text}");
        // The process of the playbook that is over bears the server's name until it is gone.
        until("the server is alone", || serves().len() == 1).await;
        let [server] = serves()[..] else { panic!("servers: {:?}", serves()) };
        servers.push(server);
        rustix::process::kill_process(rustix::process::Pid::from_raw(server).unwrap(), rustix::process::Signal::KILL)
            .unwrap();
        until("the server has ended", || serves().is_empty()).await;
    }
    assert_ne!(servers[0], servers[1]);
}
