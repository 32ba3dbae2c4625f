//! Attacks as data, and what became of them.

/// What is expected of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It is refused, or harms nobody but its own build.
    Contained,
    /// It gets through, and docs/sandbox.md or docs/secrets.md says so in these words.
    Open(&'static str),
}

/// One attack.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    pub name: &'static str,
    pub kind: &'static str,
    pub expected: Expected,
}

pub const fn contained(kind: &'static str, name: &'static str) -> Attack {
    Attack { name, kind, expected: Expected::Contained }
}

pub const fn open(kind: &'static str, name: &'static str, words: &'static str) -> Attack {
    Attack { name, kind, expected: Expected::Open(words) }
}

/// The pages that say what is contained, each blank but one.
fn pages() -> String {
    let docs = std::env::var_os("GATELOG_TEST_DOCS")
        .map_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs").into(), std::path::PathBuf::from);
    let read = |name: &str| std::fs::read_to_string(docs.join(name)).unwrap();
    format!("{} {}", read("sandbox.md"), read("secrets.md")).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What an attack that was really tried came to.
#[derive(Clone, Debug)]
pub enum Seen {
    /// It came away with nothing, and how that was.
    Held(String),
    /// It got something.
    Through(String),
    /// It cannot be tried on this host.
    Skipped(String),
    /// It did not come so far as to try, or a check of the test's own does not hold.
    Broken(String),
}

impl Seen {
    /// By a check of the test's own outside of the sandbox: whether all stands as it stood.
    pub fn stands(stands: bool, how: impl Into<String>) -> Seen {
        if stands { Seen::Held(how.into()) } else { Seen::Through(how.into()) }
    }

    /// An attack proves something only where its mark says that it came so far as to try.
    pub fn if_tried(self, tried: bool) -> Seen {
        if tried { self } else { Seen::Broken(format!("it was not tried; else {self:?}")) }
    }
}

/// The attacks of one kind of test, each with what became of it.
pub struct Table {
    what: &'static str,
    attacks: Vec<Attack>,
    seen: Vec<(&'static str, Seen)>,
}

impl Table {
    pub fn new(what: &'static str, attacks: Vec<Attack>) -> Table {
        Table { what, attacks, seen: Vec::new() }
    }

    pub fn saw(&mut self, name: &str, seen: Seen) {
        match self.attacks.iter().find(|attack| attack.name == name) {
            Some(attack) => self.seen.push((attack.name, seen)),
            None => panic!("{name} is not in the table of {}", self.what),
        }
    }

    /// Prints all rows; every attack must have ended as expected.
    pub fn close(self) {
        let page = pages();
        let user = rustix::process::geteuid().as_raw();
        let mut wrong = Vec::new();
        for attack in &self.attacks {
            let seen = self.seen.iter().find(|(name, _)| *name == attack.name).map(|(_, seen)| seen);
            let line = |seen: &str| {
                let expected = match attack.expected {
                    Expected::Contained => "contained",
                    Expected::Open(_) => "not contained",
                };
                format!("ATTACK uid {user} | {} | {} | {expected} | {seen}", attack.kind, attack.name)
            };
            let (text, good) = match (seen, attack.expected) {
                (Some(Seen::Held(how)), Expected::Contained) => (format!("held: {how}"), true),
                (Some(Seen::Held(how)), Expected::Open(_)) => (format!("held, against the page: {how}"), false),
                (Some(Seen::Through(how)), Expected::Contained) => (format!("THROUGH: {how}"), false),
                (Some(Seen::Through(how)), Expected::Open(words)) => match page.contains(words) {
                    true => (format!("through: {how}"), true),
                    false => (format!("through, and the page does not say {words:?}"), false),
                },
                (Some(Seen::Skipped(why)), _) => (format!("SKIPPED {}: {why}", attack.name), true),
                (Some(Seen::Broken(why)), _) => (format!("BROKEN: {why}"), false),
                (None, _) => ("NOT TRIED".to_owned(), false),
            };
            println!("{}", line(&text));
            if !good {
                wrong.push(line(&text));
            }
        }
        assert!(wrong.is_empty(), "{}: not as expected:\n{}", self.what, wrong.join("\n"));
    }
}
