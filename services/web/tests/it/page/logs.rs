//! What jobs leave in their log directories: listed, sent as what it is, and told of when it was removed.

use serde_json::json;

use super::{Page, Told, told};
use crate::story::UNIT_B;

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

async fn site() -> Told {
    let site = told(u64::MAX).await;
    site.served.consoles.write(UNIT_B, 1, "said\n", true);
    site.served.job_logs.keep(
        UNIT_B,
        1,
        &[
            ("<img src=x onerror=alert(1)>.txt", TEXT, b"evil"),
            ("a b/#1?/\u{202e}x.log", TEXT, b"odd"),
            ("docs/html/index.html", HTML, b"<script>alert(1)</script>"),
            ("docs/html/style.css", "text/css; charset=utf-8", b"b{}"),
            ("docs/readme.txt", TEXT, b"0123456789"),
            ("job-output.json", "application/json", b"[\n]\n"),
            ("job-output.txt", TEXT, b"said\n"),
        ],
    );
    site
}

async fn get(site: &Told, path: &str, headers: &[(&str, &str)]) -> (u16, reqwest::header::HeaderMap, String) {
    let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let mut request = http.get(format!("{}{path}", site.served.base));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.headers().clone(), response.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_listed_by_directory_and_no_name_leaves_its_place() {
    let site = site().await;
    let base = format!("/t/demo/build/{UNIT_B}/logs/1/");
    let build: Page = site.ok(&format!("/t/demo/build/{UNIT_B}")).await;
    assert!(build.links().contains(&base) && build.text.contains("kept until 20"), "{}", build.text);
    assert!(build.links().contains(&format!("{base}job-output.json")));
    assert!(build.text.contains("1 entry not kept") && build.text.contains("evil/&lt;link&gt;"), "{}", build.text);
    let top = site.ok(&base).await;
    assert!(!top.text.contains("<img src=x") && top.text.contains("&lt;img src=x"), "{}", top.text);
    let links = top.links();
    for link in ["docs/", "a%20b/", "job-output.txt", "%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E.txt"] {
        assert!(links.contains(&format!("{base}{link}")), "{link}: {links:?}");
    }
    let docs = site.ok(&format!("{base}docs/")).await;
    assert!(docs.links().contains(&format!("{base}docs/html/")), "{:?}", docs.links());
    let odd = site.ok(&format!("{base}a%20b/%231%3F/")).await;
    let file = format!("{base}a%20b/%231%3F/%E2%80%AEx.log");
    assert!(odd.links().contains(&file) && odd.text.contains("\u{27e8}U+202E\u{27e9}x.log"), "{}", odd.text);
    assert_eq!(get(&site, &file, &[]).await.2, "odd");
    for (from, to) in [
        (format!("/t/demo/build/{UNIT_B}/logs"), base.clone()),
        (format!("/t/demo/build/{UNIT_B}/logs/1"), base.clone()),
        (format!("{base}docs"), format!("{base}docs/")),
    ] {
        let (status, headers, _) = get(&site, &from, &[]).await;
        assert_eq!((status, headers["location"].to_str().unwrap()), (307, to.as_str()), "{from}");
    }
    for missing in ["none", "docs/none/", "../../../../etc/passwd", "docs//readme.txt"] {
        let path = format!("{base}{}", missing.replace("..", "%2e%2e"));
        assert_eq!(get(&site, &path, &[]).await.0, 404, "{missing}");
    }
    let list = site.served.json(&format!("/api/tenant/demo/build/{UNIT_B}/logs")).await;
    assert_eq!((list["files"].as_array().unwrap().len(), &list["complete"]), (7, &json!(true)));
    assert_eq!(list["files"][4]["url"], format!("{base}docs/readme.txt"));
    assert_eq!(list["left_out"][0]["why"], "it is a symbolic link");
    assert_eq!(site.served.get(&format!("/api/tenant/other/build/{UNIT_B}/logs")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_sent_as_what_it_is_and_can_do_nothing_here() {
    let site = site().await;
    let base = format!("/t/demo/build/{UNIT_B}/logs/1");
    let (status, headers, text) = get(&site, &format!("{base}/docs/html/index.html"), &[]).await;
    assert_eq!((status, text.as_str()), (200, "<script>alert(1)</script>"));
    assert_eq!(
        (&headers["content-type"], &headers["x-content-type-options"]),
        (&HTML.parse().unwrap(), &"nosniff".parse().unwrap())
    );
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("sandbox;") && !policy.contains("allow") && !policy.contains("script"), "{policy}");
    let path = format!("{base}/docs/readme.txt");
    let (_, headers, _) = get(&site, &path, &[]).await;
    let tag = headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(
        (&headers["content-length"], &headers["accept-ranges"]),
        (&"10".parse().unwrap(), &"bytes".parse().unwrap())
    );
    let (status, headers, text) = get(&site, &path, &[("range", "bytes=3-5")]).await;
    assert_eq!((status, text.as_str(), headers["content-range"].to_str().unwrap()), (206, "345", "bytes 3-5/10"));
    let (status, headers, _) = get(&site, &path, &[("range", "bytes=10-")]).await;
    assert_eq!((status, headers["content-range"].to_str().unwrap()), (416, "bytes */10"));
    assert_eq!(get(&site, &path, &[("if-none-match", &tag)]).await.0, 304);
    let (_, headers, text) = get(&site, &format!("{base}/job-output.json"), &[]).await;
    assert_eq!((text.as_str(), headers["content-type"].to_str().unwrap()), ("[\n]\n", "application/json"));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_logs_that_were_removed_it_is_said_when_and_by_which_rule() {
    let site = site().await;
    site.served.consoles.forget(UNIT_B, 1);
    site.served.job_logs.remove(UNIT_B, 1, "keep-days = 30");
    let told = "Its logs (3 files, 4.0 kB) were removed on 2026-01-01 00:00 UTC by the rule keep-days = 30.";
    let build = site.ok(&format!("/t/demo/build/{UNIT_B}")).await;
    assert!(build.text.contains(told), "{}", build.text);
    for path in ["logs/1/", "logs/1/docs/readme.txt"] {
        let (status, _, text) = get(&site, &format!("/t/demo/build/{UNIT_B}/{path}"), &[]).await;
        assert!(status == 410 && text.contains(told) && text.contains("This was removed"), "{path}: {status} {text}");
    }
    for path in ["logs", "console", "console/lines", "console/find?text=x"] {
        let answer = site.served.get(&format!("/api/tenant/demo/build/{UNIT_B}/{path}")).await;
        assert_eq!((answer.status, &answer.json()["error"]), (410, &json!("removed")), "{path}: {}", answer.text);
    }
}
