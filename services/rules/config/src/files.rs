//! Which files of a repository are configuration.

/// The four places, best first. Zuul: the first that exists on a branch counts, the others do not.
const ROOTS: [&str; 4] = ["zuul.yaml", "zuul.d/", ".zuul.yaml", ".zuul.d/"];

/// A file whose name ends so keeps its directory out.
pub const IGNORE: &str = ".zuul.ignore";

/// Whether a change of this file may change configuration.
///
/// `extra` are the project's `extra-config-paths`; one that ends in `/` is a directory.
pub fn is_config_path(path: &str, extra: &[String]) -> bool {
    let of_root = |root: &str| match root.strip_suffix('/') {
        Some(_) => path.starts_with(root) && (path.ends_with(".yaml") || path.ends_with(IGNORE)),
        None => path == root,
    };
    ROOTS.iter().any(|root| of_root(root)) || extra.iter().any(|prefix| path.starts_with(prefix.as_str()))
}

/// What [`select_config_files`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The files to read, in the order of reading.
    pub files: Vec<String>,
    /// The places that exist, too, but do not count.
    pub ignored_roots: Vec<&'static str>,
}

/// Chooses the configuration files among the paths of one branch of one repository.
pub fn select_config_files<'a>(paths: impl IntoIterator<Item = &'a str>, extra: &[String]) -> Selection {
    let mut paths: Vec<&str> = paths.into_iter().collect();
    paths.sort_unstable();
    paths.dedup();
    let below = |root: &str| -> Vec<String> {
        if !root.ends_with('/') {
            return paths.iter().filter(|path| **path == root).map(|path| (*path).to_owned()).collect();
        }
        let inside = || paths.iter().filter(|path| path.starts_with(root));
        // Zuul: the file's directory is kept out and, as the slash is not part of what is compared, whatever begins
        // with its name. The root keeps itself out as a whole.
        let kept_out: Vec<&str> = inside()
            .filter(|path| path.ends_with(IGNORE))
            .filter_map(|path| path.rsplit_once('/'))
            .map(|(directory, _)| directory)
            .collect();
        inside()
            .filter(|path| path.ends_with(".yaml") && !kept_out.iter().any(|prefix| path.starts_with(prefix)))
            .map(|path| (*path).to_owned())
            .collect()
    };
    let mut selection = Selection::default();
    for root in ROOTS {
        let found = below(root);
        if found.is_empty() {
            continue;
        }
        if selection.files.is_empty() {
            selection.files = found;
        } else {
            selection.ignored_roots.push(root);
        }
    }
    // Zuul: the files among the extra paths come before the directories, whatever their order in the list.
    let (directories, single): (Vec<&String>, Vec<&String>) = extra.iter().partition(|root| root.ends_with('/'));
    for root in single.into_iter().chain(directories) {
        for path in below(root) {
            if !selection.files.contains(&path) {
                selection.files.push(path);
            }
        }
    }
    selection
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_counts_and_the_others_are_named() {
        let found = select_config_files([".zuul.yaml", "zuul.d/b.yaml", "zuul.d/a.yaml", "zuul.d/README"], &[]);
        assert_eq!(found.files, ["zuul.d/a.yaml", "zuul.d/b.yaml"]);
        assert_eq!(found.ignored_roots, [".zuul.yaml"]);
    }

    #[test]
    fn an_ignore_file_keeps_its_subtree_out() {
        let found = select_config_files(["zuul.d/a.yaml", "zuul.d/x/.zuul.ignore", "zuul.d/x/y/b.yaml"], &[]);
        assert_eq!(found.files, ["zuul.d/a.yaml"]);
    }

    #[test]
    fn extra_paths_come_in_addition() {
        let extra = vec!["ci/".to_owned(), "more.yaml".to_owned()];
        let found = select_config_files(["zuul.yaml", "more.yaml", "ci/x.yaml", "ci/y.txt"], &extra);
        assert_eq!(found.files, ["zuul.yaml", "more.yaml", "ci/x.yaml"]);
        assert!(is_config_path("ci/anything", &extra));
        assert!(is_config_path(".zuul.d/a/b.yaml", &[]));
        assert!(!is_config_path("zuul.d/a.txt", &[]));
        assert!(!is_config_path("playbooks/run.yaml", &[]));
    }
}
