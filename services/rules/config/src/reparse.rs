//! A file that was parsed before, and of which one place is another now: what stands before that place, and after it on
//! the same lines, is what it was.
//!
//! An item of the list that a file is begins with a dash in the first column. Whatever is not plain (anchors and aliases
//! in what changed, pragmas, several documents, problems of any kind, uncommon line breaks) is left to parsing the whole:
//! an answer is never another, only sooner there.

use crate::cache::Patterns;
use crate::dialect::Spelling;
use crate::load::{ParsedFile, ParsedStanza, parse_part};
use crate::yaml::parse::MAX_NODES;

/// The longest text, in bytes.
const MAX_TEXT: usize = MAX_NODES / 2;

/// An item: its text, and the line at which it begins, from 0.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Item<'t> {
    text: &'t str,
    line: usize,
}

/// The items of a plain text.
fn items(text: &str) -> Option<Vec<Item<'_>>> {
    let odd = match text.is_ascii() {
        true => text.contains('\r'),
        false => text.contains(['\r', '\u{85}', '\u{2028}', '\u{2029}', '\u{feff}']),
    };
    if odd || text.len() > MAX_TEXT {
        return None;
    }
    let (mut items, mut begun, mut at, mut headed) = (Vec::new(), None, 0, false);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if line.starts_with("---") || line.starts_with("...") || line.starts_with('%') {
            // A document may be announced, once and before everything else.
            if line.trim_end() != "---" || begun.is_some() || headed {
                return None;
            }
            headed = true;
        } else if line.starts_with("- ") || line.trim_end() == "-" {
            if let Some((from, line)) = begun.replace((at, number)) {
                items.push(Item { text: text.get(from..at)?, line });
            }
        } else if begun.is_none() && !line.trim_start().is_empty() && !line.starts_with('#') {
            return None;
        }
        at += line.len();
    }
    let (from, line) = begun?;
    items.push(Item { text: text.get(from..)?, line });
    Some(items)
}

/// Whether each item of a file became one object, of which there is nothing to say.
fn is_plain(file: &ParsedFile, items: usize) -> bool {
    let plain = |stanza: &ParsedStanza| stanza.class != "pragma" && stanza.problems.is_empty();
    file.problems.is_empty() && file.stanzas.len() == items && file.stanzas.iter().all(plain)
}

