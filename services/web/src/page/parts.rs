//! Pieces that stand on more than one page.

use gatelog_gate_state::history::ItemEntry;
use gatelog_record::draft::gate::Subject;
use serde_json::Value as Json;

use super::frame::Frame;
use super::html::{Html, html, outside, put, segment};
use super::words;
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

/// A `REF` of a document, in a line.
pub(crate) fn reference(json: &Json) -> Html {
    let id = match (json["change"].as_str(), json["patchset"].as_str()) {
        (Some(change), Some(patchset)) => format!("{change},{patchset}"),
        (Some(change), None) => change.to_owned(),
        _ => json["newrev"].as_str().unwrap_or(text(json, "ref")).to_owned(),
    };
    html!(r#"<b>{}</b> <span class="ref">{}</span>"#, text(json, "project"), name(&id))
}

/// A message whose web addresses are links.
pub(crate) fn linked(message: &str) -> Html {
    let mut out = Html::new();
    for (number, line) in message.split('\n').enumerate() {
        put!(out, "{}", if number == 0 { "" } else { "\n" });
        for (number, word) in line.split(' ').enumerate() {
            put!(out, "{}", if number == 0 { "" } else { " " });
            if word.starts_with("http://") || word.starts_with("https://") {
                put!(out, "{}", outside(word, word));
            } else {
                put!(out, "{}", word);
            }
        }
    }
    out
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
pub(crate) fn waits_table(frame: &Frame, waits: &[Json], caption: &str) -> Html {
    if waits.is_empty() {
        return Html::new();
    }
    let mut rows = Html::new();
    for wait in waits {
        let since = wait["since_ms"].as_i64().unwrap_or_default();
        let until = wait["until_ms"].as_i64();
        let length = match until {
            Some(until) => html!(r#"<span class="num">{}</span>"#, words::took(until - since)),
            None if wait["from"].is_u64() => {
                html!(r#"{} <span class="muted">so far</span>"#, words::since(since, frame.clock_ms()))
            }
            None => Html::new(),
        };
        put!(
            rows,
            r#"<tr><th scope="row" data-label="for"><code>{}</code></th><td data-label="why">{}</td><td data-label="since">{}</td><td data-label="for how long">{}</td><td data-label="until">{}</td></tr>"#,
            text(wait, "code"),
            text(wait, "detail"),
            words::moment_ms(since),
            length,
            text(wait, "unblocks")
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
