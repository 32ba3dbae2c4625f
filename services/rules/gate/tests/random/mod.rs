//! Stories nobody thought of: the laws hold after every input, nothing is merged untested, and when
//! everybody does their work in the end, everything comes to an end.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::world::laws;
use crate::world::script::Story;

const CONFIG: &str = "
- job: {name: tests, attempts: 2}
- job: {name: deep, dependencies: [tests]}
- semaphore: {name: rig, max: 2}
- job: {name: lint, voting: false, semaphores: [rig]}
- queue: {name: shared}
- pipeline:
    name: narrow
    manager: dependent
    window: 3
    window-floor: 1
    supercedes: [check]
    trigger: {git: [{event: change-approved}]}
    success: {git: {}}
    failure: {git: {}}
    start: {git: {}}
- project: {name: lib, queue: shared, check: {jobs: [tests]}, narrow: {jobs: [tests, deep, lint]}}
- project: {name: app, queue: shared, check: {jobs: [tests]}, narrow: {jobs: [tests, lint]}}
- project: {name: far, check: {jobs: [noop]}, gate: {jobs: [noop]}, narrow: {jobs: [tests]}}
";
const PROJECTS: [&str; 3] = ["lib", "app", "far"];

/// One sentence, made of small numbers.
fn sentence(dice: &[u8; 4]) -> (String, &'static str) {
    let [what, one, two, three] = *dice;
    let change = |number: u8| format!("c{}", number % 7);
    let project = |number: u8| PROJECTS[usize::from(number % 7) % PROJECTS.len()];
    let job = ["tests", "tests", "deep", "lint"][usize::from(two % 4)];
    let kind = ["prepare", "changes", "submit", "freeze", "layout", "report", "config-read"][usize::from(one % 7)];
    let pipeline = ["check", "narrow"][usize::from(three % 2)];
    let push = format!("push {} {}", project(one), change(one));
    let text = match what % 24 {
        0 | 1 => push,
        2 if one % 7 != two % 7 => format!("{push} depends-on {}", change(two)),
        3 if one % 7 != two % 7 => format!("{push} stacked-on {}", change(two)),
        4 => {
            return (
                format!("{push} with zuul.d/{}.yaml", change(one)),
                ["- job: {name: more}\n", "- job: {nonsense: 1}\n"][usize::from(two % 2)],
            );
        }
        5..=7 => format!("approve {}", change(one)),
        20..=22 => format!("something old is said again {one}"),
        23 => format!("{} vanishes", change(one)),
        8 => format!("withdraw {}", change(one)),
        9 => format!("abandon {}", change(one)),
        10 => format!("somebody pushes {} silently", project(one)),
        11 => format!("{} conflicts with {}", change(one), change(two)),
        12 => format!("hold {kind}"),
        13 => format!("release {kind}"),
        14 => ["fail prepare it rains", "fail changes it rains", "fail submit it rains", "fail report it rains"]
            [usize::from(one % 4)]
        .to_owned(),
        15 => format!("mend {kind}"),
        16 | 17 => {
            let end =
                ["succeeds", "succeeds", "fails", "will fail", "retries", "aborts", "loses its worker", "gets no node"];
            format!("job {job} of {} in {pipeline} {}", change(one), end[usize::from(three / 2) % end.len()])
        }
        18 => format!("jobs of {} in {pipeline} succeed", change(one)),
        _ => match one % 5 {
            0 => format!("ask dequeue {} from {pipeline}", change(two)),
            1 => format!("ask enqueue {} in {pipeline}", change(two)),
            2 => "wait 70s".to_owned(),
            3 => "restart".to_owned(),
            _ => format!("the forge tells of {}", project(two)),
        },
    };
    (text, "")
}

fn tell(story: &mut Story, text: &str, block: &str) -> Result<(), String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    story.say(&words, block).and_then(|()| story.world.pump())
}

/// What may be said of nobody: the story goes on.
fn is_nonsense(problem: &str) -> bool {
    ["there is no change", "is in no pipeline", "has no job", "no such", "nobody understands"]
        .iter()
        .any(|known| problem.contains(known))
}

fn play(dice: &[[u8; 4]]) -> Result<(), String> {
    let mut story = Story::default();
    for project in PROJECTS {
        tell(&mut story, &format!("project {project}"), "")?;
    }
    tell(&mut story, "standard config", "")?;
    tell(&mut story, "config", CONFIG)?;
    tell(&mut story, "start", "")?;
    // Two pipelines merge there: they get into each other's way as others would.
    tell(&mut story, "somebody pushes far", "")?;
    let mut told = Vec::new();
    for one in dice {
        let (text, block) = sentence(one);
        told.push(text.clone());
        match tell(&mut story, &text, block) {
            Err(problem) if !is_nonsense(&problem) => {
                return Err(format!("{}\n{problem}\n{}", told.join("\n"), story.show()));
            }
            // A job that has ended does not end again.
            _ => {}
        }
    }
    // In the end everybody does their work.
    for kind in ["prepare", "changes", "submit", "freeze", "layout", "report", "config-read"] {
        tell(&mut story, &format!("release {kind}"), "")?;
        tell(&mut story, &format!("mend {kind}"), "")?;
    }
    let done = tell(&mut story, "jobs succeed", "").and_then(|()| tell(&mut story, "wait 7200s", ""));
    let world = &story.world;
    let left = world.live.gate.items.rows.len()
        + world.live.gate.triggers.rows.len()
        + world.live.gate.pending_work.rows.len()
        + world.leases.len();
    if left > 0 || done.is_err() {
        return Err(format!("{}\nsomething is left: {done:?}\n{}", told.join("\n"), story.show()));
    }
    laws::begins_anew(world)?;
    merges_stand(&story).map_err(|problem| format!("{}\n{problem}", told.join("\n")))
}

/// What the gate merged is where it was merged, whoever pushed in between.
fn merges_stand(story: &Story) -> Result<(), String> {
    let forge = &story.world.forge;
    for merged in &story.world.merged {
        let Some(change) = forge.changes.get(merged) else { continue };
        let tree = forge.tree(&forge.tip(&change.project, &change.branch).unwrap_or_default());
        if !tree.changes.iter().any(|(name, _)| name == merged) {
            return Err(format!("{merged} was merged and is not in {}", change.project));
        }
    }
    Ok(())
}

#[test]
fn whatever_happens_the_laws_hold_and_everything_ends() {
    let config = Config { cases: 60, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let stories = proptest::collection::vec(any::<[u8; 4]>(), 1..60);
    let result = runner.run(&stories, |dice| play(&dice).map_err(TestCaseError::fail));
    if let Err(problem) = result {
        panic!("{problem}");
    }
}
