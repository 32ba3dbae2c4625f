//! Waits for time to pass.

pub fn waits() {
    std::thread::sleep(std::time::Duration::ZERO);
    std::thread::park_timeout(std::time::Duration::ZERO);
    std::thread::park();
}
