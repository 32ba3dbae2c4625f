//! What the brokers and librdkafka say, as the log's own errors.

use gatelog_event_log::LogError;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::ProducerContext;

use crate::security::is_secret;

/// The context of every client: what librdkafka has to say goes to the house's own traces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Context;

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error
            | RDKafkaLogLevel::Warning => tracing::warn!(target: "kafka", facility, "{message}"),
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => tracing::info!(target: "kafka", facility, "{message}"),
            RDKafkaLogLevel::Debug => tracing::debug!(target: "kafka", facility, "{message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // Each client tries each broker by itself, and has said so in its traces: what that means for the log, whoever
        // asks the log is told.
        if code_of(&error) == Some(Code::BrokerTransportFailure) {
            tracing::debug!(target: "kafka", %error, "{reason}");
        } else {
            tracing::warn!(target: "kafka", %error, "{reason}");
        }
    }
}

impl ConsumerContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            tracing::warn!(target: "kafka", %error, "a record was not written");
        }
    }
}

/// The code in an error, if it has one.
pub(crate) fn code_of(error: &KafkaError) -> Option<Code> {
    match error {
        KafkaError::Transaction(inner) => Some(inner.code()),
        KafkaError::AdminOp(code) => Some(*code),
        other => other.rdkafka_error_code(),
    }
}

/// Whether this says that somebody else has taken the transactional id.
pub(crate) fn is_fencing(code: Code) -> bool {
    matches!(code, Code::ProducerFenced | Code::InvalidProducerEpoch | Code::Fenced)
}

/// Whether this passes by itself once the brokers are there again.
pub(crate) fn is_passing(code: Code) -> bool {
    matches!(
        code,
        Code::BrokerTransportFailure
            | Code::DestroyBroker
            | Code::AllBrokersDown
            | Code::Resolve
            | Code::OperationTimedOut
            | Code::MessageTimedOut
            | Code::TimedOutQueue
            | Code::RequestTimedOut
            | Code::NetworkException
            | Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::BrokerNotAvailable
            | Code::ReplicaNotAvailable
            | Code::CoordinatorNotAvailable
            | Code::CoordinatorLoadInProgress
            | Code::NotCoordinator
            | Code::OffsetNotAvailable
            | Code::PreferredLeaderNotAvailable
            | Code::FencedLeaderEpoch
            | Code::UnknownLeaderEpoch
            | Code::KafkaStorageError
            | Code::WaitingForCoordinator
            | Code::InProgress
            | Code::Retry
    )
}

/// An error of the brokers, with what can be done about it.
pub(crate) fn system(what: impl Into<String>, brokers: &str, error: &KafkaError) -> LogError {
    let code = code_of(error);
    let cure = match code {
        Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition) => {
            "create what is missing with `gatelog log init`".to_owned()
        }
        Some(Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed | Code::GroupAuthorizationFailed)
        | Some(Code::TransactionalIdAuthorizationFailed) => {
            "give gatelog's user the rights that docs/several-processes.md lists".to_owned()
        }
        Some(Code::Authentication | Code::SaslAuthenticationFailed | Code::SSL) => {
            "check security.protocol, sasl.* and ssl.* under log.kafka".to_owned()
        }
        Some(Code::NotEnoughReplicas | Code::NotEnoughReplicasAfterAppend) => {
            "bring back the brokers that are down: too few replicas are in sync".to_owned()
        }
        Some(Code::MessageSizeTooLarge | Code::InvalidMessageSize) => {
            "raise max.message.bytes of the topics: see `gatelog log check`".to_owned()
        }
        Some(code) if is_passing(code) => format!("see that a broker answers at {brokers}"),
        None if matches!(error, KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_)) => {
            "correct that setting under log.kafka.properties".to_owned()
        }
        _ => "see `gatelog log check`".to_owned(),
    };
    LogError::System { what: what.into(), message: format!("{}; {cure}", said(error)) }
}

/// The result of an operation on the brokers.
pub(crate) fn or_system<T>(result: KafkaResult<T>, what: impl Into<String>, brokers: &str) -> Result<T, LogError> {
    result.map_err(|error| system(what, brokers, &error))
}

/// What an error says, without the name of the Rust type around it.
pub(crate) fn said(error: &KafkaError) -> String {
    match error {
        KafkaError::Transaction(inner) => inner.string(),
        KafkaError::ClientConfig(_, what, name, _) if is_secret(name) => format!("{what} ({name})"),
        KafkaError::ClientConfig(_, what, name, value) => format!("{what} ({name}={value})"),
        KafkaError::ClientCreation(what) | KafkaError::AdminOpCreation(what) => what.clone(),
        other => code_of(other).map_or_else(|| other.to_string(), |code| code.to_string()),
    }
}
