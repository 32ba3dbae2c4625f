//! The API from the command line's side.

use std::time::Duration;

use serde_json::Value as Json;

/// Why the API gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers.
    #[error("{url}: no gatelog server answers ({message}); start one with `gatelog serve --dir DIR`")]
    Unreachable {
        /// What was asked.
        url: String,
        /// What the system says.
        message: String,
    },
    /// The server says no.
    #[error("{url}: {status}: {message}")]
    Refused {
        /// What was asked.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What the server says.
        message: String,
    },
    /// The answer is not what it should be.
    #[error("{url}: the answer is not JSON: {message}")]
    NotJson {
        /// What was asked.
        url: String,
        /// What is wrong.
        message: String,
    },
}

/// What an answer says besides its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The position it is as of.
    pub position: Option<String>,
    /// The number of the request that is in force now.
    pub request: Option<String>,
}

/// A client of one server.
#[derive(Clone)]
pub struct Client {
    base: String,
    token: Option<String>,
    http: reqwest::blocking::Client,
}

impl Client {
    /// A client of the server at this address, such as `http://127.0.0.1:9000`.
    pub fn new(base: impl Into<String>) -> Result<Client, ClientError> {
        Client::within(base, Duration::from_secs(30))
    }

    /// The same; each of its questions is given up after a time.
    pub fn within(base: impl Into<String>, time: Duration) -> Result<Client, ClientError> {
        let base = base.into().trim_end_matches('/').to_owned();
        let http = reqwest::blocking::Client::builder()
            .timeout(time)
            .no_proxy()
            .build()
            .map_err(|error| ClientError::Unreachable { url: base.clone(), message: error.to_string() })?;
        Ok(Client { base, token: None, http })
    }

    /// The same, in the name of a token's bearer.
    pub fn with_token(self, token: String) -> Client {
        Client { token: Some(token), ..self }
    }

    /// Whether it asks in somebody's name.
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// The server's address.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// A JSON document, by its path with query.
    pub fn get(&self, path: &str) -> Result<Json, ClientError> {
        let url = format!("{}{path}", self.base);
        let text = self.text(&url)?;
        serde_json::from_str(&text).map_err(|error| ClientError::NotJson { url, message: error.to_string() })
    }

    /// A JSON document whatever the status, by its path; `None`: nobody answers, or not with one.
    pub fn get_any(&self, path: &str) -> Option<Json> {
        let text = self.http.get(format!("{}{path}", self.base)).send().and_then(|answer| answer.text()).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// A text, by its path with query.
    pub fn get_text(&self, path: &str) -> Result<String, ClientError> {
        self.text(&format!("{}{path}", self.base))
    }

    /// Sends a body to a path.
    pub fn post(&self, path: &str, body: &Json) -> Result<Said, ClientError> {
        let url = format!("{}{path}", self.base);
        self.answer(&url, self.http.post(&url).json(body)).map(|(_, said)| said)
    }

    /// Sends a body to a path, for a document.
    pub fn ask(&self, path: &str, body: &Json) -> Result<(Json, Said), ClientError> {
        let url = format!("{}{path}", self.base);
        let (text, said) = self.answer(&url, self.http.post(&url).json(body))?;
        let document =
            serde_json::from_str(&text).map_err(|error| ClientError::NotJson { url, message: error.to_string() })?;
        Ok((document, said))
    }

    /// Deletes what is at a path.
    pub fn delete(&self, path: &str) -> Result<(), ClientError> {
        let url = format!("{}{path}", self.base);
        self.answer(&url, self.http.delete(&url)).map(|_| ())
    }

    fn text(&self, url: &str) -> Result<String, ClientError> {
        self.answer(url, self.http.get(url)).map(|(text, _)| text)
    }

    /// The text of an answer, and what its headers say.
    fn answer(&self, url: &str, request: reqwest::blocking::RequestBuilder) -> Result<(String, Said), ClientError> {
        let unreachable = |error: reqwest::Error| ClientError::Unreachable {
            url: url.to_owned(),
            message: gatelog_effects::connection::chain(&error),
        };
        let request = match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let response = request.send().map_err(unreachable)?;
        let status = response.status();
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let said = Said { position: header("gatelog-position"), request: header("gatelog-request") };
        let text = response.text().map_err(unreachable)?;
        if status.is_success() {
            return Ok((text, said));
        }
        let message = serde_json::from_str::<Json>(&text)
            .ok()
            .and_then(|json| json.get("description").or_else(|| json.get("error"))?.as_str().map(str::to_owned))
            .unwrap_or(text);
        Err(ClientError::Refused { url: url.to_owned(), status: status.as_u16(), message })
    }
}
