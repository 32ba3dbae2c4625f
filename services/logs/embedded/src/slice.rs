//! A slice of a log in one file: some records of each stream, with what is needed to understand them.
//!
//! ```text
//! gatelog slice 1
//! site 0f0e…
//! generation 1
//! partitions 1
//! begins gate/0 119 3 3c4d…            what the first event here follows: sequence, term, link
//! record gate.events/0 4711 302 1a2b3c4d     offset, bytes, CRC32C; then the bytes and a line end
//! blob 77aa… 1204                      its bytes and a line end; its name is their SHA-256
//! file gate-0/00000000000000000120-l1.rung 9000 5e6f7a8b     something else that goes with it
//! end 88bb…                            SHA-256 of all before this line
//! ```
//!
//! [`SliceLog`] reads such a file as a log that begins late ([`Log::begins`]) and cannot be written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use gatelog_event_log::blobs::MAX_BLOB;
use gatelog_event_log::{
    Claim, Description, EventWriter, Log, LogError, MAX_RECORD, Offset, Pending, Place, ReadBatch, ReadLimit,
    ReadRecord, Survives, Tail,
};
use gatelog_record::{BlobHash, ChainLink, Domain, Envelope, Partition, SiteId, Stream};
use sha2::{Digest, Sha256};

const HEAD: &str = "gatelog slice 1";
/// No line of text in it is longer, in bytes.
const LONGEST_LINE: u64 = 1 << 10;
/// No file that goes with it is larger, in bytes.
const MAX_FILE: u64 = 1 << 30;
/// No slice has more records.
const MAX_RECORDS: u64 = 1 << 26;

/// What a slice says of the log it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceHead {
    /// The site.
    pub site: SiteId,
    /// The log's generation.
    pub generation: u32,
    /// How many partitions each domain has.
    pub partitions: u32,
    /// What the first event of each partition follows. A partition that is whole from its first event is not named.
    pub begins: BTreeMap<Partition, Tail>,
}

/// Writes a slice.
pub struct SliceWriter<W: Write> {
    out: W,
    hash: Sha256,
}

impl<W: Write> SliceWriter<W> {
    /// Begins one.
    ///
    /// # Errors
    /// The system's.
    pub fn new(out: W, head: &SliceHead) -> io::Result<SliceWriter<W>> {
        let mut writer = SliceWriter { out, hash: Sha256::new() };
        let SliceHead { site, generation, partitions, begins } = head;
        writer.put(format!("{HEAD}\nsite {site}\ngeneration {generation}\npartitions {partitions}\n").as_bytes())?;
        for (partition, tail) in begins {
            let Tail { sequence, term, link } = tail;
            writer.put(format!("begins {partition} {sequence} {term} {link}\n").as_bytes())?;
        }
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.out.write_all(bytes)
    }

    fn piece(&mut self, line: &str, bytes: &[u8]) -> io::Result<()> {
        self.put(line.as_bytes())?;
        self.put(bytes)?;
        self.put(b"\n")
    }

    /// A record. Those of a stream come in order.
    ///
    /// # Errors
    /// The system's.
    pub fn record(&mut self, stream: Stream, record: &ReadRecord) -> io::Result<()> {
        let (length, crc) = (record.bytes.len(), crc32c::crc32c(&record.bytes));
        self.piece(&format!("record {stream} {} {length} {crc:08x}\n", record.offset.0), &record.bytes)
    }

    /// A blob.
    ///
    /// # Errors
    /// The system's.
    pub fn blob(&mut self, hash: &BlobHash, bytes: &[u8]) -> io::Result<()> {
        self.piece(&format!("blob {hash} {}\n", bytes.len()), bytes)
    }

