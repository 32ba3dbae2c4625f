//! The forge's repositories: whether their hooks are well.

use std::path::Path;

use super::{Finding, Level, not_ok, ok};
use crate::config::SiteConfig;

/// The repositories of a site's forges.
#[derive(Clone, Debug, Default)]
pub struct ForgeFacts {
    /// How many there are.
    pub projects: usize,
    /// Those whose hooks are not well, and what is wrong with the first.
    pub troubled: Vec<(String, String)>,
}

/// Looks at every repository of a site.
pub fn look(site: &Path, config: &SiteConfig) -> ForgeFacts {
    let mut facts = ForgeFacts::default();
    for (name, connection) in &config.connection {
        let Some(settings) = crate::forges::settings(connection) else { continue };
        let Ok(forge) = crate::forges::existing(site, name, settings) else { continue };
        let Ok(projects) = forge.projects() else { continue };
        facts.projects += projects.len();
        for project in projects {
            let trouble = match forge.hook_troubles(&project) {
                Ok(troubles) => troubles.first().map(ToString::to_string),
                Err(error) => Some(error.to_string()),
            };
            facts.troubled.extend(trouble.map(|trouble| (project, trouble)));
        }
    }
    facts
}

/// What that means. A push to a repository without hooks is noticed at the next poll, and nobody is told what is wrong.
pub fn judge(facts: Option<&ForgeFacts>) -> Option<Finding> {
    let facts = facts.filter(|facts| facts.projects > 0)?;
    let Some((project, trouble)) = facts.troubled.first() else {
        return Some(ok("site", "forge", format!("the hooks of all {} repositories are well", facts.projects)));
    };
    let found = match facts.troubled.len() {
        1 => format!("{project}: {trouble}"),
        many => format!("{project}: {trouble}; {many} of {} repositories are like that", facts.projects),
    };
    let cure = format!(
        "run `gatelog project add {project}`, which mends its hooks (docs/forge.md); `gatelog project list` names all"
    );
    Some(not_ok(Level::Warning, ("site", "forge"), found, cure))
}
