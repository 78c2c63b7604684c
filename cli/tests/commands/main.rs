//! Tests of the command line, on real etcds. Those of `exec` are a separate program, because its promises are about time.

mod doctor;
mod kick;
mod live;
mod scene;
mod screens;
mod secrets;
mod status;
mod tls;
