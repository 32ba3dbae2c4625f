//! The command line: what can be said, and who does it.
//!
//! Every command is one struct here and one function elsewhere: [`crate::serve`], [`crate::demo`] and the modules
//! of [`crate::commands`]. Exit codes are those of [`Code`]; `docs/exit-codes.md` is the same table.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use gatelog_hosting::Hosting;
use gatelog_record::{Stream, Timestamp};

use crate::commands::failure::{Code, Failure};
use crate::commands::operators::Intake;
use crate::commands::{self, stop};
use crate::demo::DemoOptions;
use crate::roles::Role;

/// What stands under a command's help.
macro_rules! concat_examples {
    ($($line:literal),+ $(,)?) => {
        concat!(
            "Examples:\n",
            $($line, "\n",)+
            "\nExit codes: 0 ok, 1 said no or a check failed, 2 usage, 3 not found, 4 not allowed, 5 in use,\n",
            "6 unavailable or timed out, 7 integrity failure, 8 replay diverged, 9 another process has taken over\n",
            "(docs/exit-codes.md)."
        )
    };
}

pub mod ansible;
pub mod audit;
pub mod backup;
pub mod deploy;
pub mod job_logs;
pub mod keys;
pub mod operators;
pub mod processes;
pub mod project;
pub mod repartition;
pub mod replay;
pub mod slice;

use replay::ReplayCommand;

