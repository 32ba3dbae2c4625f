//! Projects of the plain-git forge, and what their hooks ask.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `project`
#[derive(Clone, Debug, Subcommand)]
pub enum ProjectCommand {
    /// Make a project's repository, or set up one that is there already; doing it again does no harm
    Add(ProjectAddArgs),
    /// List the projects: branches, tenants, open changes, and whether the hooks are well
    List(ProjectListArgs),
    /// Move a project's repository out of the forge
    Remove(ProjectRemoveArgs),
}

/// `project add`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog project add app --dir /srv/ci --tenant demo      a repository, and a line in the tenant file",
    "  gatelog project add config --tenant demo --config-project --branch main",
    "  gatelog project add org/app --import https://git.example.org/org/app.git",
    "  gatelog project add app          sets up forge/app.git that `git init --bare` has made; mends hooks"
))]
pub struct ProjectAddArgs {
    /// The project: 1 to 200 bytes, parts divided by slashes
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The connection whose forge gets it [default: the only one there is]
    #[arg(long, value_name = "CONNECTION")]
    pub connection: Option<String>,
    /// Make this branch with a first commit; can be given more than once, the first is the default branch [default: main,
    /// which comes with the first push]
    #[arg(long, value_name = "BRANCH")]
    pub branch: Vec<String>,
    /// Fetch branches and tags from another repository
    #[arg(long, value_name = "URL|PATH")]
    pub import: Option<String>,
    /// Add the project to this tenant in the tenant file, whose comments and order stay; makes the tenant if need be
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// It is a config project: what it says counts for the whole tenant, and is trusted
    #[arg(long)]
    pub config_project: bool,
}

/// `project list`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog project list --dir /srv/ci",
    "  gatelog project list --json      the same for programs"
))]
pub struct ProjectListArgs {
    /// Only the projects of this connection
    #[arg(long, value_name = "CONNECTION")]
    pub connection: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `project remove`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog project remove app --dir /srv/ci      moves it to forge/.removed/, and says how to bring it back",
    "  gatelog project remove app --delete           deletes it for good",
    "  gatelog project remove app --force            although the tenant file still names it"
))]
pub struct ProjectRemoveArgs {
    /// The project
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The connection whose forge has it [default: the only one there is]
    #[arg(long, value_name = "CONNECTION")]
    pub connection: Option<String>,
    /// Delete the repository instead of moving it
    #[arg(long)]
    pub delete: bool,
    /// Also where the tenant file names the project
    #[arg(long)]
    pub force: bool,
}

/// `hook`
#[derive(Clone, Debug, Subcommand)]
pub enum HookCommand {
    /// Say what of a push means nothing; exit code 1 refuses it
    PreReceive(PreReceiveArgs),
    /// Say what becomes of a push
    PostReceive(PostReceiveArgs),
}

/// `hook pre-receive`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog hook pre-receive --project app < updates      lines `OLD NEW REF`, in the repository"
))]
pub struct PreReceiveArgs {
    /// The project
    #[arg(long, value_name = "NAME")]
    pub project: String,
}

/// `hook post-receive`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog hook post-receive --project app --connection forge --dir /srv/ci < updates"
))]
pub struct PostReceiveArgs {
    /// The project
    #[arg(long, value_name = "NAME")]
    pub project: String,
    /// The connection
    #[arg(long, value_name = "CONNECTION")]
    pub connection: String,
    /// The site's directory
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Not for this command; takes the place of the global one.
    #[arg(id = "url", long = "url", hide = true)]
    pub no_url: Option<String>,
}
