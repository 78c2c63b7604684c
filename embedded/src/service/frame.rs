//! gRPC framing of unary calls: one request message, one response message.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use http_body::{Body as _, Frame};
use prost::Message;
use prost::bytes::{Buf, BufMut, Bytes, BytesMut};
use tonic::Status;
use tonic::body::Body;

use crate::router::Response;

/// Limit of a message. It is above etcd's own, so that the store refuses large messages in etcd's words.
const MOST: usize = 64 << 20;

/// Bytes before a message: a compression flag, and the length.
const HEAD: usize = 5;

/// Reads the message of a call. It mostly arrives in one piece, and then it is not copied.
pub(super) async fn read(mut body: Body) -> Result<Bytes, Status> {
    let mut whole = Bytes::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Ok(piece) = frame?.into_data() else {
            continue; // trailers, which do not matter here
        };
        if whole.len() + piece.len() > MOST {
            return Err(Status::out_of_range("the message is too large"));
        }
        whole = match whole.is_empty() {
            true => piece,
            false => {
                let mut longer = BytesMut::from(whole);
                longer.put(piece);
                longer.freeze()
            }
        };
    }
    let framed = whole.len().checked_sub(HEAD);
    let Some(length) = framed else {
        return Err(Status::internal("a message is missing"));
    };
    let compressed = whole.get_u8() != 0;
    if compressed {
        return Err(Status::unimplemented("compressed messages are not supported"));
    }
    if whole.get_u32() as usize != length {
        return Err(Status::internal("expected exactly one complete message"));
    }
    Ok(whole)
}

/// Writes a response with the status OK.
pub(super) fn written(message: &impl Message) -> Response {
    let length = message.encoded_len();
    let mut framed = Vec::with_capacity(HEAD + length);
    framed.put_u8(0);
    framed.put_u32(length as u32);
    message.encode_raw(&mut framed);
    let mut response = Response::new(Body::new(Written::Message(framed.into())));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(CONTENT_TYPE, grpc);
    response
}

/// Rest of a response that is still to be sent.
enum Written {
    Message(Bytes),
    Status,
    Nothing,
}

impl http_body::Body for Written {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let (frame, left) = match std::mem::replace(&mut *self, Self::Nothing) {
            Self::Message(message) => (Frame::data(message), Self::Status),
            Self::Status => {
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
                (Frame::trailers(trailers), Self::Nothing)
            }
            Self::Nothing => return Poll::Ready(None),
        };
        *self = left;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use etcd_client::proto::PbPutRequest;

    use super::*;

    /// Body in pieces of this size.
    struct Pieces(Bytes, usize);

    impl http_body::Body for Pieces {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            let size = self.1.min(self.0.len());
            let piece = self.0.split_to(size);
            Poll::Ready((size > 0).then(|| Ok(Frame::data(piece))))
        }
    }

    async fn framed() -> (PbPutRequest, Vec<u8>) {
        let message =
            PbPutRequest { key: b"a".to_vec(), value: vec![7; 300], ..PbPutRequest::default() };
        let mut body = written(&message).into_body();
        let mut bytes = Vec::new();
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            match frame.unwrap().into_data() {
                Ok(data) => bytes.extend_from_slice(&data),
                Err(frame) => assert_eq!(frame.trailers_ref().unwrap()["grpc-status"], "0"),
            }
        }
        (message, bytes)
    }

    #[tokio::test]
    async fn reads_a_message_in_any_number_of_pieces() {
        let (message, bytes) = framed().await;
        for size in [1, 4, 5, 100, bytes.len()] {
            let pieces = Pieces(bytes.clone().into(), size);
            let read = read(Body::new(pieces)).await.unwrap();
            assert_eq!(PbPutRequest::decode(read).unwrap(), message);
        }
    }

    #[tokio::test]
    async fn refuses_all_but_one_whole_message() {
        let (_, bytes) = framed().await;
        let code = async |bytes: &[u8]| {
            let pieces = Pieces(bytes.to_vec().into(), 100);
            read(Body::new(pieces)).await.unwrap_err().code()
        };
        assert_eq!(code(&[]).await, tonic::Code::Internal);
        assert_eq!(code(&bytes[..4]).await, tonic::Code::Internal);
        assert_eq!(code(&bytes[..bytes.len() - 1]).await, tonic::Code::Internal);
        assert_eq!(code(&bytes.repeat(2)).await, tonic::Code::Internal);
        let compressed = [&[1], &bytes[1..]].concat();
        assert_eq!(code(&compressed).await, tonic::Code::Unimplemented);
    }
}
