//! What operators can say: enqueue, dequeue, promote, and what becomes of outside events. Zuul: `zuul-client`.

use std::path::PathBuf;

use clap::Args;

use super::{At, parse_at};

/// Of which tenant, why, and with what token.
#[derive(Clone, Debug, Args)]
pub struct OperatorArgs {
    /// The tenant [default: the only one there is]
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Why; it stands in the history
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
    /// In whose name.
    #[command(flatten)]
    pub token: TokenFileArgs,
}

/// Of which tenant, in what form, and with what token.
#[derive(Clone, Debug, Args)]
pub struct LookArgs {
    /// The tenant [default: the only one there is]
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// As of this event of the gate, or this time [default: now]
    #[arg(long, value_name = "SEQUENCE|TIME", value_parser = parse_at)]
    pub at: Option<At>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// In whose name.
    #[command(flatten)]
    pub token: TokenFileArgs,
}

/// Whose name to ask in.
#[derive(Clone, Debug, Args)]
pub struct TokenFileArgs {
    /// A file with a token [default: $GATELOG_AUTH_TOKEN is the token itself; without one, on the site's own machine, the
    /// Unix user asks]
    #[arg(long, value_name = "FILE")]
    pub auth_token_file: Option<PathBuf>,
}

/// A change or a ref of a project.
#[derive(Clone, Debug, Args)]
pub struct ChangeArgs {
    /// The pipeline
    #[arg(long, value_name = "PIPELINE")]
    pub pipeline: String,
    /// The project, by its short or canonical name
    #[arg(long, value_name = "PROJECT")]
    pub project: String,
    /// The change, with or without its patchset
    #[arg(long, value_name = "CHANGE", required_unless_present = "reference", conflicts_with = "reference")]
    pub change: Option<String>,
    /// A ref by its full name: refs/heads/master, refs/tags/1.0
    #[arg(id = "reference", long = "ref", value_name = "REF")]
    pub reference: Option<String>,
}

fn parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

/// `enqueue`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog enqueue --dir /srv/ci --pipeline gate --project org/app --change 1234,5 --reason 'the cloud is back'",
    "  gatelog enqueue --url https://ci.example.org --tenant demo --pipeline post --project org/app \\",
    "      --ref refs/heads/master --reason 'publish again'",
    "  gatelog enqueue --dir /srv/ci --pipeline release --project org/app --ref refs/heads/master \\",
    "      --parameter version=1.0 --parameter targets=docs --parameter targets=pypi"
))]
pub struct EnqueueArgs {
    /// What.
    #[command(flatten)]
    pub what: ChangeArgs,
    /// Of a ref: the commit it was at before
    #[arg(long, value_name = "COMMIT", requires = "reference")]
    pub oldrev: Option<String>,
    /// Of a ref: the commit it is at
    #[arg(long, value_name = "COMMIT", requires = "reference")]
    pub newrev: Option<String>,
    /// Of a branch or tag: a value for a parameter that its project declares for the pipeline; can be given more than
    /// once, for one with several values by the same name
    #[arg(long = "parameter", value_name = "NAME=VALUE", requires = "reference", value_parser = parameter)]
    pub parameters: Vec<(String, String)>,
    /// Whose, why.
    #[command(flatten)]
    pub asking: OperatorArgs,
}

/// `dequeue`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog dequeue --dir /srv/ci --pipeline gate --project org/app --change 1234,5 --reason 'it never ends'",
    "  gatelog dequeue --dir /srv/ci --pipeline post --project org/app --ref refs/heads/master"
))]
pub struct DequeueArgs {
    /// What.
    #[command(flatten)]
    pub what: ChangeArgs,
    /// Whose, why.
    #[command(flatten)]
    pub asking: OperatorArgs,
}

/// `promote`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog promote --dir /srv/ci --pipeline gate --changes 1234,5 1236,2 --reason 'it mends the build'",
    "  gatelog promote --dir /srv/ci --pipeline gate --project org/app --changes master/show-miles"
))]
pub struct PromoteArgs {
    /// The pipeline
    #[arg(long, value_name = "PIPELINE")]
    pub pipeline: String,
    /// The changes, the one to go first first
    #[arg(long, value_name = "CHANGE", num_args = 1.., required = true)]
    pub changes: Vec<String>,
    /// The project of these changes, where others have changes of the same names
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
    /// Whose, why.
    #[command(flatten)]
    pub asking: OperatorArgs,
}

