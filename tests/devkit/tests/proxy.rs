//! Tests of the proxy's faults, in front of a server that sends back what it receives.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use etcd_locked_devkit::{Direction, Proxy, until};

const LIMIT: Duration = Duration::from_secs(10);
/// How long a read waits for data that must not come.
const SILENCE: Duration = Duration::from_millis(100);
const BOTH: [Direction; 2] = [Direction::Requests, Direction::Answers];

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

struct Client(TcpStream);

impl Client {
    fn of(proxy: &Proxy) -> Self {
        let client = TcpStream::connect(proxy.address()).expect("the proxy accepts");
        client.set_read_timeout(Some(LIMIT)).expect("a socket");
        Self(client)
    }

    /// Connects, and awaits that the first data comes back.
    fn known_to(proxy: &Proxy) -> Self {
        let client = Self::of(proxy);
        client.echoes("first");
        client
    }

    fn send(&self, text: &str) {
        (&self.0).write_all(text.as_bytes()).expect("it is connected");
    }

    fn hang_up(&self) {
        self.0.shutdown(Shutdown::Write).expect("it is connected");
    }

    fn receives(&self, text: &str) {
        let mut received = vec![0; text.len()];
        (&self.0).read_exact(&mut received).expect("the data come");
        assert_eq!(String::from_utf8_lossy(&received), text);
    }

    fn echoes(&self, text: &str) {
        self.send(text);
        self.receives(text);
    }

    fn receives_nothing(&self) {
        self.0.set_read_timeout(Some(SILENCE)).expect("a socket");
        let error = (&self.0).read(&mut [0]).expect_err("there are no data");
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
        self.0.set_read_timeout(Some(LIMIT)).expect("a socket");
    }

    fn receives_the_end(&self) {
        assert_eq!((&self.0).read(&mut [0]).expect("an end"), 0);
    }

    fn is_reset(&self) {
        let error = (&self.0).read(&mut [0]).expect_err("no end, but a reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}

#[test]
fn passes_data_and_hang_ups_and_counts_them() {
    let proxy = proxy();
    let client = Client::known_to(&proxy);
    assert_eq!((proxy.connections(), proxy.open()), (1, 1));
    client.hang_up();
    client.receives_the_end();
    until("the connection is over", LIMIT, || proxy.open() == 0).unwrap();
    assert_eq!(BOTH.map(|direction| proxy.bytes(direction)), [5, 5]);
    assert!(proxy.is_drained());
}

#[test]
fn new_connections_go_where_the_proxy_leads() {
    let (server, proxy) = (proxy(), Proxy::start("127.0.0.1:1").unwrap());
    Client::of(&proxy).is_reset();
    assert_eq!(proxy.connections(), 1);
    proxy.lead_to(server.address().to_string());
    let old = Client::known_to(&proxy);
    proxy.lead_to("127.0.0.1:1");
    old.echoes("goes on");
}

#[test]
fn frozen_data_arrive_after_the_thaw() {
    for direction in BOTH {
        let proxy = proxy();
        let client = Client::of(&proxy);
        proxy.freeze(direction);
        client.send("late");
        client.receives_nothing();
        assert!(!proxy.is_drained());
        assert_eq!(proxy.bytes(direction), 0);
        proxy.thaw();
        client.receives("late");
    }
}

#[test]
fn a_cut_loses_data_and_its_end_resets_who_lost_them() {
    for direction in BOTH {
        let proxy = proxy();
        let (unlucky, idle) = (Client::known_to(&proxy), Client::known_to(&proxy));
        proxy.cut(direction);
        unlucky.send("lost");
        unlucky.receives_nothing();
        until("the data are lost", LIMIT, || proxy.is_drained()).unwrap();
        proxy.heal();
        unlucky.is_reset();
        idle.echoes("goes on");
    }
}

#[test]
fn a_reset_reaches_the_client_and_new_connections_pass() {
    let proxy = proxy();
    let old = Client::known_to(&proxy);
    proxy.reset_all();
    old.is_reset();
    let new = Client::known_to(&proxy);
    until("the old one is over", LIMIT, || proxy.open() == 1).unwrap();
    // A proxy that is dropped ends its connections too.
    drop(proxy);
    new.is_reset();
}

#[test]
fn a_half_open_connection_is_silent_until_it_is_healed() {
    let proxy = proxy();
    let client = Client::known_to(&proxy);
    proxy.half_open();
    client.send("into the void");
    client.receives_nothing();
    proxy.heal();
    client.is_reset();
}

#[test]
fn delayed_data_and_hang_ups_arrive_after_their_time() {
    let proxy = proxy();
    let client = Client::of(&proxy);
    proxy.delay(Duration::from_millis(60));
    let start = Instant::now();
    client.send("later");
    client.hang_up();
    client.receives("later");
    assert!(start.elapsed() >= Duration::from_millis(120));
    client.receives_the_end();
}

#[test]
fn delayed_chunks_wait_at_the_same_time() {
    let proxy = proxy();
    let client = Client::of(&proxy);
    proxy.delay(Duration::from_secs(3_600));
    for (sent, text) in [(1, "one, "), (2, "two")] {
        client.send(text);
        until("it is in the proxy", LIMIT, || proxy.in_flight() == sent).unwrap();
    }
    proxy.heal();
    client.receives("one, two");
}

#[test]
fn a_trickle_passes_bytes_at_its_rate() {
    let proxy = proxy();
    let client = Client::of(&proxy);
    proxy.trickle(200);
    let start = Instant::now();
    client.echoes(&"x".repeat(100));
    // The last drop passes before its time is over.
    assert!(start.elapsed() >= Duration::from_millis(450));
    proxy.heal();
    client.echoes(&"y".repeat(100_000));
}

#[test]
fn a_proxy_that_refuses_spares_open_connections() {
    let proxy = proxy();
    let old = Client::known_to(&proxy);
    proxy.refuse();
    proxy.refuse();
    let error = TcpStream::connect(proxy.address()).expect_err("it refuses");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    old.echoes("goes on");
    proxy.accept_again().unwrap();
    Client::known_to(&proxy);
}
