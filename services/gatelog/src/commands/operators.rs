//! Commands of operators: each asks the site's server, which puts the request onto the log in its sender's name.

use std::path::Path;
use std::process::ExitCode;

use gatelog_web::auth::create_token;
use serde_json::{Value as Json, json};

use super::encrypt::{escaped, read};
use super::failure::{Code, Failure};
use super::output::Output;
use super::site::Target;
use crate::auth::{local_token, shared_secret};
use crate::cli::SiteArgs;
use crate::cli::operators::{
    ChangeArgs, CreateAuthTokenArgs, DequeueArgs, EnqueueArgs, OperatorArgs, PromoteArgs, TokenFileArgs,
};
use crate::client::{Client, ClientError};
use crate::config::AuthDriver;

/// The environment's token.
const TOKEN: &str = "GATELOG_AUTH_TOKEN";

/// Asks for a change or a ref to be enqueued.
pub fn enqueue(site: &SiteArgs, args: &EnqueueArgs) -> Result<ExitCode, Failure> {
    let mut body = body_of(&args.what, &args.asking);
    for (name, value) in [("oldrev", &args.oldrev), ("newrev", &args.newrev)] {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
    let mut parameters = serde_json::Map::new();
    for (name, value) in &args.parameters {
        match parameters.get_mut(name) {
            None => drop(parameters.insert(name.clone(), json!(value))),
            Some(Json::Array(all)) => all.push(json!(value)),
            Some(one) => *one = json!([one.take(), value]),
        }
    }
    if !parameters.is_empty() {
        body["parameters"] = Json::Object(parameters);
    }
    of_project(site, &args.what, &args.asking, "enqueue", &body, "was enqueued in")
}

/// Asks for a change or a ref to be dequeued.
pub fn dequeue(site: &SiteArgs, args: &DequeueArgs) -> Result<ExitCode, Failure> {
    let body = body_of(&args.what, &args.asking);
    of_project(site, &args.what, &args.asking, "dequeue", &body, "was taken out of")
}

fn body_of(what: &ChangeArgs, asking: &OperatorArgs) -> Json {
    json!({ "pipeline": what.pipeline, "change": what.change, "ref": what.reference, "reason": asking.reason })
}

fn of_project(
    site: &SiteArgs,
    what: &ChangeArgs,
    asking: &OperatorArgs,
    verb: &str,
    body: &Json,
    done: &str,
) -> Result<ExitCode, Failure> {
    let name = what.change.as_deref().or(what.reference.as_deref()).unwrap_or_default();
    let told = format!("{name} of {} {done} {}", what.project, what.pipeline);
    ask(site, asking, &format!("project/{}/{verb}", escaped(&what.project)), body, &told)
}

/// Asks for changes to go first.
pub fn promote(site: &SiteArgs, args: &PromoteArgs) -> Result<ExitCode, Failure> {
    let named = |change: &String| match &args.project {
        Some(project) => json!({ "project": project, "change": change }),
        None => json!(change),
    };
    let changes: Vec<Json> = args.changes.iter().map(named).collect();
    let body = json!({ "pipeline": args.pipeline, "changes": changes, "reason": args.asking.reason });
    let told = format!("{} of {} first now", if changes.len() == 1 { "is" } else { "are" }, args.pipeline);
    ask(site, &args.asking, "promote", &body, &format!("{} {told}", args.changes.join(", ")))
}

/// What becomes of a tenant's outside events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intake {
    /// They wait.
    Pause,
    /// They are dropped.
    Discard,
    /// They are dealt with.
    Resume,
}

/// Asks for outside events to wait, to be dropped or to be dealt with.
pub fn intake(site: &SiteArgs, asking: &OperatorArgs, what: Intake) -> Result<ExitCode, Failure> {
    let body = json!({
        "trigger_queue_paused": what == Intake::Pause,
        "trigger_queue_discarding": what == Intake::Discard,
        "reason": asking.reason,
    });
    let told = match what {
        Intake::Pause => "outside events wait from now on",
        Intake::Discard => "outside events are dropped from now on",
        Intake::Resume => "outside events are dealt with again",
    };
    ask(site, asking, "state", &body, told)
}

