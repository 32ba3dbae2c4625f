//! Providers and their sections: whether they fit together ([`check`]), and what comes of it ([`merge`]).

pub mod merge;
mod schema;

use std::collections::BTreeMap;

use gatelog_record::Value;

use merge::MergedProvider;

use crate::findings::Findings;
use crate::layout::Layout;
use crate::load::ParsedFile;
use crate::objects::{NamedObject, Object};
use crate::problem::{Problem, Severity, UNKNOWN, did_you_mean};
use crate::shared::Shared;
use crate::tenant::TenantSettings;

/// Sections in one chain; more is a circle.
pub(crate) const MAX_SECTIONS: usize = 100;

/// Older spellings: images and flavors that a section names are there, defined or not.
pub(crate) fn imply(layout: &mut Layout, files: &[&ParsedFile], findings: &mut Findings) {
    let sections = files.iter().copied().flat_map(|file| &file.stanzas).filter_map(|stanza| match &stanza.object {
        Some(Object::Named(object)) if object.older && object.class == "section" => Some(object),
        _ => None,
    });
    for section in sections {
        for class in ["image", "flavor"] {
            let Some(Value::List(items)) = section.attributes.get(&format!("{class}s")) else { continue };
            for item in items {
                let name = item.as_map().map_or(Some(item), |map| map.get("name")).and_then(Value::as_str);
                let known = layout.named.entry(class.to_owned()).or_default();
                let Some(name) = name.filter(|name| !known.contains_key(*name)) else { continue };
                let implied = NamedObject {
                    class: class.to_owned(),
                    name: name.to_owned(),
                    attributes: BTreeMap::from([("name".to_owned(), Value::Str(name.to_owned()))]),
                    place: section.place.clone(),
                    older: true,
                };
                known.insert(name.to_owned(), Shared::new(implied));
                findings.begin();
                let message = format!("the {class} \"{name}\" is named in a section and nowhere defined");
                let place = section.place.clone();
                let problem = Problem::new(Severity::Notice, "older-spelling", UNKNOWN, place, message);
                findings.push(problem.about(&format!("{class}s")).cure(format!("write `- {class}: {{name: {name}}}`")));
            }
        }
    }
}

/// Checks every provider. Zuul: `ProviderConfig.flattenConfig`.
pub(crate) fn check(layout: &Layout, tenant: &TenantSettings, findings: &mut Findings) {
    let none = BTreeMap::new();
    for provider in layout.named.get("provider").unwrap_or(&none).values() {
        findings.begin();
        if let Err(problem) = flatten(layout, tenant, provider) {
            findings.push(*problem);
        }
    }
}

fn text<'a>(object: &'a NamedObject, name: &str) -> Option<&'a str> {
    object.attributes.get(name).and_then(Value::as_str)
}

fn refuse(provider: &NamedObject, code: &str, label: &str, message: String, cure: &str) -> Box<Problem> {
    Box::new(Problem::error(code, label, provider.place.clone(), message).cure(cure))
}

fn flatten(layout: &Layout, tenant: &TenantSettings, provider: &NamedObject) -> Result<(), Box<Problem>> {
    let none = BTreeMap::new();
    let sections = layout.named.get("section").unwrap_or(&none);
    let name = &provider.name;
    let mut chain: Vec<&NamedObject> = vec![provider];
    let mut connection = text(provider, "connection");
    let mut next = text(provider, "section");
    while let Some(parent) = next.filter(|parent| !parent.is_empty()) {
        let Some(section) = sections.get(parent).filter(|_| chain.len() < MAX_SECTIONS) else {
            let message = format!("the provider \"{name}\" is built on the section \"{parent}\", which was not found");
            let near = did_you_mean(parent, sections.keys().map(String::as_str));
            let cure = near.map_or_else(|| "define it first".to_owned(), |near| format!("did you mean \"{near}\"?"));
            return Err(refuse(provider, "section-not-found", UNKNOWN, message, &cure));
        };
        chain.push(section);
        if let Some(given) = text(section, "connection").filter(|given| !given.is_empty()) {
            if connection.is_some() {
                let message = format!("the provider \"{name}\" is built on two connections");
                let cure = "name the connection in one section of the chain only";
                return Err(refuse(provider, "connection-changed", UNKNOWN, message, cure));
            }
            connection = Some(given);
        }
        next = text(section, "parent");
    }
    // Older spellings: static nodes stand in a section that says it has no connection.
    let nowhere = chain.iter().any(|layer| layer.older && layer.attributes.get("connection") == Some(&Value::Null));
    let known = (connection.is_none() && nowhere)
        || connection.is_some_and(|given| tenant.connections.iter().any(|name| name == given));
    if !known && !tenant.connections.is_empty() {
        let message = match connection {
            Some(connection) => {
                format!("the provider \"{name}\" is on the connection \"{connection}\", which is unknown")
            }
            None => format!("the provider \"{name}\" has no connection"),
        };
        let cure = "name a connection of the site in a section";
        return Err(refuse(provider, "unknown-connection", "Unknown Connection", message, cure));
    }
    chain.reverse();
    entries(layout, provider, &chain)?;
    let Some(merged) = layout.merged_provider(&provider.name) else { return Ok(()) };
    retained(provider, &merged)?;
    // Older spellings say things no driver of today knows.
    let older = chain.iter().any(|layer| layer.older) || names_older(layout, &merged);
    match connection.and_then(|name| tenant.drivers.get(name)).filter(|_| !older) {
        Some(driver) => understood(driver, provider, &merged),
        None => Ok(()),
    }
}

