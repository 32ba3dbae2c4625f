//! Modules of a crate that need each other: none of them can be read, tested or moved without all the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gatelog_architecture::{metadata, root};
use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use syn::visit::{self, Visit};
use syn::{Item, ItemMod, ItemUse, UseTree, Visibility};

use crate::dependencies::members;

/// The most modules that may need each other in a circle.
const LARGEST: usize = 5;

/// Crates with larger circles, and how large their largest one is today. A figure may only go down.
const LARGER: &[(&str, usize)] = &[
    ("replay", 11),
    ("services/drivers/git", 8),
    ("services/executing", 9),
    ("services/gatelog", 43),
    ("services/rules/config", 27),
    ("services/rules/gate", 15),
    ("services/secrets", 6),
    ("services/web", 52),
];

/// A module by the names on the way to it from the crate's root, which is the empty way.
type Module = Vec<String>;

/// One crate's modules: what each names of the others.
#[derive(Default)]
struct Crate {
    modules: BTreeSet<Module>,
    /// What `pub use` makes of a name in a module: the way to the real item.
    reexports: BTreeMap<(Module, String), Vec<String>>,
    /// The ways that a module names, from the crate's root.
    named: BTreeMap<Module, BTreeSet<Vec<String>>>,
}

impl Crate {
    /// Reads a module's file and those of the modules it declares.
    fn read(&mut self, file: &Path, directory: &Path, module: &Module) {
        let text = std::fs::read_to_string(file).unwrap();
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.take_items(&parsed.items, directory, module);
    }

    fn take_items(&mut self, items: &[Item], directory: &Path, module: &Module) {
        self.modules.insert(module.clone());
        for item in items {
            match item {
                Item::Mod(child) => self.take_module(child, directory, module),
                Item::Use(import) => self.take_import(import, module),
                _ => {
                    let mut names = Names { module, found: BTreeSet::new() };
                    names.visit_item(item);
                    self.named.entry(module.clone()).or_default().extend(names.found);
                }
            }
        }
    }

    fn take_module(&mut self, child: &ItemMod, directory: &Path, module: &Module) {
        if is_for_tests(&child.attrs) {
            return;
        }
        let name = child.ident.to_string();
        let inner = [module.as_slice(), std::slice::from_ref(&name)].concat();
        if let Some((_, items)) = &child.content {
            self.take_items(items, &directory.join(&name), &inner);
            return;
        }
        let beside = directory.join(format!("{name}.rs"));
        let file = if beside.is_file() { beside } else { directory.join(&name).join("mod.rs") };
        if file.is_file() {
            self.read(&file, &directory.join(&name), &inner);
        }
    }

    fn take_import(&mut self, import: &ItemUse, module: &Module) {
        let mut leaves = Vec::new();
        flatten(&import.tree, &mut Vec::new(), &mut leaves);
        for (path, name) in leaves {
            let Some(path) = from_root(&path, module, &self.modules) else { continue };
            // A name that a module only hands on is no use of it.
            if !matches!(import.vis, Visibility::Inherited) {
                self.reexports.insert((module.clone(), name), path);
            } else {
                self.named.entry(module.clone()).or_default().insert(path);
            }
        }
    }

    /// The module where an item named by a way stands, through what is handed on.
    fn home(&self, path: &[String]) -> Option<Module> {
        let mut path = path.to_vec();
        // A circle of re-exports does not compile; the bound is for what this reader misreads.
        for _ in 0..20 {
            let depth = (0..=path.len()).rev().find(|depth| self.modules.contains(&path[..*depth]))?;
            let module = path[..depth].to_vec();
            let next = path.get(depth).and_then(|name| self.reexports.get(&(module.clone(), name.clone())));
            match next {
                Some(real) => path = [real.as_slice(), &path[depth + 1..]].concat(),
                None => return Some(module),
            }
        }
        None
    }

