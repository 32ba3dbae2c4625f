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
        let mut document = answer.map_err(|error| {
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
        let all = if query.is_empty() { "?all=true" } else { "&all=true" };
        // An older server does not tell.
        if let Ok(answer) = client.get(&format!("/api/tenant/{}/waits{query}{all}", path_segment(&tenant))) {
            name_leases(&mut document, waits::of(&answer));
            let told_after = answer["told_after_ms"].as_i64().unwrap_or_default();
            let long = waits::of(&answer).iter().filter(|wait| wait["waited_ms"].as_i64() > Some(told_after));
            seen.waits.insert(tenant.clone(), long.cloned().collect());
        }
        seen.tenants.push((tenant, document));
    }
    Ok(seen)
}

/// Says of builds that wait for a lease what capacity says: the gate only knows that it was asked.
fn name_leases(document: &mut Json, waits: &[Json]) {
    let by_build: BTreeMap<&str, &Json> = waits
        .iter()
        .filter(|wait| wait["subject"]["kind"] == "build")
        .filter_map(|wait| Some((wait["subject"]["id"].as_str()?, wait)))
        .collect();
    for pipeline in document["pipelines"].as_array_mut().into_iter().flatten() {
        for queue in pipeline["change_queues"].as_array_mut().into_iter().flatten() {
            let heads = queue["heads"].as_array_mut().into_iter().flatten();
            let items = heads.filter_map(Json::as_array_mut).flatten();
            for job in items.filter_map(|item| item["jobs"].as_array_mut()).flatten() {
                let wait = job["uuid"].as_str().and_then(|uuid| by_build.get(uuid));
                if job["wait"]["code"] == "lease"
                    && let Some(wait) = wait
                {
                    job["wait"] = json!({ "code": wait["reason"], "detail": wait["detail"],
                                          "since_ms": wait["since_ms"], "unblocks": wait["ends_when"] });
                }
            }
        }
    }
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
    fn a_build_that_waits_for_a_lease_says_what_capacity_says() {
        let job = |uuid: &str, code: &str| json!({ "uuid": uuid, "wait": { "code": code, "detail": "asked for" } });
        let heads = json!([[{ "jobs": [job("a", "lease"), job("b", "running")] }]]);
        let mut document = json!({ "pipelines": [{ "name": "check", "change_queues": [{ "heads": heads }] }] });
        let wait =
            |id: &str| json!({ "subject": { "kind": "build", "id": id }, "reason": "no-worker", "detail": "none" });
        name_leases(&mut document, &[wait("a"), wait("b")]);
        let jobs = &document["pipelines"][0]["change_queues"][0]["heads"][0][0]["jobs"];
        assert_eq!(
            (jobs[0]["wait"]["code"].as_str(), jobs[1]["wait"]["code"].as_str()),
            (Some("no-worker"), Some("running"))
        );
    }

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
