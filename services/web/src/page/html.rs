//! Writing HTML: every value is escaped on its way in, only text in our own source is not.

use std::fmt::{self, Write as _};

use axum::body::Body;

/// A piece of finished HTML.
#[derive(Clone, Debug, Default)]
pub(crate) struct Html(String);

impl Html {
    pub(crate) fn new() -> Html {
        Html::default()
    }

    /// For [`put!`], which escapes what is written.
    pub(crate) fn write_fmt(&mut self, arguments: fmt::Arguments<'_>) {
        // Writing to a String does not fail.
        let _ = self.0.write_fmt(arguments);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

impl From<Html> for Body {
    fn from(html: Html) -> Body {
        Body::from(html.0)
    }
}

/// What can stand in HTML.
pub(crate) trait Show {
    /// Writes it, safe in text and in quoted attributes.
    fn show(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result;
}

impl Show for Html {
    fn show(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
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

impl Show for str {
    fn show(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut piled = 0;
        for letter in self.chars() {
            piled = if is_mark(letter) { piled + 1 } else { 0 };
            match letter {
                // So many marks on one letter cover what stands around it.
                _ if piled > MARKS => write!(out, "\u{27e8}U+{:04X}\u{27e9}", u32::from(letter))?,
                '&' => out.write_str("&amp;")?,
                '<' => out.write_str("&lt;")?,
                '>' => out.write_str("&gt;")?,
                '"' => out.write_str("&quot;")?,
                '\'' => out.write_str("&#39;")?,
                '\n' | '\t' => out.write_char(letter)?,
                // What cannot be seen, or makes other text look different, is shown instead of done.
                '\0'..='\u{1f}' => out.write_char(char::from_u32(0x2400 + u32::from(letter)).unwrap_or('\u{fffd}'))?,
                '\u{7f}' => out.write_char('\u{2421}')?,
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
                | '\u{e0000}'..='\u{e0fff}' => write!(out, "\u{27e8}U+{:04X}\u{27e9}", u32::from(letter))?,
                other => out.write_char(other)?,
            }
        }
        Ok(())
    }
}

impl Show for String {
    fn show(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().show(out)
    }
}

impl<T: Show + ?Sized> Show for &T {
    fn show(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).show(out)
    }
}

macro_rules! numbers {
    ($($kind:ty)*) => {$(
        impl Show for $kind {
            fn show(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, "{self}")
            }
        }
    )*};
}

numbers! { u32 u64 usize i32 i64 }

/// A value on its way into HTML.
pub(crate) struct Shown<'a, T: Show + ?Sized>(pub(crate) &'a T);

impl<T: Show + ?Sized> fmt::Display for Shown<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.show(out)
    }
}

/// Writes a template with `{}` for each value, every one escaped. `concat!` keeps names out of the
/// braces: a value that is not an argument would not be escaped, and does not compile.
macro_rules! put {
    ($out:expr, $text:literal $(, $value:expr)* $(,)?) => {
        $out.write_fmt(format_args!(concat!($text) $(, $crate::page::html::Shown(&$value))*))
    };
}
pub(crate) use put;

/// A template with its values, as a piece.
macro_rules! html {
    ($($template:tt)*) => {{
        let mut piece = $crate::page::html::Html::new();
        $crate::page::html::put!(piece, $($template)*);
        piece
    }};
}
pub(crate) use html;

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
    if url.starts_with("https://") || url.starts_with("http://") {
        html!(r#"<a class="out" href="{}" rel="noreferrer noopener nofollow">{}</a>"#, url, text)
    } else {
        html!("<span>{}</span>", text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_cannot_leave_its_place() {
        let evil = "\"><script>alert('1')</script>&amp;\u{202e}\0\u{1b}";
        let piece = html!(r#"<p title="{}">{}</p>"#, evil, evil);
        let escaped = "&quot;&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;amp;⟨U+202E⟩␀␛";
        assert_eq!(piece.into_string(), format!(r#"<p title="{escaped}">{escaped}</p>"#));
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
            assert_eq!(html!("{}", text).into_string(), shown);
        }
    }

    #[test]
    fn a_piece_within_a_piece_is_not_escaped_again() {
        let inner = html!("<b>{}</b>", "<");
        assert_eq!(html!("<i>{}</i>", inner).into_string(), "<i><b>&lt;</b></i>");
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
