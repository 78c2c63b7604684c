//! Failover of a user's own client: its connection goes to one endpoint of several, and to another one when that is gone.
//!
//! etcd-client's balancer would go on asking an endpoint that is down, and each of these calls would fail (rule P32).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper_util::client::legacy::connect::HttpConnector;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// A connection, made when it is first used, to the first of these endpoints that accepts it; `None` of none. All that is said of
/// the connection itself is as for the first endpoint.
pub(super) fn connect(endpoints: &[Endpoint]) -> Option<Channel> {
    let first = endpoints.first()?;
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false); // TLS is tonic's to add
    tcp.set_nodelay(true);
    let each = first.get_connect_timeout();
    tcp.set_connect_timeout(each);
    let uris: Arc<[Uri]> = endpoints.iter().map(|it| it.uri().clone()).collect();
    let count = u32::try_from(uris.len()).unwrap_or(u32::MAX);
    let whole = match each {
        Some(each) => first.clone().connect_timeout(each.saturating_mul(count)),
        None => first.clone(),
    };
    let next = Arc::new(AtomicUsize::new(0));
    Some(whole.connect_with_connector_lazy(service_fn(move |_: Uri| {
        let (mut tcp, uris, next) = (tcp.clone(), uris.clone(), next.clone());
        async move {
            let mut failed = tower::BoxError::from("there is no endpoint");
            for _ in 0..uris.len() {
                // One that accepts and then is silent is not the first to be asked again.
                let at = next.fetch_add(1, Ordering::Relaxed) % uris.len();
                match tcp.call(uris[at].clone()).await {
                    Ok(stream) => return Ok(stream),
                    Err(error) => failed = error.into(),
                }
            }
            Err(failed)
        }
    })))
}
