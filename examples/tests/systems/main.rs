//! The examples as programs, each on a real etcd of its own: what they print, and in which order, and what is in etcd meanwhile.
//! A file is a row of `cargo xtask examples`.

mod etcd;
// No test hangs: the same as in the tests of the library.
#[allow(dead_code)]
#[path = "../../../tests/it/limit.rs"]
mod limit;
mod postgres;
// Delays are for the tests of the library.
#[allow(dead_code)]
#[path = "../../../tests/it/proxy.rs"]
mod proxy;
mod shop;
mod stage;

mod etcdsync;
mod four_conditions;
mod interop;
mod jetcd_clients;
mod leader;
mod lock_service;
mod nightly;
mod shop_actix;
mod shop_axum;
mod shop_tonic;
mod smallest_revision;
mod transaction_lock;
mod watchdog;
mod zookeeper;
