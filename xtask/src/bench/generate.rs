//! The crates that are compiled.

/// In each of the two crates.
pub(super) const FUNCTIONS: usize = 1_000;
/// Ours first.
pub(super) const PEERS: [&str; 2] = ["locked", "traced"];
/// The program that prints sizes.
pub(super) const SIZES: &str = "sizes";

/// Every file, by its path.
pub(super) fn workspace() -> Vec<(String, String)> {
    let manifest = |package: &str, target: &str| {
        format!(
            "[package]\nname = \"{package}\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n\
             {target}\n\n\
             [dependencies]\netcd-locked = {{ path = \"../../../runtime\" }}\n\
             tracing = {{ version = \"0.1\", features = [\"attributes\"] }}\n"
        )
    };
    let [ours, theirs] = PEERS;
    let library = "[lib]\npath = \"lib.rs\"";
    let program = "[[bin]]\nname = \"sizes\"\npath = \"main.rs\"";
    [
        (
            "Cargo.toml".to_owned(),
            format!(
                "[workspace]\nresolver = \"3\"\nmembers = [\"{ours}\", \"{theirs}\", \"{SIZES}\"]\n"
            ),
        ),
        (format!("{ours}/Cargo.toml"), manifest(ours, library)),
        (
            format!("{ours}/lib.rs"),
            functions(|n| format!("#[etcd_locked::etcd_locked(\"kind{n}/<id>\")]")),
        ),
        (format!("{theirs}/Cargo.toml"), manifest(theirs, library)),
        (
            format!("{theirs}/lib.rs"),
            functions(|_| "#[tracing::instrument]".to_owned()),
        ),
        (format!("{SIZES}/Cargo.toml"), manifest(SIZES, program)),
        (format!("{SIZES}/main.rs"), SIZES_PROGRAM.to_owned()),
    ]
    .into()
}

/// Functions of the size of a small handler, each with its attribute, and one that makes all their futures: what
/// nothing polls is not compiled to code.
fn functions(attribute: impl Fn(usize) -> String) -> String {
    let mut text = String::from(COMMON);
    for n in 0..FUNCTIONS {
        text += &attribute(n);
        text += &format!(
            "
pub async fn function{n}(id: u64, amount: u32, note: &'static str) -> Result<u64, Refused> {{
    if amount == 0 {{
        return Err(Refused::Nothing);
    }}
    let stock = read(id, note).await?;
    let left = stock.checked_sub(u64::from(amount)).ok_or(Refused::SoldOut)?;
    write(id, left).await?;
    Ok(left + {n})
}}

"
        );
    }
    text += "pub fn calls() -> Vec<Call> {\n    let mut calls: Vec<Call> = Vec::new();\n";
    for n in 0..FUNCTIONS {
        text += &format!("    calls.push(Box::pin(function{n}({n}, 1, \"\")));\n");
    }
    text += "    calls\n}\n";
    text
}

const COMMON: &str = "\
use std::future::Future;
use std::pin::Pin;

pub type Call = Pin<Box<dyn Future<Output = Result<u64, Refused>> + Send>>;

#[derive(Debug)]
pub enum Refused {
    Nothing,
    SoldOut,
    Lock(etcd_locked::LockError),
}

impl From<etcd_locked::LockError> for Refused {
    fn from(error: etcd_locked::LockError) -> Self {
        Self::Lock(error)
    }
}

async fn read(id: u64, note: &str) -> Result<u64, Refused> {
    Ok(id + note.len() as u64)
}

async fn write(_: u64, left: u64) -> Result<(), Refused> {
    if left > 1 << 40 { Err(Refused::Nothing) } else { Ok(()) }
}

";

const SIZES_PROGRAM: &str = r#"//! One line a body: what it is, size without and with the attribute.

use etcd_locked::{LockError, etcd_locked};

async fn tick() {}

struct Shop([u8; 64]);

macro_rules! bodies {
    ($($title:literal $name:ident ($($argument:ident: $ty:ty = $value:expr),*) -> $output:ty $body:block)*) => {
        mod plain {
            use super::*;
            $(pub async fn $name($($argument: $ty),*) -> Result<$output, LockError> $body)*
        }
        mod locked {
            use super::*;
            $(#[etcd_locked("a")] pub async fn $name($($argument: $ty),*) -> Result<$output, LockError> $body)*
        }
        fn main() {$(
            let sizes = (size_of_val(&plain::$name($($value),*)), size_of_val(&locked::$name($($value),*)));
            println!("{}\t{}\t{}", $title, sizes.0, sizes.1);
        )*}
    };
}

bodies! {
    "nothing" nothing() -> () { Ok(()) }
    "a number across an await" number(id: u64 = 1) -> u64 {
        tick().await;
        Ok(id)
    }
    "4 KiB across an await" local() -> u8 {
        let bytes = [1_u8; 4096];
        tick().await;
        Ok(bytes[7])
    }
    "an argument of 4 KiB across an await" argument(bytes: [u8; 4096] = [0; 4096]) -> u8 {
        tick().await;
        Ok(bytes[7])
    }
    "an answer of 1 KiB" answer() -> [u8; 1024] {
        tick().await;
        Ok([1; 1024])
    }
    "strings across an await" strings(a: String = String::new(), b: String = String::new()) -> usize {
        tick().await;
        Ok(a.len() + b.len())
    }
    "borrowed arguments" borrowed(shop: &Shop = &Shop([0; 64]), name: &str = "") -> usize {
        tick().await;
        Ok(name.len() + usize::from(shop.0[1]))
    }
    "a body within a body" nested(id: u64 = 1) -> usize {
        let one = super::plain::strings(String::new(), String::new()).await?;
        let other = super::plain::borrowed(&Shop([0; 64]), "").await?;
        Ok(one + other + id as usize)
    }
}
"#;
