//! The tenant file: tenants, who may do what in them, and what they share.

use std::collections::BTreeMap;

use gatelog_driver_schema::Schemas;
use gatelog_record::Value;

use crate::ansible;
use crate::authorization::claims::Rule;
use crate::authorization::{ADMIN, Access, Authorization, PERMISSIONS, Permit, READ, Role};
use crate::cache::Patterns;
use crate::dialect::Spelling;
use crate::drivers::with_projects;
use crate::place::{Place, SourceContext};
use crate::problem::{Problem, Severity, UNKNOWN, did_you_mean};
use crate::regexes::{Anchor, Pattern};
use crate::schema::{Attribute, Kind, Sink, Stanza, attribute, pattern_of, texts_of};
use crate::shared::Shared;
use crate::tenant::{
    IncludedFile, LOADABLE_CLASSES, PROVIDER_CLASSES, TenantProject, TenantSettings, TenantSpec, default_classes,
};
use crate::yaml::parse::parse_lenient;
use crate::yaml::{Entry, Mark, Node};

const TENANT: &[Attribute] = &[
    attribute("name", Kind::Text).required(),
    attribute("source", Kind::Map),
    attribute("include", Kind::Texts).older("source, with a config project that holds these files"),
    attribute("max-changes-per-pipeline", Kind::Int { min: i64::MIN }),
    attribute("max-dependencies", Kind::Int { min: i64::MIN }),
    attribute("max-nodes-per-job", Kind::Int { min: i64::MIN }).default("5"),
    attribute("max-job-timeout", Kind::Int { min: i64::MIN }).default("10800"),
    attribute("max-oidc-ttl", Kind::Int { min: i64::MIN }).default("10800"),
    attribute("allowed-oidc-issuers", Kind::Texts),
    attribute("exclude-unprotected-branches", Kind::Bool).default("false"),
    attribute("exclude-locked-branches", Kind::Bool).default("false"),
    attribute("default-parent", Kind::Text).default("base"),
    attribute("default-ansible-version", Kind::TextOrNumber),
    attribute("allowed-triggers", Kind::Texts),
    attribute("allowed-reporters", Kind::Texts),
    attribute("allowed-labels", Kind::Patterns(Anchor::Start)),
    attribute("disallowed-labels", Kind::Patterns(Anchor::Start)),
    attribute("web-root", Kind::Text),
    attribute("admin-rules", Kind::Texts),
    attribute("access-rules", Kind::Texts),
    attribute("anonymous-read-access", Kind::Bool).default("true"),
    attribute("role-mappings", Kind::Map),
    attribute("authentication-realm", Kind::Text),
    attribute("semaphores", Kind::Texts),
    attribute("use-nodepool", Kind::Bool).default("true"),
    attribute("allow-circular-dependencies", Kind::Bool),
    attribute("report-build-page", Kind::Bool),
];

const SOURCE: &[Attribute] = &[
    attribute("config-projects", Kind::Special),
    attribute("untrusted-projects", Kind::Special),
    attribute("repos", Kind::Special).older("untrusted-projects"),
];

const GROUP: &[Attribute] = &[
    attribute("projects", Kind::Special),
    attribute("include", Kind::Texts),
    attribute("exclude", Kind::Texts),
    attribute("include-provider-config", Kind::Bool),
];

const PROJECT: &[Attribute] = &[
    attribute("include", Kind::Texts),
    attribute("exclude", Kind::Texts),
    attribute("include-provider-config", Kind::Bool),
    attribute("shadow", Kind::Texts),
    attribute("exclude-unprotected-branches", Kind::Bool),
    attribute("exclude-locked-branches", Kind::Bool),
    attribute("include-branches", Kind::Patterns(Anchor::Whole)),
    attribute("exclude-branches", Kind::Patterns(Anchor::Whole)),
    attribute("always-dynamic-branches", Kind::Patterns(Anchor::Whole)),
    attribute("extra-config-paths", Kind::Texts),
    attribute("load-branch", Kind::Text),
    attribute("implied-branch-matchers", Kind::Bool),
    attribute("configure-projects", Kind::Patterns(Anchor::Whole)),
    attribute("allow-reporter-jobs", Kind::Bool),
    attribute("allow-base-jobs", Kind::Bool),
    attribute("allow-circular-dependencies", Kind::Bool),
];

