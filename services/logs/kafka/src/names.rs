//! What things are called on the brokers, and how a place in a stream maps to Kafka's offsets.

use gatelog_event_log::Offset;
use gatelog_record::{Domain, Partition, Stream};

/// How many bits of a place in an input stream number the records of one append.
///
/// An append of inputs is one Kafka record, so that its records are there all or none and next to each other; each
/// of them still needs a place of its own.
const INPUT_BITS: u32 = 16;

/// The most records one append of inputs may carry.
pub(crate) const MOST_INPUTS: usize = 1 << INPUT_BITS;

/// The longest prefix: Kafka takes topic names of up to 249 characters.
const MOST_PREFIX: usize = 200;

/// The names of one log's topics.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: String,
    /// The generation of topics.
    topics: u32,
}

impl Names {
    /// Names with this prefix; an error says why it is none.
    pub(crate) fn new(prefix: &str) -> Result<Names, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if prefix.len() > MOST_PREFIX || !prefix.chars().all(fits) {
            return Err(format!(
                "the prefix {prefix:?} cannot begin a topic's name: use at most {MOST_PREFIX} letters, digits, dots, \
                 underscores and dashes"
            ));
        }
        Ok(Names { prefix: prefix.to_owned(), topics: 1 })
    }

    /// The same of another generation of topics.
    pub(crate) fn of_topics(&self, topics: u32) -> Names {
        Names { prefix: self.prefix.clone(), topics }
    }

    /// Which generation of topics it is, from 1.
    pub(crate) fn generation(&self) -> u32 {
        self.topics.max(1)
    }

    /// The topic of a stream.
    pub(crate) fn topic(&self, stream: Stream) -> String {
        match self.topics {
            0 | 1 => format!("{}{}", self.prefix, stream.topic()),
            later => format!("{}{}.g{later}", self.prefix, stream.topic()),
        }
    }

    /// The topic that says which site this log is.
    pub(crate) fn site(&self) -> String {
        format!("{}gatelog.site", self.prefix)
    }

    /// The topic in which components say that they are there.
    pub(crate) fn presence(&self) -> String {
        format!("{}presence", self.prefix)
    }

    /// The transactional id of a partition's writer: whoever takes it fences whoever had it.
    pub(crate) fn transactional_id(&self, partition: Partition) -> String {
        format!("{}gatelog.{}.{}", self.prefix, partition.domain, partition.index)
    }

    /// The group named by consumers. Nobody joins it and nothing is committed to it.
    pub(crate) fn group(&self) -> String {
        format!("{}gatelog.reader", self.prefix)
    }

    /// The first stream of each topic that has a partition for each of the domain's.
    pub(crate) fn partitioned() -> Vec<Stream> {
        let mut streams = vec![Stream::Intake(0)];
        for domain in Domain::all() {
            let partition = Partition { domain, index: 0 };
            streams.extend([Stream::Inputs(partition), Stream::Events(partition)]);
        }
        streams
    }
}

/// The stream of the same topic with this index.
pub(crate) fn with_index(stream: Stream, index: u32) -> Stream {
    match stream {
        Stream::Intake(_) => Stream::Intake(index),
        Stream::Inputs(partition) => Stream::Inputs(Partition { index, ..partition }),
        Stream::Events(partition) => Stream::Events(Partition { index, ..partition }),
    }
}

fn bits(stream: Stream) -> u32 {
    match stream {
        Stream::Events(_) => 0,
        Stream::Intake(_) | Stream::Inputs(_) => INPUT_BITS,
    }
}

/// The Kafka offset of the record that holds this place.
pub(crate) fn kafka_offset(stream: Stream, place: Offset) -> u64 {
    place.0 >> bits(stream)
}

/// The place of the record with this index within the Kafka record at this offset.
pub(crate) fn place_of(stream: Stream, kafka_offset: u64, index: usize) -> Offset {
    Offset((kafka_offset << bits(stream)) + index as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_inputs_leave_room_for_the_records_of_an_append() {
        let inputs = Stream::Inputs(Partition { domain: Domain::Gate, index: 0 });
        let events = Stream::Events(Partition { domain: Domain::Gate, index: 0 });
        assert_eq!(place_of(events, 7, 0), Offset(7));
        assert!(place_of(inputs, 7, MOST_INPUTS - 1) < place_of(inputs, 8, 0));
        assert_eq!(kafka_offset(inputs, place_of(inputs, 7, MOST_INPUTS - 1)), 7);
        assert_eq!(kafka_offset(inputs, Offset(0)), 0);
    }

    #[test]
    fn a_prefix_that_kafka_would_not_take_is_refused() {
        assert_eq!(Names::new("ci.").unwrap().topic(Stream::Intake(3)), "ci.intake");
        assert_eq!(Names::new("").unwrap().site(), "gatelog.site");
        let third = Names::new("ci.").unwrap().of_topics(3);
        assert_eq!((third.topic(Stream::Intake(0)), third.site()), ("ci.intake.g3".into(), "ci.gatelog.site".into()));
        for wrong in ["a b", "ci/", "größe", &"x".repeat(201)] {
            assert!(Names::new(wrong).is_err(), "{wrong}");
        }
    }
}
