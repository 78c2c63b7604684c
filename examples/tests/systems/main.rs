//! Tests of the examples as programs, each on a real etcd: the lines they print, their order, and the keys in etcd meanwhile.
//! Each file is a row of `cargo xtask examples`.

mod etcd;
mod shop;
mod stage;

use etcd_locked_devkit::limit;

mod etcdsync;
mod fencing;
mod four_conditions;
mod interop;
mod jetcd_clients;
mod leader;
mod lock_service;
mod nightly;
mod ops;
mod shop_actix;
mod shop_axum;
mod shop_tonic;
mod smallest_revision;
mod transaction_lock;
mod watchdog;
mod zookeeper;
