//! One test per promise of the election, in a world that is calm except for what the test does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::world::{Clock, Stoppable, World};
use crate::lease::{LostLease, Record};

/// Waits under paused time; says what it saw when that takes too long.
async fn until(world: &World, limit: f64, what: &str, mut done: impl FnMut(&World) -> bool) -> f64 {
    let start = Instant::now();
    while !done(world) {
        assert!(
            start.elapsed().as_secs_f64() < limit,
            "not after {limit} s: {what}; leaders {:?}",
            world.leaders()
        );
        world.check(0);
        sleep(Duration::from_millis(10)).await;
    }
    start.elapsed().as_secs_f64()
}

/// How a process ended, which has to happen within a minute.
async fn outcome(task: JoinHandle<Result<(), LostLease>>) -> Result<(), LostLease> {
    tokio::time::timeout(Duration::from_mins(1), task).await.expect("the process still runs").unwrap()
}

fn leads(world: &World, name: &str) -> bool {
    world.leaders() == [name]
}

/// A calm world in which `a` leads and `b` stands by.
async fn pair() -> (Arc<World>, [CancellationToken; 2], [JoinHandle<Result<(), LostLease>>; 2]) {
    let world = World::new(1, Duration::ZERO);
    let cancels = [CancellationToken::new(), CancellationToken::new()];
    let a = tokio::spawn(world.start_process("a", Clock::EXACT, Instant::now()).run(cancels[0].clone()));
    until(&world, 1.0, "a leads", |w| leads(w, "a")).await;
    let b = tokio::spawn(world.start_process("b", Clock::EXACT, Instant::now()).run(cancels[1].clone()));
    sleep(Duration::from_secs(5)).await;
    assert!(leads(&world, "a"));
    (world, cancels, [a, b])
}

#[tokio::test(start_paused = true)]
async fn a_clean_exit_hands_over_at_once() {
    let (world, [cancel, _], [a, _b]) = pair().await;
    cancel.cancel();
    let took = until(&world, 5.0, "b leads", |w| leads(w, "b")).await;
    assert!(took < 2.5, "the hand-over took {took} s");
    assert_eq!(outcome(a).await, Ok(()));
    let record = world.stored.lock().unwrap().0.clone().unwrap();
    assert_eq!((record.holder.as_deref(), record.transitions), (Some("b"), 1));
    assert!(record.acquired > Some(Timestamp::from_second(1_700_000_000).unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_replaced_after_the_lease_and_not_before() {
    let (world, _, [a, _b]) = pair().await;
    a.abort();
    let took = until(&world, 20.0, "b leads", |w| leads(w, "b")).await;
    assert!((8.0..12.5).contains(&took), "the take-over took {took} s");
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_an_api_server_ends_at_its_renew_deadline() {
    let world = World::new(1, Duration::ZERO);
    let elector = world.start_process("a", Clock::EXACT, Instant::now());
    let task = tokio::spawn(elector.run(CancellationToken::new()));
    until(&world, 1.0, "a leads", |w| leads(w, "a")).await;
    let mut changes = world.processes.lock().unwrap()[0].1.changes();
    world.silent.store(true, Ordering::Relaxed);
    let start = Instant::now();
    tokio::time::timeout(Duration::from_mins(1), async { while changes.changed().await {} }).await.unwrap();
    let took = start.elapsed().as_secs_f64();
    assert!((4.0..=6.0).contains(&took), "it led on for {took} s");
    let error = outcome(task).await.unwrap_err();
    assert!(matches!(error, LostLease::NotRenewed { .. }), "{error}");
    assert!(error.to_string().contains("no answer within"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_leader_is_not_current_when_it_continues() {
    let world = World::new(1, Duration::ZERO);
    let elector = world.start_process("a", Clock::EXACT, Instant::now());
    let now = Instant::now();
    let stops = vec![(now + Duration::from_secs(3), now + Duration::from_secs(30))];
    let process = Stoppable { inner: Box::pin(elector.run(CancellationToken::new())), stops, stopped: None };
    let a = tokio::spawn(process);
    until(&world, 1.0, "a leads", |w| leads(w, "a")).await;
    sleep_until(now + Duration::from_secs(3)).await;
    let _b =
        tokio::spawn(world.start_process("b", Clock::EXACT, Instant::now()).run(CancellationToken::new()));
    until(&world, 20.0, "b leads", |w| leads(w, "b")).await;
    let error = outcome(a).await.unwrap_err();
    assert!(leads(&world, "b"), "{:?}", world.leaders());
    assert!(error.to_string().contains("must restart"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_overwritten_ends_and_names_the_new_holder() {
    let (world, _, [a, _b]) = pair().await;
    {
        let mut stored = world.stored.lock().unwrap();
        let version = stored.1 + 1;
        let forced = stored.0.clone().map(|record| Record { holder: Some("intruder".into()), ..record });
        *stored = (forced, version);
    }
    let error = outcome(a).await.unwrap_err();
    assert_eq!(error, LostLease::TakenOver { lease: "ns/lease".into(), holder: "intruder".into() });
    assert!(world.leaders().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_foreign_touch_of_the_lease_does_not_end_leadership() {
    let (world, _, _tasks) = pair().await;
    for _ in 0..20 {
        world.stored.lock().unwrap().1 += 1;
        sleep(Duration::from_secs(1)).await;
        assert!(leads(&world, "a"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_made_again_by_its_leader() {
    let (world, _, _tasks) = pair().await;
    world.stored.lock().unwrap().0 = None;
    until(&world, 3.0, "the lease is back", |w| w.holder().as_deref() == Some("a")).await;
    sleep(Duration::from_secs(20)).await;
    assert!(leads(&world, "a"));
    assert_eq!(world.stored.lock().unwrap().0.as_ref().unwrap().transitions, 0);
}
