//! What the other side sends by HTTP.

use gatelog_record::draft::intake::ForgeEvent;

/// A request as it came.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// Its headers in their order; names in lower case.
    pub headers: &'a [(String, String)],
    /// Its body, byte for byte.
    pub body: &'a [u8],
}

impl Delivery<'_> {
    /// The first header of a name (in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Why a delivery is not taken. Its words are for the sender, and say nothing of secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is not signed, or not with the secret of this connection: 401.
    #[error("the signature is missing or does not fit")]
    Unsigned,
    /// It is signed, and cannot be read: 400.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

/// Takes what the other side sends to `/api/connection/NAME/payload`.
pub trait Webhook: Send + Sync {
    /// The largest body that is read, in bytes; a larger one is refused with 413 before it is read.
    fn body_max(&self) -> usize {
        25 << 20
    }

    /// What a delivery says: no event where it says nothing that matters. The signature is checked over the raw body
    /// before any of it is parsed, in constant time. Pure but for that: nobody is asked, so that it costs a sender nothing
    /// to be slow. An event may name a commit and no change; what change that is, is asked later.
    ///
    /// Each event has the sender's own id of the delivery in [`ForgeEvent::delivery`], so that a delivery that is
    /// repeated repeats it. The sender is answered once the events are on the log, and not before: until then it will
    /// send again.
    ///
    /// # Errors
    /// It is not taken, and nothing is recorded.
    fn accept(&self, delivery: &Delivery<'_>) -> Result<Vec<ForgeEvent>, Refused>;
}
