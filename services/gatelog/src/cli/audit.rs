//! What auditors and those who answer them can say.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{At, parse_at};

/// Proof for others, and what may be forgotten.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Sign where the log stands, and put that outside
    Checkpoint(CheckpointArgs),
    /// Write events with the proof that they are on the log into one signed file
    Export(ExportArgs),
    /// Check an export, with nothing but the file
    Verify(VerifyExportArgs),
    /// Make everything unreadable that is sealed for a person, project, buildset or month of intake
    Forget(ForgetArgs),
    /// Say what is kept, for how long, and what can be forgotten
    Retention(RetentionArgs),
}

/// `audit checkpoint`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog audit checkpoint --dir /srv/ci                published where [audit] checkpoint-directory says",
    "  gatelog audit checkpoint --dir /srv/ci > today.txt    without [audit]: the text, to be kept elsewhere"
))]
pub struct CheckpointArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `audit export`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog audit export --output november.audit --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z",
    "  gatelog audit export --output demo.audit --tenant demo",
    "  gatelog audit export --output app.audit --project org/app --from 100 --to 240",
    "  gatelog audit export --output ann.audit --actor 4be1… --checkpoint witness.checkpoint"
))]
pub struct ExportArgs {
    /// The file; it must not be there yet
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// From this moment: a sequence of gate.events or a time (RFC 3339) [default: the beginning]
    #[arg(long, value_name = "SEQUENCE|TIME", value_parser = parse_at)]
    pub from: Option<At>,
    /// Up to this moment, which belongs to it [default: the end]
    #[arg(long, value_name = "SEQUENCE|TIME", value_parser = parse_at)]
    pub to: Option<At>,
    /// Only events of this tenant
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Only events of this project, by its short or canonical name
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
    /// Only what this actor asked for, by the id that `log cat --json` shows
    #[arg(long, value_name = "ID")]
    pub actor: Option<String>,
    /// Show the place of this checkpoint, so that the export can be held against it; can be given more than once
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `audit verify`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog audit verify november.audit                                     exit code 7 if anything was changed",
    "  gatelog audit verify november.audit --checkpoint witness.checkpoint     nor was the log, by then",
    "  gatelog audit verify november.audit --key site.pem                      and it is that site's",
    "  gatelog audit verify november.audit --events                            also print the events, as JSON lines"
))]
pub struct VerifyExportArgs {
    /// The export
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// A checkpoint from elsewhere, or several in one file; can be given more than once
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Vec<PathBuf>,
    /// The site's public key (PEM), or its id
    #[arg(long, value_name = "FILE|ID")]
    pub key: Option<String>,
    /// Print the events once all was found in order: one JSON document a line
    #[arg(long, conflicts_with = "json")]
    pub events: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `audit forget`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog audit forget person/4be1… --reason 'asked to'             name and addresses of a person",
    "  gatelog audit forget project/git.example.org/org/app              texts of a project",
    "  gatelog audit forget buildset/7f3a…                               what its jobs handed each other under seal",
    "  gatelog audit forget intake/gerrit/2025-11                        raw bodies of a connection in a month"
))]
pub struct ForgetArgs {
    /// Whose key: person/ID, project/HOST/NAME, buildset/ID or intake/CONNECTION/MONTH
    #[arg(value_name = "SCOPE")]
    pub scope: String,
    /// Why; it stands in the history
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// `audit retention`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog audit retention --dir /srv/ci",
    "  gatelog audit retention --json"
))]
pub struct RetentionArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
