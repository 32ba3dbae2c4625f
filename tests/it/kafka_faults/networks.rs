//! Networks that are cut: between a broker and everybody, and between a process and all brokers.

use super::long_cluster;
use super::stage::{Stage, launch, play};
use crate::harness::cluster::Cluster;
use crate::harness::crash::Victim as _;
use crate::harness::kafka::{KafkaSite, SCHEDULER};
use crate::harness::{Server, eventually, host};

/// What the scheduler's network is called, and the last part of its address.
const SPACE: (&str, u32) = ("sched", 30);

/// What is missing where it cannot be had.
const NO_NETWORKS: &str = "no network namespaces can be made here";

fn cut_leader(stage: &mut Stage<'_>) -> &'static str {
    stage.cluster.wait_well();
    let leader = stage.leader();
    stage.undergo("the leader was cut off", |cluster| cluster.cut(&leader.to_string()));
    stage.undergo("it was there again", |cluster| cluster.uncut(&leader.to_string()));
    "leader's network"
}

#[test]
fn the_leader_is_cut_off_from_everybody_and_the_next_goes_on() {
    const TEST: &str = "a leader cut off";
    let Some(mut cluster) = long_cluster(TEST, Cluster::has_networks, NO_NETWORKS) else { return };
    play(TEST, &mut cluster, cut_leader, 2, launch);
}

fn cut_scheduler(stage: &mut Stage<'_>) -> &'static str {
    // One that cannot reach the brokers when it starts ends, and says so.
    eventually("the scheduler serves", || stage.api().map(|_| ()));
    let said = stage.scheduler.log().len();
    stage.cluster.cut(SPACE.0);
    // Whoever asks it now hears nothing.
    stage.ready = false;
    stage.push_other();
    // For longer than a transaction may take: what it had in flight has come to nothing.
    let began = std::time::Instant::now();
    eventually("the scheduler says what it cannot do", || {
        let log = stage.scheduler.log();
        let known = log[said..].contains("a sign of life could not be given");
        (known && began.elapsed() >= std::time::Duration::from_secs(35)).then_some(())
    });
    stage.undergo("the scheduler had its network again", |cluster| cluster.uncut(SPACE.0));
    "scheduler's network"
}

#[test]
fn the_scheduler_is_cut_off_from_the_brokers_and_goes_on_when_it_is_back() {
    const TEST: &str = "a scheduler cut off";
    let Some(mut cluster) = long_cluster(TEST, Cluster::has_networks, NO_NETWORKS) else { return };
    let address = cluster.join(SPACE.0, SPACE.1);
    let mut command = cluster.within(SPACE.0);
    command.arg(host::binary());
    let apart = move |site: &KafkaSite| {
        let listen = format!("{address}:0");
        let arguments = ["--role", SCHEDULER, "--listen", &listen];
        (Server::launch_by(command, site.site.path(), &arguments), site.launch_executor())
    };
    play(TEST, &mut cluster, cut_scheduler, 2, apart);
}
