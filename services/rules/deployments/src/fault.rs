//! What can be wrong with a graph or with a question about it.

use thiserror::Error;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// What was sent is refused: schema, cycles, unknown names.
    #[error("{0}")]
    Invalid(String),
    /// A field that is needed is missing; which.
    #[error("{0} is missing")]
    Missing(String),
    /// A name that no task or model has.
    #[error("{0}")]
    Unknown(String),
    /// A value of the wrong kind.
    #[error("{0}")]
    Kind(String),
    /// `amount: 0`.
    #[error("amount must be 1 or more")]
    Amount,
    /// The tasks wait for each other.
    #[error("tasks wait for each other: {0}")]
    Cycle(String),
    /// The graph lacks a stage that others hang on.
    #[error("*{0}* stage must be provided")]
    NoStage(&'static str),
    /// A type of task that cannot run at this place.
    #[error("{0}")]
    Unsupported(String),
    /// A condition that cannot be read.
    #[error("Syntax error at '{said}'")]
    Syntax {
        /// What stands there, as Fuel writes it; empty at the end.
        said: String,
        /// The column in characters, from 1.
        column: usize,
    },
    /// A condition that asks for a value nobody set.
    #[error("Value of {0} is undefined. Set options.strict to false to allow undefined values.")]
    Undefined(String),
    /// A pattern that cannot be read; which, and why.
    #[error("pattern {0}: {1}")]
    Pattern(String, String),
    /// A task too old for graphs of tasks on nodes.
    #[error("The task-based deployment is not allowed")]
    TooOld(String),
    /// A relation to a node that has no tasks at all. Fuel 8.0 stops over it; nothing else does.
    #[error("dictionary changed size during iteration")]
    EmptyNode,
    /// A condition in a language that is not read here.
    #[error("the condition of {0} is written in YAQL, which is not read here")]
    Yaql(String),
}
