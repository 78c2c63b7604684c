//! The shop behind axum, by HTTP.

use crate::shop::http::{Door, Http};
use crate::shop::{contention, disconnect, held, outage, shutdown};

type Customer = Http<Shop>;

struct Shop;

impl Door for Shop {
    const PROGRAM: &'static str = env!("CARGO_BIN_EXE_shop-axum");
}

#[test]
fn two_processes_never_sell_what_they_do_not_have() {
    contention::<Customer>();
}

#[test]
fn an_order_in_other_hands_is_refused() {
    held::<Customer>();
}

#[test]
fn a_client_that_goes_cuts_nothing_in_half_that_is_detached() {
    disconnect::<Customer>();
}

#[test]
fn sigterm_drains_and_leaves_nothing_behind() {
    shutdown::<Customer>();
}

#[test]
fn without_etcd_customers_are_told_to_come_back() {
    outage::<Customer>();
}
