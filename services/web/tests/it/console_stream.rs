//! Consoles by websocket and by finger, as clients of Zuul ask for them.

use std::sync::Arc;

use futures::{SinkExt, StreamExt};
use gatelog_event_log::{Blobs, MemoryBlobs};
use gatelog_record::event::GateEvent;
use gatelog_record::{BuildId, codec};
use gatelog_rules_config::TenantSettings;
use gatelog_rules_config::authorization::Access;
use gatelog_secrets::Hs256;
use gatelog_web::auth::{Authenticators, create_token};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::site::{Gatekeeper, Served};
use crate::story::{self, UNIT_A, UNIT_B};
use crate::trace;

/// A site where the story was told up to an event.
async fn told(up_to: u64) -> (Served, MemoryBlobs, tempfile::TempDir) {
    told_to(up_to, true, Authenticators::none()).await
}

/// The same, where everybody may look at the tenant, or those alone who bear a token.
async fn told_to(up_to: u64, open: bool, people: Authenticators) -> (Served, MemoryBlobs, tempfile::TempDir) {
    let keeper = Gatekeeper::new();
    let (blobs, layout, problems) = story::blobs();
    let mut closed = TenantSettings::default();
    closed.authorization.tenants.insert("demo".into(), Access { anonymous_read: false, ..Access::default() });
    let closed = blobs.put(&codec::encode(&closed).unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start_with(&keeper, &blobs, dir.path(), 10, (8_192, people)).await;
    let mut last = 1;
    for mut event in trace::explained(story::events(layout, problems), &blobs) {
        if last >= up_to {
            break;
        }
        if let GateEvent::TenantConfigured(configured) = &mut event
            && configured.tenant.tenant == "demo"
            && !open
        {
            configured.tenant.settings = closed;
        }
        last = keeper.say(event);
    }
    served.reached(last).await;
    (served, blobs, dir)
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Asks for a console as zuul-client and the dashboard do.
async fn ask(served: &Served, tenant: &str, request: &str) -> Socket {
    let url = format!("{}/api/tenant/{tenant}/console-stream", served.base.replace("http://", "ws://"));
    let (mut socket, _) = connect_async(url).await.unwrap();
    socket.send(Message::text(request)).await.unwrap();
    socket
}

fn wanted(build: BuildId) -> String {
    json!({ "uuid": build.to_string(), "logfile": "console.log" }).to_string()
}

/// What comes until the server closes, with the code and the reason of that.
async fn whole(mut socket: Socket) -> (String, u16, String) {
    let mut text = String::new();
    while let Some(message) = socket.next().await {
        match message.unwrap() {
            Message::Text(piece) => text.push_str(&piece),
            Message::Close(Some(frame)) => return (text, frame.code.into(), frame.reason.to_string()),
            _ => {}
        }
    }
    panic!("it was closed without a word after {text:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_console_is_streamed_from_its_first_line_while_it_grows_and_closed_when_it_ends() {
    let (served, _blobs, _dir) = told(32).await;
    served.consoles.write(UNIT_A, 1, "one\n\u{20ac}", false);
    let mut socket = ask(&served, "demo", &wanted(UNIT_A)).await;
    let first = loop {
        if let Message::Text(text) = socket.next().await.unwrap().unwrap() {
            break text.to_string();
        }
    };
    assert_eq!(first, "one\n\u{20ac}");
    // One who comes later gets everything, too.
    let late = ask(&served, "demo", &wanted(UNIT_A)).await;
    served.consoles.write(UNIT_A, 1, " two\nthree", true);
    assert_eq!(whole(socket).await, (" two\nthree".into(), 1000, "the console ends here".into()));
    assert_eq!(whole(late).await.0, "one\n\u{20ac} two\nthree");
    let info: Json = served.json("/api/info").await;
    assert!(info["info"]["websocket_url"].is_null(), "clients use the API's own address: {info}");
    assert_eq!(served.json("/api").await["console_stream"], "/api/tenant/{tenant}/console-stream");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_makes_no_sense_and_a_console_that_is_not_there_have_codes_of_their_own() {
    let (served, _blobs, _dir) = told(u64::MAX).await;
    for (request, says) in [
        ("no json", "JSON"),
        ("{}", "uuid"),
        (r#"{"uuid": "x"}"#, "logfile"),
        (r#"{"uuid": 5, "logfile": "console.log"}"#, "uuid"),
    ] {
        let (text, code, reason) = whole(ask(&served, "demo", request).await).await;
        assert_eq!((text.as_str(), code), ("", 4000), "{request}: {reason}");
        assert!(reason.contains(says), "{request}: {reason}");
    }
    let unknown = json!({ "uuid": "0".repeat(32), "logfile": "console.log" }).to_string();
    let (_, code, reason) = whole(ask(&served, "demo", &unknown).await).await;
    assert!(code == 4011 && reason.contains("no build"), "{code} {reason}");
    // A build of another tenant is none of this one's.
    let (_, code, _) = whole(ask(&served, "nowhere", &wanted(UNIT_B)).await).await;
    assert_eq!(code, 4011);
    served.consoles.away(UNIT_B, 1, "the worker is away");
    let (_, code, reason) = whole(ask(&served, "demo", &wanted(UNIT_B)).await).await;
    assert!(code == 4011 && reason.contains("the worker is away"), "{code} {reason}");
    let plain = served.get("/api/tenant/demo/console-stream").await;
    assert!(plain.status == 400 && plain.text.contains("websocket"), "{}", plain.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_is_not_open_to_all_takes_a_token_in_the_message_and_is_not_fingered() {
    let key = || Hs256::new(b"a secret that is long enough for everybody").unwrap();
    let people = Authenticators::new(Vec::new(), None, Some(key()), Arc::new(|| 1_000.0));
    let (served, _blobs, _dir) = told_to(u64::MAX, false, people).await;
    served.consoles.write(UNIT_B, 1, "for few\n", true);
    assert_eq!(served.get(&format!("/api/tenant/demo/build/{UNIT_B}/console")).await.status, 401);
    assert_eq!(served.get(&format!("/t/demo/build/{UNIT_B}/logs/1/")).await.status, 401);
    let (text, code, reason) = whole(ask(&served, "demo", &wanted(UNIT_B)).await).await;
    assert!(text.is_empty() && code == 4000 && reason.contains("token"), "{code} {reason}");
    let with = |admin: Json| {
        let claims = json!({ "iss": "local", "aud": "gatelog", "sub": "ann", "iat": 990, "exp": 1_050,
            "zuul": { "admin": admin } });
        let token = create_token(&key(), &claims).unwrap();
        json!({ "uuid": UNIT_B.to_string(), "logfile": "console.log", "token": token }).to_string()
    };
    let (text, code, _) = whole(ask(&served, "demo", &with(json!(["demo"]))).await).await;
    assert_eq!((text.as_str(), code), ("for few\n", 1000));
    let (text, code, reason) = whole(ask(&served, "demo", &with(json!(["other"]))).await).await;
    assert!(text.is_empty() && code == 4000 && reason.contains("may not look"), "{code} {reason}");
    let (text, code, _) =
        whole(ask(&served, "demo", &with(json!("*")).replace("token\":\"", "token\":\"x")).await).await;
    assert_eq!((text.as_str(), code), ("", 4000));
    assert!(finger(&served, format!("{UNIT_B}\n").as_bytes()).await.contains("not found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_who_does_not_read_holds_up_nobody() {
    let (served, _blobs, _dir) = told(u64::MAX).await;
    served.consoles.make(UNIT_B, 1, 200 << 20, |offset, size| {
        (offset..offset + size as u64).map(|place| if place % 80 == 79 { b'\n' } else { b'x' }).collect()
    });
    let mut lazy = Vec::new();
    for _ in 0..20 {
        lazy.push(ask(&served, "demo", &wanted(UNIT_B)).await);
    }
    let (text, code, _) = whole(ask(&served, "demo", &wanted(UNIT_B)).await).await;
    assert_eq!((text.len(), code), (200 << 20, 1000));
    assert_eq!(served.json("/api/tenants").await[0]["name"], "demo");
}

/// What a finger client gets.
async fn finger(served: &Served, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(served.finger).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_console_is_fingered_until_it_ends() {
    let (served, _blobs, _dir) = told(32).await;
    served.consoles.write(UNIT_A, 1, "one\n", false);
    let mut stream = TcpStream::connect(served.finger).await.unwrap();
    stream.write_all(format!("{UNIT_A}\r\n").as_bytes()).await.unwrap();
    // As netcat does: it has nothing more to say.
    stream.shutdown().await.unwrap();
    let mut first = [0; 4];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"one\n");
    served.consoles.write(UNIT_A, 1, "two\n", true);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "two\n");
    assert_eq!(finger(&served, format!("/W {UNIT_A}\r\n").as_bytes()).await, "one\ntwo\n");
    for wrong in [b"\r\n".as_slice(), b"../../etc/passwd\n", b"12ab\n", &[b'a'; 3000]] {
        assert!(finger(&served, wrong).await.starts_with("Build ID not valid"));
    }
    let unknown = finger(&served, format!("{}\n", "0".repeat(32)).as_bytes()).await;
    assert!(unknown.contains("not found"), "{unknown}");
}
