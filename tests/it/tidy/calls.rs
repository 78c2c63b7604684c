//! Calls between the source files of a crate, found in the paths that their code names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::Item;

use super::modules::{Module, modules, with_file};

/// One source file of a crate, without its unit tests.
pub(crate) struct Source {
    pub(crate) file: PathBuf,
    /// The paths that its code names, from the crate's root on.
    pub(crate) paths: Vec<Vec<String>>,
    /// A table of contents, not a caller.
    pub(crate) is_contents: bool,
}

/// All modules of a crate that have a file, by their paths from the root on.
pub(crate) struct Crate {
    pub(crate) modules: BTreeMap<Vec<String>, Source>,
    /// What tables of contents import or re-export: the name there, and what it stands for.
    exports: BTreeMap<(Vec<String>, String), Vec<String>>,
}

impl Crate {
    /// Reads a crate from the folder that has its `lib.rs`.
    pub(crate) fn read(folder: &Path) -> Self {
        let mut found = Self { modules: BTreeMap::new(), exports: BTreeMap::new() };
        let modules = modules(&folder.join("lib.rs")).into_iter();
        modules.filter(|module| !module.is_test).for_each(|module| found.add(module));
        found
    }

    fn add(&mut self, module: Module) {
        let named = paths(&module.items, &module.path);
        let is_contents = module.is_contents();
        if is_contents {
            for (name, path) in &named {
                let name = name.clone().or(path.last().cloned());
                let key = (module.path.clone(), name.unwrap_or_default());
                self.exports.insert(key, path.clone());
            }
        }
        let source = Source {
            file: module.file,
            paths: named.into_iter().map(|(_, path)| path).collect(),
            is_contents,
        };
        self.modules.insert(module.path, source);
    }

    /// The module where a path leads, re-exports followed.
    pub(crate) fn leads_to(&self, path: &[String]) -> &[String] {
        let mut path = path.to_vec();
        // A re-export may name another; none is as long a chain as this.
        for _ in 0..16 {
            let known = (0..=path.len())
                .rev()
                .find(|n| self.modules.contains_key(&path[..*n]))
                .unwrap_or(0);
            let (module, rest) = path.split_at(known);
            let exported =
                rest.first().and_then(|name| self.exports.get(&(module.to_vec(), name.clone())));
            match exported {
                Some(target) if target != &path => path = [target, &rest[1..]].concat(),
                _ => {
                    let found = self.modules.get_key_value(module);
                    return found.map_or(&[], |(module, _)| module);
                }
            }
        }
        panic!("{path:?} is re-exported in a cycle");
    }

    /// Which module calls which; tables of contents call none.
    pub(crate) fn calls(&self) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
        let callers = self.modules.iter().filter(|(_, source)| !source.is_contents);
        callers
            .map(|(module, source)| {
                let called = source.paths.iter().map(|path| self.leads_to(path).to_vec());
                (module.clone(), called.filter(|other| other != module).collect())
            })
            .collect()
    }
}

/// Those that are in a cycle, or on a way from one cycle to another.
pub(crate) fn cycles<T: Ord + Clone>(calls: &BTreeMap<T, BTreeSet<T>>) -> BTreeSet<T> {
    let mut left: BTreeSet<T> = calls.keys().cloned().collect();
    loop {
        // Takes away each one that calls none of the others, and each that none of the others calls.
        let calls_one = |it: &T| calls[it].iter().any(|other| left.contains(other));
        let is_called = |it: &T| left.iter().any(|other| calls[other].contains(it));
        let next: BTreeSet<T> =
            left.iter().filter(|it| calls_one(it) && is_called(it)).cloned().collect();
        if next == left {
            return left;
        }
        left = next;
    }
}

/// A path from the crate's root on, with the name that an `as` gives it.
type Named = (Option<String>, Vec<String>);

