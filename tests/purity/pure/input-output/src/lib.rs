//! Reads and prints.

pub fn reads_and_prints() -> std::io::Result<String> {
    let _ = (std::io::stdout(), std::io::stderr());
    std::io::read_to_string(std::io::stdin())
}