/// A project-gating CI/CD system on an append-only log.
///
/// A site is one directory: its configuration (gatelog.toml, tenants.yaml), its log, and everything made from the
/// log. Commands that read work on a site's directory, beside a running server or without one.
#[derive(Debug, Parser)]
#[command(name = "gatelog", version, max_term_width = 110, arg_required_else_help = true, after_help = AFTER)]
pub struct Cli {
    /// Which site.
    #[command(flatten)]
    pub site: SiteArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const AFTER: &str = "\
Examples:
  gatelog demo                           see it work: four changes through check and gate
  gatelog serve --dir /srv/ci            run a site
  gatelog project add app --tenant demo  a repository for a project, with all it needs
  gatelog status                         the live queues
  gatelog explain show-miles             why a change ran, waited, merged or did not
  gatelog replay state --at 120          the queues as they were at event 120
  gatelog log verify                     that nothing was changed since it was written

Environment: GATELOG_DIR names the site's directory where --dir does not; NO_COLOR turns colours off.
Exit codes: 0 ok, 1 said no or a check failed, 2 usage, 3 not found, 4 not allowed, 5 in use,
6 unavailable or timed out, 7 integrity failure, 8 replay diverged, 9 another process has taken over
(docs/exit-codes.md).";

/// Which site a command is about.
#[derive(Clone, Debug, Default, Args)]
pub struct SiteArgs {
    /// The site's directory [default: $GATELOG_DIR, or this directory if it has a gatelog.toml]
    #[arg(long, global = true, value_name = "DIR", conflicts_with = "url", help_heading = "Site")]
    pub dir: Option<PathBuf>,
    /// A running server instead of a directory, such as http://127.0.0.1:9000
    #[arg(long, global = true, value_name = "URL", help_heading = "Site")]
    pub url: Option<String>,
}

/// What gatelog can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a site: every role in one process, or some of them beside other processes
    Serve(ServeArgs),
    /// The projects of the plain-git forge: their repositories
    #[command(subcommand, arg_required_else_help = true)]
    Project(project::ProjectCommand),
    /// What the hooks of the forge's repositories ask
    #[command(subcommand, hide = true)]
    Hook(project::HookCommand),
    /// Stop the process that serves a directory, at once or when its builds have ended
    Stop(processes::StopArgs),
    /// Show who is there: the processes of a site, their roles and how they are
    Components(processes::ComponentsArgs),
    /// Show the timers: which branches enter which pipelines by the calendar, and when next
    Timers(processes::TimersArgs),
    /// Let an executor take no new builds, or take them again
    #[command(subcommand, arg_required_else_help = true)]
    Executor(processes::ExecutorCommand),
    /// Let a merger take no new work, or take it again
    #[command(subcommand, arg_required_else_help = true)]
    Merger(processes::MergerCommand),
    /// See it work: a site, three projects and four changes, from the push to the merge
    Demo(DemoArgs),
    /// Show the live queues
    Status(StatusArgs),
    /// Read and check the log
    #[command(subcommand, arg_required_else_help = true)]
    Log(LogCommand),
    /// Copy a site while it runs, so that it can be restored
    Backup(backup::BackupArgs),
    /// Go back in time
    #[command(subcommand, arg_required_else_help = true)]
    Replay(ReplayCommand),
    /// Proof for others: signed checkpoints, exports, and what may be forgotten
    #[command(subcommand, arg_required_else_help = true)]
    Audit(audit::AuditCommand),
    /// Say why: everything that happened to a change, item, build or event, back to its cause
    Explain(ExplainArgs),
    /// Say what is wrong with a configuration, before it is pushed
    Check(CheckArgs),
    /// Show the jobs a change would get, from a configuration folder alone
    Freeze(FreezeArgs),
    /// Deployment graphs: tasks over nodes with roles, their order
    #[command(subcommand, arg_required_else_help = true)]
    Deploy(deploy::DeployCommand),
    /// Encrypt a secret for a project, to be put into its repository
    Encrypt(EncryptArgs),
    /// The key pairs of projects, which secrets are encrypted for, and SSH keys of projects and tenants
    #[command(subcommand, arg_required_else_help = true)]
    Keys(keys::KeysCommand),
    /// Put a change or a ref into a pipeline, past the pipeline's requirements
    Enqueue(operators::EnqueueArgs),
    /// Take a change or a ref out of a pipeline
    Dequeue(operators::DequeueArgs),
    /// Let changes go first in their queues
    Promote(operators::PromoteArgs),
    /// Let a tenant's outside events wait
    Pause(operators::PauseArgs),
    /// Drop a tenant's outside events
    Discard(operators::DiscardArgs),
    /// Deal with a tenant's outside events again
    Resume(operators::ResumeArgs),
    /// Keep the nodes of a job's builds that fail
    Autohold(operators::AutoholdArgs),
    /// List requests to keep nodes
    AutoholdList(operators::AutoholdListArgs),
    /// Show a request to keep nodes, and what it keeps
    AutoholdInfo(operators::AutoholdInfoArgs),
    /// Delete a request to keep nodes, and let them go
    AutoholdDelete(operators::AutoholdDeleteArgs),
    /// What jobs left in their log directories: what goes when
    #[command(subcommand, arg_required_else_help = true)]
    JobLogs(job_logs::JobLogsCommand),
    /// Make a token for the API
    CreateAuthToken(operators::CreateAuthTokenArgs),
    /// The versions of Ansible that jobs may ask for, on an executor's host
    #[command(subcommand, arg_required_else_help = true)]
    Ansible(ansible::AnsibleCommand),
    /// Say what this host can do for gatelog, or what holds a site up, with a cure for each lack
    Doctor(DoctorArgs),
}

/// What can be done with the log.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Print records of any age
    Cat(CatArgs),
    /// Check every record, the chain of all events, and the blobs they name
    Verify(VerifyArgs),
    /// Make the log that gatelog.toml describes, as far as it is not there
    Init(LogInitArgs),
    /// Say what is wrong with the log's topics and brokers, with the cure
    Check(LogCheckArgs),
    /// Write a slice of the log with its blobs and the state before it into one file, without any keys
    Export(slice::LogExportArgs),
    /// Put a slice into a directory of its own, to look around in it
    Import(slice::LogImportArgs),
    /// Let another history go on from a log that was restored or forked
    Adopt(backup::LogAdoptArgs),
    /// Show up to which level records are written and who knows it; raise it after an upgrade
    Level(processes::LevelArgs),
    /// Copy the log's topics into new ones with as many partitions as gatelog.toml says
    Repartition(repartition::LogRepartitionArgs),
}