/// Finds the paths that begin with `crate`, `super`, `self` or a module of the file's own.
pub(crate) fn paths(items: &[Item], file: &[String]) -> Vec<Named> {
    let children = items.iter().filter_map(with_file);
    let mut paths = Paths {
        file,
        children: children.map(|child| child.ident.to_string()).collect(),
        found: Vec::new(),
    };
    for item in items {
        paths.look_through(item.to_token_stream(), file);
    }
    paths.found
}

/// The paths found so far in a file.
struct Paths<'a> {
    file: &'a [String],
    /// Its modules that have a file.
    children: BTreeSet<String>,
    found: Vec<Named>,
}

impl Paths<'_> {
    /// Adds the paths in code of the module `here`. Looks at tokens, not at syntax, because arguments of macros name paths too.
    fn look_through(&mut self, code: TokenStream, here: &[String]) {
        let tokens: Vec<TokenTree> = code.into_iter().collect();
        for (n, token) in tokens.iter().enumerate() {
            let (before, after) = (&tokens[..n], &tokens[n + 1..]);
            match token {
                // `follow` has gone through these braces.
                TokenTree::Group(_) if ends_in_colons(before) => {}
                TokenTree::Group(group) => match before {
                    [.., TokenTree::Ident(word), TokenTree::Ident(name)] if word == "mod" => {
                        let inner = [here, &[name.to_string()]].concat();
                        self.look_through(group.stream(), &inner);
                    }
                    _ => self.look_through(group.stream(), here),
                },
                TokenTree::Ident(first) if !continues_path(before) => {
                    if let (Some(path), Some(rest)) = (self.start(first, here), past_colons(after))
                    {
                        follow(rest, path, &mut self.found);
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the path that this first segment stands for, unless it leads to another crate or to what the file imports.
    fn start(&self, first: &Ident, here: &[String]) -> Option<Vec<String>> {
        match &*first.to_string() {
            "crate" => Some(Vec::new()),
            "self" => Some(here.to_vec()),
            "super" => here.split_last().map(|(_, above)| above.to_vec()),
            name if here == self.file && self.children.contains(name) => {
                Some([here, &[name.to_owned()]].concat())
            }
            _ => None,
        }
    }
}

/// Follows a path from behind a `::` on to where it ends, and through braces to all its ends.
fn follow(tokens: &[TokenTree], mut path: Vec<String>, found: &mut Vec<Named>) {
    match tokens {
        [TokenTree::Group(group), ..] => {
            let inside: Vec<TokenTree> = group.stream().into_iter().collect();
            let branches = inside.split(|token| is(token, ','));
            for branch in branches.filter(|branch| !branch.is_empty()) {
                follow(branch, path.clone(), found);
            }
        }
        [TokenTree::Ident(name), rest @ ..] => {
            match &*name.to_string() {
                "super" => drop(path.pop()),
                "self" => {}
                name => path.push(name.to_owned()),
            }
            match (past_colons(rest), rest) {
                (Some(rest), _) => follow(rest, path, found),
                (None, [TokenTree::Ident(word), TokenTree::Ident(name), ..]) if word == "as" => {
                    found.push((Some(name.to_string()), path));
                }
                _ => found.push((None, path)),
            }
        }
        // `*`, or the `<` of arguments.
        _ => found.push((None, path)),
    }
}

fn is(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(it) if it.as_char() == sign)
}

/// Returns what follows the `::` that these tokens begin with.
fn past_colons(tokens: &[TokenTree]) -> Option<&[TokenTree]> {
    match tokens {
        [first, second, rest @ ..] if is(first, ':') && is(second, ':') => Some(rest),
        _ => None,
    }
}

fn ends_in_colons(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [.., first, second] if is(first, ':') && is(second, ':'))
}

/// Tells whether a name behind these tokens is in the middle of a path. `$crate` is: its path is found where it is written out.
fn continues_path(before: &[TokenTree]) -> bool {
    ends_in_colons(before) || matches!(before, [.., last] if is(last, '$'))
}
