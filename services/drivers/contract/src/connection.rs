//! Connections, by name and by host.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use gatelog_driver_schema::{DriverSchema, Schemas};
use gatelog_record::Timestamp;
use gatelog_record::draft::gate::ChangeKey;

use crate::intake::Intake;
use crate::report::Reporter;
use crate::review::CodeReview;
use crate::trouble::Trouble;
use crate::webhook::Webhook;

/// How many calls a connection bears at once where its driver says nothing.
const AT_ONCE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

/// A connection, opened: the parts it has.
#[derive(Clone)]
pub struct Connection {
    /// Its name, by which pipelines and the tenant file know it.
    pub name: String,
    /// What may be said to it.
    pub schema: &'static DriverSchema,
    /// Its projects and changes.
    pub review: Option<Arc<dyn CodeReview>>,
    /// Who is told of results.
    pub reporter: Option<Arc<dyn Reporter>>,
    /// What happens there.
    pub intake: Option<Arc<dyn Intake>>,
    /// What it sends by HTTP.
    pub webhook: Option<Arc<dyn Webhook>>,
    /// What it bears.
    pub lane: Arc<Lane>,
}

impl Connection {
    /// A connection without any part.
    pub fn new(name: impl Into<String>, schema: &'static DriverSchema) -> Connection {
        Connection {
            name: name.into(),
            schema,
            review: None,
            reporter: None,
            intake: None,
            webhook: None,
            lane: Arc::default(),
        }
    }

    /// The same with projects and changes.
    #[must_use]
    pub fn with_review(self, review: Arc<dyn CodeReview>) -> Connection {
        Connection { review: Some(review), ..self }
    }

    /// The same with somebody who is told of results.
    #[must_use]
    pub fn with_reporter(self, reporter: Arc<dyn Reporter>) -> Connection {
        Connection { reporter: Some(reporter), ..self }
    }

    /// The same with something that happens there.
    #[must_use]
    pub fn with_intake(self, intake: Arc<dyn Intake>) -> Connection {
        Connection { intake: Some(intake), ..self }
    }

    /// The same with deliveries by HTTP.
    #[must_use]
    pub fn with_webhook(self, webhook: Arc<dyn Webhook>) -> Connection {
        Connection { webhook: Some(webhook), ..self }
    }
}

/// What a connection bears: whoever has work for it keeps to this, and work for other connections goes on meanwhile.
#[derive(Debug)]
pub struct Lane {
    at_once: NonZeroUsize,
    rest: Mutex<Option<Timestamp>>,
}

impl Default for Lane {
    fn default() -> Lane {
        Lane::new(AT_ONCE)
    }
}

impl Lane {
    /// A lane of so many calls at once.
    pub fn new(at_once: NonZeroUsize) -> Lane {
        Lane { at_once, rest: Mutex::default() }
    }

    /// How many calls it bears at once.
    pub fn at_once(&self) -> NonZeroUsize {
        self.at_once
    }

    /// Nobody is to call before this moment: the other side said so. A moment before one that is known changes nothing.
    pub fn rest_until(&self, moment: Timestamp) {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        *rest = (*rest).max(Some(moment));
    }

    /// Until when nobody is to call, if that is still to come.
    pub fn resting(&self, now: Timestamp) -> Option<Timestamp> {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        *rest = rest.filter(|until| *until > now);
        *rest
    }
}

/// The connections of a site.
#[derive(Clone, Default)]
pub struct Connections {
    by_name: BTreeMap<String, Arc<Connection>>,
    schemas: Schemas,
}

impl Connections {
    /// None yet, of a site that has these drivers.
    pub fn new(schemas: Schemas) -> Connections {
        Connections { by_name: BTreeMap::new(), schemas }
    }

    /// Adds one, in place of one of its name.
    pub fn add(&mut self, connection: Connection) {
        self.by_name.insert(connection.name.clone(), Arc::new(connection));
    }

    /// What may be said to drivers of the site, whether a connection has them or not.
    pub fn schemas(&self) -> Schemas {
        self.schemas
    }

    /// One by name.
    ///
    /// # Errors
    /// There is none.
    pub fn get(&self, name: &str) -> Result<&Arc<Connection>, Trouble> {
        self.by_name.get(name).ok_or_else(|| {
            let message = format!("there is no connection {name:?} in this site's gatelog.toml");
            Trouble::new("unknown-connection", message)
        })
    }

    /// The code-review system of a connection.
    ///
    /// # Errors
    /// There is no such connection, or it has no projects.
    pub fn review(&self, name: &str) -> Result<&Arc<dyn CodeReview>, Trouble> {
        self.get(name)?.review.as_ref().ok_or_else(|| {
            Trouble::new("no-code-review", format!("connection {name} is no code-review system: it has no projects"))
        })
    }

