//! Who is attached by a list is named by nobody else.

use gatelog_architecture::{files, text};

/// The samples: their folder, and what they are called in files.
const SAMPLES: &[(&str, &[&str])] = &[
    ("tests/sample-driver/", &[concat!("sample-", "driver"), concat!("sample_", "driver")]),
    ("tests/sample-cloud/", &[concat!("sample-", "cloud"), concat!("sample_", "cloud")]),
];

/// How many files outside its own crate may name a sample: the workspace, and what people read.
const MOST: usize = 3;

#[test]
fn a_driver_and_a_cloud_are_named_in_at_most_three_files_outside_their_crates() {
    for (folder, names) in SAMPLES {
        let mut outside = Vec::new();
        let mut inside = 0;
        // This file says what is looked for, and Cargo.lock is nobody's writing.
        for file in files().unwrap() {
            let name = file.display().to_string();
            let Some(text) = text(&file).filter(|_| !name.ends_with("house/samples.rs") && name != "Cargo.lock") else {
                continue;
            };
            match name.starts_with(folder) {
                true => inside += 1,
                false if names.iter().any(|name| text.contains(name)) => outside.push(name),
                false => {}
            }
        }
        assert!(inside > 1, "{folder} is not there");
        assert!(outside.len() <= MOST, "{folder} is named by {}", outside.join(", "));
        assert!(!outside.is_empty(), "the workspace names {folder}");
    }
}
