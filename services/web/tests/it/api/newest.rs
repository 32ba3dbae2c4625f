//! The status of now, made once for all who ask: the same to everybody, never older than what was asked for, and
//! never mixed up with a moment.

use std::sync::Arc;

use gatelog_rules_config::TenantSettings;
use gatelog_rules_config::authorization::Access;
use gatelog_secrets::Hs256;
use gatelog_web::auth::{self, Authenticators};

use super::*;

const STATUS: &str = "/api/tenant/demo/status";
const STREAM: &str = "/api/tenant/demo/status/stream?brief=1";

#[tokio::test(flavor = "multi_thread")]
async fn after_every_event_the_status_of_now_is_what_is_told_of_that_event_for_ever() {
    let site = told(9).await;
    let (_, layout, problems) = story::blobs();
    let mut was = Vec::new();
    for event in story::events(layout, problems).into_iter().skip(8) {
        let last = site.keeper.say(event);
        site.served.reached(last).await;
        let now = site.served.get(STATUS).await;
        assert_eq!((now.status, now.position.as_deref()), (200, Some(format!("gate/0:{last},capacity/0:0").as_str())));
        // Asked for by its number it is made anew, of nothing that was kept.
        let then = site.served.get(&format!("{STATUS}?at={last}")).await;
        assert_eq!((&now.text, &now.etag), (&then.text, &then.etag), "event {last}");
        let had = site.served.ask(STATUS, &[("If-None-Match", now.etag.as_deref().unwrap())]).await;
        assert_eq!((had.status, had.text.as_str(), &had.etag), (304, "", &now.etag), "event {last}");
        was.push((last, now));
    }
    assert!(was.len() > 40, "{} events", was.len());
    assert!(was.windows(2).any(|pair| pair[0].1.text != pair[1].1.text));
    for (last, now) in was {
        let then = site.served.get(&format!("{STATUS}?at={last}")).await;
        assert_eq!((&now.text, &now.etag), (&then.text, &then.etag), "event {last}, asked for later");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_who_look_at_once_get_the_same_and_all_see_a_change() {
    let site = told(20).await;
    let (_, layout, problems) = story::blobs();
    let look = || futures::future::join_all((0..30).map(|_| site.served.get(STATUS)));
    let mut before: Option<Answer> = None;
    for event in story::events(layout, problems).into_iter().skip(19).take(12) {
        let last = site.keeper.say(event);
        site.served.reached(last).await;
        for answer in look().await {
            assert_eq!(answer.json()["position"], json!(format!("gate/0:{last}")));
            assert_ne!(before.as_ref().map(|before| &before.text), Some(&answer.text));
            let first = site.served.get(STATUS).await;
            assert_eq!((&answer.text, &answer.etag), (&first.text, &first.etag));
        }
        before = Some(site.served.get(STATUS).await);
    }
    // While it changes under those who look, nobody gets what is older than what was there when they asked.
    let (_, layout, problems) = story::blobs();
    let more: Vec<GateEvent> = story::events(layout, problems).into_iter().skip(31).collect();
    for event in more {
        let last = site.keeper.say(event);
        let path = format!("{STATUS}?after={last}");
        for answer in futures::future::join_all((0..8).map(|_| site.served.get(&path))).await {
            let position = answer.json()["position"].as_str().unwrap().rsplit_once(':').unwrap().1.parse::<u64>();
            assert!(position.unwrap() >= last, "{answer:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_made_for_those_who_may_look_is_shown_to_nobody_else() {
    let keeper = Gatekeeper::new();
    let (blobs, layout, problems) = story::blobs();
    let dir = tempfile::tempdir().unwrap();
    let key = || Hs256::new(b"the key of this machine").unwrap();
    let known = Authenticators::new(Vec::new(), None, Some(key()), Arc::new(|| BEGAN as f64));
    let served = Served::start_with(&keeper, &blobs, dir.path(), 10, (8_192, known)).await;
    let mut settings = TenantSettings::default();
    let closed = Access { anonymous_read: false, access_rules: vec!["nobody".into()], ..Access::default() };
    settings.authorization.tenants.insert("demo".into(), closed);
    settings.authorization.tenants.insert(story::WEIRD.into(), Access::default());
    let settings = blobs.put(&gatelog_record::codec::encode(&settings).unwrap()).unwrap();
    let mut last = 1;
    for event in story::events(layout, problems).into_iter().take(31) {
        last = keeper.say(match event {
            GateEvent::TenantConfigured(mut configured) => {
                configured.tenant.settings = settings;
                GateEvent::TenantConfigured(configured)
            }
            other => other,
        });
    }
    served.reached(last).await;
    let claims = json!({ "iss": auth::LOCAL_ISSUER, "aud": auth::LOCAL_AUDIENCE, "sub": "ada",
        "iat": BEGAN, "exp": BEGAN + 60, "zuul": { "admin": "*" } });
    let token = format!("Bearer {}", auth::create_token(&key(), &claims).unwrap());
    for path in [STATUS, "/t/demo/status", STREAM] {
        for _ in 0..2 {
            let nobody = served.get(path).await;
            assert_eq!(nobody.status, 401, "{path}: {}", nobody.text);
            assert!(!nobody.text.contains("add-miles") && nobody.etag.is_none(), "{path}: {}", nobody.text);
            if path != STREAM {
                let somebody = served.ask(path, &[("Authorization", &token)]).await;
                assert_eq!(somebody.status, 200, "{path}: {}", somebody.text);
                assert!(somebody.text.contains("add-miles"), "{path}: {}", somebody.text);
                // Not even that it is still the same.
                if let Some(tag) = &somebody.etag {
                    assert_eq!(served.ask(path, &[("If-None-Match", tag)]).await.status, 401);
                }
            }
        }
    }
    let open = served.get(&format!("/api/tenant/{}/status", "we%2Fird%20%22tenant%22%20%C3%BC")).await;
    assert_eq!(open.status, 200, "{}", open.text);
    assert!(!open.text.contains("add-miles"), "{}", open.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_stream_more_than_there_is_room_for_is_refused_until_another_ends() {
    let keeper = Gatekeeper::new();
    let (blobs, layout, problems) = story::blobs();
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start_with(&keeper, &blobs, dir.path(), 10, (3, Authenticators::none())).await;
    let mut last = 1;
    for event in story::events(layout, problems).into_iter().take(31) {
        last = keeper.say(event);
    }
    served.reached(last).await;
    let mut open = vec![
        Messages::open(&served, STREAM, None).await,
        Messages::open(&served, STREAM, None).await,
        Messages::open(&served, "/api/events", None).await,
    ];
    for path in [STREAM, "/api/events", "/api/tenant/demo/status?after=1"] {
        let refused = served.http.get(format!("{}{path}", served.base)).send().await.unwrap();
        assert_eq!(refused.status(), 503, "{path}");
        assert_eq!(refused.headers()["retry-after"], "5", "{path}");
        let told: Json = refused.json().await.unwrap();
        assert_eq!(told["error"], json!("too-many-streams"));
        let says = told["description"].as_str().unwrap();
        assert!(says.starts_with("3 streams and waits are open") && says.contains("[web]"), "{says}");
    }
    // Who only asks is answered, and those who follow go on.
    assert_eq!(served.get(STATUS).await.status, 200);
    let (_, layout, problems) = story::blobs();
    let next = keeper.say(story::events(layout, problems).into_iter().nth(31).unwrap());
    for follower in &mut open {
        while follower.next().await.0 < next {}
    }
    // Whoever leaves makes room, once the server has seen it.
    open.pop();
    for _ in 0..600 {
        let answer = served.http.get(format!("{}{STREAM}", served.base)).send().await.unwrap();
        if answer.status() == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("a place that was left is never given to another");
}
