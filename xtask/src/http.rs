//! HTTP client, as much of one as the demo needs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::Result;

/// Limit of a request, longer than any purchase waits for its lock.
const PATIENCE: Duration = Duration::from_secs(90);

/// A server's answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Result<Answer> {
    request("GET", address, path)
}

pub(crate) fn post(address: SocketAddr, path: &str) -> Result<Answer> {
    request("POST", address, path)
}

pub(crate) fn request(method: &str, address: SocketAddr, path: &str) -> Result<Answer> {
    exchange(method, address, path)
        .map_err(|error| format!("{method} http://{address}{path}: {error}"))
        .and_then(|text| {
            parse(&text)
                .ok_or_else(|| format!("{method} http://{address}{path}: no HTTP answer: {text:?}"))
        })
}

/// Exchanges one request by HTTP/1.0: the answer is never chunked and ends where the connection ends.
fn exchange(method: &str, address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn parse(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer {
        status,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn parses_status_and_body() {
        let answer = super::parse("HTTP/1.0 409 Conflict\r\ncontent-length: 8\r\n\r\nsold out")
            .expect("an answer");
        assert_eq!((answer.status, answer.body.as_str()), (409, "sold out"));
        assert!(super::parse("").is_none());
    }
}
