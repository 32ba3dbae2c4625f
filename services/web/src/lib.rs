//! The JSON API and the page: Zuul's paths and field names where Zuul has them, a position on every answer.
//!
//! - [`site`]: [`Site`], what the API reads from; [`Past`] and [`Consoles`], what it asks others for.
//! - `paths`: what a route is, and the router made of them; `routes`: the table of the API's.
//! - `answers`: the types of the answers; `openapi`: the document that tells programs of routes and types.
//! - `cut`: positions; `reading`: one request: which moment it asks about, which tables answer, how the answer is marked.
//! - `status`, `builds`, `buildsets`, `configuration`: the documents.
//! - `capacity`: workers, and what each attempt of a build waited for, by capacity's own position.
//! - `newest`, `followed`: the status of now, made once for all who ask or follow; `stream`: events as they come; `console`: what a build says, by bytes, by lines, and where in it; `job_logs`: the files it leaves;
//! - `estimate`: how long jobs take, by how long they took; `health`: who asks how the site is, and what is answered;
//! - `waits`: what everything waits for.
//! - `keys`: what people encrypt secrets with; [`auth`]: who asks; [`operators`]: what they may ask for;
//! - [`what_if`]: what would have been, had something been otherwise;
//! - `page`: the same for people, as HTML.
//!
//! What Zuul calls by the same name means the same here, except:
//! - an answer is **as of** a position of every partition: `Gatelog-Position: gate/0:120,capacity/0:31`, also its ETag.
//!   `at=` (such a position, a sequence of the gate or an RFC 3339 time) asks for another, `after=` waits for one. Pages,
//!   streams, consoles and keys name the gate's alone. Spans that run on (`elapsed_time`, `remaining_time`) are counted
//!   up to the moment of that position, so that an answer is the same whenever it is asked for;
//! - a build stands for all its attempts; they are listed in `attempts`. `nodeset` names the labels;
//! - buildsets that were given up for another (a reset) are listed with `complete=false` only;
//! - `*_ms` are milliseconds since 1970, as Zuul's `enqueue_time` is;
//! - an unknown query parameter is an error that names it;
//! - `remaining_time` of an item is the longest way through its jobs: those that wait for others end after them.
//!
//! # Text of others
//!
//! Names, messages, addresses and consoles are written by people, projects and workers, any of whom may mean harm.
//! They become HTML in one place (`page::html`), escaped, with what hides or turns text around made visible; only web
//! addresses become links. Pages are sent with a policy that lets in this site's own files and no script or style
//! within the page; whatever is no page is sent with one that lets in nothing.
//!
//! This crate never decides or folds. What operators ask for it hands on, checked, to whoever appends it
//! ([`site::Site::operators`]).

mod answers;
pub mod auth;
mod builds;
mod buildsets;
mod capacity;
mod configuration;
mod console;
mod cut;
mod error;
mod estimate;
mod filter;
mod followed;
mod health;
mod job_logs;
mod keys;
pub mod leaps;
mod newest;
mod openapi;
pub mod operators;
mod page;
mod past;
mod paths;
mod query;
mod reading;
mod returned;
mod routes;
mod shape;
pub mod site;
mod status;
mod stream;
mod timers;
mod tokens;
mod waits;
pub mod what_if;

pub use console::finger::serve as serve_finger;
pub use error::ApiError;
pub use past::{Past, PastError, TimelinePast};
pub use paths::{About, Moment, Right};
pub use routes::{router, serve, table};
pub use site::{
    Component, ComponentState, Components, ConsoleChunk, ConsoleSource, Consoles, FoundLogs, Health, JobLogs, Leaving,
    NoConsoles, NoJobLogs, PartHealth, PublicKey, PublicKeys, Site,
};
