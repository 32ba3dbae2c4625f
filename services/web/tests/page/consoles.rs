//! Consoles over HTTP: however long they or their lines are, out of reach, and what is found in them.

use serde_json::json;

use crate::site::{GIGABYTE, LONG_LINE};
use crate::story::{UNIT_A, UNIT_B};
use crate::told;

/// The most an answer with lines may have, in bytes.
const SMALL: usize = 1 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn any_line_of_a_gigabyte_is_shown_by_a_small_answer() {
    let site = told(u64::MAX).await;
    site.served.consoles.make(UNIT_B, 1, GIGABYTE.0, GIGABYTE.1);
    let page = site.ok(&format!("/t/demo/build/{UNIT_B}")).await;
    assert!(page.text.len() < SMALL, "{} bytes", page.text.len());
    assert!(page.text.contains("id=\"L1\"") && page.text.contains("id=\"L500\""));
    assert!(!page.text.contains("id=\"L501\""));
    assert!(page.text.contains("data-complete=\"0\""), "the page does not wait until all lines are counted");

    let lines = format!("/api/tenant/demo/build/{UNIT_B}/console/lines");
    // Counting goes on from answer to answer.
    let mut asked = 0;
    let last = loop {
        let answer = site.served.json(&format!("{lines}?line=last&count=3")).await;
        asked += 1;
        assert!(asked < 100, "counting does not end");
        if answer["complete"] == true {
            break answer;
        }
    };
    assert!(asked > 1, "one answer read all of it");
    let count = (1_u64 << 30).div_ceil(100);
    assert_eq!((&last["known_lines"], &last["known_bytes"]), (&json!(count), &json!(1_u64 << 30)));
    assert_eq!(last["lines"][2]["line"], json!(count));
    assert_eq!(last["ended"], true);
    assert_eq!(last["first_failure"], json!(9_000_000));
    for line in [1, 2_622, 2_623, 5_000_000, 9_999_999] {
        let answer = site.served.json(&format!("{lines}?line={line}&count=1")).await;
        let text = answer["lines"][0]["text"].as_str().unwrap();
        assert_eq!(text.split_whitespace().take(2).collect::<Vec<_>>(), ["line", &line.to_string()], "{answer}");
        assert_eq!(answer["lines"][0]["offset"], json!((line - 1) * 100), "{answer}");
    }
    let page = site.ok(&format!("/t/demo/build/{UNIT_B}?line=5000000")).await;
    assert!(page.text.contains("class=\"line marked\" id=\"L5000000\""));
    assert!(page.text.contains("first failure: line 9\u{202f}000\u{202f}000"), "{}", page.text);
    let beyond = site.ok(&format!("/t/demo/build/{UNIT_B}?line=99999999")).await;
    assert!(beyond.text.contains("There is no line"), "{}", beyond.text);

    let find = format!("/api/tenant/demo/build/{UNIT_B}/console/find");
    let mut from = 1;
    let found = loop {
        let answer = site.served.json(&format!("{find}?text=failed%20here&line={from}")).await;
        match (answer["hits"].as_array().unwrap().first(), answer["next"].as_u64()) {
            (Some(hit), _) => break hit.clone(),
            (None, Some(next)) => {
                assert!(next > from, "the search stands still at {next}");
                from = next;
            }
            (None, None) => panic!("not found"),
        }
    };
    assert_eq!((&found["line"], &found["match"]), (&json!(9_000_000), &json!("FAILED here")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_a_hundred_megabytes_is_cut_and_whole_in_the_raw_text() {
    let site = told(u64::MAX).await;
    site.served.consoles.make(UNIT_B, 1, LONG_LINE.0, LONG_LINE.1);
    let page = site.ok(&format!("/t/demo/build/{UNIT_B}")).await;
    assert!(page.text.len() < SMALL, "{} bytes", page.text.len());
    assert!(page.text.contains("cut: a line of 104 MB"), "{}", page.text.len());
    assert!(page.text.contains("<code>last</code>"), "what comes after is shown too");
    assert!(page.text.contains("The console ends here: 3 lines, 104 MB."));
    let whole = page.part("cut: a line of 104 MB, <a href=\"", "\"").replace("&amp;", "&");
    let raw = site.served.get(&whole).await;
    assert_eq!((raw.status, raw.text.len()), (200, 100 << 20));
    assert!(raw.text.bytes().all(|byte| byte == b'x'));
    let all = site.served.get(&format!("/api/tenant/demo/build/{UNIT_B}/console?download=1")).await;
    assert_eq!(all.text.len() as u64, LONG_LINE.0);
    let lines = site.served.json(&format!("/api/tenant/demo/build/{UNIT_B}/console/lines")).await;
    assert_eq!(lines["lines"][1]["bytes"], json!(100 << 20));
    assert_eq!((&lines["lines"][1]["cut"], &lines["lines"][2]["text"]), (&json!(true), &json!("last")));
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_waited_for_while_a_build_runs_and_end_with_it() {
    let site = told(32).await;
    let consoles = &site.served.consoles;
    consoles.write(UNIT_A, 1, "one\ntwo\nthr", false);
    let lines = |from: u64| format!("/api/tenant/demo/build/{UNIT_A}/console/lines?wait=1&line={from}");
    let first = site.served.json(&lines(1)).await;
    assert_eq!((first["lines"].as_array().unwrap().len(), &first["next"]), (2, &json!(3)));
    assert_eq!(first["ended"], false);
    let (path, say) = (lines(3), async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        consoles.write(UNIT_A, 1, "ee", false);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        consoles.write(UNIT_A, 1, "\nfo", false);
    });
    let (next, ()) = tokio::join!(site.served.json(&path), say);
    assert_eq!((&next["lines"][0]["text"], &next["next"]), (&json!("three"), &json!(4)));
    consoles.write(UNIT_A, 1, "ur", true);
    let end = site.served.json(&lines(4)).await;
    assert_eq!(
        (&end["lines"][0]["text"], &end["ended"], &end["known_lines"]),
        (&json!("four"), &json!(true), &json!(4))
    );
    let after = site.served.json(&lines(5)).await;
    assert_eq!((after["lines"].as_array().unwrap().len(), &after["ended"]), (0, &json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_console_out_of_reach_is_said_and_what_is_stored_is_shown() {
    let site = told(32).await;
    let (page, raw) = (format!("/t/demo/build/{UNIT_A}"), format!("/api/tenant/demo/build/{UNIT_A}/console"));
    site.served.consoles.away(UNIT_A, 1, "connection to <worker-1> refused");
    let shown = site.ok(&page).await;
    assert!(shown.text.contains("cannot be reached now: connection to &lt;worker-1&gt; refused"), "{}", shown.text);
    assert!(shown.text.contains("Nothing of it is stored yet"), "{}", shown.text);
    for path in [raw.clone(), format!("{raw}/lines"), format!("{raw}/find?text=x")] {
        let answer = site.served.get(&path).await;
        assert_eq!((answer.status, &answer.json()["error"]), (502, &json!("unreachable")), "{path}: {}", answer.text);
    }
    let piece = site.page(&format!("{page}/lines?line=1")).await;
    assert!(piece.status == 502 && piece.text.contains("&lt;worker-1&gt;"), "{}", piece.text);

    site.served.consoles.store(UNIT_A, 1, "stored one\nstored two\n");
    let shown = site.ok(&page).await;
    assert!(shown.text.contains("Here is what is stored of it"), "{}", shown.text);
    assert!(shown.text.contains("<code>stored two</code>"), "{}", shown.text);
    let stored = site.served.get(&format!("{raw}?stored=true")).await;
    assert_eq!((stored.status, stored.text.as_str()), (200, "stored one\nstored two\n"));
    // The script goes on with what is stored too.
    assert!(shown.part("data-lines=\"", "\"").contains("stored=true"));
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_found_without_scripts_and_hits_lead_to_their_lines() {
    let site = told(u64::MAX).await;
    let text: String = (1..=3_000)
        .map(|number| match number {
            7 | 2_500 => format!("line {number}: an <b>Odd</b> thing\n"),
            _ => format!("line {number}\n"),
        })
        .collect();
    site.served.consoles.write(UNIT_B, 1, &text, true);
    let build = format!("/t/demo/build/{UNIT_B}");
    let page = site.ok(&format!("{build}?text=odd%3C%2Fb%3E")).await;
    let hits = page.part("<ol class=\"hits\"", "</ol>");
    assert_eq!(hits.matches("<li>").count(), 2, "{hits}");
    assert!(hits.contains("an &lt;b&gt;<mark>Odd&lt;/b&gt;</mark> thing"), "{hits}");
    let link = hits.split("href=\"").nth(2).unwrap().split('"').next().unwrap().replace("&amp;", "&");
    assert!(link.ends_with("line=2500#L2500"), "{link}");
    let there = site.ok(link.split('#').next().unwrap()).await;
    assert!(there.text.contains("class=\"line marked\" id=\"L2500\""), "{}", there.text);
    let regex = site.ok(&format!("{build}?text=%5Eline%20(7%7C8)%5Cb&regex=true")).await;
    assert!(regex.text.contains("found on 2 lines"), "{}", regex.part("id=\"found\">", "</div>"));
    let many = site.ok(&format!("{build}?text=line")).await;
    assert!(many.text.contains("the first 100 lines with it") && many.text.contains("look on from line 101"));
    let none = site.ok(&format!("{build}?text=nowhere")).await;
    assert!(none.text.contains("not found"), "{}", none.part("id=\"found\">", "</div>"));
    let bad = site.ok(&format!("{build}?text=(%5B&regex=true")).await;
    assert!(
        bad.part("id=\"found\">", "</div>").contains("is no regular expression"),
        "{}",
        bad.part("id=\"found\">", "</div>")
    );
    let bomb = site
        .served
        .get(&format!("/api/tenant/demo/build/{UNIT_B}/console/find?regex=1&text=((a%7B1000%7D)%7B1000%7D)%7B1000%7D"))
        .await;
    assert_eq!(bomb.status, 400, "{}", bomb.text);
}
