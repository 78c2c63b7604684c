use etcd_locked::etcd_locked;

#[etcd_locked("leader")]
async fn lead() -> ! {
    loop {
        tokio::task::yield_now().await;
    }
}

fn main() {}
