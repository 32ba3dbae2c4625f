//! Backups of a site, and logs that come from one.

use std::path::PathBuf;

use clap::Args;

/// `backup`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog backup --dir /srv/ci --to /mnt/backup/ci       beside the running server; again: only what is new",
    "  gatelog log verify --dir /mnt/backup/ci                that it is whole"
))]
pub struct BackupArgs {
    /// The directory to copy into: a new one, or a backup of this site
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `log adopt`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog log adopt --dir /srv/ci --reason 'restored from the backup of Monday, disk lost'",
    "      after: cp -a /mnt/backup/ci /srv/ci"
))]
pub struct LogAdoptArgs {
    /// Why another history goes on from here; told on the log when the site starts
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
