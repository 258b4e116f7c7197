//! Serves HTTP to whoever reaches the port, without asking who that is: probes and scrapers. A client that is slow, or that
//! connects and says nothing, must not keep others from being answered. So a connection carries one request and has a deadline,
//! and when there are too many connections the oldest one is closed.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::runtime::Runtime;

/// How long to wait when the operating system gives no connection, for example because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);
/// The head of a request may be so large; that much memory belongs to a connection.
const HEAD_BYTES: usize = 16 * 1024;

/// What the clients of one server may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at a time. One more closes the oldest one: who asks in earnest is answered within milliseconds, so the oldest
    /// has most likely not asked. A queue in its place would make a probe wait behind all who say nothing.
    pub connections: usize,
    /// How long the head of a request may take.
    pub head: Duration,
    /// How long everything may take, from the beginning of the connection to the end of the reply.
    pub whole: Duration,
}

impl Limits {
    /// For the probes of a kubelet, which give up after a few seconds themselves.
    pub const PROBES: Self =
        Self { connections: 64, head: Duration::from_secs(5), whole: Duration::from_secs(10) };
    /// For a few scrapers.
    pub const SCRAPERS: Self = Self { connections: 16, ..Self::PROBES };
}

/// Serves until it is cancelled; answers with the address that was taken.
pub(crate) async fn serve(
    listen: SocketAddr,
    router: Router,
    limits: Limits,
    runtime: &Runtime,
    shutdown: CancellationToken,
) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    runtime.spawn(async move {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = accept(listener, router, limits) => {}
        }
    });
    Ok(address)
}

/// Never ends by itself. Connections end with it.
async fn accept(listener: TcpListener, router: Router, limits: Limits) {
    let mut connections = JoinSet::new();
    let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                if !is_of_client(&error) {
                    tracing::warn!(%error, "Cannot accept a connection; trying again");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        oldest_first.retain(|connection| !connection.is_finished());
        if oldest_first.len() >= limits.connections
            && let Some(oldest) = oldest_first.pop_front()
        {
            oldest.abort();
        }
        oldest_first.push_back(connections.spawn(answer(stream, router.clone(), limits)));
    }
}

/// Whether only this client is concerned, which has gone already.
fn is_of_client(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset)
}

/// One request. What goes wrong is the client's trouble: it gave up, was too slow, or does not speak HTTP.
async fn answer(stream: TcpStream, router: Router, limits: Limits) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(HEAD_BYTES)
        // A connection that is kept open is one more that can be held; a new one for each scrape costs nothing worth mentioning.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match tokio::time::timeout(limits.whole, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "A connection ended early"),
        Err(_) => tracing::debug!("A connection took too long and was closed"),
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_mins(10);
    const SOON: Duration = Duration::from_secs(5);
    const HALF_A_HEAD: &[u8] = b"GET /livez HTTP/1.1\r\nHost: a\r\n";

    async fn server(limits: Limits) -> (SocketAddr, Runtime) {
        let router = Router::new()
            .route("/livez", get(|| async { "alive\n" }))
            .route("/never", get(std::future::pending::<&str>));
        let runtime = Runtime::system();
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let address = serve(listen, router, limits, &runtime, CancellationToken::new()).await.unwrap();
        (address, runtime)
    }

    async fn connected(address: SocketAddr, says: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(says).await.unwrap();
        stream
    }

    /// What the server says until it closes the connection.
    async fn read(mut stream: TcpStream) -> String {
        let mut said = Vec::new();
        // A connection that the server has cut may end in an error.
        let _ = timeout(SOON, stream.read_to_end(&mut said)).await.expect("the connection stays open");
        String::from_utf8(said).unwrap()
    }

    #[tokio::test]
    async fn more_idle_and_slow_clients_than_connections_do_not_keep_a_probe_from_its_answer() {
        let limits = Limits { connections: 8, head: LONG, whole: LONG };
        let (address, _runtime) = server(limits).await;
        let mut crowd = Vec::new();
        for number in 0..limits.connections * 3 {
            let says: &[u8] = if number % 2 == 0 { b"" } else { HALF_A_HEAD };
            crowd.push(connected(address, says).await);
        }
        for _ in 0..3 {
            let probe = connected(address, b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").await;
            let said = read(probe).await;
            assert!(said.starts_with("HTTP/1.1 200 ") && said.ends_with("alive\n"), "{said}");
        }
        // The oldest were closed for it, the newest are still there.
        assert_eq!(read(crowd.remove(0)).await, "");
        let newest = crowd.last_mut().unwrap();
        newest.write_all(b"\r\n").await.unwrap();
        assert!(read(crowd.pop().unwrap()).await.ends_with("alive\n"));
    }

    #[tokio::test]
    async fn a_head_that_does_not_come_and_a_reply_that_takes_too_long_end_the_connection() {
        let short = Duration::from_millis(200);
        let (address, _runtime) = server(Limits { connections: 8, head: short, whole: LONG }).await;
        assert_eq!(read(connected(address, HALF_A_HEAD).await).await, "", "no whole head");
        let (address, _runtime) = server(Limits { connections: 8, head: LONG, whole: short }).await;
        assert_eq!(read(connected(address, b"").await).await, "", "not a word");
        let waits = connected(address, b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(read(waits).await, "", "no reply");
    }

    #[tokio::test]
    async fn a_connection_carries_one_request_and_a_large_head_is_refused() {
        let (address, _runtime) = server(Limits::PROBES).await;
        let twice = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2);
        let said = read(connected(address, &twice).await).await;
        assert_eq!(said.matches("HTTP/1.1 200 ").count(), 1, "{said}");
        assert!(said.contains("connection: close"), "{said}");
        let large = format!("GET /livez HTTP/1.1\r\nHost: {}\r\n\r\n", "a".repeat(2 * HEAD_BYTES));
        let said = read(connected(address, large.as_bytes()).await).await;
        assert!(!said.contains(" 200 "), "{said}");
    }
}
