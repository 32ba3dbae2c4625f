//! Consoles by finger (RFC 1288), as Zuul's executors and `zuul-fingergw` answer it: `finger UUID@host`.
//!
//! A client sends the id of a build and the end of a line, and gets the raw bytes of its newest attempt's console until
//! that ends. A finger client has no token: only builds of tenants at which everybody may look are shown.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use gatelog_record::BuildId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{PATIENCE, PIECE, Wished, begun};
use crate::auth::guard::may_read;
use crate::error::ApiError;
use crate::reading::{App, Needs, read};
use crate::site::Site;

/// The longest request, in bytes. Zuul: the same.
const LONGEST: usize = 1024;
/// How long a client may take to ask. Zuul: the same.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// How long a client may let everything lie.
const SEND_TIME: Duration = Duration::from_secs(60);
/// How many clients are answered at once; more are sent away.
const AT_ONCE: usize = 512;
/// How long is waited when no connection can be accepted, such as when all files are in use.
const REST: Duration = Duration::from_millis(500);

/// Answers finger requests until `shutdown` comes.
pub async fn serve(listener: TcpListener, site: Site, shutdown: impl Future<Output = ()>) {
    let (app, places) = (Arc::new(App::new(site)), Arc::new(Semaphore::new(AT_ONCE)));
    tokio::pin!(shutdown);
    let mut answers = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = answers.join_next(), if !answers.is_empty() => continue,
            () = &mut shutdown => return,
        };
        let mut stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a finger request could not be accepted");
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => {
                let app = Arc::clone(&app);
                answers.spawn(async move {
                    // Who went away needs no answer.
                    let _ = answer(&app, &mut stream).await;
                    drop(place);
                });
            }
            // One small write into an empty buffer: nothing is waited for.
            Err(_) => drop(stream.try_write(b"Too many consoles are being read here: come again later\n")),
        }
    }
}

/// Answers one client.
async fn answer(app: &Arc<App>, stream: &mut TcpStream) -> std::io::Result<()> {
    let said = match timeout(REQUEST_TIME, request(stream)).await {
        Ok(asked) => follow(app, &asked?, stream).await?,
        Err(_) => Some("Timeout: send the id of a build and the end of a line".to_owned()),
    };
    if let Some(said) = said {
        send(stream, format!("{said}\n").as_bytes()).await?;
    }
    stream.shutdown().await
}

/// The line of a client, as it came.
async fn request(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut piece = [0; LONGEST];
    while line.len() <= LONGEST {
        let read = stream.read(&mut piece).await?;
        line.extend_from_slice(piece.get(..read).unwrap_or_default());
        if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
            line.truncate(end);
            break;
        }
        if read == 0 {
            break;
        }
    }
    Ok(line)
}

/// Sends the console that was asked for; or gives what to say instead of it, or at its end.
async fn follow(app: &Arc<App>, line: &[u8], stream: &mut TcpStream) -> std::io::Result<Option<String>> {
    let id = std::str::from_utf8(line).ok().filter(|_| line.len() <= LONGEST).map(str::trim);
    // RFC 1288: `/W` before the name asks for a longer answer. There is one answer.
    let id = id.map(|id| id.strip_prefix("/W").unwrap_or(id).trim_start());
    let Some(build) = id.and_then(|id| id.parse::<BuildId>().ok()) else {
        return Ok(Some("Build ID not valid: send the 32 hex digits of a build and the end of a line".to_owned()));
    };
    let begun = async {
        let tenant = tenant(app, build).await?;
        may_read(app, &HeaderMap::new(), Some(&tenant)).await?;
        let uuid = build.to_string();
        begun(app, &Wished { tenant, uuid, attempt: None, at: None, stored: false, wait: false }).await
    };
    let begun = match begun.await {
        Ok(begun) => begun,
        // Whether a build of a closed tenant is there is not told either.
        Err(ApiError::NotFound(_) | ApiError::Unauthorized { .. } | ApiError::Forbidden { .. }) => {
            return Ok(Some(format!("Build ID {build} not found: it has not begun, or its console is not here")));
        }
        Err(error) => return Ok(Some(format!("The console cannot be had now: {error}"))),
    };
    let mut offset = 0;
    loop {
        let read = tokio::select! {
            read = begun.source.read_from(offset, PIECE, PATIENCE) => read,
            error = broken(stream) => return Err(error),
        };
        let chunk = match read {
            Ok(chunk) => chunk,
            Err(error) => return Ok(Some(format!("The console cannot be read now: {error}"))),
        };
        offset = chunk.next.max(offset);
        send(stream, &chunk.bytes).await?;
        if chunk.ended {
            return Ok(None);
        }
    }
}

/// Comes when the connection is broken. Some clients close their sending half once they have asked, and read on.
async fn broken(stream: &mut TcpStream) -> std::io::Error {
    let mut ignored = [0; 64];
    loop {
        match stream.read(&mut ignored).await {
            Ok(0) => std::future::pending::<()>().await,
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}

/// The tenant of a build.
async fn tenant(app: &Arc<App>, build: BuildId) -> Result<String, ApiError> {
    let look = move |app: &App| {
        read(app, None, Needs::History, |reading| {
            let entry = reading.history().build(build, reading.at)?;
            entry.map(|entry| entry.tenant).ok_or_else(|| ApiError::NotFound(format!("there is no build {build}")))
        })
    };
    app.blocking(look).await
}

async fn send(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    timeout(SEND_TIME, stream.write_all(bytes)).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}
