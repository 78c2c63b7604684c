//! Failure of a command, and its exit status.

use std::fmt;
use std::io;

use etcd_locked::{LockError, etcd_client};

/// Why a command could not be carried out.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was asked for in a way that makes no sense.
    Usage(String),
    /// etcd is out of reach, or refuses.
    Etcd(String),
    /// The system refuses what a command needs.
    #[cfg(target_os = "linux")]
    System(String),
    /// The output cannot be written.
    Output(io::Error),
}

impl Failure {
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Etcd(_) | Self::Output(_) => 3,
            #[cfg(target_os = "linux")]
            Self::System(_) => 126,
        }
    }

    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Etcd(text) => f.write_str(text),
            #[cfg(target_os = "linux")]
            Self::System(text) => f.write_str(text),
            Self::Output(error) => write!(f, "the output cannot be written: {error}"),
        }
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        match error {
            LockError::NotInitialized { .. } | LockError::Config { .. } => {
                Self::Usage(error.to_string())
            }
            error => Self::Etcd(error.to_string()),
        }
    }
}

impl From<etcd_client::Error> for Failure {
    fn from(error: etcd_client::Error) -> Self {
        Self::Etcd(format!("etcd failed: {error}"))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
