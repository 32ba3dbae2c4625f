//! Consoles over HTTP: however long they or their lines are, out of reach, and what is found in them.

use serde_json::json;

use super::{Told, told};
use crate::site::{GIGABYTE, LONG_LINE};
use crate::story::{UNIT_A, UNIT_B};

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

/// Looks for something, again and again, until it is found or everything was looked through: the hit, and how often was
/// asked.
async fn looked_for(site: &Told, find: &str) -> (serde_json::Value, u32) {
    let (mut line, mut offset, mut asked) = (json!(1), json!(null), 0);
    loop {
        asked += 1;
        let within = offset.as_u64().map(|offset| format!("&offset={offset}")).unwrap_or_default();
        let answer = site.served.json(&format!("{find}&line={line}{within}")).await;
        let hit = &answer["hits"][0];
        let (next, next_offset) = (answer["next"].clone(), answer["next_offset"].clone());
        if !hit.is_null() || next.is_null() {
            return (hit.clone(), asked);
        }
        let place = |line: &serde_json::Value, offset: &serde_json::Value| (line.as_u64(), offset.as_u64());
        assert!(place(&next, &next_offset) > place(&line, &offset), "the search stands still: {answer}");
        (line, offset) = (next, next_offset);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_within_and_after_a_line_longer_than_one_look_is_found() {
    let site = told(u64::MAX).await;
    // A word on each of the places where a look at a line may end, and one in the line after.
    let block = 256 << 10;
    let mut text = String::from("first\ny");
    for number in 1..=20 {
        text.push_str(&"x".repeat(number * block - 4 - text.len()));
        text.push_str(&format!("needle{number:02}."));
    }
    text.push_str("z\nlast\n");
    site.served.consoles.write(UNIT_B, 1, &text, true);
    let find = format!("/api/tenant/demo/build/{UNIT_B}/console/find");
    for number in 1..=20 {
        let (hit, _) = looked_for(&site, &format!("{find}?text=NEEDLE{number:02}")).await;
        assert_eq!((&hit["line"], &hit["match"]), (&json!(2), &json!(format!("needle{number:02}"))), "{number}");
        assert!(hit["before"].as_str().unwrap().ends_with('x') && hit["after"].as_str().unwrap().starts_with('.'));
    }
    let (hit, _) = looked_for(&site, &format!("{find}?text=last")).await;
    assert_eq!((&hit["line"], &hit["match"]), (&json!(3), &json!("last")));
    // A line begins and ends where it does, not where a look at it did.
    for (pattern, line) in [("^x", None), ("x$", None), ("%5Ey", Some(2)), ("z$", Some(2)), ("%5Elast$", Some(3))] {
        let (hit, _) = looked_for(&site, &format!("{find}?regex=true&text={pattern}")).await;
        assert_eq!(hit["line"].as_u64(), line, "{pattern}: {hit}");
    }
    // From a byte on; one that does not lie in the line is refused.
    let from = |line: u64, offset: usize| format!("{find}?text=needle01&line={line}&offset={offset}");
    assert_eq!(site.served.json(&from(2, block - 4)).await["hits"][0]["line"], json!(2));
    assert_eq!(site.served.json(&from(2, block - 3)).await["hits"], json!([]));
    for (line, offset) in [(1, 6), (2, 3), (2, text.len() - 5), (9, 1)] {
        let refused = site.served.get(&from(line, offset)).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
        assert!(refused.text.contains(&format!("byte {offset} of the console does not lie in line {line}")));
    }
    // More hits than are wanted: looking goes on where the first of the others is.
    let words = "said a word ".repeat(100) + "\n";
    site.served.consoles.write(UNIT_A, 2, &words.repeat(3), true);
    let some = site.served.json(&format!("/api/tenant/demo/build/{UNIT_A}/console/find?text=word&limit=2")).await;
    assert_eq!((some["hits"].as_array().unwrap().len(), &some["next"]), (2, &json!(3)));
    assert_eq!(some["next_offset"], json!(null));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_after_a_hundred_megabytes_of_one_line_is_found() {
    let site = told(u64::MAX).await;
    site.served.consoles.make(UNIT_B, 1, LONG_LINE.0, LONG_LINE.1);
    let find = format!("/api/tenant/demo/build/{UNIT_B}/console/find");
    let (hit, asked) = looked_for(&site, &format!("{find}?text=last")).await;
    assert_eq!((&hit["line"], &hit["match"]), (&json!(3), &json!("last")));
    // However often that took, each answer went on where the one before ended.
    assert!(asked < 100, "{asked} answers");
    let (none, _) = looked_for(&site, &format!("{find}?text=xy")).await;
    assert!(none.is_null(), "{none}");
}
