//! Environment variables of a configuration.

use std::ffi::OsString;
use std::fmt;

use humantime::parse_duration;

use super::{Config, File, Files, check_endpoint, check_prefix, check_ttl};
use crate::values::{LockError, Wait};

impl Config {
    /// Reads the configuration from the environment, as the first lock does if [`init`](crate::init) was not called.
    ///
    /// | variable | meaning | where unset |
    /// |---|---|---|
    /// | `ETCD_LOCKED_ENDPOINTS` | endpoints, separated by commas; or `embedded`, an etcd in the process (feature `embedded`) | [`LockError::NotInitialized`] |
    /// | `ETCD_LOCKED_PREFIX` | [`prefix`](Self::prefix) | `locks/` |
    /// | `ETCD_LOCKED_TTL` | [`ttl`](Self::ttl), e.g. `15s` | `30s` |
    /// | `ETCD_LOCKED_WAIT` | [`wait`](Self::wait), e.g. `500ms`, or `none`, or `forever` | `10s` |
    /// | `ETCD_LOCKED_CONNECT_TIMEOUT` | [`connect_timeout`](Self::connect_timeout), e.g. `2s` | `5s` |
    /// | `ETCD_LOCKED_MAX_WAITERS` | [`max_waiters`](Self::max_waiters), e.g. `500` | any number |
    /// | `ETCD_LOCKED_FOLLOW_MEMBERS` | [`follow_members`](Self::follow_members), `true` or `false` | `false` |
    /// | `ETCD_LOCKED_SHOW_NAMES` | [`show_names`](Self::show_names), `true` or `false` | `false` |
    /// | `ETCD_LOCKED_SERVICE` | [`service`](Self::service) | the executable's file name |
    /// | `ETCD_LOCKED_USER` | [`user`](Self::user), as `name:password`, or as `name` with the next one | no user |
    /// | `ETCD_LOCKED_PASSWORD_FILE` | file with the user's password; without a user's name, with `name:password` | no file |
    /// | `ETCD_LOCKED_CACERT` | file with the authorities' certificates (PEM) | those of the system |
    /// | `ETCD_LOCKED_CERT`, `ETCD_LOCKED_KEY` | files with the client's certificate and key (PEM) | none |
    ///
    /// Write durations as `500ms`, `15s` or `1m 30s`. An empty variable counts as unset. Variables of `etcdctl` are ignored, because a
    /// shell that is set up to run `etcdctl` on production would lock production.
    ///
    /// Files are read now, and again for each new connection and when etcd refuses a login, so a replaced certificate or password needs
    /// no restart. While a file cannot be read or is incomplete, the last good credentials stay in use, and a warning is logged
    /// (`credentials.unreadable`).
    ///
    /// # Errors
    /// [`LockError::NotInitialized`] if no endpoint is set; [`LockError::Config`] if a value is wrong, or an `ETCD_LOCKED_…` unknown.
    pub fn from_env() -> Result<Self, LockError> {
        Self::check_variables()?;
        Self::from_lookup(|variable| std::env::var_os(variable).map(text))
    }

    /// Rejects unknown `ETCD_LOCKED_…` variables of the process, as [`from_env`](Self::from_env) does: for programs that use
    /// [`from_lookup`](Self::from_lookup).
    ///
    /// # Errors
    /// [`LockError::Config`], with the name that was probably meant.
    pub fn check_variables() -> Result<(), LockError> {
        check_variables(std::env::vars_os().map(|(variable, _)| text(variable)))
    }

    /// Like [`from_env`](Self::from_env), with any environment: for programs that have options for some of the variables.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, LockError> {
        let env = Environment(&lookup);
        let Some(endpoints) = env.get("ETCD_LOCKED_ENDPOINTS") else {
            return Err(LockError::NotInitialized {
                reason: "the etcd endpoint is not set: set `ETCD_LOCKED_ENDPOINTS`, e.g. to `http://127.0.0.1:2379`, \
                         or call `etcd_locked::init(Config::new([..]))` before the first lock"
                    .into(),
            });
        };
        let mut config = endpoints.config()?;
        for (at, endpoint) in config.endpoints.0.iter().enumerate() {
            check_endpoint(endpoint).map_err(|wrong| {
                endpoints.wrong(format_args!("endpoint {}: {wrong}", at + 1)) // people count from 1
            })?;
        }
        env.set("ETCD_LOCKED_PREFIX", |value| {
            config.prefix = value.to_owned();
            check_prefix(value)
        })?;
        env.set("ETCD_LOCKED_TTL", |value| {
            config.ttl = parse_duration(value).map_err(|_| DURATION)?;
            check_ttl(config.ttl)
        })?;
        env.set("ETCD_LOCKED_CONNECT_TIMEOUT", |value| {
            config.connect_timeout = parse_duration(value).map_err(|_| DURATION)?;
            Ok(())
        })?;
        env.set("ETCD_LOCKED_WAIT", |value| {
            let wrong = || format!("{DURATION}, or `none`, or `forever`");
            config.wait = match value {
                "none" => Wait::Once,
                "forever" => Wait::Forever,
                value => Wait::For(parse_duration(value).map_err(|_| wrong())?),
            };
            Ok(())
        })?;
        env.set("ETCD_LOCKED_MAX_WAITERS", |value| {
            let count = value.parse().ok().filter(|count| *count > 0);
            config.max_waiters = Some(count.ok_or("must be an integer from 1, e.g. `500`")?);
            Ok(())
        })?;
        for (name, flag) in [
            ("ETCD_LOCKED_FOLLOW_MEMBERS", &mut config.follow_members),
            ("ETCD_LOCKED_SHOW_NAMES", &mut config.show_names),
        ] {
            env.set(name, |value| {
                *flag = value.parse().map_err(|_| "must be `true` or `false`")?;
                Ok(())
            })?;
        }
        if let Some(service) = env.get("ETCD_LOCKED_SERVICE") {
            config.service = service.value;
        }
        let files = env.files()?;
        let read = files.read();
        config.source.configured = read.map_err(LockError::config)?;
        config.source.files = files;
        if config.source.configured.user.is_none() {
            config.source.configured.user = env.user()?;
        }
        config.check().map_err(LockError::config)?;
        Ok(config)
    }
}

