//! A site on which every text that people, projects and workers choose is hostile.

use gatelog_event_log::{Blobs, MemoryBlobs};
use gatelog_record::draft::capacity::{LeaseAsked, NodeWanted};
use gatelog_record::draft::gate::build_owner;
use gatelog_record::draft::gate::described;
use gatelog_record::draft::gate::*;
use gatelog_record::event::GateEvent;
use gatelog_record::{BlobHash, BuildId, BuildsetId, ItemId, LeaseId, Timestamp, Value, WorkId, codec};
use gatelog_rules_config::load::{ConfigFile, LoadInput, load};
use gatelog_rules_config::parse_tenant_file;
use gatelog_rules_config::tenant::ProjectFacts;

use crate::site::{BEGAN, open_settings};
use crate::story::{layout_activated, layout_wanted};

/// Everything that ever became markup, a script or another address somewhere. What runs sets `pwned`.
pub const HOSTILE: &str = concat!(
    r#""><img src=x onerror=window.pwned=1>"#,
    r#"' onmouseover=window.pwned=1 onfocus=window.pwned=1 autofocus tabindex=1 x='"#,
    r#"<script>window.pwned=1</script></script><svg onload=window.pwned=1></title></textarea></style>"#,
    r#"--><base href=//evil.example/><meta http-equiv=refresh content=0;url=//evil.example/>"#,
    r#"<iframe srcdoc="<script>parent.pwned=1</script>"></iframe><a href=javascript:window.pwned=1>a</a>"#,
    r#"&lt;img src=x onerror=window.pwned=1&gt;{{constructor.constructor('window.pwned=1')()}}${window.pwned=1}"#,
    "\u{202e}\u{2066}\u{200b}\u{e0041}\0\u{7}\u{8}\u{1b}[31m\u{1b}]8;;javascript:window.pwned=1\u{7}x\u{9b}31m\u{85}%0d%0aSet-Cookie:x\r",
);
/// Addresses that must not be followed.
pub const ADDRESSES: [&str; 8] = [
    "javascript:window.pwned=1",
    "JaVaScRiPt:window.pwned=1",
    " javascript:window.pwned=1",
    "java\nscript:window.pwned=1",
    "data:text/html,<script>window.pwned=1</script>",
    "vbscript:x",
    "//evil.example/",
    "\u{1}javascript:window.pwned=1",
];

pub const TENANT: &str = "demo";
pub const ITEM: ItemId = ItemId([0xd0; 16]);
pub const SET: BuildsetId = BuildsetId([0xd1; 16]);
pub const FAILED: BuildId = BuildId([0xd4; 16]);
pub const RUNNING: BuildId = BuildId([0xd5; 16]);
pub const SECOND: ItemId = ItemId([0xe0; 16]);
pub const SECOND_SET: BuildsetId = BuildsetId([0xe1; 16]);

fn at(sequence: i64) -> Timestamp {
    Timestamp((BEGAN + sequence) * 1_000_000)
}

fn work(number: u8) -> WorkId {
    WorkId([number; 16])
}

/// A text in YAML's double quotes, everything but plain letters escaped.
fn quoted(text: &str) -> String {
    let letter = |letter: char| match letter {
        '"' | '\\' => format!("\\{letter}"),
        ' '..='~' => letter.to_string(),
        other => format!("\\U{:08x}", u32::from(other)),
    };
    format!("\"{}\"", text.chars().map(letter).collect::<String>())
}

/// The layout and its problems, with names of jobs and pipelines that are `text` as far as they may be.
pub fn blobs(text: &str) -> (MemoryBlobs, BlobHash, BlobHash) {
    let quoted = quoted(text);
    let config = format!(
        "- pipeline:\n    name: gate\n    manager: dependent\n    description: {quoted}\n    trigger:\n      forge:\n        - event: change-approved\n- job:\n    name: base\n    parent: null\n    description: {quoted}\n- job:\n    name: broken\n    parent: {quoted}\n"
    );
    let tenants = "- tenant:\n    name: demo\n    source:\n      forge:\n        config-projects: [config]\n";
    let (specs, _) = parse_tenant_file(tenants);
    let facts = |_: &str, name: &str| {
        Some(ProjectFacts {
            canonical_name: format!("forge.example/{name}"),
            default_branch: "master".into(),
            branches: vec!["master".into()],
        })
    };
    let (tenant, _) = specs[0].resolve(facts);
    let file = ConfigFile {
        project: "forge.example/config".into(),
        branch: "master".into(),
        path: "zuul.yaml".into(),
        text: config,
    };
    let (layout, problems) = load(&LoadInput { tenant, files: vec![file] });
    let blobs = MemoryBlobs::new();
    blobs.put(&open_settings(&[TENANT, text])).unwrap();
    let layout = blobs.put(&codec::encode(&layout).unwrap()).unwrap();
    let problems = blobs.put(&codec::encode(&problems).unwrap()).unwrap();
    (blobs, layout, problems)
}

