//! Log lines of a service: its own, and those in which etcd-locked tells the person on call what is wrong.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Writes what `RUST_LOG` asks for to standard error; `info` and above unless it says otherwise.
pub(crate) fn begin() {
    let info = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    tracing_subscriber::fmt()
        .with_env_filter(info.from_env_lossy())
        .with_writer(std::io::stderr)
        .init();
}
