//! The key pairs of projects and tenants.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What can be done with the key pairs of projects and tenants.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Take over a project's key that was made elsewhere, such as by Zuul
    Import(KeysImportArgs),
    /// Print the public half of a project's key; it is made if there is none
    Show(KeysShowArgs),
    /// Take over all keys of a Zuul at once: what its `export-keys` wrote
    ImportAll(KeysImportAllArgs),
    /// Take over a directory of projects' keys, CONNECTION/PROJECT.pem
    ImportDir(KeysImportDirArgs),
    /// Write all keys of projects and tenants into a file that Zuul's `import-keys` takes
    Export(KeysExportArgs),
    /// List the key pairs there are, former ones included
    List(KeysListArgs),
    /// Give a project a new key for secrets; the former one still deciphers
    Rotate(KeysRotateArgs),
    /// Delete former keys of a project: what is encrypted for them cannot be deciphered any more
    Retire(KeysRetireArgs),
    /// Give a project the keys of another, such as one that was renamed
    Copy(KeysCopyArgs),
    /// Delete a project's keys: its secrets cannot be deciphered any more
    Delete(KeysDeleteArgs),
    /// Replace the keys that tokens of jobs are signed with, such as after one was stolen
    ReplaceTokenKeys(KeysReplaceTokenKeysArgs),
    /// Take over a tenant's SSH key that was made elsewhere, such as by Zuul
    ImportTenant(KeysImportTenantArgs),
    /// Print the public half of a tenant's SSH key; it is made if there is none
    ShowTenant(KeysShowTenantArgs),
}

/// `keys import`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog keys import --dir /srv/ci gerrit org/app app.pem",
    "  gatelog keys import --dir /srv/ci --ssh gerrit org/app app-ssh.pem",
    "  openssl pkey -in exported.pem -out app.pem      takes a password away first; import-all needs no such step"
))]
pub struct KeysImportArgs {
    /// The project's connection
    #[arg(value_name = "CONNECTION")]
    pub connection: String,
    /// The project's name on that connection
    #[arg(value_name = "PROJECT")]
    pub project: String,
    /// An RSA private key in PEM (PKCS#8 or PKCS#1), without a password
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// In place of the key there is: what was encrypted for that cannot be deciphered any more
    #[arg(long)]
    pub replace: bool,
    /// The project's SSH key, rather than the one for secrets
    #[arg(long)]
    pub ssh: bool,
    /// Why, for the history: the tenants that have the project are configured anew with the key
    #[arg(long, value_name = "TEXT", conflicts_with = "ssh")]
    pub reason: Option<String>,
}

/// `keys show`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog keys show --dir /srv/ci gerrit org/app > app.pub",
    "  gatelog keys show --dir /srv/ci --ssh gerrit org/app >> ~/.ssh/authorized_keys"
))]
pub struct KeysShowArgs {
    /// The project's connection
    #[arg(value_name = "CONNECTION")]
    pub connection: String,
    /// The project's name on that connection
    #[arg(value_name = "PROJECT")]
    pub project: String,
    /// The project's SSH key, as a line of authorized_keys, rather than the one for secrets
    #[arg(long)]
    pub ssh: bool,
}

/// How keys of many projects are taken over.
#[derive(Clone, Debug, Args)]
pub struct TakingArgs {
    /// In place of keys there are: what was encrypted for those cannot be deciphered any more
    #[arg(long)]
    pub replace: bool,
    /// Why, for the history: the tenants that have the projects are configured anew with the keys
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// `keys import-all`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog keys import-all --dir /srv/ci zuul-keys.json --password-file keystore-password",
    "      after, on a host of Zuul's: zuul-admin export-keys zuul-keys.json",
    "exit code 0: all keys are there; 1: some are not, as told"
))]
pub struct KeysImportAllArgs {
    /// What Zuul's `export-keys` or `gatelog keys export` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// A file whose first line is the password of Zuul's keystore; `-`: standard input
    #[arg(long, value_name = "FILE")]
    pub password_file: PathBuf,
    /// What becomes of keys there are, and why
    #[command(flatten)]
    pub taking: TakingArgs,
}

/// `keys import-dir`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog keys import-dir --dir /srv/ci /var/lib/zuul/keys        gerrit/org/app.pem is the key of org/app on gerrit",
    "exit code 0: all keys are there; 1: some are not, as told"
))]
pub struct KeysImportDirArgs {
    /// A directory with RSA private keys in PEM (PKCS#8 or PKCS#1), as CONNECTION/PROJECT.pem
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
    /// What becomes of keys there are, and why
    #[command(flatten)]
    pub taking: TakingArgs,
}

