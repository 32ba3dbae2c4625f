//! Sizes as people write them: `512M`, `4 GiB`, `none`.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize};

/// A number of bytes. Reads `1048576`, `512K`, `64 MiB`, `1.5G`; all units are powers of 1024.
/// Prints the largest unit that is exact, or else one digit behind the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ByteSize(pub u64);

/// A limit that may be switched off: a size, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeLimit(pub Option<u64>);

/// A limit on a count that may be switched off: a number, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountLimit(pub Option<u64>);

/// Why a text is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no size: write a number with a unit, such as \"512M\", \"4G\" or \"1.5 GiB\"")]
pub struct NoSize {
    text: String,
}

const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

impl FromStr for ByteSize {
    type Err = NoSize;

    fn from_str(text: &str) -> Result<ByteSize, NoSize> {
        let refuse = || NoSize { text: text.chars().take(40).collect() };
        let trimmed = text.trim();
        let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(end);
        let shift = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(refuse()),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.len() > 6 {
            return Err(refuse());
        }
        let unit = 1_u64 << shift;
        let whole: u64 = whole.parse().map_err(|_| refuse())?;
        let mut bytes = whole.checked_mul(unit).ok_or_else(refuse)?;
        if !fraction.is_empty() {
            let part: u64 = fraction.parse().map_err(|_| refuse())?;
            let digits = u32::try_from(fraction.len()).map_err(|_| refuse())?;
            let part = u128::from(part) * u128::from(unit) / u128::from(10_u64.pow(digits));
            bytes = bytes.checked_add(u64::try_from(part).map_err(|_| refuse())?).ok_or_else(refuse)?;
        }
        Ok(ByteSize(bytes))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut scale, mut unit) = (1_u64, "B");
        for (power, name) in (0_u32..).zip(UNITS) {
            if self.0 >= 1 << (10 * power) {
                (scale, unit) = (1 << (10 * power), name);
            }
        }
        if self.0.is_multiple_of(scale) {
            return write!(f, "{} {unit}", self.0 / scale);
        }
        let tenths = u128::from(self.0) * 10 / u128::from(scale);
        write!(f, "{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// Takes a number or a text.
struct Either<T>(fn(Said<'_>) -> Result<T, String>);

/// What stood in the file.
enum Said<'a> {
    Number(u64),
    Text(&'a str),
}

impl<T> Visitor<'_> for Either<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or a text such as \"4G\"")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        (self.0)(Said::Number(number)).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::custom(format!("{number} is below zero; to switch a limit off write \"none\""))),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.0)(Said::Text(text)).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ByteSize, D::Error> {
        deserializer.deserialize_any(Either(|said| match said {
            Said::Number(bytes) => Ok(ByteSize(bytes)),
            Said::Text(text) => text.parse().map_err(|error: NoSize| error.to_string()),
        }))
    }
}

impl<'de> Deserialize<'de> for SizeLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SizeLimit, D::Error> {
        deserializer.deserialize_any(Either(|said| match said {
            Said::Number(0) => Err("a limit of 0 lets nothing run; to switch it off write \"none\"".to_owned()),
            Said::Number(bytes) => Ok(SizeLimit(Some(bytes))),
            Said::Text("none") => Ok(SizeLimit(None)),
            Said::Text(text) => match text.parse::<ByteSize>() {
                Ok(ByteSize(0)) => Err("a limit of 0 lets nothing run; to switch it off write \"none\"".to_owned()),
                Ok(size) => Ok(SizeLimit(Some(size.0))),
                Err(error) => Err(format!("{error}, or \"none\" for no limit")),
            },
        }))
    }
}

impl<'de> Deserialize<'de> for CountLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CountLimit, D::Error> {
        deserializer.deserialize_any(Either(|said| match said {
            Said::Number(0) => Err("a limit of 0 lets nothing run; to switch it off write \"none\"".to_owned()),
            Said::Number(count) => Ok(CountLimit(Some(count))),
            Said::Text("none") => Ok(CountLimit(None)),
            Said::Text(text) => Err(format!("{text:?} is no number; write one without quotes, or \"none\"")),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them_and_printed_short() {
        for (text, bytes, printed) in [
            ("0", 0, "0 B"),
            ("1023", 1023, "1023 B"),
            ("1536", 1536, "1.5 KiB"),
            ("512K", 512 << 10, "512 KiB"),
            ("64 MiB", 64 << 20, "64 MiB"),
            ("4g", 4 << 30, "4 GiB"),
            ("1.5 GB", 3 << 29, "1.5 GiB"),
            ("10T", 10 << 40, "10 TiB"),
            ("18446744073709551615", u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
            assert_eq!(ByteSize(bytes).to_string(), printed);
        }
        for wrong in ["", "M", "4 X", "-1", "1..5G", "1.G", ".5G", "18446744073709551616", "20000000T", "1e3"] {
            let error = wrong.parse::<ByteSize>().unwrap_err().to_string();
            assert!(error.contains("is no size") && error.contains("512M"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_limit_can_be_switched_off_but_not_by_accident() {
        let size = |json: &str| serde_json::from_str::<SizeLimit>(json).map_err(|error| error.to_string());
        assert_eq!(size("\"2G\""), Ok(SizeLimit(Some(2 << 30))));
        assert_eq!(size("4096"), Ok(SizeLimit(Some(4096))));
        assert_eq!(size("\"none\""), Ok(SizeLimit(None)));
        for wrong in ["0", "\"0\"", "-1", "\"off\""] {
            assert!(size(wrong).unwrap_err().contains("\"none\""), "{wrong}: {:?}", size(wrong));
        }
        let count = |json: &str| serde_json::from_str::<CountLimit>(json).map_err(|error| error.to_string());
        assert_eq!((count("7"), count("\"none\"")), (Ok(CountLimit(Some(7))), Ok(CountLimit(None))));
        assert!(count("\"7\"").unwrap_err().contains("without quotes"));
        assert!(count("0").unwrap_err().contains("\"none\""));
    }
}
