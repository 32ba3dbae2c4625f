//! A host without room is no verdict: which outcomes of work come of that, and what others tell of this server.

use std::path::Path;

use gatelog_gate_state::work::failures;
use gatelog_record::draft::gate::LayoutOutcome;
use gatelog_record::input::GateInput;
use gatelog_room::{Lack, without_paths};

use gatelog_rules_config::verdicts::KEY_UNREADABLE;

/// The codes of failures of this server's own, whose words may name its paths.
const OWN: [&str; 8] = [
    "blob-missing",
    "blob-store",
    "destination-taken",
    "forge",
    "keyring",
    "mirror-locked",
    "repository-damaged",
    "repository-error",
];

/// What an outcome failed for want of, if that is why, and what the system said. Where its words do not tell, the places
/// are asked at which the work writes, the mirrors and the directory for temporary files: of a host without room no
/// failure is believed, for what cannot be opened easily passes for what is not there.
pub(crate) fn lack(input: &mut GateInput, mirrors: &Path) -> Option<(Lack, String)> {
    let temporary = std::env::temp_dir();
    lack_at(input, &[mirrors, &temporary], &temporary)
}

/// The same at these places. One of them, `optional`, may be read-only for good, as it is for services that systemd
/// protects: then nothing is written there, and it says nothing of any failure.
fn lack_at(input: &mut GateInput, places: &[&Path], optional: &Path) -> Option<(Lack, String)> {
    let now = || {
        let counts = |place: &&Path| *place != optional || Lack::at(place) != Some(Lack::ReadOnly);
        Lack::now(places.iter().copied().filter(counts))
    };
    if let GateInput::LayoutMade(made) = input
        && let LayoutOutcome::Made { secrets, .. } = &made.outcome
        && secrets.iter().any(|verdict| verdict.code == KEY_UNREADABLE)
    {
        return now().map(|lack| (lack, "a project's key cannot be read".to_owned()));
    }
    let failed = failures(input);
    let told = failed.iter().find_map(|(_, message)| Some((Lack::of_text(message)?, message.to_string())));
    if let Some((lack, said)) = told {
        return Some((lack.told_apart(places.iter().copied()), said));
    }
    let (_, message) = failed.first()?;
    Some((now()?, message.to_string()))
}

/// The outcome of work that waits for room: that it does, in words that name no place of this server.
pub(crate) fn waits(mut input: GateInput, lack: Lack) -> GateInput {
    let message = format!("{lack}: it is tried again until there is room");
    if let GateInput::LayoutMade(made) = &mut input {
        made.outcome = LayoutOutcome::Failed { code: String::new(), message: String::new() };
    }
    for (code, said) in failures(&mut input) {
        (*code, *said) = (lack.code().to_owned(), message.clone());
    }
    input
}

/// Takes this server's paths out of what authors will read; whoever runs it finds them in its log.
pub(crate) fn hide(mut input: GateInput) -> GateInput {
    for (code, message) in failures(&mut input) {
        if !OWN.contains(&code.as_str()) {
            continue;
        }
        let told = without_paths(message);
        if told != *message {
            tracing::warn!(code = code.as_str(), message = message.as_str(), "an effect failed");
            *message = told;
        }
    }
    input
}

#[cfg(test)]
mod tests {
    use gatelog_record::WorkId;
    use gatelog_record::draft::gate::{PrepareDone, PrepareOutcome};

    use super::*;

    /// No place that is asked.
    const NOWHERE: &str = "/nowhere";

    fn failed(code: &str, message: &str) -> GateInput {
        let outcome = PrepareOutcome::Failed { code: code.into(), message: message.into(), again: true };
        PrepareDone { work: WorkId::default(), attempt: 1, tenant: "t".into(), outcome }.into()
    }

    fn message(mut input: GateInput) -> String {
        failures(&mut input).pop().map(|(_, message)| message.clone()).unwrap()
    }

    #[test]
    fn what_waits_for_room_is_told_in_words_that_the_gate_takes_for_no_answer() {
        for lack in Lack::ALL {
            let mut told = waits(failed("repository-error", "cannot write /srv/ci/x"), lack);
            let (code, message) = failures(&mut told).pop().unwrap();
            assert!(code.starts_with(gatelog_rules_gate::NO_ROOM) && !message.contains('/'), "{code}: {message}");
        }
    }

    #[test]
    fn a_merge_that_finds_no_room_is_no_outcome_and_other_failures_are_told_without_paths() {
        let full = "cannot write /srv/ci/mirrors/a.lock: No space left on device (os error 28)";
        assert_eq!(
            lack_at(&mut failed("repository-error", full), &[], NOWHERE.as_ref()),
            Some((Lack::Disk, full.to_owned()))
        );
        let mut other =
            failed("repository-error", "cannot open /srv/ci/mirrors/a.git: Permission denied (os error 13)");
        assert_eq!(lack_at(&mut other, &[], NOWHERE.as_ref()), None);
        assert_eq!(message(hide(other)), "cannot open [a path of the server]: Permission denied (os error 13)");
        let refused = failed("bad-name", "the path /a/b is no name of a project");
        assert_eq!(message(hide(refused)), "the path /a/b is no name of a project");
    }

    #[test]
    fn what_fails_on_a_file_system_without_room_is_not_believed_whatever_it_says() {
        // A file system of which nothing is free: as this process sees its own processes.
        let mut missing = failed("commit-missing", "commit 1 is not in the repository of app");
        assert_eq!(lack_at(&mut missing, &[], NOWHERE.as_ref()), None);
        let read_only = ["/sys/fs/cgroup", "/sys", "/proc/sys"].map(Path::new);
        match read_only.into_iter().find(|place| Lack::at(place).is_some()) {
            Some(place) => {
                let told = lack_at(&mut missing, &[place], NOWHERE.as_ref());
                assert!(told.is_some_and(|(lack, _)| lack == Lack::ReadOnly));
                assert_eq!(lack_at(&mut missing, &[place], place), None, "it is so for good, and nothing writes there");
            }
            None => println!("SKIPPED a file system without room: none of {read_only:?} is read-only here"),
        }
    }
}