const EMBEDDED: &str = "embedded";

const USER: &str = "ETCD_LOCKED_USER";

/// Prefix of all variables, and the rest of each.
const OURS: &str = "ETCD_LOCKED_";
const KNOWN: &str = "ENDPOINTS PREFIX TTL WAIT CONNECT_TIMEOUT MAX_WAITERS FOLLOW_MEMBERS SHOW_NAMES SERVICE USER PASSWORD_FILE \
                     CACERT CERT KEY";

fn text(given: OsString) -> String {
    given.to_string_lossy().into_owned()
}

/// Refuses a misspelt variable, which would be ignored. The error suggests the known variable with the most similar beginning and end.
fn check_variables(all: impl Iterator<Item = String>) -> Result<(), LockError> {
    let known = || KNOWN.split(' ');
    // `etcd-locked exec` sets two others, and Kubernetes sets some for a service named like this library.
    let is_others = |it: &str| {
        ["NAME", "TOKEN"].contains(&it) || it.contains("PORT") || it.ends_with("SERVICE_HOST")
    };
    let mut ours = all.filter_map(|it| it.strip_prefix(OURS).map(String::from));
    let is_unknown = |it: &String| known().all(|known| known != it) && !is_others(it);
    let Some(unknown) = ours.find(is_unknown) else { return Ok(()) };
    let alike = |known: &&str| {
        let begin = known.bytes().zip(unknown.bytes()).take_while(|(a, b)| a == b).count();
        let end = known.bytes().rev().zip(unknown.bytes().rev()).take_while(|(a, b)| a == b);
        begin + end.count()
    };
    let nearest = OURS.to_owned() + known().max_by_key(alike).unwrap_or_default();
    let message = format!("`{OURS}{unknown}` is unknown: write `{nearest}`, or unset it");
    Err(LockError::config(message))
}

/// Environment variables; an empty one counts as unset.
struct Environment<'a>(&'a dyn Fn(&str) -> Option<String>);

struct Variable {
    name: &'static str,
    value: String,
}

impl Environment<'_> {
    fn get(&self, name: &'static str) -> Option<Variable> {
        let value = (self.0)(name).filter(|value| !value.is_empty())?;
        Some(Variable { name, value })
    }

    /// Passes the value of a variable, if set, to `setting`, whose error says what is wrong.
    fn set(
        &self,
        name: &'static str,
        setting: impl FnOnce(&str) -> Result<(), String>,
    ) -> Result<(), LockError> {
        match self.get(name) {
            Some(given) => setting(&given.value).map_err(|wrong| given.wrong(wrong)),
            None => Ok(()),
        }
    }

    fn user(&self) -> Result<Option<(String, String)>, LockError> {
        let Some(user) = self.get(USER) else { return Ok(None) };
        match user.value.split_once(':') {
            Some((name, password)) => Ok(Some((name.to_owned(), password.to_owned()))),
            None => Err(user.wrong("the `:` is missing: write `name:password`")),
        }
    }

    fn files(&self) -> Result<Files, LockError> {
        let mut files = Files::default();
        if let Some(file) = self.get("ETCD_LOCKED_PASSWORD_FILE") {
            let user = self.get(USER);
            if user.as_ref().is_some_and(|user| user.value.contains(':')) {
                return Err(file
                    .wrong(format_args!("`{USER}` has a password too: leave one of the two out")));
            }
            files.user = Some((user.map(|user| user.value), file.file()));
        }
        let certificates = ["ETCD_LOCKED_CACERT", "ETCD_LOCKED_CERT", "ETCD_LOCKED_KEY"];
        let certificates = certificates.map(|name| self.get(name));
        if cfg!(not(feature = "tls"))
            && let Some(file) = certificates.iter().flatten().next()
        {
            return Err(file.wrong("TLS needs the feature `tls` of etcd-locked: enable it"));
        }
        let [authorities, certificate, key] = certificates;
        files.authorities = authorities.map(Variable::file);
        files.identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate.file(), key.file())),
            (None, None) => None,
            (Some(alone), None) | (None, Some(alone)) => {
                return Err(alone.wrong("set the certificate's and the key's file together"));
            }
        };
        Ok(files)
    }
}

