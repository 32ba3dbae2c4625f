//! The role `web`: API and page, over this process's own folds.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use gatelog_effects::connection::chain;
use gatelog_executing::Executor;
use gatelog_record::Timestamp;
use gatelog_web::ComponentState;
use gatelog_writer::Published;

use super::{Process, Role};
use crate::consoles::{self, SiteConsoles};
use crate::job_logs::{SiteLogs, WorkerLogs};
use crate::presence::{Component, SILENT_AFTER, Signer, State};
use crate::server::{StartError, part};

/// How the API is told to end.
pub type Ending = tokio::sync::oneshot::Sender<()>;

/// Serves HTTP until it is told to end.
pub fn serve(process: &Process, listener: TcpListener, router: axum::Router) -> Result<Ending, StartError> {
    listener.set_nonblocking(true).map_err(part("API"))?;
    let listener = {
        let _in_runtime = process.runtime.enter();
        tokio::net::TcpListener::from_std(listener).map_err(part("API"))?
    };
    let (ending, ended) = tokio::sync::oneshot::channel::<()>();
    let shutdown = async move {
        // Told to end, or the process is gone.
        let _ = ended.await;
    };
    process.runtime.spawn(async move {
        if let Err(error) = gatelog_web::serve(listener, router, shutdown).await {
            tracing::error!(error = %chain(&error), "serving HTTP ended");
        }
    });
    Ok(ending)
}

/// Starts API and page. `writers` are those of this process.
pub fn start(
    process: &Process,
    listener: TcpListener,
    executor: Option<Executor>,
    writers: Vec<Arc<Published>>,
) -> Result<Vec<Ending>, StartError> {
    let local_logs = executor.clone().map(|executor| WorkerLogs { executor, store: process.job_logs.clone() });
    let consoles = Arc::new(SiteConsoles {
        local: executor,
        gate: process.gate.projection.clone(),
        capacity: process.capacity.projection.clone(),
        signer: Arc::clone(&process.signer),
        http: consoles::client().map_err(part("consoles"))?,
        probing: process.probing.clone(),
        store: process.job_logs.clone(),
    });
    let rules = process.config.job_logs.rules();
    let job_logs = Arc::new(SiteLogs { consoles: Arc::clone(&consoles), local: local_logs, rules });
    let local = crate::auth::leave_key(&process.site)?;
    let authenticators = crate::auth::authenticators(&process.site, &process.config, local)?;
    let site = crate::web::site(process, consoles, job_logs, writers, authenticators);
    let finger = process.config.web.finger.map(|address| finger(process, address, site.clone())).transpose()?;
    Ok([serve(process, listener, gatelog_web::router(site))?].into_iter().chain(finger).collect())
}

/// Answers finger requests until it is told to end.
fn finger(process: &Process, address: SocketAddr, site: gatelog_web::Site) -> Result<Ending, StartError> {
    let listener = TcpListener::bind(address).map_err(|error| StartError::Part {
        part: "finger",
        message: format!("cannot listen on {address}: {error}; name another address in [web] finger"),
    })?;
    listener.set_nonblocking(true).map_err(part("finger"))?;
    let listener = {
        let _in_runtime = process.runtime.enter();
        tokio::net::TcpListener::from_std(listener).map_err(part("finger"))?
    };
    let (ending, ended) = tokio::sync::oneshot::channel::<()>();
    process.runtime.spawn(gatelog_web::serve_finger(listener, site, async move {
        let _ = ended.await;
    }));
    Ok(ending)
}

/// Whether this process is about to end, and why.
pub fn leaving(signer: &Signer) -> Option<String> {
    let own = signer.own();
    match own.state {
        State::Stopped => Some("it stops".to_owned()),
        _ if own.draining => Some("it drains, and stops once its builds have ended".to_owned()),
        State::Initializing | State::Running => None,
    }
}

