//! Brokers killed, paused and restarted.

use super::cluster_of_day;
use super::stage::{Stage, launch, play};
use crate::harness::cluster::BROKERS;
use crate::harness::eventually;

fn kill_leader(stage: &mut Stage<'_>) -> &'static str {
    stage.cluster.wait_well();
    let leader = stage.leader();
    stage.undergo("the leader was killed", |cluster| cluster.kill(leader));
    stage.cluster.start_broker(leader);
    "leader of the gate's events"
}

#[test]
fn the_leader_is_killed_and_the_next_goes_on() {
    const TEST: &str = "a leader killed";
    let Some(mut cluster) = cluster_of_day(TEST, 0) else { return };
    play(TEST, &mut cluster, kill_leader, 2, launch);
}

fn pause_leader(stage: &mut Stage<'_>) -> &'static str {
    stage.cluster.wait_well();
    let leader = stage.leader();
    stage.undergo("the leader was paused", |cluster| cluster.pause(leader));
    // Long enough for the others to take it for dead.
    eventually("the paused broker leads and follows nothing any more", || {
        let seen = stage.cluster.look()?;
        (!seen.behind.is_empty() && seen.leaders.values().all(|one| *one != leader as i32)).then_some(())
    });
    stage.undergo("it came back and knew nothing of that", |cluster| cluster.resume(leader));
    "leader of the gate's events"
}

#[test]
fn the_leader_is_paused_until_it_is_taken_for_dead_and_comes_back() {
    const TEST: &str = "a leader paused";
    let Some(mut cluster) = cluster_of_day(TEST, 1) else { return };
    play(TEST, &mut cluster, pause_leader, 2, launch);
}

fn roll(stage: &mut Stage<'_>) -> &'static str {
    for number in 1..=BROKERS {
        stage.cluster.wait_well();
        stage.undergo(&format!("broker {number} was stopped"), |cluster| cluster.stop(number));
        stage.cluster.start_broker(number);
    }
    stage.cluster.wait_well();
    "brokers, one after the other,"
}

#[test]
fn all_brokers_are_restarted_one_after_the_other() {
    const TEST: &str = "a rolling restart of the brokers";
    let Some(mut cluster) = cluster_of_day(TEST, 2) else { return };
    play(TEST, &mut cluster, roll, 1, launch);
}