/// `serve`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog serve --dir /srv/ci",
    "  gatelog serve --dir /srv/ci --listen 127.0.0.1:0      a free port; server.json says which",
    "  gatelog serve --dir /srv/ci --role merger,executor    a process of a site whose log is on Kafka"
))]
pub struct ServeArgs {
    /// The site's directory [default: $GATELOG_DIR, or this directory if it has a gatelog.toml]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Where the API listens, in place of what gatelog.toml says
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Only these roles, where the log is on Kafka; can be given more than once [default: all]
    #[arg(long, value_name = "ROLE", value_delimiter = ',')]
    pub role: Vec<Role>,
    /// Not for this command; takes the place of the global one.
    #[arg(id = "url", long = "url", hide = true)]
    pub no_url: Option<String>,
}

/// `demo`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog demo                            watch it; nothing is left behind",
    "  gatelog demo --keep --dir /tmp/site     keep the site and leave it running",
    "  gatelog demo --headless --json          one JSON document; exit code 1 if the story did not go as told",
    "  gatelog demo --kafka localhost:9092     the same with its log on Kafka, in two processes"
))]
pub struct DemoArgs {
    /// Leave the site running when the story is over
    #[arg(long)]
    pub keep: bool,
    /// Keep the site's data in this new directory [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// No live screen
    #[arg(long)]
    pub headless: bool,
    /// Print the outcome as one JSON document
    #[arg(long)]
    pub json: bool,
    /// Have the log on Kafka at these brokers, and two processes; topics made for it go with the demo
    #[arg(long, value_name = "HOST:PORT,…")]
    pub kafka: Option<String>,
    /// The port of the API; 0 takes a free one
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// Not for this command; takes the place of the global one.
    #[arg(id = "url", long = "url", hide = true)]
    pub no_url: Option<String>,
}

/// `status`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog status --dir /srv/ci",
    "  gatelog status --url http://127.0.0.1:9000 --tenant demo",
    "  gatelog status --at 120 --json      as they were at event 120 of the gate"
))]
pub struct StatusArgs {
    /// Only this tenant
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// As of this event of the gate, or this time [default: now]
    #[arg(long, value_name = "SEQUENCE|TIME", value_parser = parse_at)]
    pub at: Option<At>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `check`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog check                              the repository in this directory",
    "  gatelog check --trusted                    the same, as a config project",
    "  gatelog check site/main.yaml --conf zuul.conf   a tenant with all its projects, in site/git/",
    "  gatelog check --format sarif > check.sarif      for a code-scanning tool",
    "  gatelog check --site --dir /srv/ci              before a restart: gatelog.toml and all it names"
))]
pub struct CheckArgs {
    /// Before a restart: gatelog.toml and all it names, the configuration of its tenants, and which settings change
    #[arg(long, conflicts_with_all = ["path", "conf", "trusted", "branch", "extra_config_path"])]
    pub site: bool,
    /// A repository, or a tenant file or a folder with main.yaml and git/<org>_<project>/
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: PathBuf,
    /// The zuul.conf of a tenant file [default: that beside it]
    #[arg(long, value_name = "FILE")]
    pub conf: Option<PathBuf>,
    /// The repository is a config project
    #[arg(long)]
    pub trusted: bool,
    /// The branch the repository's files are on
    #[arg(long, value_name = "BRANCH", default_value = "master")]
    pub branch: String,
    /// A further configuration file, or a directory with a slash at its end; can be given more than once
    #[arg(long, value_name = "PATH")]
    pub extra_config_path: Vec<String>,
    /// Also tell what is there and not used, and older spellings
    #[arg(long)]
    pub hints: bool,
    /// Warnings fail the check, too
    #[arg(long)]
    pub strict: bool,
    /// How to print
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = CheckFormat::Text)]
    pub format: CheckFormat,
}

/// How `check` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CheckFormat {
    /// For people.
    Text,
    /// One JSON array.
    Json,
    /// SARIF 2.1.0.
    Sarif,
}

