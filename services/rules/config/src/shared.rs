//! A value many owners read and none changes.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A cheap-to-clone owner of a value that is written down as if it stood there itself.
///
/// Layouts of neighbouring items share nearly all of their objects; on the log and in blobs each
/// of them is whole again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    /// Takes the value in.
    pub fn new(value: T) -> Self {
        Shared(Arc::new(value))
    }

    /// Whether both are the same value in memory, not only an equal one.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Shared::new)
    }
}
