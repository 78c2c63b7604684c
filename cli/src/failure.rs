//! Failure of a command, and its exit status.

use std::error::Error;
use std::io;
use std::iter::successors;

use etcd_locked::{LockError, etcd_client};
use thiserror::Error;

/// etcd's message to a user who lacks a right.
const DENIED: &str = "etcdserver: permission denied";
/// Prefix of etcd's own messages.
const SPOKEN: &str = "etcdserver: ";

/// Reason why a command failed.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// Arguments or settings that do not work here, or a missing terminal.
    #[error("{0}")]
    Usage(String),
    /// etcd is unreachable, or failed.
    #[error("{0}")]
    Etcd(String),
    /// etcd does not know the user, or the password is wrong.
    #[error("{0}")]
    Login(String),
    /// A scheme, a CA or a certificate is wrong, so only an operator can make etcd reachable.
    #[error("{0}")]
    Way(String),
    /// etcd denies this user the operation.
    #[error("{0}; `etcd-locked doctor` lists the missing rights")]
    Denied(String),
    /// etcd is at its quota.
    #[error("{0}")]
    Full(String),
    /// The operating system refuses something that a command needs.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    #[error("{0}")]
    System(String),
    /// The output cannot be written.
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    /// Returns the exit status. Those of `exec` are from `sysexits.h`: above most commands' own, and below those of shells.
    pub(crate) fn status(&self, of_exec: bool) -> u8 {
        let (exec, others) = match self {
            Self::Usage(_) => (64, 2),
            Self::Etcd(_) | Self::Login(_) | Self::Way(_) | Self::Denied(_) | Self::Full(_) => {
                (69, 3)
            }
            Self::System(_) => (71, 3),
            Self::Output(_) => (74, 4),
        };
        if of_exec { exec } else { others }
    }

    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let all = successors(Some(&error as &dyn Error), |&error| error.source());
        let text = all.map(ToString::to_string).collect::<Vec<_>>().join(": ");
        match error {
            LockError::NotInitialized { .. } | LockError::Config { .. } => Self::Usage(text),
            LockError::PermissionDenied { .. } => Self::Denied(text),
            LockError::Backend { .. } if text.contains(DENIED) => Self::Denied(text),
            // It lasts until an operator changes something. The text shows whether etcd said so, or the connection failed.
            LockError::Backend { .. } if !error.is_retryable() => match text.contains(SPOKEN) {
                true => Self::Login(text),
                false => Self::Way(text),
            },
            _ => Self::Etcd(text),
        }
    }
}

impl From<etcd_client::Error> for Failure {
    fn from(error: etcd_client::Error) -> Self {
        let text = match &error {
            // A status that does not come from etcd may have only a code.
            etcd_client::Error::GRpcStatus(status) if !status.message().is_empty() => {
                status.message().to_owned()
            }
            error => error.to_string(),
        };
        let failed = format!("etcd failed: {text}");
        match &*text {
            DENIED => Self::Denied(failed),
            "etcdserver: mvcc: database space exceeded" => Self::Full(text),
            "etcdserver: user name is empty" => {
                Self::Login(format!("{failed}: it requires a user; set --user or ETCD_LOCKED_USER"))
            }
            "etcdserver: authentication failed, invalid user ID or password" => Self::Login(failed),
            _ => Self::Etcd(failed),
        }
    }
}
