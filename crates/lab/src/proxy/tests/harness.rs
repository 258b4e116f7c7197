//! The harness of these tests: a server that records what reaches it, a proxy in front of it, and a client.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, broadcast};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::proxy::{Proxy, Upstream};

pub(super) const SOON: Duration = Duration::from_secs(10);
/// Long enough to notice what must not come.
pub(super) const NEVER: Duration = Duration::from_millis(100);
/// Writes to this path are answered only after `free_stuck`.
const STUCK: &str = "/api/v1/namespaces/a/configmaps/stuck";

pub(super) fn pod(name: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}"}}}}"#)
}

#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) method: Method,
    pub(super) uri: String,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

struct Server {
    seen: Mutex<Vec<Seen>>,
    events: broadcast::Sender<String>,
    stuck: Semaphore,
    watching: AtomicUsize,
}

pub(super) struct Harness {
    pub(super) proxy: Proxy,
    server: Arc<Server>,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Harness {
    pub(super) async fn start() -> Self {
        Self::new(None).await
    }

    pub(super) async fn start_tls(tls: &Tls) -> Self {
        Self::new(Some(tls)).await
    }

    async fn new(tls: Option<&Tls>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Arc::new(Server {
            seen: Mutex::default(),
            events: broadcast::Sender::new(64),
            stuck: Semaphore::new(0),
            watching: AtomicUsize::new(0),
        });
        let acceptor = tls.map(Tls::acceptor);
        let task = tokio::spawn({
            let server = Arc::clone(&server);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let server = Arc::clone(&server);
                    let acceptor = acceptor.clone();
                    tokio::spawn(async move {
                        match acceptor {
                            None => serve(stream, server).await,
                            Some(acceptor) => {
                                if let Ok(stream) = acceptor.accept(stream).await {
                                    serve(stream, server).await;
                                }
                            }
                        }
                    });
                }
            }
        });
        let scheme = if tls.is_some() { "https" } else { "http" };
        let proxy = Proxy::start(Upstream {
            url: format!("{scheme}://{address}"),
            ca_pem: tls.map(Tls::ca_pem).unwrap_or_default(),
        })
        .await
        .unwrap();
        Self { proxy, server, address, task }
    }

    pub(super) fn server_address(&self) -> String {
        self.address.to_string()
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.server.seen.lock().unwrap().clone()
    }

    pub(super) fn event(&self, event: &str) {
        self.server.events.send(format!("{event}\n")).unwrap();
    }

    /// Waits until so many watches are open at the server.
    pub(super) async fn watching(&self, count: usize) {
        eventually("open watches", || {
            let have = self.server.watching.load(Ordering::SeqCst);
            (have == count, have)
        })
        .await;
    }

    /// Sends a write, and returns when it is at the server, which does not answer it yet.
    pub(super) async fn send_stuck(&self, client: &Client) -> JoinHandle<Result<Reply, String>> {
        let client = client.clone();
        let sent = tokio::spawn(async move { client.send(Method::PATCH, STUCK, "{}").await });
        eventually("the stuck write at the server", || {
            let seen = self.seen();
            (seen.iter().any(|seen| seen.uri == STUCK), seen.len())
        })
        .await;
        sent
    }

    pub(super) fn free_stuck(&self) {
        self.server.stuck.add_permits(1);
    }

    pub(super) async fn drop_proxy(&mut self) {
        let other = Proxy::start(Upstream { url: "http://127.0.0.1:1".to_owned(), ca_pem: Vec::new() })
            .await
            .unwrap();
        drop(std::mem::replace(&mut self.proxy, other));
    }
}

