//! What the house asks of code-review systems and reporters, as effects use it; effects know no driver by name.

pub use gatelog_driver_contract::{
    BranchNow, COMMIT_MISSING, CodeReview, Connection, Connections, Found, Landing, Report, Reporter, Source, Target,
    Trouble, chain,
};
