//! Changes that come in at a rate, and the highest rate that is held.

use std::time::{Duration, Instant};

use gatelog_benches::Failure;

use crate::forge::Simulated;
use crate::pages::Pages;

/// The first rate, in changes a second.
const FIRST: f64 = 4.0;
/// How much higher the next rate is.
const FACTOR: f64 = 1.6;
/// How long changes may take to come to their end.
const PATIENCE: Duration = Duration::from_secs(300);
/// What is under way at most where the lag is flat: as many changes as come in over so many seconds.
const DEEPEST: f64 = 4.0;

/// Changes under way, and what has become of them.
pub struct Load<'a> {
    forge: &'a mut Simulated,
    pages: &'a Pages,
    proposed: usize,
    /// Items that had left before the first of these changes.
    before: usize,
}

/// What came of a rate.
pub struct Tried {
    /// Whether no more were under way in the end than in the middle.
    pub flat: bool,
    /// How many changes were under way in the end, on the average.
    pub under_way: f64,
}

impl<'a> Load<'a> {
    /// Nothing yet.
    pub fn new(forge: &'a mut Simulated, pages: &'a Pages) -> Load<'a> {
        let before = pages.count("item-dequeued");
        Load { forge, pages, proposed: 0, before }
    }

    /// Changes proposed whose items have not left.
    fn under_way(&self) -> usize {
        (self.proposed + self.before).saturating_sub(self.pages.count("item-dequeued"))
    }

    /// Proposes so many a second for a while.
    pub fn propose(&mut self, rate: f64, lasts: Duration) -> Result<Tried, Failure> {
        let (began, before) = (Instant::now(), self.proposed);
        let (mut halves, mut looked) = ([Vec::new(), Vec::new()], Duration::ZERO);
        while began.elapsed() < lasts {
            let due = (began.elapsed().as_secs_f64() * rate) as usize;
            while self.proposed - before < due {
                self.forge.propose_quick()?;
                self.proposed += 1;
            }
            // The first fifth fills the way.
            if began.elapsed() >= lasts / 5 && began.elapsed() - looked >= Duration::from_millis(100) {
                looked = began.elapsed();
                let half = usize::from(looked >= lasts * 3 / 5);
                if let Some(half) = halves.get_mut(half) {
                    half.push(self.under_way() as f64);
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let [first, second] = halves.map(|half| half.iter().sum::<f64>() / half.len().max(1) as f64);
        // Deep is no flat lag, however slowly it grows.
        Ok(Tried { flat: second <= first * 1.25 + 3.0 && second <= rate * DEEPEST, under_way: second })
    }

    /// Waits until nothing is under way.
    pub fn drain(&self) -> Result<(), Failure> {
        let began = Instant::now();
        while self.under_way() > 0 {
            if began.elapsed() > PATIENCE {
                return Err(format!("{} changes never come to an end", self.under_way()).into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The highest rate that is held for a while: more and more until it is not, then once between the last two.
    /// Tells each.
    pub fn highest(&mut self, lasts: Duration, mut tell: impl FnMut(f64, &Tried)) -> Result<f64, Failure> {
        let (mut rate, mut held, mut between) = (FIRST, 0.0, false);
        loop {
            let tried = self.propose(rate, lasts)?;
            tell(rate, &tried);
            self.drain()?;
            if tried.flat {
                held = rate;
            }
            if between {
                break;
            }
            if tried.flat {
                rate *= FACTOR;
            } else {
                (rate, between) = (rate / FACTOR.sqrt(), true);
            }
        }
        if held == 0.0 { Err("not even the lowest rate is held".into()) } else { Ok(held) }
    }
}
