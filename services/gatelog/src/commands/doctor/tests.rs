use gatelog_executing::environments::RELEASES;

use super::forge::ForgeFacts;
use super::*;

/// A host on which everything is as it should be.
fn good() -> Facts {
    Facts {
        site: Some(("/srv/ci".into(), None)),
        server_runs: false,
        root: false,
        kernel: "6.12.0".into(),
        processors: 8,
        memory: Some((32 << 30, 30 << 30)),
        slots: 4,
        unsandboxed: false,
        limits: Limits { memory_bytes: Some(6 << 30), ..Limits::default() },
        sandbox: SandboxFacts { tried: Some(Ok(("/usr/bin/bwrap".into(), Features::ALL))), ..SandboxFacts::default() },
        ansible: Ok(("/opt/ansible/bin/ansible-playbook".into(), "2.18.1".into(), "/opt/ansible/bin/python3".into())),
        ansible_named: false,
        releases: vec![(&RELEASES[0], Served::Nothing(None)), (&RELEASES[1], Served::Named)],
        default_release: "11".into(),
        paths: None,
        git: Some("git version 2.45.0".into()),
        has_git_connection: true,
        cgroup: Err(NoCgroup {
            reason: "it is switched off".into(),
            cure: "set cgroup = \"auto\" in [executor]".into(),
        }),
        cgroup_off: true,
        wall: Ok(Wall::User),
        filters_calls: true,
        network: Network::Host,
        slirp: None,
        foreign_abi: false,
        inotify: Some((25, 128)),
        ssh_agent: Some("/usr/bin/ssh-agent".into()),
        disks: vec![DiskFacts {
            what: "the site",
            path: "/srv/ci".into(),
            free: 200 << 30,
            free_files: Some(1_000_000),
            writable: true,
            in_memory: false,
        }],
        open_files: Some(65_536),
        clock: EARLIEST + Duration::from_secs(86_400),
        clock_kept: Some(true),
        ports: vec![PortFacts { key: "web", address: "127.0.0.1:9000".parse().unwrap(), taken: None }],
        kafka: None,
        forge: Some(ForgeFacts { projects: 3, troubled: Vec::new() }),
    }
}

fn text(facts: &Facts) -> String {
    render(&about(facts), &judge(facts), Style::Plain).join("\n")
}

#[test]
fn a_good_host_reads_like_this() {
    assert_eq!(
        text(&good()),
        "6.12.0, 8 processors, 32 GiB of memory, as an ordinary user\n\
         \n\
         site\n\
         \x20 ok       configuration    /srv/ci/gatelog.toml\n\
         \x20 ok       disk             the site in /srv/ci: 200 GiB free\n\
         \x20 ok       open files       limit 65536\n\
         \x20 ok       clock            kept by the network\n\
         \x20 ok       forge            the hooks of all 3 repositories are well\n\
         \n\
         executor\n\
         \x20 ok       bubblewrap       /usr/bin/bwrap makes sandboxes\n\
         \x20 ok       ansible          ansible-core 2.18.1 (/opt/ansible/bin/ansible-playbook), Python /opt/ansible/bin/python3\n\
         \x20 warning  ansible version  9: not installed; builds of jobs that ask for it end ERROR\n\
         \x20          cure: run `gatelog ansible install 9`\n\
         \x20 ok       ansible version  11: not installed; the ansible-playbook above runs its jobs, with what collections it has\n\
         \x20 warning  control groups   switched off; a watch in gatelog ends builds that use too much, a moment later, and does not see System V segments and buffers of sockets and pipes\n\
         \x20          cure: set cgroup = \"auto\" in [executor]\n\
         \x20 ok       processes        4096 for each build, by a limit on processes, counted for each sandbox\n\
         \x20 ok       memory           6 GiB for each of 4 builds, of 32 GiB\n\
         \x20 ok       system calls     those that no job needs are refused, and programs of another processor's\n\
         \x20 ok       network          this host's: jobs reach what listens on its loopback; network = \"private\" in [executor] keeps them from it\n\
         \x20 ok       inotify          25 instances for each of 4 builds, of 128\n\
         \x20 ok       ssh agent        /usr/bin/ssh-agent for each build, behind a proxy with bounds\n\
         \n\
         merger\n\
         \x20 ok       git              git version 2.45.0\n\
         \n\
         web\n\
         \x20 ok       port             127.0.0.1:9000 is free\n\
         \n\
         Everything works; 2 warnings."
    );
    assert_eq!(verdict(&judge(&good())), Code::Ok);
}

