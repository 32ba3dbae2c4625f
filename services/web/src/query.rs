//! Query parameters, none of which is passed over in silence.

use crate::error::ApiError;

/// The most parameters of one request.
const MAX_PARAMETERS: usize = 100;
/// Parameters every read takes.
const COMMON: &[&str] = &["at", "after"];

/// The parameters of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// The parameters of a read, of which each must be among those known or those every read takes.
    pub(crate) fn read(text: Option<&str>, known: &[&str]) -> Result<Query, ApiError> {
        let known: Vec<&str> = known.iter().chain(COMMON).copied().collect();
        Query::read_only(text, &known)
    }

    /// The parameters of what is answered as of now alone, of which each must be among those known.
    pub(crate) fn read_only(text: Option<&str>, known: &[&str]) -> Result<Query, ApiError> {
        let uri = format!("/?{}", text.unwrap_or_default());
        let uri = uri.parse().map_err(|_| ApiError::BadRequest("the query cannot be read".into()))?;
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&uri)
            .map_err(|error| ApiError::BadRequest(error.to_string()))?
            .0;
        if pairs.len() > MAX_PARAMETERS {
            return Err(ApiError::BadRequest(format!("a request takes at most {MAX_PARAMETERS} parameters")));
        }
        for (name, _) in &pairs {
            if !known.contains(&name.as_str()) {
                let mut known = known.to_vec();
                known.sort_unstable();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(ApiError::BadRequest(format!("there is no parameter {name:?} here; there are: {known}")));
            }
        }
        Ok(Query { pairs })
    }

    /// Every value of a parameter. Empty values are as if they were not there, as in Zuul.
    pub(crate) fn all<'q>(&'q self, name: &str) -> Vec<&'q str> {
        self.pairs
            .iter()
            .filter(|(found, value)| found == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// The value of a parameter that may stand only once.
    pub(crate) fn one(&self, name: &str) -> Result<Option<&str>, ApiError> {
        match self.all(name).as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(*one)),
            _ => Err(ApiError::BadRequest(format!("the parameter {name:?} stands twice"))),
        }
    }

    /// A whole number, at most `most`.
    pub(crate) fn number(&self, name: &str, most: u64) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let number: u64 =
            text.parse().map_err(|_| ApiError::BadRequest(format!("{name}={text:?} is not a whole number")))?;
        if number > most {
            return Err(ApiError::BadRequest(format!("{name}={number} is more than {most}")));
        }
        Ok(Some(number))
    }

    /// A truth value: `1`, `true`, `yes` or `0`, `false`, `no`.
    pub(crate) fn truth(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.one(name)?.map(str::to_ascii_lowercase).as_deref() {
            None => Ok(None),
            Some("1" | "true" | "yes") => Ok(Some(true)),
            Some("0" | "false" | "no") => Ok(Some(false)),
            Some(other) => Err(ApiError::BadRequest(format!("{name}={other:?} is neither true nor false"))),
        }
    }
}
