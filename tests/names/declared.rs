//! Check for declared names: `assert_all_declared()` lists the strings in attributes, but not the declared names.

use std::panic::catch_unwind;

use etcd_locked::{LockError, assert_all_declared, etcd_locked, lock_names};

lock_names! {
    Order = "orders/<id: u64>";
    Nightly = "jobs/nightly";
}

#[etcd_locked(Order { id }, Nightly)]
async fn declared(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked(Order { id }, "shipments/<id>")]
async fn undeclared(id: u64) -> Result<(), LockError> {
    Ok(())
}
const UNDECLARED: u32 = line!() - 4;

#[test]
fn strings_in_attributes_are_listed_with_their_place() {
    drop((declared(1), undeclared(1)));
    let panic = catch_unwind(assert_all_declared).expect_err("a string");
    let message = panic.downcast_ref::<String>().expect("a message");
    let (file, module) = (file!(), module_path!());
    assert_eq!(
        *message,
        format!(
            "lock names are written as strings; declare them by `lock_names!`:\n  \
             {file}:{UNDECLARED}: shipments/<id> ({module}::undeclared)"
        )
    );
}
