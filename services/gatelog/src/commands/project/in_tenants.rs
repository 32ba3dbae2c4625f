//! In which tenants of the tenant file a project is.

use gatelog_rules_config::parse_tenant_file;

/// A tenant that has a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The tenant.
    pub tenant: String,
    /// Whether it is a config project there.
    pub trusted: bool,
}

/// The tenants that have a project of a connection, in the order of the file.
///
/// # Errors
/// The first error of the file, where it has one and no tenant that can be read has the project.
pub fn of(text: &str, connection: &str, project: &str) -> Result<Vec<Named>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let (specs, problems) = parse_tenant_file(text);
    let mut named = Vec::new();
    for spec in &specs {
        let found = spec.settings.projects.iter().find(|one| one.connection == connection && one.name == project);
        named.extend(found.map(|found| Named { tenant: spec.settings.name.clone(), trusted: found.trusted }));
    }
    match problems.iter().find(|problem| problem.is_error()) {
        Some(problem) if named.is_empty() => Err(format!("line {}: {}", problem.place.line, problem.message)),
        _ => Ok(named),
    }
}
