//! List of the tests that need a real etcd. All others run on an embedded one as well, from the same source.
//!
//! One of those shows less there: in `endpoints::a_dead_member_of_a_cluster_is_not_noticed` three ports share one store, so there
//! is neither an election nor replication.

use std::any::type_name;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use crate::corner::Corner;
use crate::etcd::on_embedded;
use crate::limit;

const TLS: &str = "the test is about TLS to etcd: an embedded one has no certificates";
const USERS: &str = "the test is about etcd's users and roles: an embedded one has none";

const CLUSTERS: &str = "it is about two clusters: embedded etcds all have one id";
const MEMBERS: &str = "it is about members of a cluster: embedded ones share one store";
const METRICS: &str = "it counts requests at etcd's metrics page: an embedded one has none";
const PROXY: &str = "it is about etcd's gRPC proxy: an embedded one has none";
const SPACE: &str = "it is about etcd's space quota: an embedded one has none";
const SNAPSHOT: &str = "it is about a snapshot of etcd's data: an embedded one makes none";

/// The tests that begin with `real_etcd_only!()`, each with its reason.
const REAL_ETCD_ONLY: &[(&str, &str)] = &[
    ("clusters::endpoints_of_two_clusters_are_refused", CLUSTERS),
    (
        "clusters::second_cluster_that_appears_later_is_refused",
        CLUSTERS,
    ),
    (
        "credentials::refused_credentials_are_the_cause_of_a_loss",
        USERS,
    ),
    (
        "credentials::certificate_of_another_authority_costs_the_lock_and_is_named",
        TLS,
    ),
    (
        "credentials::tokens_that_expire_cost_nothing_in_any_mode",
        USERS,
    ),
    ("credentials::removed_user_is_the_cause_of_a_loss", USERS),
    (
        "credentials::role_revoked_under_a_holder_costs_no_lock_or_says_why",
        USERS,
    ),
    (
        "grpc_proxy::locks_work_behind_the_grpc_proxies_of_etcd",
        PROXY,
    ),
    ("history::lost_history_is_one_error_event", SNAPSHOT),
    (
        "idle_requests::requests_do_not_grow_with_locks_held",
        METRICS,
    ),
    ("members::all_members_may_be_replaced", MEMBERS),
    ("members::rolling_restart_fails_no_call", MEMBERS),
    ("members::a_member_that_lags_is_passed_over", MEMBERS),
    (
        "members::holder_that_dies_with_the_leader_is_followed_in_two_ttls",
        MEMBERS,
    ),
    ("misconfigured::credentials_are_not_retryable", USERS),
    ("misconfigured::tls_mistakes_are_refused_at_once", TLS),
    ("no_space::a_refused_lock_leaves_no_key", SPACE),
    (
        "permissions::a_forbidden_name_is_denied_and_fails_alone",
        USERS,
    ),
    (
        "permissions::a_missing_session_key_permission_is_named",
        USERS,
    ),
    (
        "permissions::a_role_that_is_taken_away_is_one_warning_about_watches",
        USERS,
    ),
    (
        "refused_writes::delete_is_repeated_after_a_wrong_password",
        USERS,
    ),
    (
        "refused_writes::delete_is_repeated_after_a_revoked_role",
        USERS,
    ),
    (
        "refused_writes::barrier_is_repeated_after_a_wrong_password",
        USERS,
    ),
    (
        "refused_writes::barrier_is_repeated_after_a_revoked_role",
        USERS,
    ),
    (
        "refused_writes::barrier_is_repeated_after_a_full_etcd",
        SPACE,
    ),
    (
        "refused_writes::delete_is_carried_out_by_a_full_etcd",
        SPACE,
    ),
    (
        "restored::a_restore_from_a_snapshot_costs_every_lock_held",
        SNAPSHOT,
    ),
    (
        "restored_soon::ownership_is_lost_soon_and_watches_live_after_a_restore",
        SNAPSHOT,
    ),
    ("rotation::rotation_of_all_certificates_costs_no_lock", TLS),
    (
        "rotation::password_that_changes_in_its_file_costs_no_lock",
        USERS,
    ),
    (
        "rotation::end_of_a_certificate_is_warned_of_once_a_day",
        TLS,
    ),
    ("rotation::closure_is_asked_again_when_etcd_refuses", USERS),
    ("secrets::no_mistake_in_a_variable_shows_its_secret", USERS),
    (
        "secrets::a_password_in_use_is_in_no_log_line_and_no_record",
        USERS,
    ),
    (
        "secrets::debug_of_what_knows_a_secret_does_not_show_it",
        USERS,
    ),
    ("startup::a_client_certificate_is_presented", TLS),
    ("startup::a_user_may_come_from_the_environment", USERS),
    ("upgrade::an_upgrade_under_load_fails_no_call", MEMBERS),
];

/// Begins a test of the table above, and ends it at once if etcd is embedded.
macro_rules! real_etcd_only {
    () => {{
        fn here() {}
        if crate::real_only::is_left_out(&here) {
            return;
        }
    }};
}

pub(crate) use real_etcd_only;

/// Returns whether to leave the test out. `here` is a function inside the test, so its path contains the test's.
pub(crate) fn is_left_out<F>(_here: &F) -> bool {
    let path = type_name::<F>().trim_end_matches("::here");
    let path = path.trim_end_matches("::{{closure}}");
    let (_, test) = path.split_once("::").expect("a crate's name");
    let (_, why) = REAL_ETCD_ONLY
        .iter()
        .find(|(name, _)| *name == test)
        .unwrap_or_else(|| panic!("say in tests/it/real_only.rs why `{test}` needs a real etcd"));
    if on_embedded() {
        // Not `eprintln!`: the test harness captures it, and shows nothing of a test that passes.
        let _ = writeln!(io::stderr(), "test {test} ... left out: {why}");
    }
    on_embedded()
}

#[test]
fn the_tests_left_out_are_those_in_the_table() {
    const MARK: &str = "real_etcd_only!();";
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("it");
    let read = |path: &Path| fs::read_to_string(path).expect("a readable source");
    for (name, _) in REAL_ETCD_ONLY {
        let (module, test) = name.split_once("::").expect("module::test");
        let source = read(&folder.join(module).with_extension("rs"));
        let begins = format!("#[limit::test]\nasync fn {test}() {{\n    {MARK}\n");
        assert!(source.contains(&begins), "`{name}` does not begin so");
    }
    let marks: usize = fs::read_dir(&folder)
        .expect("a readable folder")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.is_file() && !path.ends_with("real_only.rs"))
        .map(|path| read(&path).matches(MARK).count())
        .sum();
    assert_eq!(
        marks,
        REAL_ETCD_ONLY.len(),
        "a test outside the table is left out"
    );
}

#[limit::test]
async fn the_etcd_is_the_one_that_was_asked_for() {
    let corner = Corner::new().await;
    let members = corner.client.clone().member_list().await.unwrap();
    assert_eq!(members.members()[0].name() == "embedded", on_embedded());
    let config = format!("{:?}", corner.config());
    assert_eq!(
        config.contains("the embedded etcd"),
        on_embedded(),
        "{config}"
    );
    let locks = corner.locks().await;
    let held = locks.lock("orders/7").await.unwrap();
    assert_eq!(corner.contenders("orders/7").await.len(), 1);
    held.release().await.unwrap();
}
