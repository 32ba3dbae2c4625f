//! Why brokers cannot be spoken to: what librdkafka says while it tries, in words that name a setting and a cure.
//!
//! librdkafka tries for ever and answers whoever asks that nobody was reached; the reason it only tells on the side.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::config::Purpose;
use crate::cursor::Reach;
use crate::fault::code_of;
use crate::security::{Security, Wrong};

/// So many different things are remembered, the newest.
const REMEMBERED: usize = 16;

/// So many events are taken at once.
const TURNS: u32 = 64;

/// A connection that a broker ends so soon, in milliseconds, it did not want.
const SOON: u64 = 2_000;

/// For so long it is tried whether a certificate is wrong or only the name in it.
const PROBE: Duration = Duration::from_secs(5);

/// A context that remembers what went wrong, where that has to do with security. To the traces it says nothing: the
/// clients that do the work say the same.
#[derive(Clone, Default)]
pub(crate) struct Listening(Arc<Mutex<Vec<(Meaning, String)>>>);

impl ClientContext for Listening {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(target: "kafka", ?level, facility, "{message}");
        // That a broker ended the connection is no error to librdkafka, which tells errors below.
        let mild = matches!(level, RDKafkaLogLevel::Warning | RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info);
        if mild && facility == "FAIL" {
            self.note(Code::BrokerTransportFailure, message);
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "kafka", %error, "{reason}");
        if let Some(code) = code_of(&error) {
            self.note(code, reason);
        }
    }
}

impl ConsumerContext for Listening {}

impl Listening {
    /// How much librdkafka has to log for it.
    pub(crate) const LEVEL: RDKafkaLogLevel = RDKafkaLogLevel::Info;

    fn note(&self, code: Code, reason: &str) {
        let Some(meaning) = Meaning::of(code, reason) else { return };
        let mut heard = self.0.lock();
        if heard.len() == REMEMBERED {
            heard.remove(0);
        }
        heard.push((meaning, reason.to_owned()));
    }

    /// What a client that is not read from has to say; each is told once.
    fn hear(client: &BaseConsumer<Listening>) -> Vec<(Meaning, String)> {
        // An event a turn; nothing is also said of a turn that only had something for the traces.
        for _ in 0..TURNS {
            drop(client.poll(Duration::ZERO));
        }
        std::mem::take(&mut *client.context().0.lock())
    }
}

/// What one reason means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The user or the password.
    Credentials,
    /// The mechanism of SASL.
    Mechanism,
    /// The broker's certificate: not signed by the CA, or for another host.
    Certificate,
    /// The broker wants a certificate and got none, or not one it trusts.
    ClientCertificate,
    /// TLS was offered to somebody who does not speak it.
    NoTls,
    /// Somebody was spoken to in the clear who speaks TLS.
    Tls,
    /// SASL is asked for.
    Sasl,
    /// TLS failed in another way.
    Handshake,
}

impl Meaning {
    /// What librdkafka's words mean; `None` when they have nothing to do with security.
    fn of(code: Code, reason: &str) -> Option<Meaning> {
        let says = |words: &[&str]| words.iter().any(|word| reason.contains(word));
        let ended = reason.contains("Disconnected");
        let lasted = reason.rsplit_once("(after ").and_then(|(_, rest)| rest.split_once("ms in state"));
        let soon = lasted.and_then(|(lasted, _)| lasted.parse::<u64>().ok()).is_some_and(|lasted| lasted < SOON);
        let found = if says(&["mechanism handshake failed", "Unsupported SASL mechanism"]) {
            Meaning::Mechanism
        } else if code == Code::Authentication || code == Code::SaslAuthenticationFailed {
            Meaning::Credentials
        } else if says(&["certificate could not be verified", "certificate verify failed", "Failed to verify broker"]) {
            Meaning::Certificate
        } else if says(&["certificate required", "bad certificate", "certificate unknown", "unknown ca"])
            || says(&["client SSL authentication might be required", "alert handshake failure"])
        {
            Meaning::ClientCertificate
        } else if says(&["PLAINTEXT broker listener", "wrong version number", "packet length too long"]) {
            Meaning::NoTls
        } else if says(&["connecting to a SSL listener"]) || (ended && says(&["in state APIVERSION_QUERY"])) {
            Meaning::Tls
        } else if says(&["might require SASL authentication"]) || (ended && soon && says(&["in state UP"])) {
            Meaning::Sasl
        } else if code == Code::SSL {
            Meaning::Handshake
        } else {
            return None;
        };
        Some(found)
    }

