//! Metrics (feature `metrics`): which series are recorded, under which names.

use std::sync::LazyLock;
use std::time::Duration;

use etcd_locked::{LockError, Token, current, etcd_locked, testing};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// Metrics of all tests here, each with its own template. Recording begins with the first use.
static METRICS: LazyLock<PrometheusHandle> = LazyLock::new(|| {
    PrometheusBuilder::new().install_recorder().expect("the only recorder of this process")
});

/// Returns the value of a series, as a scrape shows it.
fn of(series: &str) -> f64 {
    let page = METRICS.render();
    let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let value = value.unwrap_or_else(|| panic!("{series} is not in\n{page}"));
    value.parse().expect("a number")
}

#[etcd_locked("measured/<id>", wait = "5s")]
async fn measured(id: u64) -> Result<(), LockError> {
    std::future::pending().await
}

#[tokio::test]
async fn records_waits_holds_losses_and_waiters() -> Result<(), LockError> {
    LazyLock::force(&METRICS);
    let etcd = testing::start().await?;
    let holder = tokio::spawn(measured(7));
    assert_eq!(etcd.held().await, ["measured/7"]);
    assert_eq!(of(r#"etcd_locked_held{lock="measured/<id>"}"#), 1.0);
    let waiter = tokio::spawn(measured(7));
    assert_eq!(etcd.waiting().await, ["measured/7"]);
    assert_eq!(of(r#"etcd_locked_waiters{lock="measured/<id>"}"#), 1.0);
    etcd.advance(Duration::from_secs(5)).await;
    let late = waiter.await.expect("no panic");
    assert_matches!(late, Err(LockError::Timeout { .. }));
    let lost = r#"etcd_locked_lost_total{lock="measured/<id>",cause="gone"}"#;
    assert_eq!(of(lost), 0.0, "there before the first loss");
    etcd.lose("measured/7").await.expect("it is held");
    let ended = holder.await.expect("no panic");
    assert_matches!(ended, Err(LockError::Lost { .. }));

    assert_eq!(of(r#"etcd_locked_waiters{lock="measured/<id>"}"#), 0.0);
    assert_eq!(of(r#"etcd_locked_held{lock="measured/<id>"}"#), 0.0);
    let waited = |what: &str, outcome: &str| {
        of(&format!(
            r#"etcd_locked_wait_seconds_{what}{{lock="measured/<id>",outcome="{outcome}"}}"#
        ))
    };
    assert_eq!((waited("count", "granted"), waited("count", "timeout")), (1.0, 1.0));
    assert!(waited("sum", "timeout") >= 5.0, "{}", waited("sum", "timeout"));
    assert_eq!(of(r#"etcd_locked_hold_seconds_count{lock="measured/<id>"}"#), 1.0);
    let held = of(r#"etcd_locked_hold_seconds_sum{lock="measured/<id>"}"#);
    assert!(held >= 5.0, "{held}");
    assert_eq!(of(lost), 1.0);
    Ok(())
}

#[etcd_locked("outcomes/<id>", wait = "none")]
async fn tried(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("outcomes/<id>", wait = "1m")]
async fn awaited(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("outcomes/<id>", wait = "1m")]
async fn nested(id: u64, next: u64) -> Result<(), LockError> {
    tokio::task::yield_now().await; // the other task has its own by then
    awaited(next).await
}

#[tokio::test]
async fn records_how_each_wait_ended() -> Result<(), LockError> {
    LazyLock::force(&METRICS);
    let etcd = testing::start().await?;
    let count = |outcome: &str| {
        let labels = format!(r#"lock="outcomes/<id>",outcome="{outcome}""#);
        of(&format!("etcd_locked_wait_seconds_count{{{labels}}}"))
    };
    let holder = etcd.locks().lock("outcomes/7").await?;
    let held = tried(7).await;
    assert_matches!(held, Err(LockError::Held { .. }));
    assert_eq!(count("held"), 1.0);

    let gone = tokio::spawn(awaited(7));
    assert_eq!(etcd.waiting().await, ["outcomes/7"]);
    gone.abort();
    assert!(gone.await.expect_err("it was aborted").is_cancelled());
    assert_eq!(count("dropped"), 1.0);

    etcd.partition();
    let cut_off = tokio::spawn(awaited(8));
    etcd.advance(Duration::from_secs(15)).await;
    let failed = cut_off.await.expect("no panic");
    assert_matches!(failed, Err(LockError::Backend { .. }));
    assert_eq!(count("failed"), 1.0);
    etcd.heal();
    drop(holder);

    etcd.allow_order_inversions();
    let first = tokio::spawn(nested(1, 2));
    let second = tokio::spawn(nested(2, 1));
    etcd.advance(Duration::from_secs(10)).await;
    let ended = [first.await.expect("no panic"), second.await.expect("no panic")];
    let refused = ended.iter().filter_map(|ended| ended.as_ref().err());
    assert!(matches!(*refused.collect::<Vec<_>>(), [LockError::Deadlock { .. }]), "{ended:?}");
    assert_eq!(count("deadlock"), 1.0);
    assert_eq!(of(r#"etcd_locked_deadlocks_total{lock="outcomes/<id>"}"#), 1.0);
    Ok(())
}

#[etcd_locked("handed/<id>", wait = "1m")]
async fn handed(id: u64) -> Result<Token, LockError> {
    Ok(current().expect("a lock").token())
}

#[tokio::test]
async fn counts_hand_overs_in_the_process_and_from_others() -> Result<(), LockError> {
    LazyLock::force(&METRICS);
    let etcd = testing::start().await?;
    let count = |kind: &str| {
        of(&format!(r#"etcd_locked_handovers_total{{lock="handed/<id>",kind="{kind}"}}"#))
    };
    handed(7).await?;
    assert_eq!((count("local"), count("remote")), (0.0, 0.0));

    let mine = etcd.locks().lock("handed/7").await?;
    let token = mine.token();
    let next = tokio::spawn(handed(7));
    assert_eq!(etcd.waiting().await, ["handed/7"]);
    mine.release().await?;
    let next = next.await.expect("no panic")?;
    assert_eq!(next.revision(), token.revision());
    assert_eq!(next.handover(), token.handover() + 1);
    assert!(next.as_i64() > token.as_i64());
    assert_eq!((count("local"), count("remote")), (1.0, 0.0));

    let other = etcd.second().await?;
    let theirs = other.lock("handed/8").await?;
    let next = tokio::spawn(handed(8));
    assert_eq!(etcd.waiting().await, ["handed/8"]);
    theirs.release().await?;
    etcd.advance(Duration::from_secs(1)).await;
    next.await.expect("no panic")?;
    assert_eq!((count("local"), count("remote")), (1.0, 1.0));

    let asked = |kind: &str| {
        of(&format!(r#"etcd_locked_request_seconds_count{{kind="{kind}",outcome="ok"}}"#))
    };
    assert!(asked("grant") > 0.0 && asked("write") > 0.0);
    Ok(())
}
