//! Another number of partitions.

use clap::Args;

/// `log repartition`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog log repartition --dir /srv/ci      once every process of the site was stopped; again if it was broken off"
))]
pub struct LogRepartitionArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
