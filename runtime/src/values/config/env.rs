//! Environment variables that make a configuration.

use std::fmt;
use std::time::Duration;

use super::builder::Config;
use super::check::{check_endpoint, check_prefix, check_ttl};
use super::files::{File, Files, UserFile};
use crate::values::error::LockError;
use crate::values::wait::Wait;

impl Config {
    /// The configuration the environment gives, which is also what the first lock uses without [`init`](crate::init).
    ///
    /// | variable | meaning | where unset |
    /// |---|---|---|
    /// | `ETCD_LOCKED_ENDPOINTS` | endpoints, separated by commas; or `embedded`, an etcd in the process (feature `embedded`) | `ETCDCTL_ENDPOINTS` |
    /// | `ETCD_LOCKED_PREFIX` | [`prefix`](Self::prefix) | `locks/` |
    /// | `ETCD_LOCKED_TTL` | [`ttl`](Self::ttl), e.g. `15s` | `15s` |
    /// | `ETCD_LOCKED_WAIT` | [`wait`](Self::wait), e.g. `500ms`, or `none`, or `forever` | `10s` |
    /// | `ETCD_LOCKED_MAX_WAITERS` | [`max_waiters`](Self::max_waiters), e.g. `500` | any number |
    /// | `ETCD_LOCKED_FOLLOW_MEMBERS` | [`follow_members`](Self::follow_members), `true` or `false` | `false` |
    /// | `ETCD_LOCKED_NAMES_IN_SPANS` | [`names_in_spans`](Self::names_in_spans), `true` or `false` | `false` |
    /// | `ETCD_LOCKED_SERVICE` | [`service`](Self::service) | the executable's file name |
    /// | `ETCD_LOCKED_USER` | [`user`](Self::user), as `name:password`, or as `name` with the next one | `ETCDCTL_USER`, `ETCDCTL_PASSWORD` |
    /// | `ETCD_LOCKED_PASSWORD_FILE` | file with the user's password; without a user's name, with `name:password` | no file |
    /// | `ETCD_LOCKED_CACERT` | file with the authorities' certificates (PEM) | `ETCDCTL_CACERT` |
    /// | `ETCD_LOCKED_CERT`, `ETCD_LOCKED_KEY` | files with the client's certificate and key (PEM) | `ETCDCTL_CERT`, `ETCDCTL_KEY` |
    ///
    /// Durations are `<integer>(ms|s|m|h)`. An empty variable counts as unset. Where every endpoint is
    /// `http://`, etcdctl's certificate variables mean nothing, as with `etcdctl` itself.
    ///
    /// Files are read now, and again for each new connection and when etcd refuses a login: a certificate or a password that is replaced
    /// needs no restart. A file that cannot be read then, or is not whole, leaves the last good credentials in use. A warning says so,
    /// with the field `code = "credentials.unreadable"`, and the next connection tries again.
    ///
    /// # Errors
    ///
    /// [`LockError::NotInitialized`] if no endpoint is set; [`LockError::Config`] if a value is not what it should be.
    pub fn from_env() -> Result<Self, LockError> {
        Self::from_lookup(|variable| {
            std::env::var_os(variable).map(|value| value.to_string_lossy().into_owned())
        })
    }

