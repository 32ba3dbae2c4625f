//! `[connection.NAME]`: each driver reads its own.

use std::fmt;
use std::sync::Arc;

use gatelog_driver_contract::{Driver, Settings};
use serde::{Deserialize, Deserializer, de};

use crate::drivers;

/// A connection.
#[derive(Clone)]
pub struct ConnectionConfig {
    /// Its driver.
    pub driver: &'static Driver,
    /// What the driver makes of the section.
    pub settings: Arc<dyn Settings>,
    section: toml::Table,
}

impl fmt::Debug for ConnectionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(self.driver.name).field(&self.settings).finish()
    }
}

impl PartialEq for ConnectionConfig {
    fn eq(&self, other: &ConnectionConfig) -> bool {
        self.driver.name == other.driver.name && self.section == other.section
    }
}

impl<'de> Deserialize<'de> for ConnectionConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ConnectionConfig, D::Error> {
        let mut section = toml::Table::deserialize(deserializer)?;
        let name = match section.remove("driver") {
            Some(toml::Value::String(name)) => name,
            Some(_) => return Err(de::Error::custom("driver is no text")),
            None => return Err(de::Error::missing_field("driver")),
        };
        let driver = drivers::all().find(|driver| driver.name == name).ok_or_else(|| {
            let known = drivers::all().map(|driver| format!("`{}`", driver.name)).collect::<Vec<_>>().join(", ");
            de::Error::custom(format!("unknown driver `{name}`, this gatelog has {known}"))
        })?;
        let settings = (driver.read)(section.clone()).map_err(de::Error::custom)?;
        Ok(ConnectionConfig { driver, settings, section })
    }
}
