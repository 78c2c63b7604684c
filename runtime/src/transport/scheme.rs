//! Scheme of a port: sends bytes to find out whether it speaks TLS or plain HTTP/2.
//!
//! A client with the wrong scheme only sees its connection end, as it does when etcd restarts.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::codegen::http::Uri;

/// TLS record with an empty ClientHello, to which a TLS server responds with an alert.
const EMPTY_HELLO: &[u8] = &[0x16, 3, 1, 0, 4, 1, 0, 0, 0];

/// First bytes of an HTTP/2 client: its preface, and empty settings. A server responds with its own settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Finds out whether the port of a URL speaks TLS, or HTTP/2 without TLS.
pub(super) async fn speaks(tls: bool, url: &str) -> bool {
    let alert_or_handshake = |first: [u8; 2]| [[0x15, 3], [0x16, 3]].contains(&first);
    let settings = |frame: [u8; 9]| frame[0] == 0 && frame[3] == 4 && frame[5..] == [0; 4];
    match tls {
        true => answer(url, EMPTY_HELLO).await.is_some_and(alert_or_handshake),
        false => answer(url, PREFACE).await.is_some_and(settings),
    }
}

/// Sends these bytes over a new connection, and returns the first ones of the response.
async fn answer<const N: usize>(url: &str, question: &[u8]) -> Option<[u8; N]> {
    let uri: Uri = url.parse().ok()?;
    let address = format!("{}:{}", uri.host()?, uri.port_u16()?);
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(question).await.ok()?;
    let mut first = [0; N];
    stream.read_exact(&mut first).await.ok()?;
    Some(first)
}
