//! What was measured while a rate was held.

use std::time::{Duration, Instant};

use gatelog_benches::Failure;
use gatelog_benches::measure::Spread;
use gatelog_benches::table::{Table, per_second, percent, time};

use crate::pages::{ASKED, Pages};
use crate::stage::{LOADING, Stage, Taken, machine};

/// Threads below this many cores are not told.
const LEAST: f64 = 0.01;

/// Where everything stands.
pub struct Moment {
    at: Instant,
    taken: Vec<Taken>,
    machine: Duration,
    events: usize,
}

impl Moment {
    /// Now.
    pub fn now(stage: &Stage, pages: &Pages) -> Result<Moment, Failure> {
        Ok(Moment { at: Instant::now(), taken: stage.taken()?, machine: machine()?, events: pages.events() })
    }
}

/// Two moments, and what was seen between them.
pub struct Figures<'a> {
    pub before: Moment,
    pub after: Moment,
    pub pages: &'a Pages,
    /// Durable appends a second of the log alone.
    pub limit: f64,
}

impl Figures<'_> {
    /// Tells it.
    pub fn tell(&self, table: &mut Table) {
        let lasted = self.after.at - self.before.at;
        let rate = (self.after.events - self.before.events) as f64 / lasted.as_secs_f64();
        let limit = (per_second(self.limit), percent(rate / self.limit.max(1e-9)));
        table.row("… events of the gate a second", format!("{rate:.0}"), limit.0, limit.1, "500");
        spread(table, "from an event to a page that is told", &self.pages.told(), "1 s");
        spread(table, "from an event to a page that shows it", &self.pages.shown(), "");
        let messages = self.pages.messages() as f64 / lasted.as_secs_f64();
        table.note("messages to pages a second", format!("{messages:.0}"));
        let asked = self.pages.asked();
        spread(table, "the API", &Spread::new(asked.concat()), "200 ms");
        for ((name, _), took) in ASKED.iter().zip(asked) {
            spread(table, &format!("… {name}"), &Spread::new(took), "");
        }
        table.note("… not answered well", self.pages.failed().to_string());
        self.machine(table, lasted);
    }

    /// Who took what of the machine.
    fn machine(&self, table: &mut Table, lasted: Duration) {
        let cores = |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64() / lasted.as_secs_f64();
        let mut known = 0.0;
        for (now, then) in self.after.taken.iter().zip(&self.before.taken) {
            let (own, children) = (cores(now.own, then.own), cores(now.children, then.children));
            known += own + children;
            let megabytes = now.memory / 1_000_000;
            let aim = if now.name == "all roles" { "2,147 MB" } else { "" };
            let figure = format!("{own:.2}, {megabytes} MB");
            table.row(&format!("{}: cores, memory", now.name), figure, String::new(), String::new(), aim);
            if children >= LEAST {
                table.note("… beside it, its children: cores", format!("{children:.2}"));
            }
            let mut threads: Vec<(&str, f64)> = now
                .threads
                .iter()
                .map(|(name, spent)| {
                    (name.as_str(), cores(*spent, then.threads.get(name).copied().unwrap_or_default()))
                })
                .filter(|(_, cores)| *cores >= LEAST)
                .collect();
            threads.sort_by(|one, other| other.1.total_cmp(&one.1));
            // Of processes with one role the whole is enough.
            if now.name == LOADING || self.after.taken.len() == 2 {
                let told: Vec<String> = threads.iter().map(|(name, cores)| format!("{name} {cores:.2}")).collect();
                table.note("… by its threads", told.join(", "));
            }
        }
        let all = cores(self.after.machine, self.before.machine);
        table.note("everybody else on this machine: cores", format!("{:.2}", (all - known).max(0.0)));
    }
}

fn spread(table: &mut Table, what: &str, spread: &Spread, aim: &str) {
    let [half, most, longest] = [0.5, 0.99, 1.0].map(|share| time(spread.at(share)));
    let aim = if aim.is_empty() { String::new() } else { format!("99 of 100: {aim}") };
    table.row(
        &format!("{what}: half, 99 of 100, all"),
        format!("{half}, {most}, {longest}"),
        format!("({} times)", spread.count()),
        String::new(),
        &aim,
    );
}
