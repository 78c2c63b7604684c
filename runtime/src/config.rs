//! Where etcd is and how to lock by default; from code or from the environment.

use std::fmt;
use std::time::Duration;

use crate::error::LockError;
use crate::site::Wait;

/// What `Debug` shows for a secret that is set.
const HIDDEN: &str = "***";

/// The shortest and the longest TTL: etcd's floor, and the longest a crashed holder may block others.
const TTL: std::ops::RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(300);

/// Where etcd is, who asks, and what locks do unless told otherwise.
///
/// ```no_run
/// # async fn start() -> Result<(), etcd_locked::LockError> {
/// use std::time::Duration;
/// use etcd_locked::Config;
///
/// let config = Config::new(["http://10.0.0.1:2379", "http://10.0.0.2:2379"])
///     .prefix("shop/locks/")
///     .ttl(Duration::from_secs(20));
/// etcd_locked::init(config).await
/// # }
/// ```
///
/// The methods check nothing: [`init`](crate::init) and [`Locks::connect`](crate::Locks::connect) do, and answer
/// [`LockError::Config`] with what to write instead.
#[derive(Clone)]
pub struct Config {
    pub(crate) endpoints: Vec<String>,
    pub(crate) prefix: String,
    pub(crate) ttl: Duration,
    pub(crate) wait: Wait,
    pub(crate) service: String,
    pub(crate) user: Option<(String, String)>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
    pub(crate) connect_timeout: Duration,
}

