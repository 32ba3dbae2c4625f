//! The demo's screen: the live queue drawn over itself on a terminal, lines of news elsewhere.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};

use crossterm::terminal;
use serde_json::Value as Json;

use crate::show::{Paint, Style};

/// Where the story is told.
pub struct Screen {
    style: Style,
    live: bool,
    drawn: u16,
    told: BTreeSet<String>,
    quiet: bool,
}

impl Screen {
    /// The terminal, if there is one and it may be drawn on; `quiet` says nothing at all.
    pub fn new(headless: bool, quiet: bool) -> Screen {
        let live = io::stdout().is_terminal() && !headless && !quiet;
        Screen { style: Style::of_stdout(), live, drawn: 0, told: BTreeSet::new(), quiet }
    }

    /// How it may be written.
    pub fn style(&self) -> Style {
        self.style
    }

    /// A line that stays.
    pub fn say(&mut self, text: &str) {
        if self.quiet {
            return;
        }
        self.wipe();
        self.line(text);
    }

    /// The head of a chapter.
    pub fn chapter(&mut self, text: &str) {
        let head = self.style.paint(Paint::Bold, text);
        self.say("");
        self.say(&head);
    }

    /// The queues as they are now. Without a terminal, what is new about items and jobs, once each.
    pub fn queues(&mut self, document: &Json, now_ms: i64) {
        if self.quiet {
            return;
        }
        if self.live {
            let lines = crate::show::status(document, self.style, now_ms);
            self.draw(&lines);
            return;
        }
        for line in news(document) {
            if self.told.insert(line.clone()) {
                self.line(&line);
            }
        }
    }

    /// Takes the live part away.
    pub fn wipe(&mut self) {
        if self.live && self.drawn > 0 {
            let mut out = io::stdout().lock();
            // Up to the first line of what was drawn, then everything below is cleared.
            let _ = write!(out, "\u{1b}[{}A\r\u{1b}[J", self.drawn);
            let _ = out.flush();
            self.drawn = 0;
        }
    }

    fn draw(&mut self, lines: &[String]) {
        let (columns, rows) = terminal::size().unwrap_or((100, 40));
        let room = usize::from(rows.saturating_sub(2)).max(5);
        let mut text = String::new();
        for line in lines.iter().take(room) {
            text.push_str(&cut(line, usize::from(columns.max(20)) - 1));
            text.push_str("\r\n");
        }
        self.wipe();
        let mut out = io::stdout().lock();
        let _ = out.write_all(text.as_bytes());
        let _ = out.flush();
        self.drawn = u16::try_from(lines.len().min(room)).unwrap_or(0);
    }

    fn line(&mut self, text: &str) {
        // A closed pipe is no reason to stop the story.
        let _ = writeln!(io::stdout().lock(), "{text}");
    }
}

/// Cuts a line to so many columns, colour codes not counted.
fn cut(line: &str, columns: usize) -> String {
    let mut out = String::new();
    let mut width = 0;
    let mut rest = line.chars();
    while let Some(character) = rest.next() {
        if character == '\u{1b}' {
            out.push(character);
            for code in rest.by_ref() {
                out.push(code);
                if code.is_ascii_alphabetic() {
                    break;
                }
            }
            continue;
        }
        let wide = unicode_width::UnicodeWidthChar::width(character).unwrap_or(0);
        if width + wide > columns {
            out.push_str("\u{1b}[0m");
            break;
        }
        width += wide;
        out.push(character);
    }
    out
}

/// What a status document says, a sentence for each job's state: told once when it is new.
fn news(document: &Json) -> Vec<String> {
    let mut lines = Vec::new();
    let lists = |json: &Json, key: &str| json.get(key).and_then(Json::as_array).cloned().unwrap_or_default();
    for pipeline in lists(document, "pipelines") {
        let name = pipeline["name"].as_str().unwrap_or_default().to_owned();
        for queue in lists(&pipeline, "change_queues") {
            for item in lists(&queue, "heads").iter().filter_map(Json::as_array).flatten() {
                if item["live"].as_bool() == Some(false) {
                    continue;
                }
                let change = lists(item, "refs")
                    .iter()
                    .map(|one| {
                        format!(
                            "{} {}",
                            one["project"].as_str().unwrap_or_default(),
                            one["id"].as_str().unwrap_or_default()
                        )
                    })
                    .collect::<Vec<_>>()
                    .join(", ");
                let what = crate::show::clean(&change);
                lines.push(format!("{name}: {what} is enqueued"));
                for job in lists(item, "jobs") {
                    let job_name = crate::show::clean(job["name"].as_str().unwrap_or_default());
                    // A build that is run anew after a reset has a uuid of its own.
                    let short: String = job["uuid"].as_str().unwrap_or_default().chars().take(7).collect();
                    match job["result"].as_str() {
                        Some(result) => lines.push(format!("{name}: {what}: {job_name} {short}: {result}")),
                        None if job["start_time"].is_number() => {
                            lines.push(format!("{name}: {what}: {job_name} {short} runs"));
                        }
                        None => {}
                    }
                }
                for reason in lists(item, "failing_reasons").iter().filter_map(Json::as_str) {
                    lines.push(format!("{name}: {what} is failing: {}", crate::show::clean(reason)));
                }
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_by_columns_and_keeps_its_colours() {
        assert_eq!(cut("\u{1b}[31mabcdef\u{1b}[0m", 3), "\u{1b}[31mabc\u{1b}[0m");
        assert_eq!(cut("短い", 3), "短\u{1b}[0m");
        assert_eq!(cut("abc", 3), "abc");
    }
}
