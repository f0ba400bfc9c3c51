//! Planted bugs stand one in a function, beside the decision that each one spoils.

use std::collections::BTreeSet;

use asterism_tidy::{must_be_empty, sources};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Expr, ExprCall, ImplItemFn, ItemFn, Macro, Token, TraitItemFn};

#[test]
fn a_function_asks_for_one_planted_bug() {
    let mut faults = Vec::new();
    for source in sources(&[".rs"]) {
        let ships = source.path.starts_with("crates/") && source.path.contains("/src/");
        if !ships {
            continue;
        }
        let file = syn::parse_file(&source.text)
            .unwrap_or_else(|error| panic!("{}: {error}", source.path));
        for (function, bugs) in several(&file) {
            let bugs: Vec<_> = bugs.into_iter().collect();
            faults.push(format!(
                "{}: `{function}` asks for {}: give each decision a function",
                source.path,
                bugs.join(", ")
            ));
        }
    }
    must_be_empty(&faults);
}

#[test]
fn several_bugs_are_found_in_closures_and_macros_but_not_across_functions() {
    let file = syn::parse_file(
        "impl Table {
            fn one(&self) -> bool { mutant::active(Mutant::A) && placed::active(placed::Mutant::A) }
            fn closure(&self) { each(|| mutant::active(Mutant::B)); assert!(active(Mutant::C)); }
            fn around(&self) {
                fn within() -> bool { mutant::active(Mutant::D) }
                mutant::active(Mutant::E);
            }
        }",
    );
    let found = several(&file.expect("Rust"));
    let bugs: BTreeSet<String> = ["B", "C"].map(str::to_owned).into();
    assert_eq!(found, [("closure".to_owned(), bugs)]);
}

/// The functions that ask for more than one planted bug.
fn several(file: &syn::File) -> Vec<(String, BTreeSet<String>)> {
    let mut functions = Functions::default();
    functions.visit_file(file);
    functions.found.retain(|(_, bugs)| bugs.len() > 1);
    functions.found
}

/// What functions ask for, each after those within it.
#[derive(Default)]
struct Functions {
    /// What the function asks for in which the visit is.
    bugs: BTreeSet<String>,
    found: Vec<(String, BTreeSet<String>)>,
}

impl Functions {
    fn within(&mut self, name: &syn::Ident, visit: impl FnOnce(&mut Self)) {
        let around = core::mem::take(&mut self.bugs);
        visit(self);
        let bugs = core::mem::replace(&mut self.bugs, around);
        self.found.push((name.to_string(), bugs));
    }
}

impl<'a> Visit<'a> for Functions {
    fn visit_item_fn(&mut self, function: &'a ItemFn) {
        self.within(&function.sig.ident, |all| {
            visit::visit_item_fn(all, function)
        });
    }
    fn visit_impl_item_fn(&mut self, function: &'a ImplItemFn) {
        self.within(&function.sig.ident, |all| {
            visit::visit_impl_item_fn(all, function)
        });
    }
    fn visit_trait_item_fn(&mut self, function: &'a TraitItemFn) {
        self.within(&function.sig.ident, |all| {
            visit::visit_trait_item_fn(all, function)
        });
    }
    fn visit_expr_call(&mut self, call: &'a ExprCall) {
        if let Expr::Path(called) = &*call.func
            && called
                .path
                .segments
                .last()
                .is_some_and(|name| name.ident == "active")
            && let Some(Expr::Path(bug)) = call.args.first()
            && bug.path.segments.iter().any(|name| name.ident == "Mutant")
            && let Some(name) = bug.path.segments.last()
        {
            self.bugs.insert(name.ident.to_string());
        }
        visit::visit_expr_call(self, call);
    }
    fn visit_macro(&mut self, written: &'a Macro) {
        let parts = written.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated);
        for part in parts.iter().flatten() {
            // The parts are of this call alone: they cannot be lent for as long as the file.
            let mut within = Functions::default();
            within.visit_expr(part);
            self.bugs.append(&mut within.bugs);
        }
    }
}
