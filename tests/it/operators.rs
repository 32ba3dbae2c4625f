//! What operators may ask for, over HTTP and on the command line: real tokens, made by OpenSSL.

mod autohold;
mod parameters;
mod tokens;
mod what_if;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value as Json, json};

use crate::harness::projects::PIPELINES;
use crate::harness::{Files, Server, Site, eventually, host};
use tokens::{AUDIENCE, Key, SECRET, claims, dev, hmac, hs256_token, now, ops, token};

/// A job that takes longer than any test.
const JOBS: &str = r"
- job:
    name: never
    run: playbooks/never.yaml
    timeout: 3600

- project:
    queue: integrated
    check: {jobs: [never]}
    gate: {jobs: [never]}
    post: {jobs: [never]}
";

const PLAYBOOK: &str = r"
- hosts: localhost
  gather_facts: false
  tasks:
    - command: sleep 3600
";

const POST: &str = r"
- pipeline:
    name: post
    manager: independent
    trigger:
      forge:
        - event: ref-updated
          ref: ^refs/heads/nowhere$
";

/// Who may do what: `ops` everything, `dev` to promote and to enqueue for one project; tenant `closed` is theirs alone.
const RULES: &str = r"
- authorization-rule: {name: ops, conditions: [{groups: ops}]}
- authorization-rule: {name: devs, conditions: [{groups: dev}]}
- role: {name: mover, permissions: {promote: true, enqueue: {conditions: {project: project}}}}
- tenant:
    name: test
    role-mappings: {ops: [admin], devs: [mover]}
    source: {forge: {config-projects: [config], untrusted-projects: [project]}}
- tenant:
    name: closed
    anonymous-read-access: false
    role-mappings: {ops: [admin]}
    source: {forge: {config-projects: [config], untrusted-projects: [project]}}
";

fn site(toml: &str) -> Site {
    site_of(toml, &[("zuul.yaml", JOBS), ("playbooks/never.yaml", PLAYBOOK), ("notes", "1\n")])
}

fn site_of(toml: &str, project: Files<'_>) -> Site {
    let config = format!("{PIPELINES}{POST}");
    let files = [("zuul.yaml", config.as_str())];
    let site = Site::new(&[("config", &files), ("project", project)]);
    let known = std::fs::read_to_string(site.path().join("gatelog.toml")).unwrap();
    site.write("gatelog.toml", &format!("{known}{toml}"));
    site
}

fn hs256(more: &str) -> String {
    format!(
        "[auth.ops]\ndriver = \"HS256\"\nrealm = \"our house\"\nissuer-id = \"sso\"\nclient-id = \"{AUDIENCE}\"\n\
         secret = \"{SECRET}\"\n{more}"
    )
}

/// Who runs the tests.
fn unix_user() -> String {
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    std::env::var("SUDO_USER").ok().unwrap_or_else(|| user.trim().to_owned())
}

struct Answer {
    status: u16,
    headers: reqwest::header::HeaderMap,
    text: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn json(&self) -> Json {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

struct Api {
    base: String,
    http: reqwest::blocking::Client,
}

impl Api {
    fn of(site: &Site) -> Api {
        let said: Json =
            serde_json::from_str(&std::fs::read_to_string(site.path().join("server.json")).unwrap()).unwrap();
        let http = reqwest::blocking::Client::builder().no_proxy().build().unwrap();
        Api { base: said["url"].as_str().unwrap().to_owned(), http }
    }

    fn send(&self, method: &str, path: &str, token: Option<&str>, body: Option<String>, id: Option<&str>) -> Answer {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if let Some(id) = id {
            request = request.header("X-Request-Id", id);
        }
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body);
        }
        let response = request.send().unwrap();
        assert_eq!(response.headers()["access-control-allow-origin"], "*", "{path}");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Answer { status, headers, text: response.text().unwrap() }
    }

    fn post(&self, path: &str, token: &str, body: &Json) -> Answer {
        self.send("POST", path, Some(token), Some(body.to_string()), None)
    }

    fn get(&self, path: &str, token: Option<&str>) -> Answer {
        self.send("GET", path, token, None, None)
    }
}

