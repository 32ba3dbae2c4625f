//! Live queues as text: for `gatelog status` and the demo's screen.

use serde_json::Value as Json;

/// Whether colours and symbols may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Neither: output goes to a pipe or a file.
    Plain,
    /// Both.
    Colour,
}

impl Style {
    /// Colours on a terminal, unless `NO_COLOR` is set.
    pub fn of_stdout() -> Style {
        use std::io::IsTerminal;
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if std::io::stdout().is_terminal() && !refused { Style::Colour } else { Style::Plain }
    }

    /// The text in a colour of the terminal.
    pub fn paint(self, colour: Paint, text: &str) -> String {
        match self {
            Style::Plain => text.to_owned(),
            Style::Colour => format!("\u{1b}[{}m{text}\u{1b}[0m", colour as u8),
        }
    }
}

/// Colours, by their terminal codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Heads.
    Bold = 1,
    /// What matters less.
    Faint = 2,
    /// Trouble.
    Red = 31,
    /// Success.
    Green = 32,
    /// Waiting.
    Yellow = 33,
    /// Running.
    Blue = 36,
}

/// What comes from outside goes to a terminal without its control characters, and without the signs
/// that make text read in another direction than it is written.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if is_hostile(c) { '\u{fffd}' } else { c }).collect()
}

fn is_hostile(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// JSON on one line or, `pretty`, on several, for a terminal too: what JSON lets through and a
/// terminal may obey is escaped. It reads back as the same document.
pub fn json(document: &Json, pretty: bool) -> String {
    let text = if pretty { serde_json::to_string_pretty(document).ok() } else { None };
    let text = text.unwrap_or_else(|| document.to_string());
    if !text.chars().any(|c| c != '\n' && is_hostile(c)) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 64);
    for c in text.chars() {
        if c != '\n' && is_hostile(c) {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

fn text<'j>(json: &'j Json, key: &str) -> &'j str {
    json.get(key).and_then(Json::as_str).unwrap_or_default()
}

fn list<'j>(json: &'j Json, key: &str) -> &'j [Json] {
    json.get(key).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The queues of a tenant's status document, a line each for pipelines, items and jobs.
pub fn status(document: &Json, style: Style, now_ms: i64) -> Vec<String> {
    let mut lines = Vec::new();
    for pipeline in list(document, "pipelines") {
        let items: usize = list(pipeline, "change_queues")
            .iter()
            .map(|queue| list(queue, "heads").iter().filter_map(Json::as_array).map(Vec::len).sum::<usize>())
            .sum();
        let count = match items {
            0 => "empty".to_owned(),
            1 => "1 item".to_owned(),
            many => format!("{many} items"),
        };
        lines.push(format!(
            "{}  {}",
            style.paint(Paint::Bold, &clean(text(pipeline, "name"))),
            style.paint(Paint::Faint, &format!("{} · {count}", clean(text(pipeline, "manager"))))
        ));
        for queue in list(pipeline, "change_queues") {
            let heads = list(queue, "heads");
            let shared = text(pipeline, "manager") != "independent";
            if shared && heads.iter().any(|head| head.as_array().is_some_and(|items| !items.is_empty())) {
                let window = queue.get("window").and_then(Json::as_u64).unwrap_or(0);
                let window = if window == 0 { "no window".to_owned() } else { format!("window {window}") };
                lines.push(style.paint(Paint::Faint, &format!("  queue {} · {window}", clean(text(queue, "name")))));
            }
            for head in heads {
                for one in head.as_array().map(Vec::as_slice).unwrap_or_default() {
                    item(&mut lines, one, style, now_ms);
                }
            }
        }
    }
    lines
}

fn item(lines: &mut Vec<String>, item: &Json, style: Style, now_ms: i64) {
    let live = item.get("live").and_then(Json::as_bool).unwrap_or(true);
    let failing: Vec<&str> = list(item, "failing_reasons").iter().filter_map(Json::as_str).collect();
    let names: Vec<String> = list(item, "refs")
        .iter()
        .map(|one| format!("{} {}", clean(text(one, "project")), clean(text(one, "id"))))
        .collect();
    let (symbol, colour) = match (live, failing.is_empty()) {
        (false, _) => ("·", Paint::Faint),
        (true, true) => ("●", Paint::Green),
        (true, false) => ("●", Paint::Red),
    };
    let symbol = if style == Style::Plain { "*" } else { symbol };
    let mut line = format!("  {} {}", style.paint(colour, symbol), names.join(", "));
    if !live {
        line.push_str(&style.paint(Paint::Faint, "  (not live: a change below needs it)"));
    }
    lines.push(line);
    if !failing.is_empty() {
        lines.push(format!("      {}", style.paint(Paint::Red, &format!("failing: {}", clean(&failing.join("; "))))));
    }
    let jobs = list(item, "jobs");
    if live && let Some(wait) = item.get("wait").filter(|wait| wait.is_object()) {
        let code = text(wait, "code");
        // While jobs run, their own lines say more.
        if code != "jobs" || jobs.is_empty() {
            lines.push(format!("      {}", waiting(wait, style, now_ms)));
        }
    }
    for one in jobs {
        lines.push(format!("      {}", job(one, style, now_ms)));
    }
}

