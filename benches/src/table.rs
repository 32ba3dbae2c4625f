//! A table of figures, each beside the limit that was measured in the same run.
#![expect(clippy::print_stdout, reason = "a benchmark tells whoever runs it")]

use std::time::Duration;

/// Rows of a benchmark, printed as Markdown so that they can stand in the documentation.
#[derive(Debug, Default)]
pub struct Table {
    title: String,
    rows: Vec<[String; 5]>,
}

impl Table {
    /// An empty table.
    pub fn new(title: &str) -> Table {
        Table { title: title.to_owned(), rows: Vec::new() }
    }

    /// A figure, the limit it stands beside, how it compares, and what is aimed at.
    pub fn row(&mut self, what: &str, figure: String, limit: String, ratio: String, aim: &str) {
        self.rows.push([what.to_owned(), figure, limit, ratio, aim.to_owned()]);
    }

    /// A figure that stands alone.
    pub fn note(&mut self, what: &str, figure: String) {
        self.row(what, figure, String::new(), String::new(), "");
    }

    /// Prints it.
    pub fn print(&self) {
        let head = ["what", "figure", "limit beside it", "ratio", "aim"].map(str::to_owned);
        let mut widths = head.clone().map(|cell| cell.chars().count());
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        println!("\n{}\n", self.title);
        let line = |cells: &[String; 5]| {
            let padded: Vec<String> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            println!("| {} |", padded.join(" | "));
        };
        line(&head);
        line(&widths.map(|width| "-".repeat(width)));
        self.rows.iter().for_each(line);
        println!();
    }
}

/// A duration with three digits.
pub fn time(duration: Duration) -> String {
    let nanos = duration.as_nanos() as f64;
    match nanos {
        _ if nanos < 1e3 => format!("{nanos:.0} ns"),
        _ if nanos < 1e6 => format!("{:.3} µs", nanos / 1e3).replacen(".000", "", 1),
        _ if nanos < 1e9 => format!("{:.2} ms", nanos / 1e6),
        _ => format!("{:.2} s", nanos / 1e9),
    }
}

/// Nanoseconds as a duration.
pub fn nanos(nanos: f64) -> String {
    time(Duration::from_nanos(nanos as u64))
}

/// A rate each second, in thousands where it is large.
pub fn per_second(rate: f64) -> String {
    match rate {
        _ if rate >= 1e6 => format!("{:.2} M/s", rate / 1e6),
        _ if rate >= 1e4 => format!("{:.0} k/s", rate / 1e3),
        _ if rate >= 1e3 => format!("{:.1} k/s", rate / 1e3),
        _ => format!("{rate:.0} /s"),
    }
}

/// A share of one hundred.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// How many times as much.
pub fn times(factor: f64) -> String {
    if factor < 10.0 { format!("{factor:.1}×") } else { format!("{factor:.0}×") }
}
