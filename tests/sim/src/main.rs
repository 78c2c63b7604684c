//! The simulator: production cores against an etcd, a network and a nemesis that one seed decides.

// The very files of the library. What only its engine and its face call is dead here.
#[allow(dead_code)]
#[path = "../../../runtime/src/clock.rs"]
mod clock;
#[allow(dead_code)]
#[path = "../../../runtime/src/core/mod.rs"]
mod core;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../runtime/src/error.rs"]
mod error;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../runtime/src/holder.rs"]
mod holder;
#[allow(dead_code, unreachable_pub, unexpected_cfgs)] // it has features, we have none
#[path = "../../../runtime/src/name.rs"]
mod name;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../runtime/src/site.rs"]
mod site;

#[cfg(test)]
mod rules;
mod world;

fn main() {
    world::schedules::play_all();
}
