//! What people want: changes proposed, approved, taken back, pushed past the gate, asked for by admins.

use gatelog_record::Stream;
use gatelog_record::draft::gate::{AutoholdAsked, AutoholdDeleteAsked, DequeueAsked, EnqueueAsked};
use gatelog_record::input::{GateInput, IntakeInput};

use crate::carrying::Sender;
use crate::content::Edit;
use crate::faults::Fault;
use crate::forge::{CONNECTION, canonical, local};
use crate::marked::MARK;
use crate::site::{PROJECTS, TENANTS};
use crate::workers::BAD;
use crate::world::{GATE, World};

/// The most changes of one world.
const MAX_CHANGES: u32 = 24;

/// The forge tells what is new, or somebody does something.
pub(crate) fn act(world: &mut World) -> Result<Option<String>, String> {
    if let Some(told) = tell(world)? {
        return Ok(Some(told));
    }
    let told = match world.wishes.below(100) {
        0..30 => propose(world, None),
        30..36 => some_change(world).and_then(|name| propose(world, Some(name))),
        36..70 => some_change(world).map(|name| {
            world.forge.approve(&name, true);
            format!("somebody approves {name}")
        }),
        70..73 => some_change(world).map(|name| {
            world.forge.approve(&name, false);
            format!("somebody takes the approval of {name} back")
        }),
        73..76 => some_change(world).map(|name| {
            world.forge.abandon(&name);
            format!("somebody abandons {name}")
        }),
        76..81 => push(world),
        81..85 => ask(world, true)?,
        85..88 => ask(world, false)?,
        92..95 => keep(world)?,
        88..89 => {
            world.load_tenants()?;
            Some("the tenant file is loaded again".to_owned())
        }
        89..91 => keep(world)?,
        91..92 => let_go(world)?,
        _ => None,
    };
    Ok(told)
}

/// The forge tells of what happened there.
pub(crate) fn tell(world: &mut World) -> Result<Option<String>, String> {
    if world.forge.news.is_empty() {
        return Ok(None);
    }
    let mut news = world.forge.news.remove(0);
    let told = format!("the forge tells of {} {} {}", news.event, news.project, news.git_ref);
    if world.noisy && local(&news.project) == "far" && world.chance.chance(60) {
        news.delivery = format!("{MARK}/{}", news.delivery);
    }
    let id = format!("forge/{}", news.delivery);
    let key = format!("{CONNECTION} {}", news.project);
    if world.noisy && world.chance.chance(40) {
        world.fault(Fault::EventDeliveredTwice, &id);
        let again = IntakeInput::ForgeEvent(news.clone());
        world.post(Stream::Intake(0), id.clone(), &key, again, Sender::Outside)?;
    }
    world.post(Stream::Intake(0), id, &key, IntakeInput::ForgeEvent(news), Sender::Outside)?;
    Ok(Some(told))
}

fn some_change(world: &mut World) -> Option<String> {
    let open: Vec<String> =
        world.forge.changes.iter().filter(|(_, change)| change.is_open()).map(|(name, _)| name.clone()).collect();
    world.wishes.pick(&open).cloned()
}

/// One or two lines changed, from what the branch holds.
fn patch(world: &mut World, project: &str, text: &str) -> Vec<Edit> {
    let tree = world.forge.tip_tree(project);
    let mut edits = Vec::new();
    for number in 0..=world.wishes.below(2) {
        let path = ["src/a", "src/b", "src/new"][world.wishes.below(3) as usize % 3].to_owned();
        let line = world.wishes.below(5) as u32;
        let before = tree.line(&path, line).map(str::to_owned);
        let edit = Edit { path, line, before, after: Some(format!("{text} {number}")) };
        if !edits.iter().any(|other: &Edit| other.path == edit.path && other.line == edit.line) {
            edits.push(edit);
        }
    }
    edits
}

