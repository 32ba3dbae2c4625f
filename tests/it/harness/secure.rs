//! A real Kafka broker that lets in who it knows, over TLS, and only to what they may: certificates of an authority of our
//! own, users with passwords, and rights.
//!
//! | listener | speaks | lets in |
//! |---|---|---|
//! | `PLAINTEXT` | in the clear | everybody, to everything: the harness itself |
//! | `TLS` | TLS | everybody, without rights |
//! | `MUTUAL` | TLS | who has a certificate of the authority; the user is its CN |
//! | `LOGIN` | TLS, SASL | `ci` and `stranger`, with their passwords: SCRAM-SHA-512 or PLAIN |
//! | `ELSEWHERE` | TLS | nobody: its certificate names another host |

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use gatelog_kafka_broker::{Broker, Further};

use super::Files;
use super::kafka::KafkaSite;

/// The password of every user.
pub const PASSWORD: &str = "correct-horse-battery-staple";

/// Such a broker.
pub struct Secure {
    broker: Broker,
}

/// The one of this test binary; says why there is none in the line that is counted.
pub fn secure(test: &str) -> Option<&'static Secure> {
    static SECURE: OnceLock<Result<Secure, String>> = OnceLock::new();
    match SECURE.get_or_init(Secure::start) {
        Ok(secure) => Some(secure),
        Err(why) => {
            println!("SKIPPED {test}: no Kafka with TLS: {why}");
            None
        }
    }
}

fn openssl(dir: &Path, arguments: &str) -> Result<(), String> {
    let output = Command::new("openssl")
        .args(arguments.split(' '))
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("no openssl to make certificates with: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// An authority of this name: `<name>.pem` and `<name>.key`.
fn authority(dir: &Path, name: &str) -> Result<(), String> {
    openssl(
        dir,
        &format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN={name} \
             -keyout {name}.key -out {name}.pem"
        ),
    )
}

/// A certificate of this name from an authority, for hosts such as `IP:127.0.0.1`: `<name>.pem`, `<name>.key`, and both in
/// `<name>.both`.
fn certificate(dir: &Path, authority: &str, name: &str, user: &str, hosts: &str) -> Result<(), String> {
    openssl(
        dir,
        &format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={user} -addext subjectAltName={hosts} \
             -keyout {name}.key -out {name}.csr"
        ),
    )?;
    openssl(
        dir,
        &format!(
            "x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial -days 30 \
             -copy_extensions copy -out {name}.pem"
        ),
    )?;
    let read = |ending: &str| std::fs::read_to_string(dir.join(format!("{name}.{ending}"))).map_err(|e| e.to_string());
    let both = format!("{}{}", read("key")?, read("pem")?);
    std::fs::write(dir.join(format!("{name}.both")), both).map_err(|error| error.to_string())
}

