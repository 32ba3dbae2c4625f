//! Consoles by websocket, in Zuul's protocol.
//!
//! A client opens `console-stream` and sends one text message: `{"uuid": BUILD, "logfile": "console.log"}`, with `token`
//! where the tenant takes one, for a browser cannot put it into a header. Then it gets the console of the build's newest
//! attempt as text messages, from its first byte until it ends. Zuul: `ConsoleStreamController`; its codes of closing
//! are [`REFUSED`], [`FAILED`] and 1000.
//!
//! Each client has a task of its own that holds one piece of the console at most: one that does not read holds up
//! nobody, and is sent away when nothing could be sent to it for [`SEND_TIME`].

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::{Begun, PATIENCE, PIECE, Wished, begun};
use crate::auth::guard::may_read;
use crate::error::ApiError;
use crate::reading::App;

/// The request makes no sense, or its sender may not ask for this. Zuul: the same.
const REFUSED: u16 = 4000;
/// The console cannot be had. Zuul: the same.
const FAILED: u16 = 4011;
/// The longest message of a client: a token is the longest part of it.
const LONGEST_MESSAGE: usize = 64 << 10;
/// How long a client may take to say what it wants.
const REQUEST_TIME: Duration = Duration::from_secs(30);
/// How often a client is asked whether it is there. Zuul: the same.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// How long a client may let everything lie: three heartbeats.
const SEND_TIME: Duration = Duration::from_secs(60);
/// The longest reason of a close frame: 125 bytes of a control frame, two of which are the code.
const LONGEST_REASON: usize = 123;

/// What a client sends.
#[derive(Deserialize)]
struct Request {
    uuid: String,
    /// Zuul: there is one, `console.log`; its name must stand there and is not looked at.
    #[serde(rename = "logfile")]
    _logfile: String,
    #[serde(default)]
    token: Option<String>,
}

/// Why a stream ends.
struct Ended {
    code: u16,
    reason: String,
}

impl Ended {
    fn refused(reason: impl ToString) -> Ended {
        Ended { code: REFUSED, reason: reason.to_string() }
    }

    fn failed(reason: impl ToString) -> Ended {
        Ended { code: FAILED, reason: reason.to_string() }
    }

    /// Whether it was the request's fault.
    fn by(error: &ApiError) -> Ended {
        match error {
            ApiError::Unauthorized { .. } | ApiError::Forbidden { .. } | ApiError::BadRequest(_) => {
                Ended::refused(error)
            }
            other => Ended::failed(other),
        }
    }
}

/// The client is gone: nobody is left to be told anything.
struct Gone;

/// `console-stream`
pub(crate) fn answer(
    app: Arc<App>,
    tenant: String,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = upgrade.map_err(|error| {
        let why = error.body_text();
        ApiError::BadRequest(format!("this path takes a websocket ({why}); `console` has the same without one"))
    })?;
    let place = app.stream()?;
    let upgrade = upgrade.max_message_size(LONGEST_MESSAGE).max_frame_size(LONGEST_MESSAGE).write_buffer_size(PIECE);
    Ok(upgrade.on_upgrade(move |socket| serve(app, tenant, headers, socket, place)))
}

async fn serve(app: Arc<App>, tenant: String, headers: HeaderMap, mut socket: WebSocket, _place: OwnedSemaphorePermit) {
    let ended = match requested(&mut socket).await {
        Ok(Ok(request)) => follow(&app, tenant, headers, request, &mut socket).await,
        Ok(Err(ended)) => Ok(ended),
        Err(Gone) => Err(Gone),
    };
    let Ok(Ended { code, reason }) = ended else { return };
    let frame = CloseFrame { code, reason: cut(&reason, LONGEST_REASON).into() };
    if send(&mut socket, Message::Close(Some(frame))).await.is_err() {
        return;
    }
    // The client's own close frame: a connection that is closed before it came takes what was sent with it.
    let parting = async { while let Some(Ok(_)) = socket.recv().await {} };
    let _ = timeout(HEARTBEAT, parting).await;
}

