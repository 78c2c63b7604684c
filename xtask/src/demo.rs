//! `cargo xtask demo`: an order service in several processes sells more than it has. Under the lock it does not, even if one of
//! its processes is paused or killed in the middle of a sale.

use std::any::Any;
use std::env;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use etcd_locked_devkit::{Setup, binary, until};
use serde_json::Value;

use crate::http::Answer;
use crate::process::{Process, Signal};
use crate::service::{self, Service, Settings};
use crate::{Result, etcd, http, say, workspace};

/// cargo options that leave out the dependencies of other examples.
const LIGHT: &[&str] = &["--no-default-features"];
/// Tests of the packages of both programs.
const TESTS: &[&str] = &["systems", "tcp"];
/// Package and binary of the embedded etcd.
const EMBEDDED: (&str, &str) = ("etcd-locked-embedded", "etcd-locked-embedded");
const SERVICES: usize = 3;
const CUSTOMERS: usize = 120;
const PIECES: u64 = 40;
const ARTICLE: &str = "lamp";
const PURCHASE: &str = "/orders/lamp/purchase";

/// TTL of the lease of a process that will be paused or killed.
const TTL: Duration = Duration::from_secs(5);
/// Duration of a payment at that process.
const PAYMENT: Duration = Duration::from_secs(3);
/// Time from the start of its sale to its pause or end. By then it has read the stock and waits for the payment.
const FAULT: Duration = Duration::from_secs(1);
/// The most that etcd may take to free the lock of a dead process after the TTL, on a busy machine.
const SLACK: Duration = Duration::from_secs(5);

/// Runs all parts and checks them; returns the last line to print.
pub(crate) fn demo(built: bool) -> Result<String> {
    say::step("building the order service (the first time takes a minute or two)");
    let [executable, embedded] = match built {
        true => {
            let folder = workspace::built_for_tests(TESTS)?;
            [service::BINARY, EMBEDDED].map(|(_, binary)| folder.join(binary))
        }
        false => workspace::build(LIGHT, [service::BINARY, EMBEDDED])?,
    };
    let (endpoint, _server) = etcd(&embedded)?;
    let sale = Settings {
        executable: &executable,
        endpoint: &endpoint,
        locked: true,
        ttl: Duration::from_secs(30),
        payment: Duration::from_millis(5),
    };
    let oversold = compare(sale)?;

    let slow = Settings { ttl: TTL, payment: PAYMENT, ..sale };
    let pause = "process A is paused while it sells the last lamp: without the lock";
    LastLamp::begin(pause, Settings { locked: false, ..slow })?.paused()?;
    LastLamp::begin("the same pause with the lock, whose lease has a TTL of 5 s", slow)?
        .paused()?;
    let kill = "process A is killed while it sells the last lamp under the lock";
    LastLamp::begin(kill, slow)?.killed()?;
    println!();
    Ok(format!(
        "demo: ok — without the lock {oversold} lamps too many were sold, and one more after a pause; with it, none"
    ))
}

/// Starts a real etcd if there is one that needs no building, else the embedded one, and says which. Returns its endpoint, and
/// the server, which ends when dropped.
fn etcd(embedded: &Path) -> Result<(String, Box<dyn Any>)> {
    let is_chosen = env::var_os("ETCD_BIN").is_some();
    let named = Some(binary::etcd()).filter(|path| path.is_file());
    let path = named.or_else(|| etcd::in_path("etcd")).unwrap_or_default();
    if is_chosen || path.is_file() {
        match Setup::default().start() {
            Ok(member) => {
                // The running server says which version it is.
                let about = http::get(member.direct(), "/version")?.body;
                let about: Value = serde_json::from_str(&about).unwrap_or_default();
                let version = about["etcdserver"].as_str().unwrap_or("unknown");
                let endpoint = member.endpoint();
                say::step(format_args!("the demo uses a real etcd ({version}) at {endpoint}"));
                let path = path.canonicalize().unwrap_or(path);
                say::note(format_args!("{}, without waiting for the disk", path.display()));
                return Ok((endpoint, Box::new(member)));
            }
            Err(error) if is_chosen => return Err(format!("ETCD_BIN: {error}")),
            Err(error) => say::note(format_args!("{} does not work: {error}", path.display())),
        }
    }
    // It listens on TCP, because the services are processes. Its output is kept open, so that it can print.
    let mut command = Command::new(embedded);
    command.args(["--listen", "127.0.0.1:0"]);
    let (process, address, printed) = Process::listening("the embedded etcd", &mut command)?;
    say::step(format_args!("the demo uses the embedded etcd at http://{address}"));
    say::note(
        "It is for tests, and no other is at hand. To see the demo on a real etcd, set ETCD_BIN,",
    );
    say::note(
        "or run `cargo xtask etcd` first: it builds etcd with Go or takes the distribution's.",
    );
    Ok((format!("http://{address}"), Box::new((process, printed))))
}

