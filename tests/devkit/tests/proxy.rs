//! Faults of the proxy, in front of a server that sends back what it receives.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use etcd_locked_devkit::{Direction, Proxy, until};

const LIMIT: Duration = Duration::from_secs(10);
/// How long a read waits for data that must not come.
const SILENCE: Duration = Duration::from_millis(100);

/// Starts a proxy in front of a server that sends everything back, and hangs up when its client does.
fn proxy() -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    Proxy::start(address.to_string()).expect("a proxy")
}

fn client(proxy: &Proxy) -> TcpStream {
    let client = TcpStream::connect(proxy.address()).expect("the proxy accepts");
    client.set_read_timeout(Some(LIMIT)).expect("a socket");
    client
}

fn send(mut client: &TcpStream, text: &str) {
    client.write_all(text.as_bytes()).expect("it is connected");
}

fn receives(mut client: &TcpStream, text: &str) {
    let mut received = vec![0; text.len()];
    client.read_exact(&mut received).expect("the data come");
    assert_eq!(String::from_utf8_lossy(&received), text);
}

fn receives_nothing(mut client: &TcpStream) {
    client.set_read_timeout(Some(SILENCE)).expect("a socket");
    let error = client.read(&mut [0]).expect_err("there are no data");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    client.set_read_timeout(Some(LIMIT)).expect("a socket");
}

fn is_reset(mut client: &TcpStream) {
    let error = client.read(&mut [0]).expect_err("no end, but a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn passes_data_and_hang_ups_and_counts_them() {
    let proxy = proxy();
    let client = client(&proxy);
    send(&client, "hello");
    receives(&client, "hello");
    assert_eq!((proxy.connections(), proxy.open()), (1, 1));
    client.shutdown(std::net::Shutdown::Write).expect("it is connected");
    assert_eq!((&client).read(&mut [0]).expect("an end"), 0);
    until("the connection is over", LIMIT, || proxy.open() == 0).unwrap();
    for direction in [Direction::Requests, Direction::Answers] {
        assert_eq!(proxy.bytes(direction), 5);
    }
    assert!(proxy.is_drained());
}

#[test]
fn new_connections_go_where_the_proxy_leads() {
    let (server, proxy) = (proxy(), Proxy::start("127.0.0.1:1").unwrap());
    is_reset(&client(&proxy));
    proxy.lead_to(server.address().to_string());
    let old = client(&proxy);
    send(&old, "hello");
    receives(&old, "hello");
    proxy.lead_to("127.0.0.1:1");
    is_reset(&old);
}

#[test]
fn frozen_data_arrive_after_the_thaw() {
    for direction in [Direction::Requests, Direction::Answers] {
        let proxy = proxy();
        let client = client(&proxy);
        proxy.freeze(direction);
        send(&client, "late");
        receives_nothing(&client);
        assert!(!proxy.is_drained());
        assert_eq!(proxy.bytes(direction), 0);
        proxy.thaw();
        receives(&client, "late");
    }
}

#[test]
fn a_freeze_of_existing_connections_spares_new_ones() {
    let proxy = proxy();
    let old = client(&proxy);
    send(&old, "first");
    receives(&old, "first");
    proxy.freeze_existing(Direction::Answers);
    let new = client(&proxy);
    send(&old, "waits");
    send(&new, "passes");
    receives(&new, "passes");
    receives_nothing(&old);
    proxy.heal();
    receives(&old, "waits");
}

#[test]
fn a_cut_loses_data_and_its_end_resets_who_lost_them() {
    for direction in [Direction::Requests, Direction::Answers] {
        let proxy = proxy();
        let (unlucky, idle) = (client(&proxy), client(&proxy));
        for client in [&unlucky, &idle] {
            send(client, "first");
            receives(client, "first");
        }
        proxy.cut(direction);
        send(&unlucky, "lost");
        receives_nothing(&unlucky);
        until("the data are lost", LIMIT, || proxy.is_drained()).unwrap();
        proxy.heal();
        is_reset(&unlucky);
        send(&idle, "goes on");
        receives(&idle, "goes on");
    }
}

#[test]
fn a_reset_reaches_the_client_and_new_connections_pass() {
    let proxy = proxy();
    let old = client(&proxy);
    send(&old, "first");
    receives(&old, "first");
    proxy.reset_all();
    is_reset(&old);
    let new = client(&proxy);
    send(&new, "again");
    receives(&new, "again");
    until("the old one is over", LIMIT, || proxy.open() == 1).unwrap();
}

#[test]
fn a_half_open_connection_is_silent_until_it_is_healed() {
    let proxy = proxy();
    let client = client(&proxy);
    send(&client, "first");
    receives(&client, "first");
    proxy.half_open();
    send(&client, "into the void");
    receives_nothing(&client);
    proxy.heal();
    is_reset(&client);
}

#[test]
fn a_delay_holds_data_back_for_its_time() {
    let proxy = proxy();
    let client = client(&proxy);
    proxy.delay(Duration::from_millis(60));
    let start = Instant::now();
    send(&client, "later");
    receives(&client, "later");
    assert!(start.elapsed() >= Duration::from_millis(120));
}

#[test]
fn delayed_chunks_wait_at_the_same_time() {
    let proxy = proxy();
    let client = client(&proxy);
    proxy.delay(Duration::from_secs(3_600));
    for (sent, text) in [(1, "one, "), (2, "two")] {
        send(&client, text);
        until("it is in the proxy", LIMIT, || proxy.in_flight() == sent).unwrap();
    }
    proxy.heal();
    receives(&client, "one, two");
}

#[test]
fn a_hang_up_arrives_after_the_delayed_data() {
    let proxy = proxy();
    let client = client(&proxy);
    proxy.delay(Duration::from_millis(60));
    send(&client, "last");
    client.shutdown(std::net::Shutdown::Write).expect("it is connected");
    receives(&client, "last");
    assert_eq!((&client).read(&mut [0]).expect("an end"), 0);
}

#[test]
fn a_trickle_passes_bytes_at_its_rate() {
    let proxy = proxy();
    let client = client(&proxy);
    proxy.trickle(200);
    let start = Instant::now();
    let text = "x".repeat(100);
    send(&client, &text);
    receives(&client, &text);
    // The last drop passes before its time is over.
    assert!(start.elapsed() >= Duration::from_millis(450));
    proxy.heal();
    let text = "y".repeat(100_000);
    send(&client, &text);
    receives(&client, &text);
}

#[test]
fn a_proxy_that_refuses_spares_open_connections() {
    let proxy = proxy();
    let old = client(&proxy);
    send(&old, "first");
    receives(&old, "first");
    proxy.refuse();
    proxy.refuse();
    let error = TcpStream::connect(proxy.address()).expect_err("it refuses");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    send(&old, "goes on");
    receives(&old, "goes on");
    proxy.accept_again().unwrap();
    let new = client(&proxy);
    send(&new, "again");
    receives(&new, "again");
}

#[test]
fn a_server_that_is_not_there_resets_the_client() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let proxy = Proxy::start(address.to_string()).expect("a proxy");
    is_reset(&client(&proxy));
    assert_eq!((proxy.connections(), proxy.open()), (1, 0));
}

#[test]
fn a_dropped_proxy_ends_its_connections() {
    let proxy = proxy();
    let client = client(&proxy);
    send(&client, "first");
    receives(&client, "first");
    drop(proxy);
    is_reset(&client);
}
