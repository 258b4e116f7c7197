//! The API server as a service that `kube::Client` speaks to. Requests are carried out by the server, also when whoever sent
//! them is gone by then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use serde_json::Value;
use tower::Service;

use super::address::{Address, Query};
use super::network::Network;
use super::requests::{self, Answer, Pages, Request, not_served};
use super::watches;
use crate::lock::lock;
use crate::model::Model;
use crate::object::Kind;
use crate::runtime::Runtime;

/// An API server in memory.
pub struct ApiServer {
    model: Arc<Model>,
    network: Arc<Network>,
    runtime: Runtime,
    pages: Pages,
    kinds: BTreeMap<(String, String), Kind>,
    history: Mutex<Vec<String>>,
}

type Reply = http::Response<UnsyncBoxBody<Bytes, std::convert::Infallible>>;

impl ApiServer {
    pub(super) fn new(model: Arc<Model>, network: Arc<Network>, runtime: Runtime, kinds: &[Kind]) -> Self {
        let by_path = |kind: &Kind| ((kind.group.to_string(), kind.plural.to_string()), kind.clone());
        Self {
            model,
            network,
            runtime,
            pages: Pages::default(),
            kinds: kinds.iter().map(by_path).collect(),
            history: Mutex::default(),
        }
    }

    /// A client of a process, as it is named in the history.
    pub fn client(self: &Arc<Self>, caller: &str) -> kube::Client {
        kube::Client::new(Connection { server: Arc::clone(self), caller: caller.into() }, "default")
    }

    /// Every request with its answer, in the order in which the server carried them out.
    pub fn history(&self) -> Vec<String> {
        lock(&self.history).clone()
    }

    fn record(&self, caller: &str, what: &str, code: u16) {
        let line = format!("{} {caller} {what} {code}", self.runtime.now());
        lock(&self.history).push(line);
    }

    fn kind(&self, address: Option<&Address>) -> Option<&Kind> {
        let address = address?;
        let kind = self.kinds.get(&(address.group.clone(), address.plural.clone()))?;
        self.model.serves(kind).then_some(kind)
    }

    async fn handle(self: Arc<Self>, caller: Arc<str>, request: http::Request<Body>) -> Reply {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        tokio::time::sleep(self.network.request()).await;
        let address = Address::parse(parts.uri.path());
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let what = format!("{} {} {body}", parts.method, parts.uri);
        let Some((kind, address)) = self.kind(address.as_ref()).zip(address.as_ref()) else {
            let (code, body) = not_served();
            self.record(&caller, &what, code);
            return plain(code, &body);
        };
        if query.is_true("watch") {
            self.record(&caller, &what, 200);
            let (model, network) = (Arc::clone(&self.model), Arc::clone(&self.network));
            let events = watches::stream(model, network, kind.clone(), address.namespace.clone(), query);
            return http::Response::new(StreamBody::new(events).boxed_unsync());
        }
        let content_type = parts.headers.get(http::header::CONTENT_TYPE);
        let request = Request {
            method: &parts.method,
            address,
            query: &query,
            content_type: content_type.and_then(|text| text.to_str().ok()).unwrap_or_default(),
            body: &body,
        };
        let (code, body): Answer = requests::answer(&self.model, &self.pages, kind, &request).await;
        self.record(&caller, &what, code);
        tokio::time::sleep(self.network.reply()).await;
        plain(code, &body)
    }
}

fn plain(code: u16, body: &Value) -> Reply {
    let mut reply = http::Response::new(Full::from(body.to_string()).boxed_unsync());
    *reply.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    reply
}

/// One process's way to the server.
#[derive(Clone)]
struct Connection {
    server: Arc<ApiServer>,
    caller: Arc<str>,
}

impl Service<http::Request<Body>> for Connection {
    type Response = Reply;
    type Error = Closed;
    type Future = BoxFuture<'static, Result<Reply, Closed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (server, caller) = (Arc::clone(&self.server), Arc::clone(&self.caller));
        let handled = self.server.runtime.spawn(server.handle(caller, request));
        Box::pin(async move { handled.await.map_err(|_| Closed) })
    }
}

/// The server has ended.
#[derive(Debug, thiserror::Error)]
#[error("the simulated API server has ended")]
struct Closed;