/// `pause`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog pause --dir /srv/ci --reason 'the code-review system moves house'",
    "  gatelog resume --dir /srv/ci        deals with what came meanwhile"
))]
pub struct PauseArgs {
    /// Whose, why.
    #[command(flatten)]
    pub asking: OperatorArgs,
}

/// `discard`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog discard --dir /srv/ci --reason 'old events are sent again'",
    "  gatelog resume --dir /srv/ci        what came meanwhile is gone"
))]
pub struct DiscardArgs {
    /// Whose, why.
    #[command(flatten)]
    pub asking: OperatorArgs,
}

/// `resume`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog resume --dir /srv/ci --tenant demo --reason 'all is well'"
))]
pub struct ResumeArgs {
    /// Whose, why.
    #[command(flatten)]
    pub asking: OperatorArgs,
}

/// `autohold`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog autohold --dir /srv/ci --project org/app --job unit --change 1234 --reason 'it fails there alone'",
    "  gatelog autohold --dir /srv/ci --project org/app --job unit --count 3 --node-hold-expiration 86400"
))]
pub struct AutoholdArgs {
    /// The project, by its short or canonical name
    #[arg(long, value_name = "PROJECT")]
    pub project: String,
    /// The job
    #[arg(long, value_name = "JOB")]
    pub job: String,
    /// Only for this change, whatever its patchset
    #[arg(long, value_name = "CHANGE", conflicts_with = "reference")]
    pub change: Option<String>,
    /// Only for this ref, by its full name; a regular expression that refs must match from their beginning
    #[arg(id = "reference", long = "ref", value_name = "REF")]
    pub reference: Option<String>,
    /// For how many builds
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub count: u32,
    /// For how many seconds the nodes of each are kept; 0 until the request is deleted
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub node_hold_expiration: u64,
    /// Whose, why.
    #[command(flatten)]
    pub asking: OperatorArgs,
}

/// `autohold-list`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog autohold-list --dir /srv/ci --tenant demo",
    "  gatelog autohold-list --url https://ci.example.org --tenant demo --json",
    "  gatelog autohold-list --dir /srv/ci --at 2026-11-21T10:15:00Z      those there were then"
))]
pub struct AutoholdListArgs {
    /// Whose, in what form.
    #[command(flatten)]
    pub asking: LookArgs,
}

/// `autohold-info`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog autohold-info --dir /srv/ci --tenant demo 0000000123"
))]
pub struct AutoholdInfoArgs {
    /// The request's number
    #[arg(value_name = "REQUEST")]
    pub request: u64,
    /// Whose, in what form.
    #[command(flatten)]
    pub asking: LookArgs,
}

/// `autohold-delete`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog autohold-delete --dir /srv/ci 0000000123 --reason 'found it'"
))]
pub struct AutoholdDeleteArgs {
    /// The request's number
    #[arg(value_name = "REQUEST")]
    pub request: u64,
    /// Whose, why.
    #[command(flatten)]
    pub asking: OperatorArgs,
}

/// `create-auth-token`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog create-auth-token --dir /srv/ci --auth-config ops --user ann --tenant demo",
    "  GATELOG_AUTH_TOKEN=$(gatelog create-auth-token --auth-config ops --user ann --tenant demo) \\",
    "      gatelog pause --url https://ci.example.org --tenant demo"
))]
pub struct CreateAuthTokenArgs {
    /// Which [auth.NAME] of gatelog.toml; its driver must be HS256
    #[arg(long, value_name = "NAME")]
    pub auth_config: String,
    /// For whom
    #[arg(long, value_name = "USER")]
    pub user: String,
    /// A tenant its bearer is to be an operator of, where the authenticator has allow-authz-override; can be given more
    /// than once
    #[arg(long, value_name = "TENANT")]
    pub tenant: Vec<String>,
    /// For how many seconds it is good
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..))]
    pub expires_in: u32,
}
