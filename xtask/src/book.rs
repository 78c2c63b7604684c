//! `cargo xtask book`: builds the book of `book/` with mdBook and the API docs, and checks the links of both and of the Markdown files.
//! The book's examples are doc tests of `tests`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::links::Links;
use crate::package::PACKAGES;
use crate::process::{output, run};
use crate::{Result, say, workspace};

/// Version of mdBook. Cargo installs it below `target/tools`.
const MDBOOK: &str = "0.5.4";

pub(crate) fn book() -> Result<String> {
    let root = workspace::root();
    say::step("mdBook");
    let mdbook = mdbook()?;

    say::step("the pages");
    run("mdbook", Command::new(&mdbook).arg("build").arg(root.join("book")))?;
    let html = root.join("target/book/html");

    say::step("the API docs");
    // With the arguments of `.ci/run`, so that nothing is documented twice.
    let mut docs = workspace::cargo();
    docs.args(["doc", "--workspace", "--no-deps", "--all-features"])
        .env("RUSTDOCFLAGS", "-D warnings");
    run("cargo doc", &mut docs)?;

    say::step("links");
    let mut links = Links::default();
    for page in pages(&html)? {
        links.check(&page, Some(&html))?;
    }
    let docs = workspace::target().join("doc");
    for package in PACKAGES {
        let library = docs.join(package.replace('-', "_"));
        for page in if library.is_dir() { pages(&library)? } else { Vec::new() } {
            links.check(&page, Some(&docs))?;
        }
    }
    let files = output(Command::new("git").args(["ls-files", "*.md"]).current_dir(&root))?;
    // mdBook and rustdoc turn the pages in these folders into HTML, whose links are checked above.
    let rendered = |file: &&str| file.starts_with("book/src/") || file.starts_with("runtime/docs/");
    for file in files.lines().filter(|file| !rendered(file)) {
        links.check(&root.join(file), Some(&root))?;
    }
    let links = links.finish()?;
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
