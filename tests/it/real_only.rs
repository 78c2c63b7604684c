//! Mark of the tests that need a real etcd, in their first line. All others also run on an embedded one, unchanged.

use std::io::{self, Write};
use std::thread;

use crate::corner::Corner;
use crate::etcd::on_embedded;
use crate::limit;

/// Ends a test at once if etcd is embedded, and prints the reason.
macro_rules! real_etcd_only {
    ($why:literal) => {
        if crate::real_only::is_left_out($why) {
            return;
        }
    };
}

pub(crate) use real_etcd_only;

/// Returns true if the test of this thread must be left out, and prints that.
pub(crate) fn is_left_out(why: &str) -> bool {
    if on_embedded() {
        say_left_out(why);
    }
    on_embedded()
}

/// Prints that the test of this thread, or a part of it, is left out.
pub(crate) fn say_left_out(why: &str) {
    // The test harness gives the thread of a test the test's name.
    let thread = thread::current();
    let test = thread.name().unwrap_or_default();
    // Not `println!`: the harness captures it, and hides it if the test passes. `cargo xtask test` counts these lines.
    let _ = writeln!(io::stdout(), "test {test} ... left out: {why}");
}

#[limit::test]
async fn the_etcd_is_the_one_that_was_asked_for() {
    let corner = Corner::new().await;
    let members = corner.client.clone().member_list().await.unwrap();
    assert_eq!(members.members()[0].name() == "embedded", on_embedded());
    let config = format!("{:?}", corner.config());
    assert_eq!(config.contains("the embedded etcd"), on_embedded(), "{config}");
    let locks = corner.locks().await;
    let held = locks.lock("orders/7").await.unwrap();
    assert_eq!(corner.contenders("orders/7").await.len(), 1);
    held.release().await.unwrap();
}
