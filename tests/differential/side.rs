//! Side of a comparison: one etcd, real or embedded, on which operations are played.

use std::time::Duration;

use etcd_client::proto::{PbResponseOp, PbTxnOpResponse};
use etcd_client::{
    Client, CompactionOptions, DeleteOptions, Error, LeaseGrantOptions, LeaseTimeToLiveOptions,
};
use etcd_locked_embedded::Etcd as Embedded;
use tokio::time::timeout;

use crate::op::{Key, Op, Watch};
use crate::request::many;
use crate::stream::Stream;
use crate::view::{View, refused};

/// Time limit for a response, and for the events of a watch.
const PATIENCE: Duration = Duration::from_secs(10);

/// Number of watch streams in a case.
pub(crate) const STREAMS: usize = 2;

pub(crate) struct Side {
    pub(crate) name: &'static str,
    client: Client,
    /// True if every case gets a new etcd.
    renewed: bool,
    pub(crate) view: View,
    streams: [Option<Stream>; STREAMS],
    pub(crate) patience: Duration,
}

/// Response of a side to an operation.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The whole response, as text that is the same on both sides.
    pub(crate) text: String,
    /// Code and message, if it was refused.
    pub(crate) refusal: Option<String>,
    /// Revision of the header, counted from the start of the case.
    pub(crate) revision: Option<i64>,
    /// Facets of the response, for the coverage.
    pub(crate) facets: Vec<&'static str>,
    /// Id of the watch that the operation has made.
    pub(crate) watch: Option<i64>,
}

impl Answer {
    fn new(text: String) -> Self {
        Self { text, ..Self::default() }
    }

    fn refused(refusal: String) -> Self {
        Self { text: refusal.clone(), refusal: Some(refusal), ..Self::default() }
    }

    fn facet(&mut self, facet: &'static str, is: bool) {
        if is {
            self.facets.push(facet);
        }
    }
}

impl From<Error> for Answer {
    fn from(error: Error) -> Self {
        Self::refused(refused(&error))
    }
}

impl From<String> for Answer {
    fn from(refusal: String) -> Self {
        Self::refused(refusal)
    }
}

impl Side {
    pub(crate) fn new(name: &'static str, client: Client) -> Self {
        Self {
            name,
            client,
            renewed: false,
            view: View::default(),
            streams: [const { None }; STREAMS],
            patience: PATIENCE,
        }
    }

    /// Makes an embedded etcd, and a new one for every case.
    pub(crate) async fn embedded() -> Self {
        Self { renewed: true, ..Self::new("embedded", Embedded::new().client().await) }
    }

    /// Prepares the etcd for a case: no keys, no leases, compacted at the newest revision.
    pub(crate) async fn begin(&mut self) -> Result<(), Error> {
        self.streams = [const { None }; STREAMS];
        if self.renewed {
            self.client = Embedded::new().client().await;
        }
        for lease in self.client.leases().await?.leases() {
            self.client.lease_revoke(lease.id()).await?;
        }
        let everything = DeleteOptions::new().with_all_keys();
        self.client.delete("", Some(everything)).await?;
        // A watch can still receive the last event. With this write it is the same before every case.
        self.client.put("begin", "", None).await?;
        let deleted = self.client.delete("begin", None).await?;
        let header = deleted.0.header.unwrap_or_default();
        self.client.compact(header.revision, None).await?;
        self.view = View {
            base: header.revision,
            now: 0,
            chosen: Vec::new(),
            cluster: header.cluster_id,
            member: header.member_id,
        };
        Ok(())
    }

    /// Begins a case without preparing the etcd; revisions are plain numbers.
    pub(crate) async fn take_as_it_is(&mut self) -> Result<(), Error> {
        let header = self.client.status().await?.0.header.unwrap_or_default();
        self.view =
            View { cluster: header.cluster_id, member: header.member_id, ..View::default() };
        Ok(())
    }

    /// Plays an operation at this revision of the case, and returns the response.
    pub(crate) async fn play(&mut self, op: &Op, now: i64) -> Answer {
        self.view.now = now;
        match timeout(self.patience, self.answer(op)).await {
            Ok(Ok(answer) | Err(answer)) => answer,
            Err(_) => Answer::refused("no answer".to_owned()),
        }
    }

