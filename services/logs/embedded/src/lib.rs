//! The embedded log: one directory, one writer process, segments and group commit.
//!
//! ```text
//! <dir>/LOCK                  held (flock) by the one writer; holds its pid and when it started
//! <dir>/HEADER                format, site, generation, partitions; how it was adopted
//! <dir>/durable               hint: up to where everything is on disk
//! <dir>/segments/00000001.log frames of all streams, in the order they were committed
//! <dir>/blobs/ab/cdef…        the blob store ([`FileBlobs`])
//! <dir>/blobs/bundles/…       of it: small blobs that were put together
//! ```
//!
//! # Writing
//! One thread commits. It takes everything that waits, writes it as **one frame** and makes it durable
//! with **one `fdatasync`**; only then is anything seen or acknowledged. A frame is there whole or not
//! at all, so the records of one append are too. Where there is no room for a frame, what was written
//! of it is taken back, its appends are refused ([`gatelog_event_log::LogError::System`]), and the next
//! append tries again. After any other failed write, and after a failed `fdatasync`, the log stops
//! ([`gatelog_event_log::LogError::Stopped`]): what is on disk is then not known, and trying again could
//! hide a loss. Frames are written over zeros that were made ahead of them, a megabyte at a time, so that a wait for the disk
//! is one for the frame's own bytes: behind the last frame of the last segment there may be zeros, which count for nothing.
//! A full segment is sealed with a footer (counts, index, SHA-256 over all before) and never
//! changes again, without what zeros were left; the next one names its digest.
//!
//! A partition's writer in this process is shown its inputs while they still wait to be written
//! ([`gatelog_event_log::EventWriter::accepted`]): what it appends stands behind them, in the same frame or a later one, so it
//! is never there without them. The commit waits for it, half a millisecond at most ([`Options::linger`]), and both share the
//! sync. What comes while a group is being written is shown with the next one. Where inputs that were shown are refused for
//! want of room, the claim has ended: the offsets go to others.
//!
//! # Opening
//! Sealed segments are taken at their footer's word (lengths, checksums, the digest named by the next
//! one); the last segment is read frame by frame. Only its physically last frame may be cut off, and
//! only if nobody knows more: neither the hint nor what the caller passes ([`Known`]). Everything else
//! is a named error at a segment and byte. [`EmbeddedLog::verify`] reads every byte.
//!
//! # Reading beside the writer
//! [`EmbeddedLog::open_reader`] takes no lock. A reader sees exactly what is durable: a frame when a
//! later frame stands behind it (each frame says up to where the log was durable when it was written),
//! or when the hint covers it. The writer writes the hint after `fdatasync` and before it acknowledges,
//! so a reader on the same machine sees every acknowledged record at once. Without the hint a reader
//! would see the newest frame only once the next one is written, and nothing else would differ: it is
//! never needed for correctness.
//!
//! # Survival
//! What is acknowledged survives the loss of power, if the disk keeps what it says it keeps. A crash
//! and a clean close leave the same.

mod blobs;
mod bundles;
mod commit;
mod format;
#[cfg(any(test, feature = "test-support"))]
pub mod fuzzing;
mod home;
mod index;
mod log;
mod medium;
mod options;
mod read;
mod recover;
mod refresh;
mod scan;
mod slice;
mod verify;

#[cfg(test)]
mod tests;

pub use blobs::FileBlobs;
pub use log::EmbeddedLog;
pub use options::{Known, Options, ReaderOptions, Stats};
pub use slice::{Piece, SliceHead, SliceLog, SliceWriter, read_slice};
pub use verify::VerifyReport;
