//! What a build is given that others must not have: secrets, tokens, SSH keys.

use std::collections::BTreeMap;

use gatelog_executing::spec::SshIdentity;
use gatelog_record::draft::gate::Given;
use gatelog_secrets::{KeyOwner, SshOwner};

use crate::connection::chain;
use crate::secrets::{self, FrozenSecret, Opened, SecretRefused};
use crate::spec::JobSpec;
use crate::tokens::{self, Token, TokenBuild};
use crate::worker::{Failed, Held, Worker};

/// Secrets of a job's playbooks, by their names in the layout.
#[derive(Default)]
pub(crate) struct Secrets {
    /// In clear, and what of them was encrypted. From here they go into the build that was given them, and nowhere else.
    pub(crate) opened: BTreeMap<String, Opened>,
    /// What will be in tokens: they are issued when a playbook begins.
    pub(crate) tokens: BTreeMap<String, Token>,
    /// What the log is told of.
    pub(crate) given: Vec<Given>,
}

impl Worker {
    /// The secrets of a job's playbooks.
    pub(crate) fn open_secrets(&self, lease: &Held, spec: &JobSpec) -> Result<Secrets, Failed> {
        let mut all = Secrets::default();
        let failed =
            |refused: SecretRefused| Failed { again: refused.again(), message: chain(&refused), no_node: false };
        secrets::bounded(&spec.secrets).map_err(failed)?;
        for used in spec.job.playbooks.iter().flat_map(|playbook| &playbook.secrets) {
            let name = &used.secret;
            if all.opened.contains_key(name) || all.tokens.contains_key(name) {
                continue;
            }
            // A playbook without a secret it counts on would do who knows what.
            let missing = || Failed::lasting(format!("the layout the job was frozen with has no secret {name:?}"));
            let frozen = spec.secrets.get(name).ok_or_else(missing)?;
            if frozen.is_token() {
                all.tokens.insert(name.clone(), self.token(lease, spec, name, frozen)?);
            } else {
                all.opened.insert(name.clone(), secrets::open(&self.keyring, name, frozen).map_err(failed)?);
            }
            let (connection, project) = (frozen.connection.clone(), frozen.project.clone());
            all.given.push(Given::Secret { name: name.clone(), connection, project });
        }
        Ok(all)
    }

    /// What will be in the tokens of a secret. That there is a key to sign them is seen to now: to make one takes seconds,
    /// which a playbook need not wait for.
    fn token(&self, lease: &Held, spec: &JobSpec, name: &str, frozen: &FrozenSecret) -> Result<Token, Failed> {
        let connection = self.repositories.connections.review(&frozen.connection);
        let connection = connection.map_err(|trouble| Failed::lasting(trouble.to_string()))?;
        let build = TokenBuild {
            build: lease.build.to_string(),
            job: spec.job.name.clone(),
            pipeline: spec.pipeline.clone(),
            tenant: spec.tenant.clone(),
        };
        let (host, issuer) = (connection.canonical_hostname(), self.tokens.issuer.as_deref());
        let token = Token::of(name, frozen, host, &build, issuer);
        let token = token.map_err(|refused| Failed::lasting(chain(&refused)))?;
        let clock = tokens::clock((self.now)(), self.tokens.rotate_every);
        let there = self.keyring.token_key_set(clock).map(drop);
        there.map_err(|error| Failed::again(format!("the keys of tokens cannot be had: {}", chain(&error))))?;
        Ok(token)
    }

    /// The SSH keys of a build. Zuul: the tenant's always, the project's only in pipelines that run reviewed code. A key
    /// that nobody ever asked for is not made: nobody can have let it in anywhere.
    pub(crate) fn ssh_keys(
        &self,
        lease: &Held,
        spec: &JobSpec,
        given: &mut Vec<Given>,
    ) -> Result<Vec<SshIdentity>, Failed> {
        // In the order in which ssh offers them: the project's before the tenant's.
        let mut owners = Vec::new();
        if let Some(project) = spec.project.as_ref().filter(|_| spec.post_review) {
            let owner = SshOwner::Project(KeyOwner::new(&project.connection, &project.name));
            let (connection, project) = (project.connection.clone(), project.name.clone());
            owners.push((owner, Given::ProjectSshKey { connection, project }));
        }
        owners.push((SshOwner::Tenant(lease.tenant.clone()), Given::TenantSshKey));
        let mut keys = Vec::new();
        for (owner, what) in owners {
            let told = |error| Failed::again(format!("the SSH key of {owner} cannot be had: {}", chain(&error)));
            let Some(key) = self.keyring.known_ssh_key(&owner).map_err(told)? else { continue };
            let message = key.agent_message(&format!("gatelog {owner}")).map_err(told)?;
            keys.push(SshIdentity::new(&message));
            given.push(what);
        }
        Ok(keys)
    }
}
