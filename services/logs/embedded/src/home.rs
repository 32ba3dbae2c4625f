//! The directory: its lock, its header, the hint, and where the segments are.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gatelog_event_log::{LogError, Place};
use gatelog_record::{SiteId, Timestamp};
use rustix::fs::{FlockOperation, flock};

const FORMAT: &str = "gatelog-log 1";
/// No header is longer: adoptions are kept up to [`MAX_ADOPTIONS`].
const MAX_HEADER: u64 = 256 << 10;
const MAX_ADOPTIONS: usize = 100;
const MAX_REASON: usize = 500;
const HINT_MAGIC: [u8; 4] = *b"GLDH";
const HINT: usize = 16;
const LOCK_RETRIES: u32 = 10;
const LOCK_RETRY_AFTER: Duration = Duration::from_millis(20);

/// The paths of one log.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) dir: PathBuf,
}

/// What the system said of a path.
pub(crate) fn system(what: &str, path: &Path, error: &io::Error) -> LogError {
    LogError::System { what: format!("{what} {}", path.display()), message: error.to_string() }
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Replaces a file so that after any crash the old or the new one is there, whole.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        Some(parent) => sync_dir(parent),
        None => Ok(()),
    }
}

/// Makes a directory and those above it; what was made is durable.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        make_dir(parent)?;
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    sync_dir(parent.unwrap_or(Path::new(".")))
}

/// Now, for people: nothing is decided by it.
fn now() -> Timestamp {
    let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    Timestamp(i64::try_from(micros).unwrap_or(i64::MAX))
}

/// What `HEADER` holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogHeader {
    pub(crate) site: SiteId,
    pub(crate) generation: u32,
    pub(crate) partitions: u32,
    /// `<generation> <when> <reason>`, the newest last.
    pub(crate) adopted: Vec<String>,
}

impl LogHeader {
    fn encode(&self) -> String {
        let mut text =
            format!("{FORMAT}\nsite {}\ngeneration {}\npartitions {}\n", self.site, self.generation, self.partitions);
        for line in &self.adopted {
            text.push_str(&format!("adopted {line}\n"));
        }
        let crc = crc32c::crc32c(text.as_bytes());
        text.push_str(&format!("checksum {crc:08x}\n"));
        text
    }

    fn decode(text: &str) -> Result<LogHeader, String> {
        let (content, checksum) = text.rsplit_once("checksum ").ok_or("it does not end in a checksum")?;
        let mut lines = content.lines();
        match lines.next() {
            Some(FORMAT) => {}
            Some(other) => {
                return Err(format!("it begins with {other:?}, not {FORMAT:?}: read it with another gatelog"));
            }
            None => return Err("it is empty".to_owned()),
        }
        if checksum.trim_end() != format!("{:08x}", crc32c::crc32c(content.as_bytes())) {
            return Err("it does not fit its checksum".to_owned());
        }
        let mut field = |name: &'static str| {
            lines
                .next()
                .and_then(|line| line.strip_prefix(name)?.strip_prefix(' '))
                .ok_or_else(|| format!("the line {name:?} is missing"))
        };
        let number = |name: &str, text: &str| text.parse::<u32>().map_err(|_| format!("{name} {text:?} is no number"));
        let site = field("site")?.parse().map_err(|error| format!("{error}"))?;
        let generation = number("generation", field("generation")?)?;
        let partitions = number("partitions", field("partitions")?)?;
        let adopted = lines.filter_map(|line| line.strip_prefix("adopted ").map(str::to_owned)).collect();
        Ok(LogHeader { site, generation, partitions, adopted })
    }
}

/// The exclusive hold on a log. Let go when dropped, or when the process ends in any way.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    /// Let go of explicitly: a child that is just being started still has a copy of the descriptor,
    /// and closing ours alone would leave the lock with it until it has become its own program.
    fn drop(&mut self) {
        if let Err(error) = flock(&self.0, FlockOperation::Unlock) {
            tracing::debug!(%error, "unlocking the log failed; closing its file does it as well");
        }
    }
}

impl Home {
    pub(crate) fn new(dir: &Path) -> Home {
        Home { dir: dir.to_owned() }
    }

    pub(crate) fn segments(&self) -> PathBuf {
        self.dir.join("segments")
    }

    pub(crate) fn segment(&self, number: u64) -> PathBuf {
        self.segments().join(segment_name(number))
    }

    fn header(&self) -> PathBuf {
        self.dir.join("HEADER")
    }

    fn hint(&self) -> PathBuf {
        self.dir.join("durable")
    }