/// The changes in a pipeline, in order, by name.
fn queue(server: &Server, pipeline: &str) -> Vec<String> {
    let status = server.json("/api/tenant/test/status");
    let named = |one: &&Json| one["name"] == pipeline;
    let pipeline = status["pipelines"].as_array().unwrap().iter().find(named).unwrap().clone();
    let mut found = Vec::new();
    for queue in pipeline["change_queues"].as_array().unwrap() {
        for item in queue["heads"].as_array().unwrap().iter().flat_map(|head| head.as_array().unwrap()) {
            let of = item["refs"][0]["id"].as_str().unwrap();
            found.push(of.split(',').next().unwrap().trim_start_matches("master/").to_owned());
        }
    }
    found
}

const PATHS: &[(&str, &str)] = &[
    ("POST", "/api/tenant/test/project/project/enqueue"),
    ("POST", "/api/tenant/test/project/project/dequeue"),
    ("POST", "/api/tenant/test/project/project/autohold"),
    ("GET", "/api/tenant/test/project/project/autohold"),
    ("DELETE", "/api/tenant/test/autohold/7"),
    ("POST", "/api/tenant/test/promote"),
    ("POST", "/api/tenant/test/state"),
    ("GET", "/api/tenant/test/authorizations"),
    ("GET", "/api/authorizations"),
];

#[test]
fn without_authenticators_there_are_no_paths_for_operators_but_those_on_the_machine_act_as_themselves() {
    if !host::can_build("operators without authenticators") {
        return;
    }
    let site = site("");
    let server = site.start();
    server.wait_configured();
    let api = Api::of(&site);
    let nothing = api.get("/api/tenant/test/no-such-path", None).text;
    for (method, path) in PATHS.iter().chain([&("GET", "/api/tenant/test/promote")]) {
        for token in [None, Some("no.to.ken"), Some(ops().as_str())] {
            let body = (*method == "POST").then(|| json!({"pipeline": "gate"}).to_string());
            let answer = api.send(method, path, token, body, None);
            assert_eq!(answer.status, 404, "{method} {path}: {}", answer.text);
            assert_eq!(answer.text, nothing, "{path}");
        }
    }
    // Zuul: that list is always there.
    assert_eq!(server.json("/api/tenant/test/autohold"), json!([]));
    let forged = claims("local", "root", "ops");
    let forged = api.post("/api/tenant/test/state", &hs256_token(&forged), &json!({"trigger_queue_paused": true}));
    assert_eq!((forged.status, forged.text == nothing), (404, true));
    assert_eq!(server.json("/api/info")["info"]["capabilities"]["auth"]["realms"], json!({}));

    let (code, out, err) = site.gatelog(&["pause", "--reason", "the forge moves house"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.starts_with("test: outside events wait from now on (gate/0:"), "{out}");
    let state = server.json("/api/tenant/test/status")["state"].clone();
    assert_eq!((&state["trigger_queue_paused"], &state["reason"]), (&json!(true), &json!("the forge moves house")));
    // What is so already is no mistake.
    let (code, _, err) = site.gatelog(&["pause", "--tenant", "test", "--reason", "the forge moves house"]);
    assert_eq!(code, 0, "{err}");
    let at = out.trim().rsplit_once(':').unwrap().1.trim_end_matches(')').to_owned();
    let (code, told, err) = site.gatelog(&["explain", &at]);
    assert_eq!(code, 0, "{err}");
    let user = unix_user();
    assert!(told.contains("the forge moves house") && told.contains(&format!("by {user} (local)")), "{told}");

    for (command, flag) in [("discard", "trigger_queue_discarding"), ("resume", "none")] {
        let (code, _, err) = site.gatelog(&[command]);
        assert_eq!(code, 0, "{err}");
        let state = server.json("/api/tenant/test/status")["state"].clone();
        for one in ["trigger_queue_discarding", "trigger_queue_paused"] {
            assert_eq!(state[one], json!(one == flag), "{command}: {state}");
        }
    }
    // The way over the network is closed; what it says helps.
    let output = Command::new(host::binary()).args(["pause", "--tenant", "test", "--url", &api.base]).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(err.contains("add [auth.NAME] to its gatelog.toml"), "{err}");
    server.stop();
    let (code, _, err) = site.gatelog(&["resume"]);
    assert_eq!(code, 6, "{err}");
    assert!(err.contains("no server with the role web runs the site"), "{err}");
}

/// A server of one document, which can be replaced; counts how often it was asked.
fn serve(document: Arc<Mutex<String>>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/keys", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap().take(8 << 10)).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            count.fetch_add(1, Ordering::SeqCst);
            let body = document.lock().unwrap().clone();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
        }
    });
    (address, asked)
}

