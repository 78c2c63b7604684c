//! Test of `ETCD_LOCKED_CRATE`: one member re-exports the runtime, and another has it from there.

use crate::workspace::Workspace;

const PLATFORM: &str = "pub use etcd_locked as locks;";

const SHOP: &str = r#"
use platform::locks::{LockError, etcd_locked};

#[etcd_locked("orders/<id>")]
pub async fn ship(id: u64) -> Result<(), LockError> { let _ = id; foreign::ship(id).await?; Ok(()) }
"#;

#[test]
fn runtime_of_another_package_is_named_once() {
    let members = [
        ("platform", "etcd-locked = \"0.1\"", PLATFORM),
        ("shop", "platform = { path = \"../platform\" }\nforeign.workspace = true", SHOP),
    ];
    let workspace = Workspace::new("reexported", &members);
    workspace.set("ETCD_LOCKED_CRATE = \"\"");
    let errors = workspace.refused("shop");
    assert!(errors.contains("`crate = ::path::to::etcd_locked`"), "{errors}");
    assert!(errors.contains("shop/src/lib.rs:4:1"), "{errors}");
    workspace.set("ETCD_LOCKED_CRATE = \"::platform::locks\"");
    workspace.compiles("shop");
}