    async fn answer(&mut self, op: &Op) -> Result<Answer, Answer> {
        let view = &mut self.view;
        let client = &mut self.client;
        let (mut answer, header) = match op {
            Op::Range(it) => {
                let got = client.get(it.key, Some(view.get(it))).await?.0;
                let mut answer = Answer::new(view.ranged(&got));
                let found = !got.kvs.is_empty();
                let past = (1..view.base + view.now).contains(&view.revision(it.revision));
                answer.facet("range: found in the past", found && past);
                answer.facet("range: cut by the limit", found && got.more);
                answer.facet("range: several sorted", it.sort.is_some() && got.kvs.len() > 2);
                let cut = !got.more && !it.count_only && (got.kvs.len() as i64) < got.count;
                answer.facet("range: cut by bounds of revision", cut);
                (answer, got.header)
            }
            Op::Put(it) => {
                let put = client.put(it.key, it.value, Some(view.put(it))).await?.0;
                let mut answer = Answer::new(view.stored(&put));
                answer.facet("put: with the previous value", put.prev_kv.is_some());
                answer.facet("put: value ignored", it.ignore_value);
                answer.facet("put: lease ignored", it.ignore_lease);
                (answer, put.header)
            }
            Op::Huge(bytes) => {
                let put = client.put("a", vec![b'x'; *bytes], None).await?.0;
                (Answer::new(view.stored(&put)), put.header)
            }
            Op::Delete(it) => {
                let gone = client.delete(it.key, Some(view.delete(it))).await?.0;
                let mut answer = Answer::new(view.deleted(&gone));
                answer.facet("delete: several", gone.deleted > 1);
                (answer, gone.header)
            }
            Op::Txn(it) => {
                let done = client.txn(view.txn(it)).await?.0;
                let mut answer = Answer::new(view.decided(&done));
                let compared = !it.compares.is_empty();
                answer.facet("txn: compared, and true", compared && done.succeeded);
                answer.facet("txn: compared, and false", !done.succeeded);
                let within = |it: &PbResponseOp| match &it.response {
                    Some(PbTxnOpResponse::ResponseTxn(it)) => !it.responses.is_empty(),
                    _ => false,
                };
                answer.facet("txn: answers of one within", done.responses.iter().any(within));
                (answer, done.header)
            }
            Op::Many(list, count) => {
                let done = client.txn(many(*list, *count)).await?.0;
                let mut answer = Answer::new(view.decided(&done));
                answer.facet("txn: as many as may be", true);
                (answer, done.header)
            }
            Op::Compact { at, physical } => {
                let options = match physical {
                    true => CompactionOptions::new().with_physical(),
                    false => CompactionOptions::new(),
                };
                let done = client.compact(view.revision(*at), Some(options)).await?.0;
                let mut answer = Answer::new(view.header(done.header.as_ref()));
                answer.facet("compact: done", true);
                (answer, done.header)
            }
            Op::Grant { lease, ttl } => {
                let id = view.lease(*lease);
                let options = LeaseGrantOptions::new().with_id(id);
                let granted = client.lease_grant(*ttl, Some(options)).await?.0;
                let mut answer = Answer::new(view.granted(id, &granted));
                answer.facet("grant: id chosen by etcd", id == 0);
                answer.facet("grant: more than was asked for", granted.ttl > *ttl);
                (answer, granted.header)
            }
            Op::Revoke(lease) => {
                let gone = client.lease_revoke(view.lease(*lease)).await?.0;
                let mut answer = Answer::new(view.header(gone.header.as_ref()));
                let revision = gone.header.as_ref().map_or(0, |it| it.revision);
                answer.facet("revoke: keys went with it", revision > view.base + view.now);
                (answer, gone.header)
            }
            Op::TimeToLive { lease, keys } => {
                let options = LeaseTimeToLiveOptions::new();
                let options = if *keys { options.with_keys() } else { options };
                let it = client.lease_time_to_live(view.lease(*lease), Some(options)).await?.0;
                let mut answer = Answer::new(view.remaining(&it));
                answer.facet("time-to-live: with keys", !it.keys.is_empty());
                (answer, it.header)
            }
            Op::KeepAlive(lease) | Op::KeepAliveRevoked(lease) => {
                let id = view.lease(*lease);
                let (mut keeper, mut stream) = client.lease_keep_alive(id).await?;
                // etcd-client consumes the first response.
                keeper.keep_alive().await?;
                let first = stream.message().await?.ok_or("ended".to_owned())?.0;
                let mut answer = Answer::new(view.kept(&first));
                let mut header = first.header;
                if matches!(op, Op::KeepAliveRevoked(_)) {
                    header = client.lease_revoke(id).await?.0.header;
                    keeper.keep_alive().await?;
                    let second = stream.message().await?.ok_or("ended".to_owned())?.0;
                    answer.text += &format!(", then {}", view.kept(&second));
                    answer.facet("keep-alive: of one that has gone", second.ttl == 0);
                }
                (answer, header)
            }
            Op::Leases => {
                let list = client.leases().await?.0;
                let mut answer = Answer::new(view.listed(&list));
                answer.facet("leases: several", list.leases.len() > 1);
                (answer, list.header)
            }
            Op::Watch(it) => return self.watch(it).await,
            Op::Cancel { stream, id } => {
                let Some(stream) = &mut self.streams[*stream] else {
                    return Ok(Answer::new("no such stream".to_owned()));
                };
                let mut answer = Answer::new(stream.cancel(*id, view).await?);
                answer.facet("watch: cancelled", answer.text.contains("ended"));
                (answer, None)
            }
            Op::Progress { stream } => {
                let Some(stream) = &mut self.streams[*stream] else {
                    return Ok(Answer::new("no such stream".to_owned()));
                };
                let mut answer = Answer::new(stream.progress(view).await?);
                answer.facet("watch: progress", answer.text.contains("progress"));
                (answer, None)
            }
        };
        answer.revision = header.map(|it| it.revision - self.view.base);
        Ok(answer)
    }

