//! What jobs left in their log directories.

use clap::{Args, Subcommand};
use gatelog_executing::ByteSize;

/// `job-logs`
#[derive(Clone, Debug, Subcommand)]
pub enum JobLogsCommand {
    /// Show which logs of jobs the rules remove now, and which go next; removes nothing
    Plan(JobLogsPlanArgs),
}

/// `job-logs plan`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog job-logs plan --dir /srv/ci                    by the rules in gatelog.toml, [job-logs]",
    "  gatelog job-logs plan --dir /srv/ci --keep-days 30     what another rule would do"
))]
pub struct JobLogsPlanArgs {
    /// As if keep-days were this
    #[arg(long, value_name = "DAYS")]
    pub keep_days: Option<u32>,
    /// As if keep-bytes were this, such as 200G
    #[arg(long, value_name = "SIZE")]
    pub keep_bytes: Option<ByteSize>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
