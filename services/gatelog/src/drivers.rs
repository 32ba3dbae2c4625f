//! The drivers of connections, by name: the one place where they are put together.

use std::sync::OnceLock;

use gatelog_driver_contract::{Driver, DriverSchema, Schemas};

/// The drivers of every gatelog.
const BUILT_IN: &[Driver] = &[gatelog_driver_git::DRIVER, gatelog_driver_gerrit::DRIVER];

/// What a program made of this library adds.
static ADDED: OnceLock<Vec<Driver>> = OnceLock::new();

/// Adds drivers to those that are built in. To be called once, before any site is read.
///
/// # Errors
/// Drivers were added before, or one has a name that is taken; nothing is added.
pub fn add(drivers: Vec<Driver>) -> Result<(), String> {
    for (at, driver) in drivers.iter().enumerate() {
        let before = BUILT_IN.iter().chain(drivers.iter().take(at));
        if before.clone().any(|known| known.name == driver.name || known.schema.name == driver.schema.name) {
            return Err(format!("there is a driver {} already", driver.name));
        }
    }
    ADDED.set(drivers).map_err(|_| "drivers were added before".to_owned())
}

/// All drivers.
pub fn all() -> impl Iterator<Item = &'static Driver> {
    BUILT_IN.iter().chain(ADDED.get().into_iter().flatten())
}

/// What may be said to them, for the rules of configuration.
pub fn schemas() -> Schemas {
    static ALL: OnceLock<Vec<&'static DriverSchema>> = OnceLock::new();
    Schemas(ALL.get_or_init(|| all().map(|driver| driver.schema).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_drivers_have_one_name() {
        assert!(add(vec![gatelog_driver_git::DRIVER]).unwrap_err().contains("git"));
        let mut names: Vec<&str> = all().map(|driver| driver.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
        assert!(schemas().find("plain-git").is_some());
    }
}