const SEMAPHORE: &[Attribute] =
    &[attribute("name", Kind::Text).required(), attribute("max", Kind::Int { min: i64::MIN }).default("1")];

const ROLE: &[Attribute] = &[attribute("name", Kind::Text).required(), attribute("permissions", Kind::Map).required()];

const RULE: &[Attribute] =
    &[attribute("name", Kind::Text).required(), attribute("conditions", Kind::Special).required()];

const API_ROOT: &[Attribute] = &[
    attribute("authentication-realm", Kind::Text),
    attribute("access-rules", Kind::Texts),
    attribute("anonymous-read-access", Kind::Bool).default("true"),
    attribute("role-mappings", Kind::Map),
];

const TOP: &[&str] = &["tenant", "authorization-rule", "admin-rule", "role", "global-semaphore", "api-root"];

/// Reads the tenant file. A tenant with an error is left out; the others are there.
pub fn parse_tenant_file(text: &str) -> (Vec<TenantSpec>, Vec<Problem>) {
    parse_tenant_file_as(text, Spelling::Older)
}

/// The same in one spelling.
pub fn parse_tenant_file_as(text: &str, spelling: Spelling) -> (Vec<TenantSpec>, Vec<Problem>) {
    let (mut tenants, _, problems) = read(text, spelling);
    choose_ansible(&mut tenants, &TenantSettings::default().default_ansible_version);
    (tenants, problems)
}

/// The same as [`parse_tenant_file`] for a site that has a default version of Ansible of its own. Zuul:
/// `default_ansible_version` of its scheduler.
pub fn parse_tenant_file_with(text: &str, default_ansible_version: &str) -> (Vec<TenantSpec>, Vec<Problem>) {
    let (mut tenants, _, problems) = read(text, Spelling::Older);
    choose_ansible(&mut tenants, default_ansible_version);
    (tenants, problems)
}

/// Gives the default version of Ansible to tenants that name none.
fn choose_ansible(tenants: &mut [TenantSpec], default: &str) {
    for settings in tenants.iter_mut().map(|tenant| &mut tenant.settings) {
        if settings.default_ansible_version.is_empty() {
            default.clone_into(&mut settings.default_ansible_version);
        }
    }
}

/// What the tenant file says about who may do what. Of a tenant with an error nobody may do anything.
pub fn parse_authorization(text: &str) -> (Authorization, Vec<Problem>) {
    let (_, authorization, problems) = read(text, Spelling::Older);
    (authorization, problems)
}

/// What is wrong with the connections that tenants name as their sources, among those a site has (name to driver; with
/// its drivers). Zuul:
/// each has to be there, and its driver one of those that have projects; a tenant with another is refused, even where
/// it names no project. Of a connection that is missing and has projects, these tell it.
pub fn check_sources(text: &str, drivers: &BTreeMap<String, String>, schemas: Schemas) -> Vec<Problem> {
    let having = with_projects(schemas);
    let context = Shared::new(SourceContext { path: "tenant file".to_owned(), trusted: true, ..Default::default() });
    let Ok((Some(root), _)) = parse_lenient(text) else { return Vec::new() };
    let tenants = root.as_sequence().unwrap_or(&[]).iter().filter_map(|item| item.get("tenant"));
    let sources = tenants.filter_map(|tenant| Some((tenant, tenant.value.get("source")?.value.as_mapping()?)));
    let mut problems = Vec::new();
    for (tenant, source) in sources.flat_map(|(tenant, sources)| sources.iter().map(move |one| (tenant, one))) {
        let tenant = tenant.value.get("name").and_then(|entry| entry.value.as_str()).unwrap_or_default();
        let connection = &source.key;
        let has_projects = source
            .value
            .as_mapping()
            .is_some_and(|lists| lists.iter().any(|list| !list.value.is_null() && !list.value.items().is_empty()));
        let message = match drivers.get(connection) {
            Some(driver) if having.contains(&driver.as_str()) => continue,
            Some(driver) => format!(
                "the source \"{connection}\" of tenant \"{tenant}\" is a connection of the driver {driver}, which has \
                 no projects"
            ),
            None if has_projects => continue,
            None => format!("the source \"{connection}\" of tenant \"{tenant}\" is no connection of this site"),
        };
        let Mark { line, column } = source.mark;
        let place = Place { context: context.clone(), line, column };
        let fitting = drivers.iter().filter(|(_, driver)| having.contains(&driver.as_str()));
        let cure = match did_you_mean(connection, fitting.map(|(name, _)| name.as_str())) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("name a connection of one of these drivers: {}", having.join(", ")),
        };
        let problem = Problem::error("source-unknown", UNKNOWN, place, message);
        problems.push(problem.about("source").cure(cure));
    }
    problems
}

