//! Tests of the library's promises, one module per promise. They run on real etcd processes. With `LOCK_TESTS_ON=embedded`
//! they run on etcds inside this process, which engines reach in memory. Tests that begin with `real_etcd_only!` are left out there.

#[macro_use(assert_matches)]
extern crate etcd_locked_devkit;

mod authority;
mod background;
mod corner;
mod etcd;
mod logs;
mod real_only;
mod shop;
mod spans;
mod steps;
mod under;
mod worker;

/// Time limits of async tests, and the attribute that makes such tests.
mod limit {
    pub(crate) use etcd_locked_devkit::limit::{PATIENCE, blocking, run, within, within_time};
    pub(crate) use etcd_locked_test_attribute::test;
}

mod after_outage;
mod ambiguity;
mod bounds;
mod cancellation;
mod clusters;
mod codes;
mod conditional;
mod configured;
mod connect_with;
mod credentials;
mod current;
mod deadlock;
mod declared;
mod detach;
mod drained;
mod endpoints;
mod exclusion;
mod fenced;
mod foreign;
mod forked;
mod frameworks;
mod grpc_proxy;
mod history;

mod hostile_record;
mod idle_requests;
mod listing;
mod loss;
mod members;
mod names;
mod no_space;
mod outages;
mod permissions;
mod proof;
mod queue;
mod record;
mod reentrant;
mod refused_config;
mod refused_writes;
mod release;
mod restore;
mod rotation;
mod runtimes;
mod scope;
mod secrets;
mod shapes;
mod shutdown;
mod startup;
mod status;
mod stopped;
mod templates;
mod upgrade;
mod waiting;
mod warnings;

mod lints;
mod tidy;