    /// Takes the log for this process.
    pub(crate) fn lock(&self) -> Result<Lock, LogError> {
        let path = self.dir.join("LOCK");
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open.map_err(|error| system("opening", &path, &error))?;
        // Of a holder that was just killed, a child that was being started may have the lock for a
        // moment more.
        let mut locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
        for _ in 0..LOCK_RETRIES {
            if locked != Err(rustix::io::Errno::WOULDBLOCK) {
                break;
            }
            std::thread::sleep(LOCK_RETRY_AFTER);
            locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
        }
        match locked {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                let read = (&mut file).take(200).read_to_string(&mut holder);
                let holder = match read {
                    Ok(_) if !holder.trim().is_empty() => holder.trim().replace('\n', ", "),
                    _ => "unknown".to_owned(),
                };
                return Err(LogError::InUse { path: self.dir.display().to_string(), holder });
            }
            Err(error) => return Err(system("locking", &path, &error.into())),
        }
        let holder = format!("{}\nstarted {}\n", std::process::id(), now());
        file.set_len(0)
            .and_then(|()| file.write_all_at(holder.as_bytes(), 0))
            .map_err(|error| system("writing", &path, &error))?;
        Ok(Lock(file))
    }

    /// The log's header; `None` when there is no log here.
    pub(crate) fn read_header(&self) -> Result<Option<LogHeader>, LogError> {
        let path = self.header();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(system("opening", &path, &error)),
        };
        let mut bytes = Vec::new();
        file.take(MAX_HEADER).read_to_end(&mut bytes).map_err(|error| system("reading", &path, &error))?;
        let text = String::from_utf8_lossy(&bytes);
        LogHeader::decode(&text).map(Some).map_err(|what| LogError::Damaged {
            place: Place { stream: None, offset: None, physical: path.display().to_string() },
            what: format!("the log's header cannot be read: {what}"),
        })
    }

    pub(crate) fn write_header(&self, header: &LogHeader) -> Result<(), LogError> {
        let path = self.header();
        replace_file(&path, header.encode().as_bytes()).map_err(|error| system("writing", &path, &error))
    }

    /// Makes the directory of a new log and its header.
    pub(crate) fn create(&self, partitions: u32) -> Result<LogHeader, LogError> {
        let mut site = [0; 16];
        getrandom::fill(&mut site)
            .map_err(|error| LogError::System { what: "drawing a site id".to_owned(), message: error.to_string() })?;
        let header =
            LogHeader { site: SiteId(site), generation: 1, partitions: partitions.max(1), adopted: Vec::new() };
        self.write_header(&header)?;
        Ok(header)
    }

    /// Makes the directories; their being there is made durable.
    pub(crate) fn make_dirs(&self) -> Result<(), LogError> {
        let segments = self.segments();
        make_dir(&segments).map_err(|error| system("making", &segments, &error))
    }

    /// Raises the generation of a log that nobody holds.
    pub(crate) fn adopt(&self, reason: &str) -> Result<u32, LogError> {
        if self.read_header()?.is_none() {
            return Err(self.no_log());
        }
        let _lock = self.lock()?;
        let Some(mut header) = self.read_header()? else { return Err(self.no_log()) };
        header.generation = header.generation.saturating_add(1);
        let reason: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_REASON).collect();
        header.adopted.push(format!("{} {} {reason}", header.generation, now()));
        let surplus = header.adopted.len().saturating_sub(MAX_ADOPTIONS);
        header.adopted.drain(..surplus);
        // What the hint knew of the log before no longer counts.
        match fs::remove_file(self.hint()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(system("removing", &self.hint(), &error));
            }
            _ => {}
        }
        self.write_header(&header)?;
        Ok(header.generation)
    }

    pub(crate) fn no_log(&self) -> LogError {
        LogError::System {
            what: format!("opening the log in {}", self.dir.display()),
            message: "there is no gatelog log here: start `gatelog serve` once, or name its directory".to_owned(),
        }
    }

    /// The numbers of the segments there are, in order. Leftovers of a creation that was cut short
    /// are not among them.
    pub(crate) fn segment_numbers(&self) -> Result<Vec<u64>, LogError> {
        let path = self.segments();
        let wrong = |error: &io::Error| system("reading", &path, error);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(wrong(&error)),
        };
        let mut numbers = Vec::new();
        for entry in entries {
            let name = entry.map_err(|error| wrong(&error))?.file_name();
            if let Some(number) = name.to_str().and_then(|name| name.strip_suffix(".log")?.parse().ok()) {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The hint's file, for the writer.
    pub(crate) fn open_hint(&self) -> Result<File, LogError> {
        let path = self.hint();
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| system("opening", &path, &error))
    }

    /// Up to which log position everything is known to be durable. A hint that cannot be read says
    /// nothing.
    pub(crate) fn read_hint(&self) -> u64 {
        let mut bytes = [0; HINT];
        let read = File::open(self.hint()).and_then(|file| file.read_exact_at(&mut bytes, 0));
        let (content, crc) = bytes.split_at(HINT - 4);
        let fits = read.is_ok() && crc == crc32c::crc32c(content).to_le_bytes() && content[..4] == HINT_MAGIC;
        match content[4..].try_into() {
            Ok(position) if fits => u64::from_le_bytes(position),
            _ => 0,
        }
    }
}

/// Writes the hint; not made durable itself.
pub(crate) fn write_hint(file: &File, position: u64) -> io::Result<()> {
    let mut bytes = HINT_MAGIC.to_vec();
    bytes.extend_from_slice(&position.to_le_bytes());
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    file.write_all_at(&bytes, 0)
}

pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:08}.log")
}

/// A place in a segment.
pub(crate) fn at(number: u64, byte: u64) -> Place {
    Place { stream: None, offset: None, physical: format!("segment {} byte {byte}", segment_name(number)) }
}

pub(crate) fn damaged(number: u64, byte: u64, what: impl Into<String>) -> LogError {
    LogError::Damaged { place: at(number, byte), what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_a_changed_one_is_refused() {
        let header =
            LogHeader { site: SiteId([3; 16]), generation: 2, partitions: 4, adopted: vec!["2 now because".into()] };
        let text = header.encode();
        assert_eq!(LogHeader::decode(&text), Ok(header));
        for (from, to) in
            [("partitions 4", "partitions 5"), ("site 03", "site 04"), ("log 1", "log 2"), ("checksum", "")]
        {
            assert!(LogHeader::decode(&text.replace(from, to)).is_err(), "{from}");
        }
        assert!(LogHeader::decode("").is_err());
    }
}
