//! What the library promises, one module per promise: shown on real etcd processes and, where `ETCD_LOCKED_TESTS_ON` says
//! `embedded`, on etcds in this process, which its engines reach in memory. `real_only` says what is left out there.

mod authority;
mod background;
mod corner;
mod etcd;
mod limit;
mod proxy;
mod real_only;
mod spans;
mod steps;
mod under;
mod worker;

mod ambiguity;
mod cancellation;
mod conditional;
mod connect_with;
mod crowd;
mod current;
mod deadline;
mod deadlock;
mod declared;
mod detach;
mod endpoints;
mod exclusion;
mod fifo;
mod foreign;
mod frameworks;
mod handover;
mod hold_limit;
mod kept;
mod loss;
mod names;
mod on_lost;
mod panic;
mod permissions;
mod queue;
mod record;
mod reentrant;
mod release;
mod renewal;
mod restart;
mod runtimes;
mod scope;
mod several;
mod shapes;
mod shutdown;
mod startup;
mod stopped;
mod templates;
mod token;
mod waiting;

mod lints;
mod tidy;
