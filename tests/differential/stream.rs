//! Watch stream of one side, with everything it has received.

use std::time::Duration;

use etcd_client::proto::{PbEvent, PbWatchResponse};
use etcd_client::{Client, WatchOptions, WatchStream};

use tokio::time::timeout;

use crate::op::Key;
use crate::view::{View, refused};

/// Time without a response that counts as silence, when none is expected.
const SILENCE: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(crate) struct Stream {
    stream: WatchStream,
    pub(crate) watches: Vec<Received>,
}

/// Events that one watch has received.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) id: i64,
    pub(crate) live: bool,
    /// True if the id is free again. The id of a watch that compaction has ended is not.
    cancelled: bool,
    /// Events as text, each with its revision, in this side's numbers.
    pub(crate) lines: Vec<(i64, String)>,
    /// Revision of the newest event, in this side's numbers.
    seen: i64,
}

impl Stream {
    /// Opens the stream with its first watch, and returns the response.
    pub(crate) async fn open(
        client: &mut Client,
        key: Key,
        options: WatchOptions,
        view: &View,
    ) -> Result<(Self, Created), String> {
        let stream = client.watch(key, Some(options)).await;
        let mut stream =
            Self { stream: stream.map_err(|error| refused(&error))?, watches: Vec::new() };
        let created = stream.created(view).await?;
        Ok((stream, created))
    }

    pub(crate) async fn watch(
        &mut self,
        key: Key,
        options: WatchOptions,
        view: &View,
    ) -> Result<Created, String> {
        let sent = self.stream.watch(key, Some(options)).await;
        sent.map_err(|error| refused(&error))?;
        self.created(view).await
    }

    async fn created(&mut self, view: &View) -> Result<Created, String> {
        loop {
            let it = self.next(view).await?;
            if it.created {
                let text = format!(
                    "{} watch {} {}",
                    view.header(it.header.as_ref()),
                    it.watch_id,
                    ending(view, &it)
                );
                return Ok(Created {
                    id: it.watch_id,
                    live: !it.canceled,
                    reason: it.cancel_reason,
                    text,
                });
            }
        }
    }

    /// Cancels a watch that has received all events, and returns the response.
    pub(crate) async fn cancel(&mut self, id: i64, view: &View) -> Result<String, String> {
        let sent = self.stream.cancel(id).await;
        sent.map_err(|error| refused(&error))?;
        let of = |it: &&mut Received| it.id == id && !it.cancelled;
        let Some(watch) = self.watches.iter_mut().find(of) else {
            return Ok("nothing to cancel".to_owned());
        };
        // A watch that compaction has ended gets a second end, which is expected.
        watch.live = true;
        watch.cancelled = true;
        loop {
            let it = self.next(view).await?;
            if it.canceled && it.watch_id == id {
                return Ok(format!("{} {}", view.header(it.header.as_ref()), ending(view, &it)));
            }
        }
    }

    /// Requests progress, after all watches have received all events.
    pub(crate) async fn progress(&mut self, view: &View) -> Result<String, String> {
        let sent = self.stream.request_progress().await;
        sent.map_err(|error| refused(&error))?;
        let stuck = self.is_stuck();
        let answer = async {
            loop {
                let it = self.next(view).await?;
                if it.events.is_empty() && !it.created && !it.canceled {
                    let header = view.header(it.header.as_ref());
                    return Ok(format!("{header} progress of watch {}", it.watch_id));
                }
            }
        };
        if !stuck {
            return answer.await;
        }
        let silent = |_| Ok("no answer".to_owned());
        timeout(SILENCE, answer).await.unwrap_or_else(silent)
    }

    /// Returns true if the stream does not respond to progress requests: it has no watch, or one that compaction has ended and
    /// the client has not cancelled.
    pub(crate) fn is_stuck(&self) -> bool {
        self.watches.iter().all(|it| it.cancelled)
            || self.watches.iter().any(|it| !it.live && !it.cancelled)
    }

    /// Waits until this watch has received that revision, or has ended.
    pub(crate) async fn reach(
        &mut self,
        id: i64,
        revision: i64,
        view: &View,
    ) -> Result<(), String> {
        loop {
            let watch = self.watches.iter().rev().find(|it| it.id == id);
            if watch.is_none_or(|it| !it.live || it.seen >= revision) {
                return Ok(());
            }
            self.next(view).await?;
        }
    }

    /// Reads the next message, and records it.
    async fn next(&mut self, view: &View) -> Result<PbWatchResponse, String> {
        let it = self
            .stream
            .message()
            .await
            .map_err(|error| refused(&error))?
            .ok_or("the stream has ended")?
            .0;
        if it.created && !it.canceled {
            self.watches.push(Received {
                id: it.watch_id,
                live: true,
                cancelled: false,
                lines: Vec::new(),
                seen: 0,
            });
            return Ok(it);
        }
        let mut watches = self.watches.iter_mut().rev();
        if let Some(watch) = watches.find(|watch| watch.id == it.watch_id) {
            watch.record(view, &it);
        } else if it.watch_id >= 0 {
            return Err(format!("a message for watch {}, which does not exist", it.watch_id));
        }
        Ok(it)
    }
}

impl Received {
    fn record(&mut self, view: &View, it: &PbWatchResponse) {
        if !self.live {
            self.lines.push((0, "a message after its end".to_owned()));
        }
        let revision = |event: &PbEvent| event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
        for event in &it.events {
            let modified = revision(event);
            if it.header.as_ref().is_none_or(|it| it.revision < modified) {
                self.lines.push((0, "its header is older".to_owned()));
            }
            self.lines.push((modified, view.event(event)));
        }
        if let (Some(first), Some(last)) = (it.events.first(), it.events.last()) {
            // One message has all events of a revision.
            if revision(first) <= self.seen {
                let wrong = "a revision is split, or goes back";
                self.lines.push((0, wrong.to_owned()));
            }
            self.seen = revision(last);
        }
        if it.canceled {
            self.live = false;
            self.lines.push((0, ending(view, it)));
        }
    }
}

/// Shows whether and why a watch has ended.
fn ending(view: &View, it: &PbWatchResponse) -> String {
    if !it.canceled {
        return "goes on".to_owned();
    }
    let compacted = match it.compact_revision {
        0 => String::new(),
        at => format!(" compacted {}", view.at(at)),
    };
    format!("has ended{compacted} {:?}", it.cancel_reason)
}

/// Response to a new watch.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) id: i64,
    pub(crate) live: bool,
    pub(crate) reason: String,
    pub(crate) text: String,
}
