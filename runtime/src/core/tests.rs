//! The core under test: against a small etcd, rule by rule and under random schedules.

mod bench;
mod clients;
mod nemesis;
mod schedules;
mod store;
mod trace;