impl Config {
    /// etcd at these endpoints, everything else by default.
    ///
    /// An endpoint is `http://host:port`, `https://host:port` (feature `tls`) or `host:port`, which means `https` if
    /// `tls` is set and `http` otherwise. Name all members of the cluster, in any order: when one fails, the next is
    /// asked.
    ///
    /// Variable: `ETCD_LOCKED_ENDPOINTS`, separated by commas.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: "locks/".into(),
            ttl: Duration::from_secs(15),
            wait: Wait::For(Duration::from_secs(10)),
            service: executable(),
            user: None,
            #[cfg(feature = "tls")]
            tls: None,
            connect_timeout: Duration::from_secs(5),
        }
    }

    /// The configuration the environment gives, which is also what the first lock uses without [`init`](crate::init).
    ///
    /// | variable | meaning | where unset |
    /// |---|---|---|
    /// | `ETCD_LOCKED_ENDPOINTS` | endpoints, separated by commas | `ETCDCTL_ENDPOINTS` |
    /// | `ETCD_LOCKED_PREFIX` | [`prefix`](Self::prefix) | `locks/` |
    /// | `ETCD_LOCKED_TTL` | [`ttl`](Self::ttl), e.g. `15s` | `15s` |
    /// | `ETCD_LOCKED_WAIT` | [`wait`](Self::wait), e.g. `500ms`, or `none`, or `forever` | `10s` |
    /// | `ETCD_LOCKED_SERVICE` | [`service`](Self::service) | the executable's file name |
    /// | `ETCD_LOCKED_USER` | [`user`](Self::user), as `name:password` | `ETCDCTL_USER`, `ETCDCTL_PASSWORD` |
    /// | `ETCD_LOCKED_CACERT` | file with the authorities' certificates (PEM) | `ETCDCTL_CACERT` |
    /// | `ETCD_LOCKED_CERT`, `ETCD_LOCKED_KEY` | files with the client's certificate and key (PEM) | `ETCDCTL_CERT`, `ETCDCTL_KEY` |
    ///
    /// Durations are `<integer>(ms|s|m|h)`. An empty variable counts as unset. As for `etcdctl`, its own certificate
    /// variables mean nothing where every endpoint is `http://`.
    ///
    /// # Errors
    ///
    /// [`LockError::NotInitialized`] if no endpoint is set; [`LockError::Config`] if a value is not what it should be.
    pub fn from_env() -> Result<Self, LockError> {
        Self::from_lookup(|variable| {
            std::env::var_os(variable).map(|value| value.to_string_lossy().into_owned())
        })
    }

    /// What every key begins with: letters, digits, `._~:@=+-` and `/`, with a `/` at the end. Default: `locks/`.
    ///
    /// Processes exclude each other only if their prefixes are equal. Variable: `ETCD_LOCKED_PREFIX`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The lease's time to live: how long a crashed holder blocks others. 2 s to 300 s, rounded up to whole seconds;
    /// default: 15 s.
    ///
    /// Below 5 s, a change of etcd's leader costs locks. Variable: `ETCD_LOCKED_TTL`.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to queue for a lock. Default: 10 s. Variable: `ETCD_LOCKED_WAIT`.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Wait::For(wait);
        self
    }

    /// Queue for as long as it takes. Variable: `ETCD_LOCKED_WAIT=forever`.
    #[must_use]
    pub fn wait_forever(mut self) -> Self {
        self.wait = Wait::Forever;
        self
    }

    /// The service's name in the holder record, for whoever asks who holds a lock. Default: the executable's file
    /// name.
    ///
    /// Variable: `ETCD_LOCKED_SERVICE`.
    #[must_use]
    pub fn service(mut self, service: impl Into<String>) -> Self {
        self.service = service.into();
        self
    }

    /// The etcd user to authenticate as. Default: none. Variable: `ETCD_LOCKED_USER`, as `name:password`.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// Certificates for `https` endpoints. Default: the system's authorities, no certificate of one's own.
    ///
    /// Variables: `ETCD_LOCKED_CACERT`, `ETCD_LOCKED_CERT`, `ETCD_LOCKED_KEY`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// How long opening a connection may take, TLS and authentication included; of several endpoints each gets at
    /// most 2 s of it. Default: 5 s.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// What is wrong with this configuration, and what to write instead.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.endpoints.is_empty() {
            return Err("no endpoint: name at least one, e.g. `http://127.0.0.1:2379`".into());
        }
        for endpoint in &self.endpoints {
            check_endpoint(endpoint)
                .map_err(|wrong| format!("endpoint `{}`: {wrong}", without_user(endpoint)))?;
        }
        self.check_scheme()?;
        check_prefix(&self.prefix).map_err(|wrong| format!("prefix `{}`: {wrong}", self.prefix))?;
        check_ttl(self.ttl).map_err(|wrong| format!("ttl {:?}: {wrong}", self.ttl))?;
        if self.connect_timeout.is_zero() {
            return Err("connect_timeout is zero: nothing can be reached in no time".into());
        }
        if let Some((name, _)) = &self.user
            && name.is_empty()
        {
            return Err("the user's name is empty: leave `user` out, or name one".into());
        }
        #[cfg(feature = "tls")]
        self.tls.as_ref().map_or(Ok(()), Tls::check)?;
        Ok(())
    }

    /// One scheme for all: a client with half its endpoints in the clear is a mistake.
    fn check_scheme(&self) -> Result<(), String> {
        let urls = self.urls();
        let https = urls.iter().find(|url| url.starts_with("https://"));
        let http = urls.iter().find(|url| url.starts_with("http://"));
        if let Some(https) = https
            && cfg!(not(feature = "tls"))
        {
            return Err(format!(
                "endpoint `{https}` needs TLS: enable the feature `tls` of etcd-locked"
            ));
        }
        match (http, https) {
            (Some(http), Some(https)) => Err(format!(
                "endpoints `{http}` and `{https}` differ in scheme: write `http://` or `https://` for all of them"
            )),
            (Some(http), None) if self.has_tls() => Err(format!(
                "`tls` is set but endpoint `{http}` is not encrypted: write `https://`, or leave `tls` out"
            )),
            _ => Ok(()),
        }
    }

    /// The endpoints with their schemes.
    pub(crate) fn urls(&self) -> Vec<String> {
        let scheme = if self.has_tls() { "https" } else { "http" };
        self.endpoints
            .iter()
            .map(|endpoint| match endpoint.trim_end_matches('/') {
                url if url.contains("://") => url.to_owned(),
                host => format!("{scheme}://{host}"),
            })
            .collect()
    }

    fn shown_endpoints(&self) -> Vec<String> {
        let endpoints = self.endpoints.iter();
        endpoints.map(|endpoint| without_user(endpoint)).collect()
    }

    fn has_tls(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        return false;
    }

    /// [`Config::from_env`] over any environment.
    fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, LockError> {
        let env = Environment(&lookup);
        let Some(endpoints) = env.either("ETCD_LOCKED_ENDPOINTS", "ETCDCTL_ENDPOINTS") else {
            return Err(LockError::NotInitialized {
                reason: "no etcd endpoint is known: set `ETCD_LOCKED_ENDPOINTS`, e.g. to `http://127.0.0.1:2379`, \
                         or call `etcd_locked::init()` first"
                    .into(),
            });
        };
        if endpoints.value == "embedded" {
            return Err(endpoints.wrong(
                "the embedded etcd comes with the feature `embedded`, which this version does not have: \
                 name an endpoint, e.g. `http://127.0.0.1:2379`",
            ));
        }
        let mut config = Self::new(
            endpoints
                .value
                .split(',')
                .map(|part| part.trim().to_owned()),
        );
        for endpoint in &config.endpoints {
            check_endpoint(endpoint).map_err(|wrong| {
                let value = config.shown_endpoints().join(",");
                Variable { value, ..endpoints }.wrong(wrong)
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
        if let Some(service) = env.get("ETCD_LOCKED_SERVICE") {
            config.service = service.value;
        }
        config.user = env.user()?;
        config.read_tls(&env)?;
        config
            .check()
            .map_err(|message| LockError::Config { message })?;
        Ok(config)
    }

    #[cfg(feature = "tls")]
    fn read_tls(&mut self, env: &Environment<'_>) -> Result<(), LockError> {
        let [authorities, certificate, key] = env.tls_files(self);
        let mut tls = Tls::new();
        if let Some(file) = &authorities {
            tls = tls.ca_pem(file.read()?);
        }
        match (&certificate, &key) {
            (Some(certificate), Some(key)) => {
                tls = tls.identity_pem(certificate.read()?, key.read()?);
            }
            (Some(alone), None) => return Err(alone.wrong("the key's file is not set as well")),
            (None, Some(alone)) => {
                return Err(alone.wrong("the certificate's file is not set as well"));
            }
            (None, None) => {}
        }
        if authorities.is_some() || certificate.is_some() {
            self.tls = Some(tls);
        }
        Ok(())
    }

    #[cfg(not(feature = "tls"))]
    fn read_tls(&mut self, env: &Environment<'_>) -> Result<(), LockError> {
        match env.tls_files(self).into_iter().flatten().next() {
            Some(file) => Err(file.wrong("TLS needs the feature `tls` of etcd-locked: enable it")),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Config");
        shown
            .field("endpoints", &self.shown_endpoints())
            .field("prefix", &self.prefix)
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .field("service", &self.service)
            .field("user", &self.user.as_ref().map(|(name, _)| (name, HIDDEN)));
        #[cfg(feature = "tls")]
        shown.field("tls", &self.tls);
        shown
            .field("connect_timeout", &self.connect_timeout)
            .finish()
    }
}

/// Certificates for `https` endpoints, all of them PEM texts (not file names).
#[cfg(feature = "tls")]
#[derive(Clone, Default)]
pub struct Tls {
    authorities: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    domain: Option<String>,
}

#[cfg(feature = "tls")]
impl Tls {
    /// The system's authorities, no certificate of one's own, each endpoint's own host name.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Trust these authorities' certificates, and only these. Variable: `ETCD_LOCKED_CACERT` (a file).
    #[must_use]
    pub fn ca_pem(mut self, certificates: impl Into<Vec<u8>>) -> Self {
        self.authorities = Some(certificates.into());
        self
    }

    /// Show this certificate to an etcd with `--client-cert-auth`. Variables: `ETCD_LOCKED_CERT`, `ETCD_LOCKED_KEY`
    /// (files).
    #[must_use]
    pub fn identity_pem(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// The name the server's certificate must be for, where it is not the endpoint's host.
    #[must_use]
    pub fn domain(mut self, name: impl Into<String>) -> Self {
        self.domain = Some(name.into());
        self
    }

    /// What rustls would take for an empty list, or refuse without saying which text it was.
    fn check(&self) -> Result<(), String> {
        let certificate = |pem: &[u8]| contains(pem, b"-----BEGIN CERTIFICATE-----");
        if self
            .authorities
            .as_deref()
            .is_some_and(|pem| !certificate(pem))
        {
            return Err("tls: the authorities' PEM has no `BEGIN CERTIFICATE`".into());
        }
        if let Some((cert, key)) = &self.identity {
            if !certificate(cert) {
                return Err("tls: the client certificate's PEM has no `BEGIN CERTIFICATE`".into());
            }
            if !contains(key, b"PRIVATE KEY-----") {
                return Err("tls: the client key's PEM has no `PRIVATE KEY`".into());
            }
        }
        Ok(())
    }

    /// The same for etcd-client.
    pub(crate) fn options(&self) -> etcd_client::TlsOptions {
        let mut options = etcd_client::TlsOptions::new();
        options = match &self.authorities {
            Some(pem) => options.ca_certificate(etcd_client::Certificate::from_pem(pem)),
            None => options.with_native_roots(),
        };
        if let Some((certificate, key)) = &self.identity {
            options = options.identity(etcd_client::Identity::from_pem(certificate, key));
        }
        if let Some(domain) = &self.domain {
            options = options.domain_name(domain);
        }
        options
    }
}

#[cfg(feature = "tls")]
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authorities", &self.authorities.is_some())
            .field("identity", &self.identity.as_ref().map(|_| HIDDEN))
            .field("domain", &self.domain)
            .finish()
    }
}

#[cfg(feature = "tls")]
fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

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
        // The value is not shown: what has no colon may be the password.
        match self.get("ETCDCTL_PASSWORD") {
            Some(password) if user.name == "ETCDCTL_USER" => Ok(Some((user.value, password.value))),
            _ => Err(LockError::Config {
                message: format!("`{}` has no `:`: write `name:password`", user.name),
            }),
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
        .map(|(ours, etcdctl)| {
            if plain {
                self.get(ours)
            } else {
                self.either(ours, etcdctl)
            }
        })
    }
}

impl Variable {
    fn wrong(&self, what: impl fmt::Display) -> LockError {
        LockError::Config {
            message: format!("`{}` is `{}`: {what}", self.name, self.value),
        }
    }

    #[cfg(feature = "tls")]
    fn read(&self) -> Result<Vec<u8>, LockError> {
        std::fs::read(&self.value)
            .map_err(|error| self.wrong(format_args!("cannot read that file: {error}")))
    }
}

fn check_endpoint(endpoint: &str) -> Result<(), String> {
    let example = "write `http://host:port` or `https://host:port`";
    let host = match endpoint.split_once("://") {
        Some(("http" | "https", host)) => host,
        Some((scheme, _)) => return Err(format!("unknown scheme `{scheme}`: {example}")),
        None => endpoint,
    };
    let host = host.strip_suffix('/').unwrap_or(host);
    if host.is_empty() {
        return Err(format!("an endpoint is empty: {example}"));
    }
    if host.contains('@') {
        return Err(
            "a user does not belong into an endpoint: use `user` (`ETCD_LOCKED_USER`)".into(),
        );
    }
    if !host
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-._:[]%".contains(c))
    {
        return Err(format!(
            "no space, path or query, only host and port: {example}"
        ));
    }
    let port = host.rsplit_once(':').map(|(_, port)| port);
    if port.is_some_and(|port| !port.ends_with(']') && port.parse::<u16>().is_err()) {
        return Err(format!("the port is no number up to 65535: {example}"));
    }
    Ok(())
}

/// An endpoint with a user in it is refused, but its password is not to be shown.
fn without_user(endpoint: &str) -> String {
    match endpoint.rsplit_once('@') {
        Some((_, host)) => format!("{HIDDEN}@{host}"),
        None => endpoint.to_owned(),
    }
}

fn check_prefix(prefix: &str) -> Result<(), String> {
    if let Some(other) = prefix
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || "._~:@=+-/".contains(*c)))
    {
        return Err(format!(
            "{other:?} cannot be in it: only letters, digits, `._~:@=+-` and `/`"
        ));
    }
    match prefix {
        "" => Err("empty: write e.g. `locks/`".into()),
        _ if prefix.ends_with('/') => Ok(()),
        _ => Err(format!("must end in `/`: write `{prefix}/`")),
    }
}

