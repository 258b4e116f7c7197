//! The API server as a service that `kube::Client` speaks to. Requests are carried out by the server, also when whoever sent
//! them is gone by then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};
use tower::Service;

use super::address::{Address, Query};
use super::faults::Fault;
use super::network::{Asked, Network};
use super::requests::{self, Answer, Pages, Request, not_served};
use super::watches;
use crate::lock::lock;
use crate::model::Model;
use crate::object::Kind;
use crate::runtime::Runtime;
use crate::secret::SECRET;

/// An API server in memory.
pub struct ApiServer {
    model: Arc<Model>,
    network: Arc<Network>,
    runtime: Runtime,
    pages: Pages,
    /// By group, version and plural.
    kinds: BTreeMap<(String, String, String), Kind>,
    /// Kinds about which everything is refused.
    denied: Mutex<BTreeSet<Kind>>,
    /// Those whose requests it gets, by their names.
    processes: Mutex<BTreeMap<String, Runtime>>,
    history: Mutex<Vec<String>>,
}

type Reply = http::Response<UnsyncBoxBody<Bytes, std::convert::Infallible>>;

impl ApiServer {
    pub(super) fn new(model: Arc<Model>, network: Arc<Network>, runtime: Runtime, kinds: &[Kind]) -> Self {
        let by_path = |kind: &Kind| {
            let path = (kind.group.to_string(), kind.version.to_string(), kind.plural.to_string());
            (path, kind.clone())
        };
        Self {
            model,
            network,
            runtime,
            pages: Pages::default(),
            kinds: kinds.iter().map(by_path).collect(),
            denied: Mutex::default(),
            processes: Mutex::default(),
            history: Mutex::default(),
        }
    }

    /// A client of a process, as it is named in the history.
    pub fn client(self: &Arc<Self>, caller: &str) -> kube::Client {
        kube::Client::new(Connection { server: Arc::clone(self), caller: caller.into() }, "default")
    }

    /// What has happened: every request with its answer, and notes.
    pub fn history(&self) -> Vec<String> {
        lock(&self.history).clone()
    }

    fn record(&self, received: &Received, code: u16, note: &str) {
        let Received { parts, caller, .. } = received;
        let body = received.without_content();
        let line =
            format!("{} {caller} {} {} {body} {code} {note}", self.runtime.now(), parts.method, parts.uri);
        lock(&self.history).push(line);
    }

    /// Notes something that happened beside the requests.
    pub(super) fn note(&self, what: &str) {
        lock(&self.history).push(format!("{} {what}", self.runtime.now()));
    }

    /// From now on everything about a kind is refused, or no longer.
    pub(super) fn deny(&self, kind: &Kind, denied: bool) {
        let mut kinds = lock(&self.denied);
        if denied {
            kinds.insert(kind.clone());
        } else {
            kinds.remove(kind);
        }
    }

    /// A process has begun: it ends where it is when one of its writes has the fault for that.
    pub(super) fn process_began(&self, name: &str, process: &Runtime) {
        lock(&self.processes).insert(name.to_owned(), process.clone());
    }

    pub(super) fn process_ended(&self, name: &str) {
        lock(&self.processes).remove(name);
    }

    fn kind(&self, address: Option<&Address>) -> Option<&Kind> {
        let address = address?;
        let path = (address.group.clone(), address.version.clone(), address.plural.clone());
        self.kinds.get(&path).filter(|kind| self.model.serves(kind))
    }

