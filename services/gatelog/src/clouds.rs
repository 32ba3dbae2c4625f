//! The clouds, by name: the one place where they are put together.

use std::sync::OnceLock;

use gatelog_cloud_contract::{CloudDriver, Opened, Opening, Refusal, Trouble};

/// The clouds of every gatelog.
const BUILT_IN: &[CloudDriver] = &[gatelog_cloud_local::DRIVER];

/// The cloud of a site that says nothing of clouds.
pub const USUAL: &str = "local";

/// What a program made of this library adds.
static ADDED: OnceLock<Vec<CloudDriver>> = OnceLock::new();

/// Adds clouds to those that are built in. To be called once, before any site is read.
///
/// # Errors
/// Clouds were added before, or one has a name that is taken; nothing is added.
pub fn add(clouds: Vec<CloudDriver>) -> Result<(), String> {
    for (at, cloud) in clouds.iter().enumerate() {
        if BUILT_IN.iter().chain(clouds.iter().take(at)).any(|known| known.name == cloud.name) {
            return Err(format!("there is a cloud {} already", cloud.name));
        }
    }
    ADDED.set(clouds).map_err(|_| "clouds were added before".to_owned())
}

/// Opens a cloud by its name and its settings.
///
/// # Errors
/// There is no such cloud, its settings cannot be read, or it cannot work with them.
pub fn open(name: &str, settings: toml::Table, opening: &Opening<'_>) -> Result<Opened, Trouble> {
    let all = || BUILT_IN.iter().chain(ADDED.get().into_iter().flatten());
    let cloud = all().find(|cloud| cloud.name == name).ok_or_else(|| {
        let known = all().map(|cloud| cloud.name).collect::<Vec<_>>().join(", ");
        Trouble::new(Refusal::Permanent, format!("there is no cloud {name:?}: this gatelog has {known}"))
    })?;
    let settings = (cloud.read)(settings);
    let settings = settings
        .map_err(|error| Trouble::new(Refusal::Permanent, format!("settings of cloud {}: {error}", opening.name)))?;
    settings.open(opening)
}