/// The one message of the client that counts.
async fn requested(socket: &mut WebSocket) -> Result<Result<Request, Ended>, Gone> {
    let message = async {
        loop {
            match socket.recv().await {
                Some(Ok(Message::Text(text))) => return Ok(text.as_bytes().to_vec()),
                Some(Ok(Message::Binary(bytes))) => return Ok(bytes.to_vec()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(Gone),
            }
        }
    };
    let Ok(message) = timeout(REQUEST_TIME, message).await else {
        return Ok(Err(Ended::refused("nothing was asked for")));
    };
    let wrong = |error: serde_json::Error| {
        Ended::refused(format!("send a JSON object with the texts `uuid` and `logfile`: {error}"))
    };
    Ok(serde_json::from_slice(&message?).map_err(wrong))
}

/// Finds the console and sends it.
async fn follow(
    app: &Arc<App>,
    tenant: String,
    mut headers: HeaderMap,
    request: Request,
    socket: &mut WebSocket,
) -> Result<Ended, Gone> {
    if let Some(token) = &request.token {
        let Ok(mut bearer) = HeaderValue::from_str(&format!("Bearer {token}")) else {
            return Ok(Ended::refused("the token is no text that can stand in a header"));
        };
        bearer.set_sensitive(true);
        headers.insert(AUTHORIZATION, bearer);
    }
    if let Err(error) = may_read(app, &headers, Some(&tenant)).await {
        return Ok(Ended::by(&error));
    }
    let wished = Wished { tenant, uuid: request.uuid, attempt: None, at: None, stored: false, wait: true };
    let mut beat = Beat::new();
    let begun = tokio::select! {
        begun = begun(app, &wished) => begun,
        Gone = beat.listen(socket) => return Err(Gone),
    };
    match begun {
        Ok(begun) => stream(begun, beat, socket).await,
        Err(error) => Ok(Ended::by(&error)),
    }
}

/// Sends a console from its first byte until it ends.
async fn stream(begun: Begun, mut beat: Beat, socket: &mut WebSocket) -> Result<Ended, Gone> {
    let (mut offset, mut text) = (0, Text::default());
    loop {
        let read = tokio::select! {
            read = begun.source.read_from(offset, PIECE, PATIENCE) => read,
            Gone = beat.listen(socket) => return Err(Gone),
        };
        let chunk = match read {
            Ok(chunk) => chunk,
            Err(error) => return Ok(Ended::failed(format!("the console cannot be read now: {error}"))),
        };
        offset = chunk.next.max(offset);
        let mut said = text.take(&chunk.bytes);
        if chunk.ended {
            said.push_str(&text.rest());
        }
        if !said.is_empty() {
            send(socket, Message::Text(said.into())).await?;
        }
        if chunk.ended {
            return Ok(Ended { code: close_code::NORMAL, reason: "the console ends here".to_owned() });
        }
    }
}

/// Asks the client whether it is there.
struct Beat {
    every: tokio::time::Interval,
    /// How many questions it has not answered.
    unanswered: u32,
}

impl Beat {
    /// How many may be unanswered.
    const MOST: u32 = 3;

    fn new() -> Beat {
        let mut every = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Beat { every, unanswered: 0 }
    }

    /// Takes what the client sends, and asks. Ends when it is gone.
    async fn listen(&mut self, socket: &mut WebSocket) -> Gone {
        loop {
            tokio::select! {
                message = socket.recv() => match message {
                    // It has said what it wants. Whatever it says shows that it is there.
                    Some(Ok(Message::Text(_) | Message::Binary(_) | Message::Ping(_) | Message::Pong(_))) => {
                        self.unanswered = 0;
                    }
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return Gone,
                },
                _ = self.every.tick() => {
                    if self.unanswered >= Beat::MOST {
                        return Gone;
                    }
                    self.unanswered += 1;
                    if send(socket, Message::Ping(Default::default())).await.is_err() {
                        return Gone;
                    }
                }
            }
        }
    }
}

async fn send(socket: &mut WebSocket, message: Message) -> Result<(), Gone> {
    match timeout(SEND_TIME, socket.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Gone),
    }
}

/// Bytes as text, where a letter may come in two pieces.
#[derive(Default)]
struct Text {
    /// The beginning of a letter.
    held: Vec<u8>,
}

impl Text {
    /// What these bytes add; what is no text becomes U+FFFD. Zuul: the same.
    fn take(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        // The last letter is whole unless its first byte promises more than there is.
        let whole = match self.held.utf8_chunks().last().map(|chunk| chunk.invalid()) {
            Some(tail) if !tail.is_empty() && could_go_on(tail) => self.held.len() - tail.len(),
            _ => self.held.len(),
        };
        let text = String::from_utf8_lossy(self.held.get(..whole).unwrap_or_default()).into_owned();
        self.held.drain(..whole);
        text
    }

    /// What nothing follows any more.
    fn rest(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

/// Whether bytes that are no letter may be the beginning of one.
fn could_go_on(tail: &[u8]) -> bool {
    std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none())
}

/// The beginning of a text, at most so many bytes of it.
fn cut(text: &str, most: usize) -> String {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_come_in_pieces_are_put_together_and_what_is_no_text_is_marked() {
        let said = "a\u{e4}\u{20ac}\u{1f600}z";
        for at in 0..said.len() {
            let mut text = Text::default();
            let (one, two) = said.as_bytes().split_at(at);
            assert_eq!(text.take(one) + &text.take(two) + &text.rest(), said, "cut at {at}");
        }
        let mut text = Text::default();
        assert_eq!(text.take(b"a\xff\xe2\x82"), "a\u{fffd}");
        assert_eq!(text.take(b"b"), "\u{fffd}b");
        assert_eq!(text.take(b"\xf0\x9f"), "");
        assert_eq!(text.rest(), "\u{fffd}");
        assert_eq!(cut("\u{20ac}\u{20ac}", 5), "\u{20ac}");
    }
}
