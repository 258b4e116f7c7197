//! Notes when the API server was last heard on a watch. Bookmarks count, which kube's watcher does not hand on; without them a
//! kind where nothing happens would look like a connection that is dead.

use std::sync::Arc;

use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;

/// The same client; `heard` is called for each piece of an answer that arrives.
pub(crate) fn noting(client: Client, heard: impl Fn() + Send + Sync + 'static) -> Client {
    let heard = Arc::new(heard);
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, heard) = (client.clone(), Arc::clone(&heard));
        async move {
            let response = client.send(request).await?;
            Ok::<_, kube::Error>(response.map(|body| {
                body.map_frame(move |frame| {
                    heard();
                    frame
                })
            }))
        }
    });
    Client::new(service, namespace)
}
