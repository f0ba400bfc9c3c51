//! Import circles: groups of files of a crate of which each imports all others, directly or by way of one another. A circle has no
//! order in which it can be read. The test of the tree and the measure `tree.circles` use this.
//!
//! An import is a `use`, or a path that begins with `crate`, `super`, `self` or a child module. It leads to the file that defines the
//! name: re-exports (`pub use`) are followed and are no imports themselves. Test modules do not count, nor what macros write.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree, Visibility};

use crate::Source;

/// Files of a circle at most.
pub const FILES_MAX: usize = 10;

/// Lines of a crate at most, its unit tests included: what is longer has more than one subject.
pub const LINES_MAX: usize = 18_000;

/// The shape of a crate.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The name of its folder.
    pub name: String,
    /// Lines of its sources.
    pub lines: usize,
    /// Its circles of more than one file.
    pub circles: Vec<Vec<String>>,
}

/// The shapes of all crates that ship and whose sources are among these.
#[must_use]
pub fn crates(sources: &[Source]) -> Vec<Shape> {
    let name = |source: &Source| {
        let (name, _) = source.path.strip_prefix("crates/")?.split_once("/src/")?;
        Some(name.to_owned())
    };
    let names: BTreeSet<String> = sources.iter().filter_map(name).collect();
    let shape = |name: String| {
        let folder = format!("crates/{name}/src/");
        let own = sources.iter().filter(|one| one.path.starts_with(&folder));
        Shape {
            lines: own.map(|source| source.text.lines().count()).sum(),
            circles: circles(sources, &folder),
            name,
        }
    };
    names.into_iter().map(shape).collect()
}

/// A path of names, such as `crate`, `table`, `Row`.
type Names = Vec<String>;

/// What the analysis needs to know of a file.
#[derive(Default)]
struct Module {
    /// What it exports under a name, and from where.
    exports: BTreeMap<String, Names>,
    imports: BTreeSet<Names>,
    children: BTreeSet<String>,
}

/// All circles of more than one file in the crate whose sources lie in `folder`, such as `crates/state/src/`. Each is a list of paths
/// below that folder.
///
/// # Panics
/// When a file is no Rust.
#[must_use]
pub fn circles(sources: &[Source], folder: &str) -> Vec<Vec<String>> {
    let mut paths = BTreeMap::new();
    let mut modules = BTreeMap::new();
    for source in sources {
        let Some(below) = source.path.strip_prefix(folder) else {
            continue;
        };
        let Some(name) = module_name(below) else {
            continue;
        };
        let file = syn::parse_file(&source.text)
            .unwrap_or_else(|error| panic!("{}: {error}", source.path));
        let mut module = Module::default();
        module.visit_file(&file);
        paths.insert(name.clone(), below.to_owned());
        modules.insert(name, module);
    }
    let imported: BTreeMap<&Names, BTreeSet<Names>> = modules
        .iter()
        .map(|(name, module)| {
            let found = module.imports.iter();
            let found = found.filter_map(|path| resolve(&modules, name, path, 0));
            (name, found.filter(|other| other != name).collect())
        })
        .collect();
    let reached: BTreeMap<&Names, BTreeSet<&Names>> = imported
        .keys()
        .map(|name| (*name, reach(&imported, name)))
        .collect();
    let mut found = BTreeSet::new();
    for (name, others) in &reached {
        let circle = others
            .iter()
            .filter(|other| reached[**other].contains(name));
        let circle: Vec<String> = circle.map(|other| paths[*other].clone()).collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

/// The module of a file; `None` for tests.
fn module_name(below: &str) -> Option<Names> {
    let mut names: Names = below
        .strip_suffix(".rs")?
        .split('/')
        .map(str::to_owned)
        .collect();
    if names.iter().any(|name| name == "tests" || name == "bin") {
        return None;
    }
    match names.last().map(String::as_str) {
        Some("mod") => _ = names.pop(),
        Some("lib") if names.len() == 1 => names.clear(),
        _ => {}
    }
    Some(names)
}

/// The module that defines what a path names, as `from` sees it; `None` if it lies outside the crate.
fn resolve(
    modules: &BTreeMap<Names, Module>,
    from: &Names,
    path: &[String],
    depth: usize,
) -> Option<Names> {
    let (first, mut rest) = path.split_first()?;
    let mut at = match first.as_str() {
        "crate" => Names::new(),
        "self" => from.clone(),
        "super" => from[..from.len().checked_sub(1)?].to_vec(),
        child if modules.get(from)?.children.contains(child) => {
            rest = path;
            from.clone()
        }
        _ => return None,
    };
    while let Some((name, after)) = rest.split_first() {
        if name == "super" {
            at.pop();
            rest = after;
            continue;
        }
        let mut child = at.clone();
        child.push(name.clone());
        if modules.contains_key(&child) {
            at = child;
            rest = after;
            continue;
        }
        // Re-exports of re-exports are few; a circle of them would not compile.
        let exported = modules.get(&at).and_then(|module| module.exports.get(name));
        if let (Some(source), true) = (exported, depth < 8) {
            let whole: Names = source.iter().chain(after).cloned().collect();
            return resolve(modules, &at, &whole, depth + 1).or(Some(at));
        }
        break;
    }
    modules.contains_key(&at).then_some(at)
}

/// All modules that one imports, directly or by way of others.
fn reach<'a>(
    imported: &'a BTreeMap<&Names, BTreeSet<Names>>,
    from: &'a Names,
) -> BTreeSet<&'a Names> {
    let mut reached = BTreeSet::new();
    let mut left = vec![from];
    while let Some(name) = left.pop() {
        for other in &imported[name] {
            if reached.insert(other) {
                left.push(other);
            }
        }
    }
    reached
}

