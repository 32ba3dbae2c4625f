//! Deployment graphs, from files alone.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `deploy`
#[derive(Clone, Debug, Subcommand)]
pub enum DeployCommand {
    /// Draw the graph of tasks: DOT, JSON or SVG
    Graph(GraphArgs),
    /// Show what would run where, after what, and what would not
    Order(OrderArgs),
    /// Answer a case as Fuel would, for comparing
    Oracle(OracleArgs),
}

/// `deploy graph`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog deploy graph deployment/ | dot -Tpng > graph.png   all *tasks.yaml below a directory",
    "  gatelog deploy graph tasks.yaml --format svg --without stage > graph.svg",
    "  gatelog deploy graph tasks.yaml --format json"
))]
pub struct GraphArgs {
    /// Files of tasks, or directories with *tasks.yaml in them
    #[arg(value_name = "FILE|DIR", required = true)]
    pub path: Vec<PathBuf>,
    /// What to print
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = GraphFormat::Dot)]
    pub format: GraphFormat,
    /// Leave out tasks of this type: group, stage, skipped; can be given more than once
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    pub without: Vec<String>,
}

/// How `deploy graph` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum GraphFormat {
    /// For Graphviz.
    Dot,
    /// Nodes and edges.
    Json,
    /// A picture.
    Svg,
}

/// `deploy order`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog deploy order deployment/                      one made-up node for every role",
    "  gatelog deploy order tasks.yaml --node 1=primary-controller --node 2=compute,cinder",
    "  gatelog deploy order tasks.yaml --cluster cluster.yaml --end pre_deployment_end --json",
    "  gatelog deploy order tasks.yaml --skip netconfig"
))]
pub struct OrderArgs {
    /// Files of tasks, or directories with *tasks.yaml in them
    #[arg(value_name = "FILE|DIR", required = true)]
    pub path: Vec<PathBuf>,
    /// A node and its roles; can be given more than once [default: a node for every group]
    #[arg(long, value_name = "NODE=ROLE,…")]
    pub node: Vec<String>,
    /// A YAML file with nodes (uid, roles), mode, status, settings; then conditions decide
    #[arg(long, value_name = "FILE", conflicts_with = "node")]
    pub cluster: Option<PathBuf>,
    /// Only these tasks
    #[arg(long, value_name = "TASK,…", value_delimiter = ',')]
    pub tasks: Vec<String>,
    /// Not these tasks
    #[arg(long, value_name = "TASK,…", value_delimiter = ',')]
    pub skip: Vec<String>,
    /// This task and all that waits for it
    #[arg(long, value_name = "TASK")]
    pub start: Option<String>,
    /// This task and all it waits for
    #[arg(long, value_name = "TASK")]
    pub end: Option<String>,
    /// These tasks although they are marked as skipped
    #[arg(long, value_name = "TASK,…", value_delimiter = ',')]
    pub include: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `deploy oracle`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog deploy oracle cases/level-mix.json > answer.json",
    "  gatelog deploy oracle cases/real-7.0-mongo.json --corpus corpus/fuel"
))]
pub struct OracleArgs {
    /// A case: a JSON document with `input`, and `expected` for the versions that are to be answered
    #[arg(value_name = "CASE")]
    pub case: PathBuf,
    /// Where files of tasks lie that a case names [default: corpus/fuel in a folder above the case]
    #[arg(long, value_name = "DIR")]
    pub corpus: Option<PathBuf>,
}