    /// A broker that is just stopping may look like one that speaks another protocol: once is not enough.
    fn is_sure_at_once(self) -> bool {
        !matches!(self, Meaning::NoTls | Meaning::Tls | Meaning::Sasl | Meaning::Handshake)
    }
}

/// Which broker a reason is about: `ssl://host:9093/bootstrap: …`.
fn broker_in(reason: &str) -> Option<&str> {
    let (_, rest) = reason.split_once("://")?;
    rest.split(['/', ' ']).next().map(|broker| broker.trim_end_matches(':')).filter(|broker| !broker.is_empty())
}

/// What was heard so far of one thing.
#[derive(Default)]
pub(crate) struct Troubles {
    heard: Vec<Meaning>,
    told: Option<Wrong>,
}

impl Reach {
    /// Why the brokers cannot be spoken to, once that is certain and no waiting will help.
    pub(crate) fn refused(&self) -> Option<Wrong> {
        let news = Listening::hear(self.asker());
        let mut troubles = self.troubles.lock();
        if troubles.told.is_some() {
            return troubles.told.clone();
        }
        for (meaning, reason) in news {
            match meaning {
                Meaning::Tls if self.security.tls => continue,
                Meaning::Sasl if self.security.mechanism.is_some() => continue,
                _ => {}
            }
            let again = troubles.heard.contains(&meaning);
            if meaning.is_sure_at_once() || again {
                let wrong = explain(self, meaning, &reason);
                troubles.told = Some(wrong.clone());
                return Some(wrong);
            }
            troubles.heard.push(meaning);
        }
        None
    }
}

fn explain(reach: &Reach, meaning: Meaning, reason: &str) -> Wrong {
    let Security { mechanism, user, password, ca, certificate, .. } = &reach.security;
    let broker = broker_in(reason).unwrap_or(&reach.config.brokers);
    let mechanism = mechanism.as_deref().unwrap_or("SASL");
    match meaning {
        Meaning::Credentials => Wrong::new(
            format!(
                "the broker at {broker} does not take user {:?} with this password ({mechanism})",
                user.as_deref().unwrap_or_default()
            ),
            match password {
                Some(file) => format!(
                    "correct sasl.username, or the password in {} that sasl.password names; the user must be there for \
                     {mechanism}",
                    file.display()
                ),
                None => "correct sasl.username and sasl.password".to_owned(),
            },
        ),
        Meaning::Mechanism => Wrong::new(
            format!("the broker at {broker} does not take {mechanism}{}", offered(reason)),
            "set sasl.mechanisms to one it takes",
        ),
        Meaning::Certificate => certificate_of(reach, broker),
        Meaning::ClientCertificate => match certificate {
            None => Wrong::new(
                format!("the broker at {broker} wants to see a certificate, and none is configured"),
                "set ssl.certificate.location and ssl.key.location to a certificate that the brokers trust and its \
                 private key, or name the port of a listener that wants none",
            ),
            Some(file) => Wrong::new(
                format!("the broker at {broker} does not take the certificate in {}", file.display()),
                "set ssl.certificate.location to one that is signed by a CA the brokers trust and has not expired",
            ),
        },
        Meaning::NoTls => {
            let clear = if user.is_some() { "SASL_PLAINTEXT" } else { "PLAINTEXT" };
            Wrong::new(
                format!("the broker at {broker} speaks no TLS"),
                format!(
                    "correct brokers to the port of a listener with TLS, or set security.protocol to {clear}, and all \
                     that is said can be read on the way"
                ),
            )
        }
        Meaning::Tls => Wrong::new(
            format!("the broker at {broker} does not answer what is said in the clear: it speaks TLS"),
            format!("set security.protocol to {}", if user.is_some() { "SASL_SSL" } else { "SSL, or to SASL_SSL" }),
        ),
        Meaning::Sasl => Wrong::new(
            format!("the broker at {broker} ends the connection of who does not log in"),
            format!(
                "set security.protocol to {}, with sasl.mechanisms, sasl.username and sasl.password",
                if reach.security.tls { "SASL_SSL" } else { "SASL_PLAINTEXT" }
            ),
        ),
        Meaning::Handshake => Wrong::new(
            format!("TLS with the broker at {broker} fails: {reason}"),
            match ca {
                Some(_) => "correct the ssl.* settings, or see what the broker's own log says of it",
                None => "see what the broker's own log says of it",
            },
        ),
    }
}

