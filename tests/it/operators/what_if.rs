//! Who may ask for a what-if, where there are authenticators: whoever may do everything in every tenant its answer tells of.

use serde_json::{Value as Json, json};

use super::tokens::{claims, dev, hs256_token, ops};
use super::{Api, RULES, hs256, site};
use crate::harness::eventually;

const PATH: &str = "/api/what-if";

#[test]
fn a_what_if_takes_a_token_of_somebody_who_may_do_everything_everywhere() {
    let site = site(&hs256(""));
    // `part` may do everything in one tenant, and nothing in the other.
    let rules = RULES.replace("ops: [admin], devs: [mover]", "ops: [admin], devs: [mover], parts: [admin]");
    let closed = format!("- authorization-rule: {{name: parts, conditions: [{{groups: part}}]}}\n{rules}");
    // At first everybody may look at both tenants.
    site.write("tenants.yaml", &closed.replace("    anonymous-read-access: false\n", ""));
    let server = site.start();
    server.wait_configured();
    let api = Api::of(&site);
    let part = hs256_token(&claims("sso", "paula", "part"));
    let question = json!({ "without": ["intake:0"] }).to_string();
    let asked = |api: &Api, token: Option<&str>| api.send("POST", PATH, token, Some(question.clone()), None);

    let nobody = asked(&api, None);
    assert_eq!(nobody.status, 401, "{}", nobody.text);
    assert!(nobody.header("www-authenticate").contains("our house"), "{:?}", nobody.headers);
    assert_eq!(asked(&api, Some("no token")).status, 401);
    for (token, who) in [(dev(), "dieter"), (part.clone(), "paula")] {
        let refused = asked(&api, Some(&token));
        assert_eq!(refused.status, 403, "{}", refused.text);
        assert!(refused.text.contains(who) && refused.text.contains("may not ask for a what-if"), "{}", refused.text);
    }
    let refused = asked(&api, Some(&part));
    assert!(refused.text.contains("in tenant closed"), "that one is named: {}", refused.text);

    let taken = asked(&api, Some(&ops()));
    assert_eq!(taken.status, 202, "{}", taken.text);
    let path = format!("{PATH}/{}", taken.json()["id"].as_str().unwrap());
    let told: Json = eventually("it is answered", || {
        let told = api.get(&path, None).json();
        (told["state"] != "waiting" && told["state"] != "running").then_some(told)
    });
    assert_eq!(
        (&told["state"], &told["answer"]["divergence"]["why"]),
        (&json!("answered"), &json!("without")),
        "{told}"
    );
    assert!(told["by"].as_str().unwrap().contains("olivia"), "who asked is told: {}", told["by"]);
    // Who may not ask may not cancel.
    for (token, status) in [(None, 401), (Some(part.clone()), 403), (Some(ops()), 204)] {
        assert_eq!(api.send("DELETE", &path, token.as_deref(), None, None).status, status);
    }
    server.stop();

    // Where one tenant is not to be seen by everybody, neither is what tells of it.
    site.write("tenants.yaml", &closed);
    let server = site.start();
    server.wait_configured();
    let api = Api::of(&site);
    for (token, status) in [(None, 401), (Some(part), 403), (Some(ops()), 200)] {
        let answer = eventually("the new tenant file counts", || {
            let answer = api.get(PATH, token.as_deref());
            (answer.status == status).then_some(answer)
        });
        assert!(status != 403 || answer.text.contains("may not look at tenant closed"), "{}", answer.text);
    }
    server.stop();
}
