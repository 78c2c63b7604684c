use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("accounts/<from>", "accounts/<to>", guard = (account, account))]
async fn transfer(from: u64, to: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