/// What a broker says it takes instead.
fn offered(reason: &str) -> String {
    let known = reason.split("supported mechanisms: ").nth(1);
    let known = known.map(|rest| rest.split(" (after").next().unwrap_or(rest).trim());
    known.map(|known| format!("; it takes {known}")).unwrap_or_default()
}

/// What is wrong with a broker's certificate: OpenSSL does not say. So it is looked at once more, whatever host it
/// names; nothing but a greeting is said to whoever shows it.
fn certificate_of(reach: &Reach, broker: &str) -> Wrong {
    let host = broker.rsplit_once(':').map_or(broker, |(host, _)| host);
    let ca = reach.security.ca.as_ref();
    if reach.security.names && is_signed(reach, broker) {
        return Wrong::new(
            format!("the certificate of the broker at {broker} does not name the host {host}"),
            "write hosts in brokers (and in the brokers' advertised.listeners) as their certificates name them, or have \
             certificates made with that name",
        );
    }
    match ca {
        Some(ca) => Wrong::new(
            format!("the certificate of the broker at {broker} is not signed by the CA in {}", ca.display()),
            "set ssl.ca.location to the CA (PEM) that signed the brokers' certificates, and see that these have not \
             expired",
        ),
        None => Wrong::new(
            format!("the certificate of the broker at {broker} is signed by no CA that this system knows"),
            "set ssl.ca.location to the CA (PEM) that signed the brokers' certificates, and see that these have not \
             expired",
        ),
    }
}

/// Whether a broker's certificate is in order, but for the name.
fn is_signed(reach: &Reach, broker: &str) -> bool {
    let mut config = reach.config.client(&reach.names, Purpose::Read);
    config.set("bootstrap.servers", broker).set("security.protocol", "ssl");
    config.set("ssl.endpoint.identification.algorithm", "none").set_log_level(Listening::LEVEL);
    for name in reach.config.properties.keys().filter(|name| {
        name.starts_with("sasl.")
            || ["ssl.certificate.location", "ssl.key.location", "ssl.keystore.location"].contains(&name.as_str())
    }) {
        config.remove(name);
    }
    let Ok(client) = config.create_with_context::<_, BaseConsumer<Listening>>(Listening::default()) else {
        return false;
    };
    let deadline = Instant::now() + PROBE;
    while Instant::now() < deadline {
        let answered = client.fetch_metadata(None, Duration::from_millis(500)).is_ok();
        // Whatever it does not like about us, its own certificate was looked at before.
        if let Some((meaning, _)) = Listening::hear(&client).pop() {
            return meaning != Meaning::Certificate;
        }
        if answered {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_librdkafka_says_is_understood() {
        let transport = Code::BrokerTransportFailure;
        for (code, reason, meaning) in [
            (
                Code::SSL,
                "ssl://b:1/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: \
                 broker certificate could not be verified, verify that ssl.ca.location is correctly configured",
                Some(Meaning::Certificate),
            ),
            (
                Code::Authentication,
                "sasl_ssl://b:1/bootstrap: SASL authentication error: Authentication failed during authentication due \
                 to invalid credentials with SASL mechanism SCRAM-SHA-512",
                Some(Meaning::Credentials),
            ),
            (
                Code::Authentication,
                "sasl_ssl://b:1/1: SASL SCRAM-SHA-256 mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's \
                 supported mechanisms: SCRAM-SHA-512 (after 2ms in state AUTH_HANDSHAKE)",
                Some(Meaning::Mechanism),
            ),
            (
                transport,
                "ssl://b:1/bootstrap: SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?",
                Some(Meaning::NoTls),
            ),
            (transport, "b:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused", None),
            (transport, "b:1/1: Disconnected (after 4711ms in state UP)", None),
            (transport, "ssl://b:1/1: Disconnected: closed by peer (after 22ms in state UP)", Some(Meaning::Sasl)),
            (transport, "b:1/1: Disconnected: closed (after 3ms in state APIVERSION_QUERY)", Some(Meaning::Tls)),
        ] {
            assert_eq!(Meaning::of(code, reason), meaning, "{reason}");
        }
        assert_eq!(broker_in("ssl://kafka-1:9093/bootstrap: SSL"), Some("kafka-1:9093"));
        assert_eq!(broker_in("no broker"), None);
        let offer = "x: broker's supported mechanisms: PLAIN,SCRAM-SHA-512 (after 2ms in state AUTH)";
        assert_eq!(offered(offer), "; it takes PLAIN,SCRAM-SHA-512");
    }
}
