//! The list of domains: each with its number and name on the log, and the families of its inputs and events.
//!
//! A new domain is one entry here. [`Domain`], [`Event`] and [`Input`] follow from the list, and with them topics, streams,
//! and how kinds are told apart. Families are declared in [`crate::event`] and [`crate::input`].

pub mod sample;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::codec::CodecError;
use crate::event::{CapacityEvent, GateEvent, PartitionEvent};
use crate::input::{CapacityInput, GateInput, IntakeInput, PartitionInput};
use crate::kinds::{BodyError, KindInfo, KindVersion};
use sample::{SampleEvent, SampleInput};

/// Makes [`Domain`], [`Event`] and [`Input`] of the list.
///
/// An entry is `Name = number "name" role`, where the role is `decides`, or `records` of what holds inputs alone, or
/// `artificial` of what is there for tests; then the families it has. Bits 8 to 14 of its kinds are its number. The order of
/// the entries is on the log: append only.
macro_rules! domains {
    ($($(#[$doc:meta])* $domain:ident = $number:literal $name:literal $role:ident
       $(events $event:ident)? $(inputs $input:ident)? ;)*) => {
        /// A part of gatelog that decides. Its numbers are on the log: append only, never reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum Domain {
            $($(#[$doc])* $domain = $number,)*
        }

        /// Every entry of the list: the domain, and its role.
        const LIST: &[(Domain, Role)] = &[$((Domain::$domain, role!($role)),)*];

        impl Domain {
            /// The domain's name in topics, paths and output.
            pub fn name(self) -> &'static str {
                match self {
                    $(Domain::$domain => $name,)*
                }
            }
        }

        /// One event of any domain.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub enum Event {
            /// Of any partition.
            Partition(PartitionEvent),
            $($(#[doc = concat!("Of `", $name, "`.")] $domain($event),)?)*
        }

        /// One input of any domain.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub enum Input {
            /// For any partition.
            Partition(PartitionInput),
            $($(#[doc = concat!("For `", $name, "`.")] $domain($input),)?)*
        }

        impl Event {
            /// The domain it is of; `None` for what any partition says.
            pub fn domain(&self) -> Option<Domain> {
                Domain::of_kind(self.kind_version())
            }

            /// Kind and version it is written with.
            pub fn kind_version(&self) -> KindVersion {
                match self {
                    Event::Partition(body) => body.kind_version(),
                    $($(Event::$domain(body) => <$event>::kind_version(body),)?)*
                }
            }

            /// The kind's name.
            pub fn name(&self) -> &'static str {
                match self {
                    Event::Partition(body) => body.name(),
                    $($(Event::$domain(body) => <$event>::name(body),)?)*
                }
            }

            /// The log's level from which on it may be written.
            pub fn level(&self) -> u32 {
                match self {
                    Event::Partition(body) => body.level(),
                    $($(Event::$domain(body) => <$event>::level(body),)?)*
                }
            }

            /// The body's bytes.
            pub fn encode_body(&self) -> Result<Vec<u8>, CodecError> {
                match self {
                    Event::Partition(body) => body.encode_body(),
                    $($(Event::$domain(body) => <$event>::encode_body(body),)?)*
                }
            }

            /// The body as JSON, for people.
            pub fn to_json(&self) -> serde_json::Value {
                match self {
                    Event::Partition(body) => body.to_json(),
                    $($(Event::$domain(body) => <$event>::to_json(body),)?)*
                }
            }

            /// A body from its kind, version and bytes.
            pub fn decode_body(kind_version: KindVersion, bytes: &[u8]) -> Result<Event, BodyError> {
                match kind_version.kind >> 8 {
                    0x00 => PartitionEvent::decode_body(kind_version, bytes).map(Event::Partition),
                    $($($number => <$event>::decode_body(kind_version, bytes).map(Event::$domain),)?)*
                    _ => Err(BodyError::UnknownKind(kind_version)),
                }
            }

            /// Every kind of event this gatelog knows.
            pub fn kinds() -> impl Iterator<Item = &'static KindInfo> {
                PartitionEvent::known()$($(.chain(<$event>::known()))?)*
            }
        }

        impl Input {
            /// The domain it is for; `None` for what any partition may be told.
            pub fn domain(&self) -> Option<Domain> {
                Domain::of_kind(self.kind_version())
            }

            /// Kind and version it is written with.
            pub fn kind_version(&self) -> KindVersion {
                match self {
                    Input::Partition(body) => body.kind_version(),
                    $($(Input::$domain(body) => <$input>::kind_version(body),)?)*
                }
            }

            /// The kind's name.
            pub fn name(&self) -> &'static str {
                match self {
                    Input::Partition(body) => body.name(),
                    $($(Input::$domain(body) => <$input>::name(body),)?)*
                }
            }

            /// The body's bytes.
            pub fn encode_body(&self) -> Result<Vec<u8>, CodecError> {
                match self {
                    Input::Partition(body) => body.encode_body(),
                    $($(Input::$domain(body) => <$input>::encode_body(body),)?)*
                }
            }

            /// The body as JSON, for people.
            pub fn to_json(&self) -> serde_json::Value {
                match self {
                    Input::Partition(body) => body.to_json(),
                    $($(Input::$domain(body) => <$input>::to_json(body),)?)*
                }
            }

            /// A body from its kind, version and bytes.
            pub fn decode_body(kind_version: KindVersion, bytes: &[u8]) -> Result<Input, BodyError> {
                // Bit 15 marks inputs.
                match (kind_version.kind >> 8) ^ 0x80 {
                    0x00 => PartitionInput::decode_body(kind_version, bytes).map(Input::Partition),
                    $($($number => <$input>::decode_body(kind_version, bytes).map(Input::$domain),)?)*
                    _ => Err(BodyError::UnknownKind(kind_version)),
                }
            }

            /// Every kind of input this gatelog knows.
            pub fn kinds() -> impl Iterator<Item = &'static KindInfo> {
                PartitionInput::known()$($(.chain(<$input>::known()))?)*
            }
        }

        $($(impl From<$event> for Event {
            fn from(event: $event) -> Self {
                Event::$domain(event)
            }
        })?)*

        $($(impl From<$input> for Input {
            fn from(input: $input) -> Self {
                Input::$domain(input)
            }
        })?)*
    };
}

