//! Starts and ends processes.

pub fn starts_a_process() -> std::io::Result<std::process::Child> {
    if std::process::id() == 0 {
        std::process::exit(1);
    }
    if std::process::id() == 1 {
        std::process::abort();
    }
    std::process::Command::new("true").spawn()
}
