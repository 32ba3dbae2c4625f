//! Draws lots.

pub fn draws() {
    getrandom::fill(&mut [0]);
    getrandom::u32();
    getrandom::u64();
    rand::rng();
    rand::random();
}

pub fn hashes_by_chance(_state: std::hash::RandomState) -> std::hash::DefaultHasher {
    std::hash::DefaultHasher::new()
}
