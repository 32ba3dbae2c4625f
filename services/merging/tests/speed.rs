//! How fast chains are prepared, beside `git merge-tree` on the same merges: run with
//! `cargo test --release -p gatelog-merging --test speed -- --ignored --nocapture`.

mod support;

use std::time::Instant;

use gatelog_merging::*;
use support::*;

#[test]
#[ignore = "it measures"]
fn a_chain_of_a_hundred_changes_on_two_thousand_files() {
    const CHANGES: usize = 100;
    let site = Site::new();
    let files: Vec<(String, String)> =
        (0..2000).map(|n| (format!("d{}/e{}/f{n}", n % 10, n % 100), format!("{n}\n"))).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let (project, ann) = site.project("library", &files);
    let base = ann.head();
    for n in 0..CHANGES {
        ann.change(&base, &n.to_string(), &[(files[n * 7].0, "changed\n")]);
    }
    for mode in MergeMode::ALL {
        let items: Vec<MergeItem> = (0..CHANGES).map(|n| item(&project, &n.to_string(), None, mode)).collect();
        let fetched = merged(site.mirrors.prepare(&request("warm", items.clone())));
        let mut items = items;
        for (item, done) in items.iter_mut().zip(&fetched.items) {
            item.commit = Some(done.change_commit.clone());
        }
        let mut asked = request("measured", items);
        asked.bases = vec![FrozenBase { branch: BranchKey::new(project.clone(), "master"), commit: base.clone() }];
        // Another date, so that everything is made anew.
        asked.items.iter_mut().for_each(|item| item.date_s += 1);
        let (before, begun) = (site.mirrors.tally(), Instant::now());
        let done = merged(site.mirrors.prepare(&asked));
        let here = begun.elapsed().as_secs_f64() / CHANGES as f64;
        let after = site.mirrors.tally();
        let mirror = site.mirrors.path(&project).unwrap();
        let begun = Instant::now();
        for item in &done.items {
            let tree = git(&mirror, &["merge-tree", "--write-tree", &item.ahead, &item.change_commit]);
            assert_eq!(tree, item.tree);
        }
        let there = begun.elapsed().as_secs_f64() / CHANGES as f64;
        println!(
            "{mode:?}: {:.2} ms here, {:.2} ms by git merge-tree: {:.0} times; {} certain in memory, git asked {} times",
            here * 1e3,
            there * 1e3,
            there / here,
            after.in_memory - before.in_memory,
            after.asked - before.asked,
        );
    }
}
