//! What happens at the other side: listening, and catching up.

use std::collections::BTreeSet;
use std::time::Duration;

use gatelog_record::draft::intake::ForgeEvent;

use crate::trouble::Trouble;

/// What was found, in order, and up to where.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// The events. Each has an id ([`ForgeEvent::delivery`]) made of what it is about, never of when it was seen or by
    /// whom: found again, it has the same, and is taken once.
    pub events: Vec<ForgeEvent>,
    /// Up to where the part is known with these, in the driver's own form; `None` keeps the place there is.
    pub place: Option<Vec<u8>>,
}

/// Where events go, and where it is kept how far they are known. The driver's end of whoever runs it.
///
/// A connection may have parts that are known for themselves, such as projects; one that has none calls its only part by
/// the empty name. Of what is found in a part nothing is lost and nothing is out of order.
pub trait Sink {
    /// Up to where a part is known; `None` where nothing is, or what was kept cannot be read: then what is there now is
    /// told under the ids it would have had.
    fn place(&mut self, part: &str) -> Option<Vec<u8>>;

    /// Takes what a look at a part came to. When it returns, the events are on the log, and only then the place was kept:
    /// whoever dies in between finds them again, under the same ids. Trouble of a part is noted for people and stays so
    /// until a look at it goes well; it keeps no other part waiting.
    ///
    /// # Errors
    /// The events could not be kept. The place is what it was; they are told again at the next look.
    fn take(&mut self, part: &str, found: Result<Batch, Trouble>) -> Result<(), Trouble>;

    /// Whether the process is about to end; to be asked between parts.
    fn stopping(&self) -> bool;
}

/// What a wait for news came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// All that happened was told.
    Everything,
    /// Something may have been missed: [`Intake::recover`] is called next. Listening goes on.
    Gap,
}

/// The events of a connection.
///
/// Whoever runs it begins to listen, then catches up, then waits for news; when listening ends in trouble, it begins
/// anew after a pause. What comes twice that way has one id and is taken once, so there is no gap between catching up and
/// listening. Two processes may run the same connection.
pub trait Intake: Send + Sync {
    /// Tells everything that happened since the places that are kept, part by part. Called at the start, after a gap,
    /// and every [`Intake::look_every`]. May take long; asks the sink between parts whether to stop.
    ///
    /// # Errors
    /// The connection as a whole could not be asked. Trouble of a part goes to the sink.
    fn recover(&self, sink: &mut dyn Sink) -> Result<(), Trouble>;

    /// Begins to listen. From here on, what happens is told by [`Listening::next`].
    ///
    /// # Errors
    /// The other side does not let one listen now.
    fn listen(&self) -> Result<Box<dyn Listening + '_>, Trouble>;

    /// How often it is caught up without a reason; `None` where listening misses nothing unnoticed.
    fn look_every(&self) -> Option<Duration>;

    /// The projects that are there, by their names on this connection, where that is cheap to ask often; `None` where it
    /// is not. Projects that tenants have and that are not there are told to people.
    ///
    /// # Errors
    /// The other side could not be asked.
    fn projects(&self) -> Result<Option<BTreeSet<String>>, Trouble> {
        Ok(None)
    }

    /// What people should know about the connection when it begins, each a sentence with its cure; nothing that keeps it
    /// from working. Called once, on a thread of its own: it may take long.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Somebody who listens. Ends when it is dropped.
pub trait Listening {
    /// Waits for news, at most so long, and tells it to the sink.
    ///
    /// # Errors
    /// Listening has ended: the other side closed, or said nothing for so long that it must be taken for gone.
    fn next(&mut self, at_most: Duration, sink: &mut dyn Sink) -> Result<Heard, Trouble>;
}
