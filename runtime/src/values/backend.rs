//! Source of a `LockError::Backend`: which endpoint failed and why, and whether time alone can mend it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Source of errors, as the core and `LockError` carry it.
type Source = Arc<dyn Error + Send + Sync>;

/// One failure of etcd, or of the way to it.
#[derive(Debug)]
pub(crate) struct BackendError {
    message: String,
    /// An operator has to change something: a configuration, a certificate, a password.
    permanent: bool,
}

impl BackendError {
    /// Makes a failure that may pass by itself.
    pub(crate) fn passing(message: String) -> Self {
        Self { message, permanent: false }
    }

    /// Makes a failure that stays until an operator changes something.
    pub(crate) fn permanent(message: String) -> Self {
        Self { message, permanent: true }
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for BackendError {}

/// Failures of several endpoints, each with its own reason.
#[derive(Debug)]
pub(crate) struct BackendErrors(Vec<Source>);

impl BackendErrors {
    pub(crate) fn new(sources: Vec<Source>) -> Self {
        Self(sources)
    }
}

impl fmt::Display for BackendErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, source) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{source}")?;
        }
        Ok(())
    }
}

impl Error for BackendErrors {}

/// Tells whether the failure stays until an operator changes something. Of several endpoints, all must say so.
pub(crate) fn is_permanent(source: &(dyn Error + Send + Sync + 'static)) -> bool {
    if let Some(error) = source.downcast_ref::<BackendError>() {
        return error.permanent;
    }
    let errors = source.downcast_ref::<BackendErrors>();
    errors.is_some_and(|BackendErrors(all)| {
        !all.is_empty() && all.iter().all(|it| is_permanent(&**it))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(error: impl Error + Send + Sync + 'static) -> Source {
        Arc::new(error)
    }

    #[test]
    fn one_endpoint_that_may_come_back_is_enough() {
        let stays = || source(BackendError::permanent("b".into()));
        let passes = || source(BackendError::passing("a".into()));
        assert!(is_permanent(&*stays()));
        assert!(!is_permanent(&*passes()));
        let both = source(BackendErrors::new(vec![stays(), passes()]));
        assert!(!is_permanent(&*both));
        assert_eq!(both.to_string(), "b; a");
        assert!(is_permanent(&BackendErrors::new(vec![stays(), stays()])));
        assert!(!is_permanent(&std::io::Error::other("of a closure")));
    }
}
