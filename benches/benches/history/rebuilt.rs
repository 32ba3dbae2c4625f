//! The projections made anew, with rungs and checkpoints as a server makes them.

use std::path::PathBuf;
use std::sync::Arc;

use gatelog_benches::Failure;
use gatelog_benches::measure::{Took, process_cpu, rate, timed};
use gatelog_benches::table::{Table, per_second, time};
use gatelog_capacity_state::Capacity;
use gatelog_event_log::Log;
use gatelog_gate_state::Gate;
use gatelog_record::Partition;
use gatelog_runner::{Ahead, Folder, RunnerConfig, Stepped};
use gatelog_store::Layout;
use gatelog_tables::DomainState;

use crate::{History, PARTITIONS, mega, sizes};

/// Where projections are that were made while the log was far ahead: a rung every 100,000 events.
pub fn home(history: &History) -> PathBuf {
    history.site.join("projections")
}

/// Where those are of a server that followed the log all the time: a rung every 10,000 events.
pub fn dense(history: &History) -> PathBuf {
    history.site.join("followed")
}

fn done(history: &History) -> PathBuf {
    history.site.join("rebuilt")
}

/// Whether they were made before.
pub fn is_there(history: &History) -> bool {
    done(history).exists()
}

fn rebuild<S: DomainState>(log: Arc<dyn Log>, partition: Partition, config: RunnerConfig) -> Result<u64, Failure> {
    let mut folder = Folder::<S>::open(log, partition, config)?;
    let mut count = 0;
    while let Stepped::Read(records) = folder.step()? {
        count += records as u64;
    }
    if let Some(warning) = folder.warnings().first() {
        return Err(warning.to_string().into());
    }
    Ok(count)
}

fn both(history: &History, config: &RunnerConfig, table: &mut Table, what: &str, aim: &str) -> Result<(), Failure> {
    let log: Arc<dyn Log> = history.log()?;
    let (mut took, before) = (Took::default(), process_cpu()?);
    for (partition, name) in PARTITIONS {
        let log = Arc::clone(&log);
        let (one, count) = match name {
            "gate" => timed(|| rebuild::<Gate>(log, partition, config.clone())),
            _ => timed(|| rebuild::<Capacity>(log, partition, config.clone())),
        };
        let count = count? as usize;
        table.row(
            &format!("{what}: {name}"),
            per_second(rate(count, one.wall)),
            String::new(),
            String::new(),
            if name == "gate" { aim } else { "" },
        );
        took.wall += one.wall;
        took.cpu += one.cpu;
    }
    let each = |spent: std::time::Duration| time(spent / history.events().max(1) as u32);
    let all = process_cpu()?.saturating_sub(before);
    table.note(&format!("{what}: together"), time(took.wall));
    table.note(
        &format!("{what}: processor time an event, of the folding thread and of all"),
        format!("{} and {}", each(took.cpu), each(all)),
    );
    Ok(())
}

/// Makes them, both ways.
pub fn measure(history: &History, table: &mut Table) -> Result<(), Failure> {
    let (home, dense) = (home(history), dense(history));
    for old in [&home, &dense] {
        if old.exists() {
            std::fs::remove_dir_all(old)?;
        }
    }
    let config = RunnerConfig::new(&home);
    both(history, &config, table, "rebuild with rungs and a checkpoint", "100 k/s")?;
    let every = Ahead { rungs: 1, ..Ahead::default() };
    both(history, &RunnerConfig { ahead: every, ..RunnerConfig::new(&dense) }, table, "rebuild with every rung", "")?;
    for (root, what) in [(&home, "rebuilt"), (&dense, "followed")] {
        for (partition, name) in PARTITIONS {
            let rungs = sizes::below(&Layout::new(root, partition).rungs())?;
            table.note(
                &format!("disk: rungs of {name}, {what}"),
                format!("{} of {}, {}", rungs.files, mega(rungs.bytes / rungs.files.max(1)), mega(rungs.bytes)),
            );
        }
    }
    for (partition, name) in PARTITIONS {
        let layout = Layout::new(&home, partition);
        for schema in layout.schemas()? {
            table.note(&format!("disk: RocksDB of {name}"), mega(sizes::below(&layout.database(schema))?.bytes));
        }
    }
    std::fs::write(done(history), "")?;
    Ok(())
}
