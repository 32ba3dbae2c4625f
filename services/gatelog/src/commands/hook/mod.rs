//! What the hooks of the forge's repositories ask: what of a push means nothing, and what becomes of the rest.
//!
//! Whoever pushes reads this in a terminal, behind git's `remote: `. The hooks refuse a push with exit code 1 alone; what
//! fails here in any other way lets it through, with a word about it.

pub mod told;
mod words;

use std::io::{Read, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use gatelog_driver_git::{ForgeError, Limits, Meaningless, PushedTo, RefUpdate, Refusal};

use super::failure::{Code, Failure};
use crate::cli::project::{HookCommand, PreReceiveArgs};

/// The most that is read of what git says of a push, in bytes: 200,000 refs have fewer.
const INPUT_MAX: u64 = 64 << 20;
/// How long a push may be looked at. The history of a large project is read in less.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many refs of a push are told one by one.
const TOLD_MAX: usize = 10;

/// Runs it.
pub fn run(command: &HookCommand) -> Result<ExitCode, Failure> {
    match command {
        HookCommand::PreReceive(args) => pre_receive(args),
        HookCommand::PostReceive(args) => told::run(args),
    }
}

/// What git says of a push on standard input; `None`: more than is read.
fn updates() -> Result<Option<Vec<RefUpdate>>, Failure> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(INPUT_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| Failure::new(Code::Unavailable, format!("standard input: {error}")))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > INPUT_MAX {
        return Ok(None);
    }
    Ok(Some(bytes.split(|byte| *byte == b'\n').filter_map(RefUpdate::parse).collect()))
}

fn pre_receive(args: &PreReceiveArgs) -> Result<ExitCode, Failure> {
    let Some(updates) = updates()? else {
        return Ok(unchecked("it names more refs than are looked at"));
    };
    let path = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let to = PushedTo {
        repository: path("GIT_DIR").unwrap_or_else(|| PathBuf::from(".")),
        quarantine: path("GIT_QUARANTINE_PATH").and_then(|path| std::path::absolute(path).ok()),
        project: args.project.clone(),
        limits: Limits::default(),
    };
    let pushed = updates.len();
    let (say, said) = mpsc::sync_channel(1);
    let judge = std::thread::Builder::new().name("push".to_owned()).spawn(move || {
        let refused = judged(&to, &updates);
        // Nobody listens any more where it took too long.
        let _ = say.send(refused.map(|refused| (lines(&to, &refused, updates.len()), refused.len())));
    });
    judge.map_err(|error| Failure::new(Code::Unavailable, format!("a thread: {error}")))?;
    match said.recv_timeout(PATIENCE) {
        Ok(Ok((_, 0))) => Ok(ExitCode::SUCCESS),
        Ok(Ok((lines, _))) => {
            print(&lines);
            Ok(Code::No.into())
        }
        Ok(Err(ForgeError::TooMany { limit, .. })) => {
            print(&[format!("gatelog: refused: {pushed} refs in one push; push at most {limit} at once")]);
            Ok(Code::No.into())
        }
        Ok(Err(error)) => Ok(unchecked(&gatelog_effects::connection::chain(&error))),
        Err(_) => Ok(unchecked(&format!("to look at its history takes more than {} s", PATIENCE.as_secs()))),
    }
}

/// A push that cannot be judged is taken: whatever means nothing in it is passed over later, as it was before there were
/// hooks.
fn unchecked(why: &str) -> ExitCode {
    print(&[format!("gatelog: this push is taken unchecked: {}", crate::show::clean(why))]);
    ExitCode::SUCCESS
}

/// Says lines to the pusher. That nobody reads them is no reason to fail, least of all with the exit code that refuses.
fn print(lines: &[String]) {
    let mut out = std::io::stdout().lock();
    for line in lines {
        let _ = writeln!(out, "{line}");
    }
    let _ = out.flush();
}

/// What means nothing: by the rules of the forge, and names that look like a slip in writing one of its refs.
fn judged(to: &PushedTo, updates: &[RefUpdate]) -> Result<Vec<Refusal>, ForgeError> {
    let mut refused = to.check(updates)?;
    for update in updates.iter().filter(|update| update.new.is_some()) {
        if let Some(meant) = words::misspelt(&update.shown()) {
            let reason = Meaningless::BadName(format!("did you mean {meant}?"));
            refused.push(Refusal { ref_name: update.shown(), reason });
        }
    }
    Ok(refused)
}

/// What is said of them.
fn lines(to: &PushedTo, refused: &[Refusal], pushed: usize) -> Vec<String> {
    if refused.is_empty() {
        return Vec::new();
    }
    let mut lines = Vec::new();
    let branches = to.branches().unwrap_or_default();
    for refusal in refused.iter().take(TOLD_MAX) {
        let (reason, cure) = words::told(refusal, &to.project, &branches);
        lines.push(format!("gatelog: refused: {}", refusal.ref_name));
        lines.push(format!("  {reason}"));
        lines.extend(cure.map(|cure| format!("  {cure}")));
    }
    if let Some(more) = refused.len().checked_sub(TOLD_MAX).filter(|more| *more > 0) {
        lines.push(format!("  … and {more} more refs for such reasons"));
    }
    if refused.len() < pushed {
        lines.push("gatelog: nothing of this push was taken: push the other refs by themselves".to_owned());
    }
    lines.iter().map(|line| crate::show::clean(line)).collect()
}
