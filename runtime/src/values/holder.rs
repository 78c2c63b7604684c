//! Holder record, stored as the value of a lock's key: `etcdctl get --prefix locks/` shows who holds what.

use std::fmt;
use std::io::Write;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use etcd_locked_core::CallId;
use serde_json::Value;

use super::{getters, shown};

/// Length to which each text of a record is cut, in characters.
const TEXT: usize = 200;

/// Maximum size of a record, in bytes: a call's templates fit many times over.
const RECORD: usize = 512 * 1024;

// A record ends with the time at which its call queued. Once the call holds the lock, the time since then is appended.
const QUEUED: &str = ",\"queued_since\":\"";
const HELD: &str = "\",\"held_since\":\"";
const END: &[u8] = b"\"}";

/// The holder of a lock, as it described itself when it queued, and again after it had held the lock for a second.
///
/// Host, process and service are always those of the holder. Function, template and times are those of the call that holds the lock (of
/// several readers, the first) once it has held it for a second. Before that, they may be those of another call of the same process,
/// whose place or lock it took over. Other etcd clients may write anything into the record, so texts are escaped and cut to 200
/// characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder(Arc<Record>);

#[derive(Debug, PartialEq, Eq)]
struct Record {
    host: String,
    pid: u32,
    service: String,
    function: Option<String>,
    template: Option<String>,
    trace: Option<String>,
    permits: Option<u16>,
    call: Option<u64>,
    queued_since: String,
    held_since: Option<String>,
}

impl Holder {
    getters! { self:
        /// Returns the host's name.
        host: &str = &self.0.host;
        /// Returns the process id on that host.
        pid: u32 = self.0.pid;
        /// Returns the service's name, as configured there.
        service: &str = &self.0.service;
        /// Returns the path of the annotated function; `None` for a lock taken by `lock(..)`.
        function: Option<&str> = self.0.function.as_deref();
        /// Returns the template of the name, or of all names of the call, `accounts/<from>, accounts/<to>`; `None` for run-time names.
        template: Option<&str> = self.0.template.as_deref();
        /// Returns the call's place in a trace, as a W3C `traceparent`; `None` if its process does not use
        /// [OpenTelemetry](crate::telemetry#spans-and-traces).
        trace: Option<&str> = self.0.trace.as_deref();
        /// Returns the value of the call's option `permits`; `None` for other modes, or if its process does not write it.
        permits: Option<u16> = self.0.permits;
        /// Returns the number of the call in its process, which `etcd-locked kick` uses; `None` if its process does not number calls.
        call: Option<u64> = self.0.call;
        /// Returns when the call queued for the lock, by the wall clock of the holder's host (RFC 3339, UTC).
        queued_since: &str = &self.0.queued_since;
        /// Returns when the call acquired the lock, by the same clock. `None` in its first second, and if that could not be written.
        held_since: Option<&str> = self.0.held_since.as_deref();
    }

    /// Parses the value of a lock's key; `None` if this library did not write it, as with a lock in another language.
    pub fn parse(json: &[u8]) -> Option<Self> {
        if json.len() > RECORD {
            return None;
        }
        let record: Value = serde_json::from_slice(json).ok()?;
        let text =
            |field: &str| record.get(field).and_then(Value::as_str).map(|text| shown(text, TEXT));
        let number = |field: &str| record.get(field).and_then(Value::as_u64);
        Some(Self(Arc::new(Record {
            host: text("host")?,
            pid: number("pid").and_then(|pid| pid.try_into().ok())?,
            service: text("service")?,
            function: text("function"),
            template: text("template"),
            trace: text("trace"),
            permits: number("permits").and_then(|of| of.try_into().ok()),
            call: number("call"),
            queued_since: text("queued_since")?,
            held_since: text("held_since"),
        })))
    }
}

/// Author of records in this process: the part that all of them share, as JSON.
#[derive(Debug)]
pub(crate) struct Author(Vec<u8>);

