//! What a terminal would show of a console's line, as HTML: colours and weight, nothing that moves.

use super::html::{Html, put};

/// The longest part of a line that is shown, in characters.
pub(crate) const LONGEST: usize = 4_000;

/// Splits the time off a line that begins with one, as job consoles' lines do.
pub(crate) fn stamp(line: &str) -> (&str, &str) {
    const SHAPE: &[u8] = b"dddd-dd-dd dd:dd:dd.dddddd | ";
    let fits = line.len() >= SHAPE.len()
        && line
            .bytes()
            .zip(SHAPE)
            .all(|(byte, shape)| if *shape == b'd' { byte.is_ascii_digit() } else { byte == *shape });
    if fits { line.split_at_checked(SHAPE.len()).unwrap_or(("", line)) } else { ("", line) }
}

/// What a line is about, as a class: where something begins, or failed. The same words as in the script.
pub(crate) fn class(said: &str) -> &'static str {
    let head = said.get(..said.len().min(200)).unwrap_or_default();
    let begins = |words: &[&str]| words.iter().any(|word| head.starts_with(word));
    if begins(&["PLAY [", "TASK [", "RUN START", "PRE-RUN START", "POST-RUN START", "CLEANUP START"]) {
        " begins"
    } else if begins(&["fatal:", "ERROR"]) || head.contains(" | failed |") || head.contains(" FAILED") {
        " fail"
    } else {
        ""
    }
}

/// What the text is painted with; it goes on from line to line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Paint {
    bold: bool,
    dim: bool,
    colour: Option<u8>,
}

impl Paint {
    fn plain(self) -> bool {
        self == Paint::default()
    }

    fn set(&mut self, parameters: &str) {
        let mut codes = parameters.split(';').map(|code| code.parse::<u16>().unwrap_or(0));
        while let Some(code) = codes.next() {
            match code {
                0 => *self = Paint::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                22 => (self.bold, self.dim) = (false, false),
                30..=37 => self.colour = u8::try_from(code - 30).ok(),
                90..=97 => self.colour = u8::try_from(code - 90).ok(),
                39 => self.colour = None,
                // Colours by number or by parts are passed over with what belongs to them.
                38 | 48 => match codes.next() {
                    Some(5) => {
                        codes.next();
                    }
                    Some(2) => {
                        codes.nth(2);
                    }
                    _ => {}
                },
                _ => {}
            }
        }
    }

    fn write(self, text: &str, out: &mut Html) {
        if text.is_empty() {
            return;
        }
        if self.plain() {
            put!(out, "{}", text);
            return;
        }
        let colour = self.colour.map(|colour| format!(" c{colour}")).unwrap_or_default();
        put!(
            out,
            r#"<span class="a{}{}{}">{}</span>"#,
            colour,
            if self.bold { " bold" } else { "" },
            if self.dim { " dim" } else { "" },
            text
        );
    }
}

/// A line without its end. Says whether it was cut.
pub(crate) fn line(text: &str, paint: &mut Paint, out: &mut Html) -> bool {
    // What was written over on a terminal is not shown.
    let text = text.strip_suffix('\r').unwrap_or(text);
    let text = text.rsplit('\r').next().unwrap_or(text);
    let mut plain = String::new();
    let mut count = 0;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '\u{1b}' {
            if count >= LONGEST {
                paint.write(&plain, out);
                return true;
            }
            count += 1;
            plain.push(letter);
            continue;
        }
        match letters.peek() {
            Some('[') => {
                letters.next();
                let mut parameters = String::new();
                let mut end = None;
                for next in letters.by_ref().take(64) {
                    if ('@'..='~').contains(&next) {
                        end = Some(next);
                        break;
                    }
                    parameters.push(next);
                }
                if end == Some('m') {
                    paint.write(&plain, out);
                    plain.clear();
                    paint.set(&parameters);
                }
            }
            // A title, a link: to the bell or the string terminator.
            Some(']') => {
                while let Some(next) = letters.next() {
                    if next == '\u{7}' {
                        break;
                    }
                    if next == '\u{1b}' {
                        letters.next_if_eq(&'\\');
                        break;
                    }
                }
            }
            Some(_) => {
                letters.next();
            }
            None => {}
        }
    }
    paint.write(&plain, out);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut out = Html::new();
        line(text, &mut Paint::default(), &mut out);
        out.into_string()
    }

    #[test]
    fn colours_are_classes_and_everything_else_goes() {
        for (text, expected) in [
            ("plain", "plain"),
            ("\u{1b}[0;32mok\u{1b}[0m: done", r#"<span class="a c2">ok</span>: done"#),
            ("\u{1b}[1;91mfatal\u{1b}[m!", r#"<span class="a c1 bold">fatal</span>!"#),
            ("\u{1b}[38;5;196mred\u{1b}[38;2;1;2;3mish", "redish"),
            ("\u{1b}[2J\u{1b}[10;10Hmoved", "moved"),
            ("\u{1b}]0;title\u{7}a\u{1b}]8;;https://x\u{1b}\\b", "ab"),
            ("10%\r50%\r100%", "100%"),
            ("<script>\u{1b}[31m</span>", r#"&lt;script&gt;<span class="a c1">&lt;/span&gt;</span>"#),
            ("end\u{1b}", "end"),
            ("end\u{1b}[", "end"),
        ] {
            assert_eq!(shown(text), expected, "{text:?}");
        }
    }

    #[test]
    fn times_are_told_from_text_and_failures_are_found() {
        let line = "2026-11-21 12:29:38.434863 | worker | failed | Runtime: 0:00:00.055506 | rc: 1";
        assert_eq!(stamp(line), ("2026-11-21 12:29:38.434863 | ", "worker | failed | Runtime: 0:00:00.055506 | rc: 1"));
        for other in ["", "2026", "2026-11-21 12:29:38.43486ü | x", "x026-11-21 12:29:38.434863 | x"] {
            assert_eq!(stamp(other), ("", other));
        }
        for (said, expected) in [
            ("worker | failed | rc: 1", " fail"),
            ("worker | FAILED (failures=1)", " fail"),
            ("TASK [unit]", " begins"),
            ("worker | ok: 1 failed: 0", ""),
            ("", ""),
        ] {
            assert_eq!(class(said), expected, "{said}");
        }
    }

    #[test]
    fn paint_goes_on_to_the_next_line_and_a_long_line_is_cut() {
        let (mut paint, mut out) = (Paint::default(), Html::new());
        line("\u{1b}[31mone", &mut paint, &mut out);
        line("two", &mut paint, &mut out);
        assert_eq!(out.into_string(), r#"<span class="a c1">one</span><span class="a c1">two</span>"#);
        let mut out = Html::new();
        assert!(line(&"x".repeat(100_000), &mut Paint::default(), &mut out));
        assert_eq!(out.into_string().len(), LONGEST);
    }
}
