//! Tests of the screens of `ls`, `who` and `doctor`, on an etcd whose keys are put by hand.

use etcd_locked::etcd_client::{Client, LeaseGrantOptions, PutOptions};
use etcd_locked_devkit::process::text;
use insta::assert_snapshot;
use serde_json::json;

use crate::scene::{PATIENCE, Scene, await_shown, on_terminal};

/// Id of the first lease; the others follow.
const LEASE: i64 = 0x3375_a208_2950_1600;

/// Call: a process, the function that made the call, and what its task holds while it waits.
type Call = (u32, &'static str, &'static str);

/// Keys under leases, each with the call of its record, if it has one; the first has revision 2.
///
/// Two processes wait for each other, one of three permits may wait, and `etcdctl lock` waits too.
const KEYS: [(&str, Option<Call>); 9] = [
    ("locks/orders/7/1", Some((5711, "shop::invoice", ""))),
    ("locks/accounts/3/2", Some((5712, "shop::pay", ""))),
    ("locks/orders/7/2", Some((5712, "shop::pay", r#",["locks/accounts/3/2",3]"#))),
    ("locks/accounts/3/1", Some((5711, "shop::invoice", r#",["locks/orders/7/1",2]"#))),
    ("locks/orders/7/3f", None),
    ("locks/imports/4.p0", Some((5714, "importer::run", ""))),
    ("locks/imports/5.p0", None),
    // The session key of a process without a lock.
    ("locks%s/9", None),
    ("locks/reports/7.r0", Some((5717, "reports::show", ""))),
];

fn shop() -> Scene {
    let scene = Scene::new();
    scene.runtime.block_on(async {
        let client = Client::connect([scene.etcd.endpoint()], None).await;
        let mut client = client.expect("a client");
        for ((key, call), lease) in KEYS.into_iter().zip(LEASE..) {
            let id = LeaseGrantOptions::new().with_id(lease);
            client.lease_grant(600, Some(id)).await.expect("a lease");
            let options = PutOptions::new().with_lease(lease);
            let value = call.map_or_else(String::new, record);
            client.put(key, value, Some(options)).await.expect("a put");
        }
    });
    scene
}

/// Writes the record of a call that waits or holds since a time in the future, which is shown as a moment ago.
fn record((process, function, holds): Call) -> String {
    let since = "2999-01-01T00:00:00.000Z";
    format!(
        r#"{{"host":"vm","pid":{process},"service":"shop","function":"{function}","template":"orders/<id>","queued_since":"{since}","held_since":"{since}","keys":[["locks/carts/{process}/1",0]{holds}]}}"#
    )
}

/// Returns what a command shows on a terminal of 100 columns.
fn shown(scene: &Scene, args: &[&str]) -> String {
    let mut terminal = on_terminal(&scene.command(args));
    terminal.wait(PATIENCE).expect("it ends");
    terminal.lines().join("\n")
}

#[test]
fn ls_shows_each_name_in_a_row() {
    let scene = shop();
    assert_snapshot!(shown(&scene, &["ls"]), @"
    NAME        MODE       HOLDER                                     HELD FOR  WAITING  LONGEST WAIT
    accounts/3  exclusive  shop vm:5712 shop::pay                     <1s       1        <1s
    imports     permit     shop vm:5714 importer::run, 1 may hold it  <1s       0        -
    orders/7    exclusive  shop vm:5711 shop::invoice                 <1s       2        <1s
    reports     shared     shop vm:5717 reports::show                 <1s       0        -
    calls that wait in the process of a holder are not counted: its `etcd_locked::status()` lists them
    ");
    let in_a_pipe = scene.ends(&["ls", "orders/"], 0);
    assert_eq!(in_a_pipe, "orders/7\texclusive\tshop vm:5711 shop::invoice\t<1s\t2\t<1s\n");
    for (options, names) in [
        (&["no/such/"][..], &[][..]),
        (&["--service", "bank"], &[]),
        (&["--host", "web-1"], &[]),
        (&["--held-for", "1s"], &[]),
        (&["i", "--service", "shop", "--host", "vm"], &["imports"]),
        (&["--sort", "waiters"], &["orders/7", "accounts/3", "imports", "reports"]),
    ] {
        let found = scene.ends(&[&["ls"], options].concat(), 0);
        let found: Vec<_> = found.lines().filter_map(|line| line.split('\t').next()).collect();
        assert_eq!(found, names, "{options:?}");
    }
}

#[test]
fn who_shows_all_contenders_and_the_cycle() {
    let scene = shop();
    assert_snapshot!(shown(&scene, &["who", "orders/7"]), @"
           PROCESS                                MODE       FOR  LEASE             ALSO ASKED FOR
    holds  shop vm:5711 shop::invoice             exclusive  <1s  3375a20829501600  locks/carts/5711/1
    waits  shop vm:5712 shop::pay                 exclusive  <1s  3375a20829501602  locks/carts/5712/1
    waits  not of etcd-locked: locks/orders/7/3f  exclusive  ?    3375a20829501604
    calls that wait in the process of a holder are not listed: its `etcd_locked::status()` has them
    deadlock: orders/7 waits for accounts/3 waits for orders/7; one of these calls is refused with `Dead
    lock` within five seconds
    ");
    let found = scene.json(&["who", "orders/7"]).remove(0);
    let contenders = found["contenders"].as_array().expect("a list");
    assert_eq!(contenders.len(), 3);
    assert_snapshot!(format!("{:#}\n{}", contenders[0], found["cycle"]), @r#"
    {
      "create_revision": 2,
      "function": "shop::invoice",
      "group": [
        "locks/carts/5711/1"
      ],
      "held_since": "2999-01-01T00:00:00.000Z",
      "host": "vm",
      "key": "locks/orders/7/1",
      "lease": "3375a20829501600",
      "mod_revision": 2,
      "mode": "exclusive",
      "pid": 5711,
      "queued_since": "2999-01-01T00:00:00.000Z",
      "service": "shop",
      "standing": "holds",
      "template": "orders/<id>"
    }
    ["orders/7","accounts/3","orders/7"]
    "#);
}

#[test]
fn doctor_says_what_to_mend() {
    let scene = shop();
    for junk in ["locks/orders/8/operator", "locks/stray", "locks%s/jo"] {
        scene.put(junk);
    }
    let page = include_str!("../../JSON.md");
    for finding in scene.json(&["doctor"]) {
        let code = finding["code"].as_str().expect("a code");
        assert!(page.contains(&format!("| `{code}` |")), "{finding}");
    }
    // Measurements differ from run to run.
    let measured = |line: &str| ["MiB", "writes: ", " here"].iter().any(|it| line.contains(it));
    let found = scene.ends(&["doctor"], 1).replace(&scene.etcd.endpoint(), "ENDPOINT");
    let lines = found.lines().map(|line| match measured(line) {
        true => line.replace(|it: char| it.is_ascii_digit(), "#").replace("##", "#"),
        false => line.to_owned(),
    });
    assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @"
    ok  member ENDPOINT: etcd #.#.#, #.# MiB, the leader
    ok  alarms: none
    ok  writes: fast enough: half of # took #.# ms at most, # % of them #.# ms
    ok  rights: this user may read locks, which begin with `locks/`
    ok  rights: this user may write locks, which begin with `locks/`
    ok  rights: this user may read session keys, which begin with `locks%s/`
    ok  rights: this user may write session keys, which begin with `locks%s/`
    ok  names: 5 locked, contenders (holders and waiters): 9
    BAD keys without a lease, whose names stay locked forever: 1: locks/orders/8/operator
        if you know that its owner is gone, delete each with `etcdctl del KEY`, one key per command
    BAD keys directly below the prefix, which lock no name: 1: locks/stray
        it is not a lock of any process: find out who put it there, then delete it with `etcdctl del KEY`
    ok  contenders not of etcd-locked (Go's concurrency package, etcdctl lock, …): 2: locks/imports/5.p0, locks/orders/7/3f
    ok  sessions: 2, 1 of them without a holder or waiter (idle, or ended without a shutdown less than a TTL ago)
    BAD session keys without a lease, which etcd-locked never puts: 1: locks%s/jo
        delete each with `etcdctl del KEY`, one key per command
    ok  clock: etcd's and this machine's run at the same rate: # s there were #.# to #.# s here
    ");
}

/// Keys, records and the names in them contain sequences that a terminal obeys: `ESC ] 0` sets its title.
#[test]
fn no_escape_sequence_of_others_reaches_the_terminal() {
    const EVIL: &str = "\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\r";
    let scene = Scene::new();
    // Two names in a deadlock. A text with control characters is not a name, so the command gets the other one.
    let (a, b) = ("orders", &*format!("b{EVIL}"));
    for (name, pid, holds, at) in [(a, 1, a, 0), (b, 2, b, 0), (a, 2, b, 3), (b, 1, a, 2)] {
        let record = json!({
            "host": EVIL, "pid": pid, "service": EVIL, "function": EVIL, "template": EVIL,
            "queued_since": EVIL, "held_since": EVIL,
        });
        // The record ends with the keys, as they are.
        let keys = format!(r#","keys":[["locks/{holds}/{pid}",{at}]]}}"#);
        let record = record.to_string().replace('}', &keys);
        scene.etcd.gateway().put(&format!("locks/{name}/{pid}"), &record).expect("a put");
    }
    [format!("locks/{EVIL}"), format!("locks%s/{EVIL}")].iter().for_each(|key| scene.put(key));
    let check = |printed: &str| {
        let harms =
            ["\u{1b}]", "\u{7}", "\u{9b}", "\u{202e}"].iter().any(|it| printed.contains(it));
        assert!(printed.contains("owned") && !harms, "{printed:?}");
    };
    let top = on_terminal(&scene.command(&["top"]));
    await_shown(&top, "owned", true);
    check(&top.written());
    for args in [&["ls"][..], &["who", a], &["doctor"]] {
        for json in [None, Some("--json")] {
            let args: Vec<_> = args.iter().copied().chain(json).collect();
            check(&text(&scene.run(&args)));
            let mut terminal = on_terminal(&scene.command(&args));
            terminal.wait(PATIENCE).expect("it ends");
            check(&terminal.written());
        }
    }
}
