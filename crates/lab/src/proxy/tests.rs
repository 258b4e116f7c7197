//! The proxy between a small client and a small server, both in this process.

mod crash;
mod errors;
mod harness;
mod watches;

use std::time::Duration;

use http::Method;

use super::{Proxy, Upstream};
use harness::{Client, Harness, pod};

#[tokio::test]
async fn requests_and_answers_pass_unchanged() {
    let harness = Harness::start().await;
    let client = Client::new(harness.proxy.url());
    let reply = client
        .send_with(
            Method::POST,
            "/api/v1/namespaces/a/pods?fieldManager=m%20x",
            r#"{"metadata":{"name":"p"}}"#,
            &[
                ("authorization", "Bearer secret"),
                ("impersonate-user", "another-user"),
                ("content-type", "application/json"),
            ],
        )
        .await
        .unwrap();
    assert_eq!(reply.status, 201);
    assert_eq!(reply.header("x-from"), Some("server"));
    let seen = harness.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0].method, Method::POST);
    assert_eq!(seen[0].uri, "/api/v1/namespaces/a/pods?fieldManager=m%20x");
    assert_eq!(seen[0].body, r#"{"metadata":{"name":"p"}}"#);
    assert_eq!(seen[0].header("authorization"), Some("Bearer secret"));
    assert_eq!(seen[0].header("impersonate-user"), Some("another-user"));
    assert_eq!(seen[0].header("host"), Some(harness.server_address().as_str()));
}

#[tokio::test]
async fn requests_go_to_the_server_over_tls_and_its_certificate_is_checked() {
    let secure = harness::Tls::new();
    let harness = Harness::start_tls(&secure).await;
    let client = Client::new(harness.proxy.url());
    assert_eq!(client.send(Method::GET, "/version", "").await.unwrap().status, 200);

    let stranger = harness::Tls::new();
    let wrong = Proxy::start(Upstream {
        url: format!("https://{}", harness.server_address()),
        ca_pem: stranger.ca_pem(),
    })
    .await
    .unwrap();
    let client = Client::new(wrong.url());
    assert!(client.send(Method::GET, "/version", "").await.is_err());
    assert_eq!(harness.seen().len(), 1);

    let without =
        Proxy::start(Upstream { url: format!("https://{}", harness.server_address()), ca_pem: Vec::new() })
            .await;
    assert!(without.is_err());
}

#[tokio::test]
async fn only_writes_are_counted_and_reset_starts_again() {
    let harness = Harness::start().await;
    let client = Client::new(harness.proxy.url());
    let requests = [
        (Method::GET, "/api/v1/pods", ""),
        (Method::POST, "/api/v1/namespaces/a/pods", r#"{"metadata":{"name":"p"}}"#),
        (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", "{}"),
        (Method::POST, "/api/v1/namespaces/a/events", "{}"),
        (Method::PATCH, "/api/v1/namespaces/a/pods/p?dryRun=All", "{}"),
        (Method::PATCH, "/api/v1/namespaces/a/pods/p/status", "{}"),
        (Method::DELETE, "/api/v1/namespaces/a/pods/missing", ""),
    ];
    for (method, uri, body) in requests {
        client.send(method, uri, body).await.unwrap();
    }
    let writes = harness.proxy.writes();
    let short: Vec<_> = writes
        .iter()
        .map(|write| (write.n, write.method.as_str(), write.object.as_deref(), write.status))
        .collect();
    assert_eq!(
        short,
        [
            (1, "POST", Some("p"), Some(201)),
            (2, "PATCH", Some("p"), Some(200)),
            (3, "DELETE", Some("missing"), Some(404)),
        ]
    );
    assert!(writes.iter().all(|write| write.forwarded), "{writes:?}");
    assert_eq!(writes[0].body_digest.len(), 64);
    assert_eq!(harness.seen().len(), 7);

    harness.proxy.reset();
    assert!(harness.proxy.writes().is_empty());
    client.send(Method::POST, "/api/v1/namespaces/a/pods", &pod("q")).await.unwrap();
    assert_eq!(harness.proxy.writes()[0].n, 1);
}

#[tokio::test]
async fn idle_is_when_no_write_has_come_for_a_while_and_none_is_open() {
    let harness = Harness::start().await;
    let client = Client::new(harness.proxy.url());
    let quiet = Duration::from_millis(30);
    assert!(harness.proxy.wait_idle(quiet, Duration::from_secs(5)).await);

    let open = harness.send_stuck(&client).await;
    assert_eq!(harness.proxy.in_flight(), 1);
    assert!(!harness.proxy.wait_idle(quiet, Duration::from_millis(100)).await);
    harness.free_stuck();
    assert!(harness.proxy.wait_idle(quiet, Duration::from_secs(5)).await);
    assert_eq!(harness.proxy.in_flight(), 0);
    assert_eq!(open.await.unwrap().unwrap().status, 200);
}

#[tokio::test]
async fn a_dropped_proxy_closes_its_connections_and_its_port() {
    let mut harness = Harness::start().await;
    let client = Client::new(harness.proxy.url());
    let mut watch = client.watch("/api/v1/pods?watch=1").await;
    harness.drop_proxy().await;
    assert_eq!(watch.next().await, None);
    assert!(client.send(Method::GET, "/version", "").await.is_err());
}

#[tokio::test]
async fn an_upgraded_connection_carries_bytes_both_ways_until_the_crash() {
    let harness = Harness::start().await;
    let mut stream = harness::upgraded(harness.proxy.url(), "/api/v1/namespaces/a/pods/p/exec").await;
    assert_eq!(harness::echo(&mut stream, b"hello").await.as_deref(), Some(&b"hello"[..]));
    harness.proxy.crash();
    assert_eq!(harness::echo(&mut stream, b"again").await, None);
    assert!(harness.proxy.writes().is_empty());
}

#[tokio::test]
async fn the_kubeconfig_names_proxy_and_client() {
    use std::os::unix::fs::PermissionsExt;
    let harness = Harness::start().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    harness.proxy.kubeconfig("secret", &path).unwrap();
    let config = kube::config::Kubeconfig::read_from(&path).unwrap();
    let server = config.clusters[0].cluster.as_ref().unwrap().server.clone();
    assert_eq!(server.as_deref(), Some(harness.proxy.url()));
    assert_eq!(config.current_context.as_deref(), Some("proxy"));
    assert!(config.auth_infos[0].auth_info.as_ref().unwrap().token.is_some());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    harness.proxy.kubeconfig_as("secret", "jane", &["dev"], &path).unwrap();
    let config = kube::config::Kubeconfig::read_from(&path).unwrap();
    let user = config.auth_infos[0].auth_info.as_ref().unwrap();
    assert_eq!(user.impersonate.as_deref(), Some("jane"));
    assert_eq!(user.impersonate_groups.as_deref(), Some(&["dev".to_owned()][..]));
}