fn ask(site: &SiteArgs, asking: &OperatorArgs, path: &str, body: &Json, told: &str) -> Result<ExitCode, Failure> {
    let client = client(site, &asking.token)?;
    let tenant = tenant(&client, asking.tenant.as_deref())?;
    let answer = client.post(&format!("/api/tenant/{}/{path}", escaped(&tenant)), body);
    let position = answer.map_err(|error| explained(error, site))?.position;
    let mut out = Output::new();
    let at = position.map(|position| format!(" ({position})")).unwrap_or_default();
    let _ = out.line(&format!("{tenant}: {told}{at}"))?;
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// What a server says, with what may help.
pub(super) fn explained(error: ClientError, site: &SiteArgs) -> Failure {
    let no_paths =
        matches!(&error, ClientError::Refused { status: 404, message, .. } if message.contains("at this path"));
    let no_token = matches!(&error, ClientError::Refused { status: 401, .. });
    let failure = Failure::from(error);
    if no_paths && site.url.is_some() {
        return failure
            .hint("that server knows no operators: add [auth.NAME] to its gatelog.toml, or name its --dir there");
    }
    if no_token {
        return failure.hint(format!("set {TOKEN}, or name a file with --auth-token-file"));
    }
    failure
}

/// The tenant that is meant.
pub(super) fn tenant(client: &Client, named: Option<&str>) -> Result<String, Failure> {
    if let Some(tenant) = named {
        return Ok(tenant.to_owned());
    }
    let all = client.get("/api/tenants")?;
    let names: Vec<&str> =
        all.as_array().map(Vec::as_slice).unwrap_or_default().iter().filter_map(|one| one["name"].as_str()).collect();
    match names.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => Err(Failure::new(Code::NotFound, "the site has no tenant yet")),
        several => Err(Failure::new(Code::Usage, "which tenant? The site has several")
            .detail(several.join(", "))
            .hint("name one with --tenant")),
    }
}

/// Who is asked, and in whose name.
pub(super) fn client(site: &SiteArgs, token: &TokenFileArgs) -> Result<Client, Failure> {
    let file = token.auth_token_file.as_deref();
    match site.target()? {
        Target::Url(client) => with_given_token(client, file),
        Target::Dir(site) => {
            let client = site.server().ok_or_else(|| {
                let what = format!("no server with the role web runs the site in {}", site.dir().display());
                Failure::new(Code::Unavailable, what)
                    .hint("start it with `gatelog serve`, or name a running one with --url")
            })?;
            if file.is_none()
                && !client.has_token()
                && let Err(message) = local_token(site.dir())
            {
                return Err(Failure::new(Code::NotAllowed, "this user may not operate the site from its directory")
                    .detail(message)
                    .hint(format!("run this as the user the server runs as, or set {TOKEN}")));
            }
            with_given_token(client, file)
        }
    }
}

/// The same client with the token of a file, or of the environment, where there is one.
pub fn with_given_token(client: Client, file: Option<&Path>) -> Result<Client, Failure> {
    let given = match file {
        Some(path) => Some(read(path, std::fs::File::open(path))?),
        None => std::env::var(TOKEN).ok(),
    };
    let given = given.map(|token| token.trim().trim_start_matches("Bearer ").trim().to_owned());
    Ok(match given.filter(|token| !token.is_empty()) {
        Some(token) => client.with_token(token),
        None => client,
    })
}

/// Makes a token. Zuul: `zuul-admin create-auth-token`.
pub fn create_auth_token(site: &SiteArgs, args: &CreateAuthTokenArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("create-auth-token")?;
    let config = site.config()?.map(|config| config.auth).unwrap_or_default();
    let name = &args.auth_config;
    let known = config.get(name).ok_or_else(|| {
        let failure = Failure::new(Code::NotFound, format!("gatelog.toml has no [auth.{name}]"));
        if config.is_empty() {
            return failure.hint("add one with driver = \"HS256\"");
        }
        failure.hint(format!("it has: {}", config.keys().cloned().collect::<Vec<_>>().join(", ")))
    })?;
    if known.driver != AuthDriver::HS256 {
        return Err(Failure::new(Code::Usage, format!("[auth.{name}] checks tokens that its issuer makes"))
            .hint("only tokens of an authenticator with driver = \"HS256\" can be made here"));
    }
    let key = shared_secret(site.dir(), name, known).map_err(|message| Failure::new(Code::No, message))?;
    let now = crate::clock::now().0.div_euclid(1_000_000);
    let mut claims = json!({
        "iat": now, "exp": now + i64::from(args.expires_in), "iss": known.issuer_id, "aud": known.audience(),
        "sub": args.user, "zuul": { "admin": args.tenant },
    });
    if known.uid_claim != "sub" {
        claims[&known.uid_claim] = json!(args.user);
    }
    if known.max_validity_time.is_some_and(|most| most < u64::from(args.expires_in)) {
        tracing::warn!("max-validity-time of [auth.{name}] ends the token sooner");
    }
    let token = create_token(&key, &claims).map_err(|error| Failure::new(Code::No, error.to_string()))?;
    let mut out = Output::new();
    let _ = out.line(&token)?;
    let _ = out.flush()?;
    if !args.tenant.is_empty() && !known.allow_authz_override {
        let what = "the token names tenants, and its authenticator has no allow-authz-override: rules of the tenant file decide";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("note: {what}\n").as_bytes());
    }
    Ok(ExitCode::SUCCESS)
}

/// The same client in the name of this Unix user, where that may read the site's directory as its server does.
pub fn in_own_name(dir: &Path, client: Client) -> Client {
    match local_token(dir) {
        Ok(token) => client.with_token(token),
        Err(_) => client,
    }
}
