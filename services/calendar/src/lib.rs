//! When timers are due. Rules know no time zone: whoever owns the gate asks here and tells the gate each tick.
//!
//! [`Calendar`] turns the `time` of a timer into moments, in the time zone of the site. [`next_of`] says what is due of
//! one timer, from how far it was told and what the clock says now; the clock may have jumped since.

mod due;
mod zone;

pub use due::{Next, Tick, Told, next_of};
pub use zone::{Calendar, UnknownZone};
