//! The processes of a site: who is there, who takes nothing new, who ends; and up to which level they write records.

use clap::{Args, Subcommand};

use super::operators::TokenFileArgs;

/// `stop`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog stop --dir /srv/ci                       at once; its builds begin again elsewhere, or later",
    "  gatelog stop --dir /srv/ci --drain               it takes nothing new, and ends once its builds have",
    "  gatelog stop --dir /srv/ci --drain --within 600  at once after ten minutes of that (exit code 6)"
))]
pub struct StopArgs {
    /// Let it end what it has begun; it takes nothing new
    #[arg(long)]
    pub drain: bool,
    /// For how many seconds at most; then it stops at once [default: drain-limit under [stop] of its gatelog.toml]
    #[arg(long, value_name = "SECONDS", requires = "drain")]
    pub within: Option<u64>,
}

/// `components`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog components --dir /srv/ci",
    "  gatelog components --url https://ci.example.org --json"
))]
pub struct ComponentsArgs {
    /// Print JSON: what GET /api/components answers
    #[arg(long)]
    pub json: bool,
}

/// `timers`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog timers --dir /srv/ci                       every timer of every tenant, and when it is due next",
    "  gatelog timers --dir /srv/ci --tenant acme --branches"
))]
pub struct TimersArgs {
    /// Of this tenant alone
    #[arg(long)]
    pub tenant: Option<String>,
    /// Show each branch of each timer
    #[arg(long)]
    pub branches: bool,
    /// Print JSON: by tenant, what GET /api/tenant/{tenant}/timers answers
    #[arg(long)]
    pub json: bool,
}

/// What can be done with executors. Zuul: `zuul-executor pause` and `unpause`.
#[derive(Clone, Debug, Subcommand)]
pub enum ExecutorCommand {
    /// Let it take no new builds; those it runs go on. That outlasts its restarts
    #[command(after_help = concat_examples!(
        "  gatelog executor pause builder-1 --dir /srv/ci --reason 'its disk is replaced'",
        "  gatelog components --dir /srv/ci                     says who is paused, and why"
    ))]
    Pause(ComponentArgs),
    /// Let it take new builds again
    #[command(alias = "unpause", after_help = concat_examples!(
        "  gatelog executor resume builder-1 --dir /srv/ci --reason 'it has a new disk'"
    ))]
    Resume(ComponentArgs),
}

/// What can be done with mergers. Zuul: `zuul-merger pause` and `unpause`.
#[derive(Clone, Debug, Subcommand)]
pub enum MergerCommand {
    /// Let it take no new work; what it has begun it ends. That outlasts its restarts
    #[command(after_help = concat_examples!(
        "  gatelog merger pause merger-2 --dir /srv/ci --reason 'its mirrors are copied'"
    ))]
    Pause(ComponentArgs),
    /// Let it take new work again
    #[command(alias = "unpause", after_help = concat_examples!(
        "  gatelog merger resume merger-2 --dir /srv/ci"
    ))]
    Resume(ComponentArgs),
}

/// Which component, and why.
#[derive(Clone, Debug, Args)]
pub struct ComponentArgs {
    /// Its name, as `gatelog components` shows it
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Why; it stands in the history
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
    /// In whose name.
    #[command(flatten)]
    pub token: TokenFileArgs,
}

/// `log level`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog log level --dir /srv/ci                      the level of each partition, and which everybody knows",
    "  gatelog log level --dir /srv/ci --raise --reason 'all hosts have 0.2.0'",
    "      exit code 1, with who does not know it, while somebody does not"
))]
pub struct LevelArgs {
    /// Ask for the level to be raised; then there is no going back to a gatelog that does not know it
    #[arg(long)]
    pub raise: bool,
    /// To this level [default: the newest that this gatelog knows]
    #[arg(long, value_name = "N", requires = "raise")]
    pub to: Option<u32>,
    /// Why; it stands in the history
    #[arg(long, value_name = "TEXT", requires = "raise", default_value = "", hide_default_value = true)]
    pub reason: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// In whose name.
    #[command(flatten)]
    pub token: TokenFileArgs,
}
