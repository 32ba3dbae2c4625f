//! What was drawn in a run, turn by turn: to play it again, and to leave out what does not matter.
//!
//! A script is text, one turn a line: what the scheduler drew, which faults, what people wished, each as numbers in
//! hexadecimal digits. A turn that draws more than is written draws the largest number there is, by which nothing goes
//! wrong and nobody wants anything. A script belongs to the code it was made with: another may make something else of
//! the same numbers.

use std::fmt::Write;

use crate::marked::Plant;

/// How a script begins.
const HEAD: &str = "gatelog-world script 1";

/// The longest script that is read, in turns.
const MAX_TURNS: usize = 100_000;

/// The most numbers of one turn.
const MAX_DRAWS: usize = 100_000;

/// One turn of the world: what was drawn in it, for each purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// By the scheduler.
    pub schedule: Vec<u32>,
    /// For faults.
    pub faults: Vec<u32>,
    /// For what people want.
    pub wishes: Vec<u32>,
    /// How many lines of the trace it made; no part of the script.
    pub lines: usize,
}

/// A run, written down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// The seed: what the world is like before anything happens, and how it comes to rest.
    pub seed: u64,
    /// What is planted in the rules.
    pub plant: Option<Plant>,
    /// What happens.
    pub turns: Vec<Turn>,
}

impl Script {
    /// The script as text; what is told of each turn stands below it.
    pub fn to_text(&self, problem: &str, told: &[String]) -> String {
        let mut text = format!("{HEAD}\n# {}\nseed {}\n", problem.replace('\n', " "), self.seed);
        let mut told = told.iter();
        let mut put = |line: std::fmt::Arguments<'_>| {
            // Writing into a string does not fail.
            let _ = text.write_fmt(line);
        };
        if let Some(plant) = self.plant {
            put(format_args!("plant {}\n", plant.name()));
        }
        for turn in &self.turns {
            let (schedule, faults, wishes) = (numbers(&turn.schedule), numbers(&turn.faults), numbers(&turn.wishes));
            put(format_args!("turn {schedule} {faults} {wishes}\n"));
            for line in told.by_ref().take(turn.lines) {
                put(format_args!("# {}\n", line.replace('\n', " ")));
            }
        }
        told.for_each(|line| put(format_args!("# {}\n", line.replace('\n', " "))));
        text
    }

    /// Reads a script.
    ///
    /// # Errors
    /// What is wrong, and in which line.
    pub fn from_text(text: &str) -> Result<Script, String> {
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        if lines.next().map(|(_, line)| line) != Some(HEAD) {
            return Err(format!("line 1: this is no script: one begins with {HEAD:?}"));
        }
        let mut script = Script::default();
        let mut seed = None;
        for (number, line) in lines {
            let wrong = |what: &str| Err(format!("line {number}: {what}"));
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [] => {}
                [first, ..] if first.starts_with('#') => {}
                ["seed", value] => match value.parse() {
                    Ok(value) => seed = Some(value),
                    Err(_) => return wrong("the seed is no number"),
                },
                ["plant", name] => match Plant::named(name) {
                    Some(plant) => script.plant = Some(plant),
                    None => return wrong("there is no such plant"),
                },
                ["turn", ..] if script.turns.len() >= MAX_TURNS => return wrong("there are too many turns"),
                ["turn", schedule, faults, wishes] => match (parsed(schedule), parsed(faults), parsed(wishes)) {
                    (Some(schedule), Some(faults), Some(wishes)) => {
                        script.turns.push(Turn { schedule, faults, wishes, lines: 0 });
                    }
                    _ => return wrong("a turn is numbers of at most 8 hexadecimal digits with commas, or -"),
                },
                _ => return wrong("nobody understands this: there are seed, plant, turn and # for remarks"),
            }
        }
        script.seed = seed.ok_or("the script names no seed")?;
        Ok(script)
    }
}

fn numbers(drawn: &[u32]) -> String {
    if drawn.is_empty() {
        return "-".to_owned();
    }
    drawn.iter().map(|number| format!("{number:x}")).collect::<Vec<_>>().join(",")
}

fn parsed(text: &str) -> Option<Vec<u32>> {
    if text == "-" {
        return Some(Vec::new());
    }
    let one = |number: &str| match number.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        true => u32::from_str_radix(number, 16).ok(),
        false => None,
    };
    text.split(',').take(MAX_DRAWS).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_comes_back_from_its_text() {
        let script = Script {
            seed: 17,
            plant: Some(Plant::AnyStartCounts),
            turns: vec![
                Turn { schedule: vec![1, u32::MAX], faults: vec![], wishes: vec![0xabc], lines: 0 },
                Turn::default(),
            ],
        };
        let told = ["first".to_owned(), "second\nturn 1 2 3".to_owned()];
        let text = script.to_text("it broke\nseed 4", &told);
        assert_eq!(Script::from_text(&text), Ok(script));
        assert!(text.contains("# it broke seed 4\nseed 17\n"), "{text}");
    }

    #[test]
    fn what_is_no_script_is_refused_with_its_line() {
        let head = format!("{HEAD}\nseed 1\n");
        let wrong = [
            (String::new(), "line 1"),
            ("hello\n".to_owned(), "line 1"),
            (format!("{HEAD}\n"), "no seed"),
            (format!("{HEAD}\nseed x\n"), "line 2"),
            (format!("{head}turn 1 2\n"), "line 3"),
            (format!("{head}\nturn 1 2 +3\n"), "line 4"),
            (format!("{head}turn 1 2 123456789\n"), "line 3"),
            (format!("{head}plant nothing\n"), "line 3"),
        ];
        for (text, named) in wrong {
            let refused = Script::from_text(&text).unwrap_err();
            assert!(refused.contains(named), "{text:?}: {refused}");
        }
    }
}
