//! Pages are written with maud, which escapes every value. Here is what it does not do: pieces are put together, only web
//! addresses become links, and what hides or turns text around in a finished page is made visible.

use std::fmt::Write as _;

use axum::body::{Body, Bytes};
use maud::{Markup, Render, html};

/// A piece of HTML.
pub(crate) type Html = Markup;

/// Pieces put together.
pub(crate) trait Piece {
    /// Puts something behind it, escaped unless it is a piece itself.
    fn add(&mut self, what: impl Render);

    /// Whether nothing is in it.
    fn is_empty(&self) -> bool;
}

impl Piece for Html {
    fn add(&mut self, what: impl Render) {
        what.render_to(&mut self.0);
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// HTML that is ready to be sent: nothing in it can hide, cover or turn around what stands beside it.
#[derive(Clone, Debug)]
pub(crate) struct Finished(Bytes);

impl Finished {
    /// A page or a part of one, as it is sent.
    pub(crate) fn new(html: Html) -> Finished {
        Finished(visible(html.into_string()).into())
    }
}

#[cfg(test)]
impl Finished {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl From<Finished> for Body {
    fn from(page: Finished) -> Body {
        Body::from(page.0)
    }
}

/// The most marks that may pile up on one letter.
const MARKS: u32 = 4;

/// Whether a character is put onto the one before it.
fn is_mark(letter: char) -> bool {
    matches!(
        letter,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
            | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}'
    )
}

/// Whether a character cannot be seen, or makes other text look different.
fn hides(letter: char) -> bool {
    matches!(
        letter,
        '\u{80}'..='\u{9f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{3164}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// The same with what hides or turns around other text shown instead of done. Our own markup has none of it, so it is
/// looked for in whole pages: no value can be forgotten.
fn visible(html: String) -> String {
    let odd = |byte: u8| !byte.is_ascii() || (byte.is_ascii_control() && byte != b'\n' && byte != b'\t');
    let Some(from) = html.bytes().position(odd) else { return html };
    let (before, rest) = html.split_at(from);
    let mut out = String::with_capacity(html.len() + 64);
    out.push_str(before);
    let mut piled = 0;
    for letter in rest.chars() {
        piled = if is_mark(letter) { piled + 1 } else { 0 };
        match letter {
            '\n' | '\t' => out.push(letter),
            '\0'..='\u{1f}' => out.push(char::from_u32(0x2400 + u32::from(letter)).unwrap_or('\u{fffd}')),
            '\u{7f}' => out.push('\u{2421}'),
            // So many marks on one letter cover what stands around it.
            _ if piled > MARKS || hides(letter) => {
                let _ = write!(out, "\u{27e8}U+{:04X}\u{27e9}", u32::from(letter));
            }
            other => out.push(other),
        }
    }
    out
}

/// A text as one segment of a path, or as a value of a query.
pub(crate) fn segment(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            other => {
                let _ = write!(out, "%{other:02X}");
            }
        }
    }
    out
}

/// A link to the outside, or the text alone where it is no web address: nothing else may be followed.
pub(crate) fn outside(url: &str, text: &str) -> Html {
    let is_web = url.starts_with("https://") || url.starts_with("http://");
    html! {
        @if is_web {
            a class="out" href=(url) rel="noreferrer noopener nofollow" { (text) }
        } @else {
            span { (text) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(html: Html) -> String {
        Finished::new(html).text()
    }

    #[test]
    fn what_comes_from_outside_cannot_leave_its_place() {
        let evil = "\"><script>alert('1')</script>&amp;\u{202e}\0\u{1b}";
        let piece = html! { p title=(evil) { (evil) } };
        let escaped = "&quot;&gt;&lt;script&gt;alert('1')&lt;/script&gt;&amp;amp;⟨U+202E⟩␀␛";
        assert_eq!(sent(piece), format!(r#"<p title="{escaped}">{escaped}</p>"#));
    }

    #[test]
    fn what_hides_or_covers_other_text_is_shown() {
        for (text, shown) in [
            ("ad\u{ad}min", "ad⟨U+00AD⟩min"),
            ("a\u{e0041}b", "a⟨U+E0041⟩b"),
            ("\u{3164}", "⟨U+3164⟩"),
            ("e\u{301}te\u{301}", "e\u{301}te\u{301}"),
            ("z\u{300}\u{300}\u{300}\u{300}\u{300}", "z\u{300}\u{300}\u{300}\u{300}⟨U+0300⟩"),
            ("日本語 العربية 🚀", "日本語 العربية 🚀"),
        ] {
            assert_eq!(sent(html! { (text) }), shown);
        }
    }

    #[test]
    fn a_piece_within_a_piece_is_not_escaped_again() {
        let mut inner = html! { b { "<" } };
        inner.add("&");
        assert_eq!(sent(html! { i { (inner) } }), "<i><b>&lt;</b>&amp;</i>");
    }

    #[test]
    fn only_web_addresses_are_links() {
        assert!(
            outside("https://example.org/\"x", "x").into_string().contains(r#"href="https://example.org/&quot;x""#)
        );
        for url in ["javascript:alert(1)", "data:text/html,x", "forge:library/x", " https://x", "//x"] {
            assert!(!outside(url, "x").into_string().contains("href"), "{url}");
        }
    }

    #[test]
    fn a_segment_holds_nothing_that_ends_it() {
        assert_eq!(segment("we/ird \"x\" ü?#&"), "we%2Fird%20%22x%22%20%C3%BC%3F%23%26");
    }
}
