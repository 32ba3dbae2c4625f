//! Random mutations of an export: each is found. `GATELOG_MUTATIONS=100000` runs the long form.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gatelog_audit::Selection;

use crate::desk::*;

/// Chance that is the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below.max(1) as u64) as usize
    }

    fn pair(&mut self, below: usize) -> (usize, usize) {
        let (one, two) = (self.roll(below), self.roll(below));
        (one.min(two), one.max(two))
    }
}

const WAYS: usize = 9;

/// One mutation.
fn mutated(text: &[u8], way: usize, dice: &mut Dice) -> Vec<u8> {
    let mut out = text.to_vec();
    let lines: Vec<Vec<u8>> = text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    match way {
        // Bits.
        0 => out[dice.roll(text.len())] ^= 1 << dice.roll(8),
        1 => (0..=dice.roll(8)).for_each(|_| out[dice.roll(text.len())] ^= 1 << dice.roll(8)),
        // Cuts: the end, the middle.
        2 => out.truncate(dice.roll(text.len())),
        3 => {
            let (from, to) = dice.pair(text.len());
            out.drain(from..=to);
        }
        // Lines: exchanged, twice, left out.
        4 => {
            let (one, two) = dice.pair(lines.len());
            let mut lines = lines;
            lines.swap(one, two);
            out = lines.concat();
        }
        5 => {
            let mut lines = lines;
            let line = lines[dice.roll(lines.len())].clone();
            lines.insert(dice.roll(lines.len() + 1), line);
            out = lines.concat();
        }
        // Bytes from somewhere else, or of any value, put in.
        6 => {
            let (from, to) = dice.pair(text.len());
            let piece = text[from..to.min(from + 200)].to_vec();
            let at = dice.roll(text.len() + 1);
            out.splice(at..at, piece);
        }
        7 => {
            let piece: Vec<u8> = (0..=dice.roll(9)).map(|_| dice.roll(256) as u8).collect();
            let at = dice.roll(text.len() + 1);
            out.splice(at..at, piece);
        }
        // A field: a word of a line takes the place of another line's; inside of base64, too, with a checksum that fits.
        _ => {
            let mut lines = lines;
            let (one, two) = (dice.roll(lines.len()), dice.roll(lines.len()));
            let words = |line: &[u8]| -> Vec<String> {
                String::from_utf8(line.to_vec()).unwrap().trim_end().split(' ').map(str::to_owned).collect()
            };
            let (mut into, from) = (words(&lines[one]), words(&lines[two]));
            if into[0] == "event" && dice.roll(2) == 0 {
                let mut bytes = STANDARD.decode(&into[1]).unwrap();
                let checked = bytes.len() - 36;
                bytes[dice.roll(checked)] ^= 1 << dice.roll(8);
                let crc = crc32c(&bytes[..checked]);
                bytes[checked..checked + 4].copy_from_slice(&crc.to_le_bytes());
                into[1] = STANDARD.encode(bytes);
            } else {
                let at = dice.roll(into.len());
                into[at].clone_from(&from[dice.roll(from.len())]);
            }
            lines[one] = format!("{}\n", into.join(" ")).into_bytes();
            out = lines.concat();
        }
    }
    out
}

/// CRC-32C, bit by bit: a forger would have it right.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
    })
}

/// How many mutations are tried.
#[expect(clippy::disallowed_methods, reason = "a test is told by its environment how long it may take")]
fn wanted() -> usize {
    std::env::var("GATELOG_MUTATIONS").map_or(3_000, |count| count.parse().unwrap())
}

#[test]
fn whatever_is_changed_in_an_export_is_found() {
    let count = wanted();
    let log = log(&story(24));
    let published = [published(&log, 6), published(&log, 20)];
    let exports = [
        exported(&log, &all(), &published),
        exported(&log, &of_tenant("tools"), &published[..1]),
        exported(&log, &Selection { actor: Some(ANN), ..events(9, 17) }, &published),
    ];
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let (mut found, mut unchanged) = ([0_usize; WAYS], 0);
    let mut by_signature_alone = 0;
    while found.iter().sum::<usize>() < count {
        let text = &exports[dice.roll(exports.len())];
        let way = dice.roll(WAYS);
        let other = mutated(text, way, &mut dice);
        if other == *text {
            unchanged += 1;
            continue;
        }
        match verified(&other, &[]) {
            Ok(_) => panic!("a mutation was not found:\n{}", String::from_utf8_lossy(&other)),
            Err(wrong) => {
                assert!(wrong.line > 0 && !wrong.to_string().is_empty());
                by_signature_alone += usize::from(wrong.fault == gatelog_audit::Fault::Signature);
                found[way] += 1;
            }
        }
    }
    assert!(found.iter().all(|found| *found > 0), "every way was tried: {found:?}");
    println!(
        "{} mutations, all found ({found:?} by way; {by_signature_alone} by the export's signature alone; {unchanged} \
         changed nothing and do not count)",
        found.iter().sum::<usize>()
    );
}
