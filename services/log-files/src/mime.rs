//! Media types: by a file's name, or else by whether it begins like text.

/// By the end of a name, in lower case.
const BY_NAME: &[(&str, &str)] = &[
    ("bz2", "application/x-bzip2"),
    ("cfg", "text/plain; charset=utf-8"),
    ("conf", "text/plain; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("ini", "text/plain; charset=utf-8"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("log", "text/plain; charset=utf-8"),
    ("md", "text/plain; charset=utf-8"),
    ("mp4", "video/mp4"),
    ("out", "text/plain; charset=utf-8"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("rst", "text/plain; charset=utf-8"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tgz", "application/gzip"),
    ("txt", "text/plain; charset=utf-8"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("whl", "application/zip"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xml", "application/xml"),
    ("xz", "application/x-xz"),
    ("yaml", "text/plain; charset=utf-8"),
    ("yml", "text/plain; charset=utf-8"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

/// How much of a file is looked at.
pub const LOOKED_AT: usize = 4096;

/// The media type of a file with this name that begins with `head` (at most [`LOOKED_AT`] bytes).
pub fn of(name: &str, head: &[u8]) -> &'static str {
    let end = name.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase());
    if let Some((_, mime)) = end.and_then(|end| BY_NAME.iter().find(|(known, _)| *known == end)) {
        return mime;
    }
    let text = match std::str::from_utf8(head) {
        Ok(text) => Some(text),
        // A letter that is cut in two at the end.
        Err(error) if error.error_len().is_none() => {
            head.get(..error.valid_up_to()).and_then(|head| std::str::from_utf8(head).ok())
        }
        Err(_) => None,
    };
    if text.is_some_and(|text| !text.contains('\0')) { "text/plain; charset=utf-8" } else { "application/octet-stream" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_known_by_the_name_and_else_by_the_beginning() {
        assert_eq!(of("a/REPORT.HTML", b"x"), "text/html; charset=utf-8");
        assert_eq!(of("syslog", "caf\u{e9}".as_bytes()), "text/plain; charset=utf-8");
        assert_eq!(of("syslog", &"caf\u{e9}".as_bytes()[..4]), "text/plain; charset=utf-8");
        assert_eq!(of("core", b"\x7fELF\0"), "application/octet-stream");
        assert_eq!(of("data", b"\xff\xfe"), "application/octet-stream");
        assert_eq!(of("empty", b""), "text/plain; charset=utf-8");
        assert!(BY_NAME.is_sorted());
    }
}
