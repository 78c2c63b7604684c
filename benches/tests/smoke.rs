//! Smoke test of the benches: the runner, its workers and its report on a real etcd, in a second or two. It asserts no figure.

use std::process::Command;

fn bench(line: &str) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(line.split(' '))
        .env_remove("BENCH_GO_PEER")
        .output()
        .expect("the bench starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_row_of_peers_in_rust_runs() {
    let (code, out, err) = bench("--row B1 --peers plain,service --pairs 2 --seconds 0.3");
    assert_eq!(code, Some(0), "{out}{err}");
    for part in ["etcd-client by hand", "etcd's lock service", "load average"] {
        assert!(out.contains(part), "{out}{err}");
    }
    assert!(err.contains("2/2: etcd-locked "), "{out}{err}");
}

#[test]
fn a_peer_that_is_not_there_fails_the_bench() {
    let (code, out, err) = bench("--row B3 --pairs 1 --seconds 0.1");
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(err.contains("BENCH_GO_PEER does not name"), "{out}{err}");
    assert!(!out.contains('×'), "{out}");
}
