//! Regular expressions that are good at first sight.
//!
//! Compiling an expression takes far longer than reading it, and most are never matched with anything
//! between two loads of a tenant. Those told here need not be compiled to know that they can be; all
//! others are.

/// The longest expression looked at, in bytes: what is in it compiles to a few dozen bytes for each.
const MAX: usize = 300;
/// Groups in groups.
const MAX_DEPTH: u32 = 10;

/// Whether an expression is made of letters, dots, simple classes, groups, alternatives and `*`, `+` and
/// `?` alone, which RE2 and `regex` read alike.
pub(super) fn is_plain(regex: &str) -> bool {
    let bytes = regex.as_bytes();
    if bytes.len() > MAX {
        return false;
    }
    let at = |index: usize| bytes.get(index).copied();
    let mut index = 0;
    let mut depth = 0_u32;
    // Whether there is something to repeat.
    let mut atom = false;
    while let Some(byte) = at(index) {
        index += 1;
        atom = match byte {
            b'^' | b'$' | b'|' => false,
            b'*' | b'+' | b'?' if atom => false,
            b'(' if at(index) != Some(b'?') && depth < MAX_DEPTH => {
                depth += 1;
                false
            }
            b')' if depth > 0 => {
                depth -= 1;
                // What a group holds may be large, and repeating it makes it no larger but by copies.
                true
            }
            b'[' => match class(bytes, index) {
                Some(after) => {
                    index = after;
                    true
                }
                None => return false,
            },
            b'\\' if at(index).is_some_and(|next| matches!(next, b'.' | b'-' | b'/' | b'+' | b'd' | b'w' | b's')) => {
                index += 1;
                true
            }
            b'.' => true,
            byte if is_literal(byte) => true,
            _ => return false,
        };
    }
    depth == 0
}

fn is_literal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'/' | b':' | b',' | b'@' | b'=' | b' ' | b'%')
}

/// The index after a class of letters, digits, `.`, `_` and their usual ranges.
fn class(bytes: &[u8], from: usize) -> Option<usize> {
    let mut index = from;
    if bytes.get(index) == Some(&b'^') {
        index += 1;
    }
    let first = index;
    loop {
        let byte = *bytes.get(index)?;
        index += 1;
        match byte {
            b']' if index > first + 1 => return Some(index),
            byte if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.' => {
                let range = bytes.get(index) == Some(&b'-');
                if range {
                    let end = *bytes.get(index + 1)?;
                    let whole = matches!((byte, end), (b'a', b'z') | (b'A', b'Z') | (b'0', b'9'));
                    if !whole {
                        return None;
                    }
                    index += 2;
                }
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_plain;
    use crate::regexes::{Anchor, Pattern, compiles};
    use proptest::prelude::*;

    #[test]
    fn usual_expressions_are_plain_and_odd_ones_are_not() {
        for plain in
            ["^.*\\.rst$", "doc/", "^(test-|)requirements\\.txt$", "stable/[a-z]+", "[0-9.]+", "", "a|b", "(a)*"]
        {
            assert!(is_plain(plain), "{plain}");
        }
        for odd in ["*", "a**", "(", ")", "a{2}", "(?i)a", "[]a]", "[z-a]", "\\b", "[", "a)(", "é", "|*", "^*", "[^]"]
        {
            assert!(!is_plain(odd), "{odd}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3_000) })]

        #[test]
        fn what_is_plain_compiles(regex in "([a-c*+?|().^$\\[\\]0-9-]|\\\\[.dws/+-]|\\[[a-z.]{0,3}\\]|\\(){0,14}") {
            for anchor in [Anchor::Start, Anchor::Whole, Anchor::Anywhere] {
                let pattern = Pattern::new(regex.clone(), false, anchor);
                prop_assert!(!is_plain(&regex) || compiles(&pattern), "{regex}");
            }
        }
    }
}
