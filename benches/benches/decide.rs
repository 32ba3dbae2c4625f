//! Deciding with a hundred changes in a dependent pipeline.
//!
//! Beside it: reading the input itself. Instructions are counted by callgrind where it is there: they are the same
//! whatever else the machine does.
#![expect(clippy::print_stdout, reason = "a benchmark tells whoever runs it")]

use std::hint::black_box;
use std::path::Path;
use std::process::Command;

use criterion::Throughput;
use gatelog_benches::Failure;
use gatelog_benches::measure::criterion_median;
use gatelog_benches::site::{GATE, Pace, Site};
use gatelog_benches::table::{Table, nanos, times};
use gatelog_deciding::{Context, Rules};
use gatelog_gate_state::live::GateLive;
use gatelog_record::id::IdSource;
use gatelog_record::input::GateInput;
use gatelog_record::{BlobHash, Event, Input, InputFrame, InputRecord, SiteId, Timestamp};
use gatelog_rules_gate::GateRules;
use gatelog_store::rung::{rows_of, tables_of};
use gatelog_tables::Maps;

#[path = "support/processor.rs"]
mod processor;

const QUEUED: usize = 100;

/// A question and everything it takes to decide it.
struct Question {
    live: GateLive<Maps>,
    rules: GateRules,
    input: InputRecord,
    context: Context,
    written: Written,
}

/// The same, to be handed to another process: state, input, blobs.
struct Written {
    rows: Vec<u8>,
    bytes: Vec<u8>,
    blobs: Vec<Vec<u8>>,
    now: Timestamp,
}

impl Written {
    fn save(&self, dir: &Path) -> Result<(), Failure> {
        std::fs::write(dir.join("rows"), &self.rows)?;
        std::fs::write(dir.join("input"), &self.bytes)?;
        std::fs::write(dir.join("now"), self.now.0.to_string())?;
        for (index, blob) in self.blobs.iter().enumerate() {
            std::fs::write(dir.join(format!("blob-{index}")), blob)?;
        }
        Ok(())
    }

    fn load(dir: &Path) -> Result<Written, Failure> {
        let blobs = (0..).map_while(|index| std::fs::read(dir.join(format!("blob-{index}"))).ok()).collect();
        let now = Timestamp(std::fs::read_to_string(dir.join("now"))?.parse()?);
        Ok(Written { rows: std::fs::read(dir.join("rows"))?, bytes: std::fs::read(dir.join("input"))?, blobs, now })
    }
}

impl Question {
    fn new(site: &Site, input: &InputRecord) -> Result<Question, Failure> {
        let needed = GateRules::new().needs(site.live(), input);
        let blobs = needed.iter().map(|hash| site.blob(hash)).collect::<Result<_, _>>()?;
        let (rows, bytes) = (rows_of(site.live())?, input.close()?.encode());
        Question::of(Written { rows, bytes, blobs, now: site.now() })
    }

    fn of(written: Written) -> Result<Question, Failure> {
        let live: GateLive<Maps> = tables_of(&written.rows)?;
        let mut rules = GateRules::new();
        for blob in &written.blobs {
            rules.admit(BlobHash::of(blob), blob)?;
        }
        let writer = live.partition.place()?;
        let digest = InputFrame::digest(&written.bytes);
        let context = Context {
            now: written.now,
            ids: IdSource::new(SiteId([9; 16]), 1, GATE, writer.input_sequence + 1, &digest),
            input_sequence: writer.input_sequence + 1,
            first_sequence: writer.sequence + 1,
            term: 1,
            input_offset: writer.last_input_offset.map_or(0, |last| last + 1),
        };
        let input = InputFrame::decode(&written.bytes)?.open()?;
        Ok(Question { live, rules, input, context, written })
    }

    /// What callgrind counts.
    #[inline(never)]
    fn decide(&self) -> Result<Vec<Event>, Failure> {
        Ok(self.rules.decide(&self.live, &self.input, self.context.clone())?)
    }
}

