//! `Depends-On:` in commit messages.

use serde::{Deserialize, Serialize};
use url::Url;

use crate::config::GerritConfig;

/// What a `Depends-On` line names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Need {
    /// A change of this Gerrit, by its number. The project is what the address says, if it says one; it may be wrong.
    Change {
        /// The number.
        number: u64,
        /// The project in the address.
        project: Option<String>,
    },
    /// Every change of this Gerrit with this Change-Id: the older way.
    ChangeId(String),
    /// An address elsewhere, or one that names no change: another connection may know it.
    Elsewhere(String),
}

/// The texts behind `Depends-On:` in a commit message, in order, each once, at most `limit`: a line that begins with
/// the word in any case, wherever it stands.
pub fn depends_on_lines(message: &str, limit: usize) -> Vec<&str> {
    const WORD: &str = "depends-on:";
    let mut found: Vec<&str> = Vec::new();
    for line in message.lines() {
        let Some((head, rest)) = line.split_at_checked(WORD.len()) else { continue };
        let text = rest.trim();
        if head.eq_ignore_ascii_case(WORD) && !text.is_empty() && !found.contains(&text) {
            if found.len() >= limit {
                break;
            }
            found.push(text);
        }
    }
    found
}

/// What the lines of a message name, each once.
pub fn needs(message: &str, config: &GerritConfig) -> Vec<Need> {
    let mut found = Vec::new();
    for text in depends_on_lines(message, config.limits.depends_on) {
        let need = need(text, config);
        if !found.contains(&need) {
            found.push(need);
        }
    }
    found
}

/// What one text names.
pub fn need(text: &str, config: &GerritConfig) -> Need {
    if is_change_id(text) {
        return Need::ChangeId(text.to_owned());
    }
    match change_of_address(text, config) {
        Some((number, project)) => Need::Change { number, project },
        None => Need::Elsewhere(text.to_owned()),
    }
}

/// Whether a text is a Change-Id: `I` and 40 hex digits.
pub(crate) fn is_change_id(text: &str) -> bool {
    text.strip_prefix('I').is_some_and(|rest| rest.len() == 40 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The change that an address names, and the project, where the address says one. Taken are `/c/PROJECT/+/N`, `/N`,
/// `/#/c/N` and `/c/N`, each with a patchset and a file behind it, below the base address or at the canonical host.
pub fn change_of_address(text: &str, config: &GerritConfig) -> Option<(u64, Option<String>)> {
    let url = Url::parse(text).ok()?;
    if !matches!(url.scheme(), "http" | "https") {
        return None;
    }
    let host = url.host_str()?;
    let ours = config.base_url.host_str().is_some_and(|own| own.eq_ignore_ascii_case(host))
        && config.base_url.port_or_known_default() == url.port_or_known_default();
    // Behind a proxy, people know another port or scheme than gatelog does.
    let known_as = config.canonical_hostname.eq_ignore_ascii_case(host) && url.port().is_none();
    if !ours && !known_as {
        return None;
    }
    let base = config.base_url.path().trim_end_matches('/');
    let path = url.path();
    let path = path.strip_prefix(base).filter(|rest| rest.starts_with('/')).or(known_as.then_some(path))?;
    let whole = match url.fragment() {
        Some(fragment) if path.trim_matches('/').is_empty() => fragment,
        _ => path,
    };
    let parts = whole.trim_start_matches('/');
    if let Some(rest) = parts.strip_prefix("c/") {
        if let Some((project, rest)) = rest.split_once("/+/") {
            return Some((leading_number(rest)?, Some(decode(project)?)));
        }
        return Some((leading_number(rest)?, None));
    }
    Some((leading_number(parts)?, None))
}

/// The number that a path begins with, followed by nothing, a slash, or a comma and a patchset.
fn leading_number(path: &str) -> Option<u64> {
    let digits = path.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = path.split_at(digits);
    if !rest.is_empty() && !rest.starts_with(['/', ',']) {
        return None;
    }
    number.parse().ok().filter(|number| *number > 0)
}

/// Percent-decoding, for names of projects.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let value = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::config;

    #[test]
    fn lines_are_read_as_zuul_reads_them() {
        let message = "Depends-On: a\nsubject\n\nDEPENDS-ON:b  \n Depends-On: indented\nDepends-On:\nbody Depends-On: no\n\
                       depends-on: b\r\nDepends-Oñ: no\nDepends-On: https://h/1 # why\n";
        assert_eq!(depends_on_lines(message, 10), ["a", "b", "https://h/1 # why"]);
        assert_eq!(depends_on_lines(message, 1), ["a"]);
    }

    #[test]
    fn every_form_of_an_address_names_its_change() {
        let plain = config("https://gerrit.internal:8443/");
        let below = config("https://example.com/r/");
        let own = |text: &str, config: &GerritConfig| change_of_address(text, config);
        let project = Some("acme/lib".to_owned());
        for (text, config, found) in [
            ("https://gerrit.internal:8443/c/acme/lib/+/17", &plain, Some((17, project.clone()))),
            ("https://gerrit.internal:8443/c/acme%2Flib/+/17/3/src/a.rs", &plain, Some((17, project.clone()))),
            ("http://review.example.com/c/acme/lib/+/17", &plain, Some((17, project.clone()))),
            ("https://REVIEW.example.com/17/", &plain, Some((17, None))),
            ("https://review.example.com/17,2", &plain, Some((17, None))),
            ("https://review.example.com/#/c/17/2", &plain, Some((17, None))),
            ("https://review.example.com/c/17", &plain, Some((17, None))),
            ("https://example.com/r/17", &below, Some((17, None))),
            ("https://example.com/r/#/c/17", &below, Some((17, None))),
            ("https://example.com/r/c/acme/lib/+/17", &below, Some((17, project))),
            ("https://example.com/17", &below, None),
            ("https://gerrit.internal/17", &plain, None),
            ("https://elsewhere.example.com/17", &plain, None),
            ("https://review.example.com/17x", &plain, None),
            ("https://review.example.com/0", &plain, None),
            ("https://review.example.com/q/topic:x", &plain, None),
            ("https://review.example.com/99999999999999999999999", &plain, None),
            ("https://review.example.com/c/a%00b/+/1", &plain, None),
            ("ssh://review.example.com/17", &plain, None),
            ("17", &plain, None),
        ] {
            assert_eq!(own(text, config), found, "{text}");
        }
    }

    #[test]
    fn what_is_no_change_here_is_left_to_others() {
        let config = config("https://review.example.com/");
        let id = format!("I{}", "0a".repeat(20));
        let message = format!(
            "x\n\nDepends-On: https://review.example.com/7\nDepends-On: {id}\nDepends-On: https://github.com/a/b/pull/1\n\
                     Depends-On: https://review.example.com/c/7\n"
        );
        assert_eq!(
            needs(&message, &config),
            [
                Need::Change { number: 7, project: None },
                Need::ChangeId(id),
                Need::Elsewhere("https://github.com/a/b/pull/1".to_owned()),
            ]
        );
    }
}
