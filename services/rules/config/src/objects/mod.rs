//! The objects of the language, one module each: its attribute table, its shape, its reader.

pub mod job;
pub mod job_parts;
pub mod named;
pub mod nodeset;
pub mod parameter;
pub mod pipeline;
pub mod pragma;
pub mod project;
pub mod queue;
pub mod secret;
pub mod semaphore;
pub mod template;

use serde::{Deserialize, Serialize};

pub use job::{JobAttribute, JobDefinition};
pub use named::NamedObject;
pub use nodeset::Nodeset;
pub use pipeline::Pipeline;
pub use pragma::Pragma;
pub use project::ProjectStanza;
pub use queue::Queue;
pub use secret::Secret;
pub use semaphore::Semaphore;
pub use template::ProjectTemplate;

use crate::shared::Shared;

/// The kinds of objects a configuration file may hold, as they are written.
pub const CLASSES: &[&str] = &[
    "pragma",
    "pipeline",
    "job",
    "nodeset",
    "secret",
    "project",
    "project-template",
    "semaphore",
    "queue",
    "image",
    "flavor",
    "label",
    "section",
    "provider",
];

/// One object of a configuration file. Pragmas are not among them: they are part of what they
/// apply to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Object {
    /// A pipeline.
    Pipeline(Shared<Pipeline>),
    /// A job, or a variant of one.
    Job(Shared<JobDefinition>),
    /// A nodeset.
    Nodeset(Shared<Nodeset>),
    /// A secret.
    Secret(Shared<Secret>),
    /// A project stanza.
    Project(Shared<ProjectStanza>),
    /// A project template, or a variant of one.
    Template(Shared<ProjectTemplate>),
    /// A semaphore.
    Semaphore(Shared<Semaphore>),
    /// A queue.
    Queue(Shared<Queue>),
    /// An image, flavor, label, section or provider.
    Named(Shared<NamedObject>),
}

impl Object {
    /// The kind of object, as it is written in a file and in `include` lists.
    pub fn class(&self) -> &str {
        match self {
            Object::Pipeline(_) => "pipeline",
            Object::Job(_) => "job",
            Object::Nodeset(_) => "nodeset",
            Object::Secret(_) => "secret",
            Object::Project(_) => "project",
            Object::Template(_) => "project-template",
            Object::Semaphore(_) => "semaphore",
            Object::Queue(_) => "queue",
            Object::Named(object) => &object.class,
        }
    }
}
