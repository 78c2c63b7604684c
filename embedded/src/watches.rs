//! Watch streams and their watches: which events each receives, and in which order. `service/watch` does the waiting.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;
use std::time::Duration;

use etcd_client::proto::{PbEvent, PbResponseHeader, PbWatchResponse};

use crate::store::{Change, Span, Store};

/// Limit of responses that wait for a stream's client. After that the stream reads the store's history, like one that
/// starts in the past.
const MOST_QUEUED: usize = 1_024;

/// Limit of revisions in one response.
const BATCH: usize = 1_000;

/// Interval of progress responses, for watches that requested them and saw no event.
const PROGRESS_EVERY: Duration = Duration::from_secs(600);

/// Watch id in responses that do not concern a watch, or concern one that was refused.
const NO_WATCH: i64 = -1;

pub(crate) type StreamId = u64;

#[derive(Debug, Default)]
pub(crate) struct Watches {
    streams: BTreeMap<StreamId, Stream>,
    opened: StreamId,
}

#[derive(Debug, Default)]
struct Stream {
    watches: BTreeMap<i64, Watch>,
    next_id: i64,
    queue: VecDeque<PbWatchResponse>,
    progress_wanted: bool,
    next_progress: Duration,
    waker: Option<Waker>,
    ended: bool,
}

/// Request of a client for a watch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    pub(crate) id: i64,
    pub(crate) key: Vec<u8>,
    pub(crate) range_end: Vec<u8>,
    pub(crate) start_revision: i64,
    pub(crate) no_put: bool,
    pub(crate) no_delete: bool,
    pub(crate) prev_kv: bool,
    pub(crate) progress_notify: bool,
}

#[derive(Debug)]
struct Watch {
    wanted: Wanted,
    /// First revision that it has not received.
    from: i64,
    standing: Standing,
    /// True if it has seen no event since the last progress response.
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Receives every revision as it comes.
    Live,
    /// Reads the history.
    Behind,
    /// Ended, because its revisions are compacted. Its id stays in use until it is cancelled.
    Compacted,
}

/// Next item of a stream for its client.
#[derive(Debug)]
pub(crate) enum Next {
    Response(PbWatchResponse),
    /// No item before this time, unless the stream is woken.
    Wait(Option<Duration>),
    End,
}

impl Watches {
    pub(crate) fn open(&mut self, now: Duration) -> StreamId {
        self.opened += 1;
        let stream =
            Stream { next_progress: now.saturating_add(PROGRESS_EVERY), ..Stream::default() };
        self.streams.insert(self.opened, stream);
        self.opened
    }

    pub(crate) fn close(&mut self, stream: StreamId) {
        self.streams.remove(&stream);
    }

    /// Ends every stream, because another store replaced the old one.
    pub(crate) fn end_all(&mut self, woken: &mut Vec<Waker>) {
        for stream in self.streams.values_mut() {
            stream.ended = true;
        }
        self.wake_all(woken);
    }

    pub(crate) fn wake_all(&mut self, woken: &mut Vec<Waker>) {
        woken.extend(self.streams.values_mut().filter_map(|s| s.waker.take()));
    }

    pub(crate) fn create(
        &mut self,
        store: &Store,
        stream: StreamId,
        wanted: Wanted,
    ) -> Option<Waker> {
        self.streams.get_mut(&stream)?.create(store, wanted)
    }

    pub(crate) fn cancel(&mut self, store: &Store, stream: StreamId, id: i64) -> Option<Waker> {
        let stream = self.streams.get_mut(&stream)?;
        stream.watches.remove(&id)?;
        stream.queue.push_back(PbWatchResponse { canceled: true, ..response(store, id) });
        stream.waker.take()
    }

    pub(crate) fn want_progress(&mut self, stream: StreamId) -> Option<Waker> {
        let stream = self.streams.get_mut(&stream)?;
        stream.progress_wanted = true;
        stream.waker.take()
    }

    /// Queues the changes since this revision, included, for all live watches.
    pub(crate) fn notify(&mut self, store: &Store, from: i64, woken: &mut Vec<Waker>) {
        if self.streams.values().all(|stream| stream.watches.is_empty()) {
            return;
        }
        let changes: Vec<&Change> = store.changes(from).collect();
        for stream in self.streams.values_mut() {
            let queued = stream.queue.len();
            for revision in changes.chunk_by(|a, b| a.revision() == b.revision()) {
                stream.notify(store, revision);
            }
            if stream.queue.len() > queued {
                woken.extend(stream.waker.take());
            }
        }
    }

    /// Returns the next item of a stream. If the stream must wait, it wakes `waker` when there is an item.
    pub(crate) fn next(
        &mut self,
        store: &Store,
        now: Duration,
        stream: StreamId,
        waker: &Waker,
    ) -> Next {
        let Some(stream) = self.streams.get_mut(&stream) else {
            return Next::End;
        };
        if stream.ended {
            return Next::End;
        }
        if let Some(response) = stream.pop(store, now) {
            return Next::Response(response);
        }
        stream.waker = Some(waker.clone());
        let notified = stream.watches.values().any(|watch| watch.wanted.progress_notify);
        Next::Wait(notified.then_some(stream.next_progress))
    }
}

