//! Calls between the source files of a crate, found in the paths that their code names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::read;

/// One source file of a crate, without its unit tests.
pub(crate) struct Source {
    pub(crate) file: PathBuf,
    /// The paths that its code names, from the crate's root on.
    pub(crate) paths: Vec<Vec<String>>,
    /// A `lib.rs` or `mod.rs` that only declares and re-exports: a table of contents, not a caller.
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
        let mut found = Self {
            modules: BTreeMap::new(),
            exports: BTreeMap::new(),
        };
        found.module(&folder.join("lib.rs"), folder, Vec::new());
        found
    }

    fn module(&mut self, file: &Path, folder: &Path, at: Vec<String>) {
        let tokens = without_tests(tokens(&read(file)));
        let items = Items::of(&tokens);
        for (name, path) in &items.children {
            let inner = folder.join(name);
            let flat = folder.join(path.clone().unwrap_or_else(|| format!("{name}.rs")));
            let child = if flat.exists() {
                flat
            } else {
                inner.join("mod.rs")
            };
            self.module(
                &child,
                &inner,
                [&at[..], std::slice::from_ref(name)].concat(),
            );
        }
        let named = paths(&tokens, &at, &items.children);
        let table = matches!(file.file_name(), Some(name) if name == "lib.rs" || name == "mod.rs");
        let is_contents = table && items.only_contents;
        if is_contents {
            for (name, path) in &named {
                let name = name.clone().or(path.last().cloned());
                let key = (at.clone(), name.unwrap_or_default());
                self.exports.insert(key, path.clone());
            }
        }
        let paths = named.into_iter().map(|(_, path)| path).collect();
        let file = file.to_owned();
        let source = Source {
            file,
            paths,
            is_contents,
        };
        self.modules.insert(at, source);
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
            let exported = rest
                .first()
                .and_then(|name| self.exports.get(&(module.to_vec(), name.clone())));
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
        let callers = self
            .modules
            .iter()
            .filter(|(_, source)| !source.is_contents);
        callers
            .map(|(module, source)| {
                let called = source.paths.iter().map(|path| self.leads_to(path).to_vec());
                (
                    module.clone(),
                    called.filter(|other| other != module).collect(),
                )
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
        let next: BTreeSet<T> = left
            .iter()
            .filter(|it| calls_one(it) && is_called(it))
            .cloned()
            .collect();
        if next == left {
            return left;
        }
        left = next;
    }
}

/// Names and signs of a source; comments are left out, and literals are empty.
pub(crate) fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let at = |n: usize| chars.get(n).copied().unwrap_or('\0');
    let (mut found, mut n) = (Vec::new(), 0);
    while n < chars.len() {
        let c = at(n);
        if c == '/' && at(n + 1) == '/' {
            while n < chars.len() && at(n) != '\n' {
                n += 1;
            }
        } else if c == '"' {
            n += 1;
            let begun = n;
            while n < chars.len() && at(n) != '"' {
                n += 1 + usize::from(at(n) == '\\');
            }
            found.push(format!(
                "\"{}\"",
                chars[begun..n.min(chars.len())].iter().collect::<String>()
            ));
            n += 1;
        } else if c == '\'' && (at(n + 1) == '\\' || at(n + 2) == '\'') {
            n += 2;
            while n < chars.len() && at(n) != '\'' {
                n += 1;
            }
            n += 1;
        } else if c.is_alphanumeric() || c == '_' {
            let begun = n;
            while at(n).is_alphanumeric() || at(n) == '_' {
                n += 1;
            }
            found.push(chars[begun..n].iter().collect());
        } else if c == ':' && at(n + 1) == ':' {
            found.push("::".to_owned());
            n += 2;
        } else {
            if !c.is_whitespace() {
                found.push(c.to_string());
            }
            n += 1;
        }
    }
    found
}

/// Tells whether a source only declares modules, imports and re-exports.
pub(crate) fn is_contents(text: &str) -> bool {
    Items::of(&without_tests(tokens(text))).only_contents
}

/// Where what opens at `open` closes.
fn close(tokens: &[String], open: usize) -> usize {
    let mut depth = 0;
    for (n, token) in tokens.iter().enumerate().skip(open) {
        match &**token {
            "{" | "[" | "(" => depth += 1,
            "}" | "]" | ")" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return n;
        }
    }
    tokens.len()
}

fn says(tokens: &[String], words: &[&str]) -> bool {
    tokens.len() >= words.len() && tokens.iter().zip(words).all(|(token, word)| token == word)
}

