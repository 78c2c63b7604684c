//! Members of etcd: whether each endpoint responds, and the state of its member.

use etcd_locked::etcd_client::{Client, StatusResponse};
use etcd_locked::{Locks, RECOMMENDED_ETCD, etcd_bugs};
use futures_util::future::join_all;

use super::finding::Finding;
use crate::connection::{Connection, answer};
use crate::failure::Failure;

/// Number of entries by which a member's log may be behind another's.
const LAG: u64 = 1_000;

const USER: &str = "set or correct the user and the password: in --user, ETCD_LOCKED_USER or ETCD_LOCKED_PASSWORD_FILE";
const CERTIFICATES: &str = "check the scheme of the endpoint, the CA of etcd's certificate (--cacert), and the client's certificate and \
    key if etcd requires them (--cert, --key); or the variables used instead";

pub(super) struct Members {
    pub(super) findings: Vec<Finding>,
    /// Client of an endpoint that responds, if possible one with a leader.
    pub(super) serving: Option<Client>,
    /// True if an endpoint refuses the user or the connection; then etcd itself may be healthy.
    pub(super) refuse: bool,
}

/// Checks each endpoint separately, all at the same time.
pub(super) async fn members(connection: &Connection<'_>) -> Result<Members, Failure> {
    let mut findings = Vec::new();
    let mut clients = Vec::new();
    let (mut denied, mut refused) = (Vec::new(), Vec::new());
    let (mut serving, mut leaderless) = (None, None);
    let mut refuse = false;
    for (endpoint, answered) in all(connection.each()?, first).await {
        match answered {
            Ok((client, Some(status))) => {
                let place = if status.leader() == 0 { &mut leaderless } else { &mut serving };
                place.get_or_insert_with(|| client.clone());
                clients.push((endpoint, client));
            }
            Ok((client, None)) => {
                serving.get_or_insert(client);
                denied.push(endpoint);
            }
            Err(Failure::Login(why)) => {
                // The part that etcd itself said.
                let spoken = why.find("etcdserver: ").map_or(&*why, |at| &why[at..]);
                refused.push(format!("{endpoint} ({spoken})"));
            }
            Err(failure @ Failure::Way(_)) => {
                refuse = true;
                let text = failure.to_string(); // it names the endpoint
                let text = text.strip_prefix("etcd failed: ").unwrap_or(&text);
                let what = format!("connection: {text}");
                findings.push(Finding::bad("connection.refused", what, CERTIFICATES));
            }
            Err(failure) => findings.push(unreachable(&endpoint, &failure)),
        }
    }
    if !refused.is_empty() {
        refuse = true;
        let endpoints = refused.join(", ");
        let what = match endpoints.contains("user name is empty") {
            true => "login: etcd requires a user",
            false => "login: etcd refuses this user or the password",
        };
        findings.push(Finding::bad("login.refused", format!("{what}: {endpoints}"), USER));
    }
    if !denied.is_empty() {
        findings.push(Finding::unseen(
            "member.hidden",
            format!(
                "members: they answer, but show their version and state only to root: {}",
                denied.join(", ")
            ),
            "to see versions, lag and the leader, run this again as a user with the role root",
        ));
    }
    // Each member must have in its second status what any member had in its first. Responses are never simultaneous, and on a busy
    // etcd the later one is always ahead. Both rounds use open connections, so neither waits for a member that is silent.
    let before = all(clients.clone(), status).await;
    let before = before.iter().flat_map(|(_, status)| status).map(StatusResponse::raft_index);
    let newest = before.max().unwrap_or_default();
    let mut leaders = Vec::new();
    for (endpoint, status) in all(clients, status).await {
        match status {
            Ok(status) => {
                leaders.push(status.leader());
                findings.push(member(&endpoint, &status, newest));
                let version = status.version();
                findings.extend(etcd_bugs(version).map(|bugs| {
                    Finding::bad(
                        "member.version",
                        format!("member {endpoint}: etcd {version}: {bugs}"),
                        &format!("upgrade to {RECOMMENDED_ETCD}"),
                    )
                }));
            }
            Err(failure) => findings.push(unreachable(&endpoint, &failure)),
        }
    }
    if leaders.iter().any(|leader| *leader != leaders[0]) {
        findings.push(Finding::bad(
            "member.disagrees",
            "members: they disagree on their leader",
            "wait for the election to end; if it does not, check the network between the members",
        ));
    }
    Ok(Members { findings, serving: serving.or(leaderless), refuse })
}

/// Sends all requests at once; returns the responses in the order of the endpoints.
async fn all<A, T>(asked: Vec<(String, A)>, ask: impl AsyncFn(A) -> T) -> Vec<(String, T)> {
    join_all(asked.into_iter().map(async |(endpoint, of)| (endpoint, ask(of).await))).await
}

/// Connects, and reads the status; returns none if etcd shows it only to root. The engine's own read shows whether a failure can pass:
/// it distinguishes refused certificates and a wrong scheme from an endpoint that is down. It also shows that etcd requires a user,
/// because etcd 3.4 shows its status to everyone.
async fn first(locks: Locks) -> Result<(Client, Option<StatusResponse>), Failure> {
    let asked = async {
        let client = locks.client().await?;
        match status(client.clone()).await {
            Ok(status) => Ok((client, Some(status))),
            Err(Failure::Denied(_)) => Ok((client, None)),
            Err(failure) => Err(failure),
        }
    };
    let (asked, read) = tokio::join!(asked, locks.queue("doctor"));
    match read.map_err(Failure::from) {
        Err(reason @ (Failure::Login(_) | Failure::Way(_))) => Err(reason),
        _ => asked,
    }
}

async fn status(mut client: Client) -> Result<StatusResponse, Failure> {
    answer(client.status()).await
}

fn unreachable(endpoint: &str, failure: &Failure) -> Finding {
    Finding::bad(
        "member.unreachable",
        format!("member {endpoint}: {failure}"),
        "locks go on while most members answer; look at this one: its address, its process, its host and its network",
    )
}

fn member(endpoint: &str, status: &StatusResponse, newest: u64) -> Finding {
    let (version, behind) = (status.version(), newest.saturating_sub(status.raft_index()));
    if status.leader() == 0 {
        return Finding::bad(
            "member.leaderless",
            format!("member {endpoint}: etcd {version}, without a leader"),
            "no lock can be taken or renewed there: bring back a majority of the members, or the network between them",
        );
    }
    if behind > LAG {
        return Finding::bad(
            "member.behind",
            format!("member {endpoint}: etcd {version}, {behind} log entries behind"),
            "its disk or its network is slow; calls that use this endpoint wait for it",
        );
    }
    let size = status.db_size() as f64 / f64::from(1 << 20);
    let own = status.header().map(|header| header.member_id());
    let leads = match own == Some(status.leader()) {
        true => ", the leader",
        false => "",
    };
    Finding::good(
        "member.serves",
        format!("member {endpoint}: etcd {version}, {size:.1} MiB{leads}"),
    )
}
