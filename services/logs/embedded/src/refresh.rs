//! Following a log that another process writes.

use std::sync::Arc;

use gatelog_event_log::LogError;
use gatelog_record::SiteId;

use crate::format::{FRAME_HEADER, FrameKind, SEGMENT_HEADER};
use crate::home::{Home, damaged, system};
use crate::index::View;
use crate::recover::{Next, admit_frame, load_sealed, open_segment, read_footer};
use crate::scan::{Found, Scanner, read_at_most};

/// How far a reader has followed.
pub(crate) struct Follower {
    home: Home,
    site: SiteId,
    /// What must come after the last segment of the view, or what it was itself opened with while it
    /// is being followed.
    next: Next,
    /// The byte of the last segment up to which it was followed; `None` when it is sealed.
    byte: Option<u64>,
}

impl Follower {
    /// Begins: sealed segments at their footers' word.
    pub(crate) fn open(home: Home, site: SiteId, view: &mut View) -> Result<Follower, LogError> {
        let (next, unsealed) = load_sealed(&home, site, view)?;
        let mut follower = Follower { home, site, next, byte: unsealed.then_some(SEGMENT_HEADER) };
        follower.follow(view)?;
        Ok(follower)
    }

    /// Takes in everything that has become durable.
    pub(crate) fn follow(&mut self, view: &mut View) -> Result<(), LogError> {
        loop {
            match self.byte {
                Some(byte) => {
                    if !self.follow_segment(view, byte)? {
                        return Ok(());
                    }
                }
                None => {
                    if !self.home.segment(self.next.number).exists() {
                        return Ok(());
                    }
                    view.segments.push(open_segment(&self.home, self.site, &self.next)?);
                    self.byte = Some(SEGMENT_HEADER);
                }
            }
        }
    }

    /// Follows the last segment; true when it turned out to be sealed.
    fn follow_segment(&mut self, view: &mut View, from: u64) -> Result<bool, LogError> {
        // Read before the frames: everything up to here must be whole by now.
        let hint = self.home.read_hint();
        let index = view.segments.len().saturating_sub(1);
        let Some(segment) = view.segments.get(index).map(Arc::clone) else { return Ok(false) };
        if hint <= segment.base + from && !self.home.segment(segment.number + 1).exists() && !grown(&segment, from)? {
            return Ok(false);
        }
        let file = segment.file()?;
        let wrong = |error: std::io::Error| system("reading", &segment.path, &error);
        let mut scanner = Scanner::new(&file, &segment, from);
        loop {
            let byte = scanner.at();
            let (end, kind) = match scanner.next().map_err(wrong)? {
                Found::Frame(frame) => {
                    let end = frame.byte + frame.bytes.len() as u64;
                    if frame.kind == FrameKind::Records && hint >= segment.base + end {
                        admit_frame(view, index, segment.number, &frame)?;
                        self.byte = Some(end);
                        continue;
                    }
                    (end, frame.kind)
                }
                Found::End | Found::Bad(_) if hint <= segment.base + byte => return Ok(false),
                Found::End => {
                    return Err(damaged(segment.number, byte, "the segment ends here, but more had been acknowledged"));
                }
                Found::Bad(what) => return Err(damaged(segment.number, byte, what)),
            };
            if kind == FrameKind::Footer {
                return match read_footer(&segment)? {
                    Some((footer, length)) => {
                        self.next = Next {
                            number: segment.number + 1,
                            base: segment.base + length,
                            previous_digest: footer.digest,
                        };
                        self.byte = None;
                        segment.close();
                        Ok(true)
                    }
                    None => Ok(false),
                };
            }
            // The hint does not cover it: durable it is only if a later frame was begun.
            if !scanner.header_follows().map_err(wrong)? {
                return Ok(false);
            }
            let mut again = Scanner::new(&file, &segment, byte);
            if let Found::Frame(frame) = again.next().map_err(wrong)? {
                admit_frame(view, index, segment.number, &frame)?;
            }
            self.byte = Some(end);
        }
    }
}

/// Whether something was written there: zeros are room for it.
fn grown(segment: &crate::index::Segment, from: u64) -> Result<bool, LogError> {
    let mut header = [0; FRAME_HEADER];
    let read = read_at_most(&*segment.file()?, &mut header, from);
    read.map_err(|error| system("reading", &segment.path, &error))?;
    Ok(header.iter().any(|byte| *byte != 0))
}