/// Leaves out `#[cfg(test)] mod …`, with its body or with its file.
pub(crate) fn without_tests(tokens: Vec<String>) -> Vec<String> {
    let (mut kept, mut n) = (Vec::new(), 0);
    while n < tokens.len() {
        if says(
            &tokens[n..],
            &["#", "[", "cfg", "(", "test", ")", "]", "mod"],
        ) {
            n += 9; // behind the name
            n = if tokens[n] == "{" {
                close(&tokens, n)
            } else {
                n
            } + 1;
        } else {
            kept.push(tokens[n].clone());
            n += 1;
        }
    }
    kept
}

/// The items of a file, as far as they are its modules.
struct Items {
    /// Modules with a file, each with the path that an attribute gives.
    children: Vec<(String, Option<String>)>,
    /// Every item is a declaration of a module, or an import.
    only_contents: bool,
}

impl Items {
    fn of(tokens: &[String]) -> Self {
        let (mut children, mut only_contents) = (Vec::new(), true);
        let (mut n, mut path) = (0, None);
        while n < tokens.len() {
            match &*tokens[n] {
                "#" => {
                    let open = n + 1 + usize::from(tokens[n + 1] == "!");
                    if says(&tokens[open..], &["[", "path", "="]) {
                        path = Some(tokens[open + 3].trim_matches('"').to_owned());
                    }
                    n = close(tokens, open);
                }
                "pub" if tokens[n + 1] == "(" => n = close(tokens, n + 1),
                "pub" => {}
                "mod" => {
                    if tokens[n + 2] == ";" {
                        children.push((tokens[n + 1].clone(), path.take()));
                    }
                    only_contents &= tokens[n + 2] == ";" || tokens[n + 3] == "}";
                    n = if tokens[n + 2] == ";" {
                        n + 2
                    } else {
                        close(tokens, n + 2)
                    };
                }
                "use" | "extern" => {
                    while tokens[n] != ";" {
                        n += 1;
                    }
                }
                _ => only_contents = false,
            }
            n += 1;
        }
        Self {
            children,
            only_contents,
        }
    }
}

/// The paths that begin with `crate`, `super`, `self` or a module of the file's own, from the root on, each with the name that
/// an `as` gives it.
pub(crate) fn paths(
    tokens: &[String],
    file: &[String],
    children: &[(String, Option<String>)],
) -> Vec<(Option<String>, Vec<String>)> {
    let mut found = Vec::new();
    // The modules inside the file that are open, each with the depth of its braces.
    let (mut inside, mut depth) = (Vec::new(), 0);
    for n in 0..tokens.len() {
        match &*tokens[n] {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                if inside.last().is_some_and(|(_, open)| *open == depth) {
                    inside.pop();
                }
            }
            "mod" if tokens.get(n + 2).is_some_and(|it| it == "{") => {
                inside.push((tokens[n + 1].clone(), depth));
            }
            _ => {}
        }
        let before = n.checked_sub(1).map_or("", |before| &tokens[before]);
        let begins =
            tokens.get(n + 1).is_some_and(|it| it == "::") && !matches!(before, "$" | "::");
        if !begins {
            continue;
        }
        let mut here: Vec<String> = file.to_vec();
        here.extend(inside.iter().map(|(name, _)| name.clone()));
        let is_child = |name: &String| children.iter().any(|(child, _)| child == name);
        match &*tokens[n] {
            "crate" => tree(tokens, n + 2, Vec::new(), &mut found),
            "self" => tree(tokens, n + 2, here, &mut found),
            "super" => {
                here.pop();
                tree(tokens, n + 2, here, &mut found);
            }
            _ if is_child(&tokens[n]) && inside.is_empty() => {
                here.push(tokens[n].clone());
                tree(tokens, n + 2, here, &mut found);
            }
            _ => {}
        }
    }
    found
}

/// Follows one path from its token `n` on, through its braces; answers where it ends.
fn tree(
    tokens: &[String],
    mut n: usize,
    mut path: Vec<String>,
    found: &mut Vec<(Option<String>, Vec<String>)>,
) {
    loop {
        match tokens.get(n).map(String::as_str) {
            Some("super") => drop(path.pop()),
            Some("{") => {
                let end = close(tokens, n);
                n += 1;
                while n < end {
                    tree(tokens, n, path.clone(), found);
                    // Behind the next comma at this depth.
                    while n < end && tokens[n] != "," {
                        n = if tokens[n] == "{" {
                            close(tokens, n)
                        } else {
                            n
                        } + 1;
                    }
                    n += 1;
                }
                return;
            }
            Some("self" | "*") => {}
            Some(name) if name.chars().all(|c| c.is_alphanumeric() || c == '_') => {
                path.push(name.to_owned());
            }
            _ => return found.push((None, path)),
        }
        n += 1;
        if tokens.get(n).is_some_and(|it| it == "::") {
            n += 1;
            continue;
        }
        let named = tokens
            .get(n)
            .filter(|it| *it == "as")
            .and_then(|_| tokens.get(n + 1));
        return found.push((named.cloned(), path));
    }
}
