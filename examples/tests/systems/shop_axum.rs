//! The shop behind axum, by HTTP.

use crate::shop::http::{Door, Http};
use crate::shop::plays_every_scene;

type Customer = Http<Shop>;

struct Shop;

impl Door for Shop {
    const PROGRAM: &'static str = env!("CARGO_BIN_EXE_shop-axum");
}

plays_every_scene!(Customer);
