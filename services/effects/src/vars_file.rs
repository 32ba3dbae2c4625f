//! Files of variables. Zuul: `include-vars`.

use std::collections::BTreeMap;

use gatelog_record::Value;
use gatelog_rules_config::yaml::{NodeKind, mapping_value, parse_lenient};

/// The largest file, in bytes.
pub(crate) const MOST_BYTES: u64 = 1 << 20;

/// The variables of a file; nothing in it is none. Of a name that is there twice the last counts, as for Python's reader.
///
/// # Errors
/// What is wrong with the file and how to mend it, as the end of a sentence.
pub(crate) fn read(content: &[u8]) -> Result<BTreeMap<String, Value>, String> {
    let text = std::str::from_utf8(content).map_err(|_| "is not UTF-8: save it as that".to_owned())?;
    let (root, _) = parse_lenient(text).map_err(|errors| match errors.first() {
        Some(error) => format!("is no YAML: {error} (line {}): correct it", error.mark().line),
        None => "is no YAML: correct it".to_owned(),
    })?;
    let Some(root) = root else { return Ok(BTreeMap::new()) };
    let tagged = if root.tag.is_some() { Some(&root) } else { root.tag_below() };
    if let Some(node) = tagged {
        return Err(format!("has a tag in line {}, which variables cannot have: write a plain value", node.start.line));
    }
    match &root.kind {
        NodeKind::Mapping(entries) => Ok(mapping_value(entries)),
        _ if root.is_null() => Ok(BTreeMap::new()),
        _ => Err(format!("holds {}: write names of variables with their values", root.kind_name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_as_python_reads_them_or_refused_with_the_cure() {
        let of =
            |pairs: &[(&str, Value)]| pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        assert_eq!(
            read(b"a: yes\nb: [1]\na: no\n"),
            Ok(of(&[("a", Value::Bool(false)), ("b", Value::List(vec![Value::Int(1)])),]))
        );
        assert_eq!(read(b"# nothing\n"), Ok(BTreeMap::new()));
        assert_eq!(read(b""), Ok(BTreeMap::new()));
        for (content, expected) in [
            (&b"- a\n"[..], "holds a list: write names"),
            (b"a: [1\n", "is no YAML"),
            (b"a: !vault x\n", "the tag `!vault` is unknown (line 1)"),
            (b"\xff", "is not UTF-8"),
        ] {
            let refused = read(content).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
    }
}
