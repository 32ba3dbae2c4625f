//! Stdout, a line at a time. A reader that goes away (`gatelog log cat | head`) ends the command, not with an error.

use std::io::{self, BufWriter, StdoutLock, Write};

use serde_json::Value as Json;

use super::failure::{Code, Failure};

/// Whether there is still somebody who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Reader {
    /// Yes.
    There,
    /// No: nothing more is to be said.
    Gone,
}

/// Stdout, buffered.
pub struct Output {
    out: BufWriter<StdoutLock<'static>>,
    reader: Reader,
}

impl Output {
    /// Stdout.
    pub fn new() -> Output {
        Output { out: BufWriter::new(io::stdout().lock()), reader: Reader::There }
    }

    /// One line.
    pub fn line(&mut self, text: &str) -> Result<Reader, Failure> {
        let written = writeln!(self.out, "{text}");
        self.after(written)
    }

    /// Many lines.
    pub fn lines(&mut self, lines: &[String]) -> Result<Reader, Failure> {
        for line in lines {
            if self.line(line)? == Reader::Gone {
                break;
            }
        }
        Ok(self.reader)
    }

    /// One JSON document over several lines.
    pub fn json(&mut self, document: &Json) -> Result<Reader, Failure> {
        self.line(&crate::show::json(document, true))
    }

    /// What was said so far is seen.
    pub fn flush(&mut self) -> Result<Reader, Failure> {
        let flushed = self.out.flush();
        self.after(flushed)
    }

    fn after(&mut self, written: io::Result<()>) -> Result<Reader, Failure> {
        match written {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.reader = Reader::Gone,
            Err(error) => return Err(Failure::new(Code::No, format!("stdout: {error}"))),
        }
        Ok(self.reader)
    }
}