#[test]
fn a_bad_host_reads_like_this() {
    let mut bad = good();
    bad.root = true;
    bad.sandbox.tried = Some(Err(SandboxFailure::Fails("exit status: 1: bwrap: setting up uid map: \u{1b}[2J".into())));
    bad.sandbox.apparmor_restricts = true;
    bad.git = None;
    bad.ports[0].taken = Some(std::io::ErrorKind::AddrInUse);
    let all = text(&bad);
    let executor = all.split("\nexecutor\n").nth(1).unwrap();
    assert_eq!(
        executor,
        "\x20 LACK     bubblewrap       it makes no sandbox: exit status: 1: bwrap: setting up uid map: \u{fffd}[2J\n\
         \x20          cure: allow it: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or an\n\
         \x20                AppArmor profile for bwrap with `userns,` (Ubuntu 24.04: apt install\n\
         \x20                apparmor-profiles, then link bwrap-userns-restrict into /etc/apparmor.d)\n\
         \x20 ok       ansible          ansible-core 2.18.1 (/opt/ansible/bin/ansible-playbook), Python /opt/ansible/bin/python3\n\
         \x20 warning  ansible version  9: not installed; builds of jobs that ask for it end ERROR\n\
         \x20          cure: run `gatelog ansible install 9`\n\
         \x20 ok       ansible version  11: not installed; the ansible-playbook above runs its jobs, with what collections it has\n\
         \x20 warning  control groups   switched off; a watch in gatelog ends builds that use too much, a moment later, and does not see buffers of sockets and pipes\n\
         \x20          cure: set cgroup = \"auto\" in [executor]\n\
         \x20 ok       processes        4096 for each build, by a limit on processes, counted for each sandbox\n\
         \x20 ok       memory           6 GiB for each of 4 builds, of 32 GiB\n\
         \x20 ok       system calls     those that no job needs are refused, and programs of another processor's\n\
         \x20 ok       network          this host's: jobs reach what listens on its loopback; network = \"private\" in [executor] keeps them from it\n\
         \x20 ok       inotify          25 instances for each of 4 builds, of 128\n\
         \x20 ok       ssh agent        /usr/bin/ssh-agent for each build, behind a proxy with bounds\n\
         \x20 warning  user             root: a hole in the kernel's sandbox would be a way to the whole host\n\
         \x20          cure: run gatelog as a user of its own (User=gatelog in the systemd unit); nothing it\n\
         \x20                does needs root\n\
         \n\
         merger\n\
         \x20 LACK     git              there is none on PATH\n\
         \x20          cure: install git: pushes to the built-in forge and many jobs need it (gatelog's own\n\
         \x20                merges do not)\n\
         \n\
         web\n\
         \x20 LACK     port             127.0.0.1:9000 is in use\n\
         \x20          cure: stop what listens there (ss -ltnp 'sport = :9000'), or set listen under [web]\n\
         \n\
         3 lacks, 3 warnings."
    );
    assert_eq!(verdict(&judge(&bad)), Code::No);
}

/// Something broken, what names it, and the exit code where it is the only lack.
type Case = (fn(&mut Facts), &'static str, &'static str, Code);

