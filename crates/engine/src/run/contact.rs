//! Notes when the API server was last heard on a watch. Bookmarks count, which kube's watcher does not hand on; without them a
//! kind where nothing happens would look like a connection that is dead. Refusals do not count, except that a kind is not served:
//! that is all that there is to hear about it.

use std::sync::Arc;

use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;

/// The same client; `heard` is called for the beginning and each piece of an answer that arrives.
pub(crate) fn noting(client: Client, heard: impl Fn() + Send + Sync + 'static) -> Client {
    let heard = Arc::new(heard);
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, heard) = (client.clone(), Arc::clone(&heard));
        async move {
            let response = client.send(request).await?;
            let status = response.status();
            let counts = status.is_success() || status == http::StatusCode::NOT_FOUND;
            if counts {
                heard(); // also of a watch that shows nothing for as long as it lasts
            }
            Ok::<_, kube::Error>(response.map(|body| {
                body.map_frame(move |frame| {
                    if counts {
                        heard();
                    }
                    frame
                })
            }))
        }
    });
    Client::new(service, namespace)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn answers_count_and_so_does_that_a_kind_is_not_served_but_no_other_refusal() {
        for (code, counts) in [(200, true), (404, true), (403, false), (502, false)] {
            let server = tower::service_fn(move |_: http::Request<Body>| async move {
                let answer = http::Response::builder().status(code).body(Body::from(b"{}".to_vec()));
                answer.map_err(|error| error.to_string())
            });
            let heard = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&heard);
            let client = noting(Client::new(server, "default"), move || {
                count.fetch_add(1, Ordering::SeqCst);
            });
            let request = http::Request::get("/api/v1/pods").body(Body::empty()).unwrap();
            client.send(request).await.unwrap().into_body().collect().await.unwrap();
            assert_eq!(heard.load(Ordering::SeqCst) > 0, counts, "{code}");
        }
    }
}
