//! Version of etcd, found in the output of its programs.

use std::fmt;

/// A version such as `3.5.16`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Version(pub(crate) u16, pub(crate) u16, pub(crate) u16);

impl Version {
    /// Finds the first version that is a word of its own, in a text such as `etcd Version: 3.5.16`.
    pub(crate) fn find(text: &str) -> Option<Self> {
        text.split_whitespace().find_map(Self::parse)
    }

    /// Returns whether this is the version `text`, or begins with it: 3.5.16 is `3.5` and `3.5.16`.
    pub(crate) fn is(self, text: &str) -> bool {
        let own = self.to_string();
        own.strip_prefix(text)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    fn parse(word: &str) -> Option<Self> {
        let mut parts = word.splitn(3, '.');
        let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        // 3.6.0-rc.1, 3.5.16+dfsg
        let patch: String = parts
            .next()?
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        Some(Self(major, minor, patch.parse().ok()?))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn finds_versions_in_etcds_output() {
        assert_eq!(
            Version::find("etcd Version: 3.4.23\nGo Version: go1.19.8"),
            Some(Version(3, 4, 23))
        );
        assert_eq!(
            Version::find("etcdctl version: 3.6.0-rc.1\nAPI version: 3.6"),
            Some(Version(3, 6, 0))
        );
        assert_eq!(Version::find("API version: 3.4"), None);
    }

    #[test]
    fn a_version_is_what_it_begins_with() {
        let version = Version(3, 5, 16);
        assert!(["3", "3.5", "3.5.16"].iter().all(|text| version.is(text)));
        assert!(
            ["3.4", "3.5.1", "5.16"]
                .iter()
                .all(|text| !version.is(text))
        );
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(Version(3, 5, 9) < Version(3, 5, 16));
    }
}
