//! What waits, as a server's API tells it, in lines for people: for `status` and `doctor --site`.

use serde_json::Value as Json;

use crate::show::{Paint, Style, clean, seconds};

/// Of a server that does not tell what waits, since it is older.
pub const UNKNOWN: &[Json] = &[];

/// Whether a wait does not go on by itself.
pub fn is_held_up(wait: &Json) -> bool {
    wait["standing"] == "held-up"
}

/// Whether it is being worked on.
pub fn is_worked_on(wait: &Json) -> bool {
    wait["standing"] == "working"
}

/// The waits of an answer.
pub fn of(answer: &Json) -> &[Json] {
    answer["waits"].as_array().map_or(UNKNOWN, Vec::as_slice)
}

/// One wait: what, why, since when, what ends it, and the cure.
pub fn lines(wait: &Json, style: Style) -> Vec<String> {
    let text = |key: &str| clean(wait[key].as_str().unwrap_or_default());
    let colour = if is_held_up(wait) { Paint::Red } else { Paint::Yellow };
    let subject = &wait["subject"];
    let what = clean(subject["name"].as_str().unwrap_or_default());
    let of = match wait["tenant"].as_str() {
        // A tenant names itself.
        Some(tenant) if subject["kind"] != "tenant" => format!(" (tenant {})", clean(tenant)),
        _ => String::new(),
    };
    let waited = seconds(wait["waited_ms"].as_i64().unwrap_or_default() / 1_000);
    let since = text("since");
    let since = since.split_once('.').map_or(since.as_str(), |(to_the_second, _)| to_the_second);
    let mut lines = vec![format!("{} {what}{of}, for {waited}", style.paint(colour, &text("reason")))];
    let detail = text("detail");
    let why = if detail.is_empty() { text("means") } else { detail };
    for (name, said) in
        [("why", why), ("since", format!("{since}Z")), ("ends when", text("ends_when")), ("cure", text("cure"))]
    {
        if !said.is_empty() {
            lines.push(format!("  {} {said}", style.paint(Paint::Faint, &format!("{:<10}", format!("{name}:")))));
        }
    }
    lines
}

/// What of these waits does not run by itself or waits its turn, with a heading; nothing when there is none.
pub fn section(waits: &[Json], style: Style) -> Vec<String> {
    let told: Vec<&Json> = waits.iter().filter(|wait| !is_worked_on(wait)).collect();
    if told.is_empty() {
        return Vec::new();
    }
    let mut out = vec![style.paint(Paint::Bold, "waits for more than a minute")];
    out.extend(told.iter().flat_map(|wait| lines(wait, style)).map(|line| format!("  {line}")));
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wait_says_what_why_since_when_what_ends_it_and_the_cure() {
        let wait = json!({
            "subject": { "kind": "build", "id": "b", "name": "unit of lib master/a in check" }, "tenant": "demo",
            "reason": "no-worker", "standing": "held-up", "means": "no executor", "detail": "no worker offers big",
            "since": "2026-01-31T14:03:00.123456Z", "waited_ms": 125_000, "ends_when": "one joins", "cure": "start one"
        });
        assert_eq!(
            lines(&wait, Style::Plain),
            [
                "no-worker unit of lib master/a in check (tenant demo), for 2m 05s",
                "  why:       no worker offers big",
                "  since:     2026-01-31T14:03:00Z",
                "  ends when: one joins",
                "  cure:      start one"
            ]
        );
        let works = json!({ "reason": "running", "standing": "working" });
        assert_eq!(section(std::slice::from_ref(&works), Style::Plain), Vec::<String>::new());
        assert_eq!(section(&[works, wait], Style::Plain).len(), 6);
    }
}