    /// [`Config::from_env`] over any environment: for programs that have options for some of the variables.
    ///
    /// # Errors
    ///
    /// As [`from_env`](Self::from_env).
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, LockError> {
        let env = Environment(&lookup);
        let Some(endpoints) = env.either("ETCD_LOCKED_ENDPOINTS", "ETCDCTL_ENDPOINTS") else {
            return Err(LockError::NotInitialized {
                reason: "no etcd endpoint is known: set `ETCD_LOCKED_ENDPOINTS`, e.g. to `http://127.0.0.1:2379`, \
                         or give it in code first: `etcd_locked::init(Config::new([..]))`"
                    .into(),
            });
        };
        let mut config = endpoints.config()?;
        for (at, endpoint) in config.endpoints.iter().enumerate() {
            check_endpoint(endpoint).map_err(|wrong| {
                endpoints.wrong(format_args!("endpoint {}: {wrong}", at + 1)) // people count from 1
            })?;
        }
        if let Some(prefix) = env.get("ETCD_LOCKED_PREFIX") {
            check_prefix(&prefix.value).map_err(|wrong| prefix.wrong(wrong))?;
            config.prefix = prefix.value;
        }
        if let Some(ttl) = env.get("ETCD_LOCKED_TTL") {
            config.ttl = duration(&ttl.value).ok_or_else(|| ttl.wrong(DURATION))?;
            check_ttl(config.ttl).map_err(|wrong| ttl.wrong(wrong))?;
        }
        if let Some(wait) = env.get("ETCD_LOCKED_WAIT") {
            config.wait = match &*wait.value {
                "none" => Wait::Once,
                "forever" => Wait::Forever,
                value => Wait::For(duration(value).ok_or_else(|| {
                    wait.wrong(format_args!("{DURATION}, or `none`, or `forever`"))
                })?),
            };
        }
        if let Some(max) = env.get("ETCD_LOCKED_MAX_WAITERS") {
            let count = max.value.parse().ok().filter(|count| *count > 0);
            let wrong = || max.wrong("must be an integer from 1, e.g. `500`");
            config.max_waiters = Some(count.ok_or_else(wrong)?);
        }
        for (name, flag) in [
            ("ETCD_LOCKED_FOLLOW_MEMBERS", &mut config.follow_members),
            ("ETCD_LOCKED_NAMES_IN_SPANS", &mut config.names_in_spans),
        ] {
            if let Some(given) = env.get(name) {
                let wrong = |_| given.wrong("must be `true` or `false`");
                *flag = given.value.parse().map_err(wrong)?;
            }
        }
        if let Some(service) = env.get("ETCD_LOCKED_SERVICE") {
            config.service = service.value;
        }
        config.files = env.files(&config)?;
        let read = config.files.read();
        let read = read.map_err(|message| LockError::Config { message })?;
        config.user = match read.user {
            Some(user) => Some(user),
            None => env.user()?,
        };
        #[cfg(feature = "tls")]
        {
            config.tls = read.tls;
        }
        config.check().map_err(|message| LockError::Config { message })?;
        Ok(config)
    }
}

/// In the place of endpoints: an etcd in the process.
const EMBEDDED: &str = "embedded";

/// The environment's variables; an empty one counts as unset.
struct Environment<'a>(&'a dyn Fn(&str) -> Option<String>);

/// A variable that is set.
struct Variable {
    name: &'static str,
    value: String,
}

impl Environment<'_> {
    fn get(&self, name: &'static str) -> Option<Variable> {
        let value = (self.0)(name).filter(|value| !value.is_empty())?;
        Some(Variable { name, value })
    }

    fn either(&self, ours: &'static str, etcdctl: &'static str) -> Option<Variable> {
        self.get(ours).or_else(|| self.get(etcdctl))
    }

    fn user(&self) -> Result<Option<(String, String)>, LockError> {
        let Some(user) = self.either("ETCD_LOCKED_USER", "ETCDCTL_USER") else {
            return Ok(None);
        };
        if let Some((name, password)) = user.value.split_once(':') {
            return Ok(Some((name.to_owned(), password.to_owned())));
        }
        match self.get("ETCDCTL_PASSWORD") {
            Some(password) if user.name == "ETCDCTL_USER" => Ok(Some((user.value, password.value))),
            _ => Err(user.wrong("has no `:`: write `name:password`")),
        }
    }

    /// All files that are named.
    fn files(&self, config: &Config) -> Result<Files, LockError> {
        let mut files = Files::default();
        if let Some(file) = self.get("ETCD_LOCKED_PASSWORD_FILE") {
            let user = self.either("ETCD_LOCKED_USER", "ETCDCTL_USER");
            if let Some(user) = user.as_ref().filter(|user| user.value.contains(':')) {
                let other = user.name;
                return Err(file.wrong(format_args!(
                    "`{other}` has a password too: leave one of the two out"
                )));
            }
            files.user = Some(UserFile { name: user.map(|user| user.value), file: file.file() });
        }
        self.add_certificates(config, &mut files)?;
        Ok(files)
    }

    #[cfg(feature = "tls")]
    fn add_certificates(&self, config: &Config, files: &mut Files) -> Result<(), LockError> {
        let [authorities, certificate, key] = self.tls_files(config);
        files.authorities = authorities.map(Variable::file);
        files.identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate.file(), key.file())),
            (Some(alone), None) => return Err(alone.wrong("the key's file is not set as well")),
            (None, Some(alone)) => {
                return Err(alone.wrong("the certificate's file is not set as well"));
            }
            (None, None) => None,
        };
        Ok(())
    }

    #[cfg(not(feature = "tls"))]
    fn add_certificates(&self, config: &Config, _: &mut Files) -> Result<(), LockError> {
        match self.tls_files(config).into_iter().flatten().next() {
            Some(file) => Err(file.wrong("TLS needs the feature `tls` of etcd-locked: enable it")),
            None => Ok(()),
        }
    }

    /// The authorities', the certificate's and the key's file.
    fn tls_files(&self, config: &Config) -> [Option<Variable>; 3] {
        let plain = config.endpoints.iter().all(|e| e.starts_with("http://"));
        [
            ("ETCD_LOCKED_CACERT", "ETCDCTL_CACERT"),
            ("ETCD_LOCKED_CERT", "ETCDCTL_CERT"),
            ("ETCD_LOCKED_KEY", "ETCDCTL_KEY"),
        ]
        .map(
            |(ours, etcdctl)| {
                if plain { self.get(ours) } else { self.either(ours, etcdctl) }
            },
        )
    }
}