/// A gate with so many changes in it, all builds under way.
fn busy(queued: usize) -> Result<Site, Failure> {
    let mut site = Site::new(Pace { failing: 0, again: 0, ..Pace::default() })?;
    for number in 0..queued {
        let name = site.propose_new("service", number)?;
        site.approve(&name)?;
        site.settle(true)?;
    }
    let items = site.live().gate.items.rows.values().filter(|item| item.pipeline == "gate").count();
    if items != queued {
        return Err(format!("{items} items are in the gate, not {queued}").into());
    }
    Ok(site)
}

/// Facts about an approved change come in: it is placed behind all others.
fn enqueue(queued: usize) -> Result<Question, Failure> {
    let mut site = busy(queued)?;
    let name = site.propose_new("client", queued)?;
    site.settle(true)?;
    site.approve(&name)?;
    let input = site.settle_until(true, |input| matches!(input, Input::Gate(GateInput::ChangesFound(_))))?;
    Question::new(&site, &input.ok_or("nobody asked for facts")?)
}

/// A build of the first of all fails: what is behind it begins anew.
fn reset(queued: usize) -> Result<Question, Failure> {
    let mut site = busy(queued)?;
    let input = site.head_fails().ok_or("nothing runs")?;
    Question::new(&site, &input)
}

/// A build of the first of all ends well and changes nothing for the others.
fn finish(queued: usize) -> Result<Question, Failure> {
    let mut site = busy(queued)?;
    let input = site.head_succeeds().ok_or("nothing runs")?;
    Question::new(&site, &input)
}

type Story = (&'static str, &'static str, fn(usize) -> Result<Question, Failure>);

const STORIES: [Story; 3] = [
    ("enqueue", "place an approved change behind 100 others", enqueue),
    ("finish", "take the result of one build among 100 changes", finish),
    ("reset", "the first of 100 fails: 99 begin anew", reset),
];

fn instructions(question: &Question) -> Result<Option<u64>, Failure> {
    let dir = tempfile::tempdir()?;
    question.written.save(dir.path())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .args(["--toggle-collect=*Question*decide*"])
        .arg(std::env::current_exe()?)
        .env("GATELOG_COUNT", dir.path())
        .output();
    let Ok(output) = output else { return Ok(None) };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let counted = said.lines().find(|line| line.contains("Collected"));
    Ok(counted.and_then(|line| line.rsplit(':').next()?.trim().parse().ok()))
}

fn main() -> Result<(), Failure> {
    if let Some(dir) = std::env::var_os("GATELOG_COUNT") {
        black_box(Question::of(Written::load(Path::new(&dir))?)?.decide()?);
        return Ok(());
    }
    let mut criterion = processor::criterion(20);
    let mut group = criterion.benchmark_group("decide");
    group.throughput(Throughput::Elements(1));
    let mut table = Table::new(
        "Deciding with 100 changes in a dependent pipeline (limit: open the input and do nothing; processor time)",
    );
    let mut questions = Vec::new();
    for (name, what, make) in STORIES {
        questions.push((name, what, make(QUEUED)?, make(1)?));
    }
    for (name, _, full, one) in &questions {
        group.bench_function(format!("{name} 100"), |bencher| bencher.iter(|| full.decide()));
        group.bench_function(format!("{name} 1"), |bencher| bencher.iter(|| one.decide()));
        group.bench_function(format!("{name} read"), |bencher| {
            bencher.iter(|| InputFrame::decode(black_box(&full.written.bytes)).map(InputFrame::open));
        });
    }
    group.finish();
    criterion.final_summary();
    for (name, what, full, one) in &questions {
        let median = |which: &str| criterion_median("decide", &format!("{name} {which}")).unwrap_or(f64::NAN);
        let (hundred, read) = (median("100"), median("read"));
        table.row(what, nanos(hundred), nanos(read), times(hundred / read), "");
        table.note(&format!("{name}: with 1 change there"), nanos(median("1")));
        table.note(
            &format!("{name}: events decided, with 100 and with 1"),
            format!("{}, {}", full.decide()?.len(), one.decide()?.len()),
        );
        match (instructions(full)?, instructions(one)?) {
            (Some(full), Some(one)) => {
                table.note(&format!("{name}: instructions, with 100 and with 1"), format!("{full}, {one}"));
            }
            _ => println!("SKIPPED instructions of {name}: valgrind is not there"),
        }
    }
    table.print();
    Ok(())
}