#[test]
fn a_token_counts_only_if_everything_about_it_is_right() {
    if !host::can_build("tokens") {
        return;
    }
    let keys = tempfile::tempdir().unwrap();
    let (ours, other, rotated) =
        (Key::new(keys.path(), "ours"), Key::new(keys.path(), "other"), Key::new(keys.path(), "rotated"));
    let set = Arc::new(Mutex::new(json!({"keys": [{"kty": "EC"}, ours.jwk("one")]}).to_string()));
    let (address, asked) = serve(Arc::clone(&set));
    let site = site(&format!(
        "{}default = true\n\
         [auth.signed]\ndriver = \"RS256\"\nissuer-id = \"signer\"\nclient-id = \"{AUDIENCE}\"\npublic-key = \"signer.pem\"\n\
         uid-claim = \"email\"\nallow-authz-override = true\nskew = -30\n\
         [auth.web]\ndriver = \"OpenIDConnect\"\nissuer-id = \"https://login.example.org\"\nclient-id = \"{AUDIENCE}\"\n\
         keys-url = \"{address}\"\n",
        hs256("max-validity-time = 60\n")
    ));
    site.write("signer.pem", &ours.public());
    site.write("tenants.yaml", RULES);
    let server = site.start();
    server.wait_configured();
    let api = Api::of(&site);
    let ask = |token: &str| api.get("/api/tenant/test/authorizations", Some(token));
    let with = |claims: &Json, changes: &[(&str, Json)]| {
        let mut claims = claims.clone();
        for (name, value) in changes {
            match value {
                Json::Null => drop(claims.as_object_mut().unwrap().remove(*name)),
                value => claims[*name] = value.clone(),
            }
        }
        claims
    };
    let good = claims("sso", "olivia", "ops");
    let head = json!({"alg": "HS256", "typ": "JWT"});

    let answer = ask(&hs256_token(&good));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.json(), json!({"zuul": {"permissions": {"read": true, "admin": true}, "scope": ["test"]}}));
    let answer = ask(&dev());
    let permissions = json!({"read": true, "promote": true, "enqueue": true});
    assert_eq!(answer.json(), json!({"zuul": {"permissions": permissions, "scope": ["test"]}}));

    let mut cases: Vec<(&str, String, &str)> = vec![
        ("another secret", token(&head, &good, |text| hmac("another secret", text)), "invalid-signature"),
        ("no signature", token(&head, &good, |_| Vec::new()), "invalid-signature"),
        ("no algorithm", token(&json!({"alg": "none"}), &good, |_| Vec::new()), "algorithm-not-allowed"),
        ("another algorithm", token(&json!({"alg": "RS256"}), &good, |text| ours.sign(text)), "algorithm-not-allowed"),
        ("extensions", token(&json!({"alg": "HS256", "crit": ["x"]}), &good, |t| hmac(SECRET, t)), "token-undecoded"),
        ("no token", "hello".to_owned(), "token-undecoded"),
        ("a long one", "a".repeat(20_000), "token-undecoded"),
        ("an issuer nobody knows", hs256_token(&with(&good, &[("iss", json!("nobody"))])), "issuer-unknown"),
        ("the machine's own issuer", hs256_token(&with(&good, &[("iss", json!("local"))])), "invalid-signature"),
    ];
    for (what, changes, code) in [
        ("expired", vec![("exp", json!(now() - 5)), ("iat", json!(now() - 20))], "token-expired"),
        ("too old for this site", vec![("iat", json!(now() - 100))], "token-too-old"),
        ("not valid yet", vec![("nbf", json!(now() + 100))], "token-not-yet-valid"),
        ("made tomorrow", vec![("iat", json!(now() + 86_400)), ("exp", json!(now() + 90_000))], "token-not-yet-valid"),
        ("for others", vec![("aud", json!("others.example.org"))], "incorrect-audience"),
        ("for several others", vec![("aud", json!(["a", "b"]))], "incorrect-audience"),
        ("for nobody", vec![("aud", Json::Null)], "claim-missing"),
        ("for ever", vec![("exp", Json::Null)], "claim-missing"),
        ("an end in words", vec![("exp", json!("tomorrow"))], "claim-missing"),
        ("without an age", vec![("iat", Json::Null)], "claim-missing"),
        ("of nobody", vec![("sub", Json::Null)], "claim-missing"),
        ("of a number", vec![("sub", json!(7))], "claim-missing"),
    ] {
        cases.push((what, hs256_token(&with(&good, &changes)), code));
    }
    let signed = with(&claims("signer", "x", "ops"), &[("email", json!("sig@example.org"))]);
    let rs256 = |claims: &Json, key: &Key| token(&json!({"alg": "RS256"}), claims, |text| key.sign(text));
    cases.push(("another's key", rs256(&signed, &other), "invalid-signature"));
    // The oldest trick: the public key, which everybody has, as if it were a secret.
    let confused = token(&head, &signed, |text| hmac(&ours.public(), text));
    cases.push(("a public key as a secret", confused, "algorithm-not-allowed"));
    cases.push(("without the claim that names people", rs256(&claims("signer", "x", "ops"), &ours), "claim-missing"));
    for (what, token, code) in &cases {
        let answer = ask(token);
        assert_eq!(answer.status, 401, "{what}: {}", answer.text);
        assert_eq!((&answer.json()["error"], &answer.json()["realm"]), (&json!(code), &json!("our house")), "{what}");
        let header = answer.header("www-authenticate");
        assert!(header.starts_with("Bearer realm=\"our house\", error=\"invalid_token\""), "{what}: {header}");
    }
    let answer = api.get("/api/tenant/test/authorizations", None);
    assert_eq!((answer.status, answer.header("www-authenticate")), (401, "Bearer realm=\"our house\""));
    let several = with(&good, &[("aud", json!(["a", AUDIENCE]))]);
    assert_eq!(ask(&hs256_token(&several)).status, 200);

    // The issuer's clock is half a minute ahead, and its tokens may say where their bearer is an operator.
    let ahead =
        with(&signed, &[("iat", json!(now() + 20)), ("groups", Json::Null), ("zuul", json!({"admin": ["closed"]}))]);
    assert_eq!(ask(&rs256(&signed, &ours)).status, 200);
    let answer = api.get("/api/tenant/closed/authorizations", Some(&rs256(&ahead, &ours)));
    assert_eq!(answer.json()["zuul"]["permissions"]["admin"], true, "{}", answer.text);
    assert_eq!(ask(&rs256(&ahead, &ours)).json()["zuul"]["permissions"], json!({"read": true}));
    let boasting = with(&good, &[("groups", Json::Null), ("zuul", json!({"admin": ["test"]}))]);
    assert_eq!(ask(&hs256_token(&boasting)).json()["zuul"]["permissions"], json!({"read": true}));

    // Keys that the issuer says: fetched once, and again when there is a new one.
    let web = claims("https://login.example.org", "wanda", "ops");
    let by = |name: &str, key: &Key| token(&json!({"alg": "RS256", "kid": name}), &web, |text| key.sign(text));
    for _ in 0..3 {
        let answer = ask(&by("one", &ours));
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(ask(&by("one", &other)).json()["error"], "invalid-signature");
    *set.lock().unwrap() = json!({"keys": [ours.jwk("one"), rotated.jwk("two")]}).to_string();
    eventually("the new key counts", || (ask(&by("two", &rotated)).status == 200).then_some(()));
    assert_eq!(ask(&by("one", &ours)).status, 200);
    let before = asked.load(Ordering::SeqCst);
    for _ in 0..5 {
        assert_eq!(ask(&by("three", &other)).json()["error"], "keys-unavailable");
    }
    assert!(asked.load(Ordering::SeqCst) <= before + 1, "unknown keys are not asked for again and again");
    let anonymous = token(&json!({"alg": "RS256"}), &web, |text| ours.sign(text));
    assert_eq!(ask(&anonymous).json()["error"], "keys-unavailable", "there are two keys by now");

    // Where people log in is told to everybody.
    let auth = server.json("/api/tenant/closed/info")["info"]["capabilities"]["auth"].clone();
    assert_eq!((&auth["default_realm"], &auth["read_protected"]), (&json!("our house"), &json!(true)));
    let told = json!({"authority": "https://login.example.org", "client_id": AUDIENCE, "type": "JWT",
        "driver": "OpenIDConnect", "scope": "openid profile", "load_user_info": true});
    assert_eq!(auth["realms"]["web"], told);
    assert_eq!(auth["realms"]["our house"]["driver"], "HS256");
    assert!(!server.log().contains(SECRET));
}

