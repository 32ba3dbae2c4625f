//! An error says what is behind it in its own words, or leaves it to whoever prints the chain: never both, or people read
//! it twice.

use gatelog_architecture::{files, text};

/// The text up to where the bracket closes that it begins with; brackets in literals do not count.
fn bracketed(text: &str) -> Option<&str> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth -= 1;
                if depth == 0 {
                    return text.get(..=at);
                }
            }
            _ => {}
        }
    }
    None
}

/// The names of the fields that are sources: by their name, or as they are marked.
fn sources(fields: &str) -> Vec<String> {
    let tuple = fields.starts_with('(');
    let mut found = Vec::new();
    let code: Vec<&str> = fields.lines().map(|line| line.split("///").next().unwrap_or_default()).collect();
    let code = code.join("\n");
    for (number, field) in code.trim_matches(['(', ')', '{', '}']).split(',').enumerate() {
        let marked = field.contains("#[source]") || field.contains("#[from]");
        let field = field.rsplit(']').next().unwrap_or_default();
        let name =
            if tuple { number.to_string() } else { field.split(':').next().unwrap_or_default().trim().to_owned() };
        if marked || name == "source" {
            found.push(name);
        }
    }
    found
}

/// The errors of a file that print a source twice: line and message.
fn twice(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, opening) in text.match_indices(concat!("#[er", "ror(")) {
        let start = at + opening.len() - 1;
        let Some(message) = text.get(start..).and_then(bracketed) else { continue };
        // Behind it: words for people and other attributes, a name, the fields.
        let rest = text.get(start + message.len()..).and_then(|rest| rest.strip_prefix(']')).unwrap_or_default();
        let Some(item) = rest
            .split_inclusive('\n')
            .scan(0, |at, line| {
                let began = *at;
                *at += line.len();
                Some((began, line.trim()))
            })
            .find(|(_, line)| !line.is_empty() && !line.starts_with("///") && !line.starts_with("#["))
        else {
            continue;
        };
        let item = rest.get(item.0..).unwrap_or_default();
        let Some(fields) = item.find(['(', '{', ',', ';']).and_then(|open| item.get(open..)) else { continue };
        let Some(fields) = fields.starts_with(['(', '{']).then(|| bracketed(fields)).flatten() else { continue };
        let prints = |name: &String| {
            message.match_indices('{').any(|(open, _)| {
                let inside = message.get(open + 1..).unwrap_or_default();
                let word: String = inside.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                word == *name
            })
        };
        if sources(fields).iter().any(prints) {
            let line = text.get(..at).map_or(0, |before| before.lines().count());
            found.push((line, message.to_owned()));
        }
    }
    found
}

#[test]
fn no_error_prints_what_is_behind_it_twice() {
    let mut faults = Vec::new();
    let mut looked = 0;
    for file in files().unwrap() {
        let name = file.display().to_string();
        let Some(text) = text(&file).filter(|_| name.ends_with(".rs")) else { continue };
        looked += text.matches(concat!("#[er", "ror(")).count();
        faults.extend(twice(&text).into_iter().map(|(line, message)| format!("{name}:{line}: {message}")));
    }
    assert!(looked > 100, "only {looked} errors were looked at");
    assert!(faults.is_empty(), "leave the source out of the text, or keep no source:\n{}", faults.join("\n"));
}

#[test]
fn what_would_be_printed_twice_is_found() {
    let head = concat!("#[er", "ror(");
    for (fields, is_twice) in [
        (
            "\"{path}: {source}\")]\n    /// x (y).\n    Read {\n        path: String,\n        source: io::Error,\n    },",
            true,
        ),
        ("\"{path}\")]\n    Read {\n        path: String,\n        source: io::Error,\n    },", false),
        ("\"{path}: {why}\")]\n    Read {\n        path: String,\n        why: io::Error,\n    },", false),
        ("\"cannot (ever): {0}\")]\n    Lost(#[from] io::Error),", true),
        ("\"cannot: {0}\")]\n    Lost(io::Error),", false),
        ("transparent)]\n    Log(#[from] LogError),", false),
        ("\"{a}: {inner}\")]\n    A {\n        a: u8,\n        #[source]\n        inner: E,\n    },", true),
    ] {
        assert_eq!(!twice(&format!("{head}{fields}")).is_empty(), is_twice, "{fields}");
    }
}
