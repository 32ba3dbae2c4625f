//! What a tenant file says of a tenant, as it stands on the log: by whoever reads the file, and by whoever asks what
//! another would have led to.

use std::collections::BTreeMap;

use gatelog_record::draft::gate::TenantProject;
use gatelog_rules_config::TenantSettings;
use gatelog_rules_config::tenant::TenantSpec;

/// A tenant's settings among these connections, each with the name of its driver, and with the text of the files that
/// it includes, by their names; a file without a text could not be read.
pub fn tenant_settings(
    mut spec: TenantSpec,
    connections: &[String],
    drivers: &BTreeMap<String, String>,
    included: &BTreeMap<String, String>,
) -> TenantSettings {
    for file in &mut spec.settings.included {
        file.text = included.get(&file.path).cloned();
    }
    spec.imply_projects(connections);
    let mut settings = spec.settings;
    settings.connections = connections.to_vec();
    settings.drivers =
        drivers.iter().filter(|(_, driver)| !driver.is_empty()).map(|(a, b)| (a.clone(), b.clone())).collect();
    settings
}

/// A tenant's projects as events are routed by them. `host` gives a connection's canonical host name; projects of a
/// connection that has none are left out.
pub fn routed_projects(settings: &TenantSettings, host: impl Fn(&str) -> Option<String>) -> Vec<TenantProject> {
    let routed = settings.projects.iter().filter_map(|project| {
        Some(TenantProject {
            connection: project.connection.clone(),
            project: format!("{}/{}", host(&project.connection)?, project.name),
            trusted: project.trusted,
            reads_config: !project.include.is_empty(),
        })
    });
    routed.collect()
}

#[cfg(test)]
mod tests {
    use gatelog_rules_config::parse_tenant_file;

    use super::*;

    #[test]
    fn a_tenant_stands_on_the_log_with_its_connections_and_the_projects_that_have_a_host() {
        let text = "- tenant: {name: a, source: {forge: {config-projects: [config], untrusted-projects: [lib, {docs: {include: []}}]}, \
                    gone: {untrusted-projects: [old]}}}";
        let (mut specs, problems) = parse_tenant_file(text);
        assert!(problems.is_empty(), "{problems:?}");
        let connections = ["forge".to_owned(), "gone".to_owned()];
        let drivers = BTreeMap::from([("forge".to_owned(), "git".to_owned()), ("gone".to_owned(), String::new())]);
        let settings = tenant_settings(specs.remove(0), &connections, &drivers, &BTreeMap::new());
        assert_eq!(settings.connections, connections);
        assert_eq!(settings.drivers, BTreeMap::from([("forge".to_owned(), "git".to_owned())]));
        let routed = routed_projects(&settings, |connection| (connection == "forge").then(|| "host".to_owned()));
        let told: Vec<(&str, bool, bool)> =
            routed.iter().map(|project| (&*project.project, project.trusted, project.reads_config)).collect();
        assert_eq!(told, [("host/config", true, true), ("host/lib", false, true), ("host/docs", false, false)]);
    }
}
