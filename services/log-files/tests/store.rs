//! What jobs leave, kept in a directory and in S3 (moto), read back, and removed by rule.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot set itself up fails, or says what it lacks"
)]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use gatelog_log_files::manifest::{CONSOLE, RESULTS};
use gatelog_log_files::retention::{self, plan};
use gatelog_log_files::{KeepLimits, LogStore, Manifest, Rules, S3Config, keep};
use gatelog_record::BuildId;

const BUILD: BuildId = BuildId([0xb1; 16]);
const OTHER: BuildId = BuildId([0xb2; 16]);
const PATIENCE: Duration = Duration::from_secs(60);
const DAY_MS: i64 = 24 * 3600 * 1000;

/// A job's log directory with these files, and the executor's own.
fn left(files: &[(&str, &[u8])]) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (logs, own) = (dir.path().join("logs"), dir.path().join("own"));
    for (path, bytes) in files {
        let path = logs.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join(CONSOLE), "said\n").unwrap();
    fs::write(own.join(RESULTS), "[\n]\n").unwrap();
    (dir, logs, own)
}

async fn kept(store: &LogStore, build: BuildId, files: &[(&str, &[u8])]) -> Manifest {
    let (_dir, logs, own) = left(files);
    let manifest = keep::keep(store, (build, 1, "w"), &logs, (&KeepLimits::default(), None), PATIENCE).await;
    let on_the_way = store.manifest(build, 1).await.unwrap().unwrap();
    assert!(on_the_way.pending, "a reader sees that it is not complete yet");
    keep::finish(store, (build, 1), manifest, &own, PATIENCE).await;
    store.manifest(build, 1).await.unwrap().unwrap()
}

async fn whole(store: &LogStore, manifest: &Manifest, path: &str) -> Vec<u8> {
    let file = manifest.file(path).unwrap();
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < file.size {
        bytes.extend(store.read(file.digest.unwrap(), file.size, bytes.len() as u64, 1 << 20).await.unwrap());
    }
    bytes
}

/// What every store does.
async fn keeps_and_removes(store: &LogStore) {
    // More than one piece, and one byte more.
    let large: Vec<u8> = (0..(17_u32 << 20) + 1).map(|place| (place % 251) as u8).collect();
    let files: &[(&str, &[u8])] = &[("a/large.bin", &large), ("a/b.txt", b"both"), ("empty", b""), ("c.html", b"<p>")];
    let one = kept(store, BUILD, files).await;
    let two = kept(store, OTHER, &[("same.txt", b"both"), ("own.txt", b"alone")]).await;
    let paths: Vec<&str> = one.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["a/b.txt", "a/large.bin", "c.html", "empty", RESULTS, CONSOLE]);
    assert!(!one.pending && one.left_out.is_empty(), "{one:?}");
    assert_eq!(whole(store, &one, "a/large.bin").await, large);
    assert_eq!((whole(store, &one, "a/b.txt").await, whole(store, &one, "empty").await), (b"both".to_vec(), vec![]));
    assert_eq!(one.file("c.html").unwrap().mime, "text/html; charset=utf-8");
    assert_eq!(one.file("a/b.txt").unwrap().digest, two.file("same.txt").unwrap().digest);
    assert_eq!(one.file(CONSOLE).unwrap().digest.is_some(), store.is_shared());
    let some = store.read(one.file("a/large.bin").unwrap().digest.unwrap(), large.len() as u64, 9_000_000, 5).await;
    assert_eq!(some.unwrap(), large[9_000_000..9_000_005]);
    assert_eq!(store.manifest(BUILD, 2).await.unwrap(), None);

    let all = retention::kept(store).await.unwrap();
    assert_eq!(all.len(), 2);
    let now = all.iter().map(|kept| kept.ended_ms).max().unwrap() + 31 * DAY_MS;
    let rules = Rules { keep_days: Some(30), keep_bytes: None };
    let first: Vec<_> = all.iter().copied().filter(|kept| kept.build == BUILD).collect();
    let planned = plan(first, &rules, now);
    assert_eq!(planned.now[0].rule, "keep-days = 30");
    let mut also = Vec::new();
    let removed = retention::apply(store, &planned.now, now, |build, attempt| {
        also.push((build, attempt));
        Ok(())
    });
    let removed = removed.await.unwrap();
    assert_eq!((removed.len(), also), (1, vec![(BUILD, 1)]));
    assert_eq!(store.manifest(BUILD, 1).await.unwrap(), None);
    let record = store.removal(BUILD, 1).await.unwrap().unwrap();
    assert_eq!((record.rule.as_str(), record.files, record.removed_ms), ("keep-days = 30", 6, now));
    assert_eq!(whole(store, &two, "same.txt").await, b"both", "what another has, too, stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_keeps_what_jobs_leave_and_removes_it_by_rule() {
    let dir = tempfile::tempdir().unwrap();
    for shared in [false, true] {
        let place = dir.path().join(shared.to_string());
        let store = LogStore::directory(&place, shared).unwrap();
        keeps_and_removes(&store).await;
    }
}

