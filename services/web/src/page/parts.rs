//! Pieces that stand on more than one page.

use gatelog_gate_state::history::ItemEntry;
use gatelog_record::draft::gate::Subject;
use serde_json::Value as Json;

use maud::html;

use super::frame::Frame;
use super::html::{Html, Piece, outside, segment};
use super::words;
use crate::answers::{GitRef, WaitHeld};
use crate::estimate::Estimate;
use crate::shape::{ref_id, short};

/// A text of a document; empty when it is none.
pub(crate) fn text<'j>(json: &'j Json, name: &str) -> &'j str {
    json[name].as_str().unwrap_or_default()
}

/// The entries of a list of a document.
pub(crate) fn list<'j>(json: &'j Json, name: &str) -> &'j [Json] {
    json[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A change, ref or commit for people: the project's short name and what of it.
pub(crate) fn subject(subject: &Subject) -> Html {
    let id = ref_id(subject);
    html! { b { (short(&subject.project)) } " " span class="ref" { (name(&id)) } }
}

/// A commit's hash is shortened, anything else is not.
fn name(id: &str) -> Html {
    if id.len() >= 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        words::shortened(id)
    } else {
        html! { (id) }
    }
}

/// What an item holds, in a line.
pub(crate) fn subjects(item: &ItemEntry) -> Html {
    let mut out = Html::default();
    for (number, one) in item.subjects.iter().enumerate() {
        out.add(html! { @if number > 0 { " + " } (subject(one)) });
    }
    out
}

/// The same as a text, for titles.
pub(crate) fn subjects_text(item: &ItemEntry) -> String {
    let one = |subject: &Subject| format!("{} {}", short(&subject.project), ref_id(subject));
    item.subjects.iter().map(one).collect::<Vec<_>>().join(" + ")
}

/// A ref, in a line.
pub(crate) fn reference(of: &GitRef) -> Html {
    let id = match (&of.change, &of.patchset) {
        (Some(change), Some(patchset)) => format!("{change},{patchset}"),
        (Some(change), None) => change.clone(),
        _ => of.newrev.clone().unwrap_or_else(|| of.git_ref.clone()),
    };
    html! { b { (of.project) } " " span class="ref" { (name(&id)) } }
}

/// The same of a document.
pub(crate) fn reference_told(json: &Json) -> Html {
    let id = match (json["change"].as_str(), json["patchset"].as_str()) {
        (Some(change), Some(patchset)) => format!("{change},{patchset}"),
        (Some(change), None) => change.to_owned(),
        _ => json["newrev"].as_str().unwrap_or(text(json, "ref")).to_owned(),
    };
    html! { b { (text(json, "project")) } " " span class="ref" { (name(&id)) } }
}

/// A bar of how far something is, and what is left of it in words, by how long it took before.
pub(crate) fn meter(frame: &Frame, name: &str, start_ms: i64, estimate: Option<Estimate>) -> (Html, Html) {
    let ran = crate::leaps::ran_ms(start_ms, frame.clock_ms());
    let Some(basis) = estimate.filter(|estimate| estimate.mean_ms > 0) else {
        let bar = html! { progress aria-label={ "progress of " (name) ": never ran before" } {} };
        let left = html! {
            span class="num" {
                (words::since(start_ms, frame.clock_ms()))
                " "
                span class="muted" { "first run" }
            }
        };
        return (bar, left);
    };
    let estimate = basis.mean_ms;
    let left = estimate - ran;
    let left = if left >= 0 {
        format!("about {} left", words::took(left))
    } else {
        format!("{} over its mean", words::took(-left))
    };
    let bar = html! {
        progress
            max=(estimate)
            value=(ran.min(estimate))
            data-start=(start_ms)
            data-estimate=(estimate)
            aria-label={ "progress of " (name) }
        {}
    };
    let left = html! {
        span class="num" data-left=(estimate) data-from=(start_ms) title=(basis.says()) { (left) }
    };
    (bar, left)
}

/// The longest web address that is made a link, in bytes.
const LONGEST_LINK: usize = 2_000;

/// A text whose web addresses are links.
pub(crate) fn linked(text: &str) -> Html {
    let mut out = Html::default();
    let mut rest = text;
    while let Some(at) = rest.find("http") {
        let (before, from) = rest.split_at(at);
        let scheme = if from.starts_with("https://") { 8 } else { 7 };
        // Not in the middle of a word, and followed by something.
        let begins = !before.ends_with(|letter: char| letter.is_alphanumeric());
        let end = from.find(|letter: char| !in_address(letter)).unwrap_or(from.len());
        let address =
            from.get(..end).unwrap_or_default().trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']', '*', '_']);
        let web = from.starts_with("https://") || from.starts_with("http://");
        if begins && web && address.len() > scheme && address.len() <= LONGEST_LINK {
            out.add(html! { (before) (outside(address, address)) });
            rest = from.get(address.len()..).unwrap_or_default();
        } else {
            let (word, after) = from.split_at("http".len());
            out.add(html! { (before) (word) });
            rest = after;
        }
    }
    out.add(rest);
    out
}