impl Author {
    pub(crate) fn here(host: &str, service: &str) -> Self {
        let mut json = Vec::new();
        text(&mut json, "{\"host\":", Some(host));
        plain(&mut json, ",\"pid\":", std::process::id());
        text(&mut json, ",\"service\":", Some(service));
        Self(json)
    }

    /// Returns the record of a call made now. Written by hand, because a tree of values would cost more than everything else that a
    /// caller's thread does for a lock.
    pub(crate) fn record(
        &self,
        function: Option<&str>,
        template: Option<&str>,
        trace: Option<&str>,
        permits: Option<NonZeroU16>,
        call: CallId,
    ) -> Arc<[u8]> {
        let mut json = Vec::with_capacity(256);
        json.extend_from_slice(&self.0);
        text(&mut json, ",\"function\":", function);
        text(&mut json, ",\"template\":", template);
        if trace.is_some() {
            text(&mut json, ",\"trace\":", trace);
        }
        if let Some(permits) = permits {
            plain(&mut json, ",\"permits\":", permits);
        }
        plain(&mut json, ",\"call\":", call.0);
        let since = humantime::format_rfc3339_millis(SystemTime::now());
        plain(&mut json, QUEUED, since);
        json.extend_from_slice(END);
        json.into()
    }
}

/// Returns the record of a call that acquired its lock after it had waited for this time.
pub(crate) fn held_after(record: &[u8], waited: Duration) -> Arc<[u8]> {
    let held = || {
        let object = record.strip_suffix(END)?;
        let (_, queued) = std::str::from_utf8(object).ok()?.rsplit_once(QUEUED)?;
        let since = humantime::parse_rfc3339(queued).ok()?.checked_add(waited)?;
        let mut json = Vec::with_capacity(record.len() + 48);
        json.extend_from_slice(object);
        plain(&mut json, HELD, humantime::format_rfc3339_millis(since));
        json.extend_from_slice(END);
        Some(json.into())
    };
    held().unwrap_or_else(|| record.into())
}

/// Writes a name, with the punctuation around it, and a text as JSON; `None` becomes `null`.
fn text(json: &mut Vec<u8>, name: &str, text: Option<&str>) {
    json.extend_from_slice(name.as_bytes());
    let _ = serde_json::to_writer(json, &text); // neither a text nor memory can fail
}

/// Writes a name and a value that needs no escaping.
fn plain(json: &mut Vec<u8>, name: &str, value: impl fmt::Display) {
    let _ = write!(json, "{name}{value}");
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { host, pid, service, queued_since, held_since, .. } = &*self.0;
        write!(f, "`{service}` on {host}, process {pid}")?;
        if let Some(function) = self.function() {
            write!(f, ", in `{function}`")?;
        }
        match held_since {
            Some(since) => write!(f, ", since {since}"),
            None => write!(f, ", queued since {queued_since}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_reads_as_it_was_written() {
        let author = Author::here("h\"\\", "shop\n");
        let record =
            author.record(Some("f"), Some("a/<b>"), Some("00-1"), NonZeroU16::new(5), CallId(7));
        let holder = Holder::parse(&record).unwrap();
        assert_eq!((holder.host(), holder.service()), ("h\"\\", "shop\\n"));
        assert_eq!((holder.pid(), holder.call()), (std::process::id(), Some(7)));
        assert_eq!((holder.function(), holder.template()), (Some("f"), Some("a/<b>")));
        assert_eq!((holder.trace(), holder.permits()), (Some("00-1"), Some(5)));
        let queued = humantime::parse_rfc3339(holder.queued_since()).unwrap();
        let waited = Duration::from_millis(61_005);
        let held = Holder::parse(&held_after(&record, waited)).unwrap();
        let since = humantime::parse_rfc3339(held.held_since().unwrap()).unwrap();
        assert_eq!(since.duration_since(queued).unwrap(), waited);
        assert!(held.to_string().ends_with(held.held_since().unwrap()));
        for value in [&b""[..], b"x", b"{}", b"[1]", b"\xff", b"{\"host\":1}"] {
            assert_eq!(Holder::parse(value), None);
        }
    }
}
