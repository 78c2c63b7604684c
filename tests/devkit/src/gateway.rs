//! Gateway client of etcd: it uses etcd's JSON over HTTP, so it does not share code with the client under test.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::http::Request;
use crate::{Result, lock};

/// Client of one member. Each call opens a separate connection.
#[derive(Debug, Clone)]
pub struct Gateway {
    address: SocketAddr,
    user: Option<User>,
    limit: Duration,
}

/// User with the token of the last login; clones share the token.
#[derive(Debug, Clone)]
pub(crate) struct User {
    name: String,
    password: String,
    token: Arc<Mutex<Option<String>>>,
}

impl User {
    pub(crate) fn new(name: &str, password: &str) -> Self {
        Self { name: name.to_owned(), password: password.to_owned(), token: Arc::default() }
    }

    /// Returns name and password in the form of `etcdctl`.
    pub(crate) fn text(&self) -> String {
        format!("{}:{}", self.name, self.password)
    }
}

/// Status of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Id of the cluster.
    pub cluster: u64,
    /// Id of the member that responds.
    pub member: u64,
    /// Id of the leader; 0 if the member does not know one.
    pub leader: u64,
    /// Term of the election.
    pub term: u64,
    /// Revision of the store.
    pub revision: i64,
}

/// Key with its value, lease and creation.
#[derive(Debug, Clone)]
pub struct KeyValue {
    /// Key.
    pub key: String,
    /// Value of the key.
    pub value: String,
    /// Lease of the key; 0 without one.
    pub lease: i64,
    /// Revision at which it was created.
    pub created: i64,
}

