//! Who a job is inside its sandbox: the user and group files it sees.
//!
//! Programs ask them for the user's home (`~` of ssh, Ansible's `ansible_user_dir`), which on this host is not the
//! build's. Each local node has a user of its own there with its directory as home, as on a machine; all have the number
//! of the one user of the sandbox. Zuul: a passwd file of that one user.

use std::fmt::Write as _;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::config::ExecutorError;
use crate::jobdir::{JobDir, write};
use crate::spec::{BuildSpec, Connection};

/// The user of tasks on the executor itself, where its number has no name on this host.
const NAMELESS: &str = "zuul";
/// The longest part of a node's name in the name of a user, which has at most 32 bytes.
const LONGEST_NODE: usize = 26;
/// The shell of every user.
const SHELL: &str = "/bin/sh";

/// The user that a local node's tasks run as: `zuul-` and the node's name, as far as that can be the name of a user;
/// otherwise with a digest of it, so that two nodes never share a user, and with that a home.
pub(crate) fn node_user(node: &str) -> String {
    let letters = node.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
    let name: String = letters.take(LONGEST_NODE).collect();
    if name == node {
        return format!("zuul-{name}");
    }
    let digest: [u8; 32] = Sha256::digest(node).into();
    let [first, second, third, ..] = digest;
    let start: String = name.chars().take(LONGEST_NODE - 7).collect();
    format!("zuul-{start}-{first:02x}{second:02x}{third:02x}")
}

/// A user or group of this host by its number.
fn name_of(file: &Path, number: u32) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let number = number.to_string();
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1) == Some(number.as_str()) && !name.is_empty()).then(|| name.to_owned())
    })
}

/// The two files: users, groups.
fn files(spec: &BuildSpec, home: &Path, user: (u32, &str), group: (u32, &str)) -> (String, String) {
    let (uid, name) = user;
    let (gid, group_name) = group;
    let home = home.display();
    let mut passwd = format!("{name}:x:{uid}:{gid}:Zuul:{home}:{SHELL}\n");
    for node in &spec.nodeset.nodes {
        if let Connection::Local { dir } = &node.connection
            && !dir.is_empty()
        {
            let _ = writeln!(passwd, "{}:x:{uid}:{gid}:Zuul:{dir}:{SHELL}", node_user(&node.name));
        }
    }
    let mut groups = format!("{group_name}:x:{gid}:\n");
    for (number, system, its_group) in [(0, "root", "root"), (65534, "nobody", "nogroup")] {
        if uid != number && name != system {
            let _ = writeln!(passwd, "{system}:x:{number}:{number}:{system}:/nonexistent:/usr/sbin/nologin");
        }
        if gid != number && group_name != its_group {
            let _ = writeln!(groups, "{its_group}:x:{number}:");
        }
    }
    (passwd, groups)
}

/// Writes both files into the build's directory.
pub(crate) fn write_files(spec: &BuildSpec, job_dir: &JobDir) -> Result<(), ExecutorError> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let user = name_of(Path::new("/etc/passwd"), uid).unwrap_or_else(|| NAMELESS.to_owned());
    let group = name_of(Path::new("/etc/group"), gid).unwrap_or_else(|| NAMELESS.to_owned());
    let (passwd, groups) = files(spec, &job_dir.home(), (uid, &user), (gid, &group));
    write(&job_dir.passwd(), passwd.as_bytes())?;
    write(&job_dir.group(), groups.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data::spec;

    #[test]
    fn the_job_has_the_builds_home_and_each_local_node_its_own() {
        let (passwd, groups) = files(&spec(), Path::new("/x/home"), (1000, "zuul"), (1000, "zuul"));
        assert_eq!(
            passwd,
            "zuul:x:1000:1000:Zuul:/x/home:/bin/sh\n\
             zuul-near:x:1000:1000:Zuul:/nodes/1/home:/bin/sh\n\
             root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n\
             nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        );
        assert_eq!(groups, "zuul:x:1000:\nroot:x:0:\nnogroup:x:65534:\n");
        let (passwd, groups) = files(&spec(), Path::new("/x/home"), (0, "root"), (0, "root"));
        assert!(
            passwd.starts_with("root:x:0:0:Zuul:/x/home:/bin/sh\n") && passwd.matches("root:").count() == 1,
            "{passwd}"
        );
        assert_eq!(groups, "root:x:0:\nnogroup:x:65534:\n");
        let long = ["controller-of-the-first-region-a", "controller-of-the-first-region-b"];
        for (one, other) in [("controller-1", "controller_1"), ("node", "Node"), (long[0], long[1])] {
            assert_ne!(node_user(one), node_user(other));
            assert!(node_user(one).len() <= 32 && node_user(other).len() <= 32);
        }
        assert_eq!(node_user("controller-1"), "zuul-controller-1");
    }
}
