//! Workspace of a team, compiled by cargo: members, and a vendored package of other people where `cargo vendor` puts it. The runtime
//! is a stub, as nothing is run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Stub of the runtime, with all that expansions name.
const RUNTIME: &str = r#"
pub use etcd_locked_macros::etcd_locked;
pub trait LockName {
    type Held where Self: Sized;
    type Kept where Self: Sized;
    fn lock_name(&self) -> Name;
    fn keep(self, name: &Name) -> Self::Kept where Self: Sized;
}
pub trait LockKey {}
impl LockKey for u64 {}
pub struct Name;
pub struct LockError;
#[macro_export] macro_rules! __register_template { ($($t:tt)*) => {}; }
#[macro_export] macro_rules! lock_names { ($($t:tt)*) => { $crate::__private::lock_names! { $crate; $($t)* } }; }
pub mod __private {
    use std::{future::Future, time::Duration};
    pub use etcd_locked_macros::lock_names;
    use super::*;
    pub struct Site { pub function: &'static str, pub wait: Option<Wait>, pub ttl: Option<Duration> }
    pub enum Wait { Once, For(Duration), Forever }
    pub struct Lock;
    pub fn name(_: &'static str, _: &[&dyn LockKey]) -> Name { Name }
    pub fn name_of(name: &dyn LockName) -> Name { name.lock_name() }
    pub fn lock(_: &[Name], _: &'static Site) -> Lock { Lock }
    pub async fn hold<F: Future>(_: Lock, _: F) -> Result<F::Output, LockError> { Err(LockError) }
    pub fn finish<T>(result: Result<Result<T, LockError>, LockError>) -> Result<T, LockError> { result? }
}
"#;

/// Source of a package that has the runtime, and a template.
pub(crate) const TEMPLATE: &str = r#"
#[etcd_locked::etcd_locked("orders/<id>")]
pub async fn ship(id: u64) -> Result<(), etcd_locked::LockError> { let _ = id; Ok(()) }
"#;

/// Source of the vendored package; cargo does not contact it.
const GIT: &str = "https://example.org/foreign";

/// A package by its name, its dependencies in the words of a manifest, and its source.
pub(crate) type Package = (&'static str, &'static str, &'static str);

pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
    _folder: tempfile::TempDir,
}

impl Workspace {
    /// With these members, and the vendored package `foreign`, which has a template. `name` is of the test.
    pub(crate) fn new(name: &str, members: &[Package]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("team");
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
        let vendored = root.join("vendor/foreign");
        package(&vendored, ("foreign", "etcd-locked = \"0.1\"", TEMPLATE));
        fs::write(vendored.join(".cargo-checksum.json"), r#"{"files":{},"package":null}"#)
            .expect("a checksum");
        let macros = repository.join("macros").display().to_string();
        let of_stub = format!("etcd-locked-macros = {{ path = {macros:?} }}");
        package(&root.join("stub"), ("etcd-locked", &of_stub, RUNTIME));
        for member in members {
            package(&root.join(member.0), *member);
        }
        let names: Vec<_> = members.iter().map(|(name, ..)| name).collect();
        let manifest = format!(
            "[workspace]\nresolver = \"3\"\nmembers = {names:?}\nexclude = [\"stub\"]\n\
             [workspace.dependencies]\nforeign = {{ git = {GIT:?} }}\n\
             [patch.crates-io]\netcd-locked = {{ path = \"stub\" }}\n"
        );
        fs::write(root.join("Cargo.toml"), manifest).expect("a manifest");
        // The packages that are downloaded already, and the vendored one.
        let lock = fs::read_to_string(repository.join("Cargo.lock")).expect("a lock file");
        let foreign = format!(
            "\n[[package]]\nname = \"foreign\"\nversion = \"0.1.0\"\nsource = \"git+{GIT}#{}\"\ndependencies = [\"etcd-locked\"]\n",
            "0".repeat(40)
        );
        fs::write(root.join("Cargo.lock"), lock + &foreign).expect("a lock file");
        Self { target: Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), root, _folder: folder }
    }

    /// Writes cargo's configuration with this line under `[env]`.
    pub(crate) fn set(&self, variable: &str) {
        let config = format!(
            "[env]\n{variable}\n\
             [source.{GIT:?}]\ngit = {GIT:?}\nreplace-with = \"vendored\"\n[source.vendored]\ndirectory = \"vendor\"\n"
        );
        fs::create_dir_all(self.root.join(".cargo")).expect("a folder");
        fs::write(self.root.join(".cargo/config.toml"), config).expect("a config");
    }

    /// Runs `cargo check` of one package, which is to compile.
    pub(crate) fn compiles(&self, package: &str) {
        let (compiles, errors) = self.check(package);
        assert!(compiles, "{package}: {errors}");
    }

    /// Runs `cargo check` of one package, which is not to compile for one reason. Returns the compiler's output.
    pub(crate) fn refused(&self, package: &str) -> String {
        let (compiles, errors) = self.check(package);
        // The macro's error, and cargo's "could not compile".
        assert!(!compiles && errors.matches("error:").count() == 2, "{errors}");
        errors
    }

    fn check(&self, package: &str) -> (bool, String) {
        let output = Command::new(env!("CARGO"))
            .current_dir(&self.root)
            .args(["check", "--offline", "--quiet", "--package", package])
            .env("CARGO_TARGET_DIR", &self.target)
            .env_remove("ETCD_LOCKED_DECLARED_ONLY")
            .env_remove("ETCD_LOCKED_CRATE")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .output()
            .expect("cargo");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), errors)
    }
}

fn package(folder: &Path, (name, dependencies, source): (&str, &str, &str)) {
    let manifest = format!(
        "[package]\nname = {name:?}\nversion = \"0.1.0\"\nedition = \"2024\"\n[dependencies]\n{dependencies}\n"
    );
    fs::create_dir_all(folder.join("src")).expect("a folder");
    fs::write(folder.join("Cargo.toml"), manifest).expect("a manifest");
    fs::write(folder.join("src/lib.rs"), source).expect("a source");
}
