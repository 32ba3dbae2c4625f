//! Slices of a log.

use std::path::PathBuf;

use clap::Args;

use super::{At, parse_at};

/// `log export`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog log export --output tuesday.slice --from 2026-11-17T13:00:00Z --to 2026-11-17T15:00:00Z",
    "  gatelog log export --output bug.slice --from 4000      with the state before event 4000; no keys go with it"
))]
pub struct LogExportArgs {
    /// The file; it must not be there yet
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// From this moment: a sequence of gate.events or a time (RFC 3339) [default: the beginning]
    #[arg(long, value_name = "SEQUENCE|TIME", value_parser = parse_at)]
    pub from: Option<At>,
    /// Up to this moment, which belongs to it [default: the end]
    #[arg(long, value_name = "SEQUENCE|TIME", value_parser = parse_at)]
    pub to: Option<At>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `log import`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog log import bug.slice --dir /tmp/bug     then: gatelog explain show-miles --dir /tmp/bug"
))]
pub struct LogImportArgs {
    /// The slice
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}
