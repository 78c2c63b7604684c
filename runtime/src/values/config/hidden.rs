//! Secrets, as `Debug` and errors show them.

/// What `Debug` shows for a secret that is set.
pub(super) const HIDDEN: &str = "***";

/// Hides the user and the password of an endpoint, which is refused if it has any.
pub(super) fn without_user(endpoint: &str) -> String {
    match endpoint.rsplit_once('@') {
        Some((_, host)) => format!("{HIDDEN}@{host}"),
        None => endpoint.to_owned(),
    }
}