pub(crate) fn check_ttl(ttl: Duration) -> Result<(), String> {
    if TTL.contains(&ttl) {
        return Ok(());
    }
    Err(format!("must be from {:?} to {:?}", TTL.start(), TTL.end()))
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

/// The executable's file name.
fn executable() -> String {
    std::env::current_exe()
        .ok()
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .unwrap_or_else(|| "unknown".into())
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

    /// What is wrong with that one variable, beside endpoints that are right.
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
            assert!(reason.contains("init()"), "{reason}");
        }
    }

    #[test]
    fn everything_set_is_used() {
        let config = read(&[
            ("ETCD_LOCKED_ENDPOINTS", "http://a:1, http://b:2"),
            ("ETCD_LOCKED_PREFIX", "shop/locks/"),
            ("ETCD_LOCKED_TTL", "1m"),
            ("ETCD_LOCKED_WAIT", "500ms"),
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
        let environment = [
            ("ETCDCTL_ENDPOINTS", "http://a:1"),
            ("ETCDCTL_CACERT", "/no/such/file"),
        ];
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
            ("ETCD_LOCKED_PREFIX", "locks", "write `locks/`"),
            ("ETCD_LOCKED_PREFIX", "my locks/", "only letters"),
            ("ETCD_LOCKED_PREFIX", "locks/%s/", "only letters"),
            ("ETCD_LOCKED_ENDPOINTS", "embedded", "feature `embedded`"),
            ("ETCD_LOCKED_ENDPOINTS", "http://a:1,", "empty"),
            ("ETCD_LOCKED_ENDPOINTS", "ftp://a:1", "`ftp`"),
            ("ETCD_LOCKED_ENDPOINTS", "http://a b:1", "space"),
            ("ETCD_LOCKED_ENDPOINTS", "http://a:1/v3", "path"),
            ("ETCD_LOCKED_ENDPOINTS", "http://a:99999", "65535"),
            ("ETCD_LOCKED_ENDPOINTS", "http://", "empty"),
        ] {
            let message = wrong(name, value);
            assert!(
                message.contains(&format!("`{name}` is `{value}`")),
                "{message}"
            );
            assert!(message.contains(accepted), "{message}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let message = wrong("ETCD_LOCKED_USER", "hunter2");
        assert!(message.contains("name:password"), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
        let config = Config::new(["a:1"]).user("me", "hunter2");
        let shown = format!("{config:?}");
        assert!(
            shown.contains("me") && !shown.contains("hunter2"),
            "{shown}"
        );
    }

    #[test]
    fn defaults_are_right() {
        for endpoint in [
            "http://a",
            "a:1",
            "http://[::1]:2379",
            "http://[::1]",
            "http://a:1/",
        ] {
            assert_eq!(Config::new([endpoint]).check(), Ok(()), "{endpoint}");
        }
        let slashed = Config::new(["http://a:1/"]);
        assert_eq!(slashed.urls(), ["http://a:1"]);
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let config = || Config::new(["http://a:1"]);
        for (config, message) in [
            (Config::new([""; 0]), "no endpoint"),
            (Config::new(["http://me:secret@a:1"]), "use `user`"),
            (config().prefix(""), "empty"),
            (config().prefix("a"), "write `a/`"),
            (config().ttl(Duration::from_secs(1)), "from 2s to 300s"),
            (config().connect_timeout(Duration::ZERO), "connect_timeout"),
            (config().user("", "secret"), "user's name"),
            #[cfg(not(feature = "tls"))]
            (Config::new(["https://a:1"]), "feature `tls`"),
        ] {
            let wrong = config.check().unwrap_err();
            assert!(wrong.contains(message), "{wrong}");
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn certificates_need_the_feature() {
        let message = wrong("ETCD_LOCKED_CACERT", "/some/file");
        assert!(message.contains("feature `tls`"), "{message}");
    }

    #[cfg(feature = "tls")]
    mod tls {
        use super::*;

        const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
        const KEY: &str = "-----BEGIN PRIVATE KEY-----";

        #[test]
        fn scheme_follows_tls() {
            let tls = Tls::new().ca_pem(CERTIFICATE);
            let config = Config::new(["a:1", "https://b:1"]).tls(tls);
            assert_eq!(config.check(), Ok(()));
            assert_eq!(config.urls(), ["https://a:1", "https://b:1"]);
        }

        #[test]
        fn half_encrypted_is_refused() {
            for (config, message) in [
                (
                    Config::new(["http://a:1", "https://b:1"]),
                    "differ in scheme",
                ),
                (
                    Config::new(["http://a:1"]).tls(Tls::new()),
                    "leave `tls` out",
                ),
                (
                    Config::new(["a:1"]).tls(Tls::new().ca_pem("rubbish")),
                    "authorities",
                ),
                (
                    Config::new(["a:1"]).tls(Tls::new().identity_pem(CERTIFICATE, "rubbish")),
                    "client key",
                ),
                (
                    Config::new(["a:1"]).tls(Tls::new().identity_pem("rubbish", KEY)),
                    "client certificate",
                ),
            ] {
                let wrong = config.check().unwrap_err();
                assert!(wrong.contains(message), "{wrong}");
            }
        }

        #[test]
        fn files_are_read_or_named() {
            let endpoints = ("ETCDCTL_ENDPOINTS", "https://a:1");
            let missing = read(&[endpoints, ("ETCDCTL_CACERT", "/no/such/file")]).unwrap_err();
            let message = missing.to_string();
            assert!(
                message.contains("`ETCDCTL_CACERT` is `/no/such/file`: cannot read"),
                "{message}"
            );
            let alone = read(&[endpoints, ("ETCD_LOCKED_CERT", "/some/file")]).unwrap_err();
            assert!(alone.to_string().contains("key's file"), "{alone}");
            let config = read(&[endpoints]).unwrap();
            assert!(config.tls.is_none());
        }

        #[test]
        fn a_key_is_never_shown() {
            let tls = Tls::new().identity_pem(CERTIFICATE, "hunter2");
            let shown = format!("{:?}", Config::new(["a:1"]).tls(tls));
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
}
