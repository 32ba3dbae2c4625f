//! Who may do what: the rules, roles and mappings of the tenant file, and what they say of a person's claims.
//!
//! Claims come from a token whose signature, issuer, audience and age somebody else has checked: nothing here makes them
//! true. Zuul: `_isAuthorized` of its web server.

pub mod claims;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use claims::Rule;

/// What a role may be permitted, in the words of the tenant file.
pub const PERMISSIONS: &[&str] = &[
    "read",
    "promote",
    "set-tenant-state",
    "build-image",
    "upload-image",
    "delete-image-build-artifact",
    "delete-image-upload",
    "modify-node",
    "modify-nodeset-request",
    "autohold",
    "dequeue",
    "enqueue",
];

/// The role that may do everything.
pub const ADMIN: &str = "admin";
/// The role that may look, and nothing else.
pub const READ: &str = "read";

/// Whether a role permits something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Permit {
    /// It does not.
    #[default]
    No,
    /// It does.
    Yes,
    /// It does where everything that is named here is what the request says.
    Where {
        /// The project, as the request names it.
        project: Option<String>,
        /// The ref.
        reference: Option<String>,
    },
}

/// A role of the tenant file: a permission that is not there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    /// What it permits.
    pub permissions: BTreeMap<String, Permit>,
}

/// Who may do what in a tenant, or at the root of the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Rules whose people may do everything; of a tenant only. Zuul: they do not count where there are mappings.
    pub admin_rules: Vec<String>,
    /// Rules whose people may look; where there are some, nobody else may. They do not count beside mappings either.
    pub access_rules: Vec<String>,
    /// Roles of the people of a rule, in the order of the file.
    pub role_mappings: Vec<(String, Vec<String>)>,
    /// Whether everybody may look.
    pub anonymous_read: bool,
    /// The realm people log in to.
    pub realm: Option<String>,
}

impl Default for Access {
    fn default() -> Self {
        Access {
            admin_rules: Vec::new(),
            access_rules: Vec::new(),
            role_mappings: Vec::new(),
            anonymous_read: true,
            realm: None,
        }
    }
}

/// Everything the tenant file says about who may do what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authorization {
    /// Rules by name.
    pub rules: BTreeMap<String, Rule>,
    /// Roles by name; `admin` and `read` are built in and not among them.
    pub roles: BTreeMap<String, Role>,
    /// Access to each tenant.
    pub tenants: BTreeMap<String, Access>,
    /// Access to what belongs to no tenant: the list of tenants, components, connections.
    pub root: Access,
}

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked<'a> {
    /// The permission it takes; none is to look.
    pub permission: Option<&'a str>,
    /// The project the request names in its path.
    pub project: Option<&'a str>,
    /// The ref the request names in its body. An enqueue by change names none.
    pub reference: Option<&'a str>,
}

/// What somebody may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// Look.
    pub access: bool,
    /// Do what was asked for, and what asks for an operator without naming a permission.
    pub admin: bool,
}

impl Authorization {
    /// What of it concerns one tenant and the root.
    pub fn of(&self, tenant: &str) -> Authorization {
        let only = self.tenants.get(tenant).map(|access| (tenant.to_owned(), access.clone()));
        Authorization {
            rules: self.rules.clone(),
            roles: self.roles.clone(),
            tenants: only.into_iter().collect(),
            root: self.root.clone(),
        }
    }

    /// Whether a tenant, or (none) the root, has role mappings. Zuul: its answers about permissions then name no `admin`.
    pub fn is_mapped(&self, tenant: Option<&str>) -> bool {
        self.access(tenant).is_some_and(|access| !access.role_mappings.is_empty())
    }

    /// The realm people log in to, of a tenant or (none) of the root.
    pub fn realm(&self, tenant: Option<&str>) -> Option<&str> {
        self.access(tenant)?.realm.as_deref()
    }

    fn access(&self, tenant: Option<&str>) -> Option<&Access> {
        match tenant {
            Some(name) => self.tenants.get(name),
            None => Some(&self.root),
        }
    }

