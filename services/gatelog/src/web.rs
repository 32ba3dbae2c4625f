//! The API's view of this process.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use gatelog_calendar::Calendar;
use gatelog_effects::connection::chain;
use gatelog_room::{Lack, Trouble};
use gatelog_secrets::{KeyOwner, SshOwner};
use gatelog_store::{Layout as StoreLayout, RungDir};
use gatelog_web::auth::Authenticators;
use gatelog_web::{Consoles, JobLogs, PartHealth, PublicKey, Site, TimelinePast};
use gatelog_writer::{Published, WriterState};

use crate::config::SiteConfig;
use crate::operators::SiteOperators;
use crate::roles::{Process, Role, web};
use crate::what_ifs::SiteWhatIfs;

/// The site as the API reads it. `writers` are those of this process.
pub fn site(
    process: &Process,
    consoles: Arc<dyn Consoles>,
    job_logs: Arc<dyn JobLogs>,
    writers: Vec<Arc<Published>>,
    authenticators: Authenticators,
) -> Site {
    let rungs = |partition| Some(RungDir::new(StoreLayout::new(&process.paths.projections(), partition).rungs()));
    let past = TimelinePast::new(Arc::clone(&process.log), &process.domains.partitions(), rungs);
    let (signer, needed) = (Arc::clone(&process.signer), process.roles.missing());
    let own: Vec<Role> = process.roles.iter().collect();
    let (refusing, keeping) = (Arc::clone(&process.refusing), Arc::clone(&process.keeping));
    let room = Arc::clone(&process.room);
    let troubles = Arc::clone(&process.troubles);
    let steady = Arc::clone(&process.steady);
    let health = move || {
        let mut parts: Vec<PartHealth> = writers.iter().map(|writer| health(writer)).collect();
        // A writer only knows when it has something to append: what comes from outside is refused before that.
        if let Some(detail) = refusing().or_else(|| signer.cut_off()) {
            parts.push(PartHealth { part: "log".to_owned(), well: false, state: "yellow".to_owned(), detail });
        }
        parts.extend(steady.health());
        if let Some(detail) = keeping.trouble() {
            parts.push(PartHealth { part: "blobs".to_owned(), well: false, state: "yellow".to_owned(), detail });
        }
        parts.extend(troubles.parts());
        parts.extend(web::elsewhere(&signer, &needed));
        parts.extend(web::paused(&signer, &own));
        parts.extend(web::governed(&signer));
        parts.iter_mut().filter(|part| !part.well).for_each(|part| part.detail = Lack::named(&part.detail));
        // Beside what cannot be written at all, what waits for it is only a consequence; it is told all the same.
        let told = |trouble: Trouble| {
            let (part, state) = ("room".to_owned(), "yellow".to_owned());
            PartHealth { part, well: false, state, detail: trouble.detail }
        };
        parts.extend(room.troubles().into_iter().map(told));
        parts
    };
    let (present, leaving) = (Arc::clone(&process.signer), Arc::clone(&process.signer));
    let (keyring, rotate_every) = (Arc::clone(&process.keyring), process.config.oidc.rotate_every());
    let public = move |key: &PublicKey| {
        let text = match key {
            PublicKey::Secrets { connection, project } => {
                keyring.project_key(&KeyOwner::new(connection, project)).map(|key| key.public_pem().to_owned())
            }
            PublicKey::ProjectSsh { connection, project } => {
                let owner = SshOwner::Project(KeyOwner::new(connection, project));
                keyring.ssh_key(&owner).map(|key| key.public_line() + "\n")
            }
            PublicKey::Tokens => {
                let clock = gatelog_effects::tokens::clock(crate::clock::now(), rotate_every);
                keyring.token_key_set(clock).map(|keys| keys.to_string())
            }
            PublicKey::TenantSsh { tenant } => {
                keyring.ssh_key(&SshOwner::Tenant(tenant.clone())).map(|key| key.public_line() + "\n")
            }
        };
        text.map_err(|error| chain(&error))
    };
    Site {
        gate: process.gate.projection.clone(),
        gate_fold: process.gate.published.clone(),
        capacity: process.capacity.projection.clone(),
        capacity_fold: process.capacity.published.clone(),
        blobs: Arc::clone(&process.blobs),
        folds: Arc::clone(&process.folds),
        past: Arc::new(past),
        consoles,
        job_logs,
        health: Arc::new(health),
        leaving: Arc::new(move || web::leaving(&leaving)),
        components: Arc::new(move || web::components(&present)),
        keys: Arc::new(public),
        issuer: process.config.web.root.as_deref().map(gatelog_effects::tokens::issuer),
        authenticators: Arc::new(authenticators),
        what_ifs: Arc::new(SiteWhatIfs {
            site: process.site.clone(),
            log: Arc::clone(&process.log),
            local: process.config.log.kafka.is_none(),
            sandbox: OnceLock::new(),
        }),
        operators: Arc::new(SiteOperators { log: Arc::clone(&process.log), keyring: Arc::clone(&process.keyring) }),
        // Checked as the settings were read.
        calendar: process.config.scheduler.calendar().unwrap_or_else(|_| Calendar::local()),
        drivers: drivers(&process.config),
        streams: usize::try_from(process.config.web.streams.get()).unwrap_or(usize::MAX),
        websocket_url: process.config.web.websocket_url.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// What the drivers of connections are called.
fn drivers(config: &SiteConfig) -> BTreeMap<String, String> {
    config.connection.iter().map(|(name, one)| (name.clone(), one.driver.schema.name.to_owned())).collect()
}

fn health(writer: &Published) -> PartHealth {
    let health = writer.health();
    let (well, state, detail) = match &health.state {
        WriterState::Starting { after: None } => (true, "starting", String::new()),
        // It fell over and tries again: that is nothing to be calm about.
        WriterState::Starting { after: Some(error) } => (false, "yellow", error.clone()),
        WriterState::Running => (true, "running", String::new()),
        WriterState::Yellow { reasons } => {
            let texts: Vec<String> =
                reasons.iter().map(|reason| format!("{}: {}", reason.code, reason.message)).collect();
            (false, "yellow", texts.join("; "))
        }
        WriterState::Stopped { error, fenced } => {
            let why = if *fenced { "another server has taken over" } else { "it was asked to stop" };
            (false, "stopped", error.clone().unwrap_or_else(|| why.to_owned()))
        }
    };
    PartHealth { part: format!("writer {}", health.partition), well, state: state.to_owned(), detail }
}
