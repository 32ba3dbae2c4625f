//! The names of rand that are banned, and nothing behind them.

pub fn rng() {}

pub fn random() {}
