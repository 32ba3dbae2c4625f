use super::*;

fn app(tenant: &str) -> Wanted<'_> {
    Wanted { tenant, connection: "forge", project: "app", trusted: false }
}

/// The lines that came in, each with the line before it.
fn came(text: &str, wanted: &Wanted<'_>) -> Vec<String> {
    let Edited::Text { text: new, line } = wanted.put_into(text).unwrap() else { panic!("it is there already") };
    let (old_lines, new_lines): (Vec<&str>, Vec<&str>) = (text.lines().collect(), new.lines().collect());
    let more = new_lines.len() - old_lines.len();
    let first = (0..old_lines.len()).find(|at| old_lines[*at] != new_lines[*at]).unwrap_or(old_lines.len());
    assert_eq!([&old_lines[..first], &old_lines[first..]], [&new_lines[..first], &new_lines[first + more..]], "{new}");
    assert!(new_lines[line - 1].contains(wanted.project), "{line}: {new}");
    assert_eq!(wanted.put_into(&new).unwrap(), Edited::There, "{new}");
    new_lines[first.saturating_sub(1)..first + more].iter().map(|line| (*line).to_owned()).collect()
}

const FILE: &str = "\
# Who has what.
- global-semaphore: {name: disk, max: 2}

- tenant:
    name: one   # the first
    source:
      forge:
        config-projects:
          - config
        untrusted-projects:
          - library     # in C
          # to come: more
          - docs:
              include: []

    # what they may take
    max-nodes-per-job: 3

- tenant:
    name: two
    source:
      other:
        untrusted-projects:
        - tools
";

#[test]
fn a_project_goes_behind_the_others_of_its_kind_and_all_else_stays() {
    assert_eq!(came(FILE, &app("one")), ["              include: []", "          - app"]);
    let trusted = Wanted { trusted: true, ..app("one") };
    assert_eq!(came(FILE, &trusted), ["          - config", "          - app"]);
    let crlf = FILE.replace('\n', "\r\n");
    let Edited::Text { text, .. } = app("one").put_into(&crlf).unwrap() else { panic!() };
    assert!(text.contains("          - app\r\n") && !text.replace("\r\n", "").contains('\n'), "{text}");
}

#[test]
fn what_is_missing_above_it_comes_with_it() {
    let other = Wanted { connection: "other", trusted: true, ..app("two") };
    assert_eq!(came(FILE, &other), ["        - tools", "        config-projects:", "          - app"]);
    let forge = ["        - tools", "      forge:", "        untrusted-projects:", "          - app"];
    assert_eq!(came(FILE, &app("two")), forge);
    let bare = "- tenant:\n    name: bare";
    let whole = ["    name: bare", "    source:", "      forge:", "        untrusted-projects:", "          - app"];
    assert_eq!(came(bare, &app("bare")), whole);
    let empty =
        "- tenant:\n    name: bare\n    source:\n      forge:\n        untrusted-projects:\n    max-nodes-per-job: 3\n";
    assert_eq!(came(empty, &app("bare")), ["        untrusted-projects:", "          - app"]);
}

#[test]
fn a_tenant_that_is_not_there_is_made() {
    let lines =
        ["- tenant:", "    name: new", "    source:", "      forge:", "        untrusted-projects:", "          - app"];
    assert_eq!(came(FILE, &app("new"))[1..], lines);
    assert_eq!(came("", &app("new")), lines);
    assert_eq!(came("# nothing yet\n", &app("new"))[1..], lines);
    assert_eq!(app("new").shown(), lines);
}

#[test]
fn a_list_in_brackets_gets_an_item_more() {
    let text = "- tenant: {name: t, source: {forge: {untrusted-projects: [a, b], config-projects: []}}}  # all\n";
    let Edited::Text { text: new, line: 1 } = app("t").put_into(text).unwrap() else { panic!() };
    assert_eq!(new, text.replace("[a, b]", "[a, b, app]"));
    let Edited::Text { text: new, .. } = Wanted { trusted: true, ..app("t") }.put_into(text).unwrap() else { panic!() };
    assert_eq!(new, text.replace("[]", "[app]"));
}

#[test]
fn what_cannot_be_done_soundly_is_refused() {
    let no = |text: &str, wanted: &Wanted<'_>| wanted.put_into(text).unwrap_err();
    let flow = "- tenant: {name: t, source: {other: {untrusted-projects: [a]}}}\n";
    assert!(no(flow, &app("t")).contains("written in one line"));
    // A list that two tenants share: the other one would get the project, too.
    let shared = "- tenant:\n    name: t\n    source:\n      forge:\n        untrusted-projects: &all\n          - a\n- tenant:\n    \
                  name: u\n    source:\n      forge:\n        untrusted-projects: *all\n";
    assert!(no(shared, &app("t")).contains("tenant u would come out otherwise"), "{}", no(shared, &app("t")));
    assert!(no("- tenant:\n    nam: t\n", &app("t")).contains("it has an error, in line"));
    assert!(no("- [", &app("t")).contains("cannot be read"));
    assert!(no(FILE, &Wanted { project: "library", trusted: true, ..app("one") }).contains("move it by hand"));
    let map = "- tenant:\n    name: t\n    source:\n      forge:\n        untrusted-projects:\n          a: {}\n";
    assert!(no(map, &app("t")).contains("is no list"));
}

#[test]
fn names_that_yaml_would_take_for_something_else_are_quoted() {
    for name in ["1.0", "true", "null", "a#b", "größe"] {
        let wanted = Wanted { project: name, ..app("one") };
        assert!(matches!(wanted.put_into(FILE), Ok(Edited::Text { .. })), "{name}");
    }
}
