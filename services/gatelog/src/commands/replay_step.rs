//! `gatelog replay step`: a debugger for history, in the terminal or fed by a script.

use std::io::{BufRead, IsTerminal, Read, Write};
use std::process::ExitCode;

use gatelog_record::Timestamp;
use gatelog_replay::step::{Answer, Debugger};
use gatelog_secrets::Keyring;
use serde_json::json;

use super::explain::paint;
use super::failure::{Code, Failure};
use super::output::{Output, Reader};
use super::replay_diff::event_of;
use crate::cli::replay::StepArgs;
use crate::cli::{At, Parts, SiteArgs, parse_at};
use crate::show::{Style, clean, json as shown};

/// The longest command that is read, in bytes.
const MAX_LINE: u64 = 4_096;

/// Runs it.
pub fn run(parts: &Parts, site: &SiteArgs, args: &StepArgs) -> Result<ExitCode, Failure> {
    let site = site.directory("replay step")?;
    let (log, blobs) = site.history()?;
    // Without the keys there are no names.
    let keys = site.keys().ok().filter(|dir| dir.exists()).and_then(|dir| Keyring::open_dir(dir).ok());
    let name_of = move |actor| keys.as_ref()?.name_of(actor).ok()?;
    let rungs = site.rungs();
    let mut debugger = Debugger::open(&parts.domains.replay(), &log, &*blobs, &rungs, name_of, time_of)?;
    debugger.go_to(event_of(&*log, args.at)?)?;
    let style = Style::of_stdout();
    let mut out = Output::new();
    if say(&mut out, &debugger.here()?, args.json, style)? == Reader::Gone {
        return Ok(ExitCode::SUCCESS);
    }
    let stdin = std::io::stdin();
    let prompts = stdin.is_terminal() && std::io::stdout().is_terminal();
    let mut failed = None;
    let mut input = stdin.lock();
    loop {
        if prompts {
            let at = debugger.at();
            let prompt = format!("({}:{}) ", at.partition, at.sequence);
            let _ = out.flush()?;
            let _ = std::io::stderr().write_all(style.paint(crate::show::Paint::Bold, &prompt).as_bytes());
        }
        let mut line = Vec::new();
        let read = input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        match read {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => return Err(Failure::new(Code::No, format!("standard input: {error}"))),
        }
        if line.len() as u64 >= MAX_LINE && line.last() != Some(&b'\n') {
            return Err(Failure::new(Code::Usage, format!("a command is longer than {MAX_LINE} bytes")));
        }
        match debugger.command(&String::from_utf8_lossy(&line)) {
            Ok(answer) if answer.quit => break,
            Ok(answer) => {
                if say(&mut out, &answer, args.json, style)? == Reader::Gone {
                    break;
                }
            }
            Err(error) => {
                // People go on; a script is told where it went wrong, goes on, and ends with that.
                let failure = Failure::from(error);
                if args.json {
                    let _ = out.line(&shown(&json!({ "error": failure.primary, "hint": failure.hint }), false))?;
                } else {
                    let _ = out.flush()?;
                    failure.print();
                }
                failed.get_or_insert(failure.code);
            }
        }
    }
    let _ = out.flush()?;
    match failed.filter(|_| !prompts) {
        Some(code) => Ok(code.into()),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn say(out: &mut Output, answer: &Answer, json: bool, style: Style) -> Result<Reader, Failure> {
    if json {
        if !answer.json.is_null() {
            let _ = out.line(&shown(&answer.json, false))?;
        }
        return out.flush();
    }
    let lines: Vec<String> = answer.lines.iter().map(|(tone, text)| paint(style, *tone, &clean(text))).collect();
    let _ = out.lines(&lines)?;
    out.flush()
}

fn time_of(text: &str) -> Option<Timestamp> {
    match parse_at(text) {
        Ok(At::Time(time)) => Some(time),
        _ => None,
    }
}
