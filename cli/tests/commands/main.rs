//! Tests of the command line, on real etcds. Those of `exec` are a program of their own: its promises are about time.

mod cycle;
mod doctor;
mod promises;
mod scale;
mod scene;
mod secrets;
mod status;
mod tls;
mod top;
mod watch;
