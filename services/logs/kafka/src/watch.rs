//! Telling who waits that a stream has grown: one thread and one consumer for all streams that are waited for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use gatelog_event_log::{Completer, LogError, Offset, Pending, pending};
use gatelog_record::Stream;
use parking_lot::{Condvar, Mutex};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::{Message, TopicPartitionList};

use crate::config::Purpose;
use crate::cursor::{Raw, Reach};
use crate::fault::{Context, or_system};
use crate::names::{kafka_offset, place_of};
use crate::read::records_in;

/// How long the consumer is waited for before new wishes are looked at.
const POLL: Duration = Duration::from_millis(20);

/// One stream that is or was waited for.
struct Watched {
    /// Everything from here on has been or will be seen.
    from: Offset,
    /// The place after the newest record seen.
    end: Offset,
    waiters: Vec<(Offset, Completer<()>)>,
    swept: usize,
}

#[derive(Default)]
struct State {
    closed: bool,
    streams: BTreeMap<Stream, Watched>,
    /// Streams to be watched from a Kafka offset on, anew or from further back.
    wishes: BTreeMap<Stream, u64>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Watches streams.
pub(crate) struct Watch {
    reach: Arc<Reach>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Watch {
    pub(crate) fn new(reach: Arc<Reach>) -> Watch {
        Watch { reach, shared: Arc::default(), thread: Mutex::default() }
    }

    /// Completes when the stream's end lies beyond this place. See [`gatelog_event_log::Log::changed`].
    pub(crate) fn changed(&self, stream: Stream, beyond: Offset) -> Pending<()> {
        let mut state = self.shared.state.lock();
        if state.closed {
            return Pending::lost();
        }
        let begin = kafka_offset(stream, beyond);
        let from = place_of(stream, begin, 0);
        let fresh = Watched { from, end: Offset(0), waiters: Vec::new(), swept: 0 };
        let known = state.streams.contains_key(&stream);
        let watched = state.streams.entry(stream).or_insert(fresh);
        if watched.end > beyond {
            return Pending::ready(());
        }
        let further_back = from < watched.from;
        watched.from = watched.from.min(from);
        if watched.waiters.len() >= 2 * watched.swept.max(32) {
            watched.waiters.retain(|(_, waiter)| waiter.is_wanted());
            watched.swept = watched.waiters.len();
        }
        let (completer, result) = pending();
        watched.waiters.push((beyond, completer));
        if !known || further_back {
            state.wishes.insert(stream, begin);
            self.shared.changed.notify_all();
        }
        drop(state);
        self.start();
        result
    }

    /// Starts the thread with the first wait.
    fn start(&self) {
        let mut thread = self.thread.lock();
        if thread.is_some() || self.shared.state.lock().closed {
            return;
        }
        let (reach, shared) = (Arc::clone(&self.reach), Arc::clone(&self.shared));
        let watcher = std::thread::Builder::new().name("log-watch".to_owned()).spawn(move || {
            if let Err(error) = watch(&reach, &shared) {
                tracing::error!(%error, "the log's streams are no longer watched");
                shared.close();
            }
        });
        match watcher {
            Ok(handle) => *thread = Some(handle),
            Err(error) => {
                tracing::error!(%error, "the log's streams cannot be watched: no thread");
                self.shared.close();
            }
        }
    }

    /// Ends every wait.
    pub(crate) fn end(&self) {
        self.shared.close();
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that watches the log panicked");
        }
    }
}

impl Shared {
    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let waiters: Vec<_> =
            state.streams.values_mut().flat_map(|watched| std::mem::take(&mut watched.waiters)).collect();
        self.changed.notify_all();
        drop(state);
        drop(waiters);
    }

    /// Waits for wishes while nothing is watched; `None` when the log is closed.
    fn wishes(&self, watching: bool) -> Option<BTreeMap<Stream, u64>> {
        let mut state = self.state.lock();
        while !watching && state.wishes.is_empty() && !state.closed {
            self.changed.wait(&mut state);
        }
        (!state.closed).then(|| std::mem::take(&mut state.wishes))
    }

    /// The stream now ends at or after this place.
    fn ends(&self, stream: Stream, end: Offset) {
        let mut state = self.state.lock();
        let Some(watched) = state.streams.get_mut(&stream) else { return };
        watched.end = watched.end.max(end);
        let end = watched.end;
        let (due, rest) = std::mem::take(&mut watched.waiters).into_iter().partition(|(beyond, _)| end > *beyond);
        watched.waiters = rest;
        drop(state);
        due.into_iter().for_each(|(_, waiter): (Offset, Completer<()>)| waiter.complete(()));
    }

    /// Lets everybody look for themselves: whoever waits reads, and gets the error.
    fn rouse(&self) {
        let mut state = self.state.lock();
        let waiters: Vec<_> =
            state.streams.values_mut().flat_map(|watched| std::mem::take(&mut watched.waiters)).collect();
        drop(state);
        waiters.into_iter().for_each(|(_, waiter)| waiter.complete(()));
    }
}

/// The thread: assigns what is wished for and looks at what comes.
fn watch(reach: &Reach, shared: &Shared) -> Result<(), LogError> {
    let what = "watching the log's streams";
    let brokers = &reach.config.brokers;
    let consumer = reach.client(Purpose::Watch).create_with_context(Context);
    let consumer: BaseConsumer<Context> = or_system(consumer, what, brokers)?;
    let mut watching: BTreeMap<(String, i32), Stream> = BTreeMap::new();
    while let Some(wishes) = shared.wishes(!watching.is_empty()) {
        for (stream, from) in wishes {
            let topic = reach.names.topic(stream);
            let again = watching.insert((topic.clone(), stream.index() as i32), stream).is_some();
            or_system(assign(&consumer, &topic, stream.index() as i32, from, again), what, brokers)?;
        }
        match consumer.poll(POLL) {
            None => {}
            Some(Ok(message)) => {
                let Some(stream) = watching.get(&(message.topic().to_owned(), message.partition())) else { continue };
                let offset = message.offset().max(0) as u64;
                let bytes = message.payload().unwrap_or_default().to_vec();
                match records_in(reach, *stream, Raw { offset, bytes }) {
                    Ok(records) => {
                        if let Some(last) = records.last() {
                            shared.ends(*stream, Offset(last.offset.0 + 1));
                        }
                    }
                    // The stream has grown: what is wrong with it, reading says.
                    Err(_) => shared.ends(*stream, Offset(place_of(*stream, offset, 0).0 + 1)),
                }
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "watching the log's streams");
                shared.rouse();
            }
        }
    }
    Ok(())
}

fn assign(consumer: &BaseConsumer<Context>, topic: &str, partition: i32, from: u64, again: bool) -> KafkaResult<()> {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, rdkafka::Offset::Offset(from as i64))?;
    if again {
        consumer.incremental_unassign(&list)?;
    }
    consumer.incremental_assign(&list)
}