#[test]
fn a_tenant_that_not_everybody_may_see_is_shown_to_nobody_else() {
    if !host::can_build("a tenant that not everybody may see") {
        return;
    }
    let site = site(&hs256(""));
    site.write("tenants.yaml", RULES);
    let server = site.start();
    server.wait_configured();
    let api = Api::of(&site);
    for path in
        ["/api/tenant/closed/status", "/api/tenant/closed/builds", "/t/closed/status", "/t/closed", "/api/events"]
    {
        let answer = api.get(path, None);
        assert_eq!(answer.status, 401, "{path}");
        assert!(answer.header("www-authenticate").starts_with("Bearer realm="), "{path}");
        assert_eq!(api.get(path, Some(&dev())).status, 403, "{path}");
    }
    assert_eq!(api.get("/api/tenant/closed/builds", Some(&ops())).json(), json!([]));
    assert_eq!(api.get("/t/closed/status", Some(&ops())).status, 200);
    for path in ["/api/tenant/closed/info", "/api/info", "/api/health/live", "/", "/api/tenants"] {
        assert_eq!(api.get(path, None).status, 200, "{path}");
    }
    assert_eq!(api.get("/api/tenant/test/status", None).status, 200);
    assert_eq!(api.get("/api/tenant/nowhere/status", None).status, 404);
    assert!(api.get("/", None).text.contains("Not everybody may look."));
    // Whoever may read the site's directory may see it there.
    let (code, out, err) = site.gatelog(&["status", "--tenant", "closed"]);
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn operators_enqueue_dequeue_promote_and_hold_events_up_and_the_history_says_who_and_why() {
    if !host::can_build("requests of operators") {
        return;
    }
    let site = site(&hs256("allow-authz-override = true\n"));
    site.write("tenants.yaml", RULES);
    let server = site.start();
    server.wait_configured();
    let api = Api::of(&site);
    for name in ["one", "two", "three"] {
        site.push("project", name, name, &[(&format!("{name}.txt"), "x\n")]);
        site.approve("project", name);
        eventually("it is in the gate", || queue(&server, "gate").contains(&name.to_owned()).then_some(()));
    }
    assert_eq!(queue(&server, "gate"), ["one", "two", "three"]);
    let of = |verb: &str| format!("/api/tenant/test/project/project/{verb}");

    // Who may not, and what cannot be.
    let body = json!({"pipeline": "gate", "change": "master/one,1"});
    for (status, code, method, path, token, body) in [
        (401, "token-required", "POST", of("dequeue"), None, body.to_string()),
        (403, "not-permitted", "POST", of("dequeue"), Some(dev()), body.to_string()),
        (403, "not-permitted", "POST", of("dequeue").replace("/test/", "/closed/"), Some(dev()), body.to_string()),
        (403, "not-permitted", "POST", "/api/tenant/test/project/config/enqueue".into(), Some(dev()), body.to_string()),
        (403, "not-permitted", "POST", "/api/tenant/test/state".into(), Some(dev()), "{}".into()),
        (405, "method-not-allowed", "GET", of("enqueue"), Some(ops()), String::new()),
        (405, "method-not-allowed", "DELETE", "/api/tenant/test/promote".into(), Some(ops()), String::new()),
        (404, "not-found", "POST", of("dequeue").replace("/test/", "/nowhere/"), Some(ops()), body.to_string()),
        (
            404,
            "not-found",
            "POST",
            of("dequeue").replace("project/project", "project/x"),
            Some(ops()),
            body.to_string(),
        ),
        (404, "not-found", "POST", of("fly"), Some(ops()), body.to_string()),
        (400, "bad-request", "POST", of("dequeue"), Some(ops()), "{".into()),
        (400, "bad-request", "POST", of("dequeue"), Some(ops()), "[]".into()),
        (400, "bad-request", "POST", of("dequeue"), Some(ops()), json!({"pipeline": "gate"}).to_string()),
        (400, "bad-request", "POST", of("dequeue"), Some(ops()), json!({"change": "master/one"}).to_string()),
        (400, "bad-request", "POST", of("dequeue?x=1"), Some(ops()), body.to_string()),
        (
            400,
            "bad-request",
            "POST",
            of("dequeue"),
            Some(ops()),
            json!({"pipeline": "gate", "change": "master/one", "chnage": 1}).to_string(),
        ),
        (400, "bad-request", "POST", of("enqueue"), Some(ops()), json!({"pipeline": "x", "change": "a"}).to_string()),
        (
            400,
            "bad-request",
            "POST",
            of("enqueue"),
            Some(ops()),
            json!({"pipeline": "gate", "ref": "master"}).to_string(),
        ),
        (
            400,
            "bad-request",
            "POST",
            "/api/tenant/test/promote".into(),
            Some(ops()),
            json!({"pipeline": "gate"}).to_string(),
        ),
        (413, "too-large", "POST", of("dequeue"), Some(ops()), "x".repeat(100_000)),
        (
            422,
            "not-in-pipeline",
            "POST",
            of("dequeue"),
            Some(ops()),
            json!({"pipeline": "check", "change": "master/nothing,1"}).to_string(),
        ),
        (
            422,
            "change-missing",
            "POST",
            of("enqueue"),
            Some(ops()),
            json!({"pipeline": "gate", "change": "master/nothing,1"}).to_string(),
        ),
        (
            422,
            "not-in-pipeline",
            "POST",
            "/api/tenant/test/promote".into(),
            Some(ops()),
            json!({"pipeline": "gate", "changes": ["master/nothing,1"]}).to_string(),
        ),
    ] {
        let answer = api.send(method, &path, token.as_deref(), Some(body.clone()), None);
        let short = body.chars().take(80).collect::<String>();
        assert_eq!(answer.status, status, "{method} {path} {short}: {}", answer.text);
        assert_eq!(answer.json()["error"], code, "{method} {path} {short}: {}", answer.text);
    }
    assert_eq!(queue(&server, "gate"), ["one", "two", "three"]);
    let allowed = api.send("OPTIONS", &of("enqueue"), None, None, None);
    assert_eq!((allowed.status, allowed.header("access-control-allow-methods")), (204, "POST, OPTIONS"));
    assert!(allowed.header("access-control-allow-headers").contains("Authorization"));

    // Promote: also for those whose role says no more.
    let asked = json!({"pipeline": "gate", "changes": ["master/three,1"], "reason": "it mends the build"});
    let answer = api.post("/api/tenant/test/promote", &dev(), &asked);
    assert_eq!((answer.status, answer.json()), (200, json!(true)), "{}", answer.text);
    assert!(answer.header("gatelog-position").starts_with("gate/0:"));
    eventually("three is first", || (queue(&server, "gate") == ["three", "one", "two"]).then_some(()));

    // Dequeue; the same request twice is one.
    let asked = json!({"pipeline": "gate", "change": "master/one,1", "reason": "it never ends"});
    for _ in 0..2 {
        let answer = api.send("POST", &of("dequeue"), Some(&ops()), Some(asked.to_string()), Some("request-17"));
        assert_eq!((answer.status, answer.json()), (200, json!(true)), "{}", answer.text);
    }
    eventually("one is gone", || (queue(&server, "gate") == ["three", "two"]).then_some(()));

    // Enqueue a change, and a ref.
    let asked = json!({"pipeline": "gate", "change": "master/one,1", "ref": null, "reason": "once more"});
    let answer = api.post(&of("enqueue"), &dev(), &asked);
    assert_eq!((answer.status, answer.json()), (200, json!(true)), "{}", answer.text);
    eventually("one is back", || (queue(&server, "gate") == ["three", "two", "one"]).then_some(()));
    let asked = json!({"pipeline": "post", "ref": "refs/heads/master", "reason": "publish again"});
    let answer = api.post(&of("enqueue"), &ops(), &asked);
    assert_eq!((answer.status, answer.json()), (200, json!(true)), "{}", answer.text);
    eventually("the ref is in post", || (queue(&server, "post").len() == 1).then_some(()));
    let asked = json!({"pipeline": "post", "ref": "refs/heads/master"});
    assert_eq!(api.post(&of("dequeue"), &ops(), &asked).json(), json!(true));

    // Events wait, and are dealt with again.
    let state = |body: Json| {
        let answer = api.post("/api/tenant/test/state", &ops(), &body);
        assert_eq!((answer.status, answer.json()), (200, Json::Null), "{}", answer.text);
        server.json("/api/tenant/test/status")["state"].clone()
    };
    let asked = json!({"trigger_queue_paused": true, "result_queue_paused": false, "reason": "it rains", "info": null});
    let told = state(asked);
    assert_eq!((&told["trigger_queue_paused"], &told["reason"]), (&json!(true), &json!("it rains")));
    site.push("project", "four", "four", &[("four.txt", "x\n")]);
    site.approve("project", "four");
    let kept = || server.json("/api/tenant/test/status")["trigger_event_queue"]["length"].as_u64();
    eventually("its events wait", || kept().filter(|length| *length >= 1));
    let told = state(json!({"trigger_queue_paused": false}));
    assert_eq!((&told["trigger_queue_paused"], &told["reason"]), (&json!(false), &json!("it rains")));
    eventually("four is in the gate", || queue(&server, "gate").contains(&"four".to_owned()).then_some(()));

    // Nodes of builds that fail are to be kept.
    let asked = json!({"job": "never", "count": 2, "change": "master/one,1", "ref": null, "reason": "only there",
        "node_hold_expiration": 3600});
    assert_eq!(api.post(&of("autohold"), &dev(), &asked).status, 403);
    let answer = api.post(&of("autohold"), &ops(), &asked);
    assert_eq!((answer.status, answer.json()), (200, json!(true)), "{}", answer.text);
    let request = answer.header("gatelog-request").to_owned();
    let kept = || server.json("/api/tenant/test/autohold");
    eventually("the request is there", || (kept().as_array().unwrap().len() == 1).then_some(()));
    let told = server.json(&format!("/api/tenant/test/autohold/{request}"));
    for (field, value) in [
        ("id", json!(request)),
        ("project", json!("git.test/project")),
        ("job", json!("never")),
        ("ref_filter", json!("refs/for/master/one$")),
        ("max_count", json!(2)),
        ("current_count", json!(0)),
        ("reason", json!("only there")),
        ("node_expiration", json!(3600)),
        ("nodes", json!([])),
    ] {
        assert_eq!(told[field], value, "{field}: {told}");
    }
    let of_project = api.get(&of("autohold"), None).json();
    assert_eq!((of_project[0]["id"].clone(), kept()), (json!(request), of_project));
    assert_eq!(server.json("/api/tenant/test/autohold?project=config"), json!([]));
    let path = format!("/api/tenant/test/autohold/{request}");
    assert_eq!(api.send("DELETE", &path, Some(&dev()), None, None).status, 403);
    assert_eq!(api.send("DELETE", "/api/tenant/test/autohold/999", Some(&ops()), None, None).status, 404);
    assert_eq!(api.send("DELETE", "/api/tenant/test/autohold/x", Some(&ops()), None, None).status, 404);
    let answer = api.send("DELETE", &format!("{path}?reason=found%20it"), Some(&ops()), None, None);
    assert_eq!((answer.status, answer.text.as_str()), (204, ""));
    eventually("the request is gone", || (kept() == json!([])).then_some(()));
    assert_eq!(api.get(&path, None).status, 404);
    for (body, words) in [
        (json!({"job": "never", "count": 0}), "ask for 1 to"),
        (json!({"job": "never", "ref": "refs/heads/("}), "no regular expression"),
        (json!({"job": "never", "count": -1}), "`count` must be a whole number"),
        (json!({"count": 1}), "the body needs `job`"),
    ] {
        let answer = api.post(&of("autohold"), &ops(), &body);
        assert!(matches!(answer.status, 400 | 422) && answer.text.contains(words), "{body}: {}", answer.text);
    }

    // On the command line, from elsewhere with a token made here, and from the site's own directory.
    let (code, made, err) =
        site.gatelog(&["create-auth-token", "--auth-config", "ops", "--user", "carla", "--tenant", "test"]);
    assert_eq!(code, 0, "{err}");
    let elsewhere = |arguments: &[&str]| {
        let mut command = Command::new(host::binary());
        command.args(arguments).args(["--url", &api.base, "--tenant", "test"]).env("GATELOG_AUTH_TOKEN", made.trim());
        let output = command.env_remove("GATELOG_DIR").output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let change = ["--pipeline", "gate", "--project", "project", "--change", "master/two"];
    let (code, out, err) = elsewhere(&[&["dequeue", "--reason", "by wire"][..], &change].concat());
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.starts_with("test: master/two of project was taken out of gate (gate/0:"), "{out}");
    let (code, _, err) = elsewhere(&[&["dequeue"][..], &change].concat());
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("it is not in that pipeline"), "{err}");
    let local = |arguments: &[&str]| {
        let (code, out, err) = site.gatelog(&[arguments, &["--tenant", "test"]].concat());
        assert_eq!(code, 0, "{out}{err}");
        out
    };
    local(&[&["enqueue", "--reason", "by hand"][..], &change].concat());
    eventually("two is back", || queue(&server, "gate").contains(&"two".to_owned()).then_some(()));
    local(&["promote", "--pipeline", "gate", "--project", "project", "--changes", "master/two", "master/four"]);
    eventually("two and four are first", || (queue(&server, "gate")[..2] == ["two", "four"]).then_some(()));

    let out = local(&["autohold", "--project", "project", "--job", "never", "--reason", "to look at"]);
    let number = out.split("request ").nth(1).unwrap().split(':').next().unwrap().to_owned();
    eventually("the request is there", || (kept().as_array().unwrap().len() == 1).then_some(()));
    let out = local(&["autohold-list"]);
    assert!(out.contains(&format!("{number}  never of git.test/project, refs .*, kept 0 of 1: to look at")), "{out}");
    assert_eq!(local(&["autohold-info", &number]), out);
    assert!(local(&["autohold-delete", &number, "--reason", "seen"]).contains("is over"));
    let (code, _, err) = site.gatelog(&["autohold-info", &number, "--tenant", "test"]);
    assert_eq!(code, 3, "{err}");
    let ends: Vec<Json> =
        site.events("gate.events").into_iter().filter(|event| event["kind"] == "gate.autohold-ended").collect();
    let reasons: Vec<String> = ends.iter().filter_map(|event| find(event, "detail")).collect();
    assert_eq!(reasons, ["found it", "seen"]);
    let (_, told, _) = site.gatelog(&["explain", &ends[0]["sequence"].to_string()]);
    assert!(told.contains("found it") && told.contains("by olivia (sso)"), "{told}");

    // The history says who did what, and why.
    let user = unix_user();
    let item_of = |change: &str| {
        let enqueued = |event: &&Json| {
            let (body, is) = (&event["body"], event["kind"] == "gate.item-enqueued");
            // The other tenant has the same project.
            is && body["tenant"] == "test" && body["pipeline"] == "gate" && body.to_string().contains(change)
        };
        let events = site.events("gate.events");
        let found: Vec<String> = events.iter().filter(enqueued).filter_map(|event| find(event, "item")).collect();
        found
    };
    let three = item_of("master/three").remove(0);
    for (what, words) in [
        ("one", vec!["it never ends", "by olivia (sso)", "once more", "by dieter (sso)"]),
        ("two", vec!["by wire", "by carla (sso)", "by hand", &format!("{user} (local)")]),
        (three.as_str(), vec!["it mends the build", "by dieter (sso)"]),
    ] {
        let (code, told, err) = site.gatelog(&["explain", what, "--tenant", "test"]);
        assert_eq!(code, 0, "{err}");
        for word in words {
            assert!(told.contains(word), "{what}: {word} is missing in\n{told}");
        }
    }
    let items = item_of("master/one");
    assert!(items.len() >= 2, "{items:?}");
    let pages: String = items.iter().map(|item| api.get(&format!("/t/test/item/{item}"), None).text).collect();
    for word in ["it never ends", "by olivia (sso)", "(once more)", "by dieter (sso)"] {
        assert!(pages.contains(word), "{word} is missing in\n{pages}");
    }
    let pauses = site.gatelog(&["log", "cat", "--kind", "gate.intake-changed", "--json"]).1;
    assert!(pauses.contains("it rains"), "{pauses}");
    let dequeues = site.events("gate.inputs").iter().filter(|one| one.to_string().contains("request-17")).count();
    assert_eq!(dequeues, 2, "both are on the log");
    assert_eq!(site.event_kinds()["input-taken"].min(1), 1);

    // Names stand nowhere on the log in clear.
    drop(server);
    let mut looked = 0;
    for folder in [site.path().join("log"), site.path().join("keys")] {
        looked += search(&folder, &["olivia", "dieter", "carla"]);
    }
    assert!(looked > 3);
    let (code, out, err) = site.gatelog(&["replay", "verify"]);
    assert_eq!(code, 0, "{out}{err}");
}

/// The first text of this name in a document, however deep.
fn find(json: &Json, name: &str) -> Option<String> {
    match json {
        Json::Object(map) => map
            .get(name)
            .and_then(Json::as_str)
            .map(str::to_owned)
            .or_else(|| map.values().find_map(|value| find(value, name))),
        Json::Array(list) => list.iter().find_map(|value| find(value, name)),
        _ => None,
    }
}

/// Looks through every file below a directory; gives how many there were.
fn search(folder: &Path, words: &[&str]) -> usize {
    let mut looked = 0;
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            looked += search(&entry.path(), words);
            continue;
        }
        let bytes = std::fs::read(entry.path()).unwrap();
        for word in words {
            let found = bytes.windows(word.len()).any(|window| window == word.as_bytes());
            assert!(!found, "{word} stands in {}", entry.path().display());
        }
        looked += 1;
    }
    looked
}
