use super::*;

fn parse(line: &str) -> Result<Cli, String> {
    Cli::try_parse_from(line.split(' ')).map_err(|error| error.to_string())
}

#[test]
fn the_grammar_is_sound() {
    command().debug_assert();
}

#[test]
fn the_site_can_be_named_before_and_after_the_command() {
    for line in ["gatelog --dir /srv/ci explain show-miles", "gatelog explain --dir /srv/ci show-miles"] {
        let cli = parse(line).unwrap();
        assert_eq!(cli.site.dir.as_deref(), Some(std::path::Path::new("/srv/ci")), "{line}");
        let Command::Explain(args) = cli.command else { panic!("{line}") };
        assert_eq!(args.what.as_deref(), Some("show-miles"));
    }
    for line in ["gatelog serve --dir /srv/ci", "gatelog --dir /srv/ci serve"] {
        let Command::Serve(args) = parse(line).unwrap().command else { panic!("{line}") };
        assert_eq!(args.dir.as_deref(), Some(std::path::Path::new("/srv/ci")), "{line}");
    }
    assert!(parse("gatelog --dir a --url http://b status").unwrap_err().contains("cannot be used with"));
}

#[test]
fn roles_are_named_one_by_one_or_together() {
    let line = "gatelog serve --dir a --role merger,executor --role web";
    let Command::Serve(args) = parse(line).unwrap().command else { panic!() };
    assert_eq!(args.role, [Role::Merger, Role::Executor, Role::Web]);
    let Command::Serve(args) = parse("gatelog serve --dir a").unwrap().command else { panic!() };
    assert_eq!(args.role, []);
    assert!(parse("gatelog serve --role sheduler").unwrap_err().contains("scheduler"));
}

#[test]
fn a_moment_is_a_sequence_or_a_time_with_its_zone() {
    assert_eq!(parse_at("120"), Ok(At::Sequence(120)));
    assert_eq!(parse_at("1970-01-01T01:00:01+01:00"), Ok(At::Time(Timestamp(1_000_000))));
    assert_eq!(parse_at("2024-02-29T00:00:00.000001Z"), Ok(At::Time(Timestamp(1_709_164_800_000_001))));
    assert_eq!(parse_at("gate/0:120,capacity/0:31"), Ok(At::Sequence(120)));
    for wrong in ["", "yesterday", "12a", "2024-02-29", "99999999999999999999999", "capacity/0:31", "gate/0:"] {
        assert!(parse_at(wrong).is_err(), "{wrong}");
    }
    assert!(parse("gatelog replay state").unwrap_err().contains("--at"));
}

#[test]
fn streams_kinds_and_ranges_of_log_cat() {
    let Command::Log(LogCommand::Cat(args)) =
        parse("gatelog log cat capacity.events/1 --from 3 --to 9 --kind a --kind b --key demo --json").unwrap().command
    else {
        panic!()
    };
    assert_eq!((args.stream.to_string().as_str(), args.from, args.to), ("capacity.events/1", Some(3), Some(9)));
    assert_eq!((args.kind, args.key.as_deref(), args.json), (vec!["a".to_owned(), "b".to_owned()], Some("demo"), true));
    let Command::Log(LogCommand::Cat(args)) = parse("gatelog log cat").unwrap().command else { panic!() };
    assert_eq!(args.stream.to_string(), "gate.events/0");
    assert!(parse("gatelog log cat gate.evenst").unwrap_err().contains("names no stream"));
    assert!(parse("gatelog log cat --follow --to 3").is_err());
}

#[test]
fn a_misspelt_command_is_understood() {
    assert!(parse("gatelog explian x").unwrap_err().contains("'explain'"));
}

/// Every help text as it is printed, at a fixed width. Run with `GATELOG_UPDATE_GOLDENS=1` to write it anew.
#[test]
fn help_is_as_it_was() {
    let mut text = String::new();
    all(&command().term_width(110), "gatelog", &mut text);
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/help.golden.txt");
    if std::env::var_os("GATELOG_UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert!(golden == text, "the help changed; if it should have, run this test with GATELOG_UPDATE_GOLDENS=1\n{text}");
}

fn all(command: &clap::Command, name: &str, text: &mut String) {
    let mut built = command.clone();
    built.build();
    let mut shown = built.clone().bin_name(name);
    text.push_str(&format!("==== {name} --help\n{}\n", shown.render_long_help()));
    for sub in built.get_subcommands().filter(|sub| sub.get_name() != "help") {
        all(&sub.clone().term_width(110), &format!("{name} {}", sub.get_name()), text);
    }
}

#[test]
fn every_command_has_examples_and_exit_codes_in_its_help() {
    fn leaves(command: &clap::Command, into: &mut Vec<(String, String)>) {
        let mut subs = command.get_subcommands().peekable();
        if subs.peek().is_none() {
            let help = command.clone().render_long_help().to_string();
            into.push((command.get_name().to_owned(), help));
        }
        subs.for_each(|sub| leaves(sub, into));
    }
    let mut found = Vec::new();
    leaves(&command(), &mut found);
    assert_eq!(found.len(), 71);
    for (name, help) in found {
        assert!(help.contains("Examples:\n  gatelog ") && help.contains("Exit codes: 0 ok"), "{name}: {help}");
    }
}
