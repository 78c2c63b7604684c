//! Test of `ETCD_LOCKED_DECLARED_ONLY` in a cargo workspace.
//!
//! One member has templates, one has declared names. A vendored package of other people has templates, and lies where
//! `cargo vendor` puts it. The runtime is a stub, as nothing is run.

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
    use std::{future::Future, pin::Pin, time::Duration};
    pub use etcd_locked_macros::lock_names;
    use super::*;
    pub struct Site { pub function: &'static str, pub wait: Option<Wait>, pub ttl: Option<Duration> }
    pub enum Wait { Once, For(Duration), Forever }
    pub struct Lock;
    pub fn name(_: &'static str, _: &[&dyn LockKey]) -> Name { Name }
    pub fn name_of(name: &dyn LockName) -> Name { name.lock_name() }
    pub fn lock(_: &[Name], _: &'static Site) -> Lock { Lock }
    impl Lock {
        pub async fn hold<F: Future>(&mut self, _: Pin<&mut Option<F>>) -> Result<F::Output, LockError> { Err(LockError) }
    }
    pub fn finish<T>(result: Result<Result<T, LockError>, LockError>) -> Result<T, LockError> { result? }
}
"#;

const TEMPLATE: &str = r#"
#[etcd_locked::etcd_locked("orders/<id>")]
pub async fn ship(id: u64) -> Result<(), etcd_locked::LockError> { let _ = id; Ok(()) }
"#;

const DECLARED: &str = r#"
etcd_locked::lock_names! { pub Order = "orders/<id: u64>"; }
#[etcd_locked::etcd_locked(Order { id })]
pub async fn ship(id: u64) -> Result<(), etcd_locked::LockError> { let _ = id; foreign::ship(id).await }
"#;

/// Source of the vendored package; cargo does not contact it.
const GIT: &str = "https://example.org/foreign";

struct Project {
    root: PathBuf,
    target: PathBuf,
    _folder: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("team");
        let foreign = root.join("vendor/foreign");
        let repository = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("a workspace");
        let macros = repository.join("macros").display().to_string();
        package(&foreign, "foreign", r#"etcd-locked = "0.1""#, TEMPLATE);
        fs::write(
            foreign.join(".cargo-checksum.json"),
            r#"{"files":{},"package":null}"#,
        )
        .expect("a checksum");
        package(
            &root.join("stub"),
            "etcd-locked",
            &format!("etcd-locked-macros = {{ path = {macros:?} }}"),
            RUNTIME,
        );
        let dependencies = format!("etcd-locked = \"0.1\"\nforeign = {{ git = {GIT:?} }}");
        package(&root.join("declared"), "declared", &dependencies, DECLARED);
        package(
            &root.join("templates"),
            "templates",
            &dependencies,
            TEMPLATE,
        );
        let members = "[workspace]\nresolver = \"3\"\nmembers = [\"declared\", \"templates\"]\nexclude = [\"stub\"]\n\
                       [patch.crates-io]\netcd-locked = { path = \"stub\" }\n";
        fs::write(root.join("Cargo.toml"), members).expect("a manifest");
        // The packages that are downloaded already, and the vendored one.
        let lock = fs::read_to_string(repository.join("Cargo.lock")).expect("a lock file");
        let foreign = format!(
            "\n[[package]]\nname = \"foreign\"\nversion = \"0.1.0\"\nsource = \"git+{GIT}#{}\"\ndependencies = [\"etcd-locked\"]\n",
            "0".repeat(40)
        );
        fs::write(root.join("Cargo.lock"), lock + &foreign).expect("a lock file");
        Self {
            target: Path::new(env!("CARGO_TARGET_TMPDIR")).join("declared-only"),
            root,
            _folder: folder,
        }
    }

    /// Writes cargo's configuration with this value of the variable.
    fn set(&self, value: &str) {
        let config = format!(
            "[env]\nETCD_LOCKED_DECLARED_ONLY = {value:?}\n\
             [source.{GIT:?}]\ngit = {GIT:?}\nreplace-with = \"vendored\"\n[source.vendored]\ndirectory = \"vendor\"\n"
        );
        fs::create_dir_all(self.root.join(".cargo")).expect("a folder");
        fs::write(self.root.join(".cargo/config.toml"), config).expect("a config");
    }

    /// Runs `cargo check` of one package. Returns true if it compiles, and the compiler's output.
    fn check(&self, package: &str) -> (bool, String) {
        let output = Command::new(env!("CARGO"))
            .current_dir(&self.root)
            .args(["check", "--offline", "--quiet", "--package", package])
            .env("CARGO_TARGET_DIR", &self.target)
            .env_remove("ETCD_LOCKED_DECLARED_ONLY")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .output()
            .expect("cargo");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), errors)
    }
}

fn package(folder: &Path, name: &str, dependencies: &str, source: &str) {
    let manifest = format!(
        "[package]\nname = {name:?}\nversion = \"0.1.0\"\nedition = \"2024\"\n[dependencies]\n{dependencies}\n"
    );
    fs::create_dir_all(folder.join("src")).expect("a folder");
    fs::write(folder.join("Cargo.toml"), manifest).expect("a manifest");
    fs::write(folder.join("src/lib.rs"), source).expect("a source");
}

#[test]
fn variable_refuses_templates_of_members_only() {
    let project = Project::new();
    let compiles = |package: &str| {
        let (compiles, errors) = project.check(package);
        assert!(compiles, "{package}: {errors}");
    };
    project.set("0");
    compiles("templates");
    // cargo notices that the variable is set, and compiles the package again.
    project.set("1");
    let (compiled, errors) = project.check("templates");
    // The macro's error, and cargo's "could not compile".
    assert!(
        !compiled && errors.matches("error:").count() == 2,
        "{errors}"
    );
    assert!(
        errors.contains("this workspace locks declared names only (`ETCD_LOCKED_DECLARED_ONLY`)"),
        "{errors}"
    );
    assert!(errors.contains("templates/src/lib.rs:2:28"), "{errors}");
    compiles("declared");
}
