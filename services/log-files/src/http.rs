//! How S3 is asked: the store's own client does not compile without TLS, which gatelog does not have.

use std::error::Error;
use std::pin::Pin;
use std::time::Duration;

use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};

/// How long one request may take, until its answer has ended.
pub(crate) const TIME: Duration = Duration::from_secs(60);
/// How long a connection may take.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Makes clients.
#[derive(Debug)]
pub(crate) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let built = reqwest::Client::builder().connect_timeout(CONNECT_TIME).timeout(TIME).no_proxy().build();
        match built {
            Ok(client) => Ok(HttpClient::new(Client(client))),
            Err(error) => Err(object_store::Error::Generic { store: "S3", source: Box::new(error) }),
        }
    }
}

#[derive(Debug)]
struct Client(reqwest::Client);

/// An answer on its way.
type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Client {
    fn call<'life0, 'async_trait>(&'life0 self, request: HttpRequest) -> Answer<'async_trait>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let request = self
                .0
                .request(parts.method, parts.uri.to_string())
                .headers(parts.headers)
                .body(reqwest::Body::wrap(body));
            let answer: reqwest::Response = request.send().await.map_err(failed)?;
            let mut made = HttpResponse::new(HttpResponseBody::from(Vec::new()));
            *made.status_mut() = answer.status();
            *made.headers_mut() = answer.headers().clone();
            *made.body_mut() = HttpResponseBody::new(reqwest::Body::from(answer).map_err(failed));
            Ok(made)
        })
    }
}

/// What went wrong, and with it whether the store tries again.
fn failed(error: reqwest::Error) -> HttpError {
    let mut kind = match () {
        () if error.is_timeout() => HttpErrorKind::Timeout,
        () if error.is_connect() => HttpErrorKind::Connect,
        () if error.is_decode() => HttpErrorKind::Decode,
        () => HttpErrorKind::Unknown,
    };
    let mut cause = error.source();
    while let (HttpErrorKind::Unknown, Some(one)) = (kind, cause) {
        if let Some(io) = one.downcast_ref::<std::io::Error>() {
            use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
            if matches!(io.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof) {
                kind = HttpErrorKind::Interrupted;
            }
        }
        cause = one.source();
    }
    HttpError::new(kind, error.without_url())
}
