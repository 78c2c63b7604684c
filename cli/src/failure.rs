//! Failure of a command, and its exit status.

use std::error::Error;
use std::io;
use std::iter::successors;

use etcd_locked::{LockError, etcd_client};
use thiserror::Error;

/// What etcd says to a user who may not do it.
const DENIED: &str = "etcdserver: permission denied";
/// What etcd's own words begin with.
const SPOKEN: &str = "etcdserver: ";

/// Why a command could not be carried out.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// The user gave arguments or settings that make no sense here, or no terminal.
    #[error("{0}")]
    Usage(String),
    /// etcd is out of reach, or failed.
    #[error("{0}")]
    Etcd(String),
    /// etcd does not know the user, or not by this password.
    #[error("{0}")]
    Login(String),
    /// Only an operator can open the way to etcd: a scheme, an authority or a certificate is wrong.
    #[error("{0}")]
    Way(String),
    /// etcd does not let this user do it.
    #[error("{0}; `etcd-locked doctor` names the rights that are missing")]
    Denied(String),
    /// etcd is at its quota.
    #[error("{0}")]
    Full(String),
    /// The system refuses what a command needs.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    #[error("{0}")]
    System(String),
    /// The output cannot be written.
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    /// Exit status. Those of `exec` are from `sysexits.h`: above what commands commonly have, and below what shells do.
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
            // What stays until an operator changes something: etcd has said so, or no word of etcd's has come.
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
            // What did not come from etcd may have no more than a code.
            etcd_client::Error::GRpcStatus(status) if !status.message().is_empty() => {
                status.message().to_owned()
            }
            error => error.to_string(),
        };
        let failed = format!("etcd failed: {text}");
        match &*text {
            DENIED => Self::Denied(failed),
            "etcdserver: mvcc: database space exceeded" => Self::Full(text),
            "etcdserver: user name is empty" => Self::Login(format!(
                "{failed}: it wants to know who asks, by --user or ETCD_LOCKED_USER"
            )),
            "etcdserver: authentication failed, invalid user ID or password" => Self::Login(failed),
            _ => Self::Etcd(failed),
        }
    }
}
