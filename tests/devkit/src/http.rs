//! HTTP client for the loopback servers of tests, benches and the demo.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::Result;

/// Default limit of each wait, longer than any purchase of the demo waits for its lock.
const PATIENCE: Duration = Duration::from_secs(90);

/// Response of a server.
#[derive(Debug)]
pub struct Answer {
    /// Status code, such as 200.
    pub status: u16,
    /// Body as text.
    pub body: String,
}

/// Sends a GET request.
pub fn get(address: SocketAddr, path: &str) -> Result<Answer> {
    request("GET", address, path)
}

/// Sends a POST request without a body.
pub fn post(address: SocketAddr, path: &str) -> Result<Answer> {
    request("POST", address, path)
}

/// Sends a request without a body.
pub fn request(method: &str, address: SocketAddr, path: &str) -> Result<Answer> {
    Request { method, address, path, authorization: None, body: "", limit: PATIENCE }.send()
}

/// Request to a server.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) address: SocketAddr,
    pub(crate) path: &'a str,
    /// Token of a user.
    pub(crate) authorization: Option<&'a str>,
    /// Body: JSON, or empty.
    pub(crate) body: &'a str,
    /// Limit of each wait: for the connection, and for the next bytes of the response.
    pub(crate) limit: Duration,
}

impl Request<'_> {
    /// Sends the request and reads the response.
    pub(crate) fn send(&self) -> Result<Answer> {
        let what = format!("{} http://{}{}", self.method, self.address, self.path);
        let text = self.exchange().map_err(|error| format!("{what}: {error}"))?;
        let answer = || {
            let (head, body) = text.split_once("\r\n\r\n")?;
            let status = head.split(' ').nth(1)?.parse().ok()?;
            Some(Answer { status, body: body.to_owned() })
        };
        answer().ok_or_else(|| format!("{what}: no HTTP answer: {text:?}"))
    }

    /// Exchanges one request over HTTP/1.0: the response is never chunked, and ends where the connection ends.
    fn exchange(&self) -> std::io::Result<String> {
        let connect = self.limit.min(Duration::from_secs(5));
        let mut stream = TcpStream::connect_timeout(&self.address, connect)?;
        stream.set_read_timeout(Some(self.limit))?;
        stream.set_write_timeout(Some(self.limit))?;
        let Self { method, path, address, body, .. } = self;
        // In one segment, because the system would hold back a second one.
        let mut request = Vec::new();
        write!(request, "{method} {path} HTTP/1.0\r\nHost: {address}\r\n")?;
        if let Some(token) = self.authorization {
            write!(request, "Authorization: {token}\r\n")?;
        }
        if !body.is_empty() {
            write!(request, "Content-Type: application/json\r\n")?;
        }
        write!(request, "Content-Length: {}\r\n\r\n{body}", body.len())?;
        stream.write_all(&request)?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }
}
