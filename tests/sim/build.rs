//! Writes a copy of the core that can make the mistakes of `seeded/table.rs`, each if it is chosen.

use std::fs;
use std::path::Path;

#[allow(dead_code)] // the rules are for the report
#[path = "seeded/table.rs"]
mod table;

use table::{BUGS, Faulty};

const CORE: &str = "../../runtime/src/core";

fn main() {
    // The core counts its steps.
    println!("cargo:rustc-check-cfg=cfg(simulation)");
    println!("cargo:rustc-cfg=simulation");
    println!("cargo:rerun-if-changed={CORE}");
    println!("cargo:rerun-if-changed=seeded/table.rs");
    let out = std::env::var_os("OUT_DIR").expect("cargo names OUT_DIR");
    let out = Path::new(&out);
    fs::create_dir_all(out.join("core")).expect("a folder for the copy");
    let mut missed = Vec::new();
    for entry in fs::read_dir(CORE).expect("the core's folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.expect("a name in plain text");
        let text = fs::read_to_string(&path).expect("a source of the core");
        fs::write(
            out.join("core").join(name),
            seeded(name, &text, &mut missed),
        )
        .expect("a copy");
    }
    let known = |file: &str| out.join("core").join(file).exists();
    for text in BUGS.iter().flat_map(|bug| bug.texts) {
        if !known(text.file) {
            missed.push(format!("there is no runtime/src/core/{}", text.file));
        }
    }
    // Only whoever compiles the copy is to be stopped.
    let root = match missed.is_empty() {
        true => {
            "#[allow(dead_code, unused_parens, clippy::all)]\n#[path = \"core/mod.rs\"]\nmod core;\n".to_owned()
        }
        false => format!("compile_error!({:?});\n", missed.join("\n")),
    };
    fs::write(out.join("core.rs"), root).expect("the root of the copy");
}

/// A source in which the listed texts may be faulty.
fn seeded(name: &str, text: &str, missed: &mut Vec<String>) -> String {
    // Where each character stands that is not white space.
    let dense: Vec<(usize, char)> = text
        .char_indices()
        .filter(|(_, c)| !c.is_whitespace())
        .collect();
    let mut changes = Vec::new();
    for (number, bug) in BUGS.iter().enumerate() {
        for listed in bug.texts.iter().filter(|listed| listed.file == name) {
            let wanted: Vec<char> = listed
                .production
                .chars()
                .filter(|c| !c.is_whitespace())
                .collect();
            let is_word = |at: usize| dense[at].1.is_alphanumeric() || dense[at].1 == '_';
            let found: Vec<usize> = (0..dense.len().saturating_sub(wanted.len()))
                .filter(|&at| (0..wanted.len()).all(|n| dense[at + n].1 == wanted[n]))
                // Not the end of a longer word.
                .filter(|&at| {
                    let joined = at > 0 && dense[at - 1].0 + 1 == dense[at].0;
                    !(joined && is_word(at) && (is_word(at - 1) || dense[at - 1].1 == '.'))
                })
                .collect();
            let [at] = found[..] else {
                missed.push(format!(
                    "bug {:?}: text found {} times in runtime/src/core/{name}: update tests/sim/seeded/table.rs; it was:\n{}",
                    bug.name,
                    found.len(),
                    listed.production
                ));
                continue;
            };
            let from = dense[at].0;
            let to = dense[at + wanted.len() - 1];
            let to = to.0 + to.1.len_utf8();
            let production = &text[from..to];
            let chosen = format!("crate::seeded({number})");
            let new = match &listed.faulty {
                Faulty::Expression(faulty) => {
                    format!("(if {chosen} {{ {faulty} }} else {{ {production} }})")
                }
                Faulty::Statements(faulty) => {
                    format!("if {chosen} {{ {faulty} }} else {{ {production} }}")
                }
                Faulty::Before(faulty) => {
                    format!("{} {production}", faulty.replace("CHOSEN", &chosen))
                }
            };
            changes.push((from, to, new));
        }
    }
    changes.sort_by_key(|(from, ..)| *from);
    let mut copy = String::new();
    let mut done = 0;
    for (from, to, new) in changes {
        assert!(from >= done, "two texts of the table overlap in {name}");
        copy += &text[done..from];
        copy += &new;
        done = to;
    }
    copy + &text[done..]
}
