//! gatelog with one more domain.

fn main() -> std::process::ExitCode {
    gatelog::run(&gatelog_sample_domain::parts())
}
