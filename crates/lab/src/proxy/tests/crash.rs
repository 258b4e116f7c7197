//! Crashes: what reaches the server, and what the victim hears.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::harness::{Client, Harness, SOON, eventually, pod};
use crate::proxy::{Fault, Select, Victim};

const PODS: &str = "/api/v1/namespaces/a/pods";

/// A victim that counts how often it is called.
fn counted(harness: &Harness) -> Arc<AtomicUsize> {
    let calls = Arc::new(AtomicUsize::new(0));
    let victim = Arc::clone(&calls);
    harness.proxy.set_victim(Victim::Call(Arc::new(move || {
        victim.fetch_add(1, Ordering::SeqCst);
    })));
    calls
}

#[tokio::test]
async fn a_crash_before_a_write_keeps_it_from_the_server() {
    let harness = Harness::start().await;
    let calls = counted(&harness);
    let id = harness.proxy.inject(Fault::CrashBefore(2));
    let client = Client::new(harness.proxy.url());
    client.send(Method::POST, PODS, &pod("one")).await.unwrap();
    assert!(client.send(Method::POST, PODS, &pod("two")).await.is_err());
    harness.proxy.wait_crash(SOON).await.unwrap();
    assert_eq!((calls.load(Ordering::SeqCst), harness.proxy.fired(id)), (1, 1));
    assert!(client.send(Method::GET, "/version", "").await.is_err());
    assert_eq!(harness.seen().len(), 1);
    let writes = harness.proxy.writes();
    assert_eq!((writes.len(), writes[1].forwarded, writes[1].status), (2, false, None));

    harness.proxy.revive().await.unwrap();
    let reborn = Client::new(harness.proxy.url());
    reborn.send(Method::POST, PODS, &pod("two")).await.unwrap();
    assert_eq!(harness.seen().len(), 2);
    assert_eq!(harness.proxy.writes().len(), 3);
}

#[tokio::test]
async fn a_crash_after_a_write_lets_it_happen_and_hides_the_answer() {
    let harness = Harness::start().await;
    let calls = counted(&harness);
    harness.proxy.inject(Fault::CrashAfter(1));
    let client = Client::new(harness.proxy.url());
    assert!(client.send(Method::POST, PODS, &pod("one")).await.is_err());
    harness.proxy.wait_crash(SOON).await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(harness.seen().len(), 1);
    assert_eq!(harness.proxy.writes()[0].status, Some(201));
}

