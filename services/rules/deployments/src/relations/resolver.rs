//! From roles to nodes, where roles may be patterns.

use serde_json::Value;

use crate::cluster::{MASTER, Node};
use crate::fault::Fault;
use crate::hooks::Places;
use crate::names::Name;
use crate::values;
use crate::version::Version;

/// Which node is meant where any of several will do.
pub type Choose<'a> = &'a dyn Fn(&[String]) -> Option<String>;

/// The nodes that are deployed, by role.
#[derive(Clone)]
pub struct Resolver<'a> {
    nodes: Vec<(String, Vec<String>)>,
    choose: Choose<'a>,
    version: Version,
}

/// The first, which is as good as any.
pub fn first(uids: &[String]) -> Option<String> {
    uids.first().cloned()
}

impl<'a> Resolver<'a> {
    /// For these nodes.
    pub fn new(nodes: &[&Node], version: Version, choose: Choose<'a>) -> Resolver<'a> {
        let nodes = nodes.iter().map(|node| (node.uid.clone(), node.all_roles())).collect();
        Resolver { nodes, choose, version }
    }

    /// The nodes of some roles, in their order.
    ///
    /// # Errors
    /// [`Fault::Pattern`], [`Fault::Kind`].
    pub fn uids(&self, roles: Option<&Value>, any: bool) -> Result<Vec<String>, Fault> {
        let found = self.all(roles)?;
        if any && !found.is_empty() {
            return Ok((self.choose)(&found).into_iter().collect());
        }
        Ok(found)
    }

    fn all(&self, roles: Option<&Value>) -> Result<Vec<String>, Fault> {
        let wanted = match roles {
            Some(Value::String(word)) if word == "*" => {
                return Ok(self
                    .nodes
                    .iter()
                    .filter(|(_, roles)| !roles.is_empty())
                    .map(|(uid, _)| uid.clone())
                    .collect());
            }
            Some(Value::String(word)) if word == MASTER => return Ok(vec![MASTER.to_owned()]),
            // 9.2: a word is a list of one.
            Some(Value::String(word)) if self.version >= Version::Nine => vec![word.clone()],
            Some(list @ Value::Array(_)) => values::names(list)?,
            _ => return Ok(Vec::new()),
        };
        let mut found = Vec::new();
        let mut names = Vec::with_capacity(wanted.len());
        for role in &wanted {
            if self.version >= Version::Nine && role == MASTER {
                found.push(MASTER.to_owned());
            } else {
                names.push(Name::read(role)?);
            }
        }
        let fits = |roles: &[String]| names.iter().any(|name| roles.iter().any(|role| name.fits(role)));
        let fitting = self.nodes.iter().filter(|(_, roles)| fits(roles)).map(|(uid, _)| uid.clone());
        found.extend(fitting);
        Ok(found)
    }
}

impl Places for Resolver<'_> {
    fn of(&self, roles: Option<&Value>) -> Result<Vec<Option<String>>, Fault> {
        Ok(self.uids(roles, false)?.into_iter().map(Some).collect())
    }
}

/// Always the same nodes: those of a group.
pub(super) struct These(pub Vec<String>);

impl Places for These {
    fn of(&self, _: Option<&Value>) -> Result<Vec<Option<String>>, Fault> {
        Ok(self.0.iter().cloned().map(Some).collect())
    }
}
