//! The corpus of a fuzz target read once more, and a few thousand inputs made of it: what `./dev test` does of what
//! `./dev fuzz` does for hours. Without coverage, and the same every time.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test that reads the corpus from the tree")]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// The folder of a target's corpus.
fn folder(target: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().find(|above| above.join("tests/fuzz/corpus").is_dir());
    root.unwrap_or_else(|| panic!("no tests/fuzz/corpus above {}", here.display()))
        .join("tests/fuzz/corpus")
        .join(target)
}

/// Chance that is the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below.max(1) as u64) as usize
    }
}

/// Numbers that readers get wrong.
const NASTY: &[u64] = &[
    0,
    1,
    127,
    128,
    250,
    251,
    252,
    253,
    254,
    255,
    256,
    32_767,
    65_535,
    65_536,
    1 << 20,
    1 << 24,
    1 << 30,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    1 << 62,
    u64::MAX >> 1,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// One of the corpus, changed in one to four places.
fn mutated(corpus: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut out = corpus[dice.roll(corpus.len())].clone();
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(out.len() + 1);
        match dice.roll(8) {
            0 | 1 if at < out.len() => out[at] ^= 1 << dice.roll(8),
            2 if at < out.len() => out[at] = dice.roll(256) as u8,
            3 => {
                let number = NASTY[dice.roll(NASTY.len())].to_le_bytes();
                let width = [1, 2, 4, 8][dice.roll(4)].min(out.len() - at);
                out[at..at + width].copy_from_slice(&number[..width]);
            }
            4 => {
                let end = (at + dice.roll(40)).min(out.len());
                out.drain(at..end);
            }
            5 => {
                let other = &corpus[dice.roll(corpus.len())];
                let from = dice.roll(other.len() + 1);
                let piece = other[from..(from + dice.roll(60)).min(other.len())].to_vec();
                out.splice(at..at, piece);
            }
            6 => out.truncate(at),
            _ => out.insert(at, dice.roll(256) as u8),
        }
    }
    out
}

fn fails(run: &impl Fn(&[u8]), data: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| run(data))).is_err()
}

/// The shortest of what still fails, found by leaving out pieces.
fn shrunk(run: &impl Fn(&[u8]), mut data: Vec<u8>) -> Vec<u8> {
    let mut piece = data.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at + piece <= data.len() {
            let without = [&data[..at], &data[at + piece..]].concat();
            if fails(run, &without) { data = without } else { at += piece }
        }
        piece /= 2;
    }
    data
}

/// What a long run is told by its environment, as a number.
fn told(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}: give a number")))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Runs every entry of the target's corpus, and so many inputs made of them (or `GATELOG_FUZZ_RUNS`, also of what lies in
/// the target's folder below `GATELOG_FUZZ_FOUND`). One that fails is shrunk, put into the corpus and named.
pub fn play(target: &str, mutations: u64, run: impl Fn(&[u8])) {
    let mut paths = entries(&folder(target));
    assert!(paths.len() > 20, "the corpus of {target} has only {} entries", paths.len());
    if let Some(found) = std::env::var_os("GATELOG_FUZZ_FOUND") {
        paths.extend(entries(&Path::new(&found).join(target)));
    }
    let corpus: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    for (path, data) in paths.iter().zip(&corpus) {
        assert!(!fails(&run, data), "{}: see above; once more: ./dev fuzz --replay {0}", path.display());
    }
    let mut dice = Dice(
        told("GATELOG_FUZZ_SEED")
            .or_else(|| told("GATELOG_TEST_SEED"))
            .filter(|seed| *seed != 0)
            .unwrap_or(0x9e37_79b9_7f4a_7c15),
    );
    let runs = told("GATELOG_FUZZ_RUNS").unwrap_or(mutations);
    for _ in 0..runs {
        let data = mutated(&corpus, &mut dice);
        if fails(&run, &data) {
            let data = shrunk(&run, data);
            let sum = data
                .iter()
                .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
            let path = folder(target).join(format!("found-{sum:016x}"));
            let kept =
                fs::write(&path, &data).map_or_else(|error| format!("not kept: {error}"), |()| "kept".to_owned());
            panic!("{} ({kept}, {} bytes): see above; once more: ./dev fuzz --replay {0}", path.display(), data.len());
        }
    }
    println!("{target}: {} entries of the corpus and {runs} inputs made of them", corpus.len());
}

#[allow(dead_code, reason = "not every corpus has seeds that are made here")]
/// Whether seeds are to be made anew; otherwise the corpus stays as it is.
pub fn seeds_wanted() -> bool {
    std::env::var_os("GATELOG_FUZZ_SEEDS").is_some()
}

#[allow(dead_code, reason = "not every corpus has seeds that are made here")]
/// Puts a seed into a target's corpus.
pub fn seed(target: &str, name: &str, parts: &[&[u8]]) {
    let folder = folder(target);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("seed-{name}")), parts.concat()).unwrap();
}
