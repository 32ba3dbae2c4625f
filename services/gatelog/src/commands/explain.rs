//! `gatelog explain`: why.

use std::process::ExitCode;

use gatelog_replay::Moment;
use gatelog_replay::explain::{Explainer, Tone};
use gatelog_secrets::Keyring;

use super::failure::{Code, Failure};
use super::output::Output;
use crate::cli::{At, ExplainArgs, Parts, SiteArgs};
use crate::show::{Paint, Style, clean};

/// Runs it.
pub fn run(parts: &Parts, site: &SiteArgs, args: &ExplainArgs) -> Result<ExitCode, Failure> {
    if site.url.is_some() {
        return Err(Failure::new(Code::Usage, "explain reads the log itself and cannot ask a server yet")
            .hint("name the site's directory with --dir, on the machine it is on"));
    }
    let site = site.directory("explain")?;
    let (log, blobs) = site.history()?;
    // Without the keys there are no names.
    let keys = site.keys().ok().filter(|dir| dir.exists()).and_then(|dir| Keyring::open_dir(dir).ok());
    let name_of = move |actor| keys.as_ref()?.name_of(actor).ok()?;
    let explainer = Explainer::read(&parts.domains.replay(), &*log, &*blobs, moment(args.at))?.with_people(name_of);
    let what = args.what.as_deref().unwrap_or_default();
    let found = explainer.find(what, args.tenant.as_deref())?;
    let explanation = explainer.explain(&found, args.job.as_deref())?;
    let mut out = Output::new();
    let _ = if args.json {
        out.json(&explanation.to_json())?
    } else {
        let style = Style::of_stdout();
        let lines: Vec<String> =
            explanation.render().iter().map(|line| paint(style, line.tone, &clean(&line.text))).collect();
        out.lines(&lines)?
    };
    let _ = out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// What the command line calls a moment, as replay calls it.
pub fn moment(at: Option<At>) -> Moment {
    match at {
        None => Moment::Newest,
        Some(At::Sequence(sequence)) => Moment::Sequence(sequence),
        Some(At::Time(time)) => Moment::Time(time),
    }
}

/// A line in its tone.
pub fn paint(style: Style, tone: Tone, text: &str) -> String {
    match tone {
        Tone::Plain => text.to_owned(),
        Tone::Head => style.paint(Paint::Bold, text),
        Tone::Faint => style.paint(Paint::Faint, text),
        Tone::Good => style.paint(Paint::Green, text),
        Tone::Bad => style.paint(Paint::Red, text),
        Tone::Waiting => style.paint(Paint::Yellow, text),
    }
}
