//! Counts in fractions.

pub fn half(narrow: f32) -> f64 {
    f64::from(narrow) / 2.0
}
