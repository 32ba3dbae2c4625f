//! Words, signs and times for people.

use gatelog_record::{Event, Timestamp};

use maud::html;

use super::html::Html;

/// How something stands: decides colour and sign, which never stand without the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    Good,
    Bad,
    Warn,
    Running,
    Waiting,
    Quiet,
}

impl Stand {
    /// Of a result in Zuul's words.
    pub(crate) fn of_result(result: &str) -> Stand {
        match result {
            "SUCCESS" => Stand::Good,
            "SKIPPED" | "CANCELED" | "NO_JOBS" | "DEQUEUED" => Stand::Quiet,
            "RETRY" | "ABORTED" => Stand::Warn,
            _ => Stand::Bad,
        }
    }

    /// The CSS class.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Stand::Good => "good",
            Stand::Bad => "bad",
            Stand::Warn => "warn",
            Stand::Running => "running",
            Stand::Waiting => "waiting",
            Stand::Quiet => "quiet",
        }
    }

    fn sign(self) -> &'static str {
        match self {
            Stand::Good => "✓",
            Stand::Bad => "✕",
            Stand::Warn => "↻",
            Stand::Running => "▶",
            Stand::Waiting => "◌",
            Stand::Quiet => "–",
        }
    }

    /// The sign alone, for beside a word.
    pub(crate) fn mark(self) -> Html {
        html! { span class={ "mark " (self.class()) } aria-hidden="true" { (self.sign()) } }
    }

    /// A sign with its word.
    pub(crate) fn badge(self, word: &str) -> Html {
        html! {
            span class={ "badge " (self.class()) } { span aria-hidden="true" { (self.sign()) } " " (word) }
        }
    }
}

/// A result as people read it: `TIMED_OUT` is "timed out".
pub(crate) fn lower(result: &str) -> String {
    result.to_lowercase().replace('_', " ")
}

/// A result's badge.
pub(crate) fn result_badge(result: &str) -> Html {
    Stand::of_result(result).badge(&lower(result))
}

/// A stretch of time: the two largest units that say something.
pub(crate) fn took(milliseconds: i64) -> String {
    let ms = milliseconds.max(0);
    let seconds = ms / 1_000;
    match seconds {
        0..=9 => format!("{}.{} s", seconds, ms % 1_000 / 100),
        10..=59 => format!("{seconds} s"),
        60..=3_599 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..=86_399 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// A moment: machine-readable, and to the second in UTC for people.
pub(crate) fn moment(at: Timestamp) -> Html {
    if at == Timestamp::ZERO {
        return html! { span { "before the first event" } };
    }
    let iso = at.to_string();
    let text = iso.replace('T', " ");
    let text = text.split(['.', 'Z']).next().unwrap_or_default();
    html! { time datetime=(iso) { (text) " UTC" } }
}

/// A moment from a document's milliseconds.
pub(crate) fn moment_ms(at_ms: i64) -> Html {
    moment(Timestamp(at_ms.saturating_mul(1_000)))
}

/// The time of day alone, for lists whose day is known.
pub(crate) fn clock(at: Timestamp) -> Html {
    let iso = at.to_string();
    let time = iso.split_once('T').map_or(iso.as_str(), |(_, time)| time);
    let time = time.trim_end_matches('Z').split('.').next().unwrap_or_default();
    html! { time datetime=(iso) title=(iso) { (time) } }
}

/// A stretch that still runs: counted on by the page's script when the page is live.
pub(crate) fn since(from_ms: i64, now_ms: i64) -> Html {
    let from_ms = from_ms.saturating_add(crate::leaps::within(from_ms, now_ms));
    html! { span class="num" data-since=(from_ms) { (took(now_ms - from_ms)) } }
}

/// The beginning of an id or commit, all of it on hover.
pub(crate) fn shortened(id: &str) -> Html {
    let head: String = id.chars().take(10).collect();
    html! { code title=(id) { (head) } }
}

/// What an event is called.
pub(crate) fn kind(number: u16) -> &'static str {
    let name = Event::kinds().find(|kind| kind.newest.kind == number).map_or("event", |kind| kind.name);
    name.split_once('.').map_or(name, |(_, name)| name)
}

/// One, or many.
pub(crate) fn many(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_told_in_two_units() {
        for (ms, text) in [
            (-5, "0.0 s"),
            (1_250, "1.2 s"),
            (59_999, "59 s"),
            (61_000, "1 min 1 s"),
            (3_661_000, "1 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(took(ms), text);
        }
    }

    #[test]
    fn every_result_has_its_sign() {
        assert_eq!(Stand::of_result("SUCCESS"), Stand::Good);
        assert_eq!(Stand::of_result("TIMED_OUT"), Stand::Bad);
        assert_eq!(Stand::of_result("SKIPPED"), Stand::Quiet);
        assert_eq!(result_badge("TIMED_OUT").into_string().matches("timed out").count(), 1);
    }
}
