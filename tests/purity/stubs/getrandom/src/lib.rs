//! The names of getrandom that are banned, and nothing behind them.

pub fn fill(_bytes: &mut [u8]) {}

pub fn u32() {}

pub fn u64() {}
