//! Locks that are held: thousands for a while, or one until its holder is killed.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use tokio::task::JoinSet;

use super::memory::resident;
use super::processor;
use super::spec::Spec;
use super::{Fault, answer, order, ready};

fn name(number: u64) -> String {
    format!("held/{number}")
}

/// Takes all names, is ready then, and keeps them until it is over.
pub(super) async fn hold(spec: Spec) -> Result<(), Fault> {
    etcd_locked::init(spec.config()).await?;
    let mut calls = JoinSet::new();
    for number in spec.first..spec.first + spec.names {
        calls.spawn(async move { etcd_locked::lock(name(number)).wait_forever().await });
    }
    let mut held = Vec::new();
    while let Some(call) = calls.join_next().await {
        held.push(call??);
    }
    ready()?;
    let mut answered = processor::used();
    while order().await?.is_some() {
        // Since the last answer: to see that thousands of locks are still held takes longer than to hold them.
        let idle = (processor::used() - answered).as_secs_f64();
        let still = held.iter().filter(|held| held.is_held()).count();
        answer(json!({ "held": still, "rss": resident()?, "processor": idle }))?;
        answered = processor::used();
    }
    Ok(())
}

/// Takes the first name, and says when it had it.
pub(super) async fn take(spec: Spec) -> Result<(), Fault> {
    etcd_locked::init(spec.config()).await?;
    ready()?;
    while order().await?.is_some() {
        let held = etcd_locked::lock(name(spec.first)).wait_forever().await?;
        let at = SystemTime::now().duration_since(UNIX_EPOCH)?;
        held.release().await?;
        answer(json!({ "at": at.as_secs_f64() }))?;
    }
    Ok(())
}
