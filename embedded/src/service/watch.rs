//! Watch service: one stream of responses for all watches of a client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use etcd_client::proto::{PbWatchRequest, PbWatchRequestUnion, PbWatchResponse, PbWatchService};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use super::{Answer, NO_RUNTIME};
use crate::clock::Sleep;
use crate::shared::Shared;
use crate::watches::{Next, StreamId, Wanted};

/// etcdserverpb.WatchCreateRequest.FilterType.
const NO_PUT: i32 = 0;
const NO_DELETE: i32 = 1;

#[derive(Debug, Clone)]
pub(crate) struct Watch(pub(crate) Arc<Shared>);

#[tonic::async_trait]
impl PbWatchService for Watch {
    type WatchStream = Responses;

    async fn watch(
        &self,
        request: Request<Streaming<PbWatchRequest>>,
    ) -> Answer<Self::WatchStream> {
        let runtime = Handle::try_current().map_err(|_| Status::internal(NO_RUNTIME))?;
        let id = self.0.with(|state, now| state.watches.open(now));
        let shared = Arc::clone(&self.0);
        let mut requests = request.into_inner();
        // A separate task: a watch begins when the client requests it, not when the client next reads.
        let asking = runtime.spawn(async move {
            while let Ok(Some(request)) = requests.message().await {
                ask(&shared, id, request);
            }
        });
        Ok(Response::new(Responses {
            shared: Arc::clone(&self.0),
            id,
            asking: asking.abort_handle(),
            alarm: None,
            ended: false,
        }))
    }
}

fn ask(shared: &Shared, stream: StreamId, request: PbWatchRequest) {
    let waker = shared.with(|state, _| {
        let (store, watches) = (&state.store, &mut state.watches);
        match request.request_union? {
            PbWatchRequestUnion::CreateRequest(create) => {
                let wanted = Wanted {
                    id: create.watch_id,
                    key: create.key,
                    range_end: create.range_end,
                    start_revision: create.start_revision,
                    no_put: create.filters.contains(&NO_PUT),
                    no_delete: create.filters.contains(&NO_DELETE),
                    prev_kv: create.prev_kv,
                    progress_notify: create.progress_notify,
                };
                watches.create(store, stream, wanted)
            }
            PbWatchRequestUnion::CancelRequest(cancel) => {
                watches.cancel(store, stream, cancel.watch_id)
            }
            PbWatchRequestUnion::ProgressRequest(_) => watches.want_progress(stream),
        }
    });
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Responses of a watch stream. While it waits, it also wakes when leases expire, because nothing else would.
pub(crate) struct Responses {
    shared: Arc<Shared>,
    id: StreamId,
    asking: AbortHandle,
    alarm: Option<(Duration, Sleep)>,
    ended: bool,
}

impl Drop for Responses {
    fn drop(&mut self) {
        self.asking.abort();
        self.shared.with(|state, _| state.watches.close(self.id));
    }
}

impl Stream for Responses {
    type Item = Result<PbWatchResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        loop {
            let (next, expiry) = this.shared.with(|state, now| {
                let next = state.watches.next(&state.store, now, this.id, context.waker());
                (next, state.store.next_expiry())
            });
            let progress = match next {
                Next::Response(response) => return Poll::Ready(Some(Ok(response))),
                Next::Wait(progress) => progress,
                Next::End => {
                    this.ended = true;
                    let status = Status::unavailable("the etcd behind this stream was dropped");
                    return Poll::Ready(Some(Err(status)));
                }
            };
            let Some(at) = expiry.into_iter().chain(progress).min() else {
                this.alarm = None;
                return Poll::Pending;
            };
            let alarm = match &mut this.alarm {
                Some((set, alarm)) if *set == at => alarm,
                alarm => &mut alarm.insert((at, this.shared.clock.sleep_until(at))).1,
            };
            if alarm.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            this.alarm = None;
        }
    }
}
