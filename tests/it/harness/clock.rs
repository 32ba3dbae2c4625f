//! A clock that a test sets: the time of day as a server sees it, by a library that is loaded before libc.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use super::{Server, Site, eventually, host};

const SOURCE: &str = include_str!("clock.c");

/// The clock of a site's servers. It goes on by itself.
pub struct Clock {
    library: PathBuf,
    shift: File,
    path: PathBuf,
}

impl Clock {
    /// One that is right; `None`, and why, where this host cannot make it.
    pub fn new(test: &str, site: &Site) -> Option<Clock> {
        let (source, library) = (site.path().join("clock.c"), site.path().join("clock.so"));
        std::fs::write(&source, SOURCE).unwrap();
        let mut compiler = Command::new("cc");
        let made = compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).output();
        let lacks = match made {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(format!("cc: {}", String::from_utf8_lossy(&output.stderr).trim())),
            Err(error) => Some(format!("no C compiler (cc): {error}")),
        };
        if let Some(lacks) = lacks {
            println!("SKIPPED {test}: {lacks}");
            return None;
        }
        let path = site.path().join("clock.shift");
        let shift = OpenOptions::new().create(true).truncate(true).write(true).open(&path).unwrap();
        shift.set_len(4096).unwrap();
        let clock = Clock { library, shift, path };
        // A server that is linked in another way does not see it.
        let seen = |seconds: i64| {
            clock.set(seconds);
            let date = clock.command("date").arg("+%s").output().unwrap();
            String::from_utf8_lossy(&date.stdout).trim().parse::<i64>().unwrap()
        };
        assert!(seen(864_000) - seen(0) > 800_000, "the library does nothing");
        Some(clock)
    }

    /// Sets it by so many seconds from what is right.
    pub fn set(&self, seconds: i64) {
        self.shift.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", &self.library).env("CLOCK_SHIFT", &self.path);
        command
    }

    /// Starts a server that goes by it, and waits until it answers.
    pub fn start(&self, site: &Site) -> Server {
        let mut server = Server::launch_by(self.command(host::binary()), site.path(), &[]);
        eventually("the server answers", || server.is_ready().then_some(()));
        server
    }
}
