//! List of the book's pages in `tests/src/book.rs`, by which their examples are compiled.

use std::fs;
use std::path::{Path, PathBuf};

/// Lists the Markdown files in a folder and below.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let pages = entries.flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] });
    pages.filter(|page| page.extension().is_some_and(|it| it == "md")).collect()
}

#[test]
fn every_example_of_the_book_is_compiled() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    let list = fs::read_to_string(root.join("tests/src/book.rs")).expect("the list");
    for page in pages(&root.join("book/src")) {
        let name = page.strip_prefix(root).expect("below the root").display().to_string();
        let listed = list.contains(&format!("\"../../{name}\""));
        let text = fs::read_to_string(&page).expect("a page");
        assert!(listed || !text.contains("```rust"), "tests/src/book.rs has no {name}");
    }
}
