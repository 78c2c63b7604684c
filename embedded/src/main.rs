//! Binary `etcd-locked-embedded`: serves one embedded etcd on TCP until SIGTERM or Ctrl-C.

use std::process::ExitCode;

use etcd_locked_embedded::Etcd;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "\
usage: etcd-locked-embedded [--listen ADDRESS:PORT]

An etcd of one member, in memory: its data is lost when it ends. It listens on 127.0.0.1:2379 by default (port 0 chooses a
free port), prints its address on one line, and ends on SIGTERM or Ctrl-C.
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let address = match arguments[..] {
        [] => "127.0.0.1:2379",
        ["--listen", address] => address,
        ["--help" | "-h"] => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!(
                "etcd-locked-embedded: unexpected arguments `{}`\n\n{USAGE}",
                arguments.join(" ")
            );
            return ExitCode::from(2);
        }
    };
    match run(address).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("etcd-locked-embedded: {message}");
            ExitCode::FAILURE
        }
    }
}

async fn run(address: &str) -> Result<(), String> {
    let watch = |kind| signal(kind).map_err(|error| format!("cannot wait for signals: {error}"));
    let (mut terminated, mut interrupted) =
        (watch(SignalKind::terminate())?, watch(SignalKind::interrupt())?);
    let unbound = |error: std::io::Error| {
        let advice = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "; another process listens there already: end it, or choose another port with --listen"
            }
            _ => "",
        };
        format!("cannot listen on {address}: {error}{advice}")
    };
    let listener = TcpListener::bind(address).await.map_err(unbound)?;
    println!("listening on http://{}", listener.local_addr().map_err(unbound)?);
    let etcd = Etcd::new();
    tokio::select! {
        served = etcd.serve(listener) => served.map_err(|error| error.to_string()),
        _ = terminated.recv() => Ok(()),
        _ = interrupted.recv() => Ok(()),
    }
}