impl Variable {
    /// Names the variable and never shows its value: a key or a password may stand in any of them by mistake.
    fn wrong(&self, what: impl fmt::Display) -> LockError {
        LockError::Config { message: format!("`{}`: {what}", self.name) }
    }

    /// The configuration for these endpoints.
    fn config(&self) -> Result<Config, LockError> {
        let parts: Vec<_> = self.value.split(',').map(str::trim).collect();
        match &parts[..] {
            [EMBEDDED] => self.embedded(),
            parts if parts.contains(&EMBEDDED) => Err(self.wrong(
                "the embedded etcd is a whole cluster of its own: write `embedded` alone, or leave it out",
            )),
            parts => Ok(Config::new(parts.iter().copied())),
        }
    }

    #[cfg(feature = "embedded")]
    #[allow(clippy::unnecessary_wraps, clippy::unused_self)] // without the feature it is an error
    fn embedded(&self) -> Result<Config, LockError> {
        Ok(Config::embedded())
    }

    #[cfg(not(feature = "embedded"))]
    fn embedded(&self) -> Result<Config, LockError> {
        Err(self.wrong(
            "the embedded etcd comes with the feature `embedded` of etcd-locked: enable it, or name an endpoint, \
             e.g. `http://127.0.0.1:2379`",
        ))
    }

    /// The file that the variable names.
    fn file(self) -> File {
        File { variable: self.name, path: self.value.into() }
    }
}

/// What [`duration`] accepts.
const DURATION: &str = "must be an integer and a unit (`ms`, `s`, `m`, `h`), e.g. `15s`";

