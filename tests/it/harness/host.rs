//! What this host has.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The gatelog binary: `GATELOG_BIN`, or the one cargo built beside this test; built if it is not there.
pub fn binary() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY
        .get_or_init(|| {
            if let Some(path) = std::env::var_os("GATELOG_BIN") {
                return path.into();
            }
            // target/<profile>/deps/it-… stands two below target/<profile>/gatelog.
            let test = std::env::current_exe().unwrap();
            let path = test.parent().unwrap().parent().unwrap().join("gatelog");
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let built = Command::new(cargo).args(["build", "--quiet", "--package", "gatelog"]).status().unwrap();
            assert!(built.success(), "the gatelog binary does not build");
            assert!(path.exists(), "{} is not there: set GATELOG_BIN", path.display());
            path
        })
        .clone()
}

/// Whether builds can run here; says why not in the line that is counted.
pub fn can_build(test: &str) -> bool {
    static LACKS: OnceLock<Option<String>> = OnceLock::new();
    match LACKS.get_or_init(lacks) {
        None => true,
        Some(lacks) => {
            println!("SKIPPED {test}: {lacks}");
            false
        }
    }
}

/// What builds need and this host lacks.
fn lacks() -> Option<String> {
    let ansible = std::env::var_os("GATELOG_ANSIBLE_PLAYBOOK").unwrap_or_else(|| "ansible-playbook".into());
    let works = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    if !works(Command::new(&ansible).arg("--version")) {
        return Some(format!("no working ansible-playbook ({})", ansible.to_string_lossy()));
    }
    if !works(Command::new("bwrap").args(["--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "true"])) {
        return Some("bubblewrap does not work on this host".to_owned());
    }
    None
}
