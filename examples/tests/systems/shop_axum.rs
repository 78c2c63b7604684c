//! Row `axum`: the shop behind axum, over HTTP.

use crate::shop::http::{Http, Server};
use crate::shop::plays_every_scene;

type Customer = Http<Shop>;

struct Shop;

impl Server for Shop {
    const PROGRAM: &'static str = env!("CARGO_BIN_EXE_shop-axum");
}

plays_every_scene!(Customer);
