//! What a code-review system, a reporter and a webhook are to gatelog.
//!
//! A driver is a value ([`Driver`]): a name, what pipelines may say to it, and a reader of its own section of
//! `gatelog.toml`. Opened for a site, a connection is made of parts ([`Connection`]), each of which it has or has not:
//!
//! | part | what it does | who has it |
//! |---|---|---|
//! | [`CodeReview`] | has projects; answers for changes and branches; merges for real | forges, code-review systems |
//! | [`Reporter`] | delivers reports | forges, code-review systems, mail, message brokers |
//! | [`Intake`] | tells what happens there, also what was missed | forges, code-review systems, pollers |
//! | [`Webhook`] | takes what the other side sends by HTTP | hosted forges |
//!
//! Everything is called from threads that may block, from several at once, and may be called twice for one thing: after a
//! crash, after a lost acknowledgement. What "twice" comes to is said at each method. Nothing here decides: a driver
//! turns the other side's words into gatelog's and back.
//!
//! What every driver keeps to:
//! - An outside answer is never trusted to be of any size or shape: it has limits, and what is beyond them is named.
//! - Names of persons and addresses, and bodies as they came, are sealed before they leave the driver
//!   ([`Opening::keyring`]). What rules need of them is extracted into plain fields first.
//! - Credentials lie in files that settings name, are never part of a URL, and never of an error.
//! - A driver does not wait out a rate limit: it says [`Trouble::retry_at`] and rests its [`Lane`].

mod connection;
mod driver;
mod facts;
mod intake;
mod report;
mod review;
mod submit;
mod trouble;
mod webhook;

pub use connection::{Connection, Connections, Lane};
pub use driver::{Driver, Lack, Looked, Opening, Settings, SettingsError};
pub use facts::{Branch, Found, Permission, Unresolved};
pub use gatelog_driver_schema::{DriverSchema, Field, Schemas, Shape, field, needed};
pub use gatelog_secrets::Keyring;
pub use intake::{Batch, Heard, Intake, Listening, Sink};
pub use report::{Report, Reporter};
pub use review::{CodeReview, Credentials, Secret, Source};
pub use submit::{BranchNow, Landing, Target};
pub use trouble::{COMMIT_MISSING, Trouble, chain};
pub use webhook::{Delivery, Refused, Webhook};
