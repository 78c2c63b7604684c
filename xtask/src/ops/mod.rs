//! `cargo xtask ops`: the dashboard and the alerts of `ops/` against a real Prometheus that scrapes a real service.

mod faults;
mod files;
mod prometheus;
pub(crate) mod shop;
mod stage;

use std::collections::BTreeSet;
use std::time::Instant;

use self::faults::Fault;
use self::files::Dashboard;
use self::prometheus::Tools;
use self::shop::Customers;
use self::stage::Stage;
use crate::etcd::Etcd;
use crate::{Result, say, workspace};

/// Checks the files, then plays the faults; returns the last line to print.
pub(crate) fn ops() -> Result<String> {
    let begun = Instant::now();
    let tools = Tools::find()?;
    say::step(format_args!("promtool of prometheus {}", tools.version()?));
    tools.check(&["check", "rules"], &files::path("alerts.yml"))?;
    tools.check(&["test", "rules"], &files::path("alerts_test.yml"))?;
    let dashboard = Dashboard::read()?;

    let etcd = Etcd::find()?;
    say::step("building the shop (the first time takes some minutes)");
    let [executable] = workspace::build(&[], [shop::BINARY])?;

    say::step("two processes of the shop, an etcd that asks who they are, and a prometheus");
    let stage = Stage::start(&tools, &etcd, &executable)?;
    let rules = stage.prometheus.rules()?;
    let customers = Customers::send(&stage.shops(), 2, None);
    let quiet = stage.every_query_has_data(&dashboard, &rules)?;

    let mut fired: BTreeSet<&str> = BTreeSet::new();
    for fault in Fault::ALL {
        say::step(format_args!("fault: {fault}"));
        fault.play(&stage, &customers)?;
        fired.extend(fault.fires().iter().map(|(name, _)| name));
    }
    // Of an alert that no fault here brings about, at least its value was seen.
    if let Some(rule) = quiet.iter().find(|rule| !fired.contains(rule.as_str())) {
        return Err(format!("{rule}: neither has its value data, nor has it fired"));
    }
    drop(customers);
    stage.end()?;
    Ok(format!(
        "ops: ok — {} alerts, {} queries, {} faults, in {:.0} s",
        rules.len(),
        dashboard.queries.len(),
        Fault::ALL.len(),
        begun.elapsed().as_secs_f64()
    ))
}