/// `freeze`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog freeze site --project org/app --branch main --pipeline check",
    "  gatelog freeze site --project org/app --branch main --pipeline check --files src/a.c,README --json",
    "  gatelog freeze site --all                       every project, branch and pipeline",
    "  gatelog freeze --all --oracle-format site --conf zuul.conf   the form the differential tests compare"
))]
pub struct FreezeArgs {
    /// The tenant file, or a folder with main.yaml; beside it lies git/<org>_<project>/ for each project
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// The zuul.conf that names the connections [default: that beside the tenant file]
    #[arg(long, value_name = "FILE")]
    pub conf: Option<PathBuf>,
    /// Every project, branch and pipeline
    #[arg(long)]
    pub all: bool,
    /// Only this project
    #[arg(long, value_name = "PROJECT")]
    pub project: Option<String>,
    /// A change on this branch; can be given more than once
    #[arg(long, value_name = "BRANCH")]
    pub branch: Vec<String>,
    /// Only this pipeline
    #[arg(long, value_name = "PIPELINE")]
    pub pipeline: Option<String>,
    /// Only this tenant; can be given more than once
    #[arg(long, value_name = "TENANT")]
    pub tenant: Vec<String>,
    /// The files the change touches; without them file matchers are left out of consideration
    #[arg(long, value_name = "PATH,…", value_delimiter = ',')]
    pub files: Option<Vec<String>>,
    /// Every repository has this branch, too, with the files of master
    #[arg(long, value_name = "BRANCH")]
    pub make_branch: Vec<String>,
    /// Print the document that Zuul's oracle prints, for comparing
    #[arg(long, requires = "all")]
    pub oracle_format: bool,
    /// Print JSON, with the trace of each graph
    #[arg(long)]
    pub json: bool,
}

/// `log cat`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog log cat                                        what the gate decided, a line an event",
    "  gatelog log cat capacity.events --from 10 --to 20",
    "  gatelog log cat --kind gate.wait-changed --json        whole records, one JSON document a line",
    "  gatelog log cat intake                                 what code-review systems sent",
    "  gatelog log cat gate.inputs --follow"
))]
pub struct CatArgs {
    /// intake, <domain>.inputs or <domain>.events, with /<partition> if it is not 0
    #[arg(value_name = "STREAM", default_value = "gate.events")]
    pub stream: Stream,
    /// From this sequence on (of inputs: from this offset on)
    #[arg(long, value_name = "N")]
    pub from: Option<u64>,
    /// Up to this sequence (of inputs: up to this offset)
    #[arg(long, value_name = "N")]
    pub to: Option<u64>,
    /// Only this kind, such as gate.item-enqueued; can be given more than once
    #[arg(long, value_name = "KIND")]
    pub kind: Vec<String>,
    /// Only this key (tenant, allocation domain, …)
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Wait for what comes next
    #[arg(long, conflicts_with = "to")]
    pub follow: bool,
    /// Print whole records, one JSON document a line
    #[arg(long)]
    pub json: bool,
}

