//! Brokers whose disks are full.

use super::long_cluster;
use super::stage::{Stage, launch, play};
use crate::harness::cluster::{BROKERS, Cluster};
use crate::harness::eventually;

/// What is missing where it cannot be had.
const NO_DISKS: &str = "no file system can be mounted for a broker here";

fn wait_ended(cluster: &mut Cluster, number: usize) {
    // It only notices when it writes.
    eventually(&format!("broker {number} ends for want of room"), || cluster.has_ended(number).then_some(()));
}

fn fill_leaders(stage: &mut Stage<'_>) -> &'static str {
    stage.cluster.wait_well();
    let leader = stage.leader();
    stage.undergo("the leader's disk was full", |cluster| cluster.fill_disk(leader));
    wait_ended(stage.cluster, leader);
    stage.cluster.make_room(leader);
    stage.cluster.start_broker(leader);
    "leader's disk"
}

#[test]
fn the_leaders_disk_is_full_and_the_next_goes_on() {
    const TEST: &str = "a leader's full disk";
    let Some(mut cluster) = long_cluster(TEST, Cluster::has_disks, NO_DISKS) else { return };
    play(TEST, &mut cluster, fill_leaders, 2, launch);
}

fn fill_all(stage: &mut Stage<'_>) -> &'static str {
    stage.cluster.wait_well();
    (1..=BROKERS).for_each(|number| stage.cluster.fill_disk(number));
    stage.push_other();
    (1..=BROKERS).for_each(|number| wait_ended(stage.cluster, number));
    stage.wait_health("nothing could be written for");
    stage.undergo("room was made on every disk, and the brokers started", |cluster| {
        (1..=BROKERS).for_each(|number| {
            cluster.make_room(number);
            cluster.start_broker(number);
        });
    });
    "disks of all brokers"
}

#[test]
fn every_brokers_disk_is_full_and_the_site_waits_until_there_is_room() {
    const TEST: &str = "full disks everywhere";
    let Some(mut cluster) = long_cluster(TEST, Cluster::has_disks, NO_DISKS) else { return };
    play(TEST, &mut cluster, fill_all, 2, launch);
}
