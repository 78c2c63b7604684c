//! Load of the demo: customers who all buy the same article at the same moment.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::mpsc;
use std::thread;

use indicatif::{ProgressBar, ProgressStyle};

use crate::{Result, http};

/// Answers that the customers got.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) bought: usize,
    pub(crate) sold_out: usize,
    /// Any answer that a shop in good order does not give.
    pub(crate) odd: Vec<String>,
}

/// Sends `customers` purchases at once, spread over all services, and waits for the answers.
pub(crate) fn buy(
    services: &[SocketAddr],
    path: &str,
    customers: usize,
    title: &str,
) -> Result<Answers> {
    // Invisible unless stderr is a terminal.
    let bar = ProgressBar::new(customers as u64);
    let style =
        ProgressStyle::with_template("   {msg} [{bar:40}] {pos}/{len} purchases, {elapsed}");
    bar.set_style(style.map_err(|error| error.to_string())?.progress_chars("=> "));
    bar.set_message(title.to_owned());

    let start = Barrier::new(customers);
    let (send, answers) = mpsc::channel();
    let mut all = Answers::default();
    thread::scope(|scope| {
        for (_, service) in (0..customers).zip(services.iter().cycle()) {
            let (send, start) = (send.clone(), &start);
            scope.spawn(move || {
                start.wait();
                // The receiver outlives this scope.
                let _ = send.send(http::post(*service, path));
            });
        }
        drop(send);
        for answer in answers.iter() {
            match answer {
                Ok(answer) if answer.status == 200 => all.bought += 1,
                Ok(answer) if answer.status == 409 => all.sold_out += 1,
                Ok(answer) => all.odd.push(format!("{} {}", answer.status, answer.body)),
                Err(error) => all.odd.push(error),
            }
            bar.inc(1);
        }
    });
    bar.finish_and_clear();
    Ok(all)
}