/// Who is there, as the API tells it.
pub fn components(signer: &Signer) -> Vec<gatelog_web::Component> {
    let told = |(component, age): (Component, Duration)| gatelog_web::Component {
        roles: component.roles.iter().map(|role| role.name().to_owned()).collect(),
        state: match component.state {
            _ if age >= SILENT_AFTER => ComponentState::Stopped,
            State::Initializing => ComponentState::Initializing,
            State::Running if component.draining => ComponentState::Draining,
            State::Running => ComponentState::Running,
            State::Stopped => ComponentState::Stopped,
        },
        paused: component.paused.iter().map(|role| role.name().to_owned()).collect(),
        level: component.level,
        zone: component.zone,
        held: component.held.into_iter().map(|held| (held.code, held.detail)).collect(),
        silent: age >= SILENT_AFTER,
        name: component.name,
        version: component.version,
        started_at: Timestamp(component.started_at),
        last_sign: age,
    };
    signer.last_seen().into_iter().map(told).collect()
}

/// How the roles are that a site needs and nobody here has.
pub fn elsewhere(signer: &Signer, needed: &[Role]) -> Vec<gatelog_web::PartHealth> {
    let seen = signer.last_seen();
    needed
        .iter()
        .map(|role| {
            let mut there: Vec<(String, Duration)> = seen
                .iter()
                .filter(|(component, _)| component.roles.contains(role))
                .map(|(component, age)| (component.name.clone(), *age))
                .collect();
            there.sort_by_key(|(_, age)| *age);
            let (well, state, detail) = match there.first() {
                Some((_, age)) if *age < SILENT_AFTER => {
                    if let Some(paused) = all_paused(&seen, *role) {
                        return paused;
                    }
                    let alive: Vec<&str> =
                        there.iter().filter(|(_, age)| *age < SILENT_AFTER).map(|(name, _)| name.as_str()).collect();
                    (true, "present", alive.join(", "))
                }
                Some((name, age)) => {
                    (false, "silent", format!("{name} has given no sign for {} s; see whether it runs", age.as_secs()))
                }
                None => (
                    false,
                    "missing",
                    format!("no process has this role; start one with `gatelog serve --role {role}`"),
                ),
            };
            gatelog_web::PartHealth { part: format!("role {role}"), well, state: state.to_owned(), detail }
        })
        .collect()
}

/// Which of this process's own roles nobody does now, since all who have them are paused.
pub fn paused(signer: &Signer, own: &[Role]) -> Vec<gatelog_web::PartHealth> {
    let seen = signer.last_seen();
    own.iter().filter_map(|role| all_paused(&seen, *role)).collect()
}

/// Which executors take no builds because their hosts have too little. A load that passes is no trouble.
pub fn governed(signer: &Signer) -> Vec<gatelog_web::PartHealth> {
    let seen = signer.last_seen();
    let executors = seen
        .iter()
        .filter(|(one, age)| *age < SILENT_AFTER && one.roles.contains(&Role::Executor) && !one.held.is_empty());
    executors
        .map(|(one, _)| {
            let told: Vec<String> = one.held.iter().map(|held| format!("{}: {}", held.code, held.detail)).collect();
            let well = one.held.iter().all(|held| held.passing);
            gatelog_web::PartHealth {
                part: format!("executor {}", one.name),
                well,
                state: if well { "busy" } else { "yellow" }.to_owned(),
                detail: format!("takes no builds: {}", told.join("; ")),
            }
        })
        .collect()
}

fn all_paused(seen: &[(Component, Duration)], role: Role) -> Option<gatelog_web::PartHealth> {
    let mut there = seen
        .iter()
        .filter(|(one, age)| *age < SILENT_AFTER && one.roles.contains(&role))
        .map(|(one, _)| one)
        .peekable();
    let _ = there.peek()?;
    let mut names = Vec::new();
    for one in there {
        if !one.paused.contains(&role) {
            return None;
        }
        names.push(one.name.as_str());
    }
    let detail = format!("every {role} is paused ({}); `gatelog {role} resume NAME` ends that", names.join(", "));
    Some(gatelog_web::PartHealth { part: format!("role {role}"), well: false, state: "paused".to_owned(), detail })
}

#[cfg(test)]
mod tests {
    use gatelog_event_log::MemoryPresence;

    use super::*;