impl Stream {
    fn create(&mut self, store: &Store, mut wanted: Wanted) -> Option<Waker> {
        if wanted.key.is_empty() {
            wanted.key = vec![0]; // the smallest key
        }
        let response = match self.id_for(&wanted) {
            Ok(id) => {
                let from = match wanted.start_revision {
                    0 => store.revision() + 1,
                    from => from,
                };
                let standing =
                    if from > store.revision() { Standing::Live } else { Standing::Behind };
                let watch = Watch { quiet: wanted.progress_notify, wanted, from, standing };
                self.watches.insert(id, watch);
                response(store, id)
            }
            Err(reason) => PbWatchResponse {
                canceled: true,
                cancel_reason: reason.to_owned(),
                ..response(store, NO_WATCH)
            },
        };
        self.queue.push_back(PbWatchResponse { created: true, ..response });
        self.waker.take()
    }

    fn id_for(&mut self, wanted: &Wanted) -> Result<i64, &'static str> {
        if wanted.start_revision < 0 {
            return Err("etcdserver: mvcc: required revision has been compacted");
        }
        if let Span::Between(key, end) = Span::new(&wanted.key, &wanted.range_end)
            && key >= end
        {
            return Err("mvcc: watcher range is empty");
        }
        if wanted.id != 0 {
            return if self.watches.contains_key(&wanted.id) {
                Err("mvcc: duplicate watch ID provided on the WatchStream")
            } else {
                Ok(wanted.id)
            };
        }
        while self.watches.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        Ok(self.next_id - 1)
    }

    fn notify(&mut self, store: &Store, changes: &[&Change]) {
        let Some(revision) = changes.first().map(|change| change.revision()) else {
            return;
        };
        for (id, watch) in &mut self.watches {
            if watch.standing != Standing::Live || revision < watch.from {
                continue;
            }
            if self.queue.len() >= MOST_QUEUED {
                watch.standing = Standing::Behind;
                watch.from = revision;
                continue;
            }
            watch.from = revision + 1;
            let span = Span::new(&watch.wanted.key, &watch.wanted.range_end);
            let events: Vec<PbEvent> = changes
                .iter()
                .filter(|change| {
                    span.contains(&change.kv.key) && watch.wanted.admits(change.deleted)
                })
                .map(|change| store.event(change, watch.wanted.prev_kv))
                .collect();
            if !events.is_empty() {
                watch.quiet = false;
                self.queue.push_back(PbWatchResponse {
                    header: Some(PbResponseHeader { revision, ..store.header() }),
                    events,
                    ..response(store, *id)
                });
            }
        }
    }

    fn pop(&mut self, store: &Store, now: Duration) -> Option<PbWatchResponse> {
        while self.queue.is_empty() && self.catch_up(store) {}
        self.report_progress(store, now);
        self.queue.pop_front()
    }

    /// Queues one batch for each watch that is behind. Returns false if none is.
    fn catch_up(&mut self, store: &Store) -> bool {
        let mut behind = false;
        for (id, watch) in &mut self.watches {
            if watch.standing == Standing::Behind {
                behind = true;
                self.queue.extend(watch.catch_up(store, *id));
            }
        }
        behind
    }

    fn report_progress(&mut self, store: &Store, now: Duration) {
        let live = |watch: &Watch| watch.standing == Standing::Live;
        let behind = |watch: &Watch| watch.standing == Standing::Behind;
        if self.progress_wanted && !self.watches.values().any(behind) {
            self.progress_wanted = false;
            // If compaction has ended one of the watches, etcd does not respond.
            if !self.watches.is_empty() && self.watches.values().all(live) {
                self.queue.push_back(response(store, NO_WATCH));
            }
        }
        if now >= self.next_progress {
            self.next_progress = now.saturating_add(PROGRESS_EVERY);
            for (id, watch) in &mut self.watches {
                if watch.wanted.progress_notify {
                    if watch.quiet && live(watch) {
                        self.queue.push_back(response(store, *id));
                    }
                    watch.quiet = true;
                }
            }
        }
    }
}

impl Watch {
    fn catch_up(&mut self, store: &Store, id: i64) -> Option<PbWatchResponse> {
        let Wanted { key, range_end, prev_kv, .. } = &self.wanted;
        let mut revisions = match store.events(key, range_end, self.from, *prev_kv) {
            Ok(revisions) => revisions,
            Err(compacted) => {
                self.standing = Standing::Compacted;
                return Some(PbWatchResponse {
                    header: Some(PbResponseHeader { revision: 0, ..store.header() }),
                    canceled: true,
                    compact_revision: compacted.revision,
                    ..response(store, id)
                });
            }
        };
        let more = revisions.get(BATCH).and_then(|revision| revision.first());
        match more.and_then(|event| event.kv.as_ref()) {
            Some(kv) => self.from = kv.mod_revision,
            None => {
                self.from = store.revision() + 1;
                self.standing = Standing::Live;
            }
        }
        revisions.truncate(BATCH);
        let events: Vec<PbEvent> = revisions
            .into_iter()
            .flatten()
            .filter(|event| self.wanted.admits(event.r#type != 0))
            .collect();
        if events.is_empty() {
            return None;
        }
        self.quiet = false;
        Some(PbWatchResponse { events, ..response(store, id) })
    }
}

fn response(store: &Store, watch_id: i64) -> PbWatchResponse {
    PbWatchResponse { header: Some(store.header()), watch_id, ..PbWatchResponse::default() }
}

impl Wanted {
    fn admits(&self, deleted: bool) -> bool {
        if deleted { !self.no_delete } else { !self.no_put }
    }
}
