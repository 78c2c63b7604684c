//! Differential test: the embedded etcd and a real one respond to random operations in the same way.
//!
//! `CASES=5000` plays more cases than the default, `SEED=7` plays other cases; `-- --nocapture` shows what they covered.

mod coverage;
mod expiry;
mod fresh;
mod generate;
mod op;
mod pair;
mod random;
mod request;
mod side;
mod stream;
mod versions;
mod view;