/// Whether an item is compiled for tests alone.
fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        is_cfg
            && attribute
                .parse_args::<syn::Ident>()
                .is_ok_and(|word| word == "test")
    })
}

/// All names that a `use` takes, each with the name that it gets; `*` for all of a module.
fn taken(tree: &UseTree, before: &mut Names, found: &mut Vec<(String, Names)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            taken(&path.tree, before, found);
            before.pop();
        }
        UseTree::Group(group) => group
            .items
            .iter()
            .for_each(|tree| taken(tree, before, found)),
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            let whole = before.iter().cloned();
            match name.as_str() {
                "self" => {
                    let name = before.last().cloned().unwrap_or_default();
                    found.push((name, whole.collect()));
                }
                _ => found.push((name.clone(), whole.chain([name]).collect())),
            }
        }
        UseTree::Rename(rename) => {
            let whole = before.iter().cloned().chain([rename.ident.to_string()]);
            found.push((rename.rename.to_string(), whole.collect()));
        }
        UseTree::Glob(_) => found.push(("*".to_owned(), before.clone())),
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_of_tests(attributes) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if item.content.is_none() {
            self.children.insert(item.ident.to_string());
        }
        syn::visit::visit_item_mod(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let mut found = Vec::new();
        taken(&item.tree, &mut Names::new(), &mut found);
        let is_export = !matches!(item.vis, Visibility::Inherited);
        for (name, path) in found {
            match is_export {
                true => _ = self.exports.insert(name, path),
                false => _ = self.imports.insert(path),
            }
        }
    }

    // `pub(in super::super)` says who may import, and imports nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let names = path.segments.iter().map(|part| part.ident.to_string());
            self.imports.insert(names.collect());
        }
        syn::visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| Source {
                path: format!("crates/a/src/{path}"),
                text: (*text).to_owned(),
            })
            .collect();
        circles(&sources, "crates/a/src/")
    }

    #[test]
    fn files_that_import_each_other_are_a_circle_and_those_that_do_not_are_none() {
        let root = ("lib.rs", "mod a; mod b; pub mod c; pub use b::B;");
        let c = ("c/mod.rs", "mod d; pub use d::D;");
        // By the re-export of the root, b by a path, and back by way of c.
        let circle = [
            root,
            ("a.rs", "use crate::B;"),
            ("b.rs", "fn b() { crate::c::D::new() }"),
            c,
            ("c/d.rs", "use super::super::a; pub struct D;"),
        ];
        assert_eq!(of(&circle), [["a.rs", "b.rs", "c/d.rs"]]);
        let none = [
            root,
            (
                "a.rs",
                "use crate::B; #[cfg(test)] mod tests { use crate::c; }",
            ),
            ("b.rs", "use crate::c::*;"),
            c,
            ("c/d.rs", "use std::a; pub struct D;"),
        ];
        assert_eq!(of(&none), Vec::<Vec<String>>::new());
    }

    #[test]
    fn a_child_that_uses_what_its_parent_defines_is_in_a_circle_with_it() {
        let two = [
            ("lib.rs", "mod a; struct Base; fn f() { a::g() }"),
            ("a.rs", "use crate::Base; pub fn g() {}"),
        ];
        assert_eq!(of(&two), [["lib.rs", "a.rs"]]);
    }
}
