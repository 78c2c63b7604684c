//! Exit status of commands, and errors in the user's words.

use std::fs::File;
use std::process::Stdio;

use etcd_locked_devkit::Cluster;
use etcd_locked_devkit::process::text;

use crate::scene::{NOWHERE, Scene, command, run};

#[test]
fn full_disk_is_no_etcd_out_of_reach() {
    let scene = Scene::new();
    scene.put("locks/orders/7/1f");
    for args in [&["ls"][..], &["doctor"], &["completions", "bash"], &["man"]] {
        let full = File::options().write(true).open("/dev/full");
        let mut command = scene.command(args);
        command.stdout(full.expect("a full device"));
        let output = command.output().expect("the command line runs");
        assert_eq!(output.status.code(), Some(4), "{args:?}: {}", text(&output));
    }
}

#[test]
fn closed_pipe_is_no_fault_of_what_only_prints() {
    for args in [&["completions", "zsh"][..], &["man"]] {
        let mut printing = command(NOWHERE, args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command line runs");
        drop(printing.stdout.take());
        let output = printing.wait_with_output().expect("its end");
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output));
        assert_eq!(text(&output), "");
    }
}

#[test]
fn missing_right_is_named_with_what_finds_the_rights() {
    let mut cluster = Cluster::start(1).expect("an etcd");
    let access = cluster.enable_auth("shop", "secret", &["shop/"]);
    access.expect("access control");
    for args in [&["ls"][..], &["who", "orders/7"]] {
        let args = [args, &["--user", "shop:secret"]].concat();
        let denied = run(&cluster.endpoints().concat(), &args);
        let said = text(&denied);
        assert_eq!(denied.status.code(), Some(3), "{said}");
        assert!(said.contains("permission denied"), "{said}");
        assert!(said.contains("`etcd-locked doctor`"), "{said}");
    }
}

#[test]
fn json_is_refused_where_no_object_is_printed() {
    for args in [
        &["top"][..],
        &["man"],
        &["completions", "bash"],
        #[cfg(target_os = "linux")]
        &["exec", "jobs/backup", "--", "true"],
    ] {
        let refused = run(NOWHERE, &[&["--json"], args].concat());
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        assert!(text(&refused).contains("--json"), "{}", text(&refused));
    }
}

#[test]
fn error_names_the_option_that_was_given() {
    let option = text(&run(NOWHERE, &["ls", "--user", "shop"]));
    assert!(option.contains("`--user`"), "{option}");
    assert!(!option.contains("ETCD_LOCKED_USER"), "{option}");
    let mut command = command(NOWHERE, &["ls"]);
    let variable = command.env("ETCD_LOCKED_USER", "shop").output();
    let variable = text(&variable.expect("the command line runs"));
    assert!(variable.contains("`ETCD_LOCKED_USER`"), "{variable}");
}
