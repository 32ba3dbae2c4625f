//! Texts for people who are not to see where this server keeps things.

/// What stands for a path.
const HIDDEN: &str = "[a path of the server]";

/// The text without absolute paths of more than one part. What a project calls its own files are relative names and
/// stay.
pub fn without_paths(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    let mut before: Option<char> = None;
    while let Some(c) = rest.chars().next() {
        let begins = before.is_none_or(|before| before.is_whitespace() || "'\"`(=[<:,".contains(before));
        let length = if c == '/' && begins { path_length(rest, before) } else { 0 };
        let taken = if length > 0 { length } else { c.len_utf8() };
        let (this, after) = rest.split_at(taken);
        told.push_str(if length > 0 { HIDDEN } else { this });
        before = this.chars().next_back();
        rest = after;
    }
    told
}

/// How many bytes of a text that begins with a slash are a path; 0: it is none. In quotes it may have spaces.
fn path_length(text: &str, quote: Option<char>) -> usize {
    let quote = quote.filter(|quote| "'\"`".contains(*quote));
    let ends = |c: char| match quote {
        Some(quote) => c == quote || c == '\n',
        None => c.is_whitespace() || "'\"`)>],;".contains(c),
    };
    let path = text.find(ends).and_then(|end| text.get(..end)).unwrap_or(text);
    let path = if quote.is_none() { path.trim_end_matches([':', '.']) } else { path };
    let is_path = !path.starts_with("//") && path.trim_end_matches('/').matches('/').count() > 1;
    if is_path { path.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_server_are_hidden_and_names_of_projects_stay() {
        for (text, expected) in [
            (
                "cannot write /srv/ci/nodes/.new-1/node.json: No space left",
                "cannot write [a path of the server]: No space left",
            ),
            ("failed to open '/srv/my ci/HEAD': denied", "failed to open '[a path of the server]': denied"),
            ("(at /srv/ci) and \"/a/b\"", "(at [a path of the server]) and \"[a path of the server]\""),
            ("src/a/b of https://ci.example.org/x/y is 3/4", "src/a/b of https://ci.example.org/x/y is 3/4"),
            ("a / b, /tmp, and/or ü/x/y", "a / b, /tmp, and/or ü/x/y"),
            ("file:///srv/forge/app.git", "file:///srv/forge/app.git"),
            ("/srv/ci.", "[a path of the server]."),
        ] {
            assert_eq!(without_paths(text), expected);
        }
    }
}