    /// Every connection, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.by_name.values()
    }

    /// The connections that have a host, by name: several may.
    pub fn by_host(&self, host: &str) -> impl Iterator<Item = (&Arc<Connection>, &Arc<dyn CodeReview>)> {
        let reviews = self.iter().filter_map(|connection| Some((connection, connection.review.as_ref()?)));
        reviews.filter(move |(_, review)| review.hosts().iter().any(|known| known.eq_ignore_ascii_case(host)))
    }

    /// Whose change an address names, over all connections: the connection's name and the change. `None`: nobody's.
    ///
    /// # Errors
    /// Somebody whose host it names could not be asked, and nobody else knows it.
    pub fn by_address(&self, url: &str) -> Result<Option<(String, ChangeKey)>, Trouble> {
        let mut trouble = None;
        for (connection, review) in host_of(url).into_iter().flat_map(|host| self.by_host(host)) {
            match review.change_by_url(url) {
                Ok(Some(change)) => return Ok(Some((connection.name.clone(), change))),
                Ok(None) => {}
                Err(error) => trouble = Some(error),
            }
        }
        trouble.map_or(Ok(None), Err)
    }

    /// A project's name on its connection, from its canonical name.
    ///
    /// # Errors
    /// The connection is unknown, or of another host.
    pub fn local_name<'p>(&self, connection: &str, canonical: &'p str) -> Result<&'p str, Trouble> {
        let host = self.review(connection)?.canonical_hostname();
        canonical.strip_prefix(host).and_then(|rest| rest.strip_prefix('/')).ok_or_else(|| {
            let message = format!("project {canonical} is not on {host}, the host of connection {connection}");
            Trouble::new("wrong-host", message)
        })
    }
}

/// The host of an address, without user and port.
fn host_of(url: &str) -> Option<&str> {
    let (_, rest) = url.trim().split_once("://")?;
    let place = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let host = place.rsplit('@').next().unwrap_or(place);
    // A bracketed address of IPv6 has colons of its own.
    let host = if host.starts_with('[') { host } else { host.split(':').next().unwrap_or(host) };
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Branch, Found};
    use crate::review::Source;
    use crate::submit::{Landing, Target};
    use gatelog_record::WorkId;
    use gatelog_record::draft::gate::ChangesWanted;

    const SCHEMA: DriverSchema = DriverSchema::silent("test");

    /// Knows changes with a number below ten at its host.
    struct Numbers(&'static str);

    impl CodeReview for Numbers {
        fn canonical_hostname(&self) -> &str {
            self.0
        }
        fn hosts(&self) -> Vec<String> {
            vec![self.0.to_owned(), format!("www.{}", self.0)]
        }
        fn source(&self, project: &str) -> Result<Source, Trouble> {
            Ok(Source::open(format!("/srv/{project}")))
        }
        fn find_changes(&self, _: &ChangesWanted) -> Result<Found, Trouble> {
            Err(Trouble::not_offered("changes"))
        }
        fn change_by_url(&self, url: &str) -> Result<Option<ChangeKey>, Trouble> {
            let number = url.rsplit('/').next().unwrap_or_default();
            match number.parse::<u32>() {
                Ok(number) if number < 10 => {
                    Ok(Some(ChangeKey { project: format!("{}/p", self.0), change: number.to_string() }))
                }
                Ok(99) => Err(Trouble::not_found_now("index", "ask again")),
                _ => Ok(None),
            }
        }
        fn changes_by_commit(&self, _: &str, _: &str) -> Result<Vec<ChangeKey>, Trouble> {
            Ok(Vec::new())
        }
        fn branches(&self, _: &str) -> Result<Vec<Branch>, Trouble> {
            Ok(Vec::new())
        }
        fn default_branch(&self, _: &str) -> Result<Option<String>, Trouble> {
            Ok(None)
        }
        fn submit_all(&self, _: WorkId, _: &[Target<'_>]) -> Result<Vec<Landing>, Trouble> {
            Err(Trouble::not_offered("merging"))
        }
    }

    fn site() -> Connections {
        let mut all = Connections::default();
        for (name, host) in [("one", "a.test"), ("two", "b.test"), ("three", "b.test")] {
            all.add(Connection::new(name, &SCHEMA).with_review(Arc::new(Numbers(host))));
        }
        all.add(Connection::new("mail", &SCHEMA));
        all
    }

    #[test]
    fn an_address_is_resolved_by_whoever_has_its_host() {
        let all = site();
        let found = |url: &str| all.by_address(url).unwrap().map(|(name, change)| (name, change.change));
        assert_eq!(found("https://a.test/c/p/+/3"), Some(("one".into(), "3".into())));
        assert_eq!(found("https://user@WWW.b.test:8443/4"), Some(("three".into(), "4".into())));
        assert_eq!(found("https://a.test/22"), None);
        assert_eq!(found("https://c.test/3"), None);
        assert_eq!(found("no address"), None);
        assert!(all.by_address("https://a.test/99").unwrap_err().not_found_now);
        assert_eq!(all.by_host("b.test").count(), 2, "two connections may have one host");
    }

    #[test]
    fn what_has_no_projects_is_no_code_review() {
        let all = site();
        assert_eq!(all.review("mail").err().unwrap().code, "no-code-review");
        assert_eq!(all.review("none").err().unwrap().code, "unknown-connection");
        assert_eq!(all.local_name("one", "a.test/org/p").unwrap(), "org/p");
        assert_eq!(all.local_name("one", "a.testing/p").unwrap_err().code, "wrong-host");
    }

    #[test]
    fn a_lane_rests_until_the_latest_moment_it_was_told() {
        let lane = Lane::default();
        assert_eq!(lane.resting(Timestamp(5)), None);
        lane.rest_until(Timestamp(20));
        lane.rest_until(Timestamp(10));
        assert_eq!(lane.resting(Timestamp(15)), Some(Timestamp(20)));
        assert_eq!(lane.resting(Timestamp(20)), None);
        assert_eq!(lane.at_once().get(), 2);
    }

    #[test]
    fn a_secret_is_never_shown() {
        let shown = format!("{:?}", crate::Secret("s3cret".into()));
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}
