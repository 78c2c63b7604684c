//! Source of a `LockError::Backend`: which endpoint failed and why, and whether waiting can help.

use std::error::Error;
use std::sync::Arc;

/// Source of an error, in the core and in `LockError`.
type Source = Arc<dyn Error + Send + Sync>;

/// A failure of etcd, or of the way to it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct BackendError {
    message: String,
    /// True if an operator has to change something: a configuration, a certificate, a password.
    permanent: bool,
}

impl BackendError {
    pub(crate) fn passing(message: String) -> Self {
        Self { message, permanent: false }
    }

    pub(crate) fn permanent(message: String) -> Self {
        Self { message, permanent: true }
    }

    /// Combines the failures of several endpoints. The result is permanent if all of them are.
    pub(crate) fn of_all(sources: &[Source]) -> Self {
        let messages: Vec<_> = sources.iter().map(ToString::to_string).collect();
        let permanent = !sources.is_empty() && sources.iter().all(|it| is_permanent(&**it));
        Self { message: messages.join("; "), permanent }
    }
}

/// Returns true if the failure stays until an operator changes something.
pub(crate) fn is_permanent(source: &(dyn Error + Send + Sync + 'static)) -> bool {
    source.downcast_ref::<BackendError>().is_some_and(|error| error.permanent)
}
