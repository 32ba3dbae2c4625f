//! What it costs to freeze a job graph, with its trace.
//!
//! `GATELOG_CORPUS` names a folder with `openstack/` in it (a tenant file, `zuul.conf`, `branches.json` and trees of
//! files); then every graph of that site is frozen, else those of a made-up site. Beside it: copying the same graphs.
//! The aim is a hundredth of the 2.3 ms that Zuul 14.3 was measured to take for a graph of that corpus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use gatelog_benches::measure::{Spread, best, timed};
use gatelog_benches::table::{Table, time, times};
use gatelog_benches::{Failure, corpus};
use gatelog_record::codec;
use gatelog_rules_config::folder::{Folder, LoadedTenant};
use gatelog_rules_config::freeze::fold;
use gatelog_rules_config::{FreezeOptions, FreezeOutcome, FreezeSubject, freeze};

const RUNS: usize = 5;
/// With this branch in addition to those of each project the corpus has 11,102 graphs and refusals.
const EXTRA_BRANCH: &str = "stable/2025.1";

/// A site of 200 projects and 60 jobs, six deep, with what jobs usually say.
fn made_up() -> Result<Folder, Failure> {
    let mut config = String::from(
        "- pipeline: {name: check, manager: independent}\n- pipeline: {name: gate, manager: dependent}\n\
         - nodeset: {name: small, nodes: [{name: node, label: small}]}\n\
         - job: {name: base, parent: null, pre-run: [a.yaml, b.yaml], post-run: [c.yaml], timeout: 1800, nodeset: small}\n",
    );
    for job in 0..60 {
        let parent = if job % 6 == 0 { "base".to_owned() } else { format!("job-{}", job - 1) };
        write!(
            config,
            "- job:\n    name: job-{job}\n    parent: {parent}\n    description: job {job}\n    run: run-{job}.yaml\n    \
             pre-run: pre-{job}.yaml\n    vars: {{level_{job}: {job}, shared: {{key_{job}: [1, 2, three]}}}}\n    \
             required-projects: [library-{}, library-{}]\n    irrelevant-files: ['^doc/.*$', '^.*\\.rst$']\n    \
             tags: [level-{job}]\n- job: {{name: job-{job}, branches: stable, voting: false}}\n",
            job % 7,
            job % 11,
        )?;
    }
    let mut tenant = String::from(
        "- tenant:\n    name: bench\n    source:\n      forge:\n        config-projects: [config]\n        untrusted-projects:\n",
    );
    for project in 0..200 {
        writeln!(tenant, "          - library-{project}")?;
        let jobs: Vec<String> = (0..4).map(|job| format!("job-{}", (project * 7 + job * 13) % 60)).collect();
        let jobs = jobs.join(", ");
        writeln!(
            config,
            "- project: {{name: library-{project}, check: {{jobs: [{jobs}]}}, gate: {{jobs: [{jobs}]}}}}"
        )?;
    }
    let tree = BTreeMap::from([("zuul.yaml".to_owned(), config)]);
    Ok(Folder {
        tenant_file: tenant,
        conf: "[connection forge]\ndriver=gerrit\nserver=bench.example\n".to_owned(),
        site: true,
        trees: BTreeMap::from([("config".to_owned(), tree)]),
        ..Folder::default()
    })
}

/// A freezing that comes to a graph or a refusal.
struct Asked<'a> {
    tenant: &'a LoadedTenant,
    subject: FreezeSubject,
    pipeline: &'a str,
}

impl Asked<'_> {
    fn freeze(&self) -> FreezeOutcome {
        let options = FreezeOptions { skip_file_matchers: true, ahead: None };
        freeze(&self.tenant.layout, &self.subject, self.pipeline, options)
    }
}

