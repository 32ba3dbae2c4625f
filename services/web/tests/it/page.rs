//! The page over HTTP, against a gate that says what the tests have it say.

mod consoles;
mod logs;

use std::collections::BTreeSet;

use crate::site::{Gatekeeper, Served};
use crate::story::{A, B, C, EVIL, LINT_A, SET_A, SET_C, SET_C2, UNIT_A, UNIT_B, UNIT_C};
use crate::{hostile, story, trace};
use gatelog_event_log::MemoryBlobs;
use gatelog_record::Timestamp;
use gatelog_web::{Component, ComponentState};

struct Told {
    keeper: Gatekeeper,
    served: Served,
    last: u64,
    _blobs: MemoryBlobs,
    _dir: tempfile::TempDir,
}

/// A site where the story was told up to an event (`u64::MAX`: to its end), with explanations.
async fn told(up_to: u64) -> Told {
    let keeper = Gatekeeper::new();
    let (blobs, layout, problems) = story::blobs();
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&keeper, &blobs, dir.path(), 10).await;
    let mut last = 1;
    for event in trace::explained(story::events(layout, problems), &blobs) {
        if last >= up_to {
            break;
        }
        last = keeper.say(event);
    }
    served.reached(last).await;
    Told { keeper, served, last, _blobs: blobs, _dir: dir }
}

struct Page {
    status: u16,
    headers: reqwest::header::HeaderMap,
    text: String,
}

impl Page {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The text between the two.
    fn part(&self, from: &str, to: &str) -> &str {
        let (_, rest) = self.text.split_once(from).unwrap_or_else(|| panic!("no {from:?} in {}", self.text));
        rest.split_once(to).unwrap_or_else(|| panic!("no {to:?} after {from:?}")).0
    }

    fn links(&self) -> BTreeSet<String> {
        let parts = self.text.split("href=\"").skip(1);
        parts.map(|part| part.split('"').next().unwrap().replace("&amp;", "&")).collect()
    }
}

impl Told {
    async fn page(&self, path: &str) -> Page {
        let ask = self.served.http.get(format!("{}{path}", self.served.base)).header("accept", "text/html,*/*");
        let answer = ask.send().await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Page { status, headers, text: answer.text().await.unwrap() }
    }

