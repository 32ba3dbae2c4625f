//! Histories made from a number: always the same ones from the same.

use std::collections::BTreeMap;

use git2::{Oid, Repository, Signature, Time};

/// A small generator of random numbers.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            dice.roll(2);
        }
        dice
    }

    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(sides).unwrap()).unwrap()
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }
}

/// What a path is.
#[derive(Clone, Debug)]
enum Node {
    File { lines: Vec<String>, executable: bool, crlf: bool },
    Link(String),
    Submodule(usize),
}

type Files = BTreeMap<String, Node>;

fn text(lines: Vec<String>) -> Node {
    Node::File { lines, executable: false, crlf: false }
}

/// Whether a path can be there: nothing above it is a file, and it is no directory.
fn is_free(files: &Files, path: &str) -> bool {
    let above = path.match_indices('/').all(|(at, _)| !files.contains_key(&path[..at]));
    above && !files.contains_key(path) && !files.keys().any(|other| other.starts_with(&format!("{path}/")))
}

fn edit(dice: &mut Dice, files: &mut Files, tag: &str) {
    let names: Vec<String> = files.keys().cloned().collect();
    let Some(name) = names.get(dice.roll(names.len().max(1))).cloned() else { return };
    let kind = dice.roll(40);
    match kind {
        0..3 => drop(files.remove(&name)),
        3..6 => {
            let path = dice.pick(&["d/new", "e/new", "new", "e/f/new", "a/below", "link", "lib"]);
            if is_free(files, path) {
                files.insert(path.to_owned(), text(vec![format!("new by {tag}")]));
            }
        }
        6..9 => {
            let path = dice.pick(&["a.x", "a.y", "d/c", "d/moved", "g/h", "e/f/g.x", "b"]).to_owned();
            let node = files.remove(&name).unwrap();
            files.insert(if is_free(files, &path) { path } else { name }, node);
        }
        9 => {
            // A whole directory moves.
            let (from, to) = [("d/", "dd/"), ("e/", "ee/"), ("e/f/", "f/"), ("d/", "e/d/")][dice.roll(4)];
            for name in names.iter().filter(|name| name.starts_with(from)) {
                let path = name.replacen(from, to, 1);
                let node = files.remove(name).unwrap();
                files.insert(if is_free(files, &path) { path } else { name.clone() }, node);
            }
        }
        10 => {
            // A directory in the place of a file.
            let node = files.remove(&name).unwrap();
            files.insert(format!("{name}/inside"), node);
        }
        11 => {
            let target = dice.pick(&["a", "b", "../outside"]).to_owned();
            files.insert(name, Node::Link(target));
        }
        12 if is_free(files, "link") => drop(files.insert("link".to_owned(), Node::Link(tag.to_owned()))),
        13 | 14 if files.contains_key("lib") || is_free(files, "lib") => {
            files.insert("lib".to_owned(), Node::Submodule(dice.roll(4)));
        }
        15 => {
            let line = dice.pick(&["* merge=union", "*.x -merge", "* text=auto", "d/* merge=binary", "b ident"]);
            let path = dice.pick(&[".gitattributes", "d/.gitattributes"]);
            if is_free(files, path) || files.contains_key(path) {
                files.insert(path.to_owned(), text(vec![line.to_owned()]));
            }
        }
        _ => match files.get_mut(&name).unwrap() {
            Node::File { executable, .. } if kind < 18 => *executable ^= true,
            Node::File { crlf, .. } if kind < 20 => *crlf ^= true,
            Node::File { lines, .. } => edit_lines(dice, lines, tag),
            Node::Link(target) => *target = dice.pick(&["a", "b", "c"]).to_owned(),
            Node::Submodule(at) => *at = dice.roll(4),
        },
    }
}

fn edit_lines(dice: &mut Dice, lines: &mut Vec<String>, tag: &str) {
    let at = dice.roll(lines.len() + 1);
    match dice.roll(6) {
        0 => lines.insert(at, format!("{tag} {}", dice.roll(3))),
        // Lines that repeat, on which ways to match lines differ.
        1 => lines.insert(at, dice.pick(&["", "}", "{", "end"]).to_owned()),
        2 if at < lines.len() => drop(lines.remove(at)),
        3 if at + 3 < lines.len() => {
            let block: Vec<String> = lines.drain(at..at + 3).collect();
            let to = dice.roll(lines.len() + 1);
            lines.splice(to..to, block);
        }
        _ if at < lines.len() => lines[at] = format!("{tag} {}", dice.roll(2)),
        _ => lines.push(format!("{tag} end")),
    }
}

