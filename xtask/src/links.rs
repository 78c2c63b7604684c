//! Links of HTML pages and Markdown files: each must lead to a file that exists, and to the heading or item that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::{Result, workspace};

/// Address of the repository. Its pages `blob/main/…`, `tree/main/…` and `edit/main/…` are files of this checkout.
const REPOSITORY: &str = "https://github.com/etcd-locked/etcd-locked/";
/// Beginning of the addresses of our API docs. `cargo doc` builds the same pages.
const API: &str = "https://docs.rs/etcd-locked";

/// Checker of links. It collects those that are broken.
#[derive(Debug, Default)]
pub(crate) struct Links {
    checked: usize,
    broken: Vec<String>,
    /// Anchors of the pages that were read.
    anchors: BTreeMap<PathBuf, BTreeSet<String>>,
}

impl Links {
    /// Checks the links of a page. Relative links must stay below `home`; without a home, every relative link is broken.
    pub(crate) fn check(&mut self, page: &Path, home: Option<&Path>) -> Result<()> {
        let text = workspace::read(page)?;
        let html = is_html(page);
        for link in if html { in_html(&text) } else { in_markdown(&text) } {
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let relative = !path.contains(':');
            // Words are Rust paths in the docs of other crates, some of which are broken. Scripts replace `${…}`.
            let word = !path.is_empty() && !path.contains(['.', '/']);
            if html && relative && (word || path.contains('$')) {
                continue;
            }
            let target = match path {
                "" => page.to_owned(),
                _ if relative => page.with_file_name(path),
                _ => match local(path) {
                    Some(target) => target,
                    None => continue, // elsewhere on the web
                },
            };
            // rustdoc itself links lines of source, `#7-9`, and items, `#method.lock`, of which some are hidden.
            let generated = anchor.contains('.') || anchor.starts_with(|it: char| it.is_numeric());
            let anchor = if html && relative && generated { "" } else { anchor };
            let allowed =
                !relative || path.is_empty() || home.is_some_and(|it| is_below(it, &target));
            self.checked += 1;
            if !(allowed && self.exists(&target, anchor)?) {
                self.broken.push(format!("  {}: {link}", page.display()));
            }
        }
        Ok(())
    }

    /// Returns the number of links, or an error that lists the broken ones.
    pub(crate) fn finish(self) -> Result<usize> {
        match self.broken.is_empty() {
            true => Ok(self.checked),
            false => Err(format!("broken links:\n{}", self.broken.join("\n"))),
        }
    }

    fn exists(&mut self, target: &Path, anchor: &str) -> Result<bool> {
        let has_anchors = is_html(target) || target.extension().is_some_and(|it| it == "md");
        if anchor.is_empty() || !has_anchors || !target.exists() {
            return Ok(target.exists());
        }
        if !self.anchors.contains_key(target) {
            let anchors = anchors(&workspace::read(target)?, is_html(target));
            self.anchors.insert(target.to_owned(), anchors);
        }
        Ok(self.anchors[target].contains(anchor))
    }
}

fn is_html(page: &Path) -> bool {
    page.extension().is_some_and(|it| it == "html")
}

fn is_below(home: &Path, target: &Path) -> bool {
    let home = home.canonicalize();
    target.canonicalize().is_ok_and(|target| home.is_ok_and(|home| target.starts_with(home)))
}

/// Returns the file here that an address stands for. Pages of the API docs count once `cargo doc` has built them.
fn local(address: &str) -> Option<PathBuf> {
    if let Some(page) = address.strip_prefix(REPOSITORY) {
        return page.split_once("/main/").map(|(_, file)| workspace::root().join(file));
    }
    let (_, page) = address.strip_prefix(API)?.split_once("/latest/")?;
    let docs = workspace::target().join("doc");
    docs.join(page.split('/').next()?).is_dir().then(|| docs.join(page))
}

fn in_html(text: &str) -> BTreeSet<String> {
    let values = ["href=\"", "src=\""].into_iter().flat_map(|it| text.split(it).skip(1));
    values.filter_map(|rest| rest.split_once('"')).map(|(link, _)| link.to_owned()).collect()
}

fn in_markdown(text: &str) -> BTreeSet<String> {
    let text = prose(text).collect::<Vec<_>>().join("\n");
    let inline = text.split("](").skip(1);
    let addresses = text.split('<').filter(|rest| rest.starts_with("http"));
    let links = inline.chain(addresses).filter_map(|rest| rest.split([')', '>', ' ']).next());
    links.map(str::to_owned).collect()
}

/// Returns the lines outside code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

/// Returns what links can name in a page: ids, or headings as the code host turns them into ids.
fn anchors(text: &str, html: bool) -> BTreeSet<String> {
    if html {
        let ids = text.split("id=\"").skip(1).filter_map(|rest| rest.split_once('"'));
        return ids.map(|(id, _)| id.to_owned()).collect();
    }
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let mut anchors = BTreeSet::new();
    for heading in headings {
        let words = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        let kept = |it: &char| it.is_alphanumeric() || "-_".contains(*it);
        let id: String = words.chars().filter(kept).collect();
        if !anchors.insert(id.clone()) {
            let _ = (1..).find(|n| anchors.insert(format!("{id}-{n}")));
        }
    }
    anchors
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns the broken links of the page `name` in a folder with these pages.
    fn broken(pages: &[(&str, &str)], name: &str, at_home: bool) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in pages {
            fs::write(folder.path().join(name), text).expect("a page");
        }
        let mut links = Links::default();
        links.check(&folder.path().join(name), at_home.then_some(folder.path())).expect("a page");
        let found = links.broken.iter().filter_map(|line| line.split_once(": "));
        found.map(|(_, link)| link.to_owned()).collect()
    }

    #[test]
    fn finds_broken_links_of_a_page() {
        let pages = [
            (
                "a.html",
                r##"<a href="b.html#there">, <a href="b.html#no">, <img src="no.svg">, <a href="#no">, <a href="..">"##,
            ),
            (
                "b.html",
                r##"<h1 id="there"><a href="a.html"></h1><a href="https://example.org/no">"##,
            ),
        ];
        assert_eq!(broken(&pages, "a.html", true), ["#no", "..", "b.html#no", "no.svg"]);
        assert!(broken(&pages, "b.html", true).is_empty());
    }

    #[test]
    fn finds_broken_links_of_a_readme() {
        let text = "# What `it` is\n[a](#what-it-is) [b](#no) [c](LICENSE) [d](https://example.org/no)\n\
            ```\n[e](code)\n```\n<https://github.com/etcd-locked/etcd-locked/blob/main/README.md> \
            [f](https://github.com/etcd-locked/etcd-locked/blob/main/no.md)";
        let pages = [("README.md", text), ("LICENSE", "")];
        let absent = "https://github.com/etcd-locked/etcd-locked/blob/main/no.md";
        assert_eq!(broken(&pages, "README.md", true), ["#no", absent]);
        assert_eq!(broken(&pages, "README.md", false), ["#no", "LICENSE", absent]);
    }
}
