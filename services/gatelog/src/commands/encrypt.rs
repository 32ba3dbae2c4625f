//! `gatelog encrypt`: a secret for a project, to be put into its repository. Zuul: `zuul-client encrypt`.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use gatelog_secrets::{EncipherError, encipher};

use super::failure::{Code, Failure};
use super::output::Output;
use super::site::Target;
use crate::cli::{EncryptArgs, SiteArgs};

/// More is not read; no secret is as long.
const LONGEST: u64 = 1 << 20;

/// Runs it.
pub fn run(site: &SiteArgs, args: &EncryptArgs) -> Result<ExitCode, Failure> {
    let key = public_key(site, args)?;
    let text = match &args.infile {
        Some(path) => read(path, std::fs::File::open(path))?,
        None => read(Path::new("standard input"), Ok(std::io::stdin()))?,
    };
    let text = if args.no_strip { text.as_str() } else { text.trim() };
    let chunks = encipher(&key, text).map_err(|error| {
        let code = if matches!(error, EncipherError::TooLong { .. }) { Code::Usage } else { Code::No };
        Failure::new(code, error.to_string())
    })?;
    let mut out = Output::new();
    let _ = out.lines(&stanza(&args.secret_name, &args.field_name, &chunks))?;
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// What is put into a configuration file.
fn stanza(secret: &str, field: &str, chunks: &[String]) -> Vec<String> {
    // A name that YAML would take for something else is quoted.
    let plain = |name: &str| {
        let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        let quoted = serde_json::Value::from(name).to_string();
        if letters && name.starts_with(|c: char| c.is_ascii_alphabetic()) { name.to_owned() } else { quoted }
    };
    let mut lines = vec![
        "- secret:".to_owned(),
        format!("    name: {}", plain(secret)),
        "    data:".to_owned(),
        format!("      {}: !encrypted/pkcs1-oaep", plain(field)),
    ];
    lines.extend(chunks.iter().map(|chunk| format!("        - {chunk}")));
    lines
}

/// The public half of the project's key.
fn public_key(site: &SiteArgs, args: &EncryptArgs) -> Result<String, Failure> {
    if let Some(path) = &args.public_key {
        return read(path, std::fs::File::open(path));
    }
    let (Some(tenant), Some(project)) = (&args.tenant, &args.project) else {
        return Err(Failure::new(Code::Usage, "whose secret? Name --tenant and --project, or a --public-key"));
    };
    let client = match site.target()? {
        Target::Url(client) => client,
        Target::Dir(site) => site.server().ok_or_else(|| {
            Failure::new(Code::Unavailable, format!("no server runs the site in {}", site.dir().display()))
                .hint("start it, or take the key with `gatelog keys show` and name it with --public-key")
        })?,
    };
    Ok(client.get_text(&format!("/api/tenant/{}/key/{}.pub", escaped(tenant), escaped(project)))?)
}

/// A name as it stands in a path.
pub fn escaped(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// A text from a file, up to [`LONGEST`] bytes.
pub(super) fn read(path: &Path, opened: std::io::Result<impl Read>) -> Result<String, Failure> {
    let failed = |error: std::io::Error| {
        let code = if error.kind() == std::io::ErrorKind::NotFound { Code::NotFound } else { Code::No };
        Failure::new(code, format!("{}: {error}", path.display()))
    };
    let mut text = String::new();
    opened.map_err(failed)?.take(LONGEST + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > LONGEST {
        return Err(Failure::new(Code::Usage, format!("{} is longer than {LONGEST} bytes", path.display())));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stanza_is_what_a_configuration_file_holds() {
        let told = stanza("upload", "no way", &["YWJj".into(), "ZGVm".into()]).join("\n");
        assert_eq!(
            told,
            "- secret:\n    name: upload\n    data:\n      \"no way\": !encrypted/pkcs1-oaep\n        - YWJj\n        - ZGVm"
        );
        assert_eq!(escaped("org/a b?"), "org/a%20b%3F");
    }
}