    /// The kinds of a version of a group, when the path asks for those.
    fn resources(&self, path: &str) -> Option<Value> {
        let group_version = path.strip_prefix("/apis/").or_else(|| path.strip_prefix("/api/"))?;
        let resources: Vec<Value> = self
            .kinds
            .values()
            .filter(|kind| kind.api_version() == group_version && self.model.serves(kind))
            .map(|kind| {
                json!({"name": kind.plural, "singularName": "", "kind": kind.kind,
                "namespaced": kind.namespaced, "verbs": ["list", "watch"]})
            })
            .collect();
        let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
            "resources": resources});
        (!resources.is_empty()).then_some(list)
    }

    async fn handle(
        self: Arc<Self>,
        caller: Arc<str>,
        request: http::Request<Body>,
    ) -> Result<Reply, Broken> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap_or_default();
        let received = Received {
            address: Address::parse(parts.uri.path()),
            query: Query::parse(parts.uri.query().unwrap_or_default()),
            body: serde_json::from_slice(&body).unwrap_or_default(),
            parts,
            caller,
        };
        tokio::time::sleep(self.network.request()).await;
        let fault = self.network.strike(&received.asked().faults());
        match if self.network.silent() { Some(Fault::Silence) } else { fault } {
            None => Ok(self.reply(received).await),
            Some(Fault::RequestLost) => Err(self.broken(&received, "never arrived")),
            Some(Fault::ReplyLost) => {
                let broken = self.broken(&received, "loses its reply");
                self.reply(received).await;
                Err(broken)
            }
            Some(Fault::CrashAtWrite) => {
                let broken = self.broken(&received, "is the last of its process");
                self.carry_out(&received).await;
                if let Some(process) = lock(&self.processes).get(&*received.caller) {
                    process.end();
                }
                Err(broken)
            }
            Some(Fault::DoneButTimeout) => {
                self.record(&received, 504, "is carried out");
                self.reply(received).await;
                Ok(failure(504, "Timeout", "the request did not complete in time"))
            }
            Some(Fault::Silence) => {
                self.record(&received, 0, "is never answered");
                std::future::pending().await
            }
            Some(Fault::LandsLater) => {
                let (server, late) = (Arc::clone(&self), self.network.late());
                let broken = self.broken(&received, "lands later");
                self.runtime.spawn(async move {
                    tokio::time::sleep(late).await;
                    server.reply(received).await;
                });
                Err(broken)
            }
            Some(fault) => {
                let (code, reason) = match fault {
                    Fault::Conflict => (409, "Conflict"),
                    Fault::TooManyRequests => (429, "TooManyRequests"),
                    Fault::NotServed => (404, "NotFound"),
                    Fault::Denied => (403, "Forbidden"),
                    Fault::Expired => (410, "Expired"),
                    _ => (500, "InternalError"),
                };
                self.record(&received, code, "is refused by a fault");
                Ok(failure(code, reason, "a simulated fault"))
            }
        }
    }

    fn broken(&self, received: &Received, how: &str) -> Broken {
        self.record(received, 0, how);
        Broken
    }

    /// Carries a request out; the answer takes its time.
    async fn reply(&self, received: Received) -> Reply {
        let reply = self.carry_out(&received).await;
        tokio::time::sleep(self.network.reply()).await;
        reply
    }

    async fn carry_out(&self, received: &Received) -> Reply {
        let Received { parts, address, query, body, .. } = received;
        let Some((kind, address)) = self.kind(address.as_ref()).zip(address.as_ref()) else {
            let (code, body) =
                self.resources(parts.uri.path()).map_or_else(not_served, |resources| (200, resources));
            self.record(received, code, "");
            return plain(code, &body);
        };
        if lock(&self.denied).contains(kind) {
            self.record(received, 403, "is denied");
            return failure(403, "Forbidden", "everything about this kind is denied for a while");
        }
        if query.is_true("watch") {
            self.record(received, 200, "");
            let (model, network) = (Arc::clone(&self.model), Arc::clone(&self.network));
            let (kind, namespace) = (kind.clone(), address.namespace.clone());
            let events = watches::stream(model, network, kind, namespace, query.clone());
            return http::Response::new(StreamBody::new(events).boxed_unsync());
        }
        let content_type = parts.headers.get(http::header::CONTENT_TYPE);
        let request = Request {
            method: &parts.method,
            address,
            query,
            content_type: content_type.and_then(|text| text.to_str().ok()).unwrap_or_default(),
            body,
            caller: &received.caller,
        };
        let (code, body): Answer = requests::answer(&self.model, &self.pages, kind, &request).await;
        self.record(received, code, "");
        plain(code, &body)
    }
}

/// A request as it arrived.
struct Received {
    parts: http::request::Parts,
    address: Option<Address>,
    query: Query,
    body: Value,
    caller: Arc<str>,
}

impl Received {
    /// What was sent. The content of a Secret is nobody's business: a history is printed.
    fn without_content(&self) -> Value {
        let mut body = self.body.clone();
        let is_secret = self.address.as_ref().is_some_and(|address| address.plural == *SECRET.plural);
        if let Some(fields) = body.as_object_mut().filter(|_| is_secret) {
            fields.retain(|name, _| !["data", "stringData"].contains(&name.as_str()));
        }
        body
    }

    fn asked(&self) -> Asked {
        let whole_kind = self.address.as_ref().is_some_and(|address| address.name.is_none());
        match self.parts.method.as_str() {
            "GET" if self.query.is_true("watch") => Asked::Watch,
            "GET" if whole_kind => Asked::List,
            "GET" => Asked::Read,
            _ => Asked::Write,
        }
    }
}

fn failure(code: u16, reason: &str, message: &str) -> Reply {
    let (code, body) = requests::status(code, reason, message, "");
    plain(code, &body)
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
    type Error = Broken;
    type Future = BoxFuture<'static, Result<Reply, Broken>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (server, caller) = (Arc::clone(&self.server), Arc::clone(&self.caller));
        let handled = self.server.runtime.spawn(server.handle(caller, request));
        Box::pin(async move { handled.await.unwrap_or(Err(Broken)) })
    }
}

/// The connection broke, or the server has ended.
#[derive(Debug, thiserror::Error)]
#[error("the simulated connection broke")]
struct Broken;