    async fn ok(&self, path: &str) -> Page {
        let page = self.page(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        page
    }
}

fn pages() -> Vec<String> {
    let mut all: Vec<String> = ["/", "/t/demo/status", "/t/demo/builds", "/t/demo/buildsets", "/t/demo/config-errors"]
        .map(str::to_owned)
        .into();
    all.extend([A, B, C].map(|item| format!("/t/demo/item/{item}")));
    all.extend([UNIT_A, LINT_A, UNIT_B, UNIT_C].map(|build| format!("/t/demo/build/{build}")));
    for set in [SET_A, SET_C, SET_C2] {
        all.push(format!("/t/demo/buildset/{set}"));
    }
    all.push(format!("/t/demo/buildset/{SET_A}/why/unit"));
    all.push(format!("/t/demo/buildset/{SET_A}/why/not-there"));
    all
}

/// No text of others became markup: every script, style and event handler would show here.
fn assert_harmless(page: &str, of: &str) {
    for begin in ["<script>", "<script src=x", "<img src=x", " style=", "javascript:", " onerror=\"", " onclick="] {
        assert!(!page.contains(begin), "{of} holds {begin}");
    }
    assert_eq!(page.matches("<script").count(), page.matches("<script src=\"/assets/").count(), "{of}");
    assert!(!page.contains('\0') && !page.contains('\u{1b}') && !page.contains('\u{202e}'), "{of}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_there_now_and_then_and_holds_no_text_of_others_as_markup() {
    let site = told(u64::MAX).await;
    let (mut shown, mut evil) = (0, 0);
    for path in pages() {
        for at in [None, Some(0), Some(1), Some(8), Some(17), Some(32), Some(40), Some(52), Some(site.last)] {
            let asked = at.map_or(path.clone(), |at| format!("{path}?at={at}"));
            let page = site.page(&asked).await;
            // What was not there yet is told as not there.
            assert!(page.status == 200 || (page.status == 404 && at.is_some()), "{asked}: {}", page.text);
            assert_eq!(page.header("content-type"), "text/html; charset=utf-8", "{asked}");
            let policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
                          base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
            assert_eq!(page.header("content-security-policy"), policy, "{asked}");
            assert_eq!(page.header("x-content-type-options"), "nosniff", "{asked}");
            assert_eq!(page.header("referrer-policy"), "no-referrer", "{asked}");
            assert!(page.text.starts_with("<!DOCTYPE html><html lang=\"en\">"), "{asked}");
            assert_eq!(page.text.matches("<h1>").count(), 1, "{asked}");
            assert_harmless(&page.text, &asked);
            if page.status == 200 {
                shown += 1;
                let position = at.unwrap_or(site.last);
                assert_eq!(page.header("gatelog-position"), format!("gate/0:{position}"), "{asked}");
                assert_eq!(page.text.contains("id=\"banner\""), at.is_some(), "{asked}");
                evil += usize::from(page.text.contains("&lt;/script&gt;&lt;script&gt;alert(&quot;1&quot;)"));
            }
        }
    }
    assert!(shown > 80, "{shown} pages were there");
    assert!(evil > 20, "the hostile text was on {evil} pages");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_link_leads_somewhere_now_and_in_the_past() {
    for (up_to, begin) in [(32, "/"), (u64::MAX, "/"), (u64::MAX, "/?at=32")] {
        let site = told(up_to).await;
        let mut seen = BTreeSet::from([begin.to_owned()]);
        let mut open = vec![begin.to_owned()];
        let mut pages = 0;
        while let Some(path) = open.pop() {
            let page = site.page(&path).await;
            assert_eq!(page.status, 200, "{path}: {}", page.text);
            pages += 1;
            for link in page.links() {
                let link = link.split('#').next().unwrap().to_owned();
                let own = ["/t/", "/assets/", "/api", "/what-if"].iter().any(|begin| link.starts_with(begin));
                assert!(own || link.is_empty() || link == "/" || link.starts_with("/?"), "{path} links to {link}");
                // Steps through time lead to every event; some of each are enough.
                let step = link.contains("at=") && !begin.contains("at=");
                if link.starts_with("/t/") && !step && link.matches("at=").count() <= 1 && seen.insert(link.clone()) {
                    if begin.contains("at=") && !link.ends_with("at=32") {
                        continue;
                    }
                    open.push(link);
                }
            }
            assert!(pages < 300, "the links do not end");
        }
        assert!(pages > 12, "{pages} pages from {begin}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_a_page_for_people_and_json_for_programs() {
    let site = told(40).await;
    let none = "0".repeat(32);
    for (path, status, says) in [
        ("/nothing".to_owned(), 404, "nothing at this path"),
        ("/t/nobody/status".to_owned(), 404, "nobody"),
        (format!("/t/demo/build/{none}"), 404, "no build"),
        (format!("/t/demo/buildset/{none}"), 404, "no buildset"),
        (format!("/t/demo/item/{none}"), 404, "no item"),
        ("/t/demo/build/%3Cscript%3Ealert(1)%3C%2Fscript%3E".to_owned(), 404, "&lt;script&gt;"),
        (format!("/t/demo/buildset/{SET_A}/why/%3Cimg%20src=x%3E"), 404, "&lt;img src=x&gt;"),
        (format!("/t/demo/build/{UNIT_A}?attempt=9"), 404, "no attempt 9"),
        ("/t/demo/status?at=1000".to_owned(), 416, "newest"),
        ("/t/demo/status?at=soon".to_owned(), 400, "soon"),
        ("/t/demo/builds?colour=%3Cb%3E".to_owned(), 400, "colour"),
        ("/t/%ff/status".to_owned(), 400, "UTF-8"),
    ] {
        let page = site.page(&path).await;
        assert_eq!(page.status, status, "{path}: {}", page.text);
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8", "{path}");
        assert!(page.header("content-security-policy").starts_with("default-src 'none'"), "{path}");
        assert!(page.text.contains(says), "{path}: {}", page.text);
        assert_harmless(&page.text, &path);
    }
    let plain = site.served.get("/nothing").await;
    assert_eq!((plain.status, plain.json()["error"].as_str()), (404, Some("not-found")));
    assert_eq!(site.page("/api/nothing").await.header("content-type"), "application/json");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_draws_windows_items_jobs_and_reasons() {
    let site = told(32).await;
    let page = site.ok("/t/demo/status").await;
    assert_eq!(page.part("aria-live=\"polite\">", "</p>"), "3 items, 1 job running");
    assert!(page.text.contains("window 3 of 20"));
    assert_eq!(page.text.matches("class=\"cell ").count(), 20);
    let item = page.part(&format!("data-key=\"item-{A}\""), "</article>");
    assert!(item.contains("<b>library</b> <span class=\"ref\">master/add-miles,1</span>"), "{item}");
    assert!(item.contains("<code>jobs</code> 2 jobs"), "{item}");
    assert!(item.contains("goes on with: the end of jobs"), "{item}");
    assert!(item.contains("<progress aria-label=\"progress of unit: never ran before\">"), "{item}");
    assert!(item.contains("non-voting"), "{item}");
    // The empty pipeline is a line; those behind stand on those ahead.
    assert!(page.part("aria-label=\"Empty pipelines\"", "</section>").contains("<h2>check</h2>"));
    assert!(page.text.contains(&format!("class=\"item waiting chained\" data-key=\"item-{B}\"")));

    // B has failed: C was put onto A, past B.
    let page = site_at(&site, u64::MAX, "/t/demo/status?at=49").await;
    let failing = page.part(&format!("data-key=\"item-{B}\""), "</article>");
    assert!(failing.contains("unit failed") && failing.contains("badge bad"), "{failing}");
    let behind = page.part(&format!("data-key=\"item-{C}\""), "</article>");
    assert!(behind.contains("tested on top of") && behind.contains("begun anew 1 time"), "{behind}");
}

/// Tells the story on, then shows a page.
async fn site_at(site: &Told, up_to: u64, path: &str) -> Page {
    let (_, layout, problems) = story::blobs();
    let mut last = site.last;
    for event in trace::explained(story::events(layout, problems), &MemoryBlobs::new())
        .into_iter()
        .skip(usize::try_from(site.last).unwrap() - 1)
    {
        if last >= up_to {
            break;
        }
        last = site.keeper.say(event);
    }
    site.served.reached(last).await;
    site.ok(path).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_that_ran_before_has_its_progress_from_history() {
    let site = told(u64::MAX).await;
    // C's second run never froze; A's unit took ten seconds, so a later unit is thought to.
    let page = site.ok("/t/demo/status?at=46").await;
    let item = page.part(&format!("data-key=\"item-{B}\""), "</article>");
    assert!(item.contains("FAILURE") || item.contains("failure"), "{item}");
    let builds = site.ok("/t/demo/builds?job_name=unit&result=SUCCESS").await;
    assert!(builds.text.contains("10 s"), "{}", builds.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_through_time_is_a_form_and_links() {
    let site = told(u64::MAX).await;
    let now = site.ok("/t/demo/status").await;
    let form = now.part("<form class=\"slider\" method=\"get\" action=\"/t/demo/status\">", "</form>");
    assert!(
        form.contains(&format!("type=\"range\" id=\"at\" name=\"at\" min=\"0\" max=\"{0}\" value=\"{0}\"", site.last))
    );
    assert!(form.contains(&format!("/t/demo/status?at={}", site.last - 1)), "{form}");
    assert!(!form.contains("next event\" title=\"next event\" href"), "{form}");

    let then = site.ok("/t/demo/builds?job_name=unit&at=32").await;
    let banner = then.part("id=\"banner\">", "</p>");
    assert!(banner.contains("event 32") && banner.contains("2026-01-01 00:00:32 UTC"), "{banner}");
    assert!(banner.contains("href=\"/t/demo/builds?job_name=unit\""), "{banner}");
    let form = then.part("<form class=\"slider\"", "</form>");
    assert!(form.contains("<input type=\"hidden\" name=\"job_name\" value=\"unit\">"), "{form}");
    assert!(form.contains("/t/demo/builds?job_name=unit&amp;at=31"), "{form}");
    assert!(form.contains("/t/demo/builds?job_name=unit&amp;at=33"), "{form}");
    // Every link of a past page stays in that past.
    let within = then.links().into_iter().filter(|link| link.starts_with("/t/demo/build/"));
    for link in within {
        assert!(link.ends_with("?at=32"), "{link}");
    }

    for path in pages() {
        let page = site.page(&format!("{path}?at=40")).await;
        let main = page.part("<main", "</main>");
        for link in main.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&")) {
            let link = link.split('#').next().unwrap();
            let own = link.starts_with("/t/") || link == "/";
            assert!(!own || link.contains("at="), "{path}?at=40 leads to {link}, which is of now");
        }
        for form in main.split("<form").skip(1) {
            let form = form.split("</form>").next().unwrap();
            assert!(form.contains("name=\"at\" value=\"40\""), "{path}?at=40 has a form for now: {form}");
        }
    }

    // By time, and from event to event of one item.
    let by_time = site.ok("/t/demo/status?at=2026-01-01T00:00:32.5Z").await;
    assert!(by_time.text.contains("data-at=\"32\""));
    let item = site.ok(&format!("/t/demo/item/{A}?at=17")).await;
    assert!(item.text.contains(&format!("href=\"/t/demo/item/{A}?at=16\" data-step=\"item-back\"")), "{}", item.text);
    let next = item.part("data-step=\"item-back\"", "data-step=\"item-on\"");
    assert!(!next.contains("at=18\" "), "event 18 is of another item: {next}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_tells_its_whole_story_in_order() {
    let site = told(u64::MAX).await;
    let page = site.ok(&format!("/t/demo/item/{C}")).await;
    let story = page.part("<ol class=\"story\">", "</ol>");
    let mut rest = story;
    for step in [
        "<b>Enqueued</b> into gate, queue main: trigger",
        "<b>Buildset opened</b>",
        "on top of 2 items ahead",
        "<b>Merged speculatively</b>",
        "<b>Jobs chosen</b>",
        "<b>Job settled</b>",
        "<b>Begun anew</b> <code>ahead-failing</code> app master/show-miles failed",
        "on top of 1 item ahead",
        "<b>It does not merge</b>",
        "<b>Reporting</b>",
        "<b>Reported</b>",
        "<b>Dequeued</b>",
    ] {
        rest = rest.split_once(step).unwrap_or_else(|| panic!("no {step:?} in its place: {story}")).1;
    }
    let merged = site.ok(&format!("/t/demo/item/{A}")).await;
    let story = merged.part("<ol class=\"story\">", "</ol>");
    for step in
        ["<b>Job started</b>", "attempt 2", "retry after 3.0 s", "<b>Merging what was tested</b>", "<b>Merged</b>"]
    {
        assert!(story.contains(step), "{step}: {story}");
    }
    // What had not happened is not told.
    let before = site.ok(&format!("/t/demo/item/{A}?at=20")).await;
    assert!(!before.text.contains("<b>Job started</b>"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_buildset_shows_its_graph_builds_resets_and_reports() {
    let site = told(u64::MAX).await;
    let page = site.ok(&format!("/t/demo/buildset/{SET_A}")).await;
    let graph = page.part("<figure class=\"graph\"", "</figure>");
    assert_eq!(graph.matches("<a href=\"/t/demo/build/").count(), 2);
    assert!(graph.contains("class=\"edge soft\"") && graph.contains("lint waits for unit, softly"), "{graph}");
    assert!(graph.contains("aria-label=\"unit: success\""), "{graph}");
    assert!(page.part("<h2>Reports</h2>", "</section>").contains("Build succeeded."));
    assert!(page.text.contains("merged by gatelog"));
    let absent = page.part("<h3>Jobs that do not run</h3>", "</ul>");
    assert!(absent.contains(&format!("/t/demo/buildset/{SET_A}/why/not-there")), "{absent}");

    let again = site.ok(&format!("/t/demo/buildset/{SET_C2}")).await;
    let resets = again.part("<h2>Resets before it</h2>", "</section>");
    assert!(resets.contains("ahead-failing") && resets.contains(&format!("/t/demo/buildset/{SET_C}\"")), "{resets}");
    assert!(again.text.contains("does not merge"));
    let given_up = site.ok(&format!("/t/demo/buildset/{SET_C}")).await;
    assert!(given_up.text.contains("Given up for another"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_explained_from_its_trace() {
    let site = told(u64::MAX).await;
    let page = site.ok(&format!("/t/demo/buildset/{SET_A}/why/unit")).await;
    for says in
        ["a definition matches", "project stanza", "job base", "attempts", "replaced", "before: ", "The other jobs"]
    {
        assert!(page.text.contains(says), "{says}: {}", page.text);
    }
    let absent = site.ok(&format!("/t/demo/buildset/{SET_A}/why/not-there")).await;
    assert!(absent.text.contains("does not run") && absent.text.contains("no-matching-definition"), "{}", absent.text);
    let none = site.page(&format!("/t/demo/buildset/{SET_C2}/why/unit")).await;
    assert_eq!(none.status, 404);
    assert!(none.text.contains("jobs were not chosen"), "{}", none.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_filter_with_plain_forms_and_have_pages() {
    let site = told(u64::MAX).await;
    let all = site.ok("/t/demo/builds").await;
    assert!(all.text.contains(">lint</a>") && all.text.contains(">unit</a>"));
    let some = site.ok("/t/demo/builds?project=&pipeline=gate&job_name=unit&branch=&change=&result=").await;
    assert!(!some.part("<tbody>", "</tbody>").contains(">lint</a>"));
    assert!(some.text.contains("name=\"job_name\" value=\"unit\""));
    assert!(some.text.contains("Clear"));
    let first = site.ok("/t/demo/builds?limit=1").await;
    assert_eq!(first.part("<tbody>", "</tbody>").matches("<tr ").count(), 1);
    let next = first.part("<nav class=\"pages\"", "</nav>");
    assert!(next.contains("/t/demo/builds?limit=1&amp;skip=1"), "{next}");
    let second = site.ok("/t/demo/builds?limit=1&skip=1").await;
    assert_ne!(first.part("<tbody>", "</tbody>"), second.part("<tbody>", "</tbody>"));
    assert!(second.part("<nav class=\"pages\"", "</nav>").contains("rel=\"prev\" href=\"/t/demo/builds?limit=1\""));
    let none = site.ok("/t/demo/buildsets?change=nothing").await;
    assert!(none.text.contains("No buildsets here"));
    let hostile = site.ok("/t/demo/builds?job_name=%22%3E%3Cscript%3Ealert(1)%3C/script%3E").await;
    assert_harmless(&hostile.text, "a hostile filter");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_shows_its_attempts_waits_lease_and_console() {
    let site = told(u64::MAX).await;
    site.served.worker_gets_a_lease(&site.keeper, UNIT_A).await;
    site.served.consoles.write(UNIT_A, 2, &format!("\u{1b}[32mok\u{1b}[0m: first\n{EVIL}\nlast"), true);
    let page = site.ok(&format!("/t/demo/build/{UNIT_A}")).await;
    assert!(page.text.contains("<div class=\"line\" id=\"L1\"><a href=\"/t/demo/build/"));
    assert!(page.text.contains("aria-label=\"line 1\">1</a>"));
    assert!(page.text.contains("<code><span class=\"a c2\">ok</span>: first</code>"));
    assert!(page.text.contains("The console ends here"));
    assert_harmless(&page.text, "a console");
    let attempts = page.part("<caption>Attempts</caption>", "</table>");
    assert!(attempts.contains("retry") && attempts.contains("success") && attempts.contains("worker-1"), "{attempts}");
    assert!(page.part("<caption>What it waited for</caption>", "</table>").contains("<code>lease</code>"));
    assert!(page.part("<caption>Leases:", "</table>").contains("worker-1"));
    let first = site.ok(&format!("/t/demo/build/{UNIT_A}?attempt=1")).await;
    assert!(first.text.contains("There is no console of this attempt here any more."));
    let none = site.ok(&format!("/t/demo/build/{LINT_A}")).await;
    assert!(none.text.contains("It ran on no worker"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_console_comes_in_parts_that_meet() {
    let site = told(u64::MAX).await;
    let lines: Vec<String> = (1..=20_000).map(|number| format!("line number {number} of many, ü")).collect();
    site.served.consoles.write(UNIT_B, 1, &lines.join("\n"), true);
    let mut path = format!("/t/demo/build/{UNIT_B}?from=1");
    let mut number = 0;
    for part in 0.. {
        let page = site.ok(&path).await;
        for line in page.text.split("<div class=\"line\" id=\"L").skip(1) {
            number += 1;
            assert!(line.starts_with(&format!("{number}\"")), "line {number}: {line}");
            assert!(line.contains(&format!("<code>line number {number} of many, ü</code>")), "line {number}: {line}");
        }
        if page.text.contains("The console ends here") {
            assert!(part >= 2, "it came in {part} parts");
            break;
        }
        path = page.part("plain-only\" href=\"/t/demo/build", "\"").replace("&amp;", "&");
        path.insert_str(0, "/t/demo/build");
    }
    assert_eq!(number, 20_000);
}

/// What a page is made of: its elements and their attributes, without texts and values.
fn skeleton(page: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = page;
    while let Some((_, from)) = rest.split_once('<') {
        let mut quoted = false;
        let end = from.find(|letter| {
            quoted ^= letter == '"';
            letter == '>' && !quoted
        });
        let (tag, after) = from.split_at(end.unwrap_or_else(|| panic!("an element has no end: {from}")));
        let mut parts = tag.split('"');
        let mut names = String::new();
        while let Some(name) = parts.next() {
            names.push_str(name);
            parts.next();
        }
        out.push(names);
        rest = after;
    }
    out
}

/// Nothing that hostile texts hold became part of the page.
fn assert_harmless_elements(page: &str, of: &str) {
    for tag in skeleton(page) {
        let name = tag.split([' ', '=']).next().unwrap_or_default();
        for never in ["img src=x", "iframe", "base", "style", "object", "embed"] {
            assert!(tag != never && name != never, "{of}: {tag}");
        }
        assert!(!tag.contains(" on") && !tag.contains(" style") && !tag.contains("srcdoc"), "{of}: {tag}");
    }
    for (number, part) in page.split("href=\"").enumerate().skip(1) {
        let to = part.split('"').next().unwrap();
        let good = to.starts_with("/") && !to.starts_with("//") || to.starts_with("http") || to.starts_with('#');
        assert!(good, "{of}: link {number} leads to {to}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_lines_of_a_console_are_text_with_colours_and_web_links() {
    let site = told(u64::MAX).await;
    site.served.consoles.write(UNIT_B, 1, &hostile::console(), true);
    for path in [
        format!("/t/demo/build/{UNIT_B}"),
        format!("/t/demo/build/{UNIT_B}?text=pwned"),
        format!("/t/demo/build/{UNIT_B}/lines"),
    ] {
        let page = site.ok(&path).await;
        assert_harmless_elements(&page.text, &path);
        assert!(page.text.contains("href=\"https://good.example/x\" rel=\"noreferrer noopener nofollow\""), "{path}");
        assert!(page.text.contains("href=\"https://good.example/\" rel"), "{path}");
        for never in ['\0', '\u{1b}', '\u{202e}', '\u{2066}', '\u{9b}', '\u{200b}', '\u{e0041}'] {
            assert!(!page.text.contains(never), "{path} holds {never:?}");
        }
        assert_eq!(page.text.matches("<div class=\"line").count(), hostile::console().lines().count(), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bars_tell_when_jobs_waited_and_ran_now_and_then() {
    let site = told(u64::MAX).await;
    let page = site.ok(&format!("/t/demo/buildset/{SET_A}")).await;
    let bars = page.part("<figure class=\"gantt\"", "</figure>");
    // A first attempt that was tried again, and a second.
    assert!(bars.contains("attempt 1: retry, 3.0 s") && bars.contains("attempt 2: success, 10 s"), "{bars}");
    assert!(bars.contains("waited between attempts"), "{bars}");
    assert!(bars.contains("<rect class=\"good\"") && bars.contains("<rect class=\"warn\""), "{bars}");
    assert!(bars.contains("· ran 13 s"), "{bars}");
    assert!(!bars.contains("style"), "{bars}");
    // The scale begins with the buildset; nothing hangs out of it.
    for place in bars.split(['"']).filter(|text| text.ends_with('%')) {
        let number: f64 = place.trim_end_matches('%').parse().unwrap();
        assert!((0.0..=100.0).contains(&number), "{place}");
    }
    // While it ran.
    let then = site.ok(&format!("/t/demo/item/{A}?at=39")).await;
    let bars = then.part("<figure class=\"gantt\"", "</figure>");
    assert!(bars.contains("attempt 2: running"), "{bars}");
    assert!(then.text.contains("0 of 2 jobs over"), "{}", then.text);
    assert!(then.text.contains("nobody knows how long it takes"), "{}", then.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_filtered_and_empty_ones_say_how_something_gets_in() {
    let site = told(32).await;
    let page = site.ok("/t/demo/status?filter=SHOW-miles").await;
    assert!(page.text.contains("1 of 3 items"), "{}", page.text);
    assert!(
        page.text.contains(&format!("data-key=\"item-{B}\"")) && !page.text.contains(&format!("data-key=\"item-{A}\""))
    );
    let none = site.ok("/t/demo/status?filter=%3Cnobody%3E").await;
    assert!(none.text.contains("0 of 3 items") && none.text.contains("value=\"&lt;nobody&gt;\""), "{}", none.text);

    let site = told(u64::MAX).await;
    let now = site.ok("/t/demo/status").await;
    assert!(now.part("empty-state", "</div>").contains("refs/for/&lt;branch&gt;/&lt;name&gt;"), "{}", now.text);
    let lists = site.ok("/t/demo/builds?at=3").await;
    assert!(lists.text.contains("No builds yet at that moment"), "{}", lists.text);
    let filtered = site.ok("/t/demo/builds?result=ERROR").await;
    assert!(
        filtered.text.contains("Fewer filters show more")
            && filtered.text.contains("<option value=\"ERROR\" selected>")
    );
    let own = site.ok("/t/demo/builds?pipeline=g*").await;
    assert!(own.text.contains("<option value=\"g*\" selected>"), "{}", own.text);
}

/// The queues of a status page, without the moment in its links.
fn queues(page: &Page, at: u64) -> String {
    let main = page.part("<main", "</main>").replace(&format!("?at={at}"), "").replace(&format!("&amp;at={at}"), "");
    let queues = main.split("<section class=\"queue\"").skip(1);
    queues.map(|queue| queue.split("</section>").next().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_everybody_sees_follows_each_event_and_is_never_taken_for_a_moment_or_a_filter() {
    let site = told(9).await;
    let (_, layout, problems) = story::blobs();
    let (mut shown, mut filtered) = (BTreeSet::new(), 0);
    for event in story::events(layout, problems).into_iter().skip(8) {
        let last = site.keeper.say(event);
        site.served.reached(last).await;
        let ask = |path: &'static str| site.ok(path);
        let (one, other) = tokio::join!(ask("/t/demo/status"), ask("/t/d%65mo/status"));
        let then = site.ok(&format!("/t/demo/status?at={last}")).await;
        let mine = site.ok("/t/demo/status?filter=show-miles").await;
        for page in [&one, &other, &mine, &then] {
            assert_eq!(page.header("gatelog-position"), format!("gate/0:{last}"));
            assert_eq!(page.header("cache-control"), "no-cache");
        }
        for page in [&one, &other] {
            assert!(page.text.contains("data-then=\"0\"") && !page.text.contains("id=\"banner\""));
            assert!(!page.text.contains("show-miles\" placeholder") && !page.text.contains("d%65mo"));
            // What was kept of it is as what is made of nothing that was kept.
            assert_eq!(skeleton(&queues(page, last)), skeleton(&queues(&then, last)), "event {last}");
            assert_eq!(page.part("id=\"summary\"", "</p>"), then.part("id=\"summary\"", "</p>"), "event {last}");
        }
        assert!(then.text.contains("data-then=\"1\"") && then.text.contains("id=\"banner\""));
        assert!(mine.text.contains("value=\"show-miles\"") && mine.text.contains("data-live=\"1\""));
        let items = |page: &Page| page.text.matches("data-key=\"item-").count();
        filtered += usize::from(items(&mine) < items(&one));
        shown.insert(skeleton(&queues(&one, last)).join(" "));
    }
    assert!(shown.len() > 10 && filtered > 10, "{} different pages, {filtered} with a filter", shown.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_there_is_shown_now_and_not_in_the_past() {
    let site = told(40).await;
    assert!(!site.ok("/").await.text.contains("<caption>Components</caption>"), "nobody gave a sign");
    let component = |name: &str, roles: &[&str], state| Component {
        name: name.into(),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        state,
        paused: Vec::new(),
        level: 0,
        version: "0.1.7".into(),
        started_at: Timestamp(0),
        zone: None,
        held: Vec::new(),
        last_sign: std::time::Duration::from_secs(95),
        silent: state == ComponentState::Stopped,
    };
    *site.served.present.lock().unwrap() = vec![
        component("west", &["executor"], ComponentState::Stopped),
        component("east", &["scheduler", "web"], ComponentState::Running),
    ];
    let page = site.ok("/").await;
    let rows = page.part("<caption>Components</caption>", "</table>");
    let east = rows.find("<th scope=\"row\">east</th>").unwrap();
    let west = rows.find("<th scope=\"row\">west</th>").unwrap();
    assert!(east < west, "{rows}");
    assert!(rows[east..west].contains("running") && rows[east..west].contains("<td>scheduler, web</td><td>0.1.7</td>"));
    assert!(rows[west..].contains("stopped") && rows[west..].contains("no sign for 1 min 35 s"), "{rows}");
    assert!(!site.ok("/?at=32").await.text.contains("<caption>Components</caption>"));
}

#[tokio::test(flavor = "multi_thread")]
async fn strange_tenants_have_their_pages_and_files_are_kept() {
    let site = told(u64::MAX).await;
    let tenants = site.ok("/").await;
    let link = "/t/we%2Fird%20%22tenant%22%20%C3%BC/status";
    assert!(tenants.links().contains(link), "{:?}", tenants.links());
    assert!(site.ok(link).await.text.contains("we/ird &quot;tenant&quot; ü"));
    for link in tenants.links().iter().filter(|link| link.starts_with("/assets/")) {
        let file = site.ok(link).await;
        assert_eq!(file.header("cache-control"), "public, max-age=31536000, immutable", "{link}");
        assert_eq!(file.header("x-content-type-options"), "nosniff", "{link}");
        assert!(
            file.header("content-type").starts_with("text/css") || file.header("content-type").starts_with("image/svg")
        );
    }
    assert_eq!(site.page("/assets/old/gatelog.js").await.header("cache-control"), "no-store");
    assert_eq!(site.page("/assets/x/..%2f..%2fetc%2fpasswd").await.status, 404);
    let errors = site.ok("/t/demo/config-errors").await;
    assert!(errors.text.contains("nowhere-to-be-found"), "{}", errors.text);
}
#[tokio::test(flavor = "multi_thread")]
async fn hostile_texts_change_no_element_and_no_attribute_of_any_page() {
    let mut sites = Vec::new();
    for (text, url) in [(hostile::HOSTILE, hostile::ADDRESSES[0]), ("a plain text", "forge:plain")] {
        let keeper = Gatekeeper::new();
        let (blobs, layout, problems) = hostile::blobs(text);
        let dir = tempfile::tempdir().unwrap();
        let served = Served::start(&keeper, &blobs, dir.path(), 10).await;
        let mut last = 1;
        for event in trace::explained(hostile::events(text, url, layout, problems), &blobs) {
            last = keeper.say(event);
        }
        served.reached(last).await;
        *served.present.lock().unwrap() = [ComponentState::Running, ComponentState::Stopped]
            .map(|state| Component {
                name: text.into(),
                roles: vec![text.into(), "executor".into()],
                state,
                paused: Vec::new(),
                level: 0,
                version: text.into(),
                started_at: Timestamp(0),
                zone: None,
                held: Vec::new(),
                last_sign: std::time::Duration::from_secs(31),
                silent: state == ComponentState::Stopped,
            })
            .into();
        sites.push(Told { keeper, served, last, _blobs: blobs, _dir: dir });
    }
    for path in hostile::pages() {
        let hostile = sites[0].ok(&path).await;
        let plain = sites[1].ok(&path).await;
        assert_harmless_elements(&hostile.text, &path);
        assert_eq!(skeleton(&hostile.text), skeleton(&plain.text), "{path}");
        assert_eq!(hostile.header("content-security-policy"), plain.header("content-security-policy"), "{path}");
        assert!(hostile.headers.get("set-cookie").is_none(), "{path}");
        // It is there, as text; where nothing fits what is looked for, it need not be.
        let shown = hostile.text.contains("&lt;script&gt;window.pwned=1&lt;/script&gt;");
        assert!(shown || path.contains("filter="), "{path}");
    }
    // The same site's API says it as JSON and nothing else.
    for path in ["/api/tenants", "/api/tenant/demo/status", "/api/tenant/demo/builds", "/api/tenant/demo/config-errors"]
    {
        let answer = sites[0].page(path).await;
        assert_eq!(answer.header("content-type").split(';').next().unwrap(), "application/json", "{path}");
        assert!(answer.header("content-security-policy").ends_with("sandbox"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
    }
}

#[test]
fn no_page_is_put_together_of_texts_past_the_templates() {
    let mut found = Vec::new();
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page");
    for file in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let begins = |line: &str| {
            line.split("\"<")
                .skip(1)
                .any(|rest| rest.starts_with(|letter: char| letter.is_alphabetic() || "/!".contains(letter)))
        };
        let named = file.file_name().unwrap().to_string_lossy().into_owned();
        found.extend(code.lines().filter(|line| begins(line)).map(|line| format!("{named}: {line}")));
        assert!(!code.contains("PreEscaped"), "{named} has HTML that nobody escapes: write a template");
    }
    assert!(found.is_empty(), "{found:#?}");
}