    /// Whether everybody may look at a tenant, or (none) at the root of the API, without saying who they are. Zuul: not
    /// where there are access rules.
    pub fn is_open(&self, tenant: Option<&str>) -> bool {
        self.access(tenant).is_some_and(|access| access.anonymous_read && access.access_rules.is_empty())
    }

    /// What a person with these verified claims may; of an unknown tenant, nothing.
    ///
    /// Zuul: any role of the tenant file counts as an operator's as soon as it permits what is asked, so that a request
    /// that wants an operator and names no permission is granted to everybody whose role permits `read`.
    pub fn decide(&self, tenant: Option<&str>, claims: &Json, asked: &Asked<'_>) -> Granted {
        let Some(access) = self.access(tenant) else { return Granted::default() };
        if overrides(claims, tenant) {
            return Granted { access: true, admin: true };
        }
        let mapped = !access.role_mappings.is_empty();
        let mut granted =
            Granted { access: access.anonymous_read && (mapped || access.access_rules.is_empty()), admin: false };
        let fits = |rule: &String| self.rules.get(rule).is_some_and(|rule| rule.fits(claims, tenant));
        if !mapped {
            granted.admin = access.admin_rules.iter().any(fits);
            granted.access |= granted.admin || access.access_rules.iter().any(fits);
            return granted;
        }
        if granted.access && asked.permission.is_none() {
            return granted;
        }
        for role in access.role_mappings.iter().filter(|(rule, _)| fits(rule)).flat_map(|(_, roles)| roles) {
            let (permits, operator) = match role.as_str() {
                ADMIN => (true, true),
                // Whatever is asked for: looking is all that comes of it.
                READ => (true, false),
                name => (self.roles.get(name).is_some_and(|role| role.permits(asked)), true),
            };
            granted.access |= permits;
            granted.admin |= permits && operator;
        }
        granted
    }

    /// Everything a person with these claims may, some of it perhaps only for certain projects or refs; for showing what
    /// is worth trying.
    pub fn permissions(&self, tenant: Option<&str>, claims: &Json) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        let Some(access) = self.access(tenant) else { return found };
        found.extend(access.anonymous_read.then_some(READ));
        if overrides(claims, tenant) {
            found.insert(ADMIN);
            return found;
        }
        if access.role_mappings.is_empty() {
            let granted = self.decide(tenant, claims, &Asked::default());
            found.extend(granted.admin.then_some(ADMIN));
            found.extend(granted.access.then_some(READ));
            return found;
        }
        let fits = |rule: &String| self.rules.get(rule).is_some_and(|rule| rule.fits(claims, tenant));
        for role in access.role_mappings.iter().filter(|(rule, _)| fits(rule)).flat_map(|(_, roles)| roles) {
            match role.as_str() {
                ADMIN | READ => {
                    found.insert(role.as_str());
                }
                name => found.extend(self.roles.get(name).into_iter().flat_map(|role| {
                    let permitted = role.permissions.iter().filter(|(_, permit)| **permit != Permit::No);
                    permitted.map(|(name, _)| name.as_str())
                })),
            }
        }
        found
    }
}

impl Role {
    fn permits(&self, asked: &Asked<'_>) -> bool {
        match self.permissions.get(asked.permission.unwrap_or(READ)) {
            None | Some(Permit::No) => false,
            Some(Permit::Yes) => true,
            Some(Permit::Where { project, reference }) => {
                let same = |wanted: &Option<String>, said: Option<&str>| wanted.is_none() || wanted.as_deref() == said;
                same(project, asked.project) && same(reference, asked.reference)
            }
        }
    }
}

/// Zuul: a token may name the tenants its bearer is an operator of (`*` for all, or as the name of the root), where its
/// authenticator says that this counts (`allow_authz_override`); elsewhere whoever reads the token leaves the claim out.
fn overrides(claims: &Json, tenant: Option<&str>) -> bool {
    match claims.get("zuul").and_then(|zuul| zuul.get("admin")) {
        Some(Json::String(word)) => word == "*",
        Some(Json::Array(tenants)) => tenants.iter().any(|name| name.as_str() == Some(tenant.unwrap_or("*"))),
        _ => false,
    }
}
