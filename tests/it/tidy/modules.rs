//! Modules of a crate: the source files that its root reaches by `mod x;`.

use std::path::{Path, PathBuf};

use syn::{Expr, ExprLit, Ident, Item, ItemMod, Lit, Meta};

use super::read;

/// One module that has a file.
pub(crate) struct Module {
    /// Its path from the crate's root on.
    pub(crate) path: Vec<String>,
    pub(crate) file: PathBuf,
    /// What the file says, without its unit tests.
    pub(crate) items: Vec<Item>,
    /// It is compiled for unit tests only.
    pub(crate) is_test: bool,
}

impl Module {
    /// Tells whether it is a `lib.rs` or `mod.rs` that only declares and re-exports: a table of contents.
    pub(crate) fn is_contents(&self) -> bool {
        let only_contents = self.items.iter().all(|item| match item {
            Item::ExternCrate(_) | Item::Use(_) => true,
            Item::Mod(module) => {
                let content = module.content.as_ref();
                content.is_none_or(|(_, items)| items.is_empty())
            }
            _ => false,
        });
        only_contents && (self.file.ends_with("lib.rs") || self.file.ends_with("mod.rs"))
    }
}

/// Reads all modules of the crate that has this file as its root.
pub(crate) fn modules(root: &Path) -> Vec<Module> {
    let folder = root.parent().expect("a folder");
    let mut found = Vec::new();
    follow(root, folder, Vec::new(), false, &mut found);
    found
}

/// Reads one module, and those below it, which are in `folder`.
fn follow(file: &Path, folder: &Path, path: Vec<String>, is_test: bool, found: &mut Vec<Module>) {
    let syntax = syn::parse_file(&read(file));
    let items = syntax.unwrap_or_else(|error| panic!("{}: {error}", file.display())).items;
    for module in items.iter().filter_map(with_file) {
        let name = module.ident.to_string();
        let inner = folder.join(&name);
        let flat = folder.join(given_path(module).unwrap_or_else(|| format!("{name}.rs")));
        let child = match flat.exists() {
            true => flat,
            false => inner.join("mod.rs"),
        };
        let path = [&path[..], &[name]].concat();
        let is_test = is_test || is_unit_test(module);
        follow(&child, &inner, path, is_test, found);
    }
    found.push(Module { path, file: file.to_owned(), items: without_tests(items), is_test });
}

/// Leaves out the unit tests, whether they are in this file or in one of their own.
pub(crate) fn without_tests(mut items: Vec<Item>) -> Vec<Item> {
    items.retain(|item| !matches!(item, Item::Mod(module) if is_unit_test(module)));
    items
}

/// Returns the module that an item declares, if that has a file of its own.
pub(crate) fn with_file(item: &Item) -> Option<&ItemMod> {
    match item {
        Item::Mod(module) if module.content.is_none() => Some(module),
        _ => None,
    }
}

/// Returns the file that `#[path = "…"]` names.
fn given_path(module: &ItemMod) -> Option<String> {
    module.attrs.iter().find_map(|attribute| {
        let Meta::NameValue(given) = &attribute.meta else {
            return None;
        };
        match &given.value {
            Expr::Lit(ExprLit { lit: Lit::Str(file), .. }) if given.path.is_ident("path") => {
                Some(file.value())
            }
            _ => None,
        }
    })
}

/// Tells whether it has `#[cfg(test)]`.
fn is_unit_test(module: &ItemMod) -> bool {
    module.attrs.iter().any(|attribute| {
        let condition = attribute.parse_args::<Ident>();
        attribute.path().is_ident("cfg") && condition.is_ok_and(|it| it == "test")
    })
}
