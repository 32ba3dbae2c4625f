//! What carries inputs to the log: mail that may be late, doubled and overtaken; the router of the
//! intake and the forwarders of outboxes, which keep their order and may begin again.

use std::collections::BTreeSet;
use std::time::Duration;

use gatelog_event_log::{Log, LogError, MemoryLog, Offset, Pending, ReadLimit};
use gatelog_partition_state::PartitionTables;
use gatelog_record::draft::partition::OutboxDelivered;
use gatelog_record::input::PartitionInput;
use gatelog_record::{Domain, Input, InputFrame, InputId, InputRecord, Partition, Source, Stream, Timestamp};
use gatelog_rules_gate::Router;
use gatelog_tables::Maps;

/// The intake, as the source of what is routed.
pub const INTAKE: Partition = Partition { domain: Domain::Intake, index: 0 };

type Answer = Pending<Result<Vec<Offset>, LogError>>;

/// What is known of an append.
pub enum Fate {
    /// Nothing yet.
    Open(Answer),
    /// It is on the log.
    Kept,
    /// It failed, or nobody knows.
    Unknown,
}

/// Looks at an append.
pub fn fate(answer: Answer) -> Fate {
    match answer.wait_for(Duration::ZERO) {
        Err(answer) => Fate::Open(answer),
        Ok(Some(Ok(_))) => Fate::Kept,
        Ok(_) => Fate::Unknown,
    }
}

/// Who wrote a letter, and dies with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The forge, people, the site: they keep at it.
    Outside,
    /// The process that does short work.
    Effects,
    /// A start of a worker.
    Worker(String),
}

/// An input on its way.
pub struct Mail {
    /// Where to.
    pub to: Stream,
    /// Its bytes.
    pub frame: Vec<u8>,
    /// For the trace.
    pub what: String,
    /// Who sends it.
    pub sender: Sender,
    /// Not before this moment of the monotonic clock.
    pub ready: i64,
    /// Appended, and no answer yet.
    pub answer: Option<Answer>,
}

/// The router of the intake.
#[derive(Default)]
pub struct Routing {
    router: Router,
    next: Offset,
    sent: Option<(Answer, Router, Offset)>,
}

impl Routing {
    /// It starts again: the table is folded anew, and what the gate has taken is passed over.
    pub fn restart(&mut self) {
        *self = Routing::default();
    }

    /// It never hears of what it has sent, if it has sent something.
    pub fn lose_answer(&mut self) -> bool {
        let Some((answer, ..)) = &mut self.sent else { return false };
        *answer = Pending::lost();
        true
    }

    /// Whether everything on the intake was routed.
    pub fn is_idle(&self, log: &MemoryLog) -> bool {
        self.sent.is_none() && log.end(Stream::Intake(0)).is_ok_and(|end| end <= self.next)
    }

    /// Routes one record; `again` repeats what the gate has taken already.
    ///
    /// # Errors
    /// When a record of the intake cannot be read.
    pub fn step(
        &mut self,
        log: &MemoryLog,
        gate: Partition,
        mark: Option<(u64, u32)>,
        again: bool,
    ) -> Result<Option<String>, String> {
        if let Some((answer, router, next)) = self.sent.take() {
            return Ok(match fate(answer) {
                Fate::Open(answer) => {
                    self.sent = Some((answer, router, next));
                    None
                }
                Fate::Kept => {
                    (self.router, self.next) = (router, next);
                    Some(format!("the intake is routed up to {}", self.next.0))
                }
                Fate::Unknown => Some("the router knows nothing of what it sent and sends it again".into()),
            });
        }
        let limit = ReadLimit { records: 1, ..ReadLimit::default() };
        let batch = log.read(Stream::Intake(0), self.next, limit).map_err(|error| error.to_string())?;
        let Some(record) = batch.records.first() else { return Ok(None) };
        let frame = InputFrame::decode(&record.bytes).map_err(|error| error.to_string())?;
        let (name, observed_at) = (frame.input_id.clone(), frame.observed_at);
        let Input::Intake(input) = frame.open().map_err(|error| error.to_string())?.input else {
            return Err(format!("the intake holds what is not for it at offset {}", record.offset.0));
        };
        let mut router = self.router.clone();
        let mut frames = Vec::new();
        for routed in router.route(record.offset.0, &input) {
            let (sequence, ordinal) = (record.offset.0 + 1, routed.ordinal);
            if !again && mark.is_some_and(|mark| (sequence, ordinal) <= mark) {
                continue;
            }
            let id = InputId::new(format!("{name}/{}", routed.key));
            let mut out = InputRecord::new(id, routed.key, observed_at, routed.input);
            out.source = Some(Source { partition: INTAKE, sequence, ordinal });
            frames.push(out.close().map_err(|error| error.to_string())?.encode());
        }
        let next = Offset(record.offset.0 + 1);
        if frames.is_empty() {
            (self.router, self.next) = (router, next);
            return Ok(Some(format!("the router passes over intake {}", record.offset.0)));
        }
        let told = format!("the router sends {} of intake {} ({name})", frames.len(), record.offset.0);
        self.sent = Some((log.append_inputs(Stream::Inputs(gate), frames), router, next));
        Ok(Some(told))
    }
}