fn write(repo: &Repository, files: &Files, parents: &[Oid], message: &str) -> Oid {
    let mut update = git2::build::TreeUpdateBuilder::new();
    for (path, node) in files {
        match node {
            Node::File { lines, executable, crlf } => {
                let end = if *crlf { "\r\n" } else { "\n" };
                let blob = repo.blob(format!("{}{end}", lines.join(end)).as_bytes()).unwrap();
                let mode = if *executable { git2::FileMode::BlobExecutable } else { git2::FileMode::Blob };
                update.upsert(path.as_str(), blob, mode);
            }
            Node::Link(target) => {
                update.upsert(path.as_str(), repo.blob(target.as_bytes()).unwrap(), git2::FileMode::Link);
            }
            Node::Submodule(at) => {
                // A commit of another repository, which is not here.
                let id = Oid::from_str(&(at + 1).to_string().repeat(40)).unwrap();
                update.upsert(path.as_str(), id, git2::FileMode::Commit);
            }
        }
    }
    let empty = repo.find_tree(repo.treebuilder(None).unwrap().write().unwrap()).unwrap();
    let tree = repo.find_tree(update.create_updated(repo, &empty).unwrap()).unwrap();
    let who = Signature::new("Ann", "ann@example.org", &Time::new(1_600_000_000, 0)).unwrap();
    let parents: Vec<_> = parents.iter().map(|id| repo.find_commit(*id).unwrap()).collect();
    repo.commit(None, &who, &who, message, &tree, &parents.iter().collect::<Vec<_>>()).unwrap()
}

/// Two commits to be put together, `theirs` on top of `ours`.
pub struct Case {
    /// What both come from.
    pub base: Oid,
    pub ours: Oid,
    pub theirs: Oid,
    /// Whether there are several newest commits that both have.
    pub is_crossed: bool,
}

/// The case of this number.
pub fn case(repo: &Repository, number: u64) -> Case {
    let mut dice = Dice::new(number);
    let mut files = Files::new();
    for name in ["a", "b", "d/c", "d/k", "e/f/g"] {
        let count = 4 + dice.roll(14);
        let line = |n: usize| if n % 4 == 3 { "}".to_owned() } else { format!("{name} line {n}") };
        files.insert(name.to_owned(), text((0..count).map(line).collect()));
    }
    if number % 4 == 1 {
        files.insert("lib".to_owned(), Node::Submodule(0));
        files.insert("link".to_owned(), Node::Link("a".to_owned()));
    }
    let base = write(repo, &files, &[], &format!("base {number}"));
    // Often the same words on both sides, so that both sometimes make the same edit.
    let tags = if number.is_multiple_of(3) { ["both", "both"] } else { ["ours", "theirs"] };
    let mut sides = [(files.clone(), base), (files, base)];
    let grow = |dice: &mut Dice, side: &mut (Files, Oid), tag: &str, commits: usize| {
        for n in 0..commits {
            for _ in 0..=dice.roll(3) {
                edit(dice, &mut side.0, tag);
            }
            side.1 = write(repo, &side.0, &[side.1], &format!("{tag} {n}"));
        }
    };
    let is_crossed = number % 5 == 2;
    if is_crossed {
        for (side, tag) in sides.iter_mut().zip(tags) {
            grow(&mut dice, side, tag, 1);
        }
        // Each takes the other in, in its own way.
        let tips = [sides[0].1, sides[1].1];
        for (at, side) in sides.iter_mut().enumerate() {
            side.1 = write(repo, &side.0, &[tips[at], tips[1 - at]], "crossed");
        }
    }
    let [ours, theirs] = &mut sides;
    grow(&mut dice, ours, tags[0], usize::from(!number.is_multiple_of(11)) * 2);
    grow(&mut dice, theirs, tags[1], 1 + usize::from(number.is_multiple_of(2)));
    if number % 7 == 3 {
        // A merge at the tip, of something else that was begun at the base.
        let mut other = (theirs.0.clone(), base);
        grow(&mut dice, &mut other, "other", 1);
        theirs.1 = write(repo, &other.0, &[theirs.1, other.1], "a merge");
    }
    Case { base, ours: ours.1, theirs: theirs.1, is_crossed }
}