/// One sale: sales and stock from the store, locks and waits from the services.
struct Round {
    /// Entries in the book of sales.
    sold: u64,
    /// Pieces on the shelf at the end.
    left: u64,
    locks_taken: u64,
    /// Waits for the lock, ascending.
    waits: Vec<Duration>,
}

impl Round {
    fn oversold(&self) -> u64 {
        self.sold.saturating_sub(PIECES)
    }

    /// Returns the figures in the order of the table.
    fn figures(&self) -> [String; 7] {
        let (oversold, refused) = (self.oversold(), CUSTOMERS as u64 - self.sold);
        let counts = [self.sold, oversold, self.left, refused, self.locks_taken];
        let [sold, oversold, left, refused, taken] = counts.map(|count| count.to_string());
        [sold, oversold, left, refused, taken, self.wait(50), self.wait(100)]
    }

    /// Returns the wait that `percent` % of the calls did not exceed, as the table shows it.
    fn wait(&self, percent: usize) -> String {
        let rank = (self.waits.len() * percent).div_ceil(100);
        let wait = rank.checked_sub(1).and_then(|at| self.waits.get(at));
        wait.map_or("-".to_owned(), |wait| format!("{:.1} ms", wait.as_secs_f64() * 1e3))
    }
}

/// Runs the sale without the lock and with it, prints the figures of both and checks them; returns how many pieces were oversold.
fn compare(settings: Settings<'_>) -> Result<u64> {
    say::step(format_args!(
        "{CUSTOMERS} customers ask for a lamp at once; {PIECES} are in stock, and {SERVICES} processes sell them"
    ));
    let (without, with) = (round(Settings { locked: false, ..settings })?, round(settings)?);
    println!("\n{:12}{:>14}{:>12}", "", "without lock", "with lock");
    let meanings = format!(
        "\
sold: customers with a receipt; each is an entry in the book of sales
oversold: sold minus {PIECES}: several customers read the same stock, and each bought the same lamp
left: the stock at the end, as the last writer saw it; sold and left must add up to {PIECES}
refused: customers who were told \"sold out\"
locks taken: one for each customer, before the stock is read
median wait: half of the customers waited for the lock no longer than this
longest wait: the last customer waited for all others, who were served one at a time"
    );
    let figures = without.figures().into_iter().zip(with.figures());
    for (row, (without, with)) in meanings.lines().zip(figures) {
        let (name, meaning) = row.split_once(": ").unwrap_or_default();
        println!("{name:12}{without:>14}{with:>12}   {meaning}");
    }
    let locks = (without.locks_taken, with.locks_taken);
    if (with.sold, with.left, locks) != (PIECES, 0, (0, CUSTOMERS as u64)) {
        return Err(format!(
            "with the lock {PIECES} must be sold and 0 be left, and {CUSTOMERS} locks be taken; without it, none"
        ));
    }
    match without.oversold() {
        0 => Err("without the lock nothing was oversold this time, so this run shows nothing; run it again".to_owned()),
        oversold => Ok(oversold),
    }
}

fn round(settings: Settings<'_>) -> Result<Round> {
    let title = if settings.locked { "with the lock" } else { "without the lock" };
    let services = (0..SERVICES).map(|_| Service::start(settings)).collect::<Result<Vec<_>>>()?;
    services[0].restock(ARTICLE, PIECES)?;
    let addresses: Vec<_> = services.iter().map(|service| service.address).collect();
    let bought = buy(&addresses).map_err(|odd| format!("{title}: {odd}"))?;
    // The book decides what was sold. The responses to the customers must agree with it.
    let (left, sold) = services[0].stock(ARTICLE)?;
    if sold != bought {
        return Err(format!("{title}: {bought} customers have a receipt, but the book has {sold}"));
    }
    let (mut locks_taken, mut waits) = (0, Vec::new());
    for service in services {
        let (locks, waited) = service.stats()?;
        locks_taken += locks;
        waits.extend(waited);
        service.stop()?;
    }
    waits.sort_unstable();
    Ok(Round { sold, left, locks_taken, waits })
}

/// Sends all customers at once, spread over all services; returns how many bought. All others must be refused as "sold out".
fn buy(services: &[SocketAddr]) -> Result<u64> {
    let start = Barrier::new(CUSTOMERS);
    let answers: Vec<_> = thread::scope(|scope| {
        let customer = |service: SocketAddr| {
            start.wait();
            http::post(service, PURCHASE)
        };
        let services = services.iter().cycle().take(CUSTOMERS);
        let customers: Vec<_> =
            services.map(|service| scope.spawn(move || customer(*service))).collect();
        customers.into_iter().map(|it| it.join()).collect()
    });
    let mut bought = 0;
    for answer in answers {
        let answer = answer.map_err(|_| "a customer has panicked")??;
        match answer.status {
            200 => bought += 1,
            409 => {}
            status => return Err(format!("a purchase got {status} {}", answer.body)),
        }
    }
    Ok(bought)
}