/// `log verify`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog log verify --dir /srv/ci",
    "  gatelog log verify --checkpoint witness.checkpoint      nor was its tail cut off",
    "  gatelog log verify --json"
))]
pub struct VerifyArgs {
    /// A checkpoint from elsewhere that the log must go on from; can be given more than once
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Vec<std::path::PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `log init`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog log init --dir /srv/ci      makes the topics of [log.kafka]; what is there is left as it is"
))]
pub struct LogInitArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `log check`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog log check --dir /srv/ci     exit code 0 if topics and brokers are as they must be",
    "  gatelog log check --json"
))]
pub struct LogCheckArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `replay state`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog replay state --at 120",
    "  gatelog replay state --at 2026-11-21T10:15:00Z --tenant demo",
    "  gatelog replay state --at 120 --json"
))]
pub struct StateArgs {
    /// The moment: a sequence of gate.events or a time (RFC 3339)
    #[arg(long, value_name = "SEQUENCE|TIME", value_parser = parse_at)]
    pub at: At,
    /// Only this tenant
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `replay verify`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog replay verify --dir /srv/ci       exit code 8 if this gatelog would decide otherwise",
    "  gatelog replay verify --json"
))]
pub struct ReplayVerifyArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `explain`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog explain show-miles                    a change, by name; also master/show-miles or its URL",
    "  gatelog explain 3f9a                          an item, buildset or build, by the beginning of its uuid",
    "  gatelog explain show-miles --job tests        one job of it; also why a job did not run",
    "  gatelog explain 117                           event 117 of the gate, and what led to it",
    "  gatelog explain capacity/0:31                 an event of capacity",
    "  gatelog explain 77ab                          a lease or node by its id, or a worker by its name",
    "  gatelog explain show-miles --at 80            as it was known at event 80",
    "  gatelog explain job app check unit            why a job would run, or not, with the configuration in force"
))]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, disable_help_subcommand = true)]
pub struct ExplainArgs {
    /// What else can be explained.
    #[command(subcommand)]
    pub other: Option<ExplainCommand>,
    /// A change (name, branch/name or URL), the uuid of an item, buildset, build, lease or node (4 digits or more), a
    /// worker, or an event (sequence, or <domain>/<partition>:<sequence>)
    #[arg(value_name = "WHAT", required = true)]
    pub what: Option<String>,
    /// Why this job ran, or why it did not
    #[arg(long, value_name = "JOB")]
    pub job: Option<String>,
    /// Only this tenant
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// As it was known at this moment: a sequence of gate.events or a time (RFC 3339)
    #[arg(long, value_name = "SEQUENCE|TIME", value_parser = parse_at)]
    pub at: Option<At>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What can be explained that has not happened.
#[derive(Clone, Debug, Subcommand)]
pub enum ExplainCommand {
    /// Say why a job would run or not, and where each of its values comes from: with the configuration a site has in force,
    /// or had at a moment, or with that of a folder
    Job(ExplainJobArgs),
}

/// `explain job`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog explain job app check unit --dir /srv/ci             with the configuration the site has in force",
    "  gatelog explain job app check unit --dir /srv/ci --at 120    with the one it had at event 120",
    "  gatelog explain job app check unit --config ../project-config     with that of a folder",
    "  gatelog explain job org/app gate unit --branch stable/2 --files doc/a.rst,setup.cfg",
    "  gatelog explain job app check unit --json     the same for programs"
))]
pub struct ExplainJobArgs {
    /// The project of the change, by its short or canonical name
    #[arg(value_name = "PROJECT")]
    pub project: String,
    /// The pipeline
    #[arg(value_name = "PIPELINE")]
    pub pipeline: String,
    /// The job
    #[arg(value_name = "JOB")]
    pub job: String,
    /// No site, but this tenant file, or a folder with main.yaml; beside it lies git/<org>_<project>/ for each project
    /// [default: this directory, if it has a main.yaml and no gatelog.toml, and no site is named]
    #[arg(long, value_name = "CONFIG", conflicts_with = "at")]
    pub config: Option<PathBuf>,
    /// The zuul.conf that names the connections [default: that beside the tenant file]
    #[arg(long, value_name = "FILE", conflicts_with = "at")]
    pub conf: Option<PathBuf>,
    /// As the site was configured at this moment: a sequence of gate.events or a time (RFC 3339)
    #[arg(long, value_name = "SEQUENCE|TIME", value_parser = parse_at)]
    pub at: Option<At>,
    /// A change on this branch [default: the project's default branch, or its first one]
    #[arg(long, value_name = "BRANCH", conflicts_with = "reference")]
    pub branch: Option<String>,
    /// No change of a branch, but this ref: refs/tags/1.0
    #[arg(long = "ref", value_name = "REF")]
    pub reference: Option<String>,
    /// Only in this tenant
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// The files the change touches; without them file matchers are left out of consideration
    #[arg(long, value_name = "PATH,…", value_delimiter = ',')]
    pub files: Option<Vec<String>>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `encrypt`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog encrypt --url https://ci.example.org --tenant demo --project org/app < password",
    "  gatelog encrypt --dir /srv/ci --tenant demo --project org/app --infile id_rsa --field-name ssh_key",
    "  gatelog encrypt --public-key app.pub --secret-name upload < password      no server is asked"
))]
pub struct EncryptArgs {
    /// The project's tenant
    #[arg(long, value_name = "TENANT", required_unless_present = "public_key")]
    pub tenant: Option<String>,
    /// The project whose jobs will use the secret, by its short or canonical name
    #[arg(long, value_name = "PROJECT", required_unless_present = "public_key")]
    pub project: Option<String>,
    /// The project's public key, in place of asking a server
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tenant", "project"])]
    pub public_key: Option<PathBuf>,
    /// What is to be encrypted [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub infile: Option<PathBuf>,
    /// Keep white space at the beginning and the end
    #[arg(long)]
    pub no_strip: bool,
    /// The secret's name
    #[arg(long, value_name = "NAME", default_value = "NAME")]
    pub secret_name: String,
    /// The part of the secret that this is
    #[arg(long, value_name = "FIELD", default_value = "FIELD")]
    pub field_name: String,
}

