//! The crates that are compiled.

/// In each of the crates.
pub(super) const FUNCTIONS: usize = 1_000;
/// Ours: the attribute above each function, the same with a `guard`, and above `impl` blocks.
pub(super) const OURS: [&str; 3] = ["locked", "guarded", "methods"];
pub(super) const PEER: &str = "traced";
/// Methods of an `impl` block.
const METHODS: usize = 10;
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
    let [locked, guarded, methods] = OURS;
    let library = "[lib]\npath = \"lib.rs\"";
    let program = "[[bin]]\nname = \"sizes\"\npath = \"main.rs\"";
    [
        (
            "Cargo.toml".to_owned(),
            format!(
                "[workspace]\nresolver = \"3\"\nmembers = {:?}\n",
                [locked, guarded, methods, PEER, SIZES]
            ),
        ),
        (format!("{locked}/Cargo.toml"), manifest(locked, library)),
        (
            format!("{locked}/lib.rs"),
            functions(|n| format!("#[etcd_locked::etcd_locked(\"kind{n}/<id>\")]")),
        ),
        (format!("{guarded}/Cargo.toml"), manifest(guarded, library)),
        (
            format!("{guarded}/lib.rs"),
            functions(|n| format!("#[etcd_locked::etcd_locked(\"kind{n}/<id>\", guard = _held)]")),
        ),
        (format!("{methods}/Cargo.toml"), manifest(methods, library)),
        (format!("{methods}/lib.rs"), blocks()),
        (format!("{PEER}/Cargo.toml"), manifest(PEER, library)),
        (format!("{PEER}/lib.rs"), functions(|_| "#[tracing::instrument]".to_owned())),
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
        text += &function(n, "");
    }
    text + &calls("")
}

/// The same as methods, with the attribute above each of their blocks.
fn blocks() -> String {
    let mut text = format!("{COMMON}pub struct Shop;\n\n");
    for block in 0..FUNCTIONS / METHODS {
        text += &format!("#[etcd_locked::etcd_locked(\"kind{block}/<id>\")]\nimpl Shop {{");
        for n in block * METHODS..(block + 1) * METHODS {
            text += &function(n, "&'static self, ");
        }
        text += "}\n\n";
    }
    text + &calls("Shop.")
}

fn function(n: usize, receiver: &str) -> String {
    format!(
        "
pub async fn function{n}({receiver}id: u64, amount: u32, note: &'static str) -> Result<u64, Refused> {{
    if amount == 0 {{
        return Err(Refused::Nothing);
    }}
    let stock = read(id, note).await?;
    let left = stock.checked_sub(u64::from(amount)).ok_or(Refused::SoldOut)?;
    write(id, left).await?;
    Ok(left + {n})
}}

"
    )
}

fn calls(of: &str) -> String {
    let mut text =
        String::from("pub fn calls() -> Vec<Call> {\n    let mut calls: Vec<Call> = Vec::new();\n");
    for n in 0..FUNCTIONS {
        text += &format!("    calls.push(Box::pin({of}function{n}({n}, 1, \"\")));\n");
    }
    text + "    calls\n}\n"
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
        mod guarded {
            use super::*;
            $(#[etcd_locked("a", guard = _held)] pub async fn $name($($argument: $ty),*) -> Result<$output, LockError> $body)*
        }
        struct Plain;
        impl Plain {
            $(async fn $name(&self, $($argument: $ty),*) -> Result<$output, LockError> $body)*
        }
        struct Locked;
        #[etcd_locked("a")]
        impl Locked {
            $(async fn $name(&self, $($argument: $ty),*) -> Result<$output, LockError> $body)*
        }
        fn main() {$(
            let plain = size_of_val(&plain::$name($($value),*));
            println!("{}\t{plain}\t{}", $title, size_of_val(&locked::$name($($value),*)));
            println!("{}, with `guard`\t{plain}\t{}", $title, size_of_val(&guarded::$name($($value),*)));
            let plain = size_of_val(&Plain.$name($($value),*));
            println!("{}, of an `impl`\t{plain}\t{}", $title, size_of_val(&Locked.$name($($value),*)));
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
        let one = crate::plain::strings(String::new(), String::new()).await?;
        let other = crate::plain::borrowed(&Shop([0; 64]), "").await?;
        Ok(one + other + id as usize)
    }
}
"#;
