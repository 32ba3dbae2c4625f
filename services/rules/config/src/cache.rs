//! Files that were parsed before.
//!
//! A change touches one file or two of a tenant's hundreds: with this, a layout for it costs what these
//! cost, and putting the objects together.

use std::collections::BTreeMap;

use crate::dialect::Spelling;
use crate::load::{ParsedFile, parse_part};
use crate::place::SourceContext;
use crate::regexes::{Pattern, PatternText, Verdict};
use crate::reparse::reparse;
use crate::shared::Shared;

/// How many contents of one file are kept: that of the branch, and those of changes under test.
const MAX_CONTENTS: usize = 8;
/// How many files are known; beyond that all are forgotten.
const MAX_FILES: usize = 50_000;

/// How many patterns are known; beyond that all are forgotten.
const MAX_PATTERNS: usize = 8_192;

/// Patterns met so far, compiled: one that is written again is not looked at again.
#[derive(Debug, Default)]
pub struct Patterns(BTreeMap<PatternText, (Pattern, Verdict)>);

impl Patterns {
    /// The pattern as it was met first, and what [`Pattern::check`] says of it.
    pub fn look(&mut self, pattern: Pattern) -> (Pattern, Verdict) {
        let text = PatternText::from(pattern.clone());
        if let Some(known) = self.0.get(&text) {
            return known.clone();
        }
        if self.0.len() >= MAX_PATTERNS {
            self.0.clear();
        }
        let verdict = pattern.check();
        self.0.insert(text, (pattern.clone(), verdict.clone()));
        (pattern, verdict)
    }
}

/// Remembers what files came to. It never changes an answer, only how long it takes.
#[derive(Debug, Default)]
pub struct ParseCache {
    files: BTreeMap<(SourceContext, Spelling), Vec<Known>>,
    /// How often a file was not known.
    parsed: u64,
    patterns: Patterns,
}

#[derive(Debug)]
struct Known {
    text: String,
    file: Shared<ParsedFile>,
    /// How many nodes it has at most.
    nodes: usize,
}

impl ParseCache {
    /// What a file comes to: [`parse_file`](fn@crate::parse_file).
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
        let patterns = &mut self.patterns;
        let before = self.files.get(&key).and_then(|contents| contents.last());
        let part = before.and_then(|known| reparse(&known.file, &known.text, known.nodes, text, spelling, patterns));
        let (file, nodes) = part.unwrap_or_else(|| {
            let (file, _, nodes) = parse_part(key.0.clone(), text, text, spelling, patterns);
            (file, nodes)
        });
        let file = Shared::new(file);
        let contents = self.files.entry(key).or_default();
        if contents.len() >= MAX_CONTENTS {
            contents.remove(0);
        }
        contents.push(Known { text: text.to_owned(), file: file.clone(), nodes });
        file
    }

    /// The patterns of those files.
    pub(crate) fn patterns(&mut self) -> &mut Patterns {
        &mut self.patterns
    }

    /// How many files were parsed so far.
    pub fn parsed(&self) -> u64 {
        self.parsed
    }
}