    /// A file, by a name such as `gate-0/1.rung`.
    ///
    /// # Errors
    /// The system's; a name or size that nobody would read back.
    pub fn file(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        if !fine_name(name) || bytes.len() as u64 > MAX_FILE {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} cannot go into a slice")));
        }
        self.piece(&format!("file {name} {} {:08x}\n", bytes.len(), crc32c::crc32c(bytes)), bytes)
    }

    /// Ends it. Gives what was written to.
    ///
    /// # Errors
    /// The system's.
    pub fn finish(mut self) -> io::Result<W> {
        let digest: [u8; 32] = self.hash.clone().finalize().into();
        self.out.write_all(format!("end {}\n", BlobHash(digest)).as_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Whether a name stays below the folder it is put into.
fn fine_name(name: &str) -> bool {
    let fine = |part: &str| {
        !part.is_empty()
            && part.len() <= 100
            && !part.starts_with('.')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    let parts: Vec<&str> = name.split('/').collect();
    parts.len() <= 3 && parts.into_iter().all(fine)
}

/// A part of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A record.
    Record {
        /// Its stream.
        stream: Stream,
        /// Its place there.
        offset: Offset,
    },
    /// A blob.
    Blob(BlobHash),
    /// A file.
    File(String),
}

/// Reads a slice to its end: every part, checked, with its bytes and where they begin in the file. What was given counts
/// only once this has returned: what is wrong may stand at the end.
///
/// # Errors
/// `Damaged` at a byte; `System`; whatever `each` gives.
pub fn read_slice<E: From<LogError>>(
    path: &Path,
    mut each: impl FnMut(&SliceHead, Piece, u64, Vec<u8>) -> Result<(), E>,
) -> Result<SliceHead, E> {
    let mut source = Source::open(path)?;
    let head = source.head()?;
    let mut ends: BTreeMap<Stream, u64> = BTreeMap::new();
    let mut count = 0_u64;
    loop {
        let at = source.at;
        let line = source.line()?;
        let mut words = line.split(' ');
        let wrong = |what: &'static str| E::from(damaged(path, at, what));
        let piece = match words.next() {
            Some("end") => {
                source.end(&line, at)?;
                return Ok(head);
            }
            Some("record") => {
                let stream = words.next().and_then(|word| word.parse::<Stream>().ok());
                let offset = words.next().and_then(|word| word.parse().ok());
                let (Some(stream), Some(offset)) = (stream, offset) else { return Err(wrong("this is no record")) };
                if ends.insert(stream, offset).is_some_and(|before| before >= offset) {
                    return Err(wrong("the records of a stream are out of order"));
                }
                count += 1;
                if count > MAX_RECORDS {
                    return Err(wrong("there are more records than a slice may have"));
                }
                Piece::Record { stream, offset: Offset(offset) }
            }
            Some("blob") => {
                let hash = words.next().and_then(|word| word.parse().ok());
                Piece::Blob(hash.ok_or_else(|| wrong("this is no blob"))?)
            }
            Some("file") => {
                let name = words.next().filter(|name| fine_name(name));
                Piece::File(name.ok_or_else(|| wrong("this is no file that goes with a slice"))?.to_owned())
            }
            _ => return Err(wrong("this is no part of a slice")),
        };
        let most = match &piece {
            Piece::Record { .. } => MAX_RECORD,
            Piece::Blob(_) => MAX_BLOB,
            Piece::File(_) => MAX_FILE,
        };
        let length = words.next().and_then(|word| word.parse().ok()).filter(|length| *length <= most);
        let length = length.ok_or_else(|| wrong("this says no length, or one that cannot be"))?;
        let crc = words.next().map(|word| u32::from_str_radix(word, 16));
        let begins = source.at;
        let bytes = source.bytes(length)?;
        let sound = match (&piece, crc) {
            (Piece::Blob(hash), None) => BlobHash::of(&bytes) == *hash,
            (Piece::Record { .. } | Piece::File(_), Some(Ok(crc))) => crc32c::crc32c(&bytes) == crc,
            _ => false,
        };
        if !sound || words.next().is_some() {
            return Err(wrong("the bytes are not those that were written"));
        }
        each(&head, piece, begins, bytes)?;
    }
}

fn damaged(path: &Path, byte: u64, what: impl Into<String>) -> LogError {
    let physical = format!("{} byte {byte}", path.display());
    LogError::Damaged { place: Place { stream: None, offset: None, physical }, what: what.into() }
}

fn system(path: &Path, error: &io::Error) -> LogError {
    LogError::System { what: format!("reading {}", path.display()), message: error.to_string() }
}

struct Source {
    path: PathBuf,
    reader: BufReader<File>,
    at: u64,
    hash: Sha256,
    /// The line that ended the head.
    ahead: Option<String>,
}

impl Source {
    fn open(path: &Path) -> Result<Source, LogError> {
        let file = File::open(path).map_err(|error| system(path, &error))?;
        Ok(Source { path: path.to_owned(), reader: BufReader::new(file), at: 0, hash: Sha256::new(), ahead: None })
    }

    /// The next line, without its end. The one that ends the slice is not hashed.
    fn line(&mut self) -> Result<String, LogError> {
        if let Some(line) = self.ahead.take() {
            return Ok(line);
        }
        let mut line = Vec::new();
        let read = (&mut self.reader).take(LONGEST_LINE).read_until(b'\n', &mut line);
        let _ = read.map_err(|error| system(&self.path, &error))?;
        let text = line.strip_suffix(b"\n").and_then(|line| std::str::from_utf8(line).ok()).map(str::to_owned);
        let text =
            text.ok_or_else(|| damaged(&self.path, self.at, "the slice ends in the middle, or this is no line"))?;
        if !text.starts_with("end ") {
            self.hash.update(&line);
        }
        self.at += line.len() as u64;
        Ok(text)
    }

    fn bytes(&mut self, length: u64) -> Result<Vec<u8>, LogError> {
        let mut bytes = Vec::new();
        let read = (&mut self.reader).take(length + 1).read_to_end(&mut bytes);
        let _ = read.map_err(|error| system(&self.path, &error))?;
        self.hash.update(&bytes);
        if bytes.len() as u64 != length + 1 || bytes.pop() != Some(b'\n') {
            return Err(damaged(&self.path, self.at, "the slice ends in the middle"));
        }
        self.at += length + 1;
        Ok(bytes)
    }

    fn head(&mut self) -> Result<SliceHead, LogError> {
        let path = self.path.clone();
        let wrong =
            |at| damaged(&path, at, format!("this is no slice of a log: it must begin with {HEAD:?} and say whose"));
        if self.line().ok().as_deref() != Some(HEAD) {
            return Err(wrong(0));
        }
        let field = |source: &mut Source, name: &str| -> Result<String, LogError> {
            let at = source.at;
            let line = source.line()?;
            line.strip_prefix(name).map(str::to_owned).ok_or_else(|| wrong(at))
        };
        let site = field(self, "site ")?.parse().map_err(|_| wrong(self.at))?;
        let generation = field(self, "generation ")?.parse().map_err(|_| wrong(self.at))?;
        let partitions = field(self, "partitions ")?.parse().map_err(|_| wrong(self.at))?;
        let mut begins = BTreeMap::new();
        loop {
            let at = self.at;
            let line = self.line()?;
            let Some(rest) = line.strip_prefix("begins ") else {
                self.ahead = Some(line);
                return Ok(SliceHead { site, generation, partitions, begins });
            };
            let (partition, tail) = read_begins(rest).ok_or_else(|| wrong(at))?;
            if begins.insert(partition, tail).is_some() {
                return Err(wrong(at));
            }
        }
    }

    fn end(&mut self, line: &str, at: u64) -> Result<(), LogError> {
        let digest: [u8; 32] = self.hash.clone().finalize().into();
        if line != format!("end {}", BlobHash(digest)) {
            return Err(damaged(&self.path, at, "the slice is not what was written: its digest is another"));
        }
        let mut more = [0];
        match self.reader.read(&mut more) {
            Ok(0) => Ok(()),
            Ok(_) => Err(damaged(&self.path, self.at, "something follows the end of the slice")),
            Err(error) => Err(system(&self.path, &error)),
        }
    }
}

fn read_begins(rest: &str) -> Option<(Partition, Tail)> {
    let mut words = rest.split(' ');
    let (name, index) = words.next()?.split_once('/')?;
    let domain = Domain::from_name(name)?;
    let partition = Partition { domain, index: index.parse().ok()? };
    let (sequence, term) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let link = ChainLink(words.next()?.parse::<BlobHash>().ok()?.0);
    words.next().is_none().then_some((partition, Tail { sequence, term, link }))
}

/// Where a record is in the file.
#[derive(Clone, Copy, Debug)]
struct Located {
    offset: u64,
    begins: u64,
    length: u64,
    crc: u32,
    /// Of an event.
    sequence: u64,
}

/// A slice as a log: it begins late, and nothing is ever appended.
pub struct SliceLog {
    path: PathBuf,
    file: File,
    head: SliceHead,
    streams: BTreeMap<Stream, Vec<Located>>,
}

impl SliceLog {
    /// Opens a slice. All of it is read once and checked.
    ///
    /// # Errors
    /// `Damaged` at a byte; `System`.
    pub fn open(path: impl AsRef<Path>) -> Result<SliceLog, LogError> {
        let path = path.as_ref();
        let mut streams: BTreeMap<Stream, Vec<Located>> = BTreeMap::new();
        let head = read_slice(path, |_, piece, begins, bytes| {
            if let Piece::Record { stream, offset } = piece {
                let sequence = match stream {
                    Stream::Events(_) => Envelope::decode(&bytes).map_or(0, |(envelope, _)| envelope.sequence),
                    _ => 0,
                };
                let (length, crc) = (bytes.len() as u64, crc32c::crc32c(&bytes));
                streams.entry(stream).or_default().push(Located { offset: offset.0, begins, length, crc, sequence });
            }
            Ok::<(), LogError>(())
        })?;
        let file = File::open(path).map_err(|error| system(path, &error))?;
        Ok(SliceLog { path: path.to_owned(), file, head, streams })
    }

    /// What it says of the log it is of.
    pub fn head(&self) -> &SliceHead {
        &self.head
    }

    fn read_only() -> LogError {
        LogError::ReadOnly
    }
}

impl Log for SliceLog {
    fn describe(&self) -> Description {
        Description {
            site: self.head.site,
            generation: self.head.generation,
            survives: Survives::PowerLoss,
            name: format!("slice of a log in {}", self.path.display()),
            partitions: self.head.partitions,
        }
    }

    fn append_inputs(&self, _: Stream, _: Vec<Vec<u8>>) -> Pending<Result<Vec<Offset>, LogError>> {
        Pending::ready(Err(SliceLog::read_only()))
    }

    fn claim(&self, _: Partition) -> Result<(Claim, Box<dyn EventWriter>), LogError> {
        Err(SliceLog::read_only())
    }

    fn read(&self, stream: Stream, from: Offset, limit: ReadLimit) -> Result<ReadBatch, LogError> {
        let mut batch = ReadBatch { records: Vec::new(), next: from };
        let Some(all) = self.streams.get(&stream) else { return Ok(batch) };
        let mut taken = 0_usize;
        for located in all.iter().skip(all.partition_point(|located| located.offset < from.0)) {
            let full =
                batch.records.len() >= limit.records || taken.saturating_add(located.length as usize) > limit.bytes;
            if full && !batch.records.is_empty() {
                break;
            }
            let mut bytes = vec![0; located.length as usize];
            self.file.read_exact_at(&mut bytes, located.begins).map_err(|error| system(&self.path, &error))?;
            if crc32c::crc32c(&bytes) != located.crc {
                return Err(damaged(&self.path, located.begins, "the bytes are not those that were written"));
            }
            taken = taken.saturating_add(bytes.len());
            batch.records.push(ReadRecord { offset: Offset(located.offset), bytes });
            batch.next = Offset(located.offset.saturating_add(1));
        }
        Ok(batch)
    }

    fn end(&self, stream: Stream) -> Result<Offset, LogError> {
        let last = self.streams.get(&stream).and_then(|all| all.last());
        Ok(Offset(last.map_or(0, |located| located.offset.saturating_add(1))))
    }

    fn seek(&self, partition: Partition, sequence: u64) -> Result<Offset, LogError> {
        let Some(all) = self.streams.get(&Stream::Events(partition)) else { return Ok(Offset(0)) };
        let found = all.iter().find(|located| located.sequence >= sequence);
        Ok(found.map_or(self.end(Stream::Events(partition))?, |located| Offset(located.offset)))
    }

    fn changed(&self, _: Stream, _: Offset) -> Pending<()> {
        Pending::lost()
    }

    fn streams(&self) -> Result<Vec<Stream>, LogError> {
        Ok(self.streams.keys().copied().collect())
    }

    fn begins(&self, partition: Partition) -> Tail {
        self.head.begins.get(&partition).copied().unwrap_or(Tail::GENESIS)
    }
}
