//! Versions of etcd that are known to be bad, and why.

/// Returns what is known against a version of etcd, as its status says it (`3.5.16`); `None` if nothing is, or for a text that is no
/// version. An engine that connects to such an etcd warns of each bug once (code `etcd.version`).
///
/// ```
/// assert!(etcd_locked::etcd_bug("3.5.1").is_some_and(|bug| bug.contains("etcd#13766")));
/// assert_eq!(etcd_locked::etcd_bug("3.5.30"), None);
/// ```
#[must_use]
pub fn etcd_bug(version: &str) -> Option<&'static str> {
    let mut parts = version.split('.').map(number);
    let version = (parts.next()??, parts.next()??, parts.next()??);
    match version {
        (3, 5, 0..=2) => {
            Some("it may lose data after a crash, and its members may differ (etcd#13766)")
        }
        (0..=2, _, _) | (3, 0..=3, _) => Some("it is older than what etcd-locked is tested with"),
        (3, 4, _) | (3, 5, 3..=27) | (3, 6, 0..=8) => Some(
            "it may answer stale reads after a member was stopped (etcd#20418), and may revoke leases that are renewed (etcd#15247, \
             etcd#20590)",
        ),
        _ => None,
    }
}

/// The number that a part begins with: `16`, and of a pre-release too, `0-rc`.
fn number(part: &str) -> Option<u32> {
    let end = part.find(|c: char| !c.is_ascii_digit());
    part[..end.unwrap_or(part.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bugs_are_known_up_to_the_version_that_mends_them() {
        for (bad, mended) in [
            ("3.5.2", "3.5.28"),
            ("3.5.27", "3.5.28"),
            ("3.6.8", "3.6.9"),
        ] {
            assert!(etcd_bug(bad).is_some(), "{bad}");
            assert_eq!(etcd_bug(mended), None);
        }
        assert_ne!(etcd_bug("3.5.2"), etcd_bug("3.5.3"), "another bug");
        assert!(etcd_bug("3.6.0-rc.1").is_some());
        for unknown in ["", "3", "3.5", "etcd", "3.x.1", "3.7.0", "4.0.0"] {
            assert_eq!(etcd_bug(unknown), None, "{unknown}");
        }
    }
}
