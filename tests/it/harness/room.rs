//! A file system of few megabytes below a site, seen only by the processes that are started in it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Server, Site, eventually, host};

/// A mount namespace with a small file system on one directory of a site. Gone when dropped.
pub struct Room<'s> {
    site: &'s Site,
    directory: PathBuf,
    holder: Child,
    enter: Vec<String>,
}

/// No room is larger, in KiB.
const LARGEST_KIB: u64 = 1 << 20;
/// What a file that fills the room is called.
const FILLER: &str = "filler";

impl Room<'_> {
    /// Mounts so many megabytes on a directory of a site; `None`, and why, where this host does not
    /// allow it. Tried without privileges first.
    pub fn new<'s>(test: &str, site: &'s Site, directory: &str, megabytes: u32) -> Option<Room<'s>> {
        Room::shared(test, site, &[directory], &format!("size={megabytes}m"))
    }

    /// Mounts one small file system, with these options, on several directories of a site: what fills one of them fills
    /// all.
    pub fn shared<'s>(test: &str, site: &'s Site, directories: &[&str], options: &str) -> Option<Room<'s>> {
        let paths: Vec<PathBuf> = directories.iter().map(|directory| site.path().join(directory)).collect();
        paths.iter().for_each(|path| std::fs::create_dir_all(path).unwrap());
        // The first has all of it, and for each of the others a directory that is shown there.
        let script = "mount -t tmpfs -o \"$1\" tmpfs \"$2\" && first=\"$2\" && shift 2 && for place; do \
             part=\"$first/$(basename \"$place\")\" && mkdir \"$part\" && mount --bind \"$part\" \"$place\" || exit 1; \
             done && echo mounted && exec sleep 100000";
        let directory = directories[0];
        for (unshare, enter) in [("-Urm", &["-U", "-m", "--preserve-credentials"][..]), ("-m", &["-m"])] {
            let mut holder = Command::new("unshare")
                .args([unshare, "sh", "-c", script, "sh", options])
                .args(&paths)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .ok()?;
            let mut said = String::new();
            let mut out = std::io::BufReader::new(holder.stdout.take().unwrap());
            if std::io::BufRead::read_line(&mut out, &mut said).is_ok() && said.trim() == "mounted" {
                let target = holder.id().to_string();
                let mut words = vec!["-t".to_owned(), target];
                words.extend(enter.iter().map(|word| (*word).to_owned()));
                let room = Room { site, directory: PathBuf::from(directory), holder, enter: words };
                // A namespace in which builds cannot run is of no use.
                let inside = room.command("bwrap").args(["--ro-bind", "/", "/", "--unshare-pid", "true"]).output();
                if inside.is_ok_and(|output| output.status.success()) {
                    return Some(room);
                }
                continue;
            }
            let _ = holder.kill();
            let _ = holder.wait();
        }
        println!("SKIPPED {test}: this host lets nobody mount a small file system (unshare -Urm, or root)");
        None
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(&self.enter).arg(program);
        command
    }

    /// Starts the site's server where the small file system is seen, and does not wait for it.
    pub fn launch(&self) -> Server {
        Server::launch_by(self.command(host::binary().to_str().unwrap()), self.site.path(), &[])
    }

    /// Starts the server and waits until it answers.
    pub fn start(&self) -> Server {
        let mut server = self.launch();
        eventually("the server answers", || server.is_ready().then_some(()));
        server
    }

    /// Runs the command line where the small file system is seen.
    pub fn gatelog(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = self.command(host::binary().to_str().unwrap());
        let output = command.args(arguments).env("GATELOG_DIR", self.site.path()).output().unwrap();
        (
            output.status.code().unwrap_or(-1),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    }

    /// The records of a stream, as text.
    pub fn records(&self, stream: &str) -> String {
        let (code, out, err) = self.gatelog(&["log", "cat", stream, "--json"]);
        assert_eq!(code, 0, "{err}");
        out
    }

    /// The directory as it is seen from here.
    pub fn path(&self) -> PathBuf {
        let site = self.site.path().strip_prefix("/").unwrap();
        Path::new("/proc").join(self.holder.id().to_string()).join("root").join(site).join(&self.directory)
    }

    /// Runs a program where the small file system is seen; whether it ended well.
    pub fn run(&self, program: &str, arguments: &[&str]) -> bool {
        self.command(program).args(arguments).status().is_ok_and(|status| status.success())
    }

    /// Fills it but for so many KiB, or less where the site itself writes meanwhile.
    pub fn fill_but(&self, kib: u64) {
        // Seen from outside, `df` takes the path for one of this host's own file systems.
        let place = self.site.path().join(&self.directory);
        let found = self.command("df").args(["--output=avail", "-k"]).arg(place).output().unwrap();
        let text = String::from_utf8_lossy(&found.stdout).into_owned();
        let free = text.lines().nth(1).unwrap().trim().parse::<u64>().unwrap();
        assert!(free < LARGEST_KIB, "{free} KiB are free: this is not the small file system");
        let _ =
            std::fs::write(self.path().join(FILLER), vec![0; usize::try_from(free.saturating_sub(kib) << 10).unwrap()]);
    }

    /// Makes empty files until there can be no more.
    pub fn use_up_inodes(&self) {
        let place = self.path().join(FILLER);
        std::fs::create_dir(&place).unwrap();
        let mut number = 0;
        while std::fs::write(place.join(number.to_string()), "").is_ok() {
            number += 1;
        }
    }

    /// Fills it to the last byte.
    pub fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(self.path().join(FILLER)).unwrap();
        for size in [1 << 20, 4096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    /// Makes room again.
    pub fn empty(&self) {
        let filler = self.path().join(FILLER);
        if filler.is_dir() { std::fs::remove_dir_all(filler) } else { std::fs::remove_file(filler) }.unwrap();
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
