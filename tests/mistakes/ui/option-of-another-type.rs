use std::time::Duration;

use etcd_locked::{LockError, etcd_locked};

#[derive(Debug)]
enum AppError {
    Busy(LockError),
}

#[etcd_locked("orders/<id>", wait = number, max_hold = Some(Duration::ZERO), permits = number, when = number)]
async fn numbers(id: u64, number: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", wait_until = Duration::from_secs(5), locks = "mine")]
async fn elsewhere(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", map_err = |error| error.to_string())]
async fn mapped(id: u64) -> Result<(), AppError> {
    Ok(())
}

#[etcd_locked("orders/<id>", on_error = |error| error)]
async fn converted(id: u64) -> String {
    String::new()
}

struct Mailer {
    region: String,
    limit: u32,
}

#[etcd_locked("smtp/<self.region>", permits = self.limit)]
impl Mailer {
    async fn send(&self) -> Result<(), LockError> {
        Ok(())
    }

    async fn receive(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
