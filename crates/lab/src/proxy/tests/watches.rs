//! Watches that lag, lose events or end.

use http::Method;

use super::harness::{Client, Harness};
use crate::proxy::Fault;

const WATCH: &str = "/api/v1/pods?watch=1&resourceVersion=5";

fn event(number: u32) -> String {
    format!(r#"{{"type":"MODIFIED","object":{{"number":{number}}}}}"#)
}

fn bookmark() -> String {
    r#"{"type":"BOOKMARK","object":{}}"#.to_owned()
}

fn hold(resource: &str) -> Fault {
    Fault::HoldWatch { resource: resource.to_owned(), lists_as_of: None }
}

#[tokio::test]
async fn events_pass_line_by_line() {
    let harness = Harness::start().await;
    let client = Client::new(harness.proxy.url());
    let mut watch = client.watch(WATCH).await;
    for number in 1..=3 {
        harness.event(&event(number));
        assert_eq!(watch.next().await, Some(event(number)));
    }
    harness.event("END");
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn held_events_come_in_order_after_the_release_and_other_kinds_pass() {
    let harness = Harness::start().await;
    let client = Client::new(harness.proxy.url());
    let mut pods = client.watch(WATCH).await;
    let mut secrets = client.watch("/api/v1/secrets?watch=1").await;
    harness.event(&event(1));
    assert_eq!(pods.next().await, Some(event(1)));
    harness.proxy.inject(hold("pods"));
    for number in 2..=5 {
        harness.event(&event(number));
    }
    for number in 1..=5 {
        assert_eq!(secrets.next().await, Some(event(number)));
    }
    assert!(pods.is_silent().await);
    // A watch that starts meanwhile is held too.
    let mut late = client.watch(WATCH).await;
    harness.event(&event(6));
    harness.event("END");
    assert!(late.is_silent().await && pods.is_silent().await);
    harness.proxy.release("pods");
    for number in 2..=6 {
        assert_eq!(pods.next().await, Some(event(number)));
    }
    assert_eq!(late.next().await, Some(event(6)));
    assert_eq!((pods.next().await, late.next().await), (None, None));
}

#[tokio::test]
async fn only_the_nth_event_is_swallowed_and_bookmarks_do_not_count() {
    let harness = Harness::start().await;
    let client = Client::new(harness.proxy.url());
    let mut watch = client.watch(WATCH).await;
    harness.event(&event(1));
    assert_eq!(watch.next().await, Some(event(1)));
    let id = harness.proxy.inject(Fault::DropWatchEvent { resource: "pods".to_owned(), n: 2 });
    for line in [event(2), bookmark(), event(3), event(4)] {
        harness.event(&line);
    }
    for line in [event(2), bookmark(), event(4)] {
        assert_eq!(watch.next().await, Some(line));
    }
    assert_eq!(harness.proxy.fired(id), 1);
}

#[tokio::test]
async fn closed_watches_end_cleanly_and_can_be_opened_again() {
    let harness = Harness::start().await;
    let client = Client::new(harness.proxy.url());
    let mut pods = client.watch(WATCH).await;
    let mut secrets = client.watch("/api/v1/secrets?watch=1").await;
    let id = harness.proxy.inject(Fault::CloseWatch { resource: "pods".to_owned() });
    assert_eq!(pods.next().await, None);
    assert_eq!(harness.proxy.fired(id), 1);
    harness.watching(1).await;
    let mut again = client.watch(WATCH).await;
    harness.event(&event(1));
    assert_eq!(again.next().await, Some(event(1)));
    assert_eq!(secrets.next().await, Some(event(1)));
}

#[tokio::test]
async fn the_next_watch_with_a_version_is_answered_that_it_is_too_old() {
    let harness = Harness::start().await;
    let client = Client::new(harness.proxy.url());
    harness.proxy.inject(Fault::Gone { resource: "pods".to_owned() });
    let mut fresh = client.watch("/api/v1/pods?watch=1&resourceVersion=0").await;
    let mut watch = client.watch(WATCH).await;
    let line: serde_json::Value = serde_json::from_str(&watch.next().await.unwrap()).unwrap();
    assert_eq!((&line["type"], &line["object"]["code"]), (&"ERROR".into(), &410.into()));
    assert_eq!(line["object"]["reason"], "Expired");
    assert_eq!(watch.next().await, None);
    let mut again = client.watch(WATCH).await;
    harness.event(&event(1));
    assert_eq!(again.next().await, Some(event(1)));
    assert_eq!(fresh.next().await, Some(event(1)));
}

#[tokio::test]
async fn lists_are_asked_as_of_the_past_while_they_are_held() {
    let harness = Harness::start().await;
    let client = Client::new(harness.proxy.url());
    harness
        .proxy
        .inject(Fault::HoldWatch { resource: "pods".to_owned(), lists_as_of: Some("42".to_owned()) });
    let asked = [
        "/api/v1/pods?limit=5&resourceVersion=0",
        "/api/v1/pods?continue=abc",
        "/api/v1/secrets",
        "/api/v1/namespaces/a/pods/p",
    ];
    for path in asked {
        client.send(Method::GET, path, "").await.unwrap();
    }
    harness.proxy.release("pods");
    client.send(Method::GET, "/api/v1/pods", "").await.unwrap();
    let seen: Vec<_> = harness.seen().into_iter().map(|seen| seen.uri).collect();
    assert_eq!(
        seen,
        [
            "/api/v1/pods?limit=5&resourceVersion=42&resourceVersionMatch=Exact",
            asked[1],
            asked[2],
            asked[3],
            "/api/v1/pods",
        ]
    );
}

#[tokio::test]
async fn a_crash_ends_watches_here_and_at_the_server() {
    let harness = Harness::start().await;
    let client = Client::new(harness.proxy.url());
    let mut watch = client.watch(WATCH).await;
    harness.watching(1).await;
    harness.proxy.crash();
    assert_eq!(watch.next().await, None);
    harness.watching(0).await;
}
