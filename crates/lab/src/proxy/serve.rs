//! Serves the client's connections: asks the state what to do with each request, and does it. Takes no decision
//! of its own.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use sha2::{Digest, Sha256};
use tokio::net::{TcpListener, TcpStream};

use super::answer::{self, Body};
use super::decide::{After, Verdict};
use super::state::{ClientRun, Dead, Plan, Shared};
use super::stream::watch_body;
use super::target::{Call, CallKind, pairs};
use super::upstream::Server;

/// The server refuses objects long before this.
const LONGEST_REQUEST: usize = 16 << 20;
/// Answers to writes hold one object.
const LONGEST_REPLY: usize = 64 << 20;

/// Makes hyper close the connection without an answer.
#[derive(Debug)]
struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("closed without an answer")
    }
}

impl std::error::Error for Closed {}

/// Accepts connections until the proxy is dropped.
pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>, server: Arc<Server>) {
    loop {
        let accepted = tokio::select! {
            () = shared.root.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                if let Some(client_run) = shared.accepted(peer) {
                    shared.spawn(connection(stream, client_run, Arc::clone(&shared), Arc::clone(&server)));
                }
            }
            Err(error) => {
                // Out of file handles, most likely: give others time to close some.
                eprintln!("the fault proxy cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, client_run: ClientRun, shared: Arc<Shared>, server: Arc<Server>) {
    let _ = stream.set_nodelay(true);
    let close = client_run.close.clone();
    let service = service_fn(move |request| {
        handle(request, client_run.clone(), Arc::clone(&shared), Arc::clone(&server))
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::select! {
        biased;
        () = close.cancelled() => {}
        result = serving => if let Err(error) = result {
            tracing::debug!(%error, "a connection to the fault proxy ended");
        },
    }
}

async fn handle(
    mut request: Request<Incoming>,
    client_run: ClientRun,
    shared: Arc<Shared>,
    server: Arc<Server>,
) -> Result<Response<Body>, Closed> {
    let upgrade = request.headers().contains_key(UPGRADE).then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    // A write counts when it is here as a whole. One that breaks off never happened.
    let body = match Limited::new(body, LONGEST_REQUEST).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            let message = format!("the fault proxy takes at most {LONGEST_REQUEST} bytes");
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            return Ok(answer::failure(status, &parts.method, &message, None));
        }
        Err(_) => return Err(Closed),
    };
    let call = Call::new(&parts.method, &parts.uri, &body);
    let plan = match shared.arrive(&call, || digest(&body), &client_run) {
        Ok(plan) => plan,
        Err(Dead) => return never_answers().await,
    };
    let plan = match ready(plan, &shared).await {
        Ok(plan) => plan,
        Err(Dead) => return never_answers().await,
    };
    let instead = match plan.verdict {
        Verdict::Forward => None,
        Verdict::Refuse => return finish(plan, &call, None).await,
        Verdict::Silence => {
            drop(plan);
            return never_answers().await;
        }
        Verdict::LandsLater(by) => {
            let request = outgoing(parts, body, &call, &plan);
            let proxy = Arc::clone(&shared);
            shared.spawn(async move {
                tokio::time::sleep(by).await;
                let mut plan = plan;
                if plan.admitted.pass().await.is_ok() {
                    drop(write(request, plan, call, proxy, server).await);
                }
            });
            return Err(Closed);
        }
        Verdict::Gone => Some(answer::gone(call.query_value("resourceVersion").unwrap_or_default())),
        Verdict::Fail { status, retry_after } => Some(answer::failure(
            status,
            &call.method,
            "the fault proxy was asked to fail this request",
            retry_after,
        )),
    };
    if instead.is_some() {
        return finish(plan, &call, instead).await;
    }
    let request = outgoing(parts, body, &call, &plan);
    if let Some(client) = upgrade {
        return tunnel(request, client, plan, &client_run, &shared, &server).await;
    }
    match call.kind {
        CallKind::Write | CallKind::Uncounted => write(request, plan, call, shared, server).await,
        CallKind::Read | CallKind::Watch => read(request, plan, call, client_run, shared, server).await,
    }
}

/// What comes before forwarding: actions, delay, and the leave to forward.
async fn ready(mut plan: Plan, shared: &Shared) -> Result<Plan, Dead> {
    for action in std::mem::take(&mut plan.actions) {
        if let Some(write) = plan.write.clone() {
            // On its own, so that a client that gives up does not stop it half-way.
            if let Err(error) = shared.spawn(action(write)).await {
                eprintln!("the action before a write failed: {error}");
            }
        }
    }
    if !plan.delay.is_zero() {
        tokio::time::sleep(plan.delay).await;
    }
    if plan.verdict == Verdict::Forward {
        plan.admitted.pass().await?;
    }
    Ok(plan)
}

/// Ends a request that was not forwarded.
async fn finish(plan: Plan, call: &Call, response: Option<Response<Body>>) -> Result<Response<Body>, Closed> {
    let after = plan.after;
    let status = response.as_ref().map(Response::status);
    match plan.admitted.answered(status, after) {
        Ok(()) => deliver(after, call, response.ok_or(Closed)?),
        Err(Dead) => never_answers().await,
    }
}

/// Something that changes the world: goes on by itself once it is sent, whatever happens to its client.
async fn write(
    request: Request<Full<Bytes>>,
    plan: Plan,
    call: Call,
    shared: Arc<Shared>,
    server: Arc<Server>,
) -> Result<Response<Body>, Closed> {
    let after = plan.after;
    let root = shared.root.clone();
    let sent = shared.spawn(async move {
        let reply = tokio::select! {
            () = root.cancelled() => None,
            reply = whole_reply(request, &server) => Some(reply),
        };
        let reply = reply.and_then(|reply| {
            reply
                .inspect_err(|error| {
                    tracing::debug!(error = format!("{error:#}"), "no answer from the API server");
                })
                .ok()
        });
        let status = reply.as_ref().map(Response::status);
        plan.admitted.answered(status, after).map(|()| reply)
    });
    match sent.await {
        Ok(Ok(Some(reply))) => deliver(after, &call, reply.map(answer::full)),
        Ok(Ok(None)) | Err(_) => Err(Closed),
        Ok(Err(Dead)) => never_answers().await,
    }
}

async fn whole_reply(request: Request<Full<Bytes>>, server: &Server) -> anyhow::Result<Response<Bytes>> {
    let (mut parts, body) = server.send(request).await?.into_parts();
    strip(&mut parts.headers);
    let body = Limited::new(body, LONGEST_REPLY).collect().await.map_err(anyhow::Error::from_boxed)?;
    Ok(Response::from_parts(parts, body.to_bytes()))
}

async fn read(
    request: Request<Full<Bytes>>,
    plan: Plan,
    call: Call,
    client_run: ClientRun,
    shared: Arc<Shared>,
    server: Arc<Server>,
) -> Result<Response<Body>, Closed> {
    let after = plan.after;
    // Entered before the request is sent: a watch that is being opened can be closed too.
    let watch = match &call.target {
        Some(target) if call.kind == CallKind::Watch => Some(shared.open_watch(target.clone(), &client_run)),
        _ => None,
    };
    let reply = server.send(request).await;
    let status = reply.as_ref().ok().map(Response::status);
    if plan.admitted.answered(status, after).is_err() {
        return never_answers().await;
    }
    let reply = reply.map_err(|error| {
        tracing::debug!(error = format!("{error:#}"), "no answer from the API server");
        Closed
    })?;
    let (mut parts, body) = reply.into_parts();
    strip(&mut parts.headers);
    let is_json = parts
        .headers
        .get(CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
    let body = match watch {
        Some(watch) if parts.status == StatusCode::OK && is_json => {
            let (body, pump) = watch_body(watch, body);
            shared.spawn(pump);
            body
        }
        _ => body.map_err(Into::into).boxed_unsync(),
    };
    deliver(after, &call, Response::from_parts(parts, body))
}

/// The answer as the fault wants it.
fn deliver(after: After, call: &Call, reply: Response<Body>) -> Result<Response<Body>, Closed> {
    match after {
        After::Deliver => Ok(reply),
        After::Cut | After::Crash => Err(Closed),
        After::Timeout => Ok(answer::failure(
            StatusCode::GATEWAY_TIMEOUT,
            &call.method,
            "the fault proxy forwarded this request and was asked to hide the answer",
            None,
        )),
    }
}

/// A connection that becomes a stream of its own, as for exec into a pod. A crash ends it at once.
async fn tunnel(
    request: Request<Full<Bytes>>,
    client: hyper::upgrade::OnUpgrade,
    plan: Plan,
    client_run: &ClientRun,
    shared: &Shared,
    server: &Server,
) -> Result<Response<Body>, Closed> {
    let reply = server.send(request).await;
    let status = reply.as_ref().ok().map(Response::status);
    if plan.admitted.answered(status, plan.after).is_err() {
        return never_answers().await;
    }
    let mut reply = reply.map_err(|_| Closed)?;
    if reply.status() != StatusCode::SWITCHING_PROTOCOLS {
        strip(reply.headers_mut());
        return Ok(reply.map(|body| body.map_err(Into::into).boxed_unsync()));
    }
    let upstream = hyper::upgrade::on(&mut reply);
    let over = client_run.over.clone();
    shared.spawn(async move {
        let both = async {
            let (client, upstream) = tokio::try_join!(client, upstream)?;
            tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(upstream)).await?;
            anyhow::Ok(())
        };
        tokio::select! {
            biased;
            () = over.cancelled() => {}
            result = both => if let Err(error) = result {
                tracing::debug!(%error, "a stream through the fault proxy ended");
            },
        }
    });
    let (parts, _) = reply.into_parts();
    Ok(Response::from_parts(parts, answer::full(Bytes::new())))
}

/// The client of a dead connection gets no answer. The connection is closed from outside when the victim is dead.
async fn never_answers<T>() -> T {
    std::future::pending().await
}

fn outgoing(mut parts: Parts, body: Bytes, call: &Call, plan: &Plan) -> Request<Full<Bytes>> {
    let headers = &mut parts.headers;
    let upgrade = headers.get(UPGRADE).cloned();
    strip(headers);
    headers.remove(HOST);
    headers.remove(CONTENT_LENGTH);
    headers.remove(EXPECT);
    if let Some(upgrade) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, upgrade);
    }
    if call.kind == CallKind::Watch {
        // Events are separated by lines of plain JSON.
        headers.remove(ACCEPT_ENCODING);
        prefer_json(headers);
    }
    if let Some(version) = &plan.lists_as_of
        && call.query_value("continue").is_none()
        && let Ok(uri) = as_of(call, version)
    {
        parts.uri = uri;
    }
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = parts.method;
    *request.uri_mut() = parts.uri;
    *request.headers_mut() = parts.headers;
    request
}

/// The same list, as it was at a resourceVersion.
fn as_of(call: &Call, version: &str) -> Result<Uri, http::uri::InvalidUri> {
    let mut query = String::new();
    for (key, value) in pairs(&call.query) {
        if !matches!(key, "resourceVersion" | "resourceVersionMatch") {
            let _ = write!(query, "{key}={value}&");
        }
    }
    format!("{}?{query}resourceVersion={version}&resourceVersionMatch=Exact", call.path).parse()
}

fn prefer_json(headers: &mut HeaderMap) {
    let json: Vec<&str> = headers
        .get(ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|kind| kind.starts_with("application/json"))
        .collect();
    if !json.is_empty()
        && let Ok(value) = HeaderValue::from_str(&json.join(","))
    {
        headers.insert(ACCEPT, value);
    }
}

/// Removes what belongs to one connection only.
fn strip(headers: &mut HeaderMap) {
    for name in [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers.remove("proxy-connection");
}

fn digest(body: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(body) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
