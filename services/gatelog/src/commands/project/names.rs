//! What a project may be called. The forge has rules of its own; these keep names apart that people or file systems take for
//! the same.

use crate::commands::failure::{Code, Failure};

/// The longest part between slashes, in bytes: it becomes a directory whose name ends in `.git`.
const PART_MAX: usize = 200;

/// Refuses a name beside those that are there; those have passed.
pub fn check(name: &str, known: &[String]) -> Result<(), Failure> {
    let no = |why: &str, cure: String| {
        Err(Failure::new(Code::Usage, format!("{name:?} cannot name a project: {why}")).hint(cure))
    };
    if known.iter().any(|other| other == name) {
        return Ok(());
    }
    if let Some(bare) = strip_git(name) {
        return no("its directory gets the ending .git, the name has none", format!("call it {bare}"));
    }
    if name.split('/').any(|part| part == "..") {
        return no("it leads out of the forge", "name it without ..".to_owned());
    }
    if name.split('/').any(|part| part.len() > PART_MAX) {
        return no("a part between slashes is longer than 200 bytes", "choose a shorter name".to_owned());
    }
    let odd = name.chars().find(|c| !(c.is_alphanumeric() || "-_.+/@~".contains(*c)));
    if let Some(odd) = odd {
        return no(&format!("{odd:?} is in it"), "use letters, digits, - _ . + and / between parts".to_owned());
    }
    if let Some(first) = name.chars().next().filter(|c| "/-.~@+".contains(*c)) {
        return no(&format!("it begins with {first:?}"), "begin with a letter or a digit".to_owned());
    }
    if name.ends_with('/') || name.contains("//") {
        return no(
            "a part of it is empty",
            "name it without a slash at its end, and with one between parts".to_owned(),
        );
    }
    match known.iter().find_map(|other| twin(name, other)) {
        Some(other) => no(
            &format!("{other} is there, and differs in upper and lower case only"),
            "write it in the same way, or choose another name".to_owned(),
        ),
        None => Ok(()),
    }
}

fn strip_git(name: &str) -> Option<&str> {
    let at = name.len().checked_sub(4)?;
    let (bare, end) = (name.get(..at)?, name.get(at..)?);
    (end.eq_ignore_ascii_case(".git") && !bare.is_empty()).then_some(bare)
}

/// The beginning of another name that is this one's but for its case.
fn twin(name: &str, other: &str) -> Option<String> {
    let mut seen = Vec::new();
    for (ours, theirs) in name.split('/').zip(other.split('/')) {
        seen.push(theirs);
        if ours != theirs {
            return (ours.to_lowercase() == theirs.to_lowercase()).then(|| seen.join("/"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_traps_are_refused_with_the_cure() {
        let known = ["Library", "org/App", "org/tools/one"].map(str::to_owned);
        for name in ["library2", "org/app2", "org/tools/two", "Library", "a/b/c", "größe", "x_1.2+3"] {
            assert!(check(name, &known).is_ok(), "{name}");
        }
        for (name, why) in [
            ("library", "upper and lower case"),
            ("Org/new", "org is there"),
            ("org/Tools/one", "org/tools is there"),
            ("app.git", "call it app"),
            ("app.GIT", "call it app"),
            ("../app", "leads out"),
            ("a/../b", "leads out"),
            ("-x", "begins with"),
            ("/x", "begins with"),
            (".x", "begins with"),
            ("a//b", "is empty"),
            ("a/", "is empty"),
            ("a b", "' ' is in it"),
            ("a\u{202e}b", "is in it"),
            (&"x".repeat(201), "longer than 200"),
        ] {
            let failure = check(name, &known).unwrap_err();
            let said = format!("{} {}", failure.primary, failure.hint.unwrap_or_default());
            assert!(said.contains(why), "{name}: {said}");
        }
    }
}