fn read(text: &str, spelling: Spelling) -> (Vec<TenantSpec>, Authorization, Vec<Problem>) {
    let context = SourceContext { path: "tenant file".to_owned(), trusted: true, ..SourceContext::default() };
    let mut sink =
        Sink { context: Shared::new(context), text, spelling, problems: Vec::new(), patterns: Patterns::default() };
    let mut tenants: Vec<(TenantSpec, &Entry)> = Vec::new();
    let mut site = Site::default();
    let root = match parse_lenient(text) {
        Ok((root, duplicates)) => {
            for error in duplicates {
                let cure = "Zuul takes the last one; keep only that";
                sink.add(Severity::Warning, error.code(), UNKNOWN, error.mark(), error.to_string()).cure = cure.into();
            }
            root
        }
        Err(errors) => {
            for error in errors {
                sink.error(error.code(), UNKNOWN, error.mark(), error.to_string(), error.cure());
            }
            return (Vec::new(), Authorization::default(), sink.problems);
        }
    };
    let Some(root) = root else {
        let cure = "begin with `- tenant:`";
        sink.error("not-a-list", UNKNOWN, Mark { line: 1, column: 1 }, "the tenant file is empty", cure);
        return (Vec::new(), Authorization::default(), sink.problems);
    };
    let Some(items) = root.as_sequence() else {
        let message = format!("the tenant file must be a list, not {}", root.kind_name());
        sink.error("not-a-list", UNKNOWN, root.start, message, "begin each item with a dash, as in `- tenant:`");
        return (Vec::new(), Authorization::default(), sink.problems);
    };
    for item in items {
        let Some([entry]) = item.as_mapping() else {
            let message = "each item of the tenant file must be a dictionary with exactly one key";
            sink.error("not-one-key", UNKNOWN, item.start, message, "indent the attributes below the key");
            continue;
        };
        if !TOP.contains(&entry.key.as_str()) {
            let message = format!("`{}` is not known in the tenant file", entry.key);
            let cure = match did_you_mean(&entry.key, TOP.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are: {}", TOP.join(", ")),
            };
            sink.error("unknown-item", UNKNOWN, entry.mark, message, cure);
            continue;
        }
        if entry.key != "tenant" {
            site.read(&mut sink, entry);
            continue;
        }
        if let Some(spec) = tenant(&mut sink, entry) {
            if tenants.iter().any(|(other, _)| other.settings.name == spec.settings.name) {
                let message = format!("the tenant \"{}\" appears twice", spec.settings.name);
                sink.error("duplicate-tenant", UNKNOWN, entry.mark, message, "give each tenant a name of its own");
                continue;
            }
            tenants.push((spec, entry));
        }
    }
    site.check_api_root(&mut sink);
    let mut specs = Vec::new();
    for (mut spec, entry) in tenants {
        let before = sink.problems.len();
        for name in &spec.settings.semaphores {
            let Some(max) = site.semaphores.get(name) else {
                let message = format!(
                    "the tenant \"{}\" uses the global semaphore \"{name}\", which was not found",
                    spec.settings.name
                );
                let cure = "add a `global-semaphore` to the tenant file";
                sink.error("global-semaphore-not-found", "Global Semaphore Not Found", entry.mark, message, cure);
                continue;
            };
            spec.settings.global_semaphores.insert(name.clone(), *max);
        }
        site.check_mappings(&mut sink, &entry.value, entry.mark);
        if !sink.problems.iter().skip(before).any(Problem::is_error) {
            site.authorization.tenants.insert(spec.settings.name.clone(), access(&entry.value));
            specs.push(spec);
        }
    }
    for spec in &mut specs {
        spec.settings.authorization = site.authorization.of(&spec.settings.name);
    }
    (specs, site.authorization, sink.problems)
}