/// A file with a secret, for its owner alone.
pub fn write_secret(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

impl Secure {
    fn start() -> Result<Secure, String> {
        let broker = Broker::start_with(|dir| {
            authority(dir, "ca")?;
            authority(dir, "other-ca")?;
            certificate(dir, "ca", "broker", "broker", "IP:127.0.0.1")?;
            certificate(dir, "ca", "elsewhere", "elsewhere", "DNS:kafka.example.org")?;
            certificate(dir, "ca", "ci", "ci", "DNS:ci.example.org")?;
            certificate(dir, "other-ca", "forged", "ci", "DNS:ci.example.org")?;
            let mut properties = String::new();
            for (listener, certificate) in
                [("tls", "broker"), ("mutual", "broker"), ("login", "broker"), ("elsewhere", "elsewhere")]
            {
                properties.push_str(&format!(
                    "listener.name.{listener}.ssl.keystore.type=PEM\n\
                     listener.name.{listener}.ssl.keystore.location={dir}/{certificate}.both\n\
                     listener.name.{listener}.ssl.truststore.type=PEM\n\
                     listener.name.{listener}.ssl.truststore.location={dir}/ca.pem\n",
                    dir = dir.display()
                ));
            }
            const JAAS: &str = "org.apache.kafka.common.security";
            properties.push_str(&format!(
                "listener.name.mutual.ssl.client.auth=required\n\
                 listener.name.mutual.ssl.principal.mapping.rules=RULE:^CN=([^,]*).*$/$1/\n\
                 listener.name.login.sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN\n\
                 listener.name.login.scram-sha-512.sasl.jaas.config={JAAS}.scram.ScramLoginModule required;\n\
                 listener.name.login.plain.sasl.jaas.config={JAAS}.plain.PlainLoginModule required \
                 user_ci=\"{PASSWORD}\";\n\
                 authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
                 super.users=User:ANONYMOUS\n"
            ));
            // Who comes over TLS and shows nothing is nobody either; that listener is for handshakes alone.
            let listener = |name: &str, protocol: &str| (name.to_owned(), protocol.to_owned());
            Ok(Further {
                listeners: vec![
                    listener("TLS", "SSL"),
                    listener("MUTUAL", "SSL"),
                    listener("LOGIN", "SASL_SSL"),
                    listener("ELSEWHERE", "SSL"),
                ],
                properties,
                users: ["ci", "stranger"].map(|user| (user.to_owned(), PASSWORD.to_owned())).into(),
            })
        })?;
        Ok(Secure { broker })
    }

    /// Where the harness itself is let in.
    pub fn brokers(&self) -> String {
        self.broker.brokers()
    }

    /// Where a listener listens.
    pub fn listener(&self, name: &str) -> String {
        self.broker.listener(name).unwrap()
    }

    /// A file of the authority: `ca.pem`, `other-ca.pem`, `ci.pem`, `ci.key`, `forged.pem`, `forged.key`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.broker.dir().join(name)
    }

    /// A site that reaches the broker there with these settings, as the user `ci`, who has the rights of the manual on its
    /// topics.
    pub fn site(&self, listener: &str, properties: &str, projects: &[(&str, Files<'_>)]) -> KafkaSite {
        let kafka = KafkaSite::drafted(self.listener(listener), (1, 1), properties.to_owned(), projects);
        self.grant("ci", &kafka.prefix);
        kafka.init();
        kafka
    }

    /// Gives a user the rights that the manual says a site needs, on topics that begin so.
    pub fn grant(&self, user: &str, prefix: &str) {
        const TOPIC: u8 = 2;
        const GROUP: u8 = 3;
        const CLUSTER: u8 = 4;
        const TRANSACTIONAL_ID: u8 = 5;
        const LITERAL: u8 = 3;
        const PREFIXED: u8 = 4;
        const READ: u8 = 3;
        const WRITE: u8 = 4;
        const CREATE: u8 = 5;
        const DESCRIBE_CONFIGS: u8 = 10;
        let topics = [READ, WRITE, CREATE, DESCRIBE_CONFIGS].map(|right| (TOPIC, PREFIXED, prefix.to_owned(), right));
        let rights = [
            (GROUP, LITERAL, format!("{prefix}gatelog.reader"), READ),
            (TRANSACTIONAL_ID, PREFIXED, format!("{prefix}gatelog."), WRITE),
            (CLUSTER, LITERAL, "kafka-cluster".to_owned(), DESCRIBE_CONFIGS),
        ];
        let text = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
        // CreateAcls, version 1, as https://kafka.apache.org/protocol describes it.
        let mut body = [&[0, 30, 0, 1, 0, 0, 0, 7][..], &text("harness")].concat();
        let all: Vec<_> = topics.into_iter().chain(rights).collect();
        body.extend((all.len() as u32).to_be_bytes());
        for (resource, pattern, name, right) in &all {
            body.push(*resource);
            body.extend(text(name));
            body.push(*pattern);
            body.extend(text(&format!("User:{user}")));
            body.extend(text("*"));
            body.extend([*right, 3]);
        }
        let mut stream = TcpStream::connect(self.brokers()).unwrap();
        stream.write_all(&[&(body.len() as u32).to_be_bytes()[..], &body].concat()).unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut answer).unwrap();
        // Correlation, throttle time, count; then for each an error code and an empty message.
        let wanted = [&[0, 0, 0, 7, 0, 0, 0, 0][..], &(all.len() as u32).to_be_bytes()].concat();
        let each = [0, 0, 0, 0].repeat(all.len());
        assert_eq!(answer, [wanted, each].concat(), "{}", String::from_utf8_lossy(&answer));
    }
}
