//! What can be wrong with a text, where, and how to mend it.

use thiserror::Error;

use super::tree::Mark;

/// Why a file is not YAML as the language knows it.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum YamlError {
    /// Not YAML.
    #[error("this is not valid YAML: {message}")]
    Syntax {
        /// What the parser says.
        message: String,
        /// Where.
        mark: Mark,
    },
    /// A key appears twice in one mapping. Zuul: `YAMLDuplicateKeyError`, the file is refused.
    #[error("the key `{key}` appears twice in one dictionary (first on line {first})")]
    DuplicateKey {
        /// The key.
        key: String,
        /// Line of its first appearance.
        first: u32,
        /// Where it appears again.
        mark: Mark,
        /// Where the dictionary starts.
        start: Mark,
    },
    /// A tag without a meaning.
    #[error("the tag `{tag}` is unknown")]
    UnknownTag {
        /// The tag.
        tag: String,
        /// Where.
        mark: Mark,
    },
    /// A tag on a value it does not go with.
    #[error("the tag `{tag}` does not go with {kind}")]
    MisplacedTag {
        /// The tag.
        tag: String,
        /// What the value is.
        kind: String,
        /// Where.
        mark: Mark,
    },
    /// Encrypted text that is no base64. Zuul: the file is refused.
    #[error("this encrypted text is cut off: it is not whole base64")]
    Base64 {
        /// Where.
        mark: Mark,
    },
    /// A key that is a list or a dictionary.
    #[error("a dictionary key must be a simple value")]
    KeyNotScalar {
        /// Where.
        mark: Mark,
    },
    /// An alias for an anchor that does not exist or is still open.
    #[error("the alias refers to itself or to an unknown anchor")]
    BadAlias {
        /// Where.
        mark: Mark,
    },
    /// Two anchors of one name. Zuul: `found duplicate anchor`, the file is refused.
    #[error("the anchor `&{anchor}` stands a second time in this file")]
    DuplicateAnchor {
        /// Its name.
        anchor: String,
        /// Where it stands again.
        mark: Mark,
    },
    /// `<<` with something that is not a mapping.
    #[error("the merge key `<<` needs a dictionary or a list of dictionaries")]
    BadMerge {
        /// Where.
        mark: Mark,
    },
    /// A second document.
    #[error("a configuration file holds one YAML document, and here a second one starts")]
    SecondDocument {
        /// Where.
        mark: Mark,
    },
    /// Larger than any sensible configuration.
    #[error("the file is too large: more than {limit} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: usize,
        /// Where the limit was reached.
        mark: Mark,
    },
}

impl YamlError {
    /// Where it is.
    pub fn mark(&self) -> Mark {
        match self {
            YamlError::Syntax { mark, .. }
            | YamlError::DuplicateKey { mark, .. }
            | YamlError::UnknownTag { mark, .. }
            | YamlError::MisplacedTag { mark, .. }
            | YamlError::Base64 { mark }
            | YamlError::KeyNotScalar { mark }
            | YamlError::BadAlias { mark }
            | YamlError::DuplicateAnchor { mark, .. }
            | YamlError::BadMerge { mark }
            | YamlError::SecondDocument { mark }
            | YamlError::TooLarge { mark, .. } => *mark,
        }
    }

    /// The line Zuul tells: that of the dictionary with a repeated key; of anything else it tells none.
    pub fn stanza_line(&self) -> u32 {
        match self {
            YamlError::DuplicateKey { start, .. } => start.line,
            _ => 0,
        }
    }

    /// Stable identifier.
    pub fn code(&self) -> &'static str {
        match self {
            YamlError::Syntax { .. } => "yaml-syntax",
            YamlError::DuplicateKey { .. } => "yaml-duplicate-key",
            YamlError::UnknownTag { .. } => "yaml-unknown-tag",
            YamlError::MisplacedTag { .. } => "yaml-misplaced-tag",
            YamlError::Base64 { .. } => "yaml-base64",
            YamlError::KeyNotScalar { .. } => "yaml-key-not-scalar",
            YamlError::BadAlias { .. } => "yaml-bad-alias",
            YamlError::DuplicateAnchor { .. } => "yaml-duplicate-anchor",
            YamlError::BadMerge { .. } => "yaml-bad-merge",
            YamlError::SecondDocument { .. } => "yaml-second-document",
            YamlError::TooLarge { .. } => "yaml-too-large",
        }
    }

    /// How to mend it.
    pub fn cure(&self) -> &'static str {
        match self {
            YamlError::Syntax { .. } => "mend the indentation or quoting here; the rest of the file is not read",
            YamlError::DuplicateKey { .. } => "keep one of the two; the file is not read until then",
            YamlError::UnknownTag { .. } => "known tags are !override, !inherit and !encrypted/pkcs1-oaep",
            YamlError::MisplacedTag { .. } => {
                "!override and !inherit go with a dictionary, a list or a string, !encrypted/pkcs1-oaep with text"
            }
            YamlError::Base64 { .. } => "encrypt the secret again and take all of the output",
            YamlError::KeyNotScalar { .. } => {
                "put quotes around a value that starts with a brace, as in \"{{ name }}\""
            }
            YamlError::BadAlias { .. } => "anchors work within one file, and must stand before their aliases",
            YamlError::DuplicateAnchor { .. } => "give one of the two another name",
            YamlError::BadMerge { .. } => "merge an alias of a dictionary, as in `<<: *name`",
            YamlError::SecondDocument { .. } => "remove the `---`, or move what follows to a file of its own",
            YamlError::TooLarge { .. } => "split the file; aliases count as often as they are used",
        }
    }
}
