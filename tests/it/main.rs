//! Tests of the library's promises, one module per promise. They run on real etcd processes. With `ETCD_LOCKED_TESTS_ON=embedded`
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
mod cancellation;
mod clusters;
mod codes;
mod conditional;
mod configured;
mod connect_with;
mod credentials;
mod current;
mod deadline;
mod deadlock;
mod declared;
mod detach;
mod drained;
mod endpoints;
mod exclusion;
mod fenced;
mod fenced_on_servers;
mod fifo;
mod foreign;
mod forked;
mod frameworks;
mod grpc_proxy;
mod history;
mod hold_limit;
mod hostile_record;
mod idle_requests;
mod listing;
mod loss;
mod members;
mod methods;
mod misconfigured;
mod names;
mod nested_waiters;
mod no_lease;
mod no_space;
mod on_lost;
mod outage_answers;
mod outage_connects;
mod panic;
mod permissions;
mod permits;
mod proof;
mod queue;
mod record;
mod reentrant;
mod refused_writes;
mod release;
mod restart;
mod restored;
mod restored_soon;
mod retention;
mod rotation;
mod runtimes;
mod scope;
mod secrets;
mod several;
mod shapes;
mod shared;
mod shutdown;
mod shutdown_scale;
mod startup;
mod status;
mod stopped;
mod templates;
mod token;
mod told_why;
mod traced;
mod tries_at_once;
mod upgrade;
mod waiting;
mod warnings;

mod lints;
mod tidy;
