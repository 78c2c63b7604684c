//! Free loopback port for a server.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Returns a loopback port that is free now. It is below the range of outgoing connections, so a restarted server finds it
/// free again.
pub fn free() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Each process begins at another port, far from those of processes started next, whose servers may be down for a while.
    let start = (u64::from(std::process::id()) * 997 % 12_000) as u16;
    loop {
        let port = 20_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed) % 12_000) % 12_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