/// Who may do what, of a tenant or of the root of the API.
fn access(node: &Node) -> Access {
    let texts = |key: &str| node.get(key).map_or_else(Vec::new, |entry| texts_of(&entry.value));
    let mappings = node.get("role-mappings").and_then(|entry| entry.value.as_mapping()).unwrap_or(&[]);
    let anonymous = node.get("anonymous-read-access").and_then(|entry| entry.value.as_scalar()?.as_bool());
    Access {
        admin_rules: texts("admin-rules"),
        access_rules: texts("access-rules"),
        role_mappings: mappings.iter().map(|rule| (rule.key.clone(), texts_of(&rule.value))).collect(),
        anonymous_read: anonymous.unwrap_or(true),
        realm: node.get("authentication-realm").and_then(|entry| entry.value.as_str()).map(str::to_owned),
    }
}

/// What stands in the tenant file beside tenants.
#[derive(Default)]
struct Site<'a> {
    semaphores: BTreeMap<String, i64>,
    authorization: Authorization,
    api_root: Option<&'a Entry>,
}

impl<'a> Site<'a> {
    fn read(&mut self, sink: &mut Sink<'_>, entry: &'a Entry) {
        let (kind, table): (&'static str, &'static [Attribute]) = match entry.key.as_str() {
            "global-semaphore" => ("global semaphore", SEMAPHORE),
            "role" => ("role", ROLE),
            "api-root" => ("api-root", API_ROOT),
            _ => ("authorization rule", RULE),
        };
        if kind == "api-root" {
            if self.api_root.is_some() {
                let message = "the tenant file has more than one api-root";
                sink.error("duplicate-api-root", UNKNOWN, entry.mark, message, "keep one of them");
            }
            self.api_root = Some(entry);
        }
        let Some(mut stanza) = Stanza::open(sink, kind, &entry.value, entry.mark, &[table]) else { return };
        let name = stanza.name.clone();
        match kind {
            "global semaphore" => {
                self.semaphores.insert(name, stanza.int("max").unwrap_or(1));
            }
            "role" => {
                if name == ADMIN || name == READ {
                    let message = format!("the role \"{name}\" is built in");
                    stanza.fail("reserved-name", entry.mark, Some("name"), message, "choose another name");
                }
                let role = role(&mut stanza);
                self.authorization.roles.insert(name, role);
            }
            "authorization rule" => {
                let conditions = stanza.entry("conditions").map_or(&[][..], |entry| entry.value.items());
                if conditions.iter().any(|item| item.as_mapping().is_none()) {
                    let message = format!("`conditions` of {} must be dictionaries", stanza.title());
                    stanza.fail("wrong-type", entry.mark, Some("conditions"), message, "write `- CLAIM: VALUE`");
                }
                let all = |item: &Node| match item.to_value() {
                    Value::Map(all) => Some(all),
                    _ => None,
                };
                self.authorization.rules.insert(name, Rule { any: conditions.iter().filter_map(all).collect() });
            }
            _ => {}
        }
    }

    fn check_api_root(&mut self, sink: &mut Sink<'_>) {
        if let Some(entry) = self.api_root {
            self.check_mappings(sink, &entry.value, entry.mark);
            self.authorization.root = access(&entry.value);
        }
    }

    /// Role mappings name rules and roles that have to exist.
    fn check_mappings(&self, sink: &mut Sink<'_>, node: &Node, mark: Mark) {
        for mapping in node.get("role-mappings").and_then(|entry| entry.value.as_mapping()).unwrap_or(&[]) {
            if !self.authorization.rules.contains_key(&mapping.key) {
                let message = format!("the authorization rule \"{}\" was not found", mapping.key);
                let cure = "add an `authorization-rule` to the tenant file";
                sink.error("rule-not-found", "AuthZ Rule Not Found", mark, message, cure);
            }
            for role in mapping.value.items().iter().filter_map(Node::as_str) {
                if !self.authorization.roles.contains_key(role) && role != ADMIN && role != READ {
                    let message = format!("the role \"{role}\" was not found");
                    let cure = "add a `role` to the tenant file, or use admin or read";
                    sink.error("role-not-found", "AuthZ Role Not Found", mark, message, cure);
                }
            }
        }
    }
}

