//! The embedded etcd cannot be told from a real one: random operations are answered the same by both, and so is what
//! etcdctl does.
//!
//! `CASES=5000` plays more cases than by default, `SEED=7` others; `-- --nocapture` shows what came up in them.

mod coverage;
mod ctl;
mod etcd;
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
