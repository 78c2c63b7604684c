//! The embedded etcd cannot be told from a real one: random operations are answered the same by both, and so is what
//! etcdctl does.
//!
//! `CASES=5000` plays more cases than by default, `SEED=7` others; `-- --nocapture` shows what came up in them.

#[allow(dead_code)]
#[path = "../it/authority.rs"]
mod authority;
#[allow(dead_code)]
#[path = "../it/etcd.rs"]
mod etcd;

mod coverage;
mod ctl;
mod expiry;
mod generate;
mod nothing;
mod op;
mod pair;
mod random;
mod request;
mod screen;
mod side;
mod stream;
mod versions;
mod view;