/// The permissions of a role.
fn role(stanza: &mut Stanza<'_, '_, '_>) -> Role {
    let mut role = Role::default();
    for entry in stanza.entry("permissions").and_then(|entry| entry.value.as_mapping()).unwrap_or(&[]) {
        if !PERMISSIONS.contains(&entry.key.as_str()) {
            let message = format!("`{}` is no permission, in {}", entry.key, stanza.title());
            let cure = match did_you_mean(&entry.key, PERMISSIONS.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are: {}", PERMISSIONS.join(", ")),
            };
            stanza.fail("unknown-attribute", entry.mark, Some("permissions"), message, cure);
            continue;
        }
        let conditions = ["dequeue", "enqueue"].contains(&entry.key.as_str());
        match permit(&entry.value, conditions) {
            Some(permit) => {
                role.permissions.insert(entry.key.clone(), permit);
            }
            None if conditions => {
                let message = format!("the permission `{}` of {} cannot be read", entry.key, stanza.title());
                let cure =
                    "write true, false, or `{conditions: {project: NAME, ref: REF}}` with one of the two or both";
                stanza.fail("wrong-type", entry.value.start, Some("permissions"), message, cure);
            }
            None => {
                let message = format!("the permission `{}` of {} must be true or false", entry.key, stanza.title());
                stanza.fail("wrong-type", entry.value.start, Some("permissions"), message, "");
            }
        }
    }
    role
}

fn permit(node: &Node, conditions: bool) -> Option<Permit> {
    if let Some(truth) = node.as_scalar().and_then(Value::as_bool) {
        return Some(if truth { Permit::Yes } else { Permit::No });
    }
    let [entry] = node.as_mapping().filter(|_| conditions)? else { return None };
    let given = entry.value.as_mapping().filter(|given| entry.key == "conditions" && !given.is_empty())?;
    let known = |entry: &Entry| ["project", "ref"].contains(&entry.key.as_str()) && entry.value.as_str().is_some();
    let text = |key: &str| entry.value.get(key).and_then(|entry| entry.value.as_str()).map(str::to_owned);
    given.iter().all(known).then(|| Permit::Where { project: text("project"), reference: text("ref") })
}

fn limit(given: Option<i64>, default: Option<i64>) -> Option<i64> {
    match given {
        Some(number) if number < 0 => None,
        Some(number) => Some(number),
        None => default,
    }
}

