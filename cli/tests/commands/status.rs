//! Tests of the exit status of commands, and of their errors.

use std::fs::File;
use std::process::Stdio;

use etcd_locked_devkit::Direction;
use etcd_locked_devkit::process::text;

use crate::scene::{NOWHERE, Scene, command, ends, says};

#[test]
fn output_that_cannot_be_written_is_no_etcd_out_of_reach() {
    let scene = Scene::new();
    scene.put("locks/orders/7/operator");
    let output_to = |args: &[&str], stdout: Stdio| {
        let output = scene.command(args).stdout(stdout).output();
        let output = output.expect("the command line runs");
        (output.status.code(), text(&output))
    };
    for (args, closed) in
        [(&["ls"][..], 0), (&["doctor"], 1), (&["completions", "zsh"], 0), (&["man"], 0)]
    {
        let full = File::options().write(true).open("/dev/full").expect("a full device");
        let (status, said) = output_to(args, full.into());
        assert_eq!(status, Some(4), "{args:?}: {said}");
        // A reader that ends early, as `head` does, is not a fault of the command. It does not hide a fault of etcd either.
        let (reader, pipe) = std::io::pipe().expect("a pipe");
        drop(reader);
        assert_eq!(output_to(args, pipe.into()), (Some(closed), String::new()), "{args:?}");
    }
}

#[test]
fn exit_status_tells_wrong_use_from_an_etcd_out_of_reach() {
    for (endpoint, args, status, said) in [
        (NOWHERE, &["ls"][..], 3, ""),
        ("http://me:secret@127.0.0.1:1", &["ls"], 2, ""),
        (NOWHERE, &["look"], 2, ""),
        (NOWHERE, &["top"], 2, "ls --watch"),
        (NOWHERE, &["ls", "--watch=99ms"], 2, "at least 100ms"),
        (NOWHERE, &["ls", "--user", "shop"], 2, "`--user`"),
        (NOWHERE, &["top", "--json"], 2, "--json"),
        (NOWHERE, &["man", "--json"], 2, "--json"),
        (NOWHERE, &["completions", "bash", "--json"], 2, "--json"),
        #[cfg(target_os = "linux")]
        (NOWHERE, &["exec", "jobs/backup", "--json", "--", "true"], 64, "--json"),
    ] {
        let found = ends(endpoint, args, status);
        assert!(found.contains(said) && !found.contains("secret"), "{found}");
    }
    let output = command(NOWHERE, &["ls"]).env("ETCD_LOCKED_TLL", "1m").output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("write `ETCD_LOCKED_TTL`"), "{output:?}");
}

#[test]
fn command_timeout_bounds_a_read() {
    let scene = Scene::new();
    let proxy = scene.proxy();
    proxy.freeze(Direction::Answers);
    let said = ends(&proxy.endpoint(), &["ls", "--command-timeout", "200ms"], 3);
    says(&said, &["etcd does not answer within 200ms"]);
}

#[test]
fn completions_and_the_man_page_know_every_command() {
    let page = ends(NOWHERE, &["man"], 0);
    let sections = ["EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO", "COMMAND EXEC"];
    says(&page, &sections.map(|it| format!(".SH {it}\n")));
    for printed in [page, ends(NOWHERE, &["completions", "bash"], 0)] {
        says(&printed, &["ls", "who", "kick", "top", "exec", "doctor"]);
    }
}

/// Such a name is not reported as free, because the user meant another one.
#[test]
fn name_that_nobody_can_lock_is_refused() {
    let scene = Scene::new();
    for command in ["who", "kick"] {
        for name in ["orders/7/", "/orders/7", "orders//7", "orders/<id>", ""] {
            says(&scene.ends(&[command, name], 2), &["is not a name"]);
        }
        says(&scene.ends(&[command, "locks/orders/7"], 1), &["did you mean `orders/7`?"]);
    }
}
