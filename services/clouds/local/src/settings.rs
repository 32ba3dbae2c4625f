//! The cloud's settings, and what is opened by them.

use std::path::PathBuf;
use std::sync::Arc;

use gatelog_cloud_contract::{CloudDriver, CloudSettings, Opened, Opening, Trouble};
use serde::Deserialize;

use crate::local::{Label, LocalCloud, LocalCloudConfig};

/// The local cloud in the list of clouds.
pub const DRIVER: CloudDriver = CloudDriver {
    name: "local",
    read: |section| {
        let settings: LocalSettings = section.try_into()?;
        Ok(Arc::new(settings))
    },
};

/// How it is set up.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LocalSettings {
    /// Where nodes live, relative to the site's directory.
    #[serde(default = "default_root")]
    pub root: PathBuf,
    /// How many slots this host has.
    pub slots: u32,
    /// What kinds of nodes there are; each takes a slot.
    #[serde(default)]
    pub labels: Vec<String>,
}

fn default_root() -> PathBuf {
    "nodes".into()
}

impl CloudSettings for LocalSettings {
    fn open(&self, opening: &Opening<'_>) -> Result<Opened, Trouble> {
        let cloud = LocalCloud::open(LocalCloudConfig {
            name: opening.name.to_owned(),
            root: opening.site.join(&self.root),
            slots: self.slots,
            labels: self.labels.iter().map(|label| (label.clone(), Label::default())).collect(),
        })?;
        // What was cut short in the making or deleting. Nodes of an earlier start go once it is known which are kept.
        let there = cloud.nodes()?.into_iter().map(|node| node.node).collect();
        for failed in cloud.sweep(&there)?.failed {
            tracing::warn!(failed, "a leftover node could not be removed");
        }
        Ok(Opened { nodes: Arc::new(cloud) })
    }
}
