//! What the status of a busy tenant costs: how large its document and its page are, how long they take to make
//! after an event, and what many followers cost. `cargo bench -p gatelog-web --bench status_load -- [ITEMS] [JOBS] [CLIENTS]`
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "it measures and says what it measured")]

#[path = "../tests/it/site.rs"]
#[expect(dead_code, reason = "shared with the tests of the API")]
mod site;

use std::time::{Duration, Instant};

use gatelog_event_log::{Blobs, MemoryBlobs};
use gatelog_record::draft::capacity::LeaseAsked;
use gatelog_record::draft::gate::build_owner;
use gatelog_record::draft::gate::described;
use gatelog_record::draft::gate::*;
use gatelog_record::event::GateEvent;
use gatelog_record::{BlobHash, BuildId, BuildsetId, ItemId, LeaseId, Timestamp, WorkId, codec};
use gatelog_rules_config::load::{ConfigFile, LoadInput, load};
use gatelog_rules_config::parse_tenant_file;
use gatelog_rules_config::tenant::ProjectFacts;
use site::{BEGAN, Gatekeeper, Messages, Served};

fn id(kind: u8, number: usize, job: usize) -> [u8; 16] {
    let mut id = [kind; 16];
    id[1..9].copy_from_slice(&(number as u64).to_be_bytes());
    id[9..13].copy_from_slice(&(job as u32).to_be_bytes());
    id
}

fn layout(blobs: &MemoryBlobs) -> BlobHash {
    let (specs, _) =
        parse_tenant_file("- tenant:\n    name: demo\n    source:\n      forge:\n        config-projects: [config]\n");
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
        text: "- pipeline:\n    name: gate\n    manager: dependent\n".into(),
    };
    blobs.put(&codec::encode(&load(&LoadInput { tenant, files: vec![file] }).0).unwrap()).unwrap()
}

/// An item with its jobs, each of which runs.
fn item(number: usize, jobs: usize, layout: BlobHash) -> Vec<GateEvent> {
    let (item, set) = (ItemId(id(1, number, 0)), BuildsetId(id(2, number, 0)));
    let ahead: Vec<ItemId> = (0..number).map(|ahead| ItemId(id(1, ahead, 0))).collect();
    let work = |kind: u8| WorkId(id(kind, number, 0));
    let subject = Subject {
        connection: "forge".into(),
        project: "forge.example/library".into(),
        branch: Some("master".into()),
        git_ref: format!("refs/for/master/change-{number}"),
        change: Some(format!("master/change-{number}")),
        patchset: Some("1".into()),
        commit: Some(format!("{number:040x}")),
        old_commit: None,
        url: format!("https://forge.example/library/change-{number}"),
    };
    let state = PreparedState {
        branches: vec![],
        files: None,
        config: vec![],
        touches_config: false,
        item_touches_config: false,
        containing_branches: Vec::new(),
    };
    let builds: Vec<BuildId> = (0..jobs).map(|job| BuildId(id(3, number, job))).collect();
    let frozen = |job: usize| FrozenJob {
        name: format!("library-job-{job}"),
        spec: BlobHash::of(b"spec"),
        voting: true,
        attempts: 3,
        dependencies: vec![],
        semaphores: vec![],
        nodes: vec![],
        noop: false,
        success_message: None,
        failure_message: None,
        traits: Default::default(),
    };
    let mut events = vec![
        GateEvent::ItemEnqueued(ItemEnqueued {
            item,
            tenant: "demo".into(),
            pipeline: "gate".into(),
            queue: "main".into(),
            subjects: vec![subject],
            live: true,
            ahead: ahead.last().copied(),
            trigger: None,
            reason: "trigger".into(),
            window: Some(0),
            parameters: std::collections::BTreeMap::new(),
        }),
        GateEvent::BuildsetOpened(BuildsetOpened { buildset: set, item, ahead }),
        GateEvent::PrepareRequested(PrepareRequested {
            work: work(4),
            item,
            buildset: set,
            steps: Vec::new().into(),
            bases: vec![],
            dated: Timestamp(0),
        }),
        GateEvent::Prepared(Prepared {
            item,
            buildset: set,
            done: PrepareDone {
                work: work(4),
                attempt: 1,
                tenant: "demo".into(),
                outcome: PrepareOutcome::Merged(state.clone()),
            },
        }),
        GateEvent::FreezeWanted(FreezeWanted {
            work: work(5),
            item,
            buildset: set,
            tenant: "demo".into(),
            pipeline: "gate".into(),
            layout,
            layout_ahead: None,
            steps: Vec::new().into(),
            state,
            projects: vec![],
            parameters: std::collections::BTreeMap::new(),
            own_files: Vec::new(),
        }),
        GateEvent::Frozen(Frozen {
            item,
            buildset: set,
            done: FreezeDone {
                work: work(5),
                attempt: 1,
                tenant: "demo".into(),
                outcome: FreezeOutcome::Frozen {
                    graph: BlobHash::of(b"graph"),
                    trace: BlobHash::of(b"trace"),
                    jobs: (0..jobs).map(frozen).collect(),
                    repo_state: vec![],
                },
            },
            builds: builds.clone(),
        }),
        GateEvent::WaitChanged(WaitChanged {
            subject: WaitSubject::Item(item),
            code: Some(WaitCode::Jobs),
            detail: "its jobs run".into(),
            since: Timestamp(BEGAN * 1_000_000),
            unblocks: "the last of them".into(),
        }),
    ];
    for (job, build) in builds.into_iter().enumerate() {
        events.push(GateEvent::LeaseWanted(LeaseWanted {
            item,
            buildset: set,
            build,
            attempt: 1,
            ask: LeaseAsked {
                owner: build_owner("demo", build, 1),
                share: "demo".into(),
                description: described("demo", "gate", &format!("library-job-{job}")),
                spec: BlobHash::of(b"spec"),
                nodes: vec![],
                semaphores: vec![],
                priority: 200,
                or_others: false,
            },
            taken: Some(Vec::new()),
        }));
        events.push(GateEvent::BuildStarted(BuildStarted {
            started: AttemptStarted {
                tenant: "demo".into(),
                build,
                attempt: 1,
                lease: LeaseId(id(6, number, job)),
                worker: "worker-1".into(),
                started_at: Timestamp(BEGAN * 1_000_000),
            },
            item,
            buildset: set,
            taken: Some(Vec::new()),
        }));
    }
    events
}

