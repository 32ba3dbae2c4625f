//! `zuul.conf`, as far as configuration needs it: which connections a site has.

use std::collections::BTreeMap;

/// A connection of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// The host in canonical names of its projects.
    pub host: String,
    /// Whether its repositories can be read: a `git` connection needs a `baseurl`.
    pub readable: bool,
}

/// Reads the connections from the text of a `zuul.conf`.
pub fn connections(text: &str) -> Vec<Connection> {
    let mut found: Vec<Connection> = Vec::new();
    for (section, values) in sections(text) {
        let name = match section.split_once(char::is_whitespace) {
            Some((word, name)) if word.eq_ignore_ascii_case("connection") => name.trim().trim_matches(['"', '\'']),
            // Zuul: a database is a connection of that name.
            None if section == "database" => {
                found.push(Connection { name: section, driver: "sql".to_owned(), host: String::new(), readable: true });
                continue;
            }
            _ => continue,
        };
        let value = |key: &str| values.get(key).map(String::as_str).filter(|value| !value.is_empty());
        let driver = value("driver").unwrap_or("");
        let server = match driver {
            "github" => value("server").unwrap_or("github.com"),
            "gitlab" => value("server").unwrap_or("gitlab.com"),
            "pagure" => value("server").unwrap_or("pagure.io"),
            "git" => value("baseurl").and_then(url_host).unwrap_or("localhost"),
            _ => value("server").unwrap_or(""),
        };
        let host = value("canonical_hostname").unwrap_or(server).to_owned();
        let readable = driver != "git" || value("baseurl").is_some_and(|url| !url.trim_matches('"').is_empty());
        found.push(Connection { name: name.to_owned(), driver: driver.to_owned(), host, readable });
    }
    found
}

fn url_host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or("");
    let host = host.rsplit('@').next().unwrap_or(host).split(':').next().unwrap_or("");
    (!host.is_empty()).then_some(host)
}

/// Sections in order, keys in lower case, as Python's `configparser` reads them.
fn sections(text: &str) -> Vec<(String, BTreeMap<String, String>)> {
    let mut all: Vec<(String, BTreeMap<String, String>)> = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            all.push((name.to_owned(), BTreeMap::new()));
            continue;
        }
        // A line that is indented goes on with the value before; no value here needs more than one.
        if line.starts_with(char::is_whitespace) {
            continue;
        }
        if let (Some((_, values)), Some((key, value))) = (all.last_mut(), trimmed.split_once(['=', ':'])) {
            values.insert(key.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_a_host_by_their_driver() {
        let text = "[scheduler]\ntenant_config=main.yaml\n\n[connection gerrit]\ndriver=gerrit\nserver=review.example.com\n\
                    [connection \"hub\"]\nDriver = github\n# no server\n[connection other]\ndriver=gitlab\n\
                    canonical_hostname=code.example.com\n[connection plain]\ndriver=git\nbaseurl=https://u@git.example.com:1/x\n\
                    [database]\ndburi=x\n";
        let found: Vec<_> = connections(text).into_iter().map(|c| (c.name, c.driver, c.host)).collect();
        let expected = [
            ("gerrit", "gerrit", "review.example.com"),
            ("hub", "github", "github.com"),
            ("other", "gitlab", "code.example.com"),
            ("plain", "git", "git.example.com"),
            ("database", "sql", ""),
        ];
        assert_eq!(found, expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())));
    }
}