    #[test]
    fn roles_elsewhere_are_present_silent_or_missing() {
        let clock = Arc::new(std::sync::Mutex::new(Duration::ZERO));
        let time = Arc::clone(&clock);
        let presence = Arc::new(MemoryPresence::new(move || *time.lock().unwrap()));
        let component = |name: &str, role| Component::that_runs(name, "i", &[role]);
        let far = Signer::new(Arc::clone(&presence) as _, component("far", Role::Launcher));
        let here = Signer::new(Arc::clone(&presence) as _, component("here", Role::Web));
        assert!(far.sign());
        *clock.lock().unwrap() = Duration::from_secs(31);
        assert!(here.sign());
        let told = elsewhere(&here, &[Role::Web, Role::Launcher, Role::Merger]);
        let words: Vec<(&str, bool, &str)> =
            told.iter().map(|one| (one.part.as_str(), one.well, one.state.as_str())).collect();
        assert_eq!(
            words,
            [("role web", true, "present"), ("role launcher", false, "silent"), ("role merger", false, "missing")]
        );
    }

    #[test]
    fn an_executor_that_is_governed_is_no_trouble_only_where_that_passes_by_itself() {
        let presence = Arc::new(MemoryPresence::new(|| Duration::ZERO));
        let held = |code: &str, passing| crate::governors::Held { code: code.into(), detail: "why".into(), passing };
        let high = vec![held("executor-load-high", true)];
        let component = Component { held: high, ..Component::that_runs("one", "i", &[Role::Executor]) };
        let signer = Signer::new(presence as _, component);
        let told = |signer: &Signer| {
            assert!(signer.sign());
            governed(signer).into_iter().map(|one| (one.part, one.well, one.state, one.detail)).collect::<Vec<_>>()
        };
        let busy = "takes no builds: executor-load-high: why".to_owned();
        assert_eq!(told(&signer), [("executor one".into(), true, "busy".into(), busy)]);
        signer.change(|own| own.held.push(held("executor-disk-low", false)));
        assert!(told(&signer).iter().all(|(_, well, state, _)| !well && state == "yellow"));
        assert_eq!(components(&signer)[0].held.len(), 2);
        signer.change(|own| own.held.clear());
        assert_eq!(told(&signer), []);
    }

    #[test]
    fn components_are_as_they_say_unless_they_are_silent() {
        let clock = Arc::new(std::sync::Mutex::new(Duration::ZERO));
        let time = Arc::clone(&clock);
        let presence = Arc::new(MemoryPresence::new(move || *time.lock().unwrap()));
        let component = |name: &str, roles: &[Role], state| Component {
            name: name.into(),
            incarnation: "i".into(),
            roles: roles.to_vec(),
            state,
            address: None,
            web: None,
            version: "1.2".into(),
            level: 3,
            draining: false,
            paused: vec![Role::Merger],
            slots: 0,
            held: Vec::new(),
            zone: None,
            allow_unzoned: true,
            started_at: 7,
        };
        let signer = |component| Signer::new(Arc::clone(&presence) as _, component);
        let far = signer(component("far", &[Role::Launcher, Role::Merger], State::Running));
        let here = signer(component("here", &[Role::Web], State::Initializing));
        assert!(far.sign() && here.sign());
        let told = |of: &str| components(&here).into_iter().find(|one| one.name == of).unwrap();
        assert_eq!(told("far").state, ComponentState::Running);
        assert_eq!(told("far").roles, ["launcher", "merger"]);
        assert_eq!((told("far").version.as_str(), told("far").started_at), ("1.2", Timestamp(7)));
        assert_eq!((told("far").level, told("far").paused.join(" "), told("far").silent), (3, "merger".into(), false));
        assert_eq!(told("here").state, ComponentState::Initializing);
        here.is(State::Running);
        here.change(|own| own.draining = true);
        assert!(here.sign());
        assert_eq!(told("here").state, ComponentState::Draining);
        assert!(leaving(&here).is_some_and(|why| why.contains("drains")) && leaving(&far).is_none());
        here.change(|own| own.draining = false);
        *clock.lock().unwrap() = Duration::from_secs(31);
        assert!(here.sign());
        assert_eq!(told("here").state, ComponentState::Running);
        assert_eq!((told("far").state, told("far").last_sign), (ComponentState::Stopped, Duration::from_secs(31)));
        assert!(told("far").silent && !told("here").silent);
        here.is(State::Stopped);
        here.is(State::Running);
        assert!(here.sign());
        assert_eq!(told("here").state, ComponentState::Stopped, "what ends does not begin anew");
        assert_eq!(leaving(&here).as_deref(), Some("it stops"));
    }
}
