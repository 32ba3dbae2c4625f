//! The text of every file.

use std::collections::BTreeMap;
use std::path::Path;

use gatelog_architecture::{files, root, text};

/// The most lines a module may have.
const LONGEST: usize = 800;

/// Modules that may be longer, and why.
const LONGER: &[(&str, &str)] = &[];

/// Whether a line names a file of this checkout by its absolute path. A checkout right below the root has too common
/// a name to be looked for.
fn names_a_file_below(line: &str, house: &str) -> bool {
    let path_goes_on =
        |before: &str| before.ends_with(|letter: char| letter.is_alphanumeric() || "._-}/".contains(letter));
    house.matches('/').count() > 1
        && line
            .match_indices(house)
            .any(|(at, _)| !path_goes_on(&line[..at]) && line[at + house.len()..].starts_with('/'))
}

/// Everything untidy in one file. `house` is the path of this checkout.
fn faults(file: &str, text: &str, house: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault = |line: usize, what: &str| faults.push(format!("{file}:{}: {what}", line + 1));
    for (number, line) in text.lines().enumerate() {
        if names_a_file_below(line, house) {
            fault(number, "names where this checkout lies; nothing may depend on that");
        }
        // Conformance tests look there for what they say SKIPPED without.
        if line.contains(concat!("..", "/shared")) && !file.ends_with("tests/conformance.rs") {
            fault(number, "names a file outside the checkout");
        }
        if line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ") {
            fault(number, "is a conflict mark");
        }
    }
    if !file.ends_with(".rs") {
        return faults;
    }
    for (number, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for stub in [concat!("to", "do!("), concat!("unimple", "mented!(")] {
            if code.contains(stub) {
                fault(number, "is a stub");
            }
        }
        if code.trim_start().starts_with(concat!("#[ig", "nore]")) {
            fault(number, "ignores a test without saying why");
        }
    }
    for opening in
        [concat!("#[al", "low("), concat!("#![al", "low("), concat!("#[ex", "pect("), concat!("#![ex", "pect(")]
    {
        for (at, _) in text.match_indices(opening) {
            let attribute = text[at..].split(")]").next().unwrap_or_default();
            if !attribute.contains("reason") {
                fault(text[..at].matches('\n').count(), "switches a lint off without a reason");
            }
        }
    }
    faults
}

#[test]
fn every_file_is_tidy() {
    let house = root();
    let house = house.to_str().unwrap();
    let files = files().unwrap();
    assert!(files.iter().any(|file| file == Path::new("Cargo.toml")), "the checkout was not found");
    let mut wrong = Vec::new();
    for file in files {
        if let Some(text) = text(&file) {
            wrong.extend(faults(&file.display().to_string(), &text, house));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn what_is_untidy_is_named_with_its_line() {
    let text = format!(
        "// fine\nfn a() {{ {}) }}\n{}clippy::x)]\nfn b() {{}}\nconst HERE: &str = \"/some/house/x\";\n#[allow(\n    dead_code,\n    \
         reason = \"yes\"\n)]\nfn c() {{}}\n",
        concat!("to", "do!("),
        concat!("#[al", "low("),
    );
    assert_eq!(
        faults("a.rs", &text, "/some/house"),
        [
            "a.rs:5: names where this checkout lies; nothing may depend on that",
            "a.rs:2: is a stub",
            "a.rs:3: switches a lint off without a reason",
        ]
    );
}

#[test]
fn only_files_of_this_very_checkout_count_as_named() {
    assert!(names_a_file_below("read(\"/ci/house/src\")", "/ci/house"));
    assert!(!names_a_file_below("demo --dir /ci/house", "/ci/house"));
    assert!(!names_a_file_below("in target/ci/house/x", "/ci/house"));
    assert!(!names_a_file_below("services/web/src/lib.rs and /src/lib.rs", "/src"));
}

#[test]
fn no_module_is_too_long() {
    let mut lengths = BTreeMap::new();
    for file in files().unwrap().iter().filter(|file| file.extension().is_some_and(|ending| ending == "rs")) {
        lengths.insert(file.display().to_string(), text(file).unwrap_or_default().lines().count());
    }
    assert!(lengths.len() > 50, "only {} modules were found", lengths.len());
    let excused: BTreeMap<&str, &str> = LONGER.iter().copied().collect();
    let long: Vec<String> = lengths
        .iter()
        .filter(|(file, lines)| **lines > LONGEST && !excused.contains_key(file.as_str()))
        .map(|(file, lines)| {
            format!("{file} has {lines} lines, more than {LONGEST}: split it, or say in LONGER why not")
        })
        .collect();
    assert!(long.is_empty(), "\n{}\n", long.join("\n"));
    for (file, reason) in excused {
        assert!(lengths.get(file).is_some_and(|lines| *lines > LONGEST), "{file} needs no excuse any more ({reason})");
    }
}