    /// The largest circle: each of its modules with those that it needs of the others. Empty where there is none.
    fn largest_circle(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut graph = DiGraph::<&Module, ()>::new();
        let nodes: BTreeMap<&Module, NodeIndex> =
            self.modules.iter().map(|module| (module, graph.add_node(module))).collect();
        for (module, paths) in &self.named {
            for home in paths.iter().filter_map(|path| self.home(path)).filter(|home| home != module) {
                graph.update_edge(nodes[module], nodes[&home], ());
            }
        }
        let written = |node: NodeIndex| if graph[node].is_empty() { "crate".into() } else { graph[node].join("::") };
        let circles = tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1);
        let largest: BTreeSet<NodeIndex> = circles.max_by_key(Vec::len).unwrap_or_default().into_iter().collect();
        let needs = |node| graph.neighbors(node).filter(|needed| largest.contains(needed)).map(written).collect();
        largest.iter().map(|node| (written(*node), needs(*node))).collect()
    }
}

/// Finds the ways that begin at the crate in an item.
struct Names<'a> {
    module: &'a Module,
    found: BTreeSet<Vec<String>>,
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        // A name without `crate`, `self` or `super` was imported, or stands in this module.
        if names.len() > 1
            && matches!(names[0].as_str(), "crate" | "super" | "self")
            && let Some(path) = from_root(&names, self.module, &BTreeSet::new())
        {
            self.found.insert(path);
        }
        visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}
}

/// A way as it goes from the crate's root. `None` where it begins at another crate.
fn from_root(path: &[String], module: &Module, modules: &BTreeSet<Module>) -> Option<Vec<String>> {
    let rest = &path[1..];
    match path.first()?.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module, rest].concat()),
        "super" => {
            let mut base = module[..module.len().checked_sub(1)?].to_vec();
            let more = rest.iter().take_while(|name| *name == "super").count();
            base.truncate(base.len().checked_sub(more)?);
            Some([base.as_slice(), &rest[more..]].concat())
        }
        // A child of this module by its bare name.
        child => {
            let inner = [module.as_slice(), &[child.to_owned()]].concat();
            modules.contains(&inner).then(|| [module.as_slice(), path].concat())
        }
    }
}

/// Each leaf of a `use` with the name that it has here.
fn flatten(tree: &UseTree, before: &mut Vec<String>, leaves: &mut Vec<(Vec<String>, String)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, leaves);
            before.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            leaves.push((before.clone(), before.last().cloned().unwrap_or_default()));
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            leaves.push(([before.as_slice(), std::slice::from_ref(&name)].concat(), name));
        }
        UseTree::Rename(renamed) => {
            let path = [before.as_slice(), &[renamed.ident.to_string()]].concat();
            leaves.push((path, renamed.rename.to_string()));
        }
        UseTree::Glob(_) => leaves.push((before.clone(), "*".into())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, leaves)),
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

/// The roots of a crate: its library, or its program.
fn entry(folder: &Path) -> Option<PathBuf> {
    ["src/lib.rs", "src/main.rs"].iter().map(|file| folder.join(file)).find(|file| file.is_file())
}

#[test]
fn no_large_circle_of_modules() {
    let mut wrong = Vec::new();
    for folder in members(&metadata().unwrap()).into_keys() {
        let Some(file) = entry(&root().join(&folder)) else { continue };
        let mut read = Crate::default();
        // Twice: a bare name of a child is known once the child was seen.
        for _ in 0..2 {
            read.read(&file, file.parent().unwrap(), &Vec::new());
        }
        let largest = read.largest_circle();
        let listed = LARGER.iter().find(|(name, _)| *name == folder.as_str()).map(|(_, size)| *size);
        let limit = listed.unwrap_or(LARGEST);
        if largest.len() > limit {
            wrong.push(format!("{folder}: {} modules in one circle, {limit} may be", largest.len()));
            wrong.extend(largest.iter().map(|(module, needs)| format!("    {module} needs {needs:?}")));
        }
        if listed.is_some_and(|size| largest.len() < size) {
            wrong.push(format!("{folder}: the largest circle has {} modules now: write that down", largest.len()));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}