/// Whether a web address may go on with a character.
fn in_address(letter: char) -> bool {
    match letter {
        '"' | '\'' | '<' | '>' | '`' | '{' | '}' | '|' | '\\' | '^' => false,
        _ if letter.is_ascii() => letter.is_ascii_graphic(),
        _ => letter.is_alphanumeric(),
    }
}

/// The refs of an item with all that is known of them.
pub(crate) fn refs_table(frame: &Frame, item: &ItemEntry) -> Html {
    let mut rows = Html::default();
    for one in &item.subjects {
        let change = one.change.as_deref().unwrap_or(&one.git_ref);
        let builds = frame.to_with("/builds", &[("project", short(&one.project)), ("change", change)]);
        rows.add(html! {
            tr {
                th scope="row" data-label="project" { (short(&one.project)) }
                td data-label="change" { a href=(builds) { (ref_id(one)) } }
                td data-label="branch" { (one.branch.as_deref().unwrap_or("–")) }
                td data-label="commit" { (one.commit.as_deref().map_or_else(Html::default, words::shortened)) }
                td data-label="review" { (outside(&one.url, &one.url)) }
            }
        });
    }
    html! {
        table class="rows" {
            caption { "What was tested" }
            thead {
                tr {
                    th scope="col" { "Project" }
                    th scope="col" { "Change or ref" }
                    th scope="col" { "Branch" }
                    th scope="col" { "Commit" }
                    th scope="col" { "At the review system" }
                }
            }
            tbody { (rows) }
        }
    }
}

/// What something waited for, oldest first.
pub(crate) fn waits_table(frame: &Frame, waits: &[WaitHeld], caption: &str) -> Html {
    if waits.is_empty() {
        return Html::default();
    }
    let mut rows = Html::default();
    for wait in waits {
        let since = wait.since_ms;
        let length = match wait.until_ms {
            Some(until) => html! { span class="num" { (words::took(until - since)) } },
            None => html! { (words::since(since, frame.clock_ms())) " " span class="muted" { "so far" } },
        };
        rows.add(html! {
            tr {
                th scope="row" data-label="for" { code { (wait.code) } }
                td data-label="why" { (wait.detail) }
                td data-label="since" { (words::moment_ms(since)) }
                td data-label="for how long" { (length) }
                td data-label="until" { (wait.unblocks) }
            }
        });
    }
    html! {
        table class="rows" {
            caption { (caption) }
            thead {
                tr {
                    th scope="col" { "For" }
                    th scope="col" { "Why" }
                    th scope="col" { "Since" }
                    th scope="col" { "How long" }
                    th scope="col" { "What ends it" }
                }
            }
            tbody { (rows) }
        }
    }
}

/// Name and value pairs.
pub(crate) fn facts(pairs: &[(&str, Html)]) -> Html {
    let mut out = Html::default();
    for (name, value) in pairs {
        if !value.is_empty() {
            out.add(html! { div { dt { (*name) } dd { (*value) } } });
        }
    }
    html! { dl class="facts" { (out) } }
}

/// The way to here.
pub(crate) fn crumbs(links: &[(String, Html)]) -> Html {
    let mut out = Html::default();
    for (to, name) in links {
        out.add(html! { li { a href=(to) { (*name) } } });
    }
    html! { nav class="crumbs" aria-label="Where this is" { ol { (out) } } }
}

/// The path of a job's explanation.
pub(crate) fn why(frame: &Frame, buildset: &str, job: &str) -> String {
    frame.to(&format!("/buildset/{}/why/{}", segment(buildset), segment(job)))
}

#[cfg(test)]
mod tests {
    use super::linked;
    use crate::page::Finished;

    #[test]
    fn web_addresses_in_a_text_are_links_and_nothing_else_is() {
        let link = |url: &str| format!(r#"<a class="out" href="{url}" rel="noreferrer noopener nofollow">{url}</a>"#);
        for (text, shown) in [
            ("no link", "no link".to_owned()),
            ("https://a.example/b.", format!("{}.", link("https://a.example/b"))),
            (
                "(http://a.example/)\nhttps://b.example",
                format!("({})\n{}", link("http://a.example/"), link("https://b.example")),
            ),
            ("https://a.example/\u{202e}gpj.exe", format!("{}⟨U+202E⟩gpj.exe", link("https://a.example/"))),
            ("https://a.example/\"onclick=x", format!("{}&quot;onclick=x", link("https://a.example/"))),
            ("xhttps://a.example", "xhttps://a.example".to_owned()),
            ("https:// http:/x httpx", "https:// http:/x httpx".to_owned()),
            ("javascript:alert(1) data:text/html,x", "javascript:alert(1) data:text/html,x".to_owned()),
        ] {
            assert_eq!(Finished::new(linked(text)).text(), shown, "{text}");
        }
    }
}
