//! A project's line in the tenant file, written into it without touching anything else.
//!
//! The place is looked up in the parsed file, the lines are put between those that are there, and what comes out is read
//! again as the server reads it: it must say what the file said before, and the project besides. Where that is not so, the
//! file is left alone.

use gatelog_rules_config::tenant::TenantSpec;
use gatelog_rules_config::yaml::{Entry, Node, NodeKind, parse_lenient};
use gatelog_rules_config::{Problem, parse_tenant_file};

/// What is to stand in the tenant file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// The connection.
    pub connection: &'a str,
    /// The project.
    pub project: &'a str,
    /// Whether it is a config project.
    pub trusted: bool,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edited {
    /// The tenant has the project already.
    There,
    /// The file's new text, and the line on which the project stands.
    Text {
        /// The text.
        text: String,
        /// The line, from 1.
        line: usize,
    },
}

impl Wanted<'_> {
    fn list(&self) -> &'static str {
        if self.trusted { "config-projects" } else { "untrusted-projects" }
    }

    /// The lines from some level on, each with its depth: `- tenant:` is 0.
    fn lines(&self, from: Level) -> Vec<(usize, String)> {
        let all = [
            (Level::Tenant, 0, "- tenant:".to_owned()),
            (Level::Tenant, 2, format!("name: {}", scalar(self.tenant))),
            (Level::Source, 2, "source:".to_owned()),
            (Level::Connection, 3, format!("{}:", scalar(self.connection))),
            (Level::List, 4, format!("{}:", self.list())),
            (Level::Item, 5, format!("- {}", scalar(self.project))),
        ];
        all.into_iter().filter(|(level, ..)| *level >= from).map(|(_, depth, line)| (depth, line)).collect()
    }

    /// The whole of it, for people who write it themselves.
    pub fn shown(&self) -> Vec<String> {
        self.lines(Level::Tenant).into_iter().map(|(depth, line)| format!("{}{line}", "  ".repeat(depth))).collect()
    }

    /// Puts the project into a tenant file.
    ///
    /// # Errors
    /// Why that cannot be done, in one sentence.
    pub fn put_into(&self, text: &str) -> Result<Edited, String> {
        let read = |text: &str| if text.trim().is_empty() { Default::default() } else { parse_tenant_file(text) };
        let (mut before, mut problems) = read(text);
        // A file of comments alone has no tenant yet, and nothing is wrong with it.
        let root = parse_lenient(text).map_err(|_| "it cannot be read".to_owned())?.0;
        if problems.iter().any(Problem::is_error)
            && let Some(filled) = root.as_ref().and_then(|root| self.filled(text, root))
        {
            (before, problems) = read(&filled);
        }
        if let (Some(problem), Some(_)) = (problems.iter().find(|problem| problem.is_error()), &root) {
            return Err(format!("it has an error, in line {}: {}", problem.place.line, problem.message));
        }
        if let Some(spec) = before.iter().find(|spec| spec.settings.name == self.tenant) {
            let known =
                spec.settings.projects.iter().find(|one| one.connection == self.connection && one.name == self.project);
            match known {
                Some(known) if known.trusted == self.trusted => return Ok(Edited::There),
                Some(known) => {
                    let kind = if known.trusted { "config-projects" } else { "untrusted-projects" };
                    return Err(format!(
                        "tenant {} has {} among its {kind}: move it by hand",
                        self.tenant, self.project
                    ));
                }
                None => {}
            }
        }
        let (text, line) = self.written(text, root.as_ref())?;
        self.verify(&before, &problems, &text)?;
        Ok(Edited::Text { text, line })
    }

    /// What the file says where a list that the project is to go into has no item yet, which is an error by itself: the same
    /// with an empty one.
    fn filled(&self, text: &str, root: &Node) -> Option<String> {
        let mut at = find_tenant(root, self.tenant)?;
        for key in ["source", self.connection, self.list()] {
            let entry = at.get(key)?;
            if entry.value.is_null() {
                let number = usize::try_from(entry.mark.line).ok()?.checked_sub(1)?;
                let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
                let line = *lines.get(number)?;
                let key_at = line.char_indices().nth(column(entry))?.0;
                let behind = line.get(key_at..)?.find(':')? + key_at + 1;
                let empty = if key == self.list() { "[]" } else { "{}" };
                let line = format!("{} {empty}{}", line.get(..behind)?, line.get(behind..)?);
                *lines.get_mut(number)? = &line;
                return Some(lines.concat());
            }
            at = &entry.value;
        }
        None
    }

    /// The text with the lines in it, unchecked.
    fn written(&self, text: &str, root: Option<&Node>) -> Result<(String, usize), String> {
        let mut lines = Lines::of(text);
        let Some(tenant) = root.and_then(|root| find_tenant(root, self.tenant)) else {
            let indent =
                root.and_then(Node::as_sequence).and_then(|items| items.first()).map_or(0, |item| lines.indent(item));
            let at = lines.all.len();
            return Ok(lines.insert(at, indent, self.lines(Level::Tenant)));
        };
        let path = [("source", Level::Connection), (self.connection, Level::List), (self.list(), Level::Item)];
        let mut at = tenant;
        for (key, below) in path {
            let Some(entry) = at.get(key) else {
                let missing = match below {
                    Level::Connection => Level::Source,
                    Level::List => Level::Connection,
                    _ => Level::List,
                };
                if lines.is_flow(at) {
                    return Err(format!("line {} is written in one line", at.start.line));
                }
                let first = at.as_mapping().and_then(|entries| entries.first());
                let first = first.ok_or_else(|| format!("line {} is not written as expected", at.start.line))?;
                let last = lines.last_of(at);
                return Ok(lines.insert(last, column(first), self.lines(missing)));
            };
            if entry.value.is_null() {
                let line = usize::try_from(entry.mark.line).unwrap_or(usize::MAX);
                return Ok(lines.insert(line, column(entry) + 2, self.lines(below)));
            }
            at = &entry.value;
        }
        match &at.kind {
            NodeKind::Sequence(_) if lines.is_flow(at) => lines.in_flow(at, &scalar(self.project)),
            NodeKind::Sequence(items) => {
                let last = lines.last_of(at);
                let indent = items.first().map_or(0, |item| lines.indent(item));
                Ok(lines.insert(last, indent, self.lines(Level::Item)))
            }
            _ => Err(format!("`{}` of tenant {} is no list", self.list(), self.tenant)),
        }
    }

    /// Whether a text says what was said before, and the project besides.
    fn verify(&self, before: &[TenantSpec], problems: &[Problem], text: &str) -> Result<(), String> {
        let no = |what: &str| Err(format!("{what} would come out otherwise"));
        let (after, now) = parse_tenant_file(text);
        let said = |all: &[Problem]| {
            let mut said: Vec<String> =
                all.iter().map(|problem| format!("{} {}", problem.code, problem.message)).collect();
            said.sort();
            said
        };
        if let Some(problem) = now.iter().find(|problem| problem.is_error()) {
            return Err(format!("it would have an error then, in line {}: {}", problem.place.line, problem.message));
        }
        if !before.is_empty() && said(problems) != said(&now) {
            return no("what is wrong with the file");
        }
        for spec in &after {
            let was = before.iter().find(|was| was.settings.name == spec.settings.name);
            if spec.settings.name != self.tenant {
                if was.is_none_or(|was| was.settings != spec.settings) {
                    return no(&format!("tenant {}", spec.settings.name));
                }
                continue;
            }
            let mut left = spec.settings.clone();
            let is_new = |one: &gatelog_rules_config::TenantProject| {
                one.connection == self.connection && one.name == self.project
            };
            let Some(at) = left.projects.iter().position(is_new) else { return no("the project") };
            if left.projects.remove(at).trusted != self.trusted {
                return no("the project");
            }
            if was.map_or(!left.projects.is_empty(), |was| was.settings != left) {
                return no(&format!("tenant {}", self.tenant));
            }
        }
        if before.iter().any(|was| !after.iter().any(|spec| spec.settings.name == was.settings.name)) {
            return no("the list of tenants");
        }
        if after.iter().any(|spec| spec.settings.name == self.tenant) { Ok(()) } else { no("the tenant") }
    }
}

