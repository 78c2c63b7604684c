//! Where servers of the tests listen.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// A port of loopback that is free now, below the range from which outgoing connections take theirs: a server that is
/// started again finds it free again.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Different processes begin at different places.
    let start = (std::process::id() % 1_000) as u16 * 10;
    loop {
        let port = 20_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
