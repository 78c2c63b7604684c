//! Expiry of the client's certificate.

use std::time::{Duration, SystemTime};

use crate::values::Credentials;

/// How long before its end a certificate should be replaced.
const NEAR: Duration = Duration::from_secs(14 * 86_400);

/// End of a certificate, and the time from which the end is near.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expiry {
    pub(super) ends: SystemTime,
    pub(super) near: SystemTime,
}

impl Expiry {
    /// Returns the earliest end among the client's certificate and its chain; `None` if there is none, or none that can be parsed.
    #[cfg(feature = "tls")]
    pub(super) fn of(credentials: &Credentials) -> Option<Self> {
        use x509_cert::Certificate;
        use x509_cert::der::DecodePem;

        const END: &str = "-----END CERTIFICATE-----";
        let pem = std::str::from_utf8(credentials.tls.as_ref()?.certificate()?).ok()?;
        let begins = pem.match_indices("-----BEGIN CERTIFICATE-----");
        let expiries = begins.filter_map(|(begin, _)| {
            let block = pem.get(begin..)?;
            let block = block.get(..block.find(END)? + END.len())?;
            let validity = Certificate::from_pem(block).ok()?.tbs_certificate.validity;
            let [begins, ends] = [validity.not_before, validity.not_after]
                .map(|time| time.to_unix_duration().as_secs());
            Some(Self::between(begins, ends))
        });
        expiries.min_by_key(|it| it.ends)
    }

    #[cfg(not(feature = "tls"))]
    pub(super) fn of(_: &Credentials) -> Option<Self> {
        None
    }

    /// Near is two weeks before the end, or the last third for a certificate that is valid for less than six weeks.
    #[cfg_attr(not(feature = "tls"), allow(dead_code))] // nothing else parses certificates
    fn between(begins: u64, ends: u64) -> Self {
        let life = Duration::from_secs(ends.saturating_sub(begins));
        let ends = Duration::from_secs(ends);
        let at = |time| SystemTime::UNIX_EPOCH.checked_add(time).unwrap_or(SystemTime::UNIX_EPOCH);
        Self { ends: at(ends), near: at(ends.saturating_sub(NEAR.min(life / 3))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_is_near_two_weeks_before_or_in_the_last_third() {
        let at = |day: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(day * 86_400);
        for (ends, near) in [(465, 451), (103, 102)] {
            let expiry = Expiry::between(100 * 86_400, ends * 86_400);
            assert_eq!((expiry.near, expiry.ends), (at(near), at(ends)));
        }
    }
}