impl Variable {
    /// Creates an error that names the variable and never shows its value, which may be a key or a password by mistake.
    fn wrong(&self, what: impl fmt::Display) -> LockError {
        LockError::config(format!("`{}`: {what}", self.name))
    }

    fn config(&self) -> Result<Config, LockError> {
        let parts: Vec<_> = self.value.split(',').map(str::trim).collect();
        match &parts[..] {
            [EMBEDDED] => {
                #[cfg(feature = "embedded")]
                return Ok(Config::embedded());
                #[cfg(not(feature = "embedded"))]
                Err(self.wrong(
                    "`embedded` needs the feature `embedded` of etcd-locked: enable it, or name an endpoint, \
                     e.g. `http://127.0.0.1:2379`",
                ))
            }
            parts if parts.contains(&EMBEDDED) => Err(self.wrong(
                "`embedded` cannot be combined with endpoints: write `embedded` alone, or leave it out",
            )),
            parts => Ok(Config::new(parts.iter().copied())),
        }
    }

    fn file(self) -> File {
        File { variable: self.name, path: self.value.into() }
    }
}

const DURATION: &str = "must be an integer and a unit (`ms`, `s`, `m`, `h`), e.g. `15s`";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read(environment: &[(&str, &str)]) -> Result<Config, LockError> {
        Config::from_lookup(|name| {
            let found = environment.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn everything_set_is_used() {
        let config = read(&[
            ("ETCD_LOCKED_ENDPOINTS", "http://a:1, http://b:2"),
            ("ETCD_LOCKED_PREFIX", "shop/locks/"),
            ("ETCD_LOCKED_TTL", "1m"),
            ("ETCD_LOCKED_WAIT", "500ms"),
            ("ETCD_LOCKED_CONNECT_TIMEOUT", "2s"),
            ("ETCD_LOCKED_MAX_WAITERS", "500"),
            ("ETCD_LOCKED_FOLLOW_MEMBERS", "true"),
            ("ETCD_LOCKED_SHOW_NAMES", "true"),
            ("ETCD_LOCKED_SERVICE", "orders"),
            ("ETCD_LOCKED_USER", "me:pass:word"),
            ("ETCDCTL_ENDPOINTS", "http://c:3"),
            ("ETCDCTL_USER", "root:root"),
            ("ETCDCTL_CACERT", "/means/nothing"),
        ])
        .unwrap();
        assert_eq!(config.urls(), ["http://a:1", "http://b:2"]);
        assert_eq!(config.prefix, "shop/locks/");
        assert_eq!(config.ttl, Duration::from_secs(60));
        assert_eq!(config.wait, Wait::For(Duration::from_millis(500)));
        assert_eq!(config.connect_timeout, Duration::from_secs(2));
        assert_eq!(config.max_waiters, Some(500));
        assert!(config.follow_members && config.show_names);
        assert_eq!(config.service, "orders");
        assert_eq!(config.source.configured.user, Some(("me".into(), "pass:word".into())));
    }

    #[test]
    fn misspelt_variable_is_refused_with_the_nearest_name() {
        for (wrong, nearest) in [("TLL", "TTL"), ("CA_CERT", "CACERT"), ("ENDPOINT", "ENDPOINTS")] {
            let others = ["TOKEN", "SERVICE_HOST", "PORT_80_TCP", "X_SERVICE_PORT"];
            let all = others.into_iter().chain([wrong]).map(|it| format!("{OURS}{it}"));
            let error = check_variables(all).unwrap_err().to_string();
            assert!(error.contains(&format!("write `{OURS}{nearest}`")), "{error}");
        }
    }

    #[test]
    fn password_comes_from_a_file() {
        let file = std::env::temp_dir().join(format!("etcd-locked-{}", std::process::id()));
        let name = file.display().to_string();
        let user = |user: Option<&str>| {
            let mut environment = vec![("ETCD_LOCKED_ENDPOINTS", "http://a:1")];
            environment.push(("ETCD_LOCKED_PASSWORD_FILE", &*name));
            environment.extend(user.map(|user| ("ETCD_LOCKED_USER", user)));
            let config = read(&environment).map_err(|error| error.to_string())?;
            Ok::<_, String>(config.source.configured.user)
        };
        let me = Ok(Some(("me".into(), "hunter2".into())));
        std::fs::write(&file, "hunter2\n").unwrap();
        assert_eq!(user(Some("me")), me);
        assert!(user(Some("me:secret")).unwrap_err().contains("a password too"));
        let nameless = user(None).unwrap_err();
        assert!(nameless.contains("name:password") && !nameless.contains("hunter2"), "{nameless}");
        std::fs::write(&file, "me:hunter2").unwrap();
        assert_eq!(user(None), me);
        std::fs::remove_file(&file).unwrap();
        let missing = user(None).unwrap_err();
        assert!(missing.contains("`ETCD_LOCKED_PASSWORD_FILE`: cannot read"), "{missing}");
    }
}
