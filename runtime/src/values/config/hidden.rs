//! Secrets, as `Debug` and errors show them.

/// What `Debug` shows for a secret that is set.
pub(super) const HIDDEN: &str = "***";

/// Hides users and passwords of endpoints, which are refused if they have any. A list that was split at the comma of a password
/// shows nothing of its parts before the host.
pub(super) fn shown_endpoints(endpoints: &[String]) -> Vec<String> {
    let of_a_user = endpoints.iter().rposition(|it| it.contains('@'));
    let shown = endpoints.iter().enumerate();
    shown
        .map(|(at, endpoint)| match endpoint.rsplit_once('@') {
            Some((_, host)) => format!("{HIDDEN}@{host}"),
            None if of_a_user.is_some_and(|last| at < last) => HIDDEN.to_owned(),
            None => without_word_as_port(endpoint),
        })
        .collect()
}

/// Hides what stands in the place of a port and is no number: it may be a password whose host is missing.
fn without_word_as_port(endpoint: &str) -> String {
    let host = endpoint.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = endpoint.split_at(host);
    match rest.split_once(':') {
        Some((host, port)) if !rest.starts_with('[') && !begins_with_number(port) => {
            format!("{scheme}{host}:{HIDDEN}")
        }
        _ => endpoint.to_owned(),
    }
}

fn begins_with_number(port: &str) -> bool {
    let number = port.split(['/', '?', '#']).next().unwrap_or(port);
    number.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(endpoints: &str) -> String {
        let endpoints: Vec<_> = endpoints.split(',').map(str::to_owned).collect();
        shown_endpoints(&endpoints).join(",")
    }

    #[test]
    fn endpoints_are_shown_without_users_and_passwords() {
        for (endpoints, expected) in [
            ("http://me:tiger@a:1,http://b:1", "***@a:1,http://b:1"),
            ("http://me:ti@ger@a:1", "***@a:1"),
            ("http://me:7,tiger@a:1,b:1", "***,***@a:1,b:1"),
            ("http://me:tiger", "http://me:***"),
            ("me:tiger", "me:***"),
        ] {
            assert_eq!(shown(endpoints), expected);
        }
    }

    #[test]
    fn endpoints_without_secrets_are_shown_whole() {
        for endpoints in [
            "http://a:1,https://b,c:2379",
            "http://[::1]:2379,http://[::1]",
            "http://a:99999,http://a:1/v3,http://a:",
        ] {
            assert_eq!(shown(endpoints), endpoints);
        }
    }
}
