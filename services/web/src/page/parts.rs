//! Pieces that stand on more than one page.

use gatelog_gate_state::history::ItemEntry;
use gatelog_record::draft::gate::Subject;
use serde_json::Value as Json;

use super::frame::Frame;
use super::html::{Html, html, outside, put, segment};
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
    html!(r#"<b>{}</b> <span class="ref">{}</span>"#, short(&subject.project), name(&id))
}

/// A commit's hash is shortened, anything else is not.
fn name(id: &str) -> Html {
    if id.len() >= 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        words::shortened(id)
    } else {
        html!("{}", id)
    }
}

/// What an item holds, in a line.
pub(crate) fn subjects(item: &ItemEntry) -> Html {
    let mut out = Html::new();
    for (number, one) in item.subjects.iter().enumerate() {
        put!(out, "{}{}", if number == 0 { "" } else { " + " }, subject(one));
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
    html!(r#"<b>{}</b> <span class="ref">{}</span>"#, of.project, name(&id))
}

/// The same of a document.
pub(crate) fn reference_told(json: &Json) -> Html {
    let id = match (json["change"].as_str(), json["patchset"].as_str()) {
        (Some(change), Some(patchset)) => format!("{change},{patchset}"),
        (Some(change), None) => change.to_owned(),
        _ => json["newrev"].as_str().unwrap_or(text(json, "ref")).to_owned(),
    };
    html!(r#"<b>{}</b> <span class="ref">{}</span>"#, text(json, "project"), name(&id))
}

/// A bar of how far something is, and what is left of it in words, by how long it took before.
pub(crate) fn meter(frame: &Frame, name: &str, start_ms: i64, estimate: Option<Estimate>) -> (Html, Html) {
    let ran = crate::leaps::ran_ms(start_ms, frame.clock_ms());
    let Some(basis) = estimate.filter(|estimate| estimate.mean_ms > 0) else {
        let bar = html!(r#"<progress aria-label="progress of {}: never ran before"></progress>"#, name);
        let left = html!(
            r#"<span class="num">{} <span class="muted">first run</span></span>"#,
            words::since(start_ms, frame.clock_ms())
        );
        return (bar, left);
    };
    let estimate = basis.mean_ms;
    let left = estimate - ran;
    let left = if left >= 0 {
        format!("about {} left", words::took(left))
    } else {
        format!("{} over its mean", words::took(-left))
    };
    let bar = html!(
        r#"<progress max="{}" value="{}" data-start="{}" data-estimate="{}" aria-label="progress of {}"></progress>"#,
        estimate,
        ran.min(estimate),
        start_ms,
        estimate,
        name
    );
    let left = html!(
        r#"<span class="num" data-left="{}" data-from="{}" title="{}">{}</span>"#,
        estimate,
        start_ms,
        basis.says(),
        left
    );
    (bar, left)
}

/// The longest web address that is made a link, in bytes.
const LONGEST_LINK: usize = 2_000;

/// A text whose web addresses are links.
pub(crate) fn linked(text: &str) -> Html {
    let mut out = Html::new();
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
            put!(out, "{}{}", before, outside(address, address));
            rest = from.get(address.len()..).unwrap_or_default();
        } else {
            let (word, after) = from.split_at("http".len());
            put!(out, "{}{}", before, word);
            rest = after;
        }
    }
    put!(out, "{}", rest);
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
    let mut rows = Html::new();
    for one in &item.subjects {
        let change = one.change.as_deref().unwrap_or(&one.git_ref);
        let builds = frame.to_with("/builds", &[("project", short(&one.project)), ("change", change)]);
        put!(
            rows,
            r#"<tr><th scope="row" data-label="project">{}</th><td data-label="change"><a href="{}">{}</a></td><td data-label="branch">{}</td><td data-label="commit">{}</td><td data-label="review">{}</td></tr>"#,
            short(&one.project),
            builds,
            ref_id(one),
            one.branch.as_deref().unwrap_or("–"),
            one.commit.as_deref().map_or_else(Html::new, words::shortened),
            outside(&one.url, &one.url)
        );
    }
    html!(
        r#"<table class="rows"><caption>What was tested</caption><thead><tr><th scope="col">Project</th><th scope="col">Change or ref</th><th scope="col">Branch</th><th scope="col">Commit</th><th scope="col">At the review system</th></tr></thead><tbody>{}</tbody></table>"#,
        rows
    )
}

/// What something waited for, oldest first.
pub(crate) fn waits_table(frame: &Frame, waits: &[WaitHeld], caption: &str) -> Html {
    if waits.is_empty() {
        return Html::new();
    }
    let mut rows = Html::new();
    for wait in waits {
        let since = wait.since_ms;
        let length = match wait.until_ms {
            Some(until) => html!(r#"<span class="num">{}</span>"#, words::took(until - since)),
            None => html!(r#"{} <span class="muted">so far</span>"#, words::since(since, frame.clock_ms())),
        };
        put!(
            rows,
            r#"<tr><th scope="row" data-label="for"><code>{}</code></th><td data-label="why">{}</td><td data-label="since">{}</td><td data-label="for how long">{}</td><td data-label="until">{}</td></tr>"#,
            wait.code,
            wait.detail,
            words::moment_ms(since),
            length,
            wait.unblocks
        );
    }
    html!(
        r#"<table class="rows"><caption>{}</caption><thead><tr><th scope="col">For</th><th scope="col">Why</th><th scope="col">Since</th><th scope="col">How long</th><th scope="col">What ends it</th></tr></thead><tbody>{}</tbody></table>"#,
        caption,
        rows
    )
}

/// Name and value pairs.
pub(crate) fn facts(pairs: &[(&str, Html)]) -> Html {
    let mut out = Html::new();
    for (name, value) in pairs {
        if !value.is_empty() {
            put!(out, "<div><dt>{}</dt><dd>{}</dd></div>", *name, *value);
        }
    }
    html!(r#"<dl class="facts">{}</dl>"#, out)
}

/// The way to here.
pub(crate) fn crumbs(links: &[(String, Html)]) -> Html {
    let mut out = Html::new();
    for (to, name) in links {
        put!(out, r#"<li><a href="{}">{}</a></li>"#, to, *name);
    }
    html!(r#"<nav class="crumbs" aria-label="Where this is"><ol>{}</ol></nav>"#, out)
}

/// The path of a job's explanation.
pub(crate) fn why(frame: &Frame, buildset: &str, job: &str) -> String {
    frame.to(&format!("/buildset/{}/why/{}", segment(buildset), segment(job)))
}

#[cfg(test)]
mod tests {
    use super::linked;

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
            assert_eq!(linked(text).into_string(), shown, "{text}");
        }
    }
}