/// What happened, with `text` for every name and message and `url` for every address.
pub fn events(text: &str, url: &str, layout: BlobHash, problems: BlobHash) -> Vec<GateEvent> {
    let t = || text.to_owned();
    let subject = |number: u8| Subject {
        connection: t(),
        project: format!("forge.example/{text}"),
        branch: Some(t()),
        git_ref: format!("refs/for/{text}/{number}"),
        change: Some(format!("{text}{number}")),
        patchset: Some(t()),
        commit: Some(t()),
        old_commit: Some(t()),
        url: url.to_owned(),
    };
    let project = |name: &str| TenantProject {
        connection: t(),
        project: format!("forge.example/{name}"),
        trusted: false,
        reads_config: true,
    };
    let configured = |tenant: &str| {
        GateEvent::TenantConfigured(TenantConfigured {
            tenant: TenantLoaded {
                tenant: tenant.into(),
                version: 1,
                settings: BlobHash::of(&open_settings(&[TENANT, text])),
                projects: vec![project(text)],
                web_root: url.to_owned(),
            },
        })
    };
    let wait = |subject: WaitSubject, code: WaitCode| {
        GateEvent::WaitChanged(WaitChanged { subject, code: Some(code), detail: t(), since: at(9), unblocks: t() })
    };
    let enqueued = |item, number, ahead| {
        GateEvent::ItemEnqueued(ItemEnqueued {
            item,
            tenant: TENANT.into(),
            pipeline: t(),
            queue: t(),
            subjects: vec![subject(number)],
            live: true,
            ahead,
            trigger: None,
            reason: t(),
            window: Some(1),
            parameters: std::collections::BTreeMap::new(),
        })
    };
    let job = |name: String, after: &[&str]| FrozenJob {
        name,
        spec: BlobHash::of(b"spec"),
        voting: false,
        attempts: 3,
        dependencies: after.iter().map(|name| ((*name).to_owned(), true)).collect(),
        semaphores: vec![],
        nodes: vec![NodeWanted { names: vec![t()], label: t() }],
        noop: false,
        success_message: Some(t()),
        failure_message: Some(t()),
        traits: Default::default(),
    };
    let state = PreparedState {
        branches: vec![],
        files: None,
        config: vec![],
        touches_config: false,
        item_touches_config: false,
        containing_branches: Vec::new(),
    };
    let lease = |build, name: &str| {
        GateEvent::LeaseWanted(LeaseWanted {
            item: ITEM,
            buildset: SET,
            build,
            attempt: 1,
            ask: LeaseAsked {
                owner: build_owner(TENANT, build, 1),
                share: TENANT.into(),
                description: described(TENANT, &t(), name),
                spec: BlobHash::of(b"spec"),
                nodes: vec![],
                semaphores: vec![],
                priority: 200,
                or_others: false,
            },
            taken: Some(Vec::new()),
        })
    };
    let started = |build| {
        GateEvent::BuildStarted(BuildStarted {
            started: AttemptStarted {
                tenant: TENANT.into(),
                build,
                attempt: 1,
                lease: LeaseId([1; 16]),
                worker: t(),
                started_at: at(12),
            },
            item: ITEM,
            buildset: SET,
            taken: Some(Vec::new()),
        })
    };
    let second = format!("{text}2");
    let mut artifacts = vec![Artifact { name: t(), url: url.to_owned(), metadata: Value::Str(t()) }];
    artifacts.extend(ADDRESSES.iter().map(|address| {
        let url = if url.starts_with("https") { "file:///plain" } else { address };
        Artifact { name: t(), url: url.to_owned(), metadata: Value::Str(t()) }
    }));
    vec![
        configured(TENANT),
        configured(text),
        wait(WaitSubject::Tenant(TENANT.into()), WaitCode::Layout),
        layout_wanted(TENANT),
        layout_activated(TENANT, layout, problems),
        enqueued(ITEM, 1, None),
        GateEvent::BuildsetOpened(BuildsetOpened { buildset: SET, item: ITEM, ahead: vec![] }),
        wait(WaitSubject::Item(ITEM), WaitCode::Jobs),
        GateEvent::PrepareRequested(PrepareRequested {
            work: work(2),
            item: ITEM,
            buildset: SET,
            steps: Vec::new().into(),
            bases: vec![],
            dated: at(0),
        }),
        GateEvent::Prepared(Prepared {
            item: ITEM,
            buildset: SET,
            done: PrepareDone {
                work: work(2),
                attempt: 1,
                tenant: TENANT.into(),
                outcome: PrepareOutcome::Merged(state.clone()),
            },
        }),
        GateEvent::FreezeWanted(FreezeWanted {
            work: work(3),
            item: ITEM,
            buildset: SET,
            tenant: TENANT.into(),
            pipeline: t(),
            layout,
            layout_ahead: None,
            steps: Vec::new().into(),
            state,
            projects: vec![],
            parameters: std::collections::BTreeMap::new(),
            own_files: Vec::new(),
        }),
        GateEvent::Frozen(Frozen {
            item: ITEM,
            buildset: SET,
            done: FreezeDone {
                work: work(3),
                attempt: 1,
                tenant: TENANT.into(),
                outcome: FreezeOutcome::Frozen {
                    graph: BlobHash::of(b"graph"),
                    trace: BlobHash::of(b"trace"),
                    jobs: vec![job(t(), &[]), job(second.clone(), &[text])],
                    repo_state: vec![],
                },
            },
            builds: vec![FAILED, RUNNING],
        }),
        lease(FAILED, text),
        wait(WaitSubject::Build(FAILED), WaitCode::Lease),
        started(FAILED),
        GateEvent::BuildFinished(BuildFinished {
            finished: AttemptFinished {
                tenant: TENANT.into(),
                build: FAILED,
                attempt: 1,
                worker: t(),
                result: BuildResult::Failure,
                started_at: at(12),
                finished_at: at(16),
                detail: Some(t()),
                data: Value::Str(t()),
                secret_data: None,
                artifacts,
                log_url: Some(url.to_owned()),
                kept: Default::default(),
            },
            item: ITEM,
            buildset: SET,
            retry: false,
            result: Some(BuildResult::Failure),
            freed: Some(Vec::new()),
        }),
        lease(RUNNING, &second),
        wait(WaitSubject::Build(RUNNING), WaitCode::Running),
        started(RUNNING),
        GateEvent::ItemFailing(ItemFailing { item: ITEM, reasons: vec![t()] }),
        enqueued(SECOND, 2, Some(ITEM)),
        GateEvent::BuildsetOpened(BuildsetOpened { buildset: SECOND_SET, item: SECOND, ahead: vec![ITEM] }),
        GateEvent::PrepareRequested(PrepareRequested {
            work: work(4),
            item: SECOND,
            buildset: SECOND_SET,
            steps: Vec::new().into(),
            bases: vec![],
            dated: at(0),
        }),
        GateEvent::Prepared(Prepared {
            item: SECOND,
            buildset: SECOND_SET,
            done: PrepareDone {
                work: work(4),
                attempt: 1,
                tenant: TENANT.into(),
                outcome: PrepareOutcome::Conflict { subject: subject(2), paths: vec![t()], message: t() },
            },
        }),
        GateEvent::ReportRequested(ReportRequested {
            work: work(5),
            tenant: TENANT.into(),
            item: Some(SECOND),
            pipeline: t(),
            action: ReportAction::MergeConflict,
            reporters: vec![(t(), Value::Null)],
            subjects: vec![],
            message: t(),
            remarks: Vec::new(),
            requested_at: at(0),
        }),
        GateEvent::ItemDequeued(ItemDequeued {
            item: SECOND,
            result: ItemResult::MergeConflict,
            code: t(),
            detail: t(),
            merged: false,
        }),
    ]
}

