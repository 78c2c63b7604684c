//! One watch stream of one side, and everything it was told.

use std::time::Duration;

use etcd_client::proto::{PbEvent, PbWatchResponse};
use etcd_client::{Client, WatchOptions, WatchStream};

use tokio::time::timeout;

use crate::op::Key;
use crate::view::{View, refused};

/// When no answer is expected, how long none must come.
const SILENCE: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(crate) struct Stream {
    stream: WatchStream,
    pub(crate) watches: Vec<Told>,
}

/// What one watch was told.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) id: i64,
    pub(crate) live: bool,
    /// Its id is free again; that of one that compaction has ended is not.
    cancelled: bool,
    /// Each with its revision, in this side's numbers.
    pub(crate) lines: Vec<(i64, String)>,
    /// The revision of the newest event, in this side's numbers.
    seen: i64,
}

impl Stream {
    /// Opens it with its first watch; what was answered.
    pub(crate) async fn open(
        client: &mut Client,
        key: Key,
        options: WatchOptions,
        view: &View,
    ) -> Result<(Self, Created), String> {
        let stream = client.watch(key, Some(options)).await;
        let mut stream = Self {
            stream: stream.map_err(|error| refused(&error))?,
            watches: Vec::new(),
        };
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

    /// Cancels a watch that has been told everything; what was answered.
    pub(crate) async fn cancel(&mut self, id: i64, view: &View) -> Result<String, String> {
        let sent = self.stream.cancel(id).await;
        sent.map_err(|error| refused(&error))?;
        let of = |it: &&mut Told| it.id == id && !it.cancelled;
        let Some(told) = self.watches.iter_mut().find(of) else {
            return Ok("nothing to cancel".to_owned());
        };
        // It need not be told so twice.
        told.live = true;
        told.cancelled = true;
        loop {
            let it = self.next(view).await?;
            if it.canceled && it.watch_id == id {
                return Ok(format!(
                    "{} {}",
                    view.header(it.header.as_ref()),
                    ending(view, &it)
                ));
            }
        }
    }

    /// Asks for its progress, when all watches have been told everything.
    pub(crate) async fn progress(&mut self, view: &View) -> Result<String, String> {
        let sent = self.stream.request_progress().await;
        sent.map_err(|error| refused(&error))?;
        let stuck = self.is_stuck();
        let told = async {
            loop {
                let it = self.next(view).await?;
                if it.events.is_empty() && !it.created && !it.canceled {
                    let header = view.header(it.header.as_ref());
                    return Ok(format!("{header} progress of watch {}", it.watch_id));
                }
            }
        };
        if !stuck {
            return told.await;
        }
        let silent = |_| Ok("no answer".to_owned());
        timeout(SILENCE, told).await.unwrap_or_else(silent)
    }

    /// Whether it has no progress: there is no watch, or one that compaction has ended and nobody has cancelled.
    pub(crate) fn is_stuck(&self) -> bool {
        self.watches.iter().all(|it| it.cancelled)
            || self.watches.iter().any(|it| !it.live && !it.cancelled)
    }

    /// Until this watch was told of that revision, or has ended.
    pub(crate) async fn reach(
        &mut self,
        id: i64,
        revision: i64,
        view: &View,
    ) -> Result<(), String> {
        loop {
            let told = self.watches.iter().rev().find(|it| it.id == id);
            if told.is_none_or(|it| !it.live || it.seen >= revision) {
                return Ok(());
            }
            self.next(view).await?;
        }
    }

    /// The next message, noted.
    async fn next(&mut self, view: &View) -> Result<PbWatchResponse, String> {
        let it = self
            .stream
            .message()
            .await
            .map_err(|error| refused(&error))?
            .ok_or("the stream has ended")?
            .0;
        if it.created && !it.canceled {
            self.watches.push(Told {
                id: it.watch_id,
                live: true,
                cancelled: false,
                lines: Vec::new(),
                seen: 0,
            });
            return Ok(it);
        }
        let told = self.watches.iter_mut().rev();
        if let Some(told) = told.into_iter().find(|told| told.id == it.watch_id) {
            told.note(view, &it);
        } else if it.watch_id >= 0 {
            return Err(format!("told of watch {}, which there is not", it.watch_id));
        }
        Ok(it)
    }
}

impl Told {
    fn note(&mut self, view: &View, it: &PbWatchResponse) {
        if !self.live {
            self.lines.push((0, "told of after its end".to_owned()));
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
            // What happened at one revision is told in one message.
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

/// Whether and why a watch has ended.
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

/// The answer to a new watch.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) id: i64,
    pub(crate) live: bool,
    pub(crate) reason: String,
    pub(crate) text: String,
}
