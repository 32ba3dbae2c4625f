//! `gatelog status`: the live queues, from a server or, when none runs, from the log.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde_json::{Value as Json, json};

use super::explain::moment;
use super::failure::{Code, Failure};
use super::output::Output;
use super::replay::{Seen, at_moment, path_segment};
use super::site::Target;
use super::waits;
use crate::cli::{At, SiteArgs, StatusArgs};
use crate::client::Client;
use crate::show::{self, Paint, Style, clean};

/// Runs it.
pub fn run(site: &SiteArgs, args: &StatusArgs) -> Result<ExitCode, Failure> {
    let tenant = args.tenant.as_deref();
    let seen = match site.target()? {
        Target::Url(client) => from_server(&client, tenant, args.at)?,
        Target::Dir(site) => match site.server() {
            Some(client) => match from_server(&client, tenant, args.at) {
                // It went away meanwhile: what it did stands on the log.
                Err(failure) if failure.code == Code::Unavailable => at_moment(&site, moment(args.at), tenant)?,
                other => other?,
            },
            None => {
                let mut seen = at_moment(&site, moment(args.at), tenant)?;
                seen.head.push_str("; no server runs here");
                seen
            }
        },
    };
    print(&seen, args.json)
}

/// What a server says of its tenants, now or at a moment.
pub fn from_server(client: &Client, tenant: Option<&str>, at: Option<At>) -> Result<Seen, Failure> {
    let query = at.map(|at| format!("?at={}", path_segment(&at.to_string()))).unwrap_or_default();
    let tenants = match tenant {
        Some(tenant) => vec![tenant.to_owned()],
        None => {
            let tenants = client.get(&format!("/api/tenants{query}"))?;
            let names = tenants.as_array().map(Vec::as_slice).unwrap_or_default().iter();
            names.filter_map(|tenant| tenant["name"].as_str().map(str::to_owned)).collect()
        }
    };
    let mut seen = Seen {
        head: client.base().to_owned(),
        now_ms: crate::clock::now().0 / 1_000,
        tenants: Vec::new(),
        waits: BTreeMap::new(),
    };
    for tenant in tenants {
        let answer = client.get(&format!("/api/tenant/{}/status{query}", path_segment(&tenant)));
        let document = answer.map_err(|error| {
            let failure = Failure::from(error);
            match failure.code {
                Code::NotFound => failure.hint(format!("{}/api/tenants lists the tenants there are", client.base())),
                _ => failure,
            }
        })?;
        if let Some(position) = document["position"].as_str() {
            seen.head = format!("{} as of {position}", client.base());
        }
        if at.is_some()
            && let Some(moment) = document["position_ms"].as_i64()
        {
            seen.now_ms = moment;
        }
        // An older server does not tell.
        if let Ok(waits) = client.get(&format!("/api/tenant/{}/waits{query}", path_segment(&tenant))) {
            seen.waits.insert(tenant.clone(), waits["waits"].clone());
        }
        seen.tenants.push((tenant, document));
    }
    Ok(seen)
}

/// Prints queues.
pub fn print(seen: &Seen, as_json: bool) -> Result<ExitCode, Failure> {
    let mut out = Output::new();
    let _ = if as_json {
        let tenants: serde_json::Map<String, Json> = seen.tenants.iter().cloned().collect();
        out.json(&json!({ "as_of": seen.head, "now_ms": seen.now_ms, "tenants": tenants, "waits": seen.waits }))?
    } else {
        out.lines(&render(seen, Style::of_stdout()))?
    };
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn render(seen: &Seen, style: Style) -> Vec<String> {
    let mut lines = vec![style.paint(Paint::Faint, &clean(&seen.head))];
    for (tenant, document) in &seen.tenants {
        lines.push(String::new());
        lines.push(style.paint(Paint::Bold, &format!("tenant {}", clean(tenant))));
        if let Some(wait) = document.get("wait").filter(|wait| wait.is_object()) {
            let text = |key: &str| clean(wait[key].as_str().unwrap_or_default());
            lines.push(style.paint(Paint::Yellow, &format!("waits for {}: {}", text("code"), text("detail"))));
        }
        lines.extend(show::status(document, style, seen.now_ms));
        if let Some(waits) = seen.waits.get(tenant).and_then(Json::as_array) {
            lines.extend(waits::section(waits, style));
        }
    }
    if seen.tenants.is_empty() {
        lines.push("no tenants".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_stand_one_after_the_other_and_say_what_they_wait_for() {
        let document = json!({ "wait": { "code": "layout", "detail": "the first one is made" },
            "pipelines": [{ "name": "check", "manager": "independent", "change_queues": [] }] });
        let (tenants, waits) = (vec![("demo".into(), document)], BTreeMap::new());
        let seen = Seen { head: "event 7".into(), now_ms: 0, tenants, waits };
        assert_eq!(
            render(&seen, Style::Plain),
            ["event 7", "", "tenant demo", "waits for layout: the first one is made", "check  independent · empty"]
        );
    }
}
