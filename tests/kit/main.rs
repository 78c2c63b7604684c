//! Tests of the users' test kit, `etcd_locked::testing`, and of the embedded etcd, without an etcd process and without waiting.

#[macro_use(assert_matches)]
extern crate etcd_locked_devkit;

mod clock;
mod embedded;
mod faults;
mod isolation;
mod lock_order;
mod measured;
mod names;
mod operator;
mod retention;
mod service;
mod waiters;
mod wakers;
