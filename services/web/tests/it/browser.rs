//! The page in a real browser: serves the story and has `tests/browser/run` look at it.
//!
//! Where there is no Chromium, Node.js or npm to be had it says `SKIPPED browser: why`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Query, State};
use axum::routing::{get, post};
use gatelog_record::BuildId;
use gatelog_record::event::GateEvent;

use crate::site::{Gatekeeper, Served, TestConsoles};
use crate::{hostile, site, story, trace};

/// The story as far as it is not told yet.
struct Teller {
    keeper: Gatekeeper,
    rest: Mutex<(u64, std::vec::IntoIter<GateEvent>)>,
    served: Served,
    /// The site on which every text is hostile.
    hostile: Served,
}

impl Teller {
    /// Where the console of a build is: the two sites have no build in common.
    fn consoles(&self, build: BuildId) -> &TestConsoles {
        let site = if [hostile::FAILED, hostile::RUNNING].contains(&build) { &self.hostile } else { &self.served };
        &site.consoles
    }
}

type Pairs = Query<BTreeMap<String, String>>;

/// Tells the story on to an event and says to which.
async fn tell(State(teller): State<Arc<Teller>>, Query(pairs): Pairs) -> String {
    let to: u64 = pairs["to"].parse().unwrap();
    let last = {
        let mut rest = teller.rest.lock().unwrap();
        while rest.0 < to {
            let Some(event) = rest.1.next() else { break };
            rest.0 = teller.keeper.say(event);
        }
        rest.0
    };
    teller.served.reached(last).await;
    last.to_string()
}

/// Has a build say something.
async fn write(State(teller): State<Arc<Teller>>, Query(pairs): Pairs, text: String) {
    let (build, attempt) = (pairs["build"].parse().unwrap(), pairs["attempt"].parse().unwrap());
    teller.consoles(build).write(build, attempt, &text, pairs["over"] == "1");
}

/// Has a build have said more than anybody holds.
async fn make(State(teller): State<Arc<Teller>>, Query(pairs): Pairs) {
    let (build, attempt) = (pairs["build"].parse().unwrap(), pairs["attempt"].parse().unwrap());
    let (length, made) = match pairs["kind"].as_str() {
        "gigabyte" => site::GIGABYTE,
        "long-line" => site::LONG_LINE,
        other => panic!("no such console: {other}"),
    };
    teller.consoles(build).make(build, attempt, length, made);
}

/// Has a build's worker be away, and something of its console stored.
async fn away(State(teller): State<Arc<Teller>>, Query(pairs): Pairs) {
    let (build, attempt) = (pairs["build"].parse().unwrap(), pairs["attempt"].parse().unwrap());
    teller.consoles(build).away(build, attempt, hostile::HOSTILE);
    teller.consoles(build).store(build, attempt, &pairs["stored"]);
}

/// Has the hostile site's failed build say everything that is hostile.
async fn say_hostile(State(teller): State<Arc<Teller>>) {
    teller.hostile.consoles.forget(hostile::FAILED, 1);
    teller.hostile.consoles.write(hostile::FAILED, 1, &hostile::console(), true);
}

/// The hostile site's pages, and a text that all of them show.
async fn of_hostile() -> axum::Json<serde_json::Value> {
    let shown = "<script>window.pwned=1</script></script><svg onload=window.pwned=1>";
    axum::Json(serde_json::json!({ "pages": hostile::pages(), "text": shown }))
}

async fn hostile_site() -> (Gatekeeper, Served, tempfile::TempDir) {
    let keeper = Gatekeeper::new();
    let (blobs, layout, problems) = hostile::blobs(hostile::HOSTILE);
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&keeper, &blobs, dir.path(), 10).await;
    let mut last = 1;
    let told = hostile::events(hostile::HOSTILE, hostile::ADDRESSES[0], layout, problems);
    for event in trace::explained(told, &blobs) {
        last = keeper.say(event);
    }
    served.reached(last).await;
    (keeper, served, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn people_see_the_page_in_a_browser() {
    let keeper = Gatekeeper::new();
    let (blobs, layout, problems) = story::blobs();
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&keeper, &blobs, dir.path(), 10).await;
    let base = served.base.clone();
    let events = trace::explained(story::events(layout, problems), &blobs);
    let (_keeper, hostile, _hostile_dir) = hostile_site().await;
    let hostile_base = hostile.base.clone();
    let teller = Arc::new(Teller { keeper, rest: Mutex::new((1, events.into_iter())), served, hostile });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let control = format!("http://{}", listener.local_addr().unwrap());
    let most = axum::extract::DefaultBodyLimit::max(64 << 20);
    let router = Router::new()
        .route("/tell", post(tell))
        .route("/write", post(write))
        .route("/made", post(make))
        .route("/away", post(away))
        .route("/say-hostile", post(say_hostile))
        .route("/hostile", get(of_hostile))
        .layer(most)
        .with_state(teller);
    tokio::spawn(async move { axum::serve(listener, router).await });

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/browser/run");
    let ran = tokio::task::spawn_blocking(move || {
        std::process::Command::new("bash").arg(script).arg(base).arg(control).arg(hostile_base).output().unwrap()
    });
    let ran = ran.await.unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    if ran.status.code() == Some(77) {
        let why = said.lines().find(|line| line.starts_with("SKIPPED browser: ")).unwrap_or("SKIPPED browser: ?");
        // Past the test runner's capture: a skipped test must not look like one that passed.
        let mut out = std::io::stdout();
        let _ = std::io::Write::write_all(&mut out, format!("{why}\n").as_bytes());
        return;
    }
    assert!(ran.status.success(), "{said}");
}