fn waiting(wait: &Json, style: Style, now_ms: i64) -> String {
    let mut line = format!("waits for {}: {}", clean(text(wait, "code")), clean(text(wait, "detail")));
    if let Some(since) = wait.get("since_ms").and_then(Json::as_i64) {
        line.push_str(&format!(" ({})", seconds((now_ms - since).max(0) / 1000)));
    }
    style.paint(Paint::Yellow, &line)
}

fn job(job: &Json, style: Style, now_ms: i64) -> String {
    let name = format!("{:<28}", clean(text(job, "name")));
    let voting = job.get("voting").and_then(Json::as_bool).unwrap_or(true);
    let mut state = match job.get("result").and_then(Json::as_str) {
        Some("SUCCESS") => style.paint(Paint::Green, "SUCCESS"),
        Some(result @ ("SKIPPED" | "CANCELED")) => style.paint(Paint::Faint, result),
        Some(result) => style.paint(Paint::Red, &clean(result)),
        None => match job.get("start_time").and_then(Json::as_f64) {
            Some(start) => {
                let elapsed = (now_ms - (start * 1000.0) as i64).max(0) / 1000;
                style.paint(Paint::Blue, &progress(elapsed, job.get("estimated_time").and_then(Json::as_i64)))
            }
            None => match job.get("wait").filter(|wait| wait.is_object()) {
                Some(wait) => waiting(wait, style, now_ms),
                None => style.paint(Paint::Yellow, "queued"),
            },
        },
    };
    if job.get("tries").and_then(Json::as_u64).is_some_and(|tries| tries > 1) {
        state.push_str(&format!(" attempt {}", job["tries"]));
    }
    if !voting {
        state.push_str(&style.paint(Paint::Faint, " (non-voting)"));
    }
    format!("{name} {state}")
}

fn progress(elapsed: i64, estimated: Option<i64>) -> String {
    const CELLS: i64 = 12;
    match estimated.filter(|seconds| *seconds > 0) {
        Some(estimated) => {
            let filled = (elapsed * CELLS / estimated).clamp(0, CELLS - 1);
            let bar: String = (0..CELLS).map(|cell| if cell < filled { '=' } else { '.' }).collect();
            format!("running [{bar}] {} of about {}", seconds(elapsed), seconds(estimated))
        }
        None => format!("running {}", seconds(elapsed)),
    }
}

/// Rows under a head, in columns as wide as they must be.
pub fn table<const N: usize>(rows: &[[String; N]], style: Style) -> Vec<String> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    if let Some(head) = lines.first_mut() {
        *head = style.paint(Paint::Faint, head);
    }
    lines
}

/// A span of milliseconds for people, as [`seconds`] has it.
pub fn millis(span: i64) -> String {
    seconds(span / 1_000)
}

/// A span for people: `7s`, `3m 05s`, `2h 10m`.
pub fn seconds(span: i64) -> String {
    match span {
        ..60 => format!("{span}s"),
        60..3600 => format!("{}m {:02}s", span / 60, span % 60),
        _ => format!("{}h {:02}m", span / 3600, span % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_for_a_terminal_holds_nothing_a_terminal_obeys_and_reads_back_the_same() {
        let document = serde_json::json!({"evil\u{202e}": ["\u{1b}[2J", "\u{9b}31m", "\u{7f}", "plain é", "\n"]});
        for pretty in [false, true] {
            let text = json(&document, pretty);
            assert!(!text.chars().any(|c| c != '\n' && is_hostile(c)), "{text:?}");
            assert_eq!(serde_json::from_str::<Json>(&text).unwrap(), document);
        }
        assert_eq!(clean("a\u{202e}b\u{9b}c\u{1b}d"), "a\u{fffd}b\u{fffd}c\u{fffd}d");
    }

    #[test]
    fn a_queue_reads_from_top_to_bottom() {
        let document = serde_json::json!({"pipelines": [{
            "name": "gate", "manager": "dependent",
            "change_queues": [{"name": "demo", "window": 20, "heads": [[
                {"live": true, "failing_reasons": ["job a failed"], "refs": [{"project": "library", "id": "master/x,1"}],
                 "wait": {"code": "jobs", "detail": "1 of 2 jobs"},
                 "jobs": [{"name": "a", "result": "FAILURE", "voting": true},
                          {"name": "b", "result": null, "voting": false, "start_time": 100.0, "estimated_time": 60}]},
                {"live": true, "failing_reasons": [], "refs": [{"project": "evil\u{1b}[2J", "id": "y"}],
                 "wait": {"code": "prepare", "detail": "merging 2 changes", "since_ms": 120_000}, "jobs": []},
            ]]}],
        }]});
        let shown = status(&document, Style::Plain, 130_000).join("\n");
        assert_eq!(
            shown,
            "gate  dependent · 2 items\n\
             \x20 queue demo · window 20\n\
             \x20 * library master/x,1\n\
             \x20     failing: job a failed\n\
             \x20     a                            FAILURE\n\
             \x20     b                            running [======......] 30s of about 1m 00s (non-voting)\n\
             \x20 * evil\u{fffd}[2J y\n\
             \x20     waits for prepare: merging 2 changes (10s)"
        );
    }
}
