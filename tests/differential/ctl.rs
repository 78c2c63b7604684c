//! etcdctl scenarios: its ordinary commands print the same on a real etcd and on an embedded one served on TCP.

use std::thread;

use etcd_locked_embedded::Etcd as Embedded;
use rustix::process::Signal;
use tokio::net::TcpListener;

use crate::random;
use crate::screen::Screen;

/// Plays a scenario on both etcds, and asserts that both show the same.
fn same(scenario: fn(&mut Screen)) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let (etcd, address) = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let embedded = Embedded::new();
        tokio::spawn(async move { embedded.serve(listener).await });
        (random::start().await, address)
    });
    let play = |address: &str| {
        let mut screen = Screen::new(address);
        thread::spawn(move || {
            scenario(&mut screen);
            screen.shown
        })
    };
    let (real, embedded) = (play(&etcd.address()), play(&address));
    let (real, embedded) =
        (real.join().expect("the real one's"), embedded.join().expect("the embedded one's"));
    for (real, embedded) in real.iter().zip(&embedded) {
        println!("{real}");
        assert_eq!(real, embedded);
    }
    assert_eq!(real.len(), embedded.len());
}

#[test]
fn etcdctl_reads_and_writes_keys_alike() {
    same(|etcd| {
        for line in [
            "put a 1",
            "put a 2 --prev-kv",
            "put a/1 one",
            "put a/2 two",
            "put b 3",
            "put b --ignore-value",
            "put none --ignore-value",
            "put '' 1",
            "get a",
            "get a -w json",
            "get a -w fields",
            "get a --hex",
            "get a --rev 2",
            "get a --rev 99",
            "get --prefix a",
            "get --prefix a --keys-only",
            "get --prefix a --print-value-only",
            "get --prefix a --count-only -w fields",
            "get --from-key a/1",
            "get a b",
            "get --prefix '' --sort-by VALUE --order DESCEND",
            "get --prefix '' --sort-by MODIFY --order ASCEND --limit 2 -w json",
            "get a --consistency s",
            "del a/1 --prev-kv",
            "del none",
            "del a --prefix",
            "del '' --from-key -w json",
            "get --prefix ''",
            "put a 1",
            "compaction 5",
            "compaction 5",
            "compaction 999",
            "get a --rev 3",
            "watch a --rev 3",
            "compaction 8 --physical",
        ] {
            etcd.run(line);
        }
    });
}

#[test]
fn etcdctl_runs_transactions_alike() {
    same(|etcd| {
        etcd.run("put a 1");
        for input in [
            "value(\"a\") = \"1\"\nversion(\"b\") = \"0\"\n\nput a 2\nput b 1\nget a\n\nput a 0\n\n",
            "value(\"a\") = \"1\"\n\nput a 3\n\nget --prefix a\ndel b\n\n",
            "mod(\"a\") > \"1\"\ncreate(\"a\") < \"9\"\n\nput a 4\nput a 5\n\n\n",
            "value(\"a\") < \"9\"\n\ndel --prefix a\n\n\n",
            "\nget a\n\n\n",
        ] {
            etcd.type_in("txn", input);
            etcd.type_in("txn -w json", input);
        }
        etcd.run("get --prefix ''");
    });
}

#[test]
fn etcdctl_handles_leases_alike() {
    same(|etcd| {
        let granted = etcd.run("lease grant 60");
        let id = granted.split_whitespace().nth(1).expect("an id").to_owned();
        for line in [
            "put --lease ID a 1",
            "put --lease ID b 1",
            "put --lease 1234 c 1",
            "get a -w json",
            "lease list",
            "lease keep-alive --once ID",
            "lease keep-alive --once 1234",
            "lease timetolive 1234",
            "lease timetolive 1234 -w json",
            "lease revoke ID",
            "lease revoke ID",
            "lease timetolive ID --keys",
            "lease list",
            "get --prefix ''",
            "lease grant 0",
            "lease grant 9000000001",
            "lease grant 100 -w json",
        ] {
            etcd.run(&line.replace("ID", &id));
            if line.contains(" b ") {
                // The remaining seconds depend on the time that passes.
                let output = etcd.quietly(&format!("lease timetolive {id} --keys"), "");
                let (before, after) = output.split_once("remaining(").expect("what remains");
                let (seconds, after) = after.split_once("s)").expect("seconds");
                let seconds: u64 = seconds.parse().expect("a number");
                assert!((50..60).contains(&seconds), "{output}");
                // etcd lists the keys in any order.
                let after = after.replace("[b a]", "[a b]");
                etcd.show("lease timetolive", &format!("{before}{after}"));
            }
        }
    });
}

#[test]
fn etcdctl_watches_alike() {
    same(|etcd| {
        etcd.run("put w/1 before");
        let mut all = etcd.start("watch --prefix w/ --rev 2 --prev-kv");
        let mut json = etcd.start("watch w/end --rev 1 -w json");
        let mut range = etcd.start("watch w/1 w/2 --rev 1");
        etcd.run("put w/1 one");
        etcd.run("put w/2 two");
        etcd.run("del --prefix w/");
        etcd.run("put w/1 the-end");
        etcd.run("put w/end the-end");
        for (line, running, until) in [
            ("watch all", &mut all, "w/end\nthe-end"),
            ("watch json", &mut json, "}"),
            ("watch range", &mut range, "the-end"),
        ] {
            let mut output = String::new();
            while !output.trim_end().ends_with(until) {
                let more = running.read_until("");
                assert!(!more.is_empty(), "{line} has ended after {output}");
                output += &more;
            }
            etcd.show(line, &output);
        }
    });
}

#[test]
fn etcdctl_locks_and_elects_alike() {
    same(|etcd| {
        etcd.run("lock l echo held");
        let mut first = etcd.start("lock l");
        let key = first.read_until("");
        etcd.show("lock l", &key);
        let mut second = etcd.start("lock l echo second");
        // etcdctl prints each key and an empty line.
        etcd.wait_for("get --prefix l/ --keys-only", 4);
        first.signal(Signal::TERM);
        let rest = second.read_until("second");
        etcd.show("lock l echo second", &rest);
        etcd.wait_for("get --prefix l/ --keys-only", 0);
        drop((first, second));

        let mut leader = etcd.start("elect e one");
        let output = leader.read_until("one");
        etcd.show("elect e one", &output);
        let mut listener = etcd.start("elect -l e");
        let output = listener.read_until("one");
        etcd.show("elect -l e", &output);
        drop((leader, listener));
    });
}