/// From where on lines are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Tenant,
    Source,
    Connection,
    List,
    Item,
}

fn find_tenant<'n>(root: &'n Node, name: &str) -> Option<&'n Node> {
    let tenants = root.as_sequence()?.iter().filter_map(|item| item.get("tenant"));
    let named = |entry: &&Entry| entry.value.get("name").is_some_and(|given| given.value.as_str() == Some(name));
    tenants.into_iter().find(named).map(|entry| &entry.value)
}

/// By how many spaces a key is indented.
fn column(entry: &Entry) -> usize {
    usize::try_from(entry.mark.column.saturating_sub(1)).unwrap_or(0)
}

/// A text as one scalar.
fn scalar(text: &str) -> String {
    let plain = text.chars().all(|c| c.is_alphanumeric() || "-_./+".contains(c))
        && text.starts_with(|c: char| c.is_alphabetic())
        && gatelog_rules_config::yaml::scalar::resolve_plain(text).as_str() == Some(text);
    // JSON's strings are YAML's, too.
    if plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

/// The lines of a text, to put others between them.
struct Lines<'t> {
    all: Vec<&'t str>,
    ending: &'static str,
}

impl<'t> Lines<'t> {
    fn of(text: &'t str) -> Lines<'t> {
        let ending = if text.contains("\r\n") { "\r\n" } else { "\n" };
        Lines { all: text.split_inclusive('\n').collect(), ending }
    }

    /// By how many characters the dash of an item is indented.
    fn indent(&self, item: &Node) -> usize {
        // The dash stands on the item's line, or above it, where the item begins on a line of its own.
        let line = usize::try_from(item.start.line).unwrap_or(0).min(self.all.len());
        let above = self.all.iter().take(line).rev().find(|line| line.trim_start().starts_with('-'));
        above.map_or(0, |line| line.len() - line.trim_start().len())
    }

    fn at(&self, line: u32, column: u32) -> Option<char> {
        let line = self.all.get(usize::try_from(line).ok()?.checked_sub(1)?)?;
        line.chars().nth(usize::try_from(column).ok()?.checked_sub(1)?)
    }

    /// Whether a node is written in brackets.
    fn is_flow(&self, node: &Node) -> bool {
        matches!(self.at(node.start.line, node.start.column), Some('[' | '{'))
    }

    /// The number of the last line a node is on, from 1.
    fn last_of(&self, node: &Node) -> usize {
        let own = |node: &Node| {
            // What ends with its line break ends on the line before.
            let line = if node.end.column <= 1 { node.end.line.saturating_sub(1) } else { node.end.line };
            usize::try_from(line.max(node.start.line)).unwrap_or(usize::MAX)
        };
        match &node.kind {
            NodeKind::Sequence(items) if !self.is_flow(node) => {
                items.iter().map(|item| self.last_of(item)).max().unwrap_or(0)
            }
            NodeKind::Mapping(entries) if !self.is_flow(node) => {
                let key = |entry: &Entry| usize::try_from(entry.mark.line).unwrap_or(usize::MAX);
                entries
                    .iter()
                    .map(
                        |entry| {
                            if entry.value.is_null() { key(entry) } else { self.last_of(&entry.value).max(key(entry)) }
                        },
                    )
                    .max()
                    .unwrap_or(0)
            }
            _ => own(node),
        }
    }

    /// The text with lines behind the first `after`, and the number of the last of them. `lines`: each with its depth.
    fn insert(&mut self, after: usize, indent: usize, lines: Vec<(usize, String)>) -> (String, usize) {
        let after = after.min(self.all.len());
        let (before, behind) = self.all.split_at(after);
        let mut text = before.concat();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push_str(self.ending);
        }
        let outermost = lines.iter().map(|(depth, _)| *depth).min().unwrap_or(0);
        let last = after + lines.len();
        for (depth, line) in lines {
            text.push_str(&" ".repeat(indent + 2 * (depth - outermost)));
            text.push_str(&line);
            text.push_str(self.ending);
        }
        text.push_str(&behind.concat());
        (text, last)
    }

    /// The text with an item more in a list that is written in brackets.
    fn in_flow(&self, list: &Node, item: &str) -> Result<(String, usize), String> {
        let number = usize::try_from(list.end.line).unwrap_or(0);
        let odd = || format!("line {number} is not written as expected");
        let line = self.all.get(number.wrapping_sub(1)).ok_or_else(odd)?;
        // The end is behind the bracket.
        let column = usize::try_from(list.end.column).unwrap_or(0).checked_sub(2).ok_or_else(odd)?;
        let at = line.char_indices().nth(column).filter(|(_, c)| *c == ']').ok_or_else(odd)?.0;
        let (head, tail) = line.split_at(at);
        let comma = if list.items().is_empty() { "" } else { ", " };
        let line = format!("{}{comma}{item}{tail}", head.trim_end());
        let mut all: Vec<&str> = self.all.clone();
        if let Some(old) = all.get_mut(number - 1) {
            *old = &line;
        }
        Ok((all.concat(), number))
    }
}

#[cfg(test)]
mod tests;
