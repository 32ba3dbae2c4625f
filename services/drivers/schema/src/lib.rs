//! What pipelines may say to a driver, as data: its triggers, its requirements, its reporters.
//!
//! A value of [`DriverSchema`] stands in the driver's own crate; the list of a site's drivers hands it to the rules of
//! configuration, which hold pipelines against it and know no driver by name for that. Nothing here reads, and nothing
//! here knows a value: whoever has values says whether they fit.

/// What a value has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Anything.
    Anything,
    /// Nothing: null.
    Nothing,
    /// A text.
    Text,
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Int,
    /// A text or a list of texts.
    Texts,
    /// A regular expression or a list of them.
    Regexes,
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of these words, or a list of them.
    Words(&'static [&'static str]),
    /// A dictionary of anything, or a list of such.
    Maps,
    /// A dictionary of these fields.
    Fields(&'static [Field]),
    /// A dictionary of these fields and others, or a list of such.
    OpenFields(&'static [Field]),
    /// A dictionary of these fields, or a list of such.
    ListedFields(&'static [Field]),
    /// A dictionary with exactly one of these fields.
    OneField(&'static [Field]),
    /// A list of such.
    ListOf(&'static Shape),
    /// A dictionary of anything.
    Map,
    /// A dictionary of texts.
    TextMap,
    /// A whole number from 1.
    Positive,
    /// One of these words, or null.
    WordOrNothing(&'static [&'static str]),
    /// `true`, `false` or `allow-override`.
    Final,
}

/// A key of a dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The key.
    pub name: &'static str,
    /// What stands behind it.
    pub shape: Shape,
    /// Whether it must be there.
    pub required: bool,
}

/// A key that may be left out.
pub const fn field(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, required: false }
}

/// A key that must be there.
pub const fn needed(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, required: true }
}

/// What pipelines may say to connections of a driver; a part the driver has none of is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverSchema {
    /// What the driver is called where people read it: in problems of pipelines, in the API, in tenants' settings.
    pub name: &'static str,
    /// Whether its connections have projects, so that a tenant may name one as a source.
    pub has_projects: bool,
    /// One filter of a `trigger`.
    pub trigger: Option<&'static [Field]>,
    /// A `require`.
    pub require: Option<&'static [Field]>,
    /// A `reject`.
    pub reject: Option<&'static [Field]>,
    /// What an action may say to its reporter: one of these.
    pub reporter: Option<&'static [Shape]>,
    /// Keys of a trigger's filter that are regular expressions, and are looked at as such.
    pub regexes: &'static [&'static str],
    /// The key by which a reporter of `success` asks the other side to merge; to say nothing of it is to say no. None
    /// where the gate merges, whatever the reporter says.
    pub merges_by: Option<&'static str>,
}

impl DriverSchema {
    /// A driver of this name to which nothing can be said.
    pub const fn silent(name: &'static str) -> DriverSchema {
        DriverSchema {
            name,
            has_projects: false,
            trigger: None,
            require: None,
            reject: None,
            reporter: None,
            regexes: &[],
            merges_by: None,
        }
    }
}

/// The drivers of a site, as its configuration is read. Never part of what is recorded: settings name drivers, and
/// whoever reads them again hands over the list it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schemas(pub &'static [&'static DriverSchema]);

impl Schemas {
    /// The driver of this name, if there is one.
    pub fn find(self, name: &str) -> Option<&'static DriverSchema> {
        self.0.iter().copied().find(|schema| schema.name == name)
    }
}
