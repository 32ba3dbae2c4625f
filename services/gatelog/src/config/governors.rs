//! The keys of `[executor]` that say when no build is taken.

use serde::de::{Deserialize, Deserializer, Error};

use super::ExecutorSection;
use crate::governors::Bounds;

/// A number of 0 to a million with three digits behind the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal(u32);

impl Decimal {
    /// A whole number.
    pub const fn whole(number: u32) -> Decimal {
        Decimal(number.saturating_mul(1000))
    }

    /// So many thousandths.
    pub const fn thousandths(number: u32) -> Decimal {
        Decimal(number)
    }

    /// Its value.
    pub fn value(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Decimal, D::Error> {
        let number = f64::deserialize(deserializer)?;
        if !(0.0..=1_000_000.0).contains(&number) {
            return Err(D::Error::custom(format!("{number} is no number of 0 to 1000000")));
        }
        Ok(Decimal((number * 1000.0).round() as u32))
    }
}

impl ExecutorSection {
    /// Where builds are taken no more.
    pub fn bounds(&self) -> Bounds {
        Bounds {
            hdd: self.min_avail_hdd.value(),
            inodes: self.min_avail_inodes.value(),
            mem: self.min_avail_mem.value(),
            load: self.load_multiplier.value(),
        }
    }

    /// How many builds may be set up at once.
    pub fn starting_builds(&self) -> usize {
        let most = tokio::sync::Semaphore::MAX_PERMITS;
        match self.max_starting_builds {
            None => gatelog_room::measure::processors().saturating_mul(2),
            Some(0) => most,
            Some(number) => usize::try_from(number).unwrap_or(most),
        }
    }

    /// What of these does not go together, and the cure.
    pub(super) fn ungovernable(&self) -> Option<(String, String)> {
        let percents = [
            ("min-avail-hdd", self.min_avail_hdd),
            ("min-avail-inodes", self.min_avail_inodes),
            ("min-avail-mem", self.min_avail_mem),
        ];
        let (key, value) = percents.into_iter().find(|(_, value)| value.value() >= 100.0)?;
        Some((
            format!("{key} = {} under [executor] would let no build begin", value.value()),
            "set it to how many hundredths must be free, such as 5, or to 0: then nobody looks".to_owned(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::SiteConfig;
    use super::super::tests::said;

    #[test]
    fn governors_are_those_of_zuul_unless_the_site_says_otherwise() {
        let read = |text: &str| toml::from_str::<SiteConfig>(&format!("[executor]\n{text}\n")).unwrap().executor;
        let bounds = read("").bounds();
        assert_eq!((bounds.hdd, bounds.inodes, bounds.mem, bounds.load), (5.0, 5.0, 5.0, 2.5));
        assert!(read("").starting_builds() >= 2);
        let set = read("min-avail-hdd = 2.5\nmin-avail-mem = 0\nload-multiplier = 10\nmax-starting-builds = 3");
        assert_eq!((set.bounds().hdd, set.bounds().mem, set.bounds().load), (2.5, 0.0, 10.0));
        assert_eq!(set.starting_builds(), 3);
        for (line, expected) in [
            ("min-avail-hdd = 100", "min-avail-hdd = 100 under [executor] would let no build begin"),
            ("load-multiplier = -1", "no number of 0 to 1000000"),
            ("min_avail_hdd = 5", "min-avail-hdd"),
        ] {
            let error = said(&format!("[executor]\n{line}\n"));
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
