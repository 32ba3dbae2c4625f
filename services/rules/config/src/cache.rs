//! Files that were parsed before.
//!
//! A change touches one file or two of a tenant's hundreds: with this, a layout for it costs what these
//! cost, and putting the objects together.

use std::collections::BTreeMap;

use crate::dialect::Spelling;
use crate::load::{ParsedFile, parse_file};
use crate::place::SourceContext;
use crate::shared::Shared;

/// How many contents of one file are kept: that of the branch, and those of changes under test.
const MAX_CONTENTS: usize = 8;
/// How many files are known; beyond that all are forgotten.
const MAX_FILES: usize = 50_000;

/// Remembers what files came to. It never changes an answer, only how long it takes.
#[derive(Debug, Default)]
pub struct ParseCache {
    files: BTreeMap<(SourceContext, Spelling), Vec<Known>>,
    /// How often a file was not known.
    parsed: u64,
}

#[derive(Debug)]
struct Known {
    text: String,
    file: Shared<ParsedFile>,
}

impl ParseCache {
    /// What a file comes to: [`parse_file`].
    pub fn parse(&mut self, context: SourceContext, text: &str, spelling: Spelling) -> Shared<ParsedFile> {
        let key = (context, spelling);
        if let Some(contents) = self.files.get_mut(&key)
            && let Some(at) = contents.iter().position(|known| known.text == text)
        {
            // What was used last stands last; what stands first is forgotten first.
            let known = contents.remove(at);
            let file = known.file.clone();
            contents.push(known);
            return file;
        }
        if self.files.len() >= MAX_FILES {
            self.files.clear();
        }
        self.parsed += 1;
        let file = Shared::new(parse_file(key.0.clone(), text, spelling));
        let contents = self.files.entry(key).or_default();
        if contents.len() >= MAX_CONTENTS {
            contents.remove(0);
        }
        contents.push(Known { text: text.to_owned(), file: file.clone() });
        file
    }

    /// How many files were parsed so far.
    pub fn parsed(&self) -> u64 {
        self.parsed
    }
}
