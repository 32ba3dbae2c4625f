//! Chance from a seed: the same on every machine, and independent for each purpose, so that one more
//! draw in the workload does not change what the scheduler does.

use std::collections::VecDeque;

/// A stream of numbers (xoshiro256**, seeded by splitmix64; both after Blackman's and Vigna's
/// published algorithms), or numbers that were given.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
    /// What is drawn instead, while there is something given.
    given: Option<VecDeque<u32>>,
    /// What was drawn since it was last asked for, if anybody wants to know.
    drawn: Option<Vec<u32>>,
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Random {
    /// The stream of a seed for one purpose.
    pub fn new(seed: u64, purpose: &str) -> Random {
        let salt = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        let mut state = seed ^ salt;
        let state = [splitmix(&mut state), splitmix(&mut state), splitmix(&mut state), splitmix(&mut state)];
        Random { state, given: None, drawn: None }
    }

    /// The same, and every number is written down.
    pub fn recorded(seed: u64, purpose: &str) -> Random {
        Random { drawn: Some(Vec::new()), ..Random::new(seed, purpose) }
    }

    /// From now on these numbers are drawn, and when there are no more, the largest there is: by the world's custom,
    /// that is the one by which nothing goes wrong and nobody wants anything.
    pub fn follow(&mut self, given: &[u32]) {
        self.given = Some(given.iter().copied().collect());
    }

    /// What was drawn since this was asked last.
    pub fn drawn(&mut self) -> Vec<u32> {
        self.drawn.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The next number. It has 32 bits, above 32 that are 0.
    pub fn draw(&mut self) -> u64 {
        let drawn = match &mut self.given {
            Some(given) => given.pop_front().unwrap_or(u32::MAX),
            None => (self.next() >> 32) as u32,
        };
        self.drawn.iter_mut().for_each(|kept| kept.push(drawn));
        u64::from(drawn) << 32
    }

    fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let drawn = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (c, d) = (c ^ a, d ^ b);
        let (b_new, a_new) = (b ^ c, a ^ d);
        self.state = [a_new, b_new, c ^ (b << 17), d.rotate_left(45)];
        drawn
    }

    /// A number below `limit`; 0 when there is none.
    pub fn below(&mut self, limit: u64) -> u64 {
        let wide = u128::from(self.draw()) * u128::from(limit);
        (wide >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low.saturating_add(self.below(high.saturating_sub(low).max(0) as u64 + 1) as i64)
    }

    /// True so many times in a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// One of a slice; none of an empty one.
    pub fn pick<'t, T>(&mut self, among: &'t [T]) -> Option<&'t T> {
        among.get(self.below(among.len() as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_each_purpose_others() {
        let draws = |seed, purpose| {
            let mut random = Random::new(seed, purpose);
            (0..8).map(|_| random.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draws(7, "faults"), draws(7, "faults"));
        assert_ne!(draws(7, "faults"), draws(7, "work"));
        assert_ne!(draws(7, "faults"), draws(8, "faults"));
    }

    #[test]
    fn what_was_drawn_can_be_drawn_again_and_afterwards_nothing_happens() {
        let mut first = Random::recorded(7, "faults");
        let numbers = [first.below(200), first.below(3), first.below(1_000_000)];
        let drawn = first.drawn();
        assert_eq!((drawn.len(), first.drawn()), (3, Vec::new()));
        let mut again = Random::new(8, "other");
        again.follow(&drawn);
        assert_eq!([again.below(200), again.below(3), again.below(1_000_000)], numbers);
        assert_eq!((again.below(200), again.chance(999), again.between(-3, 3)), (199, false, 3));
    }

    #[test]
    fn numbers_stay_within_their_limits_and_reach_them() {
        let mut random = Random::new(1, "limits");
        let seen: std::collections::BTreeSet<i64> = (0..1_000).map(|_| random.between(-2, 2)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [-2, -1, 0, 1, 2]);
        assert_eq!(random.below(0), 0);
        assert!((0..1_000).all(|_| !random.chance(0) && random.chance(1_000)));
        assert_eq!(random.pick::<u8>(&[]), None);
    }
}
