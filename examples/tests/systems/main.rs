//! Tests of the examples as programs, each on a real etcd: the lines they print, their order, and the keys in etcd meanwhile.
//! Each file is a row of `cargo xtask examples`.

mod etcd;
// The time limits of the library's tests.
#[allow(dead_code)]
#[path = "../../../tests/it/limit.rs"]
mod limit;
mod postgres;
// The examples use only a part of the proxy.
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
