//! `gatelog timers`: which branches enter which pipelines by the calendar, and when next.

use std::process::ExitCode;

use gatelog_record::Timestamp;
use serde_json::{Map, Value as Json};

use super::failure::{Code, Failure};
use super::operators::explained;
use super::output::Output;
use super::replay::path_segment;
use super::site::Target;
use crate::cli::SiteArgs;
use crate::cli::processes::TimersArgs;
use crate::show::{self, Paint, Style, clean};

/// Runs it.
pub fn show(site: &SiteArgs, args: &TimersArgs) -> Result<ExitCode, Failure> {
    let client = match site.target()? {
        Target::Url(client) => client,
        Target::Dir(here) => here.server().ok_or_else(|| {
            let problem = format!("no server with the role web runs in {}: no timer is due", here.dir().display());
            Failure::new(Code::Unavailable, problem)
                .hint("start it with `gatelog serve`, or name a running one with --url")
        })?,
    };
    let tenants = match &args.tenant {
        Some(tenant) => vec![tenant.clone()],
        None => {
            let tenants = client.get("/api/tenants").map_err(|error| explained(error, site))?;
            let names = tenants.as_array().map(Vec::as_slice).unwrap_or_default().iter();
            names.filter_map(|tenant| tenant["name"].as_str().map(str::to_owned)).collect()
        }
    };
    let mut documents = Map::new();
    for tenant in tenants {
        let document = client
            .get(&format!("/api/tenant/{}/timers", path_segment(&tenant)))
            .map_err(|error| explained(error, site))?;
        documents.insert(tenant, document);
    }
    let mut out = Output::new();
    let _ = if args.json {
        out.json(&Json::Object(documents))?
    } else {
        out.lines(&render(&documents, args.branches, Style::of_stdout(), crate::clock::now().0 / 1_000))?
    };
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn render(documents: &Map<String, Json>, branches: bool, style: Style, now_ms: i64) -> Vec<String> {
    let mut lines = Vec::new();
    for (tenant, document) in documents {
        lines.push(style.paint(Paint::Bold, &format!("tenant {}", clean(tenant))));
        let timers = document.as_array().map(Vec::as_slice).unwrap_or_default();
        if timers.is_empty() {
            lines.push("  no timers".to_owned());
        }
        for timer in timers {
            let text = |key: &str| clean(timer[key].as_str().unwrap_or_default());
            let count = timer["branches"].as_array().map_or(0, Vec::len);
            let jitter = match timer["jitter"].as_u64() {
                Some(0) | None => String::new(),
                Some(seconds) => format!(", jitter up to {seconds} s"),
            };
            lines.push(format!(
                "  {}  `{}` ({}{jitter})  next {}  {count} {}",
                text("pipeline"),
                text("time"),
                text("time_zone"),
                when(&timer["next_ms"], now_ms),
                if count == 1 { "branch" } else { "branches" },
            ));
            for branch in timer["branches"].as_array().into_iter().flatten().filter(|_| branches) {
                let text = |key: &str| clean(branch[key].as_str().unwrap_or_default());
                let (project, name) = (text("project"), text("branch"));
                let next = when(&branch["next_ms"], now_ms);
                let ticks = branch["ticks"].as_u64().unwrap_or_default();
                lines.push(format!("    {project} {name}  next {next}  {ticks} so far"));
            }
        }
    }
    lines
}

/// A moment and how far it is.
fn when(ms: &Json, now_ms: i64) -> String {
    let Some(ms) = ms.as_i64() else { return "never".to_owned() };
    let moment = Timestamp(ms.saturating_mul(1_000)).to_string();
    let moment = moment.get(..19).unwrap_or_default().replace('T', " ") + " UTC";
    match ms - now_ms {
        left if left >= 0 => format!("{moment} (in {})", show::millis(left)),
        late => format!("{moment} ({} late)", show::millis(-late)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_timer_says_when_it_is_due_next_and_for_how_many_branches() {
        let branch = json!({ "project": "git/lib", "branch": "master", "next_ms": 3_600_000, "ticks": 7 });
        let timer = json!({ "pipeline": "nightly", "time": "0 1 * * *", "time_zone": "UTC", "jitter": 60,
            "next_ms": 3_600_000, "branches": [branch] });
        let mut documents = Map::new();
        documents.insert("acme".into(), json!([timer]));
        documents.insert("other".into(), json!([]));
        let lines = render(&documents, true, Style::Plain, 0);
        assert_eq!(lines[0], "tenant acme");
        assert!(
            lines[1].starts_with("  nightly  `0 1 * * *` (UTC, jitter up to 60 s)  next 1970-01-01"),
            "{}",
            lines[1]
        );
        assert!(lines[1].ends_with("  1 branch"), "{}", lines[1]);
        assert!(lines[2].starts_with("    git/lib master  next ") && lines[2].ends_with("7 so far"), "{}", lines[2]);
        assert_eq!(lines[3..], ["tenant other", "  no timers"]);
        assert!(render(&documents, false, Style::Plain, 7_200_000)[1].contains("late)"));
    }
}
