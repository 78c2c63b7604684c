//! Test of `ETCD_LOCKED_DECLARED_ONLY`: one member has templates, one has declared names, and other people's package has templates.

use crate::workspace::{TEMPLATE, Workspace};

const DECLARED: &str = r#"
etcd_locked::lock_names! { pub Order = "orders/<id: u64>"; }
#[etcd_locked::etcd_locked(Order { id })]
pub async fn ship(id: u64) -> Result<(), etcd_locked::LockError> { let _ = id; foreign::ship(id).await }
"#;

#[test]
fn variable_refuses_templates_of_members_only() {
    let dependencies = "etcd-locked = \"0.1\"\nforeign.workspace = true";
    let members = [("declared", dependencies, DECLARED), ("templates", dependencies, TEMPLATE)];
    let workspace = Workspace::new("declared-only", &members);
    workspace.set("ETCD_LOCKED_DECLARED_ONLY = \"0\"");
    workspace.compiles("templates");
    // cargo notices that the variable is set, and compiles the package again.
    workspace.set("ETCD_LOCKED_DECLARED_ONLY = \"1\"");
    let errors = workspace.refused("templates");
    assert!(
        errors.contains("this workspace locks declared names only (`ETCD_LOCKED_DECLARED_ONLY`)"),
        "{errors}"
    );
    assert!(errors.contains("templates/src/lib.rs:2:28"), "{errors}");
    workspace.compiles("declared");
}
