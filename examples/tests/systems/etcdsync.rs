//! Row S7, etcdsync: New, Lock, Unlock without the attribute. A failing endpoint is skipped, the holder has a record, and the log
//! shows each step.

use etcd_locked_devkit::port;

use crate::etcd::Etcd;
use crate::limit::run;
use crate::stage::Stage;

const EXAMPLE: &str = env!("CARGO_BIN_EXE_etcdsync");

#[test]
fn new_lock_unlock_with_a_dead_endpoint_and_a_log() {
    run(async {
        let etcd = Etcd::start().await;
        // No server listens there.
        let dead = format!("http://127.0.0.1:{}", port::free());
        let stage = Stage::new(format!("{dead},{}", etcd.endpoints()));
        let log = [("RUST_LOG", "etcd_locked=trace")];
        // The work takes longer than all steps up to its end, and etcd is away for less than the TTL.
        let mut first = stage.start_with(EXAMPLE, &["12"], &log);
        stage.says("Get the lock. Do something here.").await;
        let silent = Stage::new(etcd.endpoints());
        let mut second = silent.start(EXAMPLE, &["1"]);
        silent.says("locked by ").await;
        // The second endpoint also fails for a while.
        etcd.members[0].kill().unwrap();
        let does_not_serve = |url: &str| format!("an endpoint does not serve cause={url}");
        let failed = does_not_serve(&etcd.endpoints());
        stage.says(&failed).await;
        etcd.restart().await;
        stage.ends_well(&mut first).await;
        silent.ends_well(&mut second).await;

        stage.printed_in_order(&[
            "etcd has granted a lease",
            "requesting a lock",
            "name=\"mylock\"",
            "lock acquired", // the single try
            "lock released",
            "requesting a lock",
            "lock acquired",
            "etcdsync.Lock OK",
            "Get the lock. Do something here.",
            &failed,
            "lock released",
            "released",
            "etcdsync.Unlock OK",
            "revoking a lease",
        ]);
        stage.says(&does_not_serve(&dead)).await;

        let record = silent.says("locked by ").await.text;
        let pid = format!("-{}-20", first.pid()); // and a year
        assert!(record.contains(&pid), "the record has the holder's process id and a time",);
        silent.printed_in_order(&["locked by ", "etcdsync.Lock OK", "etcdsync.Unlock OK"]);
        assert_eq!(silent.count("DEBUG"), 0, "no log without RUST_LOG");
    });
}
