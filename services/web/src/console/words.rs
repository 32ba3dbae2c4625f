//! What a console's line is about.

/// Splits the time off a line that begins with one, as job consoles' lines do.
pub(crate) fn stamp(line: &str) -> (&str, &str) {
    const SHAPE: &[u8] = b"dddd-dd-dd dd:dd:dd.dddddd | ";
    let fits = line.len() >= SHAPE.len()
        && line
            .bytes()
            .zip(SHAPE)
            .all(|(byte, shape)| if *shape == b'd' { byte.is_ascii_digit() } else { byte == *shape });
    if fits { line.split_at_checked(SHAPE.len()).unwrap_or(("", line)) } else { ("", line) }
}

/// The first characters of a text without its time.
fn head(said: &str) -> &str {
    said.get(..said.floor_char_boundary(200)).unwrap_or_default()
}

/// Whether something begins with a line (its time taken off).
pub(crate) fn begins(said: &str) -> bool {
    const WORDS: [&str; 6] = ["PLAY [", "TASK [", "RUN START", "PRE-RUN START", "POST-RUN START", "CLEANUP START"];
    WORDS.iter().any(|word| said.starts_with(word))
}

/// Whether a line tells of a failure.
pub(crate) fn fails(line: &str) -> bool {
    let head = head(stamp(line).1);
    // What is expected to fail now and then is followed by this word.
    !head.ends_with("...ignoring")
        && (head.starts_with("fatal:")
            || head.starts_with("ERROR")
            || head.contains(" | failed |")
            || head.contains(" FAILED"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_from_text_and_failures_are_found() {
        let line = "2026-11-21 12:29:38.434863 | worker | failed | Runtime: 0:00:00.055506 | rc: 1";
        assert_eq!(stamp(line), ("2026-11-21 12:29:38.434863 | ", "worker | failed | Runtime: 0:00:00.055506 | rc: 1"));
        assert!(fails(line));
        for other in ["", "2026", "2026-11-21 12:29:38.43486ü | x", "x026-11-21 12:29:38.434863 | x"] {
            assert_eq!(stamp(other), ("", other));
        }
        for (said, begin, fail) in [
            ("worker | failed | rc: 1", false, true),
            ("worker | FAILED (failures=1)", false, true),
            ("fatal: [worker]: FAILED!", false, true),
            ("TASK [unit]", true, false),
            ("worker | ok: 1 failed: 0", false, false),
            ("", false, false),
        ] {
            assert_eq!((begins(said), fails(said)), (begin, fail), "{said}");
        }
        // A letter of several bytes at the end of what is looked at.
        assert!(!fails(&"ü".repeat(300)));
    }
}