/// Waits for a condition, and prints what it saw last when it does not come.
pub(super) async fn eventually<T: std::fmt::Debug>(what: &str, check: impl Fn() -> (bool, T)) {
    let end = tokio::time::Instant::now() + SOON;
    loop {
        let (done, saw) = check();
        if done {
            return;
        }
        assert!(tokio::time::Instant::now() < end, "{what}: saw {saw:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn serve<S>(stream: S, server: Arc<Server>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| answer(request, Arc::clone(&server)));
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed_unsync()
}

async fn answer(mut request: Request<Incoming>, server: Arc<Server>) -> Result<Response<Body>, Infallible> {
    let upgrade = request.headers().contains_key("upgrade").then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes);
    let Ok(body) = body else {
        return Ok(Response::new(full("")));
    };
    let uri = parts.uri.to_string();
    server.seen.lock().unwrap().push(Seen {
        method: parts.method.clone(),
        uri: uri.clone(),
        headers: parts.headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    });
    if let Some(upgrade) = upgrade {
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut buffer = [0; 64];
            while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                stream.write_all(&buffer[..length]).await.unwrap();
            }
        });
        let response = Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header("connection", "upgrade")
            .header("upgrade", "echo");
        return Ok(response.body(full("")).unwrap());
    }
    if uri == STUCK {
        server.stuck.acquire().await.unwrap().forget();
    }
    let response = Response::builder().header("content-type", "application/json").header("x-from", "server");
    if uri.contains("watch=1") {
        return Ok(response.body(watch_body(&server)).unwrap());
    }
    let status = match parts.method {
        Method::POST => 201,
        Method::DELETE if uri.contains("missing") => 404,
        _ => 200,
    };
    Ok(response.status(status).body(full(r#"{"kind":"Thing"}"#)).unwrap())
}

fn watch_body(server: &Arc<Server>) -> Body {
    struct Watching(Arc<Server>);
    impl Drop for Watching {
        fn drop(&mut self) {
            self.0.watching.fetch_sub(1, Ordering::SeqCst);
        }
    }
    server.watching.fetch_add(1, Ordering::SeqCst);
    let start = (server.events.subscribe(), Watching(Arc::clone(server)));
    let frames = futures::stream::unfold(start, |(mut events, watching)| async move {
        let event = events.recv().await.ok()?;
        // "END" closes the watch from the server's side.
        if event == "END\n" {
            return None;
        }
        // In two pieces, because the network does not keep lines together.
        let (left, right) = event.split_at(event.len() / 2);
        let pieces = [left, right].map(|text| Ok(Frame::data(Bytes::copy_from_slice(text.as_bytes()))));
        Some((futures::stream::iter(pieces), (events, watching)))
    });
    StreamBody::new(frames.flatten()).boxed_unsync()
}

#[derive(Clone)]
pub(super) struct Client {
    inner: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
    base: String,
}

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    headers: HeaderMap,
    pub(super) body: serde_json::Value,
}

impl Reply {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Client {
    pub(super) fn new(base: &str) -> Self {
        Self {
            inner: hyper_util::client::legacy::Client::builder(TokioExecutor::new())
                .retry_canceled_requests(false)
                .build_http(),
            base: base.to_owned(),
        }
    }

    pub(super) async fn send(&self, method: Method, path: &str, body: &str) -> Result<Reply, String> {
        self.send_with(method, path, body, &[]).await
    }

    pub(super) async fn send_with(
        &self,
        method: Method,
        path: &str,
        body: &str,
        headers: &[(&'static str, &'static str)],
    ) -> Result<Reply, String> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
        let exchange = async {
            let (parts, body) = self.inner.request(request).await?.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            Ok::<_, hyper_util::client::legacy::Error>((parts, body))
        };
        let (parts, body) = timeout(SOON, exchange)
            .await
            .map_err(|_| "no end of the request".to_owned())?
            .map_err(|error| format!("{error:?}"))?;
        Ok(Reply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: serde_json::from_slice(&body).unwrap_or_default(),
        })
    }

    pub(super) async fn watch(&self, path: &str) -> Watch {
        let request = Request::get(format!("{}{path}", self.base)).body(Full::default()).unwrap();
        let response = timeout(SOON, self.inner.request(request)).await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        Watch { body: response.into_body(), text: String::new() }
    }
}

pub(super) struct Watch {
    body: Incoming,
    text: String,
}

impl Watch {
    /// The next line, or `None` when the watch has ended.
    pub(super) async fn next(&mut self) -> Option<String> {
        timeout(SOON, self.line()).await.unwrap()
    }

    /// Whether nothing comes for a while.
    pub(super) async fn is_silent(&mut self) -> bool {
        timeout(NEVER, self.line()).await.is_err()
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.text.find('\n') {
                let rest = self.text.split_off(at + 1);
                let line = std::mem::replace(&mut self.text, rest);
                return Some(line.trim().to_owned());
            }
            let frame = self.body.frame().await?.ok()?;
            self.text.push_str(std::str::from_utf8(frame.data_ref()?).unwrap());
        }
    }
}

/// A stream upgraded from HTTP, as exec makes it.
pub(super) async fn upgraded(url: &str, path: &str) -> TcpStream {
    let address = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: Upgrade\r\nupgrade: echo\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(SOON, stream.read_u8()).await.unwrap().unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream
}

/// What comes back for these bytes; `None` when the stream is closed.
pub(super) async fn echo(stream: &mut TcpStream, bytes: &[u8]) -> Option<Vec<u8>> {
    stream.write_all(bytes).await.ok()?;
    let mut back = vec![0; bytes.len()];
    timeout(SOON, stream.read_exact(&mut back)).await.unwrap().ok()?;
    Some(back)
}

/// A certificate for the harness's server.
pub(super) struct Tls {
    certificate: String,
    key: String,
}

impl Tls {
    pub(super) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        Self { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
    }

    pub(super) fn ca_pem(&self) -> Vec<u8> {
        self.certificate.clone().into_bytes()
    }

    fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap(),
            )
            .unwrap();
        Arc::new(config).into()
    }
}
