use etcd_locked::etcd_locked;

#[etcd_locked("orders/<id>", on_error = |error| format!("{id}: {error}"))]
async fn ship(id: String) -> String {
    id
}

fn main() {}