/// `keys export`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog keys export --dir /srv/ci keys.json --password-file keystore-password",
    "  zuul-admin import-keys keys.json      on a host of Zuul's whose [keystore] has this password"
))]
pub struct KeysExportArgs {
    /// The file to write; it must not be there
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// A file whose first line is the password that the keys are to be under; `-`: standard input
    #[arg(long, value_name = "FILE")]
    pub password_file: PathBuf,
}

/// `keys list`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!("  gatelog keys list --dir /srv/ci"))]
pub struct KeysListArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `keys rotate`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog keys rotate --dir /srv/ci gerrit org/app        encrypt the project's secrets anew, then:",
    "  gatelog keys retire --dir /srv/ci gerrit org/app --all"
))]
pub struct KeysRotateArgs {
    /// The project's connection
    #[arg(value_name = "CONNECTION")]
    pub connection: String,
    /// The project's name on that connection
    #[arg(value_name = "PROJECT")]
    pub project: String,
    /// Why, for the history: the tenants that have the project are configured anew
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// `keys retire`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog keys list --dir /srv/ci                                         shows fingerprints",
    "  gatelog keys retire --dir /srv/ci gerrit org/app 53f1d0c29e8a7b64",
    "  gatelog keys retire --dir /srv/ci gerrit org/app --all"
))]
pub struct KeysRetireArgs {
    /// The project's connection
    #[arg(value_name = "CONNECTION")]
    pub connection: String,
    /// The project's name on that connection
    #[arg(value_name = "PROJECT")]
    pub project: String,
    /// The former key to delete
    #[arg(value_name = "FINGERPRINT", required_unless_present = "all")]
    pub fingerprint: Option<String>,
    /// All former keys of the project
    #[arg(long, conflicts_with = "fingerprint")]
    pub all: bool,
    /// Why, for the history: the tenants that have the project are configured anew
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// `keys copy`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog keys copy --dir /srv/ci gerrit org/app gerrit org/renamed      before the project has its new name"
))]
pub struct KeysCopyArgs {
    /// The connection of the project whose keys are copied
    #[arg(value_name = "SOURCE_CONNECTION")]
    pub source_connection: String,
    /// That project's name
    #[arg(value_name = "SOURCE_PROJECT")]
    pub source_project: String,
    /// The connection of the project that gets them
    #[arg(value_name = "CONNECTION")]
    pub connection: String,
    /// That project's name
    #[arg(value_name = "PROJECT")]
    pub project: String,
    /// In place of the keys there are: what was encrypted for those cannot be deciphered any more
    #[arg(long)]
    pub replace: bool,
    /// Why, for the history: the tenants that have the project are configured anew with the keys
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// `keys delete`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog keys delete --dir /srv/ci gerrit org/gone --yes      its secrets, and access by its SSH key, are lost"
))]
pub struct KeysDeleteArgs {
    /// The project's connection; it may be one that the site has no more
    #[arg(value_name = "CONNECTION")]
    pub connection: String,
    /// The project's name on that connection
    #[arg(value_name = "PROJECT")]
    pub project: String,
    /// That what the keys open is to be lost, but for backups
    #[arg(long, required = true)]
    pub yes: bool,
    /// Why, for the history: the tenants that have the project are configured anew
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// `keys replace-token-keys`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!(
    "  gatelog keys replace-token-keys --dir /srv/ci --yes      no token that was signed so far can be verified any more"
))]
pub struct KeysReplaceTokenKeysArgs {
    /// That tokens of builds that run are to be refused from now on
    #[arg(long, required = true)]
    pub yes: bool,
}

/// `keys import-tenant`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!("  gatelog keys import-tenant --dir /srv/ci demo demo-ssh.pem"))]
pub struct KeysImportTenantArgs {
    /// The tenant
    #[arg(value_name = "TENANT")]
    pub tenant: String,
    /// An RSA private key in PEM (PKCS#8 or PKCS#1), without a password
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// In place of the key there is: who let that in does not let this one in
    #[arg(long)]
    pub replace: bool,
}

/// `keys show-tenant`
#[derive(Clone, Debug, Args)]
#[command(after_help = concat_examples!("  gatelog keys show-tenant --dir /srv/ci demo >> ~/.ssh/authorized_keys"))]
pub struct KeysShowTenantArgs {
    /// The tenant
    #[arg(value_name = "TENANT")]
    pub tenant: String,
}
