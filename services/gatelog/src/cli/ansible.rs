//! The versions of Ansible that jobs may ask for, in managed environments.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What can be done with versions of Ansible. Zuul: `zuul-manage-ansible`.
#[derive(Clone, Debug, Subcommand)]
pub enum AnsibleCommand {
    /// Install versions of Ansible with what roles need besides, each in an environment of its own
    Install(AnsibleInstallArgs),
    /// List the versions that jobs may ask for, and which are installed
    List(AnsibleListArgs),
    /// Start what is installed, and say what is missing
    Validate(AnsibleValidateArgs),
}

/// `ansible install`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog ansible install --dir /srv/ci                every version that jobs may ask for",
    "  gatelog ansible install 11 --dir /srv/ci             only this one; what is installed stays as it is",
    "  gatelog ansible install 11 --upgrade --dir /srv/ci   a new environment takes the place of the old one",
    "  gatelog ansible install 9 --python /usr/bin/python3.12"
))]
pub struct AnsibleInstallArgs {
    /// Which versions [default: all]
    #[arg(value_name = "VERSION")]
    pub versions: Vec<String>,
    /// Also where it is installed: builds that begin later use the new one, without a restart
    #[arg(long)]
    pub upgrade: bool,
    /// The Python to make environments with [default: the first on PATH that the version runs on]
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<PathBuf>,
}

/// `ansible list`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog ansible list --dir /srv/ci",
    "  gatelog ansible list --dir /srv/ci --json      also every package with its version and digest"
))]
pub struct AnsibleListArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `ansible validate`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog ansible validate --dir /srv/ci         what is installed; exit code 1 if something is missing",
    "  gatelog ansible validate 9 11 --dir /srv/ci    these must be there",
    "  gatelog ansible validate --json                run it after an upgrade of Python"
))]
pub struct AnsibleValidateArgs {
    /// Which versions [default: those that are installed]
    #[arg(value_name = "VERSION")]
    pub versions: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