fn propose(world: &mut World, again: Option<String>) -> Option<String> {
    let (name, project) = match again {
        Some(name) => {
            let project = world.forge.changes.get(&name)?.project.clone();
            (name, project)
        }
        None if world.proposed >= MAX_CHANGES => return None,
        None => {
            world.proposed += 1;
            let project = (*world.wishes.pick(&PROJECTS)?).to_owned();
            (format!("c{}", world.proposed), project)
        }
    };
    let mut text = format!("{name} of {}", world.monotonic);
    if world.wishes.chance(80) {
        text = format!("{BAD} {text}");
    }
    let mut edits = patch(world, &project, &text);
    if world.wishes.chance(100) {
        let path = "zuul.d/own.yaml".to_owned();
        let line = world.wishes.below(3) as u32;
        let before = world.forge.tip_tree(&project).line(&path, line).map(str::to_owned);
        let stanza = match world.wishes.below(3) {
            0 => "- job: {nonsense: 1}".to_owned(),
            1 => format!("- job: {{name: extra-{name}-{line}}}"),
            _ => "- project: {check: {jobs: [publish]}}".to_owned(),
        };
        edits.push(Edit { path, line, before, after: Some(stanza) });
    }
    let mut depends_on = Vec::new();
    while world.wishes.chance(if depends_on.is_empty() { 250 } else { 150 }) && depends_on.len() < 3 {
        match some_change(world) {
            Some(other) if other != name && !depends_on.contains(&other) => depends_on.push(other),
            _ => break,
        }
    }
    let told = format!("somebody proposes {name} for {project}, on top of {depends_on:?}");
    world.forge.propose(&project, &name, edits, depends_on);
    Some(told)
}

fn push(world: &mut World) -> Option<String> {
    let project = (*world.wishes.pick(&PROJECTS)?).to_owned();
    let why = format!("push at {}", world.monotonic);
    let edits = patch(world, &project, &why);
    world.forge.push(&project, &edits, &why);
    world.fault(Fault::OutsiderPushes, &project);
    Some(format!("somebody pushes to {project}"))
}

fn ask(world: &mut World, enqueue: bool) -> Result<Option<String>, String> {
    let Some(name) = some_change(world) else { return Ok(None) };
    let Some(change) = world.forge.key(&name) else { return Ok(None) };
    let project = local(&change.project).to_owned();
    let Some((tenant, ..)) = TENANTS.iter().find(|(_, _, projects)| projects.contains(&project.as_str())) else {
        return Ok(None);
    };
    let tenant = (*tenant).to_owned();
    world.asked += 1;
    let id = format!("api/{}", world.asked);
    let pipeline = if world.wishes.chance(500) { "check" } else { "gate" }.to_owned();
    let told = format!("an admin asks to {} {name} in {pipeline}", if enqueue { "enqueue" } else { "dequeue" });
    let reason = "because".to_owned();
    let input = if enqueue {
        let connection = CONNECTION.to_owned();
        GateInput::EnqueueAsked(EnqueueAsked {
            parameters: std::collections::BTreeMap::new(),
            tenant: tenant.clone(),
            pipeline,
            connection,
            change,
            reason,
            old_commit: None,
            new_commit: None,
        })
    } else {
        GateInput::DequeueAsked(DequeueAsked { tenant: tenant.clone(), pipeline, change, reason })
    };
    world.post(Stream::Inputs(GATE), id, &tenant, input, Sender::Outside)?;
    Ok(Some(told))
}

/// An admin asks that nodes of a job be kept when it fails; always for a time, so that the world comes to rest.
fn keep(world: &mut World) -> Result<Option<String>, String> {
    let Some((tenant, _, projects)) = world.wishes.pick(&TENANTS).copied() else { return Ok(None) };
    let Some(project) = world.wishes.pick(projects).copied() else { return Ok(None) };
    let job = if world.wishes.chance(800) { "tests" } else { "deep" }.to_owned();
    world.asked += 1;
    let id = format!("api/{}", world.asked);
    let told = format!("an admin asks to keep nodes of {job} of {project} in {tenant}");
    let asked = AutoholdAsked {
        tenant: tenant.to_owned(),
        project: canonical(project),
        job,
        ref_filter: if world.wishes.chance(500) { ".*" } else { "refs/changes/.*" }.to_owned(),
        count: 2 + world.wishes.below(5) as u32,
        node_expiration: 1 + world.wishes.below(600),
        reason: "because".to_owned(),
    };
    world.post(Stream::Inputs(GATE), id, tenant, GateInput::AutoholdAsked(asked), Sender::Outside)?;
    Ok(Some(told))
}

/// An admin asks that such a request be deleted.
fn let_go(world: &mut World) -> Result<Option<String>, String> {
    let requests: Vec<(String, u64)> = world.gate.projection.live.gate.autoholds.rows.keys().cloned().collect();
    let Some((tenant, request)) = world.wishes.pick(&requests).cloned() else { return Ok(None) };
    world.asked += 1;
    let id = format!("api/{}", world.asked);
    let told = format!("an admin asks to delete request {request} of {tenant}");
    let asked = AutoholdDeleteAsked { tenant: tenant.clone(), request, reason: "because".to_owned() };
    world.post(Stream::Inputs(GATE), id, &tenant, GateInput::AutoholdDeleteAsked(asked), Sender::Outside)?;
    Ok(Some(told))
}