/// `doctor`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog doctor                                what this host can do, with the defaults",
    "  gatelog doctor --dir /srv/ci                  for this site; also its ports, disks and brokers",
    "  gatelog doctor --role executor --json         exit code 0: nothing is lacking (warnings do not count);",
    "                                                else the lack's own code, or 1 where there are several",
    "  gatelog doctor --site --dir /srv/ci           what holds this site up, worst first, with the cure;",
    "                                                exit code 0: nothing is held up"
))]
pub struct DoctorArgs {
    /// Say what holds the site up, with the cure; of one that does not run, what is on its disk
    #[arg(long, conflicts_with = "role")]
    pub site: bool,
    /// With --site: also what has been held up for less than a minute
    #[arg(long, requires = "site")]
    pub all: bool,
    /// Only what a process with this role needs
    #[arg(long, value_name = "ROLE")]
    pub role: Option<Role>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A moment of a site's past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// After this event of the gate.
    Sequence(u64),
    /// At this time: after the last event that was recorded by then.
    Time(Timestamp),
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            At::Sequence(sequence) => sequence.fmt(f),
            At::Time(time) => time.fmt(f),
        }
    }
}

/// Reads a moment. Of a position as the API gives it (`gate/0:120,capacity/0:31`) the gate's part counts: where the other
/// domains stood then follows from it.
pub fn parse_at(text: &str) -> Result<At, String> {
    let of_gate = text.split(',').find_map(|part| part.trim().strip_prefix("gate/0:"));
    let sequence = of_gate.unwrap_or(text);
    if !sequence.is_empty() && sequence.chars().all(|c| c.is_ascii_digit()) {
        return sequence.parse().map(At::Sequence).map_err(|_| "no sequence is that large".to_owned());
    }
    match text.parse::<jiff::Timestamp>() {
        Ok(time) => Ok(At::Time(Timestamp(time.as_microsecond()))),
        Err(_) => {
            Err("expected a sequence, such as 120, or a time with its zone, such as 2026-11-21T10:15:00Z".to_owned())
        }
    }
}

/// The command line's grammar, for help and tests.
pub fn command() -> clap::Command {
    Cli::command()
}

/// What a program puts its sites together from.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// The domains it hosts, and whose records its commands read; gatelog's own unless others are named.
    pub domains: Hosting,
}

/// Reads the command line, does what it says and gives the exit code.
pub fn run(parts: &Parts) -> ExitCode {
    let matches = command().get_matches();
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    match dispatch(&cli, parts) {
        Ok(code) => code,
        Err(failure) => {
            failure.print();
            failure.code.into()
        }
    }
}

