//! Names that may be patterns.

use gatelog_rules_config::regexes::{Anchor, Pattern, Verdict};

use crate::fault::Fault;

/// A name, or a pattern for names.
#[derive(Clone, Debug)]
pub enum Name {
    /// Exactly this name.
    Exact(String),
    /// `/…/`: a regular expression that has to match at the start; the end is free.
    ///
    /// Fuel: so `/ceph/` fits `ceph-osd`, and `/` and `//` fit everything.
    Pattern(Pattern),
}

impl Name {
    /// Reads a name.
    ///
    /// # Errors
    /// [`Fault::Pattern`] for an expression that does not compile.
    pub fn read(text: &str) -> Result<Name, Fault> {
        if !(text.starts_with('/') && text.ends_with('/')) {
            return Ok(Name::Exact(text.to_owned()));
        }
        let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or("");
        let pattern = Pattern::new(inner, false, Anchor::Start);
        match pattern.check() {
            Verdict::Invalid(why) => Err(Fault::Pattern(text.to_owned(), why)),
            _ => Ok(Name::Pattern(pattern)),
        }
    }

    /// Whether it fits.
    pub fn fits(&self, name: &str) -> bool {
        match self {
            Name::Exact(exact) => exact == name,
            Name::Pattern(pattern) => pattern.matches(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_make_a_pattern_that_is_free_at_its_end() {
        let fits = |pattern: &str, name: &str| Name::read(pattern).unwrap().fits(name);
        assert!(fits("compute", "compute") && !fits("compute", "compute-vmware"));
        assert!(fits("/compute/", "compute-vmware") && !fits("/vmware/", "compute-vmware"));
        assert!(fits("/", "anything") && fits("//", "anything"));
        assert!(!fits("*", "compute"));
        assert!(matches!(Name::read("/a(/"), Err(Fault::Pattern(..))));
    }
}