fn tenant(sink: &mut Sink<'_>, entry: &Entry) -> Option<TenantSpec> {
    let mut stanza = Stanza::open(sink, "tenant", &entry.value, entry.mark, &[TENANT])?;
    let defaults = TenantSettings::default();
    let mut settings = TenantSettings {
        name: stanza.name.clone(),
        default_parent: stanza.text_or("default-parent", &defaults.default_parent),
        max_job_timeout: limit(stanza.int("max-job-timeout"), defaults.max_job_timeout),
        max_nodes_per_job: limit(stanza.int("max-nodes-per-job"), defaults.max_nodes_per_job),
        max_changes_per_pipeline: limit(stanza.int("max-changes-per-pipeline"), None),
        max_dependencies: limit(stanza.int("max-dependencies"), None),
        default_ansible_version: stanza
            .entry("default-ansible-version")
            .map(|entry| match entry.value.as_str() {
                Some(text) => text.to_owned(),
                None => entry.value.to_value().to_string(),
            })
            .unwrap_or_default(),
        allowed_triggers: stanza.texts("allowed-triggers"),
        allowed_reporters: stanza.texts("allowed-reporters"),
        semaphores: stanza.texts("semaphores").unwrap_or_default(),
        global_semaphores: BTreeMap::new(),
        allowed_labels: label_patterns(&mut stanza, "allowed-labels"),
        disallowed_labels: label_patterns(&mut stanza, "disallowed-labels"),
        use_nodepool: stanza.bool("use-nodepool").unwrap_or(true),
        max_oidc_ttl: stanza.int("max-oidc-ttl").unwrap_or(defaults.max_oidc_ttl),
        default_oidc_ttl: defaults.default_oidc_ttl,
        allowed_oidc_issuers: stanza.texts("allowed-oidc-issuers").unwrap_or_default(),
        connections: Vec::new(),
        drivers: BTreeMap::new(),
        schemas: Schemas::default(),
        older_spellings: stanza.sink.spelling == Spelling::Older,
        included: stanza
            .texts("include")
            .unwrap_or_default()
            .into_iter()
            .map(|path| IncludedFile { path, text: None })
            .collect(),
        projects: Vec::new(),
        authorization: Authorization::default(),
    };
    let unprotected = stanza.bool("exclude-unprotected-branches");
    let locked = stanza.bool("exclude-locked-branches");
    for source in stanza.entry("source").and_then(|entry| entry.value.as_mapping()).unwrap_or(&[]) {
        let failed = {
            let Some(mut inner) = Stanza::open(&mut *stanza.sink, "source", &source.value, source.mark, &[SOURCE])
            else {
                stanza.spoil();
                continue;
            };
            inner.name.clone_from(&source.key);
            for (key, trusted) in [("config-projects", true), ("untrusted-projects", false), ("repos", false)] {
                if let Some(given) = inner.entry(key) {
                    projects(&mut inner, given, trusted, None, &mut settings.projects);
                }
            }
            inner.failed()
        };
        if failed {
            stanza.spoil();
        }
    }
    for project in &mut settings.projects {
        project.exclude_unprotected_branches = project.exclude_unprotected_branches.or(unprotected);
        project.exclude_locked_branches = project.exclude_locked_branches.or(locked);
    }
    settings.projects.sort_by_key(|project| !project.trusted);
    let given = stanza.entry("default-ansible-version").map(|entry| entry.mark);
    if let Some(mark) = given.filter(|_| !ansible::is_supported(&settings.default_ansible_version)) {
        let message = format!("Ansible {} of {} is not supported", settings.default_ansible_version, stanza.title());
        let cure = format!("choose one of: {}", ansible::SUPPORTED.join(", "));
        stanza.fail("ansible-version", mark, Some("default-ansible-version"), message, cure);
    }
    for project in settings.projects.iter().filter(|project| !project.trusted) {
        let configured = settings
            .projects
            .iter()
            .filter(|other| other.trusted)
            .find(|other| project.configure_projects.iter().any(|pattern| pattern.matches(&other.name)));
        if let Some(other) = configured {
            let message = format!(
                "the untrusted project \"{}\" may not configure the config project \"{}\"",
                project.name, other.name
            );
            let cure = "narrow its `configure-projects`";
            stanza.fail("configures-config-project", stanza.mark, Some("source"), message, cure);
        }
    }
    let place = stanza.place();
    stanza.finish(TenantSpec { settings, place })
}

/// A list of projects. Zuul: of a dictionary in its place only the names are read.
fn projects(
    source: &mut Stanza<'_, '_, '_>,
    given: &Entry,
    trusted: bool,
    classes: Option<&[String]>,
    found: &mut Vec<TenantProject>,
) {
    let Some(entries) = given.value.as_mapping() else {
        let Some(items) = given.value.as_sequence() else {
            let message = format!("`{}` must be a list, not {}", given.key, given.value.kind_name());
            source.fail("wrong-type", given.mark, None, message, "write `- NAME`");
            return;
        };
        for item in items {
            project(source, item, trusted, classes, found);
        }
        return;
    };
    let message = format!("`{}` is a dictionary, of which only the names are read", given.key);
    let cure = "write a list, with a dash before each name";
    source.sink.add(Severity::Warning, "wrong-type", UNKNOWN, given.mark, message).cure = cure.into();
    for entry in entries {
        named(source, &entry.key, entry.mark, trusted, classes, found);
    }
}

/// A project of which only the name is known.
fn named(
    source: &mut Stanza<'_, '_, '_>,
    name: &str,
    mark: Mark,
    trusted: bool,
    classes: Option<&[String]>,
    found: &mut Vec<TenantProject>,
) {
    let mut project = TenantProject::new(&source.name, name, trusted);
    if let Some(classes) = classes {
        project.include = classes.to_vec();
    }
    add(source, project, mark, found);
}