fn dispatch(cli: &Cli, parts: &Parts) -> Result<ExitCode, Failure> {
    if cli.site.url.is_some() && matches!(cli.command, Command::Serve(_) | Command::Demo(_)) {
        return Err(Failure::new(Code::Usage, "this command starts a server of its own and does not take --url"));
    }
    match &cli.command {
        Command::Serve(args) => Ok(crate::serve::run(parts, args)?),
        Command::Demo(args) => {
            let options = DemoOptions {
                keep: args.keep,
                dir: args.dir.clone(),
                headless: args.headless,
                json: args.json,
                port: args.port,
                kafka: args.kafka.clone(),
            };
            let told = crate::demo::story::run(&options, stop::on_signals()?.any())?;
            Ok(if told { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Project(command) => commands::project::run(&cli.site, command),
        Command::Hook(command) => commands::hook::run(command),
        Command::Stop(args) => stop::run(&cli.site, args),
        Command::Components(args) => commands::components::show(&cli.site, args),
        Command::Timers(args) => commands::timers::show(&cli.site, args),
        Command::Executor(command) => commands::components::executor(&cli.site, command),
        Command::Merger(command) => commands::components::merger(&cli.site, command),
        Command::Log(LogCommand::Level(args)) => commands::log_level::run(parts, &cli.site, args),
        Command::Status(args) => commands::status::run(&cli.site, args),
        Command::Log(LogCommand::Cat(args)) => commands::log_cat::run(parts, &cli.site, args),
        Command::Log(LogCommand::Verify(args)) => commands::log_verify::run(&cli.site, args),
        Command::Log(LogCommand::Init(args)) => commands::log_topics::init(&cli.site, args),
        Command::Log(LogCommand::Export(args)) => commands::log_slice::export(parts, &cli.site, args),
        Command::Log(LogCommand::Adopt(args)) => commands::log_adopt::run(&cli.site, args),
        Command::Log(LogCommand::Repartition(args)) => commands::log_repartition::run(&cli.site, args),
        Command::Backup(args) => commands::backup::run(&cli.site, args),
        Command::Log(LogCommand::Import(args)) => commands::log_slice::import(parts, &cli.site, args),
        Command::Log(LogCommand::Check(args)) => commands::log_topics::check(&cli.site, args),
        Command::Audit(command) => dispatch_audit(&cli.site, command),
        Command::Replay(ReplayCommand::State(args)) => commands::replay::state(&cli.site, args),
        Command::Replay(ReplayCommand::Diff(args)) => commands::replay_diff::run(parts, &cli.site, args),
        Command::Replay(ReplayCommand::Step(args)) => commands::replay_step::run(parts, &cli.site, args),
        Command::Replay(ReplayCommand::WhatIf(args)) => commands::what_if::run(&cli.site, args),
        Command::Replay(ReplayCommand::Verify(args)) => commands::replay::verify(parts, &cli.site, args),
        Command::Explain(ExplainArgs { other: Some(ExplainCommand::Job(args)), .. }) => {
            commands::explain_job::run(&cli.site, args)
        }
        Command::Explain(args) => commands::explain::run(parts, &cli.site, args),
        Command::Check(args) => commands::check::run(&cli.site, args),
        Command::Freeze(args) => commands::freeze::run(args),
        Command::Deploy(command) => commands::deploy::run(command),
        Command::Encrypt(args) => commands::encrypt::run(&cli.site, args),
        Command::Keys(command) => commands::keys::run(&cli.site, command),
        Command::Enqueue(args) => commands::operators::enqueue(&cli.site, args),
        Command::Dequeue(args) => commands::operators::dequeue(&cli.site, args),
        Command::Promote(args) => commands::operators::promote(&cli.site, args),
        Command::Pause(args) => commands::operators::intake(&cli.site, &args.asking, Intake::Pause),
        Command::Discard(args) => commands::operators::intake(&cli.site, &args.asking, Intake::Discard),
        Command::Resume(args) => commands::operators::intake(&cli.site, &args.asking, Intake::Resume),
        Command::Autohold(args) => commands::autohold::ask(&cli.site, args),
        Command::AutoholdList(args) => commands::autohold::list(&cli.site, args),
        Command::AutoholdInfo(args) => commands::autohold::info(&cli.site, args),
        Command::AutoholdDelete(args) => commands::autohold::delete(&cli.site, args),
        Command::CreateAuthToken(args) => commands::operators::create_auth_token(&cli.site, args),
        Command::JobLogs(job_logs::JobLogsCommand::Plan(args)) => commands::job_logs::plan(&cli.site, args),
        Command::Ansible(command) => commands::ansible::run(&cli.site, command),
        Command::Doctor(args) => commands::doctor::run(&cli.site, args),
    }
}

fn dispatch_audit(site: &SiteArgs, command: &audit::AuditCommand) -> Result<ExitCode, Failure> {
    match command {
        audit::AuditCommand::Checkpoint(args) => commands::audit::checkpoint(site, args),
        audit::AuditCommand::Export(args) => commands::audit::make_export(site, args),
        audit::AuditCommand::Verify(args) => commands::audit::verify(args),
        audit::AuditCommand::Forget(args) => commands::retention::forget(site, args),
        audit::AuditCommand::Retention(args) => commands::retention::retention(site, args),
    }
}

#[cfg(test)]
mod tests;
