//! KV service: range, put, delete, transaction and compaction.

use std::convert::Infallible;
use std::sync::Arc;

use prost::Message;
use tonic::Status;

use super::frame::{read, written};
use super::unknown;
use crate::router::{Request, Response};
use crate::shared::Shared;
use crate::store::{Refusal, Store};

#[derive(Debug, Clone)]
pub(crate) struct Kv(pub(crate) Arc<Shared>);

impl Kv {
    /// Serves a call, by the last part of its path.
    ///
    /// The generated service is not used, because it is made for streams, and costs more time than the store.
    pub(crate) async fn answer(self, request: Request) -> Result<Response, Infallible> {
        let done = match method(&request) {
            Ok(method) => {
                read(request.into_body()).await.and_then(|message| method(&self.0, &message))
            }
            Err(unknown) => Err(unknown),
        };
        Ok(done.unwrap_or_else(Status::into_http))
    }
}

/// Function that carries out the request in a message.
type Method = fn(&Shared, &[u8]) -> Result<Response, Status>;

fn method(request: &Request) -> Result<Method, Status> {
    let (_, name) = request.uri().path().rsplit_once('/').unwrap_or_default();
    Ok(match name {
        "Range" => |shared, message| ask(shared, message, |store, asked| store.range(asked)),
        "Put" => |shared, message| ask(shared, message, |store, asked| store.put(asked)),
        "DeleteRange" => {
            |shared, message| ask(shared, message, |store, asked| store.delete_range(asked))
        }
        "Txn" => |shared, message| ask(shared, message, |store, asked| store.txn(asked)),
        "Compact" => |shared, message| ask(shared, message, |store, asked| store.compact(asked)),
        other => return unknown("etcdserverpb.KV", other),
    })
}

fn ask<Q: Message + Default, A: Message>(
    shared: &Shared,
    message: &[u8],
    act: impl FnOnce(&mut Store, &Q) -> Result<A, Refusal>,
) -> Result<Response, Status> {
    let asked = Q::decode(message).map_err(|error| Status::internal(error.to_string()))?;
    let answer = shared.with(|state, _| act(&mut state.store, &asked))?;
    Ok(written(&answer))
}
