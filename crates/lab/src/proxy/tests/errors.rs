//! Answers that are lost, wrong or late, and the actor in between.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, StatusCode};
use tokio::time::Instant;

use super::harness::{Client, Harness, NEVER, pod};
use crate::proxy::{Fault, Select};

const PODS: &str = "/api/v1/namespaces/a/pods";

#[tokio::test]
async fn a_cut_reply_hides_a_write_that_was_done_and_the_client_lives() {
    let harness = Harness::start().await;
    harness.proxy.inject(Fault::CutReply(1));
    let client = Client::new(harness.proxy.url());
    assert!(client.send(Method::POST, PODS, &pod("one")).await.is_err());
    assert_eq!(harness.proxy.writes()[0].status, Some(201));
    assert!(!harness.proxy.crashed());
    client.send(Method::POST, PODS, &pod("two")).await.unwrap();
    assert_eq!(harness.seen().len(), 2);
}

#[tokio::test]
async fn a_failure_is_a_kubernetes_status_and_ends_after_its_times() {
    let harness = Harness::start().await;
    let id = harness.proxy.inject(Fault::Fail {
        select: Select::writes().resource("pods"),
        status: StatusCode::TOO_MANY_REQUESTS,
        times: Some(2),
        retry_after: Some(Duration::from_millis(1500)),
    });
    let client = Client::new(harness.proxy.url());
    for _ in 0..2 {
        let reply = client.send(Method::POST, PODS, &pod("one")).await.unwrap();
        assert_eq!(reply.status, 429);
        assert_eq!(reply.header("retry-after"), Some("2"));
        assert_eq!(reply.body["kind"], "Status");
        assert_eq!(reply.body["reason"], "TooManyRequests");
        assert_eq!(reply.body["details"]["retryAfterSeconds"], 2);
    }
    assert!(harness.seen().is_empty());
    assert_eq!(client.send(Method::POST, PODS, &pod("one")).await.unwrap().status, 201);
    assert_eq!(harness.proxy.fired(id), 2);
    let writes: Vec<_> = harness.proxy.writes().iter().map(|write| (write.forwarded, write.status)).collect();
    assert_eq!(writes, [(false, Some(429)), (false, Some(429)), (true, Some(201))]);
}

#[tokio::test]
async fn a_failure_without_times_lasts_until_it_is_removed() {
    let harness = Harness::start().await;
    let id = harness.proxy.inject(Fault::Fail {
        select: Select::reads(),
        status: StatusCode::SERVICE_UNAVAILABLE,
        times: None,
        retry_after: None,
    });
    let client = Client::new(harness.proxy.url());
    for _ in 0..3 {
        assert_eq!(client.send(Method::GET, PODS, "").await.unwrap().status, 503);
    }
    harness.proxy.remove(id);
    assert_eq!(client.send(Method::GET, PODS, "").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_failure_after_the_write_is_a_timeout_of_something_done() {
    let harness = Harness::start().await;
    harness.proxy.inject(Fault::FailAfter { select: Select::writes(), times: Some(1) });
    let client = Client::new(harness.proxy.url());
    let reply = client.send(Method::POST, PODS, &pod("one")).await.unwrap();
    assert_eq!((reply.status, reply.body["reason"].as_str()), (504, Some("Timeout")));
    assert_eq!(harness.seen().len(), 1);
    assert_eq!(harness.proxy.writes()[0].status, Some(201));
}

#[tokio::test]
async fn a_delayed_request_arrives_later() {
    let harness = Harness::start().await;
    let by = Duration::from_millis(80);
    harness.proxy.inject(Fault::Delay { select: Select::any().method(Method::GET), by });
    let client = Client::new(harness.proxy.url());
    let start = Instant::now();
    client.send(Method::GET, PODS, "").await.unwrap();
    assert!(start.elapsed() >= by);
}

#[tokio::test]
async fn refused_requests_are_closed_until_the_faults_are_cleared() {
    let harness = Harness::start().await;
    harness.proxy.inject(Fault::Refuse { select: Select::any() });
    let client = Client::new(harness.proxy.url());
    assert!(client.send(Method::GET, PODS, "").await.is_err());
    assert!(client.send(Method::POST, PODS, "{}").await.is_err());
    harness.proxy.clear();
    assert_eq!(client.send(Method::GET, PODS, "").await.unwrap().status, 200);
    assert_eq!(harness.seen().len(), 1);
}

#[tokio::test]
async fn an_action_runs_before_the_write_is_forwarded() {
    let harness = Harness::start().await;
    let other = Client::new(&format!("http://{}", harness.server_address()));
    let reported = Arc::new(Mutex::new(None));
    let report = Arc::clone(&reported);
    harness.proxy.inject(Fault::Before(
        2,
        Arc::new(move |write| {
            let other = other.clone();
            let report = Arc::clone(&report);
            Box::pin(async move {
                other.send(Method::DELETE, "/api/v1/namespaces/a/pods/foreign", "").await.unwrap();
                *report.lock().unwrap() = Some((write.n, write.object));
            })
        }),
    ));
    let client = Client::new(harness.proxy.url());
    client.send(Method::POST, PODS, &pod("one")).await.unwrap();
    client.send(Method::POST, PODS, &pod("two")).await.unwrap();
    let methods: Vec<_> = harness.seen().iter().map(|seen| seen.method.clone()).collect();
    assert_eq!(methods, [Method::POST, Method::DELETE, Method::POST]);
    assert_eq!(reported.lock().unwrap().clone(), Some((2, Some("two".to_owned()))));
}

#[tokio::test]
async fn a_client_that_gives_up_lifts_the_wait_for_its_crash() {
    let harness = Harness::start().await;
    harness.proxy.inject(Fault::CrashAfter(1));
    let slow = harness
        .proxy
        .inject(Fault::Delay { select: Select::any().name_contains("slow"), by: Duration::from_mins(1) });
    let impatient = Client::new(harness.proxy.url());
    let given_up = tokio::time::timeout(NEVER, impatient.send(Method::POST, PODS, &pod("slow"))).await;
    assert!(given_up.is_err());
    drop(impatient);
    let client = Client::new(harness.proxy.url());
    client.send(Method::POST, PODS, &pod("quick")).await.unwrap();
    assert_eq!(harness.proxy.fired(slow), 1);
    assert!(!harness.proxy.crashed());
    assert_eq!(harness.seen().len(), 1);
}

#[tokio::test]
async fn a_server_that_is_not_there_closes_the_connection() {
    let mut harness = Harness::start().await;
    harness.drop_proxy().await;
    let client = Client::new(harness.proxy.url());
    assert!(client.send(Method::GET, "/version", "").await.is_err());
    assert!(client.send(Method::POST, PODS, "{}").await.is_err());
    let writes = harness.proxy.writes();
    assert_eq!((writes.len(), writes[0].status), (1, None));
}
