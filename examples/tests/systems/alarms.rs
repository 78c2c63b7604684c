//! Row `alarms`: an etcd at its quota takes no locks until its alarm is disarmed.

use crate::etcd::Etcd;
use crate::limit::run;
use crate::stage::Stage;

const EXAMPLE: &str = env!("CARGO_BIN_EXE_alarms");
const QUOTA: u64 = 16 * 1024 * 1024;
const CHUNK: usize = 512 * 1024;

#[test]
fn a_full_etcd_takes_locks_again() {
    run(async {
        let etcd = Etcd::start_with_quota(QUOTA).await;
        let stage = Stage::new(etcd.endpoints());
        let mut example = stage.start(EXAMPLE, &[]);
        stage.says("connected").await;
        let mut client = etcd.client().await;
        // One key, written until etcd is full of its history.
        let refused = loop {
            if let Err(error) = client.put("filler", vec![b'x'; CHUNK], None).await {
                break error.to_string();
            }
        };
        assert!(refused.contains("database space exceeded"), "{refused}");

        example.enter();
        stage.ends_well(&mut example).await;
        stage.printed_in_order(&[
            "no lock: ",
            "compacted up to revision ",
            "defragmented",
            "disarmed Nospace of member ",
            "a lock can be had again",
        ]);
        let mut example = stage.start(EXAMPLE, &[]);
        example.enter();
        stage.ends_well(&mut example).await;
        stage.says("no alarm stands in its way").await;
    });
}
