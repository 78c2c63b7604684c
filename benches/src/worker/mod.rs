//! Worker process: one peer, which does one kind of work for each order.
//!
//! It prints `ready`. For each line `go <Unix time in milliseconds>` it begins at once, counts from that time for as long as its
//! options say, and prints one line of JSON. So all workers of a row count in the same window, after they have started.
//! It ends with its standard input.

mod calls;
mod guarded;
mod held;
mod names;
mod nested;
mod peer;
mod spec;
mod tally;
mod tries;
mod usage;
mod waiters;
mod watcher;
mod witness;

use std::error::Error;
use std::io::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;

use crate::kind::Kind;
pub(crate) use guarded::Guarded;
pub(crate) use peer::Owner;
pub(crate) use spec::Spec;
use spec::Work;

/// Error after which a worker cannot continue. It reports the error and ends, and the bench fails.
pub(crate) type Fault = Box<dyn Error + Send + Sync>;

pub(crate) fn main(spec: Spec) -> Result<(), Fault> {
    let mut runtime = match spec.kind {
        Kind::Single => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let runtime = runtime.enable_all().build()?;
    runtime.block_on(async {
        // The shutdown row uses a separate engine, and no other.
        if matches!(spec.kind, Kind::Ours | Kind::Background) && spec.work != Work::Shutdown {
            etcd_locked::init(spec.config()).await?;
        }
        match spec.work {
            Work::Calls => calls::work(spec).await?,
            Work::Hold => held::hold(spec).await?,
            Work::Take => held::take(spec).await?,
            Work::Distinct => names::distinct(spec).await?,
            Work::Waiters => waiters::work(spec).await?,
            Work::Nested => nested::work(spec).await?,
            Work::Tries => tries::work(spec).await?,
            Work::Shutdown => held::shutdown(spec).await?,
            Work::Retained => names::retained(spec).await?,
        }
        etcd_locked::shutdown(Duration::from_secs(5)).await;
        Ok(())
    })
}

/// Reports that it is ready, and does the work for each order, with the time from which it counts.
async fn serve(mut work: impl AsyncFnMut(Instant) -> Result<Value, Fault>) -> Result<(), Fault> {
    say("ready")?;
    while let Some(begin) = order().await? {
        say(&work(begin).await?.to_string())?;
    }
    Ok(())
}

fn say(line: &str) -> Result<(), Fault> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Waits for the next order, and returns when to begin to count; `None` at the end.
async fn order() -> Result<Option<Instant>, Fault> {
    // On a blocking thread, because tasks continue meanwhile.
    let line = spawn_blocking(|| std::io::stdin().lines().next()).await?;
    let line = line.transpose()?.unwrap_or_default();
    if line.is_empty() {
        return Ok(None);
    }
    let at = line.trim().strip_prefix("go ").map(str::parse);
    let Some(Ok(at)) = at else {
        return Err(format!("no order: {line:?}").into());
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let ahead = Duration::from_millis(at).saturating_sub(since);
    Ok(Some(Instant::now() + ahead))
}