fn add(source: &mut Stanza<'_, '_, '_>, project: TenantProject, mark: Mark, found: &mut Vec<TenantProject>) {
    if found.iter().any(|other| other.connection == project.connection && other.name == project.name) {
        let message = format!("the project \"{}\" appears twice in one tenant", project.name);
        source.fail("duplicate-project", mark, None, message, "keep one of the two");
    } else {
        found.push(project);
    }
}

/// One entry of a list of projects: a name, a name with attributes, or a group.
fn project(
    source: &mut Stanza<'_, '_, '_>,
    item: &Node,
    trusted: bool,
    classes: Option<&[String]>,
    found: &mut Vec<TenantProject>,
) {
    if let Some(name) = item.as_str() {
        named(source, name, item.start, trusted, classes, found);
        return;
    }
    match item.as_mapping() {
        Some(entries) if entries.len() > 1 && item.get("projects").is_some() => {
            let classes = {
                let Some(mut group) = Stanza::open(&mut *source.sink, "group", item, item.start, &[GROUP]) else {
                    return;
                };
                let classes = classes_of(&mut group, default_classes(trusted));
                let failed = group.failed();
                if failed {
                    source.spoil();
                }
                classes
            };
            let Some(given) = item.get("projects") else { return };
            if let Some(group) = given.value.items().iter().find(|inner| inner.get("projects").is_some()) {
                let cure = "list the projects directly";
                source.fail("nested-group", group.start, None, "a group of projects holds another group", cure);
                return;
            }
            projects(source, given, trusted, Some(&classes), found);
        }
        Some([entry]) => {
            let mut base = TenantProject::new(&source.name, &entry.key, trusted);
            if let Some(classes) = classes {
                base.include = classes.to_vec();
            }
            let read = with_attributes(source, entry, base);
            if let Some(read) = read {
                add(source, read, entry.mark, found);
            }
        }
        _ => {
            let message = "a project must be a name, one name with attributes, or a group with `projects`";
            source.fail("wrong-type", item.start, None, message, "indent the attributes below the name");
        }
    }
}

fn classes_of(stanza: &mut Stanza<'_, '_, '_>, default: Vec<String>) -> Vec<String> {
    let mut classes = default;
    for key in ["include", "exclude"] {
        let unknown: Vec<String> = stanza
            .texts(key)
            .unwrap_or_default()
            .into_iter()
            .filter(|class| !LOADABLE_CLASSES.contains(&class.as_str()))
            .collect();
        for class in unknown {
            let mark = stanza.entry(key).map_or(stanza.mark, |entry| entry.mark);
            let cure = match did_you_mean(&class, LOADABLE_CLASSES.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are: {}", LOADABLE_CLASSES.join(", ")),
            };
            let message = format!("`{class}` in `{key}` of {} is no class of objects", stanza.title());
            stanza.fail("unknown-value", mark, Some(key), message, cure);
        }
    }
    if let Some(include) = stanza.texts("include") {
        classes = include;
    }
    if stanza.bool("include-provider-config") == Some(true) {
        for class in PROVIDER_CLASSES {
            if !classes.iter().any(|known| known == class) {
                classes.push((*class).to_owned());
            }
        }
    }
    let exclude = stanza.texts("exclude").unwrap_or_default();
    classes.retain(|class| !exclude.contains(class));
    classes
}

/// Which labels a tenant may use. Zuul: the expressions are RE2 alone, and looked at only where a label is compared with
/// them; a text is gone through letter by letter, each of them an expression.
fn label_patterns(stanza: &mut Stanza<'_, '_, '_>, key: &'static str) -> Vec<Pattern> {
    let Some(entry) = stanza.entry(key) else { return Vec::new() };
    let mark = entry.mark;
    let mut patterns: Vec<(Mark, Pattern)> = Vec::new();
    match entry.value.as_str() {
        Some(text) => {
            let letters = text.chars().map(|letter| Pattern::new(letter, false, Anchor::Start));
            patterns.extend(letters.map(|pattern| (mark, pattern)));
            if patterns.len() > 1 {
                let message = format!("`{key}` of {} is a text, which is read letter by letter", stanza.title());
                let cure = "write a list, with a dash before each expression";
                stanza.sink.add(Severity::Warning, "wrong-type", UNKNOWN, mark, message).cure = cure.into();
            }
        }
        None => {
            let items = entry.value.items().iter();
            patterns.extend(items.filter_map(|item| Some((item.start, pattern_of(item, Anchor::Start)?))));
        }
    }
    for (mark, pattern) in patterns.iter().filter(|(_, pattern)| !pattern.is_re2()) {
        let why = pattern.refused_by_re2().unwrap_or_default();
        let message = format!("`{}` in `{key}` of {} is not valid RE2: {why}", pattern.regex(), stanza.title());
        let cure = "mend it: until then every nodeset whose label is compared with it is refused";
        stanza.sink.add(Severity::Warning, "label-pattern", UNKNOWN, *mark, message).cure = cure.into();
    }
    patterns.into_iter().map(|(_, pattern)| pattern).collect()
}

