//! Compile errors that a user sees after a mistake: one file per message, named for the mistake.
//!
//! `TRYBUILD=overwrite cargo test -p etcd-locked-mistakes` writes the `.stderr` files; read them as a user would.

#[test]
fn every_mistake_has_its_own_error() {
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}