/// What the console of the failed build says.
pub fn console() -> String {
    let mut out = String::from("2026-01-01 00:00:12.000000 | plain\n");
    for (number, line) in [HOSTILE].iter().chain(&ADDRESSES).enumerate() {
        out.push_str(&format!(
            "{number} see {} \u{1b}[1;3{}m{}\n",
            line.replace('\n', " "),
            number % 8,
            line.replace('\n', " ")
        ));
    }
    out.push_str(
        "https://good.example/x and https://good.example/\"onmouseover=window.pwned=1 http://[::1]/<script>\n",
    );
    out
}

/// Every page of it.
pub fn pages() -> Vec<String> {
    let mut all: Vec<String> = [
        "/",
        "/t/demo/status",
        "/t/demo/status?filter=x",
        "/t/demo/status?filter=nobody",
        "/t/demo/builds",
        "/t/demo/buildsets",
        "/t/demo/config-errors",
    ]
    .map(str::to_owned)
    .into();
    all.extend([FAILED, RUNNING].map(|build| format!("/t/demo/build/{build}")));
    all.extend([SET, SECOND_SET].map(|set| format!("/t/demo/buildset/{set}")));
    all.extend([ITEM, SECOND].map(|item| format!("/t/demo/item/{item}")));
    all.push("/t/demo/status?at=20".into());
    all
}