/// Zuul goes through a text letter by letter: it is no expression, and each of its letters has to be one.
fn always_dynamic(stanza: &mut Stanza<'_, '_, '_>) -> Vec<Pattern> {
    const KEY: &str = "always-dynamic-branches";
    let text = stanza.entry(KEY).and_then(|entry| Some((entry.value.as_str()?.to_owned(), entry.mark)));
    let Some((text, mark)) = text.filter(|(text, _)| text.chars().count() > 1) else {
        return stanza.patterns(KEY, Anchor::Whole).unwrap_or_default();
    };
    let cure = "write a list, with a dash before each expression";
    if text.contains(['*', '+', '?', '(', ')', '[', '\\']) {
        let message = format!("`{KEY}` of {} must be a list, not a text", stanza.title());
        stanza.fail("wrong-type", mark, Some(KEY), message, cure);
    } else {
        let message = format!("`{KEY}` of {} is a text, which is read letter by letter", stanza.title());
        stanza.sink.add(Severity::Warning, "wrong-type", UNKNOWN, mark, message).cure = cure.into();
    }
    Vec::new()
}

fn with_attributes(source: &mut Stanza<'_, '_, '_>, entry: &Entry, base: TenantProject) -> Option<TenantProject> {
    let mut project = base;
    let failed = {
        let mut stanza = Stanza::open(&mut *source.sink, "project", &entry.value, entry.mark, &[PROJECT])?;
        stanza.name.clone_from(&entry.key);
        project.include = classes_of(&mut stanza, project.include);
        project.shadow = stanza.texts("shadow").unwrap_or_default();
        project.exclude_unprotected_branches = stanza.bool("exclude-unprotected-branches");
        project.exclude_locked_branches = stanza.bool("exclude-locked-branches");
        project.include_branches = stanza.patterns("include-branches", Anchor::Whole);
        let mut patterns = |key: &str| stanza.patterns(key, Anchor::Whole).unwrap_or_default();
        project.exclude_branches = patterns("exclude-branches");
        project.configure_projects = patterns("configure-projects");
        project.always_dynamic_branches = always_dynamic(&mut stanza);
        project.extra_config_paths = stanza.texts("extra-config-paths").unwrap_or_default();
        project.load_branch = stanza.text("load-branch");
        project.implied_branch_matchers = stanza.bool("implied-branch-matchers");
        project.allow_base_jobs = stanza.bool("allow-base-jobs").unwrap_or(true);
        project.allow_reporter_jobs = stanza.bool("allow-reporter-jobs").unwrap_or(false);
        for path in &project.extra_config_paths {
            if ["zuul.yaml", "zuul.d/", ".zuul.yaml", ".zuul.d/"].contains(&path.as_str()) {
                let mark = stanza.entry("extra-config-paths").map_or(stanza.mark, |entry| entry.mark);
                let message = format!("`{path}` in `extra-config-paths` of {} is read anyway", stanza.title());
                stanza.fail("reserved-path", mark, Some("extra-config-paths"), message, "remove it");
            }
        }
        for (key, only_for) in
            [("configure-projects", false), ("allow-reporter-jobs", false), ("allow-base-jobs", true)]
        {
            if let Some(given) = stanza.entry(key)
                && project.trusted != only_for
            {
                let kind = if only_for { "config" } else { "untrusted" };
                let message = format!("`{key}` of {} goes with {kind} projects only", stanza.title());
                stanza.fail("misplaced-attribute", given.mark, Some(key), message, "remove it");
            }
        }
        stanza.failed()
    };
    if failed {
        source.spoil();
        return None;
    }
    Some(project)
}