/// `<integer>(ms|s|m|h)`, like in the attribute.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = text.split_at(digits);
    let count: u64 = count.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(count)),
        "s" => Some(Duration::from_secs(count)),
        "m" => count.checked_mul(60).map(Duration::from_secs),
        "h" => count.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(environment: &[(&str, &str)]) -> Result<Config, LockError> {
        Config::from_lookup(|name| {
            let found = environment.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    /// What is wrong with that one variable, where the endpoints are right.
    fn wrong(name: &str, value: &str) -> String {
        match read(&[(name, value), ("ETCDCTL_ENDPOINTS", "http://a:2379")]) {
            Err(LockError::Config { message }) => message,
            other => panic!("{name}={value}: {other:?}"),
        }
    }

    #[test]
    fn nothing_set_says_what_to_set() {
        for environment in [&[][..], &[("ETCD_LOCKED_ENDPOINTS", "")]] {
            let Err(LockError::NotInitialized { reason }) = read(environment) else {
                panic!("initialised by nothing");
            };
            assert!(reason.contains("ETCD_LOCKED_ENDPOINTS"), "{reason}");
            assert!(reason.contains("Config::new"), "{reason}");
        }
    }

    #[test]
    fn everything_set_is_used() {
        let config = read(&[
            ("ETCD_LOCKED_ENDPOINTS", "http://a:1, http://b:2"),
            ("ETCD_LOCKED_PREFIX", "shop/locks/"),
            ("ETCD_LOCKED_TTL", "1m"),
            ("ETCD_LOCKED_WAIT", "500ms"),
            ("ETCD_LOCKED_MAX_WAITERS", "500"),
            ("ETCD_LOCKED_FOLLOW_MEMBERS", "true"),
            ("ETCD_LOCKED_NAMES_IN_SPANS", "true"),
            ("ETCD_LOCKED_SERVICE", "orders"),
            ("ETCD_LOCKED_USER", "me:pass:word"),
            ("ETCDCTL_ENDPOINTS", "http://c:3"),
            ("ETCDCTL_USER", "root:root"),
        ])
        .unwrap();
        assert_eq!(config.urls(), ["http://a:1", "http://b:2"]);
        assert_eq!(config.prefix, "shop/locks/");
        assert_eq!(config.ttl, Duration::from_secs(60));
        assert_eq!(config.wait, Wait::For(Duration::from_millis(500)));
        assert_eq!(config.max_waiters, Some(500));
        assert!(config.follow_members && config.names_in_spans);
        assert_eq!(config.service, "orders");
        assert_eq!(config.user, Some(("me".into(), "pass:word".into())));
    }

    #[test]
    fn etcdctl_fills_the_gaps() {
        let config = read(&[
            ("ETCDCTL_ENDPOINTS", "a:1"),
            ("ETCDCTL_USER", "me"),
            ("ETCDCTL_PASSWORD", "secret"),
        ])
        .unwrap();
        assert_eq!(config.urls(), ["http://a:1"]);
        assert_eq!(config.user, Some(("me".into(), "secret".into())));
        assert_eq!(config.prefix, "locks/");
        assert_eq!(config.ttl, Duration::from_secs(15));
        assert_eq!(config.wait, Wait::For(Duration::from_secs(10)));
        assert!(!config.service.is_empty());
    }

    #[test]
    fn etcdctl_certificates_mean_nothing_without_tls() {
        let environment =
            [("ETCDCTL_ENDPOINTS", "http://a:1"), ("ETCDCTL_CACERT", "/no/such/file")];
        assert!(read(&environment).is_ok());
    }

    #[test]
    fn wait_has_two_words() {
        let endpoints = ("ETCD_LOCKED_ENDPOINTS", "http://a:1");
        for (value, wait) in [("none", Wait::Once), ("forever", Wait::Forever)] {
            let config = read(&[endpoints, ("ETCD_LOCKED_WAIT", value)]).unwrap();
            assert_eq!(config.wait, wait);
        }
    }

    #[test]
    fn a_wrong_value_is_named_and_explained() {
        for (name, value, accepted) in [
            ("ETCD_LOCKED_TTL", "15", "`ms`, `s`, `m`, `h`"),
            ("ETCD_LOCKED_TTL", "s", "`ms`, `s`, `m`, `h`"),
            ("ETCD_LOCKED_TTL", "1.5s", "`ms`, `s`, `m`, `h`"),
            ("ETCD_LOCKED_TTL", "99999999999999999999s", "integer"),
            ("ETCD_LOCKED_TTL", "1s", "from 2s to 300s"),
            ("ETCD_LOCKED_TTL", "1h", "from 2s to 300s"),
            ("ETCD_LOCKED_WAIT", "never", "`none`, or `forever`"),
            ("ETCD_LOCKED_MAX_WAITERS", "0", "integer from 1"),
            ("ETCD_LOCKED_MAX_WAITERS", "many", "integer from 1"),
            ("ETCD_LOCKED_FOLLOW_MEMBERS", "yes", "`true` or `false`"),
            ("ETCD_LOCKED_PREFIX", "locks", "must end in `/`"),
            ("ETCD_LOCKED_PREFIX", "my locks/", "only letters"),
            ("ETCD_LOCKED_PREFIX", "locks/%s/", "only letters"),
            #[cfg(not(feature = "embedded"))]
            ("ETCD_LOCKED_ENDPOINTS", "embedded", "feature `embedded`"),
            ("ETCD_LOCKED_ENDPOINTS", "embedded,http://a:1", "alone"),
            ("ETCD_LOCKED_ENDPOINTS", "http://a:1, embedded", "alone"),
            ("ETCD_LOCKED_ENDPOINTS", "http://a:1,", "empty"),
            ("ETCD_LOCKED_ENDPOINTS", "ftp://a:1", "scheme"),
            ("ETCD_LOCKED_ENDPOINTS", "a:1,b:x", "endpoint 2: the port"),
            ("ETCD_LOCKED_ENDPOINTS", "http://a b:1", "space"),
            ("ETCD_LOCKED_ENDPOINTS", "http://a:1/v3", "path"),
            ("ETCD_LOCKED_ENDPOINTS", "http://a:99999", "65535"),
            ("ETCD_LOCKED_ENDPOINTS", "http://", "empty"),
        ] {
            let message = wrong(name, value);
            assert!(message.starts_with(&format!("`{name}`: ")), "{message}");
            assert!(message.contains(accepted), "{message}");
        }
    }

    #[cfg(feature = "embedded")]
    #[test]
    fn embedded_is_asked_for_by_name() {
        let environment = [
            ("ETCD_LOCKED_ENDPOINTS", " embedded "),
            ("ETCD_LOCKED_PREFIX", "shop/"),
            ("ETCDCTL_USER", "me:secret"),
        ];
        let config = read(&environment).unwrap();
        assert!(config.endpoints.is_empty() && config.connector.is_some());
        assert_eq!(config.prefix, "shop/");
        let shown = format!("{config:?}");
        assert!(shown.starts_with("Config { endpoints: the embedded etcd, prefix"), "{shown}");
    }

    #[test]
    fn a_password_is_never_shown() {
        let message = wrong("ETCD_LOCKED_USER", "hunter2");
        assert!(message.contains("name:password"), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
        let config = Config::new(["a:1"]).user("me", "hunter2");
        let shown = format!("{config:?}");
        assert!(shown.contains("me") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn password_comes_from_a_file() {
        let file = std::env::temp_dir().join(format!("etcd-locked-{}", std::process::id()));
        let name = file.display().to_string();
        let endpoints = ("ETCD_LOCKED_ENDPOINTS", "http://a:1");
        let of_file = ("ETCD_LOCKED_PASSWORD_FILE", &*name);
        let user = |environment: &[(&str, &str)]| read(environment).map(|config| config.user);
        std::fs::write(&file, "hunter2\n").unwrap();
        for name in ["ETCD_LOCKED_USER", "ETCDCTL_USER"] {
            let named = user(&[endpoints, of_file, (name, "me")]).unwrap();
            assert_eq!(named, Some(("me".into(), "hunter2".into())));
        }
        let twice = user(&[endpoints, of_file, ("ETCD_LOCKED_USER", "me:secret")]).unwrap_err();
        assert!(twice.to_string().contains("a password too"), "{twice}");
        let nameless = user(&[endpoints, of_file]).unwrap_err().to_string();
        assert!(nameless.contains("name:password") && !nameless.contains("hunter2"), "{nameless}");
        std::fs::write(&file, "me:hunter2").unwrap();
        let whole = user(&[endpoints, of_file]).unwrap();
        assert_eq!(whole, Some(("me".into(), "hunter2".into())));
        std::fs::remove_file(&file).unwrap();
        let missing = user(&[endpoints, of_file]).unwrap_err().to_string();
        assert!(missing.contains("`ETCD_LOCKED_PASSWORD_FILE`: cannot read"), "{missing}");
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn certificates_need_the_feature() {
        let message = wrong("ETCD_LOCKED_CACERT", "/some/file");
        assert!(message.contains("feature `tls`"), "{message}");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn files_are_read_or_named() {
        let endpoints = ("ETCDCTL_ENDPOINTS", "https://a:1");
        let missing = read(&[endpoints, ("ETCDCTL_CACERT", "/no/such/file")]).unwrap_err();
        let message = missing.to_string();
        assert!(message.contains("`ETCDCTL_CACERT`: cannot read the file"), "{message}");
        let alone = read(&[endpoints, ("ETCD_LOCKED_CERT", "/some/file")]).unwrap_err();
        assert!(alone.to_string().contains("key's file"), "{alone}");
        let config = read(&[endpoints]).unwrap();
        assert!(config.tls.is_none());
    }
}
