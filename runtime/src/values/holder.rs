//! Holder record, stored as the value of a lock's key: `etcdctl get --prefix locks/` answers who holds what.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value;

use super::text::shown;

/// How much of each text of a record is kept, in characters.
const TEXT: usize = 200;

/// The longest value that can be a record of ours, in bytes: a call's templates fit many times over.
const RECORD: usize = 512 * 1024;

/// Who holds a lock, as the holder wrote it when it queued.
///
/// Host, process and service are always those of the holder. If another call of its process took over, be it the place of one
/// that gave up or the lock itself, function, template and since are still those of the first.
///
/// Other clients of etcd may write anything there, so no text is longer than 200 characters, and what would not stand in a line as
/// it is written (control characters, escape sequences, changes of direction) is escaped, as in `\u{1b}`.
// One pointer, because it travels in errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder(Arc<Record>);

#[derive(Debug, PartialEq, Eq)]
struct Record {
    host: String,
    pid: u32,
    service: String,
    function: Option<String>,
    template: Option<String>,
    since: String,
}

impl Holder {
    /// The host's name.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// The process id on that host.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.pid
    }

    /// The service, as configured there.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.0.service
    }

    /// Path of the annotated function; `None` for a lock taken by `lock(..)`.
    #[must_use]
    pub fn function(&self) -> Option<&str> {
        self.0.function.as_deref()
    }

    /// The template of the name, or of all names of the call, `accounts/<from>, accounts/<to>`; `None` for what was given at
    /// run time.
    #[must_use]
    pub fn template(&self) -> Option<&str> {
        self.0.template.as_deref()
    }

    /// Since when it has queued for or held the lock, by its own wall clock (RFC 3339, UTC).
    #[must_use]
    pub fn since(&self) -> &str {
        &self.0.since
    }

    /// Reads a stored record; `None` for what is not one of ours, such as the value of another language's lock.
    pub(crate) fn from_json(json: &[u8]) -> Option<Self> {
        if json.len() > RECORD {
            return None;
        }
        let record: Value = serde_json::from_slice(json).ok()?;
        let text = |field: &str| {
            record
                .get(field)
                .and_then(Value::as_str)
                .map(|text| shown(text, TEXT))
        };
        Some(Self(Arc::new(Record {
            host: text("host")?,
            pid: record
                .get("pid")
                .and_then(Value::as_u64)
                .and_then(|pid| pid.try_into().ok())?,
            service: text("service")?,
            function: text("function"),
            template: text("template"),
            since: text("since")?,
        })))
    }
}

/// Who writes records in this process: what all of them have in common, as JSON, made once.
#[derive(Debug)]
pub(crate) struct Author(Vec<u8>);

impl Author {
    /// This process.
    pub(crate) fn here(host: &str, service: &str) -> Self {
        let mut json = Vec::new();
        text(&mut json, "{\"host\":", Some(host));
        plain(&mut json, ",\"pid\":", std::process::id());
        text(&mut json, ",\"service\":", Some(service));
        Self(json)
    }

    /// The record of a call made now, as it is stored. Written out by hand: a tree of values costs more than all else that
    /// a caller's thread does for a lock.
    pub(crate) fn record(&self, function: Option<&str>, template: Option<&str>) -> Arc<[u8]> {
        let mut json = Vec::with_capacity(256);
        json.extend_from_slice(&self.0);
        text(&mut json, ",\"function\":", function);
        text(&mut json, ",\"template\":", template);
        let since = humantime::format_rfc3339_millis(SystemTime::now());
        plain(&mut json, ",\"since\":\"", since);
        json.extend_from_slice(b"\"}");
        json.into()
    }
}

/// Writes a name, with all that stands around it, and a text as JSON has it; none is `null`.
fn text(json: &mut Vec<u8>, name: &str, text: Option<&str>) {
    json.extend_from_slice(name.as_bytes());
    let _ = serde_json::to_writer(json, &text); // texts can be written, and memory can be written to
}

/// The same of what JSON has no need to escape.
fn plain(json: &mut Vec<u8>, name: &str, value: impl fmt::Display) {
    let _ = write!(json, "{name}{value}");
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record {
            host,
            pid,
            service,
            since,
            ..
        } = &*self.0;
        write!(f, "`{service}` on {host}, process {pid}")?;
        if let Some(function) = self.function() {
            write!(f, ", in `{function}`")?;
        }
        write!(f, ", since {since}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_as_it_was_written() {
        let author = Author::here("h\"\\", "shop\n");
        let record = author.record(Some("shop::ship"), Some("orders/<id>"));
        let holder = Holder::from_json(&record).unwrap();
        assert_eq!((holder.host(), holder.service()), ("h\"\\", "shop\\n"));
        assert_eq!(holder.pid(), std::process::id());
        assert_eq!(holder.function(), Some("shop::ship"));
        assert_eq!(holder.template(), Some("orders/<id>"));
        let since = humantime::parse_rfc3339(holder.since()).unwrap();
        assert!(since.elapsed().unwrap().as_secs() < 60);

        let holder = Holder::from_json(&author.record(None, None)).unwrap();
        assert_eq!((holder.function(), holder.template()), (None, None));
    }

    #[test]
    fn record_of_a_stranger_is_escaped_and_cut() {
        let hostile = "a`\n\u{1b}[31mERROR\r\u{202e}\0\u{2028}".repeat(1_000);
        let fields = ["host", "service", "function", "template", "since"];
        for field in fields {
            let mut record = serde_json::json!({ "pid": 7 });
            for other in fields {
                record[other] = Value::from(if other == field { &hostile } else { "x" });
            }
            let holder = Holder::from_json(record.to_string().as_bytes()).unwrap();
            for shown in [
                format!("{holder}"),
                format!("{holder:?}"),
                holder.service().to_owned(),
            ] {
                assert!(
                    shown.chars().count() < 800,
                    "{field}: {} characters",
                    shown.len()
                );
                let acts = |c: char| c.is_control() || "\u{202e}\u{2028}".contains(c);
                assert!(!shown.contains(acts), "{field}: {shown:?}");
            }
        }
        let huge = format!(
            r#"{{"host":"a","pid":7,"service":"b","since":"c","x":"{}"}}"#,
            "y".repeat(1_400_000)
        );
        assert_eq!(Holder::from_json(huge.as_bytes()), None);
    }

    #[test]
    fn a_foreign_value_is_no_record() {
        for value in [&b""[..], b"x", b"{}", b"[1]", b"\xff", b"{\"host\":1}"] {
            assert_eq!(Holder::from_json(value), None);
        }
    }
}
