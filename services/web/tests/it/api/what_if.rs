//! What-ifs over HTTP, answered by one who says the same to all.

use super::*;

impl Told {
    async fn send(&self, method: reqwest::Method, path: &str, body: &Json) -> (u16, Json) {
        let request = self.served.http.request(method, format!("{}{path}", self.served.base));
        let answer = request.body(body.to_string()).send().await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap_or(Json::Null))
    }

    async fn asked(&self, question: &Json) -> String {
        let (status, told) = self.send(reqwest::Method::POST, "/api/what-if", question).await;
        assert_eq!(status, 202, "{told}");
        told["id"].as_str().unwrap().to_owned()
    }

    /// The what-if once it is in a state.
    async fn until(&self, id: &str, state: &str) -> Json {
        for _ in 0..3_000 {
            let told = self.served.json(&format!("/api/what-if/{id}")).await;
            if told["state"] == state {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("what-if {id} never is {state}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_what_if_is_asked_answered_and_linked_to() {
    let site = told(40).await;
    let id = site.asked(&json!({ "without": ["intake:3"], "at": 30 })).await;
    let told = site.until(&id, "answered").await;
    assert_eq!(told["question"]["without"], json!(["intake/0:3"]));
    assert_eq!(told["answer"]["until"], json!({ "gate/0": 30 }));
    assert_eq!(told["answer"]["difference"]["items_gone"], json!(["demo gate <b>a</b>"]));
    let failed = site.asked(&json!({ "config": { "broken": { "zuul.yaml": "" } } })).await;
    assert_eq!(site.until(&failed, "failed").await["error"], "1 files cannot be read");
    let all = site.served.json("/api/what-if").await;
    assert_eq!(texts(&all, "id"), [failed.as_str(), id.as_str()]);
    assert_eq!(all[1]["answer"], Json::Null, "the list has no answers");
    assert_eq!(site.served.get("/api/what-if/0000").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_is_answered_at_a_time_few_wait_and_each_can_be_cancelled() {
    let site = told(40).await;
    let endless = json!({ "change": { "7": { "result": "Failure" } } });
    let first = site.asked(&endless).await;
    site.until(&first, "running").await;
    let mut waiting = Vec::new();
    for _ in 0..8 {
        waiting.push(site.asked(&json!({ "without": ["7"] })).await);
    }
    let (status, told) = site.send(reqwest::Method::POST, "/api/what-if", &endless).await;
    assert_eq!((status, &told["error"]), (503, &json!("busy")));
    assert_eq!(site.served.json(&format!("/api/what-if/{}", waiting[0])).await["state"], "waiting");
    assert_eq!(site.send(reqwest::Method::DELETE, &format!("/api/what-if/{}", waiting[0]), &Json::Null).await.0, 204);
    assert_eq!(site.send(reqwest::Method::DELETE, &format!("/api/what-if/{first}"), &Json::Null).await.0, 204);
    site.until(&first, "cancelled").await;
    site.until(&waiting[7], "answered").await;
    site.until(&waiting[0], "cancelled").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_that_make_no_sense_are_refused_by_name() {
    let site = told(40).await;
    for (question, status, says) in [
        (json!({}), 400, "nothing is to be otherwise"),
        (json!({ "without": ["gate.events:3"] }), 400, "gate.events:3"),
        (json!({ "witout": [] }), 400, "witout"),
        (json!({ "without": ["3"], "at": 41 }), 416, "41"),
        (json!({ "config": { "app": { "../../etc/passwd": "" } } }), 400, "../../etc/passwd"),
        (json!({ "config": { "app": { "zuul.yaml": "x".repeat(5 << 20) } } }), 413, "4194304"),
    ] {
        let (found, told) = site.send(reqwest::Method::POST, "/api/what-if", &question).await;
        let description = told["description"].as_str().unwrap_or_default();
        assert_eq!(found, status, "{description}");
        assert!(description.contains(says), "{description}");
    }
    assert_eq!(site.served.json("/api/what-if").await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_offers_what_came_from_outside_and_shows_the_answer_side_by_side() {
    let site = told(40).await;
    let page = site.served.get("/what-if?at=30").await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert!(page.text.contains("value=\"intake/0:30\"") && !page.text.contains("intake/0:31"), "{}", page.text);
    assert!(page.text.contains("of &lt;b&gt;master/add-miles&lt;/b&gt;"));
    let send = |fields: &'static str, from: &'static str| {
        let request = site.served.http.post(format!("{}/what-if", site.served.base)).header("sec-fetch-site", from);
        request.header("content-type", "application/x-www-form-urlencoded").body(fields).send()
    };
    let answer = send("at=30&without=intake%2F0%3A30&more=7%2C+9&change=&said=&project=&path=&content=", "same-origin")
        .await
        .unwrap();
    let path = answer.url().path().to_owned();
    let id = path.strip_prefix("/what-if/").unwrap();
    let told = site.until(id, "answered").await;
    assert_eq!(told["question"]["without"], json!(["gate.inputs/0:7", "gate.inputs/0:9", "intake/0:30"]));
    assert_eq!(told["question"]["at"], 30);
    let text = site.served.get(&path).await.text;
    for says in [
        "Otherwise from",
        "never came",
        "demo gate &lt;b&gt;a&lt;/b&gt;",
        "<td class=\"num\">2.00</td><td class=\"num\">1.00</td>",
        "4 times",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    assert!(!text.contains("<b>a</b>") && !text.contains("id=\"time\""), "{text}");
    for (fields, from, says) in [
        ("without=7", "cross-site", "another site"),
        ("change=7", "same-origin", "go together"),
        ("change=7&said=x", "same-origin", "not JSON"),
        ("without=", "same-origin", "nothing is to be otherwise"),
    ] {
        let answer = send(fields, from).await.unwrap();
        assert_eq!(answer.status(), 400, "{fields}");
        assert!(answer.text().await.unwrap().contains(says), "{fields}");
    }
}
