//! What a terminal would show of a console's line, as HTML: colours, weight, links, nothing that moves.

use maud::html;

use super::html::{Html, Piece};
use super::parts::linked;

/// The longest part of a line that is shown, in characters.
pub(crate) const LONGEST: usize = 4_000;

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
            out.add(linked(text));
            return;
        }
        let colour = self.colour.map(|colour| format!(" c{colour}")).unwrap_or_default();
        out.add(html! {
            span class={ "a" (colour) (if self.bold { " bold" } else { "" }) (if self.dim { " dim" } else { "" }) } {
                (linked(text))
            }
        });
    }
}

/// What a terminal would be painting with after some text.
pub(crate) fn paint_after(text: &str) -> Paint {
    let (mut paint, mut unseen) = (Paint::default(), Html::default());
    for one in text.lines() {
        line(one, &mut paint, &mut unseen);
    }
    paint
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
            // A title, a link, a picture: to the bell or the string terminator.
            Some(']' | 'P' | 'X' | '^' | '_') => {
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
        let mut out = Html::default();
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
            ("a\u{1b}P1;2|payload\u{1b}\\b\u{1b}_app\u{1b}\\c", "abc"),
            (
                "see https://example.org/x?a=1&b=2, or javascript:alert(1)",
                r#"see <a class="out" href="https://example.org/x?a=1&amp;b=2" rel="noreferrer noopener nofollow">https://example.org/x?a=1&amp;b=2</a>, or javascript:alert(1)"#,
            ),
            ("end\u{1b}", "end"),
            ("end\u{1b}[", "end"),
        ] {
            assert_eq!(shown(text), expected, "{text:?}");
        }
    }

    #[test]
    fn paint_goes_on_to_the_next_line_and_a_long_line_is_cut() {
        let (mut paint, mut out) = (Paint::default(), Html::default());
        line("\u{1b}[31mone", &mut paint, &mut out);
        line("two", &mut paint, &mut out);
        assert_eq!(paint_after("\u{1b}[31mone\ntwo"), paint);
        assert_eq!(paint_after("\u{1b}[31mone\u{1b}[0m"), Paint::default());
        assert_eq!(out.into_string(), r#"<span class="a c1">one</span><span class="a c1">two</span>"#);
        let mut out = Html::default();
        assert!(line(&"x".repeat(100_000), &mut Paint::default(), &mut out));
        assert_eq!(out.into_string().len(), LONGEST);
    }
}
