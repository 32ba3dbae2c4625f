//! What the API answered live at each position is what a fresh process answers for that position.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::projects::{CONFIG, PROJECT};
use crate::harness::{Server, Site, host};

/// Reads whose answers are kept.
const PATHS: [&str; 4] = [
    "/api/tenant/test/status",
    "/api/tenant/test/builds?limit=1000",
    "/api/tenant/test/buildsets?limit=1000&complete=false",
    "/api/tenants",
];

/// Answers by path and position.
type Kept = BTreeMap<(&'static str, u64), String>;

fn keep(server: &Server, kept: &mut Kept) {
    for path in PATHS {
        if let Some(answer) = server.get(path)
            && answer.status == 200
        {
            let before = kept.insert((path, answer.position), answer.body.clone());
            if let Some(before) = before {
                assert_eq!(before, answer.body, "{path} answered two things at position {}", answer.position);
            }
        }
    }
}

fn compare(site: &Site, kept: &Kept, how: &str) {
    let server = site.start();
    for ((path, position), body) in kept {
        let glue = if path.contains('?') { '&' } else { '?' };
        let asked = format!("{path}{glue}at={position}");
        let answer = server.get(&asked).unwrap();
        assert_eq!(answer.status, 200, "{how}: {asked}: {}", answer.body);
        assert_eq!(&answer.body, body, "{how}: {asked}");
    }
    server.stop();
}

fn remove(path: &Path) {
    std::fs::remove_dir_all(path).unwrap();
}

fn rungs(site: &Site) -> Vec<std::path::PathBuf> {
    fn walk(path: &Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(path).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rung") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&site.path().join("projections"), &mut found);
    found
}

#[test]
fn every_answer_can_be_had_again_for_its_position() {
    if !host::can_build("answers at every position") {
        return;
    }
    let site = Site::new(&[("config", CONFIG), ("project", PROJECT)]);
    let server = site.start();
    let mut kept = Kept::new();
    server.wait_configured();
    site.push("project", "good", "good", &[("a.txt", "a")]);
    site.push("project", "bad", "bad", &[("verdict", "bad\n")]);
    site.push("project", "clash", "clash", &[("a.txt", "another")]);
    let names = ["good", "bad", "clash"];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Asks as fast as it is answered, so that few positions go by unseen.
        let asking = scope.spawn(|| {
            let mut kept = Kept::new();
            while !over.load(Ordering::Relaxed) {
                keep(&server, &mut kept);
            }
            kept
        });
        let told = scope.spawn(|| {
            for name in names {
                server.wait_verdict("check", "project", name);
            }
            for name in names {
                site.approve("project", name);
            }
            for name in names {
                server.wait_verdict("gate", "project", name);
            }
            server.wait_idle();
        });
        let told = told.join();
        over.store(true, Ordering::Relaxed);
        kept.extend(asking.join().unwrap());
        told.unwrap();
    });
    keep(&server, &mut kept);
    server.stop();
    let positions: std::collections::BTreeSet<u64> = kept.keys().map(|(_, position)| *position).collect();
    println!("{} answers at {} positions kept", kept.len(), positions.len());
    assert!(positions.len() > 20, "too few positions were seen: {positions:?}");

    assert!(!rungs(&site).is_empty(), "there are rungs");
    compare(&site, &kept, "with rungs");
    for rung in rungs(&site) {
        std::fs::remove_file(rung).unwrap();
    }
    compare(&site, &kept, "without rungs");
    remove(&site.path().join("projections"));
    compare(&site, &kept, "after the projections were deleted");
}
