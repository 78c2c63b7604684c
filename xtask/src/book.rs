//! `cargo xtask book`: builds the book of `book/` with mdBook and checks its links. Its examples are doc tests of `tests`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::run;
use crate::{Result, say, workspace};

/// Version of mdBook, which cargo installs below `target/tools`.
const MDBOOK: &str = "0.5.4";

/// Plots that the pages show as `images/<name>`, and where they are.
const IMAGES: &[(&str, &str)] =
    &[("tasks.svg", "benches/plots/tasks.svg"), ("processes.svg", "benches/plots/processes.svg")];

/// Addresses that stand for files here: of the repository, and of the API docs that cargo builds.
const REPOSITORY: &str = "https://github.com/etcd-locked/etcd-locked/blob/main/";
const API: &str = "https://docs.rs/etcd-locked/latest/etcd_locked/";

pub(crate) fn book() -> Result<String> {
    let root = workspace::root();
    say::step("mdBook");
    let mdbook = mdbook()?;

    say::step("the pages");
    run("mdbook", Command::new(&mdbook).arg("build").arg(root.join("book")))?;
    let html = root.join("target/book/html");
    for (name, plot) in IMAGES {
        workspace::copy(root.join(plot), html.join("images").join(name))?;
    }

    say::step("their links");
    // With the arguments of `.ci/run`, so that nothing is documented twice.
    let mut docs = workspace::cargo();
    docs.args(["doc", "--workspace", "--no-deps", "--all-features"])
        .env("RUSTDOCFLAGS", "-D warnings");
    run("cargo doc", &mut docs)?;
    let (links, broken) = check(&html)?;
    if !broken.is_empty() {
        return Err(format!("links that lead nowhere:\n{}", broken.join("\n")));
    }
    Ok(format!("book: ok — {links} links; open {}", html.join("index.html").display()))
}

/// Returns the path of mdBook, and installs it first where it is missing.
fn mdbook() -> Result<PathBuf> {
    let home = workspace::tools().join(format!("mdbook-{MDBOOK}"));
    let program = home.join("bin/mdbook");
    if !program.is_file() {
        let built = home.join("build");
        let mut install = workspace::cargo();
        install
            .args(["install", "mdbook", "--version", MDBOOK, "--locked", "--debug"])
            .args(["--no-default-features", "--features", "search", "--root"])
            .arg(&home)
            .env("CARGO_TARGET_DIR", &built);
        run("cargo install", &mut install)?;
        fs::remove_dir_all(&built).map_err(workspace::failed_at(&built))?;
    }
    Ok(program)
}

/// Checks every link of the pages below a folder; returns how many there are, and those that lead nowhere.
fn check(html: &Path) -> Result<(usize, Vec<String>)> {
    let api = workspace::target().join("doc/etcd_locked");
    let (mut links, mut broken) = (0, Vec::new());
    for page in pages(html)? {
        let text = workspace::read(&page)?;
        let mut seen = BTreeSet::new();
        for link in linked(&text).filter(|link| seen.insert(*link)) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if let Some(file) = path.strip_prefix(REPOSITORY) {
                workspace::root().join(file)
            } else if let Some(file) = path.strip_prefix(API) {
                api.join(file)
            } else if path.contains(':') {
                continue; // elsewhere in the world
            } else if path.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap_or(html).join(path)
            };
            links += 1;
            let found = target.exists()
                && (anchor.is_empty()
                    || target.extension().is_none_or(|it| it != "html")
                    || workspace::read(&target)?.contains(&format!("id=\"{anchor}\"")));
            if !found {
                let page = page.strip_prefix(html).unwrap_or(&page);
                broken.push(format!("  {}: {link}", page.display()));
            }
        }
    }
    Ok((links, broken))
}

/// Lists the pages below a folder, without mdBook's own.
fn pages(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for path in workspace::entries(folder)? {
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            pages.extend(self::pages(&path)?);
        } else if path.extension().is_some_and(|it| it == "html")
            && name != "404.html"
            && name != "toc.html"
        {
            pages.push(path);
        }
    }
    Ok(pages)
}

/// Finds what a page links to and shows.
fn linked(html: &str) -> impl Iterator<Item = &str> {
    ["href=\"", "src=\""].into_iter().flat_map(|attribute| {
        let values = html.split(attribute).skip(1);
        values.filter_map(|rest| rest.split_once('"').map(|(value, _)| value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_that_leads_nowhere_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let page = |name, text: &str| fs::write(folder.path().join(name), text).expect("a page");
        page(
            "a.html",
            r##"<a href="b.html#there">, <a href="b.html#no">, <img src="no.svg">, <a href="#no">"##,
        );
        page(
            "b.html",
            r##"<h1 id="there"><a href="a.html"></h1><a href="https://example.org/no">"##,
        );
        let (links, mut broken) = check(folder.path()).expect("pages");
        broken.sort();
        assert_eq!(links, 5);
        assert_eq!(broken, ["  a.html: #no", "  a.html: b.html#no", "  a.html: no.svg"]);
    }
}
