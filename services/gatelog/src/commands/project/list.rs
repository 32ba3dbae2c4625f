//! `project list`.

use std::process::ExitCode;

use gatelog_driver_git::{Forge, HookTrouble};
use serde_json::json;

use super::in_tenants::{self, Named};
use super::{Forges, failed};
use crate::cli::SiteArgs;
use crate::cli::project::ProjectListArgs;
use crate::commands::failure::Failure;
use crate::commands::output::Output;
use crate::show::{Style, clean, table};

/// How many branches are named in the table.
const BRANCHES_MAX: usize = 4;

/// What is known of a project.
struct Row {
    name: String,
    connection: String,
    path: String,
    default_branch: Option<String>,
    branches: Vec<String>,
    tenants: Vec<Named>,
    /// How many changes are open; or why that is not known.
    open: Result<usize, String>,
    hooks: Vec<HookTrouble>,
}

/// Runs it.
pub fn run(site: &SiteArgs, args: &ProjectListArgs) -> Result<ExitCode, Failure> {
    let forges = Forges::of(site, "project list")?;
    let text = forges.tenant_text()?;
    let mut rows = Vec::new();
    let mut wrong = None;
    for one in forges.existing(args.connection.as_deref())? {
        for project in one.forge.projects().map_err(|error| failed(&error))? {
            let tenants = in_tenants::of(&text, &one.connection, &project).unwrap_or_else(|error| {
                wrong = Some(error);
                Vec::new()
            });
            rows.push(row(&one.forge, &one.connection, project, tenants));
        }
    }
    let mut out = Output::new();
    if args.json {
        let _ = out.json(&rows.iter().map(document).collect())?;
    } else if rows.is_empty() {
        let _ =
            out.line(&format!("there is no project yet; `gatelog project add NAME --dir {}` makes one", forges.dir()))?;
    } else {
        let _ = out.lines(&rendered(&rows, Style::of_stdout(), &forges.dir()))?;
    }
    if let Some(error) = wrong.filter(|_| !args.json) {
        let _ = out.line(&format!("the tenant file has an error: {}", clean(&error)))?;
    }
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn row(forge: &Forge, connection: &str, project: String, tenants: Vec<Named>) -> Row {
    let chained = |error: &gatelog_driver_git::ForgeError| gatelog_effects::connection::chain(error);
    Row {
        path: forge.path(&project).map(|path| path.display().to_string()).unwrap_or_default(),
        default_branch: forge.default_branch(&project).ok().flatten(),
        branches: forge.branches(&project).unwrap_or_default(),
        open: forge.open_changes(&project).map(|open| open.len()).map_err(|error| chained(&error)),
        hooks: forge.hook_troubles(&project).unwrap_or_default(),
        connection: connection.to_owned(),
        name: project,
        tenants,
    }
}

fn document(row: &Row) -> serde_json::Value {
    let tenant =
        |named: &Named| json!({ "name": named.tenant, "type": if named.trusted { "config" } else { "untrusted" } });
    json!({
        "name": row.name,
        "connection": row.connection,
        "path": row.path,
        "default_branch": row.default_branch,
        "branches": row.branches,
        "tenants": row.tenants.iter().map(tenant).collect::<Vec<_>>(),
        "open_changes": row.open.as_ref().ok(),
        "error": row.open.as_ref().err(),
        "hooks": { "well": row.hooks.is_empty() && row.open.is_ok(), "troubles": row.hooks.iter().map(ToString::to_string).collect::<Vec<_>>() },
    })
}

fn rendered(rows: &[Row], style: Style, dir: &str) -> Vec<String> {
    let mut cells = vec![["project", "connection", "branches", "tenants", "open", "hooks"].map(str::to_owned)];
    let mut notes = Vec::new();
    for row in rows {
        let mut branches: Vec<&str> = row.branches.iter().take(BRANCHES_MAX).map(String::as_str).collect();
        let more = format!("+{}", row.branches.len().saturating_sub(BRANCHES_MAX));
        if row.branches.len() > BRANCHES_MAX {
            branches.push(&more);
        }
        let tenant =
            |named: &Named| if named.trusted { format!("{} (config)", named.tenant) } else { named.tenant.clone() };
        let tenants: Vec<String> = row.tenants.iter().map(tenant).collect();
        let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { clean(&text) };
        cells.push([
            clean(&row.name),
            clean(&row.connection),
            or_none(branches.join(" ")),
            or_none(tenants.join(", ")),
            row.open.as_ref().map_or_else(|_| "?".to_owned(), ToString::to_string),
            match (&row.open, row.hooks.is_empty()) {
                (Err(_), _) => "?",
                (Ok(_), true) => "well",
                (Ok(_), false) => "not well",
            }
            .to_owned(),
        ]);
        notes.extend(row.open.as_ref().err().map(|error| format!("{}: {error}", row.name)));
        if let Some(trouble) = row.hooks.first() {
            notes.push(format!("{}: {trouble}; mend it: gatelog project add {} --dir {dir}", row.name, row.name));
        }
        // What HEAD names is what a clone checks out.
        if let Some(head) =
            row.default_branch.as_ref().filter(|head| !row.branches.is_empty() && !row.branches.contains(head))
        {
            let path = &row.path;
            let first = row.branches.first().map_or("BRANCH", String::as_str);
            notes.push(format!(
                "{}: HEAD names {head}, which is not there; let it name another: git -C {path} symbolic-ref HEAD refs/heads/{first}",
                row.name
            ));
        }
    }
    let mut lines = table(&cells, style);
    if !notes.is_empty() {
        lines.push(String::new());
        lines.extend(notes.iter().map(|note| clean(note)));
    }
    lines
}
