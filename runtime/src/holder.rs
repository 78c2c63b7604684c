//! The record stored as the value of a lock's key: `etcdctl get --prefix locks/` answers who holds what.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Value, json};

/// Who holds a lock, as the holder wrote it when it queued.
///
/// Host, process and service are always those of the holder. If another call of its process took over, be it the place of one
/// that gave up or the lock itself, function, template and since are still those of the first.
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

    /// The record of a call of this process, made now.
    pub(crate) fn here(
        host: &str,
        service: &str,
        function: Option<&str>,
        template: Option<&str>,
    ) -> Self {
        Self(Arc::new(Record {
            host: host.to_owned(),
            pid: std::process::id(),
            service: service.to_owned(),
            function: function.map(ToOwned::to_owned),
            template: template.map(ToOwned::to_owned),
            since: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
        }))
    }

    /// As it is stored.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let Record {
            host,
            pid,
            service,
            function,
            template,
            since,
        } = &*self.0;
        json!({
            "host": host, "pid": pid, "service": service, "function": function, "template": template, "since": since,
        })
        .to_string()
        .into_bytes()
    }

    /// Reads a stored record; `None` for what is not one of ours, such as the value of another language's lock.
    pub(crate) fn from_json(json: &[u8]) -> Option<Self> {
        let record: Value = serde_json::from_slice(json).ok()?;
        let text = |field: &str| {
            record
                .get(field)
                .and_then(Value::as_str)
                .map(ToOwned::to_owned)
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
        let record = Holder::here("h", "shop", Some("shop::ship"), Some("orders/<id>"));
        assert_eq!(Holder::from_json(&record.to_json()), Some(record));
    }

    #[test]
    fn a_foreign_value_is_no_record() {
        for value in [&b""[..], b"x", b"{}", b"[1]", b"\xff", b"{\"host\":1}"] {
            assert_eq!(Holder::from_json(value), None);
        }
    }
}
