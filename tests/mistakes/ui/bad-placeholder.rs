use etcd_locked::{LockError, etcd_locked};

#[etcd_locked("orders/<id + 1>")]
async fn expression(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id: u64>")]
async fn typed(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/{id}")]
async fn braces(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<_>")]
async fn underscore(_: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<type>")]
async fn keyword(r#type: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<Self>")]
async fn not_a_value(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id.a²>")]
async fn not_an_identifier(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>-<line>")]
async fn two_in_a_segment(id: u64, line: u32) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
