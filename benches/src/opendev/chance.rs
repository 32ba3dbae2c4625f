//! Numbers drawn: always the same ones.

/// Knuth's linear congruential generator.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// One that begins here.
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// From 0 up to, but not with, `sides`.
    pub fn below(&mut self, sides: u64) -> u64 {
        self.next() % sides.max(1)
    }

    /// Whether what happens to so many of a thousand happens.
    pub fn happens(&mut self, of_thousand: u64) -> bool {
        self.below(1_000) < of_thousand
    }

    /// A time to wait for something that comes after `mean` on the whole, at any moment as likely as at any other.
    pub fn wait(&mut self, mean: f64) -> f64 {
        let drawn = (self.next() as f64 + 1.0) / f64::from(1_u32 << 31);
        -drawn.ln() * mean
    }

    /// Which of `count` things is taken, where the first are taken far more often than the last.
    pub fn lopsided(&mut self, count: usize) -> usize {
        let share = self.next() as f64 / f64::from(1_u32 << 31);
        // Half of all draws fall among the first eighth.
        ((share * share * share * count as f64) as usize).min(count.saturating_sub(1))
    }
}
