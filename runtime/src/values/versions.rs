//! Versions of etcd with known bugs, and the versions that fix them.

/// Versions of etcd without any of the bugs that [`etcd_bugs`] knows.
pub const RECOMMENDED_ETCD: &str = "3.5.33, 3.6.14, 3.7.1 or later";

/// A bug, and for each minor version of etcd 3 that has it the first patch without it.
type Bug = (&'static str, &'static [(u32, u32)]);

/// Marks a bug that no patch fixes, because support for etcd 3.4 has ended.
const NEVER: u32 = u32::MAX;

/// From etcd's change logs, the worst first. The book's page `deploying` has the same table.
const BUGS: [Bug; 8] = [
    ("members may lose data after a crash, or diverge (etcd#13766)", &[(5, 3)]),
    ("a member that was paused may return stale reads (etcd#20418)", &[(4, 42), (5, 28), (6, 9)]),
    ("a former leader may revoke leases that are renewed (etcd#15247)", &[(4, 31), (5, 13)]),
    (
        "the renewal of a revoked lease may seem to succeed (etcd#20590)",
        &[(4, 38), (5, 23), (6, 5)],
    ),
    ("a watch from the compacted revision may miss a deletion (etcd#19179)", &[(4, 36), (5, 18)]),
    (
        "nested transactions bypass the permissions of users (CVE-2026-33343)",
        &[(4, 42), (5, 28), (6, 9)],
    ),
    (
        "puts in transactions bypass the permissions of users (CVE-2026-44283)",
        &[(4, 44), (5, 30), (6, 11)],
    ),
    (
        "watches bypass the permissions of users (GHSA-xg4h-6gfc-h4m8)",
        &[(4, NEVER), (5, 33), (6, 14), (7, 1)],
    ),
];

/// Returns the known bugs of a version of etcd, the worst first. The version has the form of etcd's status (`3.5.16`). `None` if no bug
/// is known, or if the text is not a version. An engine that connects to such an etcd logs the bugs once (code `etcd.version`).
#[must_use]
pub fn etcd_bugs(version: &str) -> Option<String> {
    let mut parts = version.split('.').map(number);
    let (major, minor, patch) = (parts.next()??, parts.next()??, parts.next()??);
    if (major, minor) < (3, 4) {
        return Some("it is older than the versions that etcd-locked is tested with".to_owned());
    }
    let has =
        |(_, fixes): &&Bug| major == 3 && fixes.iter().any(|fix| fix.0 == minor && patch < fix.1);
    let bugs: Vec<_> = BUGS.iter().filter(has).map(|(bug, _)| *bug).collect();
    (!bugs.is_empty()).then(|| bugs.join("; "))
}

/// Parses the leading digits of a part: 16 from `16`, 0 from `0-rc`.
fn number(part: &str) -> Option<u32> {
    let end = part.find(|c: char| !c.is_ascii_digit());
    part[..end.unwrap_or(part.len())].parse().ok()
}
