//! Log lines of a service: its own, and those of etcd-locked, which tell the person on call what is wrong.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Writes the lines selected by `RUST_LOG` to standard error; `info` and above by default.
pub(crate) fn begin() {
    let info = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    tracing_subscriber::fmt()
        .with_env_filter(info.from_env_lossy())
        .with_writer(std::io::stderr)
        .init();
}
