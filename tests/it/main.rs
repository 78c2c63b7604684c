//! What the library promises, one module per promise, shown on real etcd processes.

mod authority;
mod corner;
mod etcd;
mod limit;
mod proxy;
mod steps;
mod worker;

mod ambiguity;
mod cancellation;
mod current;
mod endpoints;
mod exclusion;
mod fifo;
mod foreign;
mod loss;
mod names;
mod panic;
mod permissions;
mod queue;
mod record;
mod release;
mod renewal;
mod restart;
mod runtimes;
mod scope;
mod shutdown;
mod startup;
mod stopped;
mod token;
mod waiting;

mod lints;
// mod shapes;
mod tidy;