/// What `text` comes to, where `before` came to `file` and has at most so many nodes; and how many it has at most itself.
/// None when it has to be parsed as a whole.
pub(crate) fn reparse(
    file: &ParsedFile,
    before: &str,
    nodes: usize,
    text: &str,
    spelling: Spelling,
    patterns: &mut Patterns,
) -> Option<(ParsedFile, usize)> {
    let (old, new) = (items(before)?, items(text)?);
    if !is_plain(file, old.len()) {
        return None;
    }
    let most = old.len().min(new.len());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let same_tail = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let tail = same_tail.min(most - head);
    let changed = new.get(head..new.len() - tail)?;
    // What is no longer there may have been what others stand for.
    if old.get(head..old.len() - tail)?.iter().any(|item| item.text.contains('&')) {
        return None;
    }
    // A text of which little is left is read sooner as a whole.
    if changed.len() * 2 > new.len() {
        return None;
    }
    let mut nodes = nodes;
    let made = match changed.first() {
        None => Vec::new(),
        Some(first) => {
            let mut part = "\n".repeat(first.line);
            changed.iter().for_each(|item| part.push_str(item.text));
            let context = (*file.context).clone();
            let (made, anchors, added) = parse_part(context, text, &part, spelling, patterns);
            let plain = made.problems.is_empty() && made.stanzas.len() == changed.len() && !anchors;
            if !plain || made.stanzas.iter().any(|stanza| stanza.class == "pragma") {
                return None;
            }
            // Beyond the limit the whole is refused; what was replaced is still counted here.
            nodes = nodes.saturating_add(added);
            made.stanzas
        }
    };
    if nodes > MAX_NODES {
        return None;
    }
    let kept = |range: std::ops::Range<usize>| file.stanzas.get(range).map(<[ParsedStanza]>::to_vec);
    let mut stanzas = kept(0..head)?;
    stanzas.extend(made);
    stanzas.extend(kept(old.len() - tail..old.len())?);
    Some((ParsedFile { context: file.context.clone(), stanzas, problems: Vec::new() }, nodes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::parse_file;
    use crate::place::SourceContext;

    const FILE: &str = "# Jobs.\n- job:\n    name: a\n    run: a.yaml\n\n- job: {name: b, files: [x.*]}\n-\n  job:\n    \
                        name: c\n    description: |\n      words\n\n# A comment.\n- project:\n    check:\n      jobs: [a, \
                        b]\n- nodeset: {name: n, nodes: [{name: x, label: y}]}\n- semaphore: {name: s}\n";

    /// Whether a part was enough; what it comes to is always compared with the whole.
    fn is_enough(before: &str, text: &str) -> bool {
        let whole = |text| parse_file(SourceContext::default(), text, Spelling::Older);
        let made = reparse(&whole(before), before, 100, text, Spelling::Older, &mut Patterns::default());
        if let Some((made, _)) = &made {
            assert_eq!(*made, whole(text), "{text}");
        }
        made.is_some()
    }

    #[test]
    fn one_place_is_parsed_alone_and_comes_to_the_same() {
        for (old, new) in [
            ("name: s}\n", "name: s}\n\n# the end\n"),
            ("name: s}\n", "name: s}"),
            ("name: s}", "name: s, max: 3}"),
            ("{name: n,", "{name: m,"),
            ("label: y}]}\n", "label: y}]}\n- queue: {name: q}\n"),
            ("- semaphore: {name: s}\n", ""),
            ("run: a.yaml", "run: [b.yaml]"),
            ("      words\n", "      other\n"),
            ("[x.*]", "['(']"),
            ("jobs: [a, b]", "jobs: [a, {b: {bogus: 1}}]"),
        ] {
            assert!(is_enough(FILE, &FILE.replace(old, new)), "{old:?} -> {new:?}");
        }
    }

    #[test]
    fn what_is_not_plain_is_parsed_as_a_whole() {
        for (old, new) in [
            // Everything moved.
            ("# Jobs.\n", "# Jobs.\n\n"),
            // Marks of a document, in the middle and at the beginning; other breaks of lines.
            ("- project", "---\n- project"),
            ("# Jobs.\n", "%YAML 1.1\n---\n"),
            ("words\n", "words\r\n"),
            // An item that does not end before the next begins, and what is none.
            ("name: s}", "name: 's}"),
            ("name: n,", "name: [n,"),
            ("- semaphore", "semaphore"),
            ("- semaphore", "  - semaphore"),
            ("- semaphore: {name: s}", "- pragma: {implied-branch-matchers: true}"),
            ("- semaphore: {name: s}", "- nonsense"),
            ("- semaphore: {name: s}", "- &one semaphore: {name: s}"),
            ("- semaphore: {name: s}", "- semaphore: *one"),
            ("- semaphore: {name: s}", "- semaphore: {name: s, name: t}"),
            ("- semaphore: {name: s}", "- semaphore: {name: \u{1}}"),
        ] {
            let text = FILE.replace(old, new);
            assert_ne!(text, FILE, "{old:?}");
            assert!(!is_enough(FILE, &text), "{old:?} -> {new:?}");
        }
        // The same where it was so before.
        for (old, new) in [
            ("- semaphore: {name: s}", "- pragma: {implied-branch-matchers: true}"),
            ("[x.*]", "['(']"),
            ("words\n", "\"\n- quoted\n"),
        ] {
            let before = FILE.replace(old, new);
            assert!(!is_enough(&before, &before.replace("name: n,", "name: m,")), "{old:?} -> {new:?}");
        }
        // Of anchors, only those elsewhere stay what they were.
        let anchored = "- job: {name: a, vars: &v {x: 1}}\n- job: {name: b, vars: *v}\n- job: {name: c}\n";
        assert!(is_enough(anchored, &anchored.replace("name: c", "name: d")));
        assert!(!is_enough(anchored, &anchored.replace("x: 1", "x: 2")));
        assert!(!is_enough(anchored, &anchored.replace("name: c", "name: d, vars: *v")));
        let quoted = "- job: {name: \"a\n- b\"}\n- job: {name: c}\n- job: {name: d}\n";
        assert!(!is_enough(quoted, &quoted.replace("name: d", "name: e")));
    }
}