    async fn watch(&mut self, it: &Watch) -> Result<Answer, Answer> {
        let options = self.view.watch(it);
        let created = match &mut self.streams[it.stream] {
            Some(stream) => stream.watch(it.key, options, &self.view).await?,
            none => {
                let (stream, created) =
                    Stream::open(&mut self.client, it.key, options, &self.view).await?;
                *none = Some(stream);
                created
            }
        };
        let mut answer = Answer::new(created.text);
        if created.live {
            answer.watch = Some(created.id);
            let start = self.view.revision(it.start);
            let now = self.view.base + self.view.now;
            answer.facet("watch: from the past", (1..=now).contains(&start));
            answer.facet("watch: from the future", start > now + 1);
        } else {
            answer.refusal = Some(format!("watch ended: {}", created.reason));
        }
        Ok(answer)
    }

    /// Waits until a watch has received a revision of the case, or has ended.
    pub(crate) async fn reach(&mut self, stream: usize, id: i64, now: i64) -> Result<(), String> {
        let Some(stream) = &mut self.streams[stream] else {
            return Ok(());
        };
        timeout(self.patience, stream.reach(id, self.view.base + now, &self.view))
            .await
            .unwrap_or_else(|_| Err(format!("watch {id} did not receive @{now}")))
    }

    /// Returns true if a watch has not ended.
    pub(crate) fn is_live(&self, stream: usize, id: i64) -> bool {
        self.streams[stream].iter().flat_map(|it| &it.watches).any(|it| it.id == id && it.live)
    }

    /// Returns true if this stream does not respond to progress requests.
    pub(crate) fn is_stuck(&self, stream: usize) -> bool {
        self.streams[stream].as_ref().is_some_and(Stream::is_stuck)
    }

    /// Shows the events that all watches have received up to a revision of the case, one line per event.
    pub(crate) fn received(&self, upto: i64) -> String {
        let upto = self.view.base + upto;
        let mut lines = Vec::new();
        for (nth, stream) in self.streams.iter().enumerate() {
            for watch in stream.iter().flat_map(|it| &it.watches) {
                lines.push(format!("watch {} on stream {nth} received:", watch.id));
                let known = watch.lines.iter().filter(|(at, _)| *at <= upto);
                lines.extend(known.map(|(_, it)| format!("  {it}")));
            }
        }
        lines.join("\n")
    }

    /// Returns a key whose events this watch receives.
    pub(crate) fn key_of(it: &Watch) -> Key {
        // Without a key, etcd watches the smallest one.
        if it.key.is_empty() { b"\0" } else { it.key }
    }
}