/// Sale of the last lamp by two processes. A has begun to sell it when something happens to A; then B gets a customer for it.
struct LastLamp {
    title: &'static str,
    locked: bool,
    a: Service,
    b: Service,
    start: Instant,
    /// Receives what A's customer gets; an error if A is gone.
    customer: mpsc::Receiver<Result<Answer>>,
}

impl LastLamp {
    /// Starts both processes, and has A sell the lamp up to the payment.
    fn begin(title: &'static str, settings: Settings<'_>) -> Result<Self> {
        say::step(title);
        let a = Service::start(settings)?;
        let b = Service::start(Settings { payment: Duration::from_millis(5), ..settings })?;
        b.restock(ARTICLE, 1)?;
        let (start, address) = (Instant::now(), a.address);
        let (sender, customer) = mpsc::channel();
        // Not a scoped thread: after an error nothing waits for it. It ends when A does.
        thread::spawn(move || sender.send(http::post(address, PURCHASE)));
        let sale = Self { title, locked: settings.locked, a, b, start, customer };
        until("process A begins its sale", Duration::from_secs(10), || {
            sale.a.stats().is_ok_and(|(_, begun)| !begun.is_empty())
        })?;
        let what = if sale.locked { "has the lock and begins" } else { "begins" };
        let (a, payment) = (sale.a.process.pid().as_raw_nonzero(), PAYMENT.as_secs());
        sale.say(format_args!("process A (pid {a}) {what} to sell; the payment takes {payment} s"));
        until_elapsed(Instant::now(), FAULT)?;
        Ok(sale)
    }

    /// Pauses A until its lease has expired, as a long garbage collection or a suspended virtual machine does.
    fn paused(mut self) -> Result<()> {
        self.say("A is paused (SIGSTOP) in the middle of its sale");
        self.a.process.signal(Signal::STOP);
        let paused = Instant::now();
        self.sell_by_b()?;
        // Past the TTL, and past the end of the payment.
        until_elapsed(paused, if self.locked { TTL + FAULT } else { PAYMENT })?;
        self.say("A continues (SIGCONT)");
        self.a.process.signal(Signal::CONT);
        let answer = self.answer()?;
        let (status, event, sales) = match self.locked {
            true => (500, "A has lost the lock, so its body is dropped before it sells", 1),
            false => (200, "A sells the lamp, although B has sold it", 2),
        };
        if answer.status != status || self.locked != answer.body.starts_with("LOCK_LOST: ") {
            return Err(self.odd("A", &answer));
        }
        self.say(format_args!("{event}: its customer gets\n           {status} {}", answer.body));
        // Once A has ended, it sells nothing more.
        let Self { title, a, b, .. } = self;
        a.stop()?;
        check_book(title, b, sales)
    }

    /// Kills A.
    fn killed(mut self) -> Result<()> {
        self.say("A is killed (SIGKILL) in the middle of its sale");
        self.a.process.signal(Signal::KILL);
        if let Ok(answer) = self.answer() {
            return Err(self.odd("A", &answer));
        }
        self.say("A's customer gets no answer, and A's lease keeps the lock until it expires");
        self.sell_by_b()?;
        check_book(self.title, self.b, 1)
    }

    /// Sends B a customer, who waits for the lock if there is one, and then buys.
    fn sell_by_b(&self) -> Result<()> {
        let what = if self.locked { " and waits for the lock" } else { "" };
        let b = self.b.process.pid().as_raw_nonzero();
        self.say(format_args!("a customer asks process B (pid {b}) for the lamp{what}"));
        let asked = Instant::now();
        let answer = http::post(self.b.address, PURCHASE)?;
        let waited = asked.elapsed();
        if answer.status != 200 || self.locked && (waited < TTL / 2 || waited > TTL + SLACK) {
            return Err(self.odd("B", &answer));
        }
        self.say(match self.locked {
            true => "A's lease has expired, so B has the lock and sells the lamp",
            false => "B sells the lamp",
        });
        Ok(())
    }

    /// Waits for what A's customer gets.
    fn answer(&self) -> Result<Answer> {
        self.customer.recv().map_err(|error| error.to_string())?
    }

    /// Prints an event with its time.
    fn say(&self, event: impl Display) {
        println!("   {:4.1} s  {event}", self.start.elapsed().as_secs_f64());
    }

    fn odd(&self, process: &str, Answer { status, body }: &Answer) -> String {
        let after = self.start.elapsed();
        format!("{}: the customer of {process} got {status} {body} after {after:.1?}", self.title)
    }
}

/// Waits, but not after an interrupt.
fn until_elapsed(since: Instant, time: Duration) -> Result<()> {
    until("the next event", Duration::MAX, || since.elapsed() >= time)
}

/// Checks and prints what the store has at the end, and stops B.
fn check_book(title: &str, b: Service, expected: u64) -> Result<()> {
    let (left, sold) = b.stock(ARTICLE)?;
    b.stop()?;
    println!("           sales in the book: {sold}; lamps in stock at the start: 1");
    match (sold, left) == (expected, 0) {
        true => Ok(()),
        false => Err(format!("{title}: {sold} sales and {left} left, not {expected} and none")),
    }
}
