//! Requests to Gerrit's REST interface, and what its answers mean.

use std::fmt;
use std::io::Read as _;
use std::time::{Duration, SystemTime};

use reqwest::blocking::{Client, RequestBuilder, Response};
use reqwest::redirect::Policy;
use serde_json::Value;

use crate::config::GerritConfig;
use crate::error::{GerritError, retry_at, shorten};

/// Stands before every JSON that Gerrit sends, so that no browser runs it as a script.
const GUARD: &[u8] = b")]}'";
/// How much of an error's text is kept.
const SAID_MAX: usize = 600;

/// Gerrit's REST interface, as one account. Blocking: not to be called on a thread of an async runtime.
pub(crate) struct Rest {
    http: Client,
    config: GerritConfig,
    password: String,
}

/// Without the password.
impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rest").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Rest {
    pub(crate) fn new(config: GerritConfig) -> Result<Rest, GerritError> {
        config.check()?;
        let password = config.password()?;
        let http = Client::builder()
            .connect_timeout(config.limits.connect)
            .timeout(config.limits.request)
            // A redirect to a login page would look like an answer, and one to another host would carry the password.
            .redirect(Policy::none())
            .pool_idle_timeout(Duration::from_secs(30))
            .user_agent(concat!("gatelog/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| GerritError::BadSetting { setting: "baseurl", why: causes(&error) })?;
        Ok(Rest { http, config, password })
    }

    pub(crate) fn config(&self) -> &GerritConfig {
        &self.config
    }

    /// `path` is below `a/`, which asks for the password.
    pub(crate) fn get(&self, what: &str, path: &str) -> Result<Value, GerritError> {
        self.answer(what, self.http.get(self.config.below(&format!("a/{path}"))))
    }

    pub(crate) fn post(&self, what: &str, path: &str, body: &Value) -> Result<Value, GerritError> {
        self.answer(what, self.http.post(self.config.below(&format!("a/{path}"))).json(body))
    }

    /// As [`Rest::get`]; `None` where it is not found.
    pub(crate) fn look(&self, what: &str, path: &str) -> Result<Option<Value>, GerritError> {
        match self.get(what, path) {
            Ok(value) => Ok(Some(value)),
            Err(GerritError::NotFoundNow { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn answer(&self, what: &str, request: RequestBuilder) -> Result<Value, GerritError> {
        let response = request
            .basic_auth(&self.config.user, Some(&self.password))
            .header("Accept", "application/json")
            .send()
            .map_err(|error| self.unreachable(what, &error))?;
        let status = response.status().as_u16();
        let wait = response.headers().get("retry-after").and_then(|text| text.to_str().ok()).map(str::to_owned);
        if (200..300).contains(&status) {
            return read_json(what, &self.body(what, response)?);
        }
        // An error's text may be cut off, and may be missing: the status says enough.
        let body = self.body(what, response).unwrap_or_default();
        let said = shorten(&String::from_utf8_lossy(&body), SAID_MAX);
        Err(self.error(what, status, said, wait.as_deref()))
    }

    fn body(&self, what: &str, response: Response) -> Result<Vec<u8>, GerritError> {
        let limit = self.config.limits.answer;
        let mut body = Vec::new();
        let read = response.take(limit as u64 + 1).read_to_end(&mut body);
        read.map_err(|error| GerritError::Unreachable {
            what: what.to_owned(),
            address: self.config.base_url.to_string(),
            why: format!("the answer broke off: {error}"),
            retry_at: retry_at(None, self.config.limits.retry_after, SystemTime::now()),
        })?;
        if body.len() > limit {
            return Err(GerritError::TooMuch { what: format!("bytes of the answer to {what}"), limit });
        }
        Ok(body)
    }

    fn unreachable(&self, what: &str, error: &reqwest::Error) -> GerritError {
        // A client that was built without TLS takes no such address.
        if self.config.base_url.scheme() == "https" && causes(error).contains("scheme is not http") {
            let why = "this gatelog was built without TLS: let a proxy on this host speak https to Gerrit, and name its http \
                       address here";
            return GerritError::BadSetting { setting: "baseurl", why: why.to_owned() };
        }
        GerritError::Unreachable {
            what: what.to_owned(),
            address: self.config.base_url.to_string(),
            why: causes(error),
            retry_at: retry_at(None, self.config.limits.retry_after, SystemTime::now()),
        }
    }

    fn error(&self, what: &str, status: u16, said: String, wait: Option<&str>) -> GerritError {
        let (what, user) = (what.to_owned(), self.config.user.clone());
        match status {
            401 => GerritError::Unauthorized { what, user, file: self.config.password_file.clone() },
            403 => GerritError::Forbidden { what, said, user },
            404 => GerritError::NotFoundNow { what, said, user },
            408 | 429 | 500.. => GerritError::Busy {
                what,
                status,
                said,
                retry_at: retry_at(wait, self.config.limits.retry_after, SystemTime::now()),
            },
            300..=399 => {
                let said = "it sends elsewhere: baseurl must be the address that Gerrit itself answers at".to_owned();
                GerritError::Refused { what, status, said }
            }
            _ => GerritError::Refused { what, status, said },
        }
    }
}

/// An answer's JSON. An empty answer (204) is null.
fn read_json(what: &str, body: &[u8]) -> Result<Value, GerritError> {
    let body = body.strip_prefix(GUARD).unwrap_or(body);
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    serde_json::from_slice(body).map_err(|error| GerritError::Unreadable {
        what: format!("the answer to {what}"),
        why: format!("{error}; is baseurl the address of Gerrit itself?"),
    })
}

/// An error of the client and all behind it, without the address, which the error that it becomes names.
fn causes(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    match (text.is_empty(), error.is_timeout()) {
        (true, true) => "no answer in time".to_owned(),
        (true, false) => "the request could not be made".to_owned(),
        _ => shorten(&text, SAID_MAX),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Answers each text to one request, and closes.
    fn rest(answers: Vec<&'static [u8]>) -> (Rest, tempfile::TempDir) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(answer);
            }
        });
        let dir = tempfile::tempdir().unwrap();
        let mut config = crate::testing::config(&format!("http://127.0.0.1:{port}/r"));
        config.password_file = dir.path().join("password");
        std::fs::write(&config.password_file, "not-to-be-printed\n").unwrap();
        config.limits.request = Duration::from_secs(20);
        config.limits.answer = 1_000;
        (Rest::new(config).unwrap(), dir)
    }

    fn whole(status: &str, headers: &str, body: &str) -> &'static [u8] {
        let text =
            format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n{body}", body.len());
        Box::leak(text.into_bytes().into_boxed_slice())
    }

    #[test]
    fn what_a_server_in_trouble_answers_is_told_apart() {
        let (rest, _dir) = rest(vec![
            whole("200 OK", "", ")]}'\n{\"a\":1}"),
            whole("204 No Content", "", ""),
            whole("429 Too Many", "Retry-After: 30\r\n", "slow down"),
            whole("503 Service Unavailable", "", "<html>down</html>"),
            whole("401 Unauthorized", "", "Unauthorized"),
            whole("403 Forbidden", "", "Applying label \"Code-Review\": 2 is restricted"),
            whole("404 Not Found", "", "Not found: 17"),
            whole("409 Conflict", "", "change is merged"),
            whole("302 Found", "Location: http://elsewhere.example.com/login\r\n", ""),
            whole("200 OK", "", "<html>a login page</html>"),
            b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n)]}'\n{\"half\":",
            b"",
            Box::leak(
                format!("HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n{}", "x".repeat(2000))
                    .into_bytes()
                    .into_boxed_slice(),
            ),
        ]);
        let ask = || rest.get("change 17", "changes/17");
        assert_eq!(ask().unwrap()["a"], 1);
        assert_eq!(ask().unwrap(), Value::Null);
        let before = SystemTime::now();
        let busy = ask().unwrap_err();
        assert!(busy.retry_at().unwrap() >= before + Duration::from_secs(30), "{busy}");
        for code in [
            "busy",
            "unauthorized",
            "forbidden",
            "not-found-now",
            "refused",
            "refused",
            "bad-answer",
            "unreachable",
            "unreachable",
            "too-much",
        ] {
            let error = ask().unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert_eq!(error.passes(), ["busy", "not-found-now", "unreachable"].contains(&code), "{error}");
            let said = format!("{error} {error:?}");
            assert!(!said.contains("not-to-be-printed"), "{said}");
        }
        let mut https = rest.config.clone();
        https.base_url = "https://127.0.0.1:9/".parse().unwrap();
        let error = Rest::new(https).unwrap().get("change 17", "changes/17").unwrap_err();
        let without_tls = error.code() == "bad-setting" && error.to_string().contains("built without TLS");
        assert!(without_tls || error.code() == "unreachable", "{error}");
        // Nobody listens any more.
        let gone = ask().unwrap_err();
        assert!(gone.code() == "unreachable" && gone.to_string().contains("cannot be reached: "), "{gone}");
    }
}