fn all(tenants: &[LoadedTenant]) -> Vec<Asked<'_>> {
    let mut asked = Vec::new();
    for tenant in tenants {
        let stanzas = &tenant.layout.stanzas;
        for project in tenant.settings.projects.iter().filter(|project| stanzas.contains_key(&project.canonical_name)) {
            let extra = (!project.branches.iter().any(|branch| branch == EXTRA_BRANCH)).then_some(EXTRA_BRANCH);
            for branch in project.branches.iter().map(String::as_str).chain(extra) {
                for pipeline in &tenant.layout.pipeline_order {
                    let subject = FreezeSubject {
                        project: project.canonical_name.clone(),
                        branch: Some(branch.to_owned()),
                        reference: "refs/changes/01/1/1".to_owned(),
                        files: Some(vec!["README".to_owned()]),
                        ..FreezeSubject::default()
                    };
                    let one = Asked { tenant, subject, pipeline };
                    if !matches!(one.freeze(), FreezeOutcome::NotInPipeline { .. }) {
                        asked.push(one);
                    }
                }
            }
        }
    }
    asked
}

fn main() -> Result<(), Failure> {
    let given = corpus::given();
    let (site, folder) = match &given {
        Some(root) => ("the OpenStack corpus", corpus::read(root)?),
        None => ("a made-up site", made_up()?),
    };
    let tenants = folder.load().map_err(|problems| format!("the tenant file is refused: {problems:?}"))?;
    let asked = all(&tenants);
    let count = u32::try_from(asked.len())?.max(1);
    let whole =
        || -> Result<usize, Failure> { Ok(asked.iter().map(|one| black_box(one.freeze()).trace().jobs.len()).sum()) };
    let (took, considered) = best(RUNS, whole)?;
    let outcomes: Vec<FreezeOutcome> = asked.iter().map(Asked::freeze).collect();
    let jobs: usize = outcomes.iter().filter_map(FreezeOutcome::graph).map(|graph| graph.jobs.len()).sum();
    let (copied, _) = best(RUNS, || -> Result<(), Failure> {
        for outcome in &outcomes {
            black_box(outcome.graph().cloned());
        }
        Ok(())
    })?;
    let (folded, _) = best(RUNS, || -> Result<(), Failure> {
        for trace in outcomes.iter().map(FreezeOutcome::trace) {
            for job in &trace.jobs {
                black_box(fold::job(trace, &job.name));
            }
        }
        Ok(())
    })?;
    let (mut bytes, mut largest) = (0, (0, Duration::ZERO));
    let mut each = Vec::with_capacity(asked.len());
    for (one, outcome) in asked.iter().zip(&outcomes) {
        bytes += codec::encode(outcome.trace())?.len();
        let (took, again) = timed(|| one.freeze());
        let jobs = again.graph().map_or(0, |graph| graph.jobs.len());
        if jobs > largest.0 {
            largest = (jobs, took.wall);
        }
        each.push(took.wall);
    }
    let each = Spread::new(each);
    let title = format!(
        "Freezing job graphs with their traces: {site}, {count} graphs, {jobs} jobs of {considered} considered (limit: copy the \
         same graphs; processor time)"
    );
    let mut table = Table::new(&title);
    let aim = if given.is_some() { "23 µs" } else { "" };
    let ratio = times(took.cpu.as_secs_f64() / copied.cpu.as_secs_f64().max(1e-9));
    table.row("a graph, mean", time(took.cpu / count), time(copied.cpu / count), ratio, aim);
    table.note("a job, mean", time(took.cpu / u32::try_from(jobs)?.max(1)));
    table.note("a graph, median and 95 % (wall)", format!("{}, {}", time(each.median()), time(each.at(0.95))));
    table.note(&format!("the largest graph, {} jobs (wall, once)", largest.0), time(largest.1));
    table.note("folding all jobs of a graph from its trace", time(folded.cpu / count));
    table.note("a trace, encoded", format!("{} bytes", bytes / asked.len().max(1)));
    table.print();
    Ok(())
}