impl Gateway {
    /// Makes a client of the member at this address, which must not use TLS.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, user: None, limit: Duration::from_secs(5) }
    }

    /// Limits each wait of a call; the default is 5 s.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Returns a client with the rights of this user, which logs in when a call needs it.
    pub(crate) fn user(mut self, user: Option<User>) -> Self {
        self.user = user;
        self
    }

    fn authenticate(&self, user: &User) -> Result<()> {
        let credentials = json!({ "name": user.name, "password": user.password });
        let answer = self.attempt("auth/authenticate", &credentials, None)?;
        let token = answer["token"].as_str().ok_or("a login without a token")?;
        *lock(&user.token) = Some(token.to_owned());
        Ok(())
    }

    /// Calls a method by its path below `/v3/`, such as `lease/revoke`. The error is etcd's own text.
    pub fn call(&self, method: &str, request: &Value) -> Result<Value> {
        let token = || self.user.as_ref().and_then(|user| lock(&user.token).clone());
        match (self.attempt(method, request, token()), &self.user) {
            // etcd forgets its tokens when it restarts.
            (Err(error), Some(user)) if is_unknown(&error) => {
                self.authenticate(user)?;
                self.attempt(method, request, token())
            }
            (answer, _) => answer,
        }
    }

    fn attempt(&self, method: &str, request: &Value, token: Option<String>) -> Result<Value> {
        let (path, body) = (format!("/v3/{method}"), request.to_string());
        let Self { address, limit, .. } = *self;
        let (path, body, authorization) = (&path[..], &body[..], token.as_deref());
        let request = Request { method: "POST", address, path, authorization, body, limit };
        let answer = request.send()?;
        let value = serde_json::from_str(&answer.body).unwrap_or(Value::Null);
        if answer.status == 200 && value.is_object() {
            return Ok(value);
        }
        let reason = [&value["error"], &value["message"]]
            .into_iter()
            .find_map(Value::as_str)
            .unwrap_or(&answer.body);
        Err(format!("{path}: {} {reason}", answer.status))
    }

    /// Reads a key's value, linearizably; `None` if there is no such key.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let answer = self.call("kv/range", &json!({ "key": encode(key) }))?;
        let kv = answer.pointer("/kvs/0");
        Ok(kv.map(|kv| decode(&kv["value"])))
    }

    /// Reads the keys that begin with `prefix`, linearizably and in their order.
    pub fn keys(&self, prefix: &str) -> Result<Vec<String>> {
        Ok(self.below(prefix)?.into_iter().map(|it| it.key).collect())
    }

    /// Reads the keys below `prefix` with their values, linearizably and in the order of the keys.
    pub fn below(&self, prefix: &str) -> Result<Vec<KeyValue>> {
        // With values, because etcd 3.7 omits leases from reads of keys only (etcd#22209).
        let answer = self.call("kv/range", &range(prefix))?;
        let text = |bytes: &Value| String::from_utf8_lossy(&decode(bytes)).into_owned();
        let read = |kv: &Value| KeyValue {
            key: text(&kv["key"]),
            value: text(&kv["value"]),
            lease: number(&kv["lease"]),
            created: number(&kv["create_revision"]),
        };
        Ok(list(&answer["kvs"]).iter().map(read).collect())
    }

    /// Puts a key without a lease.
    pub fn put(&self, key: &str, value: &str) -> Result<()> {
        let request = json!({ "key": encode(key), "value": encode(value) });
        self.call("kv/put", &request).map(drop)
    }

    /// Deletes a key; returns true if it existed.
    pub fn delete(&self, key: &str) -> Result<bool> {
        let request = json!({ "key": encode(key) });
        let answer = self.call("kv/deleterange", &request)?;
        Ok(number::<u64>(&answer["deleted"]) > 0)
    }

    /// Deletes a key, unless it has a lease or does not exist.
    pub fn delete_without_lease(&self, key: &str) -> Result<()> {
        let compare =
            json!({ "key": encode(key), "target": "LEASE", "result": "EQUAL", "lease": "0" });
        let delete = json!({ "requestDeleteRange": { "key": encode(key) } });
        let request = json!({ "compare": [compare], "success": [delete] });
        self.call("kv/txn", &request).map(drop)
    }

    /// Forgets all revisions before this one.
    pub fn compact(&self, revision: i64) -> Result<()> {
        let request = json!({ "revision": revision });
        self.call("kv/compaction", &request).map(drop)
    }

    /// Lists the ids of all leases.
    pub fn leases(&self) -> Result<Vec<i64>> {
        let answer = self.call("lease/leases", &json!({}))?;
        Ok(list(&answer["leases"]).iter().map(|lease| number(&lease["ID"])).collect())
    }

    /// Revokes a lease.
    pub fn revoke(&self, lease: i64) -> Result<()> {
        let request = json!({ "ID": lease });
        self.call("lease/revoke", &request).map(drop)
    }

    /// Reads the member's status, which does not need a quorum.
    pub fn status(&self) -> Result<Status> {
        let answer = self.call("maintenance/status", &json!({}))?;
        let header = &answer["header"];
        Ok(Status {
            cluster: number(&header["cluster_id"]),
            member: number(&header["member_id"]),
            leader: number(&answer["leader"]),
            term: number(&answer["raftTerm"]),
            revision: number(&header["revision"]),
        })
    }

    /// Raises or clears the alarm that makes etcd refuse to grow, on all members.
    pub fn no_space(&self, raise: bool) -> Result<()> {
        let action = if raise { "ACTIVATE" } else { "DEACTIVATE" };
        let request = json!({ "action": action, "memberID": 0, "alarm": "NOSPACE" });
        self.call("maintenance/alarm", &request).map(drop)
    }

    /// Adds a user with a role of the same name, which may read and write the keys that begin with one of these prefixes.
    pub fn add_user(&self, name: &str, password: &str, prefixes: &[&str]) -> Result<()> {
        let role = json!({ "name": name });
        self.call("auth/user/add", &json!({ "name": name, "password": password }))?;
        self.call("auth/role/add", &role)?;
        for prefix in prefixes {
            let mut permission = range(prefix);
            permission["permType"] = json!("READWRITE");
            let request = json!({ "name": name, "perm": permission });
            self.call("auth/role/grant", &request)?;
        }
        self.grant_role(name)
    }

    /// Gives a user the role of the same name.
    pub fn grant_role(&self, name: &str) -> Result<()> {
        let request = json!({ "user": name, "role": name });
        self.call("auth/user/grant", &request).map(drop)
    }

    /// Revokes the role of the same name from a user.
    pub fn revoke_role(&self, name: &str) -> Result<()> {
        let request = json!({ "name": name, "role": name });
        self.call("auth/user/revoke", &request).map(drop)
    }

    /// Changes a user's password; etcd forgets the tokens of the user.
    pub fn change_password(&self, name: &str, password: &str) -> Result<()> {
        let request = json!({ "name": name, "password": password });
        self.call("auth/user/changepw", &request).map(drop)
    }

    /// Enables authentication.
    pub fn enable_auth(&self) -> Result<()> {
        self.call("auth/enable", &json!({})).map(drop)
    }
}

/// Returns true if etcd requires a login, or no longer knows the token.
fn is_unknown(error: &str) -> bool {
    ["user name is empty", "invalid auth token", "auth store is old"]
        .iter()
        .any(|reason| error.contains(reason))
}

fn range(prefix: &str) -> Value {
    let mut end = prefix.as_bytes().to_vec();
    // The first key behind all of them; UTF-8 has no byte 0xff.
    match end.last_mut() {
        Some(last) => *last += 1,
        None => end.push(0),
    }
    let start = if prefix.is_empty() { "\0" } else { prefix };
    json!({ "key": encode(start), "range_end": BASE64.encode(end) })
}

fn encode(text: &str) -> String {
    BASE64.encode(text)
}

fn decode(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap_or_default();
    BASE64.decode(text).unwrap_or_default()
}

/// Reads a list; a missing one is empty.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Reads a number, which protobuf's JSON writes as text; a missing field is 0.
pub(crate) fn number<T: std::str::FromStr + Default>(value: &Value) -> T {
    let text = value.as_str().map(str::parse);
    text.and_then(|number| number.ok()).unwrap_or_default()
}