/// The files of a store, by their age set back.
fn age(place: &Path, by: Duration) {
    for entry in fs::read_dir(place).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            age(&entry.path(), by);
        } else {
            fs::File::open(entry.path()).unwrap().set_modified(SystemTime::now() - by).unwrap();
        }
    }
}

fn count(place: &Path) -> usize {
    let folders = fs::read_dir(place).unwrap().map(Result::unwrap);
    folders.map(|folder| fs::read_dir(folder.path()).unwrap().count()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn content_goes_with_the_last_that_has_it_and_what_was_just_put_there_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = LogStore::directory(dir.path(), false).unwrap();
    kept(&store, BUILD, &[("a", b"both"), ("b", b"one")]).await;
    age(dir.path(), Duration::from_secs(40 * 24 * 3600));
    // The same content, again: it counts as new, for the manifest of whoever brings it may not be there yet.
    kept(&store, OTHER, &[("c", b"both"), ("d", b"two")]).await;
    assert_eq!(count(&dir.path().join("files")), 3);
    let now = jiff::Timestamp::now().as_millisecond();
    let rules = Rules { keep_days: Some(30), keep_bytes: None };
    let planned = plan(retention::kept(&store).await.unwrap(), &rules, now);
    assert_eq!((planned.now.len(), planned.kept), (1, 1));
    // Its console cannot be removed: everything is tried again the next time.
    let failing = |_, _| Err(std::io::Error::other("busy"));
    assert_eq!(retention::apply(&store, &planned.now, now, failing).await.unwrap().len(), 0);
    let again = plan(retention::kept(&store).await.unwrap(), &rules, now);
    assert_eq!(again.now, planned.now);
    assert_eq!(retention::apply(&store, &again.now, now, |_, _| Ok(())).await.unwrap().len(), 1);
    assert_eq!(count(&dir.path().join("files")), 2, "`one` went, `both` and `two` stay");
    let rest = plan(retention::kept(&store).await.unwrap(), &rules, now);
    assert_eq!((rest.now.len(), rest.kept), (0, 1));
    assert_eq!(rest.next.unwrap().rule, "keep-days = 30");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_written_is_said_and_costs_the_build_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = LogStore::directory(&dir.path().join("store"), false).unwrap();
    fs::remove_dir_all(dir.path().join("store")).unwrap();
    fs::write(dir.path().join("store"), "in the way").unwrap();
    let (_left, logs, own) = left(&[("a", b"a")]);
    let manifest = keep::keep(&store, (BUILD, 1, "w"), &logs, (&KeepLimits::default(), None), PATIENCE).await;
    assert!(manifest.files.is_empty());
    assert!(manifest.warnings()[0].contains("the store cannot be written"), "{:?}", manifest.warnings());
    keep::finish(&store, (BUILD, 1), manifest, &own, PATIENCE).await;
}

/// S3 as moto serves it; ended when it is dropped.
struct Moto {
    process: Child,
    endpoint: String,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Moto {
    /// Starts it; `None`, and says so, where it is not installed.
    fn start() -> Option<Moto> {
        let cache =
            std::env::var_os("GATELOG_CACHE").map(PathBuf::from).map(|cache| cache.join("moto/bin/moto_server"));
        let program = cache.filter(|program| program.exists()).unwrap_or_else(|| "moto_server".into());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let started = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match started {
            Ok(process) => Some(Moto { process, endpoint: format!("http://127.0.0.1:{port}") }),
            Err(error) => {
                println!(
                    "SKIPPED logs of jobs in S3: moto_server cannot be started ({error}); `pip install 'moto[server]'`"
                );
                None
            }
        }
    }

    /// Makes a bucket, once it answers.
    fn bucket(&self, name: &str) {
        let address = self.endpoint.strip_prefix("http://").unwrap();
        for _ in 0..600 {
            if let Ok(mut stream) = std::net::TcpStream::connect(address) {
                use std::io::Write;
                let request = format!(
                    "PUT /{name} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
                stream.write_all(request.as_bytes()).unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                assert!(answer.contains(" 200 "), "{answer}");
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("moto does not answer");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_of_s3_keeps_what_jobs_leave_and_removes_it_by_rule() {
    let Some(moto) = Moto::start() else { return };
    moto.bucket("logs");
    let config = S3Config {
        bucket: "logs".into(),
        endpoint: moto.endpoint.clone(),
        region: "us-east-1".into(),
        prefix: "ci/one".into(),
        access_key_id: "key".into(),
        secret_access_key: "hidden".into(),
    };
    let store = LogStore::s3(&config).unwrap();
    keeps_and_removes(&store).await;
    assert!(!format!("{store:?} {config:?}").contains("hidden"));
    let missing = LogStore::s3(&S3Config { bucket: "none".into(), ..config }).unwrap();
    let error = missing.manifest(BUILD, 1).await.map(|_| ());
    // S3 says of an object in a bucket that is not there that it is not there.
    assert!(error.is_ok() || error.unwrap_err().to_string().contains("s3://none/ci/one"));
}
