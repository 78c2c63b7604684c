//! Channel to etcd, with gathered writes: everything that a runtime's tasks write in one round leaves together.
//!
//! A request consists of three HTTP/2 frames. Writing each at once would take three system calls and three packets, and wake etcd three
//! times. So a flush is postponed while ready tasks write more. Nothing waits for a timer, and a connection with nothing else to write
//! loses one round of the engine's tasks.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, BufWriter, ReadBuf};
use tonic::codegen::Service;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// Maximum number of gathered bytes: a write that does not fit sends the others first.
const FULL: usize = 64 * 1024;

/// Error of a channel that must not connect again; `errors` reads it as not applied.
pub(super) const ENDED: &str = "the connection has ended";

/// Returns a channel that connects on its first use, to the first of these addresses that accepts. When that one is gone, it continues
/// with the next. etcd-client's balancer would continue to use an endpoint that is down, and each of these requests would fail (rule
/// P32). The settings of `endpoint`, whose name a certificate must contain, apply to all addresses. With `once`, the channel never
/// connects again, because the address may lead to another cluster by then (rule P35). `each` limits the time to connect to one address.
pub(super) fn connect(endpoint: Endpoint, uris: Arc<[Uri]>, each: Duration, once: bool) -> Channel {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false); // tonic adds TLS
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(each));
    let count = u32::try_from(uris.len()).unwrap_or(u32::MAX);
    let whole = endpoint.connect_timeout(each.saturating_mul(count));
    let (made, next) = (AtomicBool::new(false), Arc::new(AtomicUsize::new(0)));
    whole.connect_with_connector_lazy(service_fn(move |_: Uri| {
        let ended = once && made.swap(true, Ordering::Relaxed);
        let (mut tcp, uris, next) = (tcp.clone(), uris.clone(), next.clone());
        async move {
            let mut failed = tower::BoxError::from(ENDED);
            for _ in (0..uris.len()).take_while(|_| !ended) {
                // Begins after the last address, so that one that accepts and then stays silent is not tried first again.
                let at = next.fetch_add(1, Ordering::Relaxed) % uris.len();
                match tcp.call(uris[at].clone()).await {
                    Ok(stream) => return Ok(TokioIo::new(Gathered::of(stream.into_inner()))),
                    Err(error) => failed = error.into(),
                }
            }
            Err(failed)
        }
    }))
}

/// Stream with gathered writes.
struct Gathered<S> {
    stream: BufWriter<S>,
    /// Number of bytes that were buffered when the flush was postponed.
    put_off_at: usize,
}

impl<S: AsyncWrite> Gathered<S> {
    fn of(stream: S) -> Self {
        Self { stream: BufWriter::with_capacity(FULL, stream), put_off_at: 0 }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let written = self.stream.buffer().len();
        if written > self.put_off_at {
            self.put_off_at = written;
            cx.waker().wake_by_ref(); // after all ready tasks
            return Poll::Pending;
        }
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.put_off_at = 0;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn writes_of_one_round_of_tasks_leave_together() {
        let (ours, mut theirs) = duplex(1024);
        let mut gathered = Gathered::of(ours);
        gathered.write_all(b"head").await.unwrap();
        assert!(gathered.flush().now_or_never().is_none(), "put off once");
        gathered.write_all(b"body").await.unwrap();
        gathered.flush().await.unwrap();
        let mut read = [0; 64];
        assert_eq!(theirs.read(&mut read).await.unwrap(), 8);
    }
}
