//! How many attacks there are, and the same attacks against an executor that is an ordinary user.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{bombs, configurations, console, handed, probes, processes, traps};

/// No user of a usual host has this number.
const USER: &str = "61184";

#[test]
fn there_are_more_than_sixty_attacks_each_under_a_name_of_its_own() {
    let all: Vec<_> = [
        probes::attacks(),
        traps::attacks(),
        handed::attacks(),
        console::attacks(),
        processes::attacks(),
        configurations::attacks(),
        bombs::attacks(),
    ]
    .concat();
    let names: std::collections::BTreeSet<_> = all.iter().map(|attack| (attack.kind, attack.name)).collect();
    let kinds: std::collections::BTreeSet<_> = all.iter().map(|attack| attack.kind).collect();
    println!("{} attacks of {} kinds", names.len(), kinds.len());
    assert_eq!(names.len(), all.len(), "two attacks have one name");
    assert!(names.len() >= 60 && kinds.len() >= 20, "{names:?}");
}

/// A place where any user reads what this test is made of, in a mount name space of its own: homes are closed to others.
fn stage() -> Result<(tempfile::TempDir, PathBuf), String> {
    let folder = tempfile::tempdir_in("/var/tmp").map_err(|error| error.to_string())?;
    let open = |path: &Path| std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777));
    open(folder.path()).map_err(|error| error.to_string())?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = folder.path().join("it");
    std::fs::copy(own, &program).map_err(|error| error.to_string())?;
    for name in ["home", "tmp", "docs"] {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).and_then(|()| open(&place)).map_err(|error| error.to_string())?;
    }
    for name in ["sandbox.md", "secrets.md"] {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
        std::fs::copy(from, folder.path().join("docs").join(name)).map_err(|error| error.to_string())?;
    }
    Ok((folder, program))
}

/// Runs these tests of this program as an ordinary user; its output. Ansible lies below a home that only its owner reads:
/// in this name space that home is an empty directory with Ansible alone in it.
fn as_a_user(tests: &[&str]) -> Result<(bool, String), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("these tests run as an ordinary user already".into());
    }
    let ansible = std::env::var_os("GATELOG_ANSIBLE_PLAYBOOK").ok_or("GATELOG_ANSIBLE_PLAYBOOK is not set")?;
    let ansible = PathBuf::from(ansible);
    let place = ansible.parent().and_then(Path::parent).ok_or("Ansible has no directory")?;
    let (folder, program) = stage()?;
    let top = place.components().take(2).collect::<PathBuf>();
    let script = "set -e\n\
        mkdir -p \"$S/ansible\"; mount --bind \"$A\" \"$S/ansible\"\n\
        case \"$A\" in /usr/*) ;; *) mount -t tmpfs -o mode=755 none \"$T\"; mkdir -p \"$A\"; mount --bind \"$S/ansible\" \"$A\";; esac\n\
        cd /\n\
        exec setpriv --reuid=\"$U\" --regid=\"$U\" --clear-groups --inh-caps=-all --bounding-set=-all \
        env HOME=\"$S/home\" TMPDIR=\"$S/tmp\" GATELOG_TEST_DOCS=\"$S/docs\" \"$S/it\" \"$@\" --nocapture --test-threads=2 2>&1";
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--", "/bin/sh", "-c", script, "sh"])
        .args(tests)
        .env("S", folder.path())
        .env("A", place)
        .env("T", &top)
        .env("U", USER)
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .map_err(|error| format!("unshare: {error}"))?;
    drop(program);
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Ok((output.status.success(), text))
}

#[test]
fn the_same_attacks_are_contained_where_the_executor_is_an_ordinary_user() {
    let tests = ["hostile::probes", "hostile::traps", "hostile::handed", "hostile::processes", "hostile::bombs"];
    let (good, text) = match as_a_user(&tests) {
        Ok(ended) => ended,
        Err(reason) => return println!("SKIPPED the attacks as an ordinary user: {reason}"),
    };
    let user = format!("ATTACK uid {USER} ");
    let rows = text.lines().filter(|line| line.starts_with(&user)).inspect(|line| println!("{line}")).count();
    if rows == 0 {
        let why =
            text.lines().find(|line| line.contains("SKIPPED") || line.contains("unshare:") || line.contains("mount:"));
        return println!("SKIPPED the attacks as an ordinary user: {}", why.unwrap_or(&text));
    }
    let last: String = text.chars().rev().take(6000).collect::<Vec<_>>().into_iter().rev().collect();
    assert!(good && rows > 60, "{rows} attacks as an ordinary user:\n{last}");
}