#[tokio::main]
async fn main() {
    let arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let mut arguments = arguments.map(|argument| argument.parse::<usize>().unwrap());
    let (items, jobs) = (arguments.next().unwrap_or(200), arguments.next().unwrap_or(10));
    let clients = arguments.next().unwrap_or(100);
    let (keeper, blobs, dir) = (Gatekeeper::new(), MemoryBlobs::new(), tempfile::tempdir().unwrap());
    let layout = layout(&blobs);
    let served = Served::start(&keeper, &blobs, dir.path(), 0).await;
    let mut last = keeper.say(GateEvent::TenantConfigured(TenantConfigured {
        tenant: TenantLoaded {
            tenant: "demo".into(),
            version: 1,
            settings: blobs.put(&site::open_settings(&["demo"])).unwrap(),
            projects: vec![],
            web_root: String::new(),
        },
    }));
    let work = WorkId(id(9, 0, 0));
    last = last.max(keeper.say(GateEvent::LayoutWanted(LayoutWanted {
        work,
        tenant: "demo".into(),
        purpose: LayoutPurpose::Tenant,
        item: None,
        buildset: None,
        settings: BlobHash::of(b"settings"),
        files: vec![],
        ahead: None,
        changed: vec![],
        base: None,
    })));
    last = last.max(keeper.say(GateEvent::LayoutActivated(LayoutActivated {
        made: LayoutMade {
            work,
            attempt: 1,
            tenant: "demo".into(),
            outcome: LayoutOutcome::Made {
                layout,
                problems: layout,
                errors: 0,
                introduced: vec![],
                loader: 1,
                secrets: vec![],
                warnings: Vec::new(),
            },
        },
        generation: 1,
        begun: None,
    })));
    for number in 0..items {
        for event in item(number, jobs, layout) {
            last = keeper.say(event);
        }
    }
    served.reached(last).await;
    println!("{items} items of {jobs} jobs, {last} events");
    for path in ["/api/tenant/demo/status", "/t/demo/status", "/"] {
        let mut times: Vec<Duration> = Vec::new();
        let mut size = 0;
        for number in 0..20 {
            // Something small is another each time: nothing is as it was told before.
            last = keeper.say(GateEvent::WaitChanged(WaitChanged {
                subject: WaitSubject::Item(ItemId(id(1, number, 0))),
                code: Some(WaitCode::Jobs),
                detail: format!("{path} is asked for"),
                since: Timestamp(BEGAN * 1_000_000),
                unblocks: "the last of them".into(),
            }));
            served.reached(last).await;
            let began = Instant::now();
            let answer = served.http.get(format!("{}{path}", served.base)).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{path}");
            size = answer.bytes().await.unwrap().len();
            times.push(began.elapsed());
        }
        times.sort_unstable();
        println!("{path}: {size} bytes, median {:?}, worst {:?}", times[times.len() / 2], times[times.len() - 1]);
    }
    let mut open = Vec::new();
    for _ in 0..clients {
        open.push(Messages::open(&served, "/api/tenant/demo/status/stream?brief=1", Some(last)).await);
    }
    let began = Instant::now();
    for event in item(items, jobs, layout) {
        keeper.say(event);
    }
    let mut told = 0;
    for client in &mut open {
        client.next().await;
        told += 1;
    }
    println!("{told} followers heard of a change after {:?}", began.elapsed());
}