const CASES: [Case; 34] = [
    (
        |f| f.site = Some(("/srv/ci".into(), Some("line 3: unknown key".into()))),
        "unknown key",
        "correct /srv/ci/gatelog.toml",
        Code::Usage,
    ),
    (
        |f| {
            f.forge = Some(ForgeFacts { projects: 3, troubled: vec![("app".into(), "no pre-receive".into())] });
        },
        "app: no pre-receive",
        "gatelog project add app",
        Code::Ok,
    ),
    (|f| f.disks[0].writable = false, "not writable", "right to write", Code::No),
    (|f| f.disks[0].free = 5 << 20, "5 MiB free", "full disk", Code::No),
    (|f| f.disks[0].free_files = Some(12), "12 more files", "inodes", Code::No),
    (|f| f.disks[0].in_memory = true, "tmpfs", "on a disk", Code::Ok),
    (|f| f.open_files = Some(1024), "limit 1024", "hard limit", Code::Ok),
    (|f| f.clock = Duration::ZERO, "before 2026", "set-time", Code::No),
    (|f| f.clock_kept = None, "anything that keeps it", "chrony", Code::Ok),
    (
        |f| {
            f.kafka = Some((
                "k:1".into(),
                vec![(FindingKind::Unreachable, "k:1 does not answer".into(), "start the brokers".into())],
            ))
        },
        "does not answer",
        "start the brokers",
        Code::Unavailable,
    ),
    (|f| f.unsandboxed = true, "not used", "remove unsandboxed", Code::Ok),
    (|f| f.sandbox.tried = Some(Err(SandboxFailure::Missing)), "none on PATH", "apt install bubblewrap", Code::No),
    (
        |f| {
            no_sandbox(f);
            f.sandbox.in_chroot = true
        },
        "makes no sandbox",
        "chroot",
        Code::No,
    ),
    (
        |f| {
            no_sandbox(f);
            f.sandbox.clone_forbidden = true
        },
        "makes no sandbox",
        "unprivileged_userns_clone=1",
        Code::No,
    ),
    (
        |f| {
            no_sandbox(f);
            f.sandbox.no_namespaces = true
        },
        "makes no sandbox",
        "max_user_namespaces",
        Code::No,
    ),
    (
        |f| {
            no_sandbox(f);
            f.sandbox.in_container = true
        },
        "makes no sandbox",
        "--security-opt",
        Code::No,
    ),
    (no_sandbox, "makes no sandbox", "see what stands in its way", Code::No),
    (
        |f| f.sandbox.tried = Some(Ok(("/b".into(), Features { sizes: false, no_nested_namespaces: false }))),
        "half of the memory",
        "0.8",
        Code::Ok,
    ),
    (|f| f.ansible = Err("no ansible-playbook found on PATH".into()), "no ansible-playbook", "pip install", Code::No),
    (|f| f.releases[1].1 = Served::Nothing(None), "11: not installed", "gatelog ansible install 11", Code::No),
    (
        |f| f.releases[1].1 = Served::Nothing(Some("the directory it names is gone".into())),
        "11: the directory it names is gone",
        "gatelog ansible install 11",
        Code::No,
    ),
    (|f| f.releases[1].1 = Served::Substitute, "although it is another version", "ansible install 11", Code::Ok),
    (
        |f| f.paths = Some(("x is not there".into(), "make the directory".into())),
        "x is not there",
        "make the directory",
        Code::No,
    ),
    (|f| f.ansible = Ok(("/a".into(), "2.9.27".into(), "/p".into())), "too old", "2.16 or later", Code::No),
    (
        |f| {
            f.cgroup_off = false;
            f.cgroup = Err(NoCgroup { reason: "2 other processes".into(), cure: "Delegate=yes".into() })
        },
        "2 other processes",
        "Delegate=yes",
        Code::Ok,
    ),
    (
        |f| f.wall = Err(NoWall { reason: "Linux 6.1 never counts".into(), cure: "User=gatelog".into() }),
        "a fork bomb may take this host",
        "User=gatelog",
        Code::Ok,
    ),
    (|f| f.filters_calls = false, "open to jobs", "CONFIG_SECCOMP_FILTER", Code::Ok),
    (|f| f.network = Network::Private, "there is no slirp4netns", "install slirp4netns", Code::No),
    (|f| f.foreign_abi = true, "sockets of all kinds", "remove foreign-abi", Code::Ok),
    (|f| f.inotify = Some((8, 32)), "8 instances", "max_user_instances=80", Code::Ok),
    (|f| f.ssh_agent = None, "no ssh-agent on PATH", "openssh-client", Code::Ok),
    (|f| f.slots = 40, "40 builds", "lower slots", Code::Ok),
    (|f| f.limits.memory_bytes = None, "no limit", "job-memory", Code::Ok),
    (|f| f.ports[0].taken = Some(std::io::ErrorKind::AddrInUse), "in use", "set listen under [web]", Code::InUse),
];

fn no_sandbox(facts: &mut Facts) {
    facts.sandbox.tried = Some(Err(SandboxFailure::Fails("Operation not permitted".into())));
}

#[test]
fn each_broken_set_up_names_its_fault_and_its_cure() {
    for (number, (break_it, fault, cure, code)) in CASES.into_iter().enumerate() {
        let mut facts = good();
        break_it(&mut facts);
        let findings = judge(&facts);
        let hit = findings.iter().find(|finding| finding.found.contains(fault) && finding.level != Level::Ok);
        let hit = hit.unwrap_or_else(|| panic!("case {number}: nothing says {fault:?}: {findings:?}"));
        assert!(hit.cure.as_ref().is_some_and(|text| text.contains(cure)), "case {number}: {hit:?}");
        assert_eq!(verdict(&findings), code, "case {number}");
        for finding in &findings {
            let told = finding.cure.as_ref().is_some_and(|cure| cure.len() > 8);
            assert_eq!(told, finding.level != Level::Ok, "case {number}: {finding:?}");
            assert_eq!(finding.code == Code::Ok, finding.level == Level::Ok, "case {number}: {finding:?}");
        }
    }
}

#[test]
fn a_running_server_may_have_its_own_port_and_a_role_sees_what_it_needs() {
    let mut facts = good();
    facts.ports[0].taken = Some(std::io::ErrorKind::AddrInUse);
    facts.server_runs = true;
    assert_eq!(verdict(&judge(&facts)), Code::Ok);
    assert!(matters("site", "web") && matters("merger", "executor") && !matters("executor", "web"));
}

#[test]
fn this_host_can_be_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(FILE), "[executor]\nslot = 3\n").unwrap();
    let facts = Facts::gather(Some((folder.path().to_owned(), false))).unwrap();
    assert!(facts.site.as_ref().unwrap().1.as_ref().is_some_and(|wrong| wrong.contains("slot")));
    assert!(!facts.disks.is_empty() && facts.disks[0].writable && !facts.kernel.is_empty());
    let findings = judge(&facts);
    assert_eq!(findings[0].code, Code::Usage);
    let document = serde_json::to_value(&findings).unwrap();
    assert_eq!((&document[0]["check"], &document[0]["level"]), (&json!("configuration"), &json!("lack")));
}