/// The forwarder of one partition's outbox to another partition.
pub struct Lane {
    from: Partition,
    to: Partition,
    sent: (u64, u32),
    under_way: Option<(Answer, (u64, u32))>,
    told: BTreeSet<(u64, u32)>,
    telling: Option<(Answer, (u64, u32))>,
}

impl Lane {
    /// A forwarder that has sent nothing.
    pub fn new(from: Partition, to: Partition) -> Lane {
        Lane { from, to, sent: (0, 0), under_way: None, told: BTreeSet::new(), telling: None }
    }

    /// It starts again.
    pub fn restart(&mut self) {
        *self = Lane::new(self.from, self.to);
    }

    /// It never hears of what it has sent, if it has sent something.
    pub fn lose_answer(&mut self) -> bool {
        let Some((answer, _)) = &mut self.under_way else { return false };
        *answer = Pending::lost();
        true
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.under_way.is_none() && self.telling.is_none()
    }

    /// Sends what is new, or tells the sender what was taken; `again` begins with the oldest message.
    ///
    /// # Errors
    /// When a message cannot be written.
    pub fn step(
        &mut self,
        log: &MemoryLog,
        wall: Timestamp,
        sender: &PartitionTables<Maps>,
        receiver: &PartitionTables<Maps>,
        again: bool,
    ) -> Result<Option<String>, String> {
        if let Some((answer, up_to)) = self.under_way.take() {
            match fate(answer) {
                Fate::Open(answer) => self.under_way = Some((answer, up_to)),
                Fate::Kept => self.sent = self.sent.max(up_to),
                Fate::Unknown => self.sent = (0, 0),
            }
        }
        if let Some((answer, up_to)) = self.telling.take() {
            match fate(answer) {
                Fate::Open(answer) => self.telling = Some((answer, up_to)),
                Fate::Kept => {}
                Fate::Unknown => {
                    self.told.remove(&up_to);
                }
            }
        }
        let mark = receiver.marks.rows.get(&(self.from.domain as u8, self.from.index)).copied().unwrap_or((0, 0));
        let lane = |at: (u64, u32)| (self.to.domain as u8, self.to.index, at.0, at.1);
        let outbox = &sender.outbox.rows;
        if self.telling.is_none() && outbox.range(lane((0, 0))..=lane(mark)).next().is_some() && self.told.insert(mark)
        {
            let told = InputRecord::new(
                InputId::new(format!("outbox:{}/{}.{}", self.to, mark.0, mark.1)),
                "",
                wall,
                PartitionInput::OutboxDelivered(OutboxDelivered { to: self.to, up_to: mark }),
            );
            let frame = told.close().map_err(|error| error.to_string())?.encode();
            self.telling = Some((log.append_inputs(Stream::Inputs(self.from), vec![frame]), mark));
            return Ok(Some(format!("{} is told that {} has its messages up to {mark:?}", self.from, self.to)));
        }
        if self.under_way.is_some() {
            return Ok(None);
        }
        let after = if again { (0, 0) } else { self.sent.max(mark) };
        let mut frames = Vec::new();
        let mut up_to = after;
        for ((_, _, sequence, ordinal), row) in outbox.range(lane(after)..=lane((u64::MAX, u32::MAX))) {
            let at = (*sequence, *ordinal);
            if at <= after {
                continue;
            }
            if frames.len() == 4 {
                break;
            }
            let id = InputId::new(format!("site/{}/{sequence}.{ordinal}", self.from));
            let mut input = InputRecord::new(id, row.key.clone(), wall, row.input.clone());
            input.source = Some(Source { partition: self.from, sequence: *sequence, ordinal: *ordinal });
            frames.push(input.close().map_err(|error| error.to_string())?.encode());
            up_to = at;
        }
        if frames.is_empty() {
            return Ok(None);
        }
        let told = format!("{} messages of {} go to {} up to {up_to:?}", frames.len(), self.from, self.to);
        self.under_way = Some((log.append_inputs(Stream::Inputs(self.to), frames), up_to));
        Ok(Some(told))
    }
}
