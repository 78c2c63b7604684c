//! TCP server of an embedded etcd, for other processes and for `etcdctl`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_stream::Stream;
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::clock::Sleep;
use crate::etcd::Etcd;

impl Etcd {
    /// Serves this etcd on TCP for as long as the future is polled. Dropping it closes the port and every connection; the
    /// etcd itself, and its clients in memory, live on.
    ///
    /// # Errors
    ///
    /// The listener has failed permanently. A failed connection is not an error here; only that connection ends.
    pub async fn serve(&self, listener: TcpListener) -> io::Result<()> {
        let _listed = Listed::new(self, &listener)?;
        let (_open, closing) = watch::channel(());
        let connections = Connections { listener, closing };
        Server::builder()
            .serve_with_incoming(self.router(), connections)
            .await
            .map_err(io::Error::other)
    }
}

/// Address of a running server, listed among the member's addresses until it is dropped.
struct Listed<'a> {
    etcd: &'a Etcd,
    address: String,
}

impl<'a> Listed<'a> {
    fn new(etcd: &'a Etcd, listener: &TcpListener) -> io::Result<Self> {
        let address = format!("http://{}", listener.local_addr()?);
        etcd.shared.addresses().push(address.clone());
        Ok(Self { etcd, address })
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.etcd.shared.addresses().retain(|address| *address != self.address);
    }
}

/// Incoming connections, accepted until this is dropped.
struct Connections {
    listener: TcpListener,
    closing: watch::Receiver<()>,
}

impl Stream for Connections {
    type Item = io::Result<Connection>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let (tcp, _) = match ready!(self.listener.poll_accept(context)) {
            Ok(accepted) => accepted,
            Err(error) => return Poll::Ready(Some(Err(error))), // tonic skips temporary errors
        };
        let _ = tcp.set_nodelay(true); // a failure only costs speed
        let mut closing = self.closing.clone();
        Poll::Ready(Some(Ok(Connection {
            tcp,
            closed: Some(Box::pin(async move {
                let _ = closing.changed().await; // nothing is ever sent, so this ends when the sender is dropped
            })),
        })))
    }
}

/// Connection that ends with the server. Tonic serves it in a separate task, which would otherwise live on.
struct Connection {
    tcp: TcpStream,
    /// Future that ends when the server is dropped; `None` after that.
    closed: Option<Sleep>,
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.tcp.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Wakes the reader when the server is dropped. A reader is always waiting.
        if let Some(closed) = &mut self.closed {
            if closed.as_mut().poll(context).is_pending() {
                return Pin::new(&mut self.tcp).poll_read(context, buffer);
            }
            self.closed = None;
        }
        Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}