/// What an entry of the list is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Decides.
    Decides,
    /// Holds inputs, and decides nothing.
    Records,
    /// Is there for tests.
    Artificial,
}

macro_rules! role {
    (decides) => {
        Role::Decides
    };
    (records) => {
        Role::Records
    };
    (artificial) => {
        Role::Artificial
    };
}

domains! {
    /// Configuration in force, pipelines, items, builds, reports. Key: tenant.
    Gate = 1 "gate" decides events GateEvent inputs GateInput;
    /// Leases of nodes, semaphores and workers. Key: allocation domain.
    Capacity = 2 "capacity" decides events CapacityEvent inputs CapacityInput;
    /// Image builds and uploads. Key: canonical image name.
    Images = 3 "images" decides;
    /// Task graphs over clusters. Key: cluster.
    Deployments = 4 "deployments" decides;
    /// Not a domain that decides: the intake, where it is named as the source of routed inputs.
    Intake = 5 "intake" records inputs IntakeInput;
    /// An artificial one, for tests: no gatelog hosts it. Key: whatever its notes are of.
    Sample = 127 "sample" artificial events SampleEvent inputs SampleInput;
}

impl Domain {
    /// Every domain that decides, in the order of its number; artificial ones are left out.
    pub fn all() -> impl Iterator<Item = Domain> {
        LIST.iter().filter(|(_, role)| *role == Role::Decides).map(|(domain, _)| *domain)
    }

    /// The domain that a kind belongs to; `None` for what every partition has.
    fn of_kind(kind: KindVersion) -> Option<Domain> {
        Domain::from_number(u8::try_from(kind.kind >> 8 & 0x7f).ok()?)
    }

    /// The domain with this number on the log.
    pub fn from_number(number: u8) -> Option<Domain> {
        LIST.iter().map(|(domain, _)| *domain).find(|domain| *domain as u8 == number)
    }

    /// The domain with this name, where it is one that decides, an artificial one too.
    pub fn from_name(name: &str) -> Option<Domain> {
        let mut deciding = LIST.iter().filter(|(_, role)| *role != Role::Records).map(|(domain, _)| *domain);
        deciding.find(|domain| domain.name() == name)
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<PartitionEvent> for Event {
    fn from(event: PartitionEvent) -> Self {
        Event::Partition(event)
    }
}

impl From<PartitionInput> for Input {
    fn from(input: PartitionInput) -> Self {
        Input::Partition(input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_found_by_number_and_name_and_those_of_tests_are_not_among_all() {
        assert_eq!(Domain::all().map(Domain::name).collect::<Vec<_>>(), ["gate", "capacity", "images", "deployments"]);
        assert_eq!(Domain::from_number(5), Some(Domain::Intake));
        assert_eq!(Domain::from_number(6), None);
        assert_eq!(Domain::from_name("intake"), None);
        for (domain, _) in LIST {
            assert_eq!(Domain::from_number(*domain as u8), Some(*domain));
        }
        assert_eq!(Domain::from_name("sample"), Some(Domain::Sample));
    }

    #[test]
    fn every_kind_lies_in_the_range_of_its_domain() {
        let number = |domain: Option<Domain>| domain.map_or(0, |domain| domain as u16);
        for kind in Event::kinds().chain(Input::kinds()) {
            let range = (kind.newest.kind >> 8) & 0x7f;
            let domain = kind
                .name
                .split_once('.')
                .and_then(|(name, _)| LIST.iter().map(|(domain, _)| *domain).find(|domain| domain.name() == name));
            assert_eq!(range, number(domain), "{}", kind.name);
        }
    }
}
