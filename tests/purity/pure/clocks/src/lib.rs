//! Asks a clock.

pub fn asks_a_clock() {
    let start = std::time::Instant::now();
    let _ = start.elapsed();
    let _ = std::time::SystemTime::now().elapsed();
}
