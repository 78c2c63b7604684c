//! Error of the example.

use std::fmt;

use etcd_locked::{LockError, etcd_client};

#[derive(Debug)]
pub(crate) enum AppError {
    Lock(LockError),
    Etcd(etcd_client::Error),
    Store(sqlx::Error),
    Task(tokio::task::JoinError),
}

impl From<LockError> for AppError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<etcd_client::Error> for AppError {
    fn from(error: etcd_client::Error) -> Self {
        Self::Etcd(error)
    }
}

impl From<sqlx::Error> for AppError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error)
    }
}

impl From<tokio::task::JoinError> for AppError {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::Task(error)
    }
}

impl fmt::Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Etcd(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Task(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AppError {}
