//! Making a run that failed short: turns, faults and wishes are left out as long as it fails in the same way.

use crate::script::{Script, Turn};
use crate::{Outcome, play};

/// A run that failed, made short.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// What to play.
    pub script: Script,
    /// How it ends.
    pub outcome: Outcome,
    /// How many runs it took.
    pub tries: u32,
}

impl Shrunk {
    /// The script as text, with what happens in each turn.
    pub fn text(&self) -> String {
        let Some((problem, told)) = &self.outcome.failure else { return self.script.to_text("", &[]) };
        let lines = self.outcome.turns.iter().map(|turn| turn.lines).chain(std::iter::repeat(0));
        let turns = self.script.turns.iter().cloned().zip(lines);
        let turns = turns.map(|(turn, lines)| Turn { lines, ..turn }).collect();
        Script { turns, ..self.script.clone() }.to_text(problem, told)
    }
}

/// What a problem is about, whatever the ids and numbers in it.
pub fn kind_of(problem: &str) -> String {
    let problem = problem.split("there is left:").next().unwrap_or_default();
    let word = |word: &str| {
        let is_name = word.bytes().any(|byte| byte.is_ascii_digit());
        if is_name { "#".to_owned() } else { word.to_owned() }
    };
    problem.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

struct Shrinking {
    script: Script,
    kind: String,
    tries: u32,
    budget: u32,
}

/// Makes a failed run short, in at most so many runs. `None` if it did not fail, or does not fail again.
pub fn shrink(script: &Script, failed: &Outcome, budget: u32) -> Option<Shrunk> {
    let (problem, _) = failed.failure.as_ref()?;
    let script = Script { turns: failed.turns.clone(), ..script.clone() };
    let mut shrinking = Shrinking { script, kind: kind_of(problem), tries: 0, budget };
    let all = shrinking.script.turns.clone();
    if !shrinking.still(all) {
        return None;
    }
    loop {
        let before = shrinking.script.turns.clone();
        shrinking.leave_out_turns();
        shrinking.leave_out(|turn| std::mem::take(&mut turn.faults).is_empty());
        shrinking.leave_out(|turn| std::mem::take(&mut turn.wishes).is_empty());
        shrinking.leave_out(|turn| std::mem::take(&mut turn.schedule).is_empty());
        if shrinking.script.turns == before || shrinking.is_over() {
            break;
        }
    }
    let script = shrinking.script;
    let outcome = play(&script, true);
    outcome.failure.is_some().then_some(Shrunk { script, outcome, tries: shrinking.tries })
}

impl Shrinking {
    fn is_over(&self) -> bool {
        self.tries >= self.budget
    }

    /// Takes these turns if the run still fails with them, be it while the world comes to rest.
    fn still(&mut self, turns: Vec<Turn>) -> bool {
        self.tries += 1;
        let tried = Script { turns, ..self.script.clone() };
        let outcome = play(&tried, false);
        let fails = outcome.failure.as_ref().is_some_and(|(problem, _)| kind_of(problem) == self.kind);
        if fails {
            self.script = tried;
            // It may fail before all turns were played.
            self.script.turns.truncate(outcome.turns.len());
        }
        fails
    }

    /// Large pieces first, from the end to the beginning.
    fn leave_out_turns(&mut self) {
        let mut size = self.script.turns.len().div_ceil(2);
        while size > 0 {
            let mut end = self.script.turns.len();
            while end > 0 && !self.is_over() {
                let start = end.saturating_sub(size);
                let turns = &self.script.turns;
                let without = turns.iter().take(start).chain(turns.iter().skip(end)).cloned().collect();
                self.still(without);
                end = start.min(self.script.turns.len());
            }
            size /= 2;
        }
    }

    /// Leaves out a part of each turn, first of many turns together. `take` says whether there was nothing to take.
    fn leave_out(&mut self, take: fn(&mut Turn) -> bool) {
        let mut size = self.script.turns.len();
        while size > 0 {
            let mut end = self.script.turns.len();
            while end > 0 && !self.is_over() {
                let start = end.saturating_sub(size);
                let mut turns = self.script.turns.clone();
                // Of each of them, also after the first from which something was taken.
                let mut taken = false;
                for turn in turns.iter_mut().take(end).skip(start) {
                    taken |= !take(turn);
                }
                if taken {
                    self.still(turns);
                }
                end = start.min(self.script.turns.len());
            }
            size /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::kind_of;

    #[test]
    fn a_problem_is_the_same_whatever_its_ids_are() {
        let one = kind_of("item 3f0a is to be merged before item 77ab, which is not failing");
        assert_eq!(one, kind_of("item 1 is to be merged before item 2, which is not failing"));
        assert_ne!(one, kind_of("item 1 never left"));
        assert_eq!(
            kind_of("nothing happens, and there is left: 2 items"),
            kind_of("nothing happens, and there is left: a")
        );
    }
}