async fn crash_among_many(fault: fn(u64) -> Fault, want: usize) {
    for round in 0..20 {
        let harness = Harness::start().await;
        counted(&harness);
        harness.proxy.inject(fault(7));
        let sending: Vec<_> = (0..20)
            .map(|number| {
                // A connection each: nothing but the proxy orders them.
                let client = Client::new(harness.proxy.url());
                tokio::spawn(
                    async move { client.send(Method::POST, PODS, &pod(&format!("p{number}"))).await },
                )
            })
            .collect();
        harness.proxy.wait_crash(SOON).await.unwrap();
        let at_crash = harness.seen().len();
        let mut answered = 0;
        for sent in sending {
            answered += usize::from(sent.await.unwrap().is_ok());
        }
        harness.proxy.revive().await.unwrap();
        let client = Client::new(harness.proxy.url());
        client.send(Method::GET, "/version", "").await.unwrap();
        let seen = harness.seen();
        assert_eq!(seen.len(), want + 1, "round {round}: {seen:?}");
        assert_eq!(at_crash, want, "round {round}");
        assert!(answered < 7, "round {round}: {answered} answers");
        let forwarded: Vec<u64> =
            harness.proxy.writes().iter().filter(|write| write.forwarded).map(|write| write.n).collect();
        assert_eq!(forwarded, (1..=want as u64).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twenty_concurrent_writes_exactly_six_come_before_the_crash_before_the_seventh() {
    crash_among_many(Fault::CrashBefore, 6).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twenty_concurrent_writes_exactly_seven_come_before_the_crash_after_the_seventh() {
    crash_among_many(Fault::CrashAfter, 7).await;
}

#[tokio::test]
async fn a_write_that_is_at_the_server_when_the_victim_dies_is_done_but_not_answered() {
    let harness = Harness::start().await;
    let client = Client::new(harness.proxy.url());
    let open = harness.send_stuck(&client).await;
    harness.proxy.crash();
    assert!(open.await.unwrap().is_err());
    // The crash is complete only when the server has answered.
    assert!(harness.proxy.wait_crash(Duration::from_millis(50)).await.is_err());
    harness.free_stuck();
    harness.proxy.wait_crash(SOON).await.unwrap();
    assert_eq!(harness.proxy.writes()[0].status, Some(200));
}

#[tokio::test]
async fn a_delayed_write_and_an_uncounted_one_die_with_their_client() {
    let harness = Harness::start().await;
    harness.proxy.inject(Fault::Delay { select: Select::any(), by: Duration::from_millis(50) });
    let clients: Vec<_> = [PODS, "/api/v1/namespaces/a/events"]
        .map(|path| {
            let client = Client::new(harness.proxy.url());
            tokio::spawn(async move { client.send(Method::POST, path, "{}").await })
        })
        .into();
    eventually("one write in flight", || {
        let open = harness.proxy.in_flight();
        (open == 1, open)
    })
    .await;
    harness.proxy.crash();
    for client in clients {
        assert!(client.await.unwrap().is_err());
    }
    harness.proxy.clear();
    harness.proxy.revive().await.unwrap();
    let client = Client::new(harness.proxy.url());
    client.send(Method::GET, "/version", "").await.unwrap();
    let seen = harness.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
}

#[tokio::test]
async fn a_request_that_lay_in_the_socket_when_the_victim_died_is_never_served() {
    // One thread: the proxy accepts nothing between the connection and the revival's own.
    let harness = Harness::start().await;
    harness.proxy.crash();
    let address = harness.proxy.url().trim_start_matches("http://").to_owned();
    let mut left = std::net::TcpStream::connect(&address).unwrap();
    std::io::Write::write_all(
        &mut left,
        b"POST /api/v1/namespaces/a/pods HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}",
    )
    .unwrap();
    harness.proxy.revive().await.unwrap();
    let client = Client::new(harness.proxy.url());
    client.send(Method::GET, "/version", "").await.unwrap();
    assert_eq!(harness.seen().len(), 1);
    assert!(harness.proxy.writes().is_empty());
}

#[tokio::test]
async fn a_write_that_breaks_off_is_no_write() {
    let harness = Harness::start().await;
    let address = harness.proxy.url().trim_start_matches("http://").to_owned();
    let mut half = TcpStream::connect(&address).await.unwrap();
    half.write_all(b"POST /api/v1/namespaces/a/pods HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{")
        .await
        .unwrap();
    drop(half);
    let client = Client::new(harness.proxy.url());
    client.send(Method::POST, PODS, &pod("whole")).await.unwrap();
    assert_eq!(harness.proxy.writes().len(), 1);
    assert_eq!(harness.seen().len(), 1);
}

#[tokio::test]
async fn a_victim_process_is_killed() {
    use std::os::unix::process::ExitStatusExt;
    let harness = Harness::start().await;
    let mut child = tokio::process::Command::new("sleep").arg("600").kill_on_drop(true).spawn().unwrap();
    harness.proxy.set_victim(Victim::Pid(child.id().unwrap()));
    harness.proxy.inject(Fault::CrashBefore(1));
    let client = Client::new(harness.proxy.url());
    assert!(client.send(Method::POST, PODS, "{}").await.is_err());
    harness.proxy.wait_crash(SOON).await.unwrap();
    let status = timeout(SOON, child.wait()).await.unwrap().unwrap();
    assert_eq!(status.signal(), Some(9));
}

#[tokio::test]
async fn a_victim_that_cannot_be_killed_is_reported() {
    let harness = Harness::start().await;
    harness.proxy.set_victim(Victim::Pid(0));
    harness.proxy.crash();
    let error = harness.proxy.wait_crash(SOON).await.unwrap_err().to_string();
    assert!(error.contains("process 0 was not killed"), "{error}");
}

#[tokio::test]
async fn waiting_for_a_crash_that_does_not_come_says_what_was_seen() {
    let harness = Harness::start().await;
    harness.proxy.inject(Fault::CrashBefore(5));
    let error = harness.proxy.wait_crash(Duration::from_millis(10)).await.unwrap_err().to_string();
    assert!(error.contains("0 writes arrived") && error.contains("CrashBefore(5)"), "{error}");
}
