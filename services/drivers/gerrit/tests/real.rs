//! The driver on a real Gerrit: a short story each time, everything with `GATELOG_GERRIT=long`.
//!
//! One server serves all stories, each with projects of its own, one after the other: a server costs 400 MiB and a few
//! seconds of both cores.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test ends where something is not as it should be, and says what it plays"
)]

#[path = "real/contract.rs"]
mod contract;
#[path = "real/server.rs"]
mod server;
#[path = "real/stories.rs"]
mod stories;

use std::time::Instant;

use server::Server;

type Story = (&'static str, fn(&mut Server));

const SHORT: &[Story] = &[
    ("the life of a change", stories::the_life_of_a_change),
    ("the words of the contract", contract::the_words_of_the_contract),
];

const LONG: &[Story] = &[
    ("facts", stories::facts),
    ("reports that are refused", stories::reports_that_are_refused),
    ("a vote withdrawn", stories::a_vote_withdrawn),
    ("a topic over two projects", stories::a_topic_over_two_projects),
    ("exactly what was tested", stories::exactly_what_was_tested),
    ("untested and refused", stories::untested_and_refused),
    ("every submit type", stories::every_submit_type),
    ("events missed", stories::events_missed),
];

#[test]
fn a_real_gerrit_is_spoken_to() {
    let mut server = match Server::start() {
        Ok(server) => server,
        Err(why) => {
            println!("SKIPPED the driver on a real Gerrit: {why}");
            return;
        }
    };
    let long = std::env::var("GATELOG_GERRIT").unwrap_or_default();
    for (name, story) in SHORT.iter().chain(if long.is_empty() { &[] } else { LONG }) {
        // One story by its name, while it is being written.
        if !["", "long"].contains(&long.as_str()) && !name.contains(&long) {
            continue;
        }
        let begun = Instant::now();
        println!("story: {name}");
        story(&mut server);
        println!("story: {name} took {:.1} s", begun.elapsed().as_secs_f64());
    }
    if long.is_empty() {
        println!("{} more stories are played with GATELOG_GERRIT=long", LONG.len());
    }
}