fn names_older(layout: &Layout, merged: &MergedProvider) -> bool {
    let all = [("image", &merged.images), ("flavor", &merged.flavors), ("label", &merged.labels)];
    let mut entries = all.into_iter().flat_map(|(class, entries)| entries.iter().map(move |entry| (class, entry)));
    entries.any(|(class, entry)| {
        let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
        layout.named.get(class).and_then(|all| all.get(name)).is_some_and(|object| object.older)
    })
}

fn understood(driver: &str, provider: &NamedObject, merged: &MergedProvider) -> Result<(), Box<Problem>> {
    let Some(why) = schema::wrong(driver, merged) else { return Ok(()) };
    let message = format!("the provider \"{}\", put together from its sections, has an error: {why}", provider.name);
    let cure = format!("see what connections of the driver \"{driver}\" understand; it may stand in a section, too");
    Err(refuse(provider, "provider-invalid", UNKNOWN, message, &cure))
}

/// Zuul: what is kept fits into what may be kept, once everything is put together.
fn retained(provider: &NamedObject, merged: &MergedProvider) -> Result<(), Box<Problem>> {
    for image in &merged.images {
        let of = |key: &str| image.get(key).and_then(number);
        let (Some(kept), Some(most)) = (of("retain-count"), of("max-retain-count")) else { continue };
        if kept > most {
            let name = image.get("name").and_then(Value::as_str).unwrap_or_default();
            let message = format!(
                "the provider \"{}\" keeps {kept} of the image \"{name}\", above its max-retain-count of {most}",
                provider.name
            );
            return Err(refuse(provider, "retain-count-above", UNKNOWN, message, "lower retain-count"));
        }
    }
    Ok(())
}

/// Images, flavors and labels: each has to be defined, and a final one stays as it is.
fn entries(layout: &Layout, provider: &NamedObject, chain: &[&NamedObject]) -> Result<(), Box<Problem>> {
    let mut most = None;
    for layer in chain {
        let retained = layer.attributes.get("image-defaults").and_then(|map| map.as_map()?.get("max-retain-count"));
        shrinks(provider, "image-defaults", &mut most, retained)?;
    }
    let none: BTreeMap<String, Shared<NamedObject>> = BTreeMap::new();
    for class in ["image", "flavor", "label"] {
        let defined = layout.named.get(class).unwrap_or(&none);
        let mut seen: BTreeMap<&str, BTreeMap<String, Value>> = BTreeMap::new();
        // Defaults may say that what comes from here on is final.
        let mut closing: Option<&Value> = None;
        for layer in chain {
            let defaults = layer.attributes.get(&format!("{class}-defaults")).and_then(Value::as_map);
            closing = defaults.and_then(|defaults| defaults.get("final")).or(closing);
            let Some(Value::List(items)) = layer.attributes.get(&format!("{class}s")) else { continue };
            for item in items {
                let empty = BTreeMap::new();
                let (name, entry) = match item {
                    Value::Str(name) => (name.as_str(), &empty),
                    Value::Map(map) => (map.get("name").and_then(Value::as_str).unwrap_or(""), map),
                    _ => continue,
                };
                if !defined.contains_key(name) {
                    let message = format!(
                        "the provider \"{}\" offers the {class} \"{name}\", which was not found",
                        provider.name
                    );
                    let near = did_you_mean(name, defined.keys().map(String::as_str));
                    let cure =
                        near.map_or_else(|| "define it first".to_owned(), |near| format!("did you mean \"{near}\"?"));
                    return Err(refuse(provider, "object-not-found", UNKNOWN, message, &cure));
                }
                if let Some(before) = seen.get(name) {
                    let closed = match before.get("final") {
                        Some(Value::Bool(closed)) => *closed,
                        Some(Value::Str(word)) => word != "allow-override",
                        _ => false,
                    };
                    if closed {
                        let message =
                            format!("the provider \"{}\" redefines the final {class} \"{name}\"", provider.name);
                        return Err(refuse(
                            provider,
                            "entry-final",
                            UNKNOWN,
                            message,
                            "leave it as the section has it",
                        ));
                    }
                    let mut most = before.get("max-retain-count").and_then(number);
                    if class == "image" {
                        shrinks(provider, name, &mut most, entry.get("max-retain-count"))?;
                    }
                }
                let mut entry = entry.clone();
                if let Some(closing) = closing {
                    entry.entry("final".to_owned()).or_insert_with(|| closing.clone());
                }
                seen.insert(name, entry);
            }
        }
    }
    Ok(())
}

fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

/// Zuul: down the chain max-retain-count may only become smaller.
fn shrinks(
    provider: &NamedObject,
    what: &str,
    most: &mut Option<i64>,
    given: Option<&Value>,
) -> Result<(), Box<Problem>> {
    let Some(given) = given.and_then(number) else { return Ok(()) };
    if most.is_some_and(|most| given > most) {
        let message = format!("max-retain-count of {what} grows in the provider \"{}\"", provider.name);
        return Err(refuse(provider, "retain-count-grows", UNKNOWN, message, "give a number that is not larger"));
    }
    *most = Some(given);
    Ok(())
}
