//! `/livez`, `/readyz` and `/metrics`. Ready means that every cache has answered once, not that this replica leads:
//! a standby with warm caches is ready to take over.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::lock::lock;
use crate::metrics::Metrics;
use crate::runtime::Runtime;
use crate::store::Store;

/// The caches whose first answer makes the process ready.
#[derive(Clone, Default)]
pub struct Health {
    stores: Arc<Mutex<Vec<Arc<Store>>>>,
}

impl Health {
    pub(crate) fn add(&self, store: Arc<Store>) {
        lock(&self.stores).push(store);
    }

    /// What is still missing; empty when ready.
    pub fn missing(&self) -> Vec<String> {
        let stores = lock(&self.stores);
        stores
            .iter()
            .filter(|store| !store.answered())
            .map(|store| store.watch().kind.plural.to_string())
            .collect()
    }
}

/// The routes.
pub fn router(health: Health, metrics: Metrics) -> Router {
    let ready = move || {
        let missing = health.missing();
        async move {
            if missing.is_empty() {
                (StatusCode::OK, "ready\n".to_owned())
            } else {
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("waiting for the first list of: {}\n", missing.join(", ")),
                )
            }
        }
    };
    Router::new().route("/livez", get(|| async { "alive\n" })).route("/readyz", get(ready)).route(
        "/metrics",
        get(move || async move { ([(CONTENT_TYPE, Metrics::CONTENT_TYPE)], metrics.text()) }),
    )
}

/// Serves until it is cancelled; answers with the address that was taken.
pub async fn serve(
    listen: SocketAddr,
    health: Health,
    metrics: Metrics,
    runtime: &Runtime,
    shutdown: CancellationToken,
) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    let server = axum::serve(listener, router(health, metrics))
        .with_graceful_shutdown(async move { shutdown.cancelled().await });
    runtime.spawn(async move {
        if let Err(error) = server.await {
            tracing::error!(%error, "The health server ended");
        }
    });
    Ok(address)
}
