//! What was released never changes: `tests/frozen.lock` holds the SHA-256 of each frozen source and of its goldens.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::crate_file;

/// Everything wrong with these files by the lock.
fn faults(lock: &str, files: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut locked = BTreeMap::new();
    for line in lock.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.split_once("  ") {
            Some((hash, name)) => {
                locked.insert(name, hash);
            }
            None => faults.push(format!("frozen.lock: {line:?} is not a hash and a name")),
        }
    }
    for (name, hash) in &locked {
        match files.get(*name) {
            None => faults.push(format!("{name} was released and is gone: bring it back")),
            Some(content) if hex::encode(Sha256::digest(content)) != *hash => {
                faults.push(format!("{name} was released and has changed: undo that, and make a new version instead"));
            }
            Some(_) => {}
        }
    }
    for (name, content) in files {
        if !locked.contains_key(name.as_str()) {
            let hash = hex::encode(Sha256::digest(content));
            faults.push(format!("{name} is not in frozen.lock; when it is released, add the line:\n{hash}  {name}"));
        }
    }
    faults
}

/// The frozen sources and the golden bytes of what they hold.
fn files() -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for kind in std::fs::read_dir(crate_file("src/frozen")).unwrap().map(|entry| entry.unwrap()) {
        if !kind.file_type().unwrap().is_dir() {
            continue;
        }
        let kind = kind.file_name().into_string().unwrap();
        for version in std::fs::read_dir(crate_file(&format!("src/frozen/{kind}"))).unwrap() {
            let version = version.unwrap().file_name().into_string().unwrap();
            let Some(version) = version.strip_suffix(".rs").filter(|version| *version != "mod") else { continue };
            for name in [format!("src/frozen/{kind}/{version}.rs"), format!("tests/goldens/{kind}.{version}.bin")] {
                let content = std::fs::read(crate_file(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
                files.insert(name, content);
            }
        }
    }
    files
}

#[test]
fn released_shapes_and_their_goldens_are_as_they_were() {
    let lock = std::fs::read_to_string(crate_file("tests/frozen.lock")).unwrap();
    let files = files();
    assert!(files.contains_key("src/frozen/sample/v1.rs") && files.contains_key("tests/goldens/sample.v2.bin"));
    let faults = faults(&lock, &files);
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn an_altered_a_missing_and_a_new_file_are_named() {
    let lock = std::fs::read_to_string(crate_file("tests/frozen.lock")).unwrap();
    let mut altered = files();
    altered.get_mut("src/frozen/sample/v1.rs").unwrap().push(b'\n');
    altered.remove("src/frozen/sample/v2.rs");
    altered.insert("src/frozen/sample/v3.rs".to_owned(), b"new".to_vec());
    assert_eq!(
        faults(&lock, &altered),
        [
            "src/frozen/sample/v1.rs was released and has changed: undo that, and make a new version instead",
            "src/frozen/sample/v2.rs was released and is gone: bring it back",
            "src/frozen/sample/v3.rs is not in frozen.lock; when it is released, add the line:\n\
             11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437  src/frozen/sample/v3.rs",
        ]
    );
    assert_eq!(faults("nonsense", &BTreeMap::new()), ["frozen.lock: \"nonsense\" is not a hash and a name"]);
}
