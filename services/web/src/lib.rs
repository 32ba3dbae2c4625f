//! The JSON API and the page: Zuul's paths and field names where Zuul has them, a position on every answer.
//!
//! - [`site`]: [`Site`], what the API reads from; [`Past`] and [`Consoles`], what it asks others for.
//! - `reading`: one request: which moment it asks about, which tables answer, how the answer is marked.
//! - `status`, `builds`, `buildsets`, `configuration`: the documents.
//! - `capacity`: workers, and what each attempt of a build waited for, by capacity's own position.
//! - `stream`: events as they come; `console`: what a build says.
//! - `page`: the same for people, as HTML.
//!
//! What Zuul calls by the same name means the same here, except:
//! - an answer is **as of** a position: `Gatelog-Position: gate/0:<sequence>`, also its ETag. `at=` (a
//!   sequence or an RFC 3339 time) asks for another, `after=` waits for one. Spans that run on
//!   (`elapsed_time`, `remaining_time`) are counted up to the moment of that position, so that an answer
//!   is the same whenever it is asked for;
//! - a build stands for all its attempts; they are listed in `attempts`. `nodeset` names the labels;
//! - buildsets that were given up for another (a reset) are listed with `complete=false` only;
//! - `*_ms` are milliseconds since 1970, as Zuul's `enqueue_time` is;
//! - an unknown query parameter is an error that names it.
//!
//! This crate never decides, appends or folds.

mod builds;
mod buildsets;
mod capacity;
mod configuration;
mod console;
mod error;
mod filter;
mod health;
mod page;
mod query;
mod reading;
mod routes;
mod shape;
pub mod site;
mod status;
mod stream;

pub use error::ApiError;
pub use routes::{router, serve};
pub use site::{
    ConsoleChunk, ConsoleSource, Consoles, Health, NoConsoles, PartHealth, Past, PastError, Site, TimelinePast,
};
